"""Instances that agree on an owner, or all do the work, and a leader that is behind, in worlds made by hand.

Its rule: a world shows one thing that few seeds show.
"""

import asyncio
import json

import pytest

from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.engine.ownership.ability import IDLE_CONFIRMED_AFTER_NS
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.engine.ownership.owners import HEARTBEAT_INTERVAL_NS
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import NEVER, SECOND
from tests.simulation.buckets import SimulatedBucket
from tests.simulation.fleet import SimulatedFleet, two
from tests.simulation.instance import Instance
from tests.simulation.scenario import LIVE, MILLISECOND
from tests.simulation.sidecar import Parts

pytestmark = pytest.mark.slow

READING = 6 * SECOND
LATE = 900 * MILLISECOND
"""The length (ns) of a stall that makes heartbeats late, and after which what was owned is owned."""
SOON = 800 * MILLISECOND
"""The time (ns) in which an owner that was killed is replaced: 0.6 s after a heartbeat, 0.1 s, and the requests."""
PASSED_OVER = SECOND + UNFIRED_LIMIT_NS + IDLE_CONFIRMED_AFTER_NS + SECOND
"""The time (ns) in which an owner is passed over that fires nothing, if a schedule is due each second."""
SUBJECTS = [f"s.{number}" for number in range(12)]


def pair(fleet: SimulatedFleet) -> tuple[Instance, Instance]:
    """Return the owner and the standby."""
    (owner,) = fleet.owners()
    (standby,) = [one for one in fleet.instances if one is not owner]
    return owner, standby


def owned_while_reading() -> bool:
    """Let the first one in the order join, which needs a while to read the stream; return whether it owns it then."""
    later, earlier = (name.removesuffix("-1") for name in order_of("emulated.SIM", ["i0-1", "i1-1"])[::-1])
    with SimulatedFleet() as fleet:
        first = fleet.boot(later)
        fleet.timeline.run(3 * SECOND)
        assert first.is_owner
        fleet.server.reads_for = READING
        second = fleet.boot(earlier)
        fleet.timeline.run(READING // 2)
        is_owner = second.is_owner
        fleet.timeline.run(READING)
        assert fleet.owners() == [second], "it is the first one in the order"
        return is_owner


def test_one_that_is_still_reading_owns_nothing() -> None:
    assert not owned_while_reading()


def longest_silence_of_one_who_waits() -> int:
    """Let a standby claim the stream of a dead owner without an answer; return the longest time without a heartbeat."""
    with two() as (fleet, _first, _second):
        owner, standby = pair(fleet)
        fleet.bucket.unanswered_until = NEVER
        owner.kill()
        return max(fleet.silences(f"instance.{standby.name}-1", 6 * SECOND))


def test_one_that_waits_for_an_answer_sends_heartbeats_all_the_same() -> None:
    assert longest_silence_of_one_who_waits() <= 2 * HEARTBEAT_INTERVAL_NS


def fired_after_a_death(duration: int, *, asks: bool = True) -> bool:
    """Kill the owner, and return whether the standby fires for the stream after a time (ns)."""
    with two(asks=asks) as (fleet, _first, _second):
        owner, standby = pair(fleet)
        owner.kill()
        fleet.timeline.run(duration)
        return standby.is_owner


def test_the_stream_of_a_dead_owner_is_taken_over_in_time() -> None:
    assert fired_after_a_death(SOON)
    assert not fired_after_a_death(SOON, asks=False), "its heartbeats have to stop first"
    assert fired_after_a_death(LIVE, asks=False)


def takeovers_after_a_stall(duration: int) -> int:
    """Stall the owner for a while; return how often the stream was taken over then."""
    with two() as (fleet, _first, _second):
        owner, _standby = pair(fleet)
        before = fleet.bucket.takeovers
        owner.process.stall()
        fleet.timeline.run(duration)
        owner.wake(acts_first=True)
        fleet.timeline.run(LIVE)
        assert fleet.owners() == [owner], "it has the stream again"
        return fleet.bucket.takeovers - before


def test_an_owner_that_is_late_and_still_there_keeps_its_stream() -> None:
    assert takeovers_after_a_stall(LATE) == 0
    assert takeovers_after_a_stall(LIVE) > 0


def owned_after_a_reconnect() -> bool:
    """Let the one that took over connect again while an old heartbeat of the dead one is still stored."""
    with two() as (fleet, _first, _second):
        owner, standby = pair(fleet)
        fleet.bucket.forgets = False
        owner.kill()
        fleet.timeline.run(6 * SECOND)
        assert standby.is_owner
        standby.cut(SECOND // 2)
        fleet.timeline.run(2 * SECOND)
        return standby.is_owner


def test_old_heartbeats_do_not_revive_the_dead() -> None:
    assert owned_after_a_reconnect()


def takeovers_after_an_outage(*, owner_dies: bool = False) -> int:
    """Cut off two instances, the owner a moment longer; return how often the stream was taken over then."""
    with two() as (fleet, _first, _second):
        owner, standby = pair(fleet)
        before = fleet.bucket.takeovers
        standby.cut(4 * SECOND)
        owner.cut(4 * SECOND + SECOND // 2)
        if owner_dies:
            owner.kill()
        fleet.timeline.run(4 * SECOND + LIVE)
        assert fleet.owners() == [standby if owner_dies else owner]
        return fleet.bucket.takeovers - before


def test_the_first_one_back_from_an_outage_takes_nothing() -> None:
    assert takeovers_after_an_outage() == 0


def test_an_owner_that_died_in_an_outage_is_replaced_in_time() -> None:
    assert takeovers_after_an_outage(owner_dies=True) >= 1


def missing_while_the_owner_leaves(*, unanswered: int = SECOND) -> int:
    """Let the owner leave, with its hand-over unanswered for a while; return how many fires are missing afterwards."""
    with two() as (fleet, _first, _second):
        owner, _standby = pair(fleet)
        for subject in SUBJECTS:
            fleet.store(subject, "@every 1s")
        fleet.timeline.run(7 * SECOND // 10)
        fleet.bucket.unanswered_until = fleet.timeline.now + unanswered
        owner.leave()
        fleet.timeline.run(LIVE)
        return len(SUBJECTS) * LIVE // SECOND - len(fleet.server.history.fires)


def test_an_owner_that_leaves_fires_until_its_stream_is_handed_over() -> None:
    assert missing_while_the_owner_leaves() == 0


class SlowBucket(SimulatedBucket):
    async def get(self, key: str) -> Object | None:
        """Return the checkpoint, after a while."""
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, over.set)
        await over.wait()
        return await super().get(key)


def lateness_at_a_takeover() -> int:
    """Hand a stream over to one that reads the checkpoint slowly; return how late (ns) the latest fire is stored."""
    later, earlier = (name.removesuffix("-1") for name in order_of("emulated.SIM", ["i0-1", "i1-1"])[::-1])
    with SimulatedFleet(Parts(bucket=SlowBucket)) as fleet:
        fleet.boot(later)
        fleet.timeline.run(3 * SECOND)
        for number in range(40):
            fleet.store(f"s.{number}", f"@at {format_rfc3339(fleet.timeline.now + SECOND + number * SECOND // 20)}")
        fleet.timeline.run(SECOND)
        successor = fleet.boot(earlier)
        fleet.timeline.run(3 * SECOND)
        assert fleet.owners() == [successor]
        fires = fleet.server.history.fires
        assert len(fires) == 40, "none is missing, and none is doubled"
        return max(fire.stored_at - (fire.fire_time or 0) for fire in fires)


def test_an_owner_fires_on_until_the_next_one_has_the_stream() -> None:
    assert lateness_at_a_takeover() <= 50 * MILLISECOND


def end_of_one_who_leaves() -> int:
    """Let the only one leave while no request is answered; return how long (ns) it takes to end."""
    with SimulatedFleet() as fleet:
        one = fleet.boot("i0")
        fleet.timeline.run(3 * SECOND)
        fleet.store("s.1", "@every 1s")
        fleet.timeline.run(3 * SECOND)
        fleet.bucket.unanswered_until = NEVER
        begun = fleet.timeline.now
        one.leave()
        while one.is_alive:
            fleet.timeline.run(SECOND // 10)
        return fleet.timeline.now - begun


def test_one_that_leaves_does_not_wait_for_a_bucket_that_is_silent() -> None:
    assert end_of_one_who_leaves() <= LIVE + SECOND // 2


def fired_of_what_came_due_without_an_owner() -> set[str]:
    """Kill the owner before some schedules come due, and let them come due before another one owns the stream."""
    with two(asks=False) as (fleet, _first, _second):
        owner, _standby = pair(fleet)
        for subject in SUBJECTS:
            fleet.store(subject, f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
        fleet.timeline.run(SECOND // 2)
        owner.kill()
        return set(fleet.fires_within(2 * LIVE)) & set(SUBJECTS)


def test_what_came_due_while_standing_by_is_fired_by_the_next_owner() -> None:
    assert fired_of_what_came_due_without_an_owner() == set(SUBJECTS)


def checkpoints_of_two_owners() -> list[int]:
    """Let two owners write, one of which has settled less; return how far each checkpoint reaches that is stored."""
    with two(elects=False) as (fleet, _first, second):
        second.step_clock(-3 * SECOND // 2)
        fleet.store("s.1", "@every 1s")
        fleet.timeline.run(10 * SECOND)
        written = fleet.bucket.versions["checkpoint.SIM.emulated"]
        return [json.loads(value)["through"] for value in written]


def test_a_checkpoint_does_not_replace_one_that_reaches_further() -> None:
    reached = checkpoints_of_two_owners()
    assert reached == sorted(reached)


def fires_when_one_wakes_up_late() -> int:
    """Let one of two stall with a fire at hand until the duplicate window of the other one's fire has passed."""
    with two(elects=False) as (fleet, one, _other):  # the window is 7 s long
        fleet.store("s.1", "@every 12s")
        fleet.timeline.run(11 * SECOND)
        one.process.stall()
        fleet.timeline.run(9 * SECOND)
        assert len(fleet.server.history.fires) == 1
        one.wake(acts_first=True)
        fleet.timeline.run(SECOND)
        return len(fleet.server.history.fires)


def test_a_late_waker_does_not_repeat_a_stored_fire() -> None:
    assert fires_when_one_wakes_up_late() == 1


def readings_of_one_whose_successor_dies(*, asks: bool) -> int:
    """Let the next owner die when the stream is handed over to it; return how often the one before reads the stream."""
    later, earlier = order_of("emulated.SIM", ["i0-1", "i1-1"])[::-1]
    with SimulatedFleet(standbys=0, asks=asks) as fleet:
        before = fleet.boot(later.removesuffix("-1"))
        fleet.timeline.run(20 * SECOND)
        successor = fleet.boot(earlier.removesuffix("-1"))
        while before.is_owner:
            fleet.timeline.run(SECOND // 100)
        successor.kill()
        fleet.timeline.run(2 * LIVE)
        assert fleet.owners() == [before]
        return sum(fault.instance == before.name for fault in fleet.server.history.faults)


@pytest.mark.parametrize("asks", [True, False], ids=["asked", "by its heartbeats"])
def test_a_stream_is_not_left_if_the_one_that_took_it_over_is_gone(*, asks: bool) -> None:
    assert readings_of_one_whose_successor_dies(asks=asks) == 1


def remove_unseen(fleet: SimulatedFleet) -> None:
    """Remove the only schedule in silence before it comes due, and wait until its owner could seem idle."""
    fleet.store("s.1", f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
    fleet.timeline.run(SECOND // 10)
    fleet.server.stream.purge("s.1")
    fleet.timeline.run(2 * IDLE_CONFIRMED_AFTER_NS + UNFIRED_LIMIT_NS + LIVE)


def fired_while_unable(kind: str, duration: int) -> int:
    """Let the owner be alive and unable for a time (ns); return how often a schedule fires in the last 3 s of it."""
    with two() as (fleet, _first, _second):
        owner, _standby = pair(fleet)
        fleet.store("s.1", "@every 1s")
        fleet.timeline.run(2 * SECOND)
        owner.weather.kinds.add(kind)
        fleet.timeline.run(duration - 3 * SECOND)
        return fleet.fires_within(3 * SECOND)["s.1"]


def test_an_owner_whose_user_may_not_publish_is_replaced() -> None:
    assert fired_while_unable("denied", LIVE + SECOND + 3 * SECOND) == 3


def test_an_owner_that_fires_nothing_is_passed_over() -> None:
    assert fired_while_unable("idle", PASSED_OVER + 3 * SECOND) == 3


def fired_after_a_forged_record() -> int:
    """Have a hostile client name an owner that does not exist; return how often a schedule fires in the next 3 s."""
    with two() as (fleet, _first, _second):
        fleet.store("s.1", "@every 1s")
        fleet.timeline.run(2 * SECOND)
        fleet.bucket.write("owner.emulated.SIM", b'{"owner": "i9-1", "reason": "first"}')
        fleet.timeline.run(SECOND)
        return fleet.fires_within(3 * SECOND)["s.1"]


def test_a_record_that_names_nobody_alive_is_not_believed() -> None:
    assert fired_after_a_forged_record() == 3


def taken_by_a_removal() -> bool:
    """Remove the only schedule of the owner unseen; return whether the standby claims the stream."""
    with two() as (fleet, _first, _second):
        owner, _standby = pair(fleet)
        before = fleet.bucket.takeovers
        remove_unseen(fleet)
        return fleet.owners() != [owner] or fleet.bucket.takeovers > before


def test_a_removal_in_silence_takes_nothing_from_the_owner() -> None:
    assert not taken_by_a_removal()


def held_after_a_joint_purge() -> set[str]:
    """Have the owner purge jointly what fires at once; return what the standby holds of it soon after the fires."""
    with two() as (fleet, _first, _second):
        _owner, standby = pair(fleet)
        for subject in SUBJECTS:
            fleet.store(subject, f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
        fleet.timeline.run(SECOND - MILLISECOND)
        standby.receive(RemovalRequested("s.*", below=fleet.server.stream.last_sequence + 1))
        assert set(fleet.fires_within(SECOND // 5)) == set(SUBJECTS)
        return standby.schedules


def test_a_standby_holds_nothing_of_what_the_owner_purged_jointly() -> None:
    assert held_after_a_joint_purge() == set()


def fired_after_a_leader_was_behind(*, elects: bool) -> set[str]:
    """Return which of the schedules, one fire a second each, fire within 3 s after their leader has caught up.

    It was behind by more than their interval: it refused their fires, and acknowledged the fires before them later.
    """
    with SimulatedFleet(elects=elects, lags=True) as fleet:
        fleet.boot("i0")
        fleet.timeline.run(3 * SECOND)
        for subject in SUBJECTS:
            fleet.store(subject, "@every 1s")
        fleet.timeline.run(3 * SECOND)
        fleet.server.stream.behind = 3 * SECOND // 2
        fleet.timeline.run(5 * SECOND)
        fleet.server.stream.behind = 0
        return set(fleet.fires_within(LIVE))


@pytest.mark.parametrize("elects", [True, False], ids=["owned", "by all"])
def test_all_fire_soon_after_their_leader_has_caught_up(*, elects: bool) -> None:
    assert fired_after_a_leader_was_behind(elects=elects) == set(SUBJECTS)
