"""Instances that agree on an owner, or all do the work, and a leader that is behind, in worlds made by hand.

The rule: each test fails with the bug planted that it stands for.
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from nats_scheduler.engine.firing import answers, purging, timing
from nats_scheduler.engine.firing.purging import LEFT_TO_OWNER_NS
from nats_scheduler.engine.holding import refusals
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import Checkpoint, FiresStored, OwnershipChanged, RemovalRequested
from nats_scheduler.engine.ownership import owners
from nats_scheduler.engine.ownership.ability import IDLE_CONFIRMED_AFTER_NS, Ability
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.engine.ownership.owners import HEARTBEAT_INTERVAL_NS, Owners
from nats_scheduler.engine.ownership.takeover import Takeover
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.runtime import checkpoints, sidecar, stream_service, this_instance, wakes
from nats_scheduler.runtime.checkpoint_writing import CheckpointWriter
from nats_scheduler.runtime.this_instance import Instances
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import NEVER, SECOND
from tests.simulation.fleet import SimulatedFleet, two
from tests.simulation.instance import Instance
from tests.simulation.planted import around, instead, planted, together
from tests.simulation.scenario import LIVE, MILLISECOND
from tests.simulation.server import Server
from tests.simulation.sidecar import Sidecar

pytestmark = pytest.mark.slow

READING = 6 * SECOND
LATE = 900 * MILLISECOND
"""The length (ns) of a stall that makes heartbeats late, and after which what was owned is owned."""
SOON = 800 * MILLISECOND
"""The time (ns) in which an owner that was killed is replaced: 0.6 s after a heartbeat, 0.1 s, and the requests."""
PASSED_OVER = SECOND + UNFIRED_LIMIT_NS + IDLE_CONFIRMED_AFTER_NS + SECOND
"""The time (ns) in which an owner is passed over that fires nothing, if a schedule is due each second."""
SUBJECTS = [f"s.{number}" for number in range(12)]


def taken_for_unfired(state: EngineState, held: Held) -> bool:
    since = max(held.send_time, state.ownership.in_contact_since) + UNFIRED_LIMIT_NS
    if state.now >= since:
        state.ownership.blame(held)
        since = held.send_time + LEFT_TO_OWNER_NS
    state.look_later(held, since)
    return True


removal_held_against_the_owner = instead(timing, "wait_for_owner", taken_for_unfired)
"""A schedule that was removed without a visible request counts as one that its owner does not fire."""


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


def served_before_it_is_read(original: Any, self: Owners, caught_up: Iterable[str], now: int) -> Any:
    return original(self, {*caught_up, *self._records}, now)


def test_one_that_is_still_reading_owns_nothing() -> None:
    assert not owned_while_reading()
    with planted(around(Owners, "able", served_before_it_is_read)):
        assert owned_while_reading()


def longest_silence_of_one_who_waits() -> int:
    """Let a standby claim the stream of a dead owner without an answer; return the longest time without a heartbeat."""
    with two() as (fleet, _first, _second):
        owner, standby = pair(fleet)
        fleet.bucket.unanswered_until = NEVER
        owner.kill()
        return max(fleet.silences(f"instance.{standby.name}-1", 6 * SECOND))


async def keep_silent(_self: Instances) -> None:
    """Send heartbeats only between two checks, which wait for lost answers."""


def test_one_that_waits_for_an_answer_sends_heartbeats_all_the_same() -> None:
    assert longest_silence_of_one_who_waits() <= 2 * HEARTBEAT_INTERVAL_NS
    waits_longer = instead(this_instance, "BUCKET_WRITE_LIMIT_SECONDS", 10.0)
    with planted(together(instead(Instances, "_keep_sending", keep_silent), waits_longer)):
        assert longest_silence_of_one_who_waits() > 2 * HEARTBEAT_INTERVAL_NS


def fired_after_a_death(duration: int) -> bool:
    """Kill the owner, and return whether the standby fires for the stream after a time (ns)."""
    with two() as (fleet, _first, _second):
        owner, standby = pair(fleet)
        owner.kill()
        fleet.timeline.run(duration)
        return standby.is_owner


async def not_known(*_: object) -> None:
    """Answer nothing to the question whether another one is there."""


NOBODY_SAYS = instead(Sidecar, "_is_there", not_known)


def test_the_stream_of_a_dead_owner_is_taken_over_within_the_time_that_is_promised() -> None:
    assert fired_after_a_death(SOON)
    with planted(NOBODY_SAYS):
        assert not fired_after_a_death(SOON)
        assert fired_after_a_death(LIVE)
    with planted(together(NOBODY_SAYS, instead(owners, "GONE_AFTER_NS", 7 * SECOND // 2))):
        assert not fired_after_a_death(LIVE)


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


async def mistaken(*_: object) -> bool:
    """Answer that another one is not there, as soon as it was there once."""
    return False


def test_an_owner_that_is_late_and_still_there_keeps_its_stream() -> None:
    assert takeovers_after_a_stall(LATE) == 0
    assert takeovers_after_a_stall(LIVE) > 0
    answered = Owners.received

    def believed(self: Owners, name: str, *about: Any, **more: Any) -> bool:
        is_news = answered(self, name, *about, **more)
        for other in self._others.values():
            other.has_answered = True
        return is_news

    with planted(instead(Sidecar, "_is_there", mistaken)):
        assert takeovers_after_a_stall(LATE) == 0, "it never answered, so that nothing follows from it"
        with planted(instead(Owners, "received", believed)):
            assert takeovers_after_a_stall(LATE) > 0


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


def listening_anew(self: Owners) -> None:
    self._own_received_at = None
    self._records = {key: replace(record, revision=0) for key, record in self._records.items()}


def own_received(self: Owners, now: int, _stored_at: int) -> bool:
    """Believe heartbeats that were stored before the watch began again."""
    is_news, self._own_received_at = self._own_received_at is None, now
    return is_news


def test_the_dead_are_not_brought_back_to_life_by_what_is_stored_of_them() -> None:
    assert owned_after_a_reconnect()
    believed = instead(Owners, "_own_received", own_received)
    with planted(together(instead(Owners, "listening_anew", listening_anew), believed)):
        assert not owned_after_a_reconnect()


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


def test_the_first_one_back_from_an_outage_of_all_takes_nothing_from_the_owner() -> None:
    assert takeovers_after_an_outage() == 0
    with planted(instead(owners, "RETURN_GRACE_NS", 0)):
        assert takeovers_after_an_outage() >= 2


def test_an_owner_that_died_in_an_outage_of_all_is_replaced_within_the_time_that_is_promised() -> None:
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


async def drain_first(original: Any, self: Instances) -> None:
    for service in self._served.by_key().values():
        await service.drain(0)
    await original(self)


def test_an_owner_that_leaves_fires_until_its_stream_is_handed_over() -> None:
    assert missing_while_the_owner_leaves() == 0
    with planted(around(Instances, "leave", drain_first)):
        assert missing_while_the_owner_leaves() > 0


def lateness_at_a_takeover() -> int:
    """Hand a stream over to one that reads the checkpoint slowly; return how late (ns) the latest fire is stored."""
    later, earlier = (name.removesuffix("-1") for name in order_of("emulated.SIM", ["i0-1", "i1-1"])[::-1])
    with SimulatedFleet() as fleet, planted(around(CheckpointWriter, "read", read_slowly)):
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


async def read_slowly(original: Any, self: CheckpointWriter, *given: Any) -> Any:
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, over.set)
    await over.wait()
    return await original(self, *given)


def test_an_owner_fires_on_until_the_next_one_has_the_stream() -> None:
    assert lateness_at_a_takeover() <= 50 * MILLISECOND
    with planted(instead(stream_service, "HANDOVER_OVERLAP_SECONDS", 0.0)):
        assert lateness_at_a_takeover() > 50 * MILLISECOND


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
    with planted(instead(sidecar, "LAST_CHECKPOINTS_LIMIT_SECONDS", 10.0)):
        assert end_of_one_who_leaves() > LIVE + SECOND // 2


def fired_of_what_came_due_without_an_owner(*, also: str = "") -> set[str]:
    """Kill the owner before some schedules come due, and let them come due before another one owns the stream."""
    with two() as (fleet, _first, _second):
        owner, _standby = pair(fleet)
        if also:
            fleet.store("s.also", also)
        for subject in SUBJECTS:
            fleet.store(subject, f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
        fleet.timeline.run(SECOND // 2)
        owner.kill()
        return set(fleet.fires_within(2 * LIVE)) & set(SUBJECTS)


def looks_on_as_a_standby(original: Any, self: Takeover, change: OwnershipChanged, now: int) -> None:
    """Look at the schedules that came due while standing by when the next ones are looked at."""
    is_new = change.is_owner and not self._state.ownership.is_owner
    original(self, change, now)
    if is_new:
        for held in self._state.all_not_waiting():
            self._state.look_later(held, held.send_time + LIVE * 10)
        while self._state.schedules.pop_woken(now, 1_000):
            pass


def test_what_came_due_while_standing_by_is_fired_by_the_next_owner() -> None:
    with planted(NOBODY_SAYS):
        assert fired_of_what_came_due_without_an_owner() == set(SUBJECTS)
        with planted(around(Takeover, "owner_changed", looks_on_as_a_standby)):
            assert fired_of_what_came_due_without_an_owner() == set()


def settled(original: Any, self: StreamEngine, now: int) -> Checkpoint:
    """Settle what is due within the next second, too."""
    checkpoint: Checkpoint = original(self, now)
    return replace(checkpoint, through=now + SECOND)


def test_nothing_is_settled_that_the_owner_has_yet_to_fire() -> None:
    with planted(NOBODY_SAYS), planted(around(StreamEngine, "checkpoint", settled)):
        assert fired_of_what_came_due_without_an_owner(also="* * * * * *") == set()


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
    with planted(instead(checkpoints, "_read", lambda *_: (None, False))):  # what is stored is never believed
        reached = checkpoints_of_two_owners()
        assert reached != sorted(reached)


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


def test_one_that_wakes_up_late_does_not_repeat_what_another_one_stored() -> None:
    assert fires_when_one_wakes_up_late() == 1
    with planted(instead(wakes, "CONTACT_STANDSTILL_LIMIT_NS", 1 << 100)):  # nothing is re-checked after a stall
        assert fires_when_one_wakes_up_late() == 2


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


async def ends_reading_all_the_same(original: Any, self: Instances, key: str) -> bool:
    await original(self, key)
    return True


@pytest.mark.parametrize("asks", [True, False], ids=["asked", "by its heartbeats"])
def test_a_stream_is_not_left_if_the_one_that_took_it_over_is_gone(*, asks: bool) -> None:
    assert readings_of_one_whose_successor_dies(asks=asks) == 1
    with planted(around(Instances, "may_end_reading", ends_reading_all_the_same)):
        assert readings_of_one_whose_successor_dies(asks=asks) == 2


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
    is_never_idle = instead(Owners, "judge_owner", lambda *_: None)  # it would be replaced as an idle one, later
    with planted(together(instead(Ability, "denied", lambda *_: False), is_never_idle)):
        assert fired_while_unable("denied", LIVE + SECOND + 3 * SECOND) == 0


def test_an_owner_that_fires_nothing_is_passed_over() -> None:
    assert fired_while_unable("idle", PASSED_OVER + 3 * SECOND) == 3
    with planted(instead(Owners, "judge_owner", lambda *_: None)):
        assert fired_while_unable("idle", PASSED_OVER + 3 * SECOND) == 0


def takeovers_if_each_seems_idle_to_the_other() -> int:
    """Have each of two believe of the other one that it is idle, which is wrong; return how often they take over."""
    with two() as (fleet, _first, _second), planted(removal_held_against_the_owner):
        before = fleet.bucket.takeovers
        remove_unseen(fleet)
        remove_unseen(fleet)
        return fleet.bucket.takeovers - before


def test_a_stream_is_claimed_from_an_idle_owner_once() -> None:
    assert takeovers_if_each_seems_idle_to_the_other() == 2, "the owner claims it back"
    with planted(instead(Ability, "has_claimed", lambda *_: False)):
        assert takeovers_if_each_seems_idle_to_the_other() > 10


def fired_after_a_forged_record() -> int:
    """Have a hostile client name an owner that does not exist; return how often a schedule fires in the next 3 s."""
    with two() as (fleet, _first, _second):
        fleet.store("s.1", "@every 1s")
        fleet.timeline.run(2 * SECOND)
        fleet.bucket.write("owner.emulated.SIM", b'{"owner": "i9-1", "reason": "first"}')
        fleet.timeline.run(SECOND)
        return fleet.fires_within(3 * SECOND)["s.1"]


def recorded_owner_lives(original: Any, self: Owners, key: str) -> list[str]:
    """Take it that the owner lives that the record names, as long as it names one."""
    owner = self.record(key).owner
    return [owner] if owner and owner not in (self.me, *self._others) else list(original(self, key))


def test_a_record_that_names_nobody_alive_is_not_believed() -> None:
    assert fired_after_a_forged_record() == 3
    with planted(around(Owners, "living", recorded_owner_lives)):
        assert fired_after_a_forged_record() == 0


def taken_by_a_removal() -> bool:
    """Remove the only schedule of the owner unseen; return whether the standby claims the stream."""
    with two() as (fleet, _first, _second):
        owner, _standby = pair(fleet)
        before = fleet.bucket.takeovers
        remove_unseen(fleet)
        return fleet.owners() != [owner] or fleet.bucket.takeovers > before


def test_a_removal_in_silence_takes_nothing_from_the_owner() -> None:
    assert not taken_by_a_removal()
    with planted(removal_held_against_the_owner):
        assert taken_by_a_removal()


def held_after_a_joint_purge() -> set[str]:
    """Have the owner purge jointly what fires at once; return what the standby holds of it soon after the fires."""
    with two() as (fleet, _first, _second):
        _owner, standby = pair(fleet)
        with planted(instead(Server, "tell_of_removal", lambda *_, **_how: None)):
            for subject in SUBJECTS:
                fleet.store(subject, f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
            fleet.timeline.run(SECOND - MILLISECOND)
            standby.receive(RemovalRequested("s.*", below=fleet.server.stream.last_sequence + 1))
            assert set(fleet.fires_within(SECOND // 5)) == set(SUBJECTS)
        return standby.schedules


def test_a_standby_holds_nothing_of_what_the_owner_purged_jointly() -> None:
    assert held_after_a_joint_purge() == set()
    with planted(instead(purging, "requested_jointly", lambda *_: None)):
        assert held_after_a_joint_purge() == set(SUBJECTS)


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


def any_fire_taken_for_the_refused(original: Any, state: EngineState, stored: FiresStored) -> None:
    known = state.refusals
    for fire in stored.fires:
        if fire.sequence in known.held:
            known.stored(fire.sequence, state.now)
    original(state, stored)


@pytest.mark.parametrize("elects", [True, False], ids=["owned", "by all"])
def test_all_fire_soon_after_their_leader_has_caught_up(*, elects: bool) -> None:
    assert fired_after_a_leader_was_behind(elects=elects) == set(SUBJECTS)
    none_rests_shorter = instead(refusals, "OF_A_MOMENT", frozenset())
    with planted(together(none_rests_shorter, around(answers, "fires_stored", any_fire_taken_for_the_refused))):
        assert fired_after_a_leader_was_behind(elects=elects) != set(SUBJECTS)
