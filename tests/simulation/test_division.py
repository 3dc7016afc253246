"""Instances that divide their work, or do it twice, and a leader that is behind, in worlds made by hand.

The rule: each test fails with the bug planted that it stands for.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from nats_scheduler.engine.firing.course import NEGLECT_LIMIT_NS
from nats_scheduler.engine.firing.outcomes import Outcomes
from nats_scheduler.engine.holding import lifecycle
from nats_scheduler.engine.inputs import CheckpointLoaded, FiresStored
from nats_scheduler.engine.sharing import leases
from nats_scheduler.engine.sharing.leases import HEARTBEAT_INTERVAL_NS, IDLE_CONFIRMED_AFTER_NS, Leases, Record
from nats_scheduler.engine.sharing.readers import order_of
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, shard_of
from nats_scheduler.runtime import instances, sidecar, wakes
from nats_scheduler.runtime.checkpoints import CheckpointKeeper
from nats_scheduler.runtime.instances import Instances
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import NEVER, SECOND
from tests.simulation.fleet import SimulatedFleet, two
from tests.simulation.planted import around, instead, planted, removal_held_against_the_holder, together
from tests.simulation.scenario import LIVE, MILLISECOND
from tests.simulation.sidecar import Sidecar

pytestmark = pytest.mark.slow

READING = 6 * SECOND
LATE = 700 * MILLISECOND
"""The length (ns) of a stall that makes heartbeats late, and after which what was held is held."""
SOON = 800 * MILLISECOND
"""The time (ns) in which an instance that was killed is replaced: 0.6 s after a heartbeat, 0.1 s, and the requests."""
SUBJECTS = [f"s.{number}" for number in range(12)]


def held_while_reading() -> frozenset[int]:
    """Let an instance join that needs a while to read the stream; return what it holds meanwhile."""
    with SimulatedFleet() as fleet:
        first = fleet.boot("i0")
        fleet.timeline.run(3 * SECOND)
        assert first.held == ALL_SHARDS
        fleet.server.reads_for = READING
        second = fleet.boot("i1")
        fleet.timeline.run(READING // 2)
        held = second.held
        fleet.timeline.run(READING)
        assert first.held == ALL_SHARDS - second.held != frozenset()
        return held


def served_before_it_is_read(original: Any, self: Leases, caught_up: Iterable[str], now: int) -> Any:
    return original(self, {*caught_up, *self._records}, now)


def test_one_who_is_still_reading_is_given_nothing() -> None:
    assert held_while_reading() == frozenset()
    with planted(around(Leases, "able", served_before_it_is_read)):
        assert held_while_reading() != frozenset()


def longest_silence_of_one_who_waits() -> int:
    """Let one claim the shards of a dead one without an answer; return the longest time (ns) without its heartbeat."""
    with two() as (fleet, _first, second):
        fleet.bucket.unanswered_until = NEVER
        second.kill()
        return max(fleet.silences("instance.i0-1", 6 * SECOND))


async def keep_silent(_self: Instances) -> None:
    """Send heartbeats only between two divisions, which wait for lost answers."""


def test_one_who_waits_for_an_answer_tells_all_the_same_that_it_lives() -> None:
    assert longest_silence_of_one_who_waits() <= 2 * HEARTBEAT_INTERVAL_NS
    waits_longer = instead(instances, "BUCKET_WRITE_LIMIT_SECONDS", 10.0)
    with planted(together(instead(Instances, "_keep_sending", keep_silent), waits_longer)):
        assert longest_silence_of_one_who_waits() > 2 * HEARTBEAT_INTERVAL_NS


def held_after_a_death(duration: int) -> frozenset[int]:
    """Kill one of two, and return what the other one holds after a time (ns)."""
    with two() as (fleet, first, second):
        second.kill()
        fleet.timeline.run(duration)
        return first.held


async def not_known(*_: object) -> None:
    """Answer nothing to the question whether another one is there."""


NOBODY_SAYS = instead(Sidecar, "_is_there", not_known)


def test_what_the_dead_held_fires_elsewhere_within_the_time_that_is_promised() -> None:
    assert held_after_a_death(SOON) == ALL_SHARDS
    with planted(NOBODY_SAYS):
        assert held_after_a_death(SOON) != ALL_SHARDS
        assert held_after_a_death(LIVE) == ALL_SHARDS
    with planted(together(NOBODY_SAYS, instead(leases, "LEASE_DURATION_NS", 7 * SECOND // 2))):
        assert held_after_a_death(LIVE) != ALL_SHARDS


def hand_overs_after_a_stall(duration: int) -> int:
    """Stall one of two for a while; return how often shards changed hands then."""
    with two() as (fleet, first, second):
        before = fleet.bucket.hand_overs
        second.process.stall()
        fleet.timeline.run(duration)
        second.wake(acts_first=True)
        fleet.timeline.run(LIVE)
        assert first.held == ALL_SHARDS - second.held != frozenset()
        return fleet.bucket.hand_overs - before


async def mistaken(*_: object) -> bool:
    """Answer that another one is not there, as soon as it was there once."""
    return False


def test_one_that_is_late_and_still_there_keeps_what_it_holds() -> None:
    assert hand_overs_after_a_stall(LATE) == 0
    assert hand_overs_after_a_stall(LIVE) > 0
    answered = Leases.received

    def believed(self: Leases, name: str, *about: Any, **more: Any) -> bool:
        is_news = answered(self, name, *about, **more)
        for other in self._others.values():
            other.has_answered = True
        return is_news

    with planted(instead(Sidecar, "_is_there", mistaken)):
        assert hand_overs_after_a_stall(LATE) == 0, "it never answered, so that nothing follows from it"
        with planted(instead(Leases, "received", believed)):
            assert hand_overs_after_a_stall(LATE) > 0


def held_after_a_reconnect() -> frozenset[int]:
    """Let one connect again while an old heartbeat of a dead one is still stored; return what it holds then."""
    with two() as (fleet, first, second):
        fleet.bucket.forgets = False
        second.kill()
        fleet.timeline.run(6 * SECOND)
        assert first.held == ALL_SHARDS
        first.cut(SECOND // 2)
        fleet.timeline.run(2 * SECOND)
        return first.held


def listening_anew(self: Leases) -> None:
    self._own_received_at = None
    self._records = {key: Record(record.holders) for key, record in self._records.items()}


def own_received(self: Leases, now: int, _stored_at: int) -> bool:
    """Believe heartbeats that were stored before the watch began again."""
    is_news, self._own_received_at = self._own_received_at is None, now
    return is_news


def test_the_dead_are_not_brought_back_to_life_by_what_is_stored_of_them() -> None:
    assert held_after_a_reconnect() == ALL_SHARDS
    believed = instead(Leases, "_own_received", own_received)
    with planted(together(instead(Leases, "listening_anew", listening_anew), believed)):
        assert held_after_a_reconnect() != ALL_SHARDS


def hand_overs_after_an_outage(*, second_dies: bool = False) -> int:
    """Cut off two instances, the second a moment longer; return how often shards changed hands then."""
    with two() as (fleet, first, second):
        before = fleet.bucket.hand_overs
        first.cut(4 * SECOND)
        second.cut(4 * SECOND + SECOND // 2)
        if second_dies:
            second.kill()
        fleet.timeline.run(4 * SECOND + LIVE)
        assert first.held == ALL_SHARDS if second_dies else first.held == ALL_SHARDS - second.held
        return fleet.bucket.hand_overs - before


def test_the_first_one_back_from_an_outage_of_all_takes_nothing_from_the_others() -> None:
    assert hand_overs_after_an_outage() == 0
    with planted(instead(Leases, "_expect_the_others", lambda *_: None)):
        assert hand_overs_after_an_outage() >= 2


def test_who_died_in_an_outage_of_all_is_replaced_within_the_time_that_is_promised() -> None:
    assert hand_overs_after_an_outage(second_dies=True) >= 1


def missing_while_one_leaves() -> int:
    """Let one of two leave, with its hand-over unanswered; return how many fires are missing afterwards."""
    with two() as (fleet, first, second):
        shards = {shard_of(subject) for subject in SUBJECTS}
        assert shards & first.held
        assert shards & second.held
        for subject in SUBJECTS:
            fleet.store(subject, "@every 1s")
        fleet.timeline.run(7 * SECOND // 10)
        fleet.bucket.unanswered_until = fleet.timeline.now + SECOND
        second.leave()
        fleet.timeline.run(LIVE)
        return len(SUBJECTS) * LIVE // SECOND - len(fleet.server.history.fires)


async def drain_first(original: Any, self: Instances) -> None:
    for service in self._served.by_key().values():
        await service.drain(0)
    await original(self)


def test_one_who_leaves_fires_until_what_it_holds_is_handed_over() -> None:
    assert missing_while_one_leaves() == 0
    with planted(around(Instances, "leave", drain_first)):
        assert missing_while_one_leaves() > 0


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


def test_one_who_leaves_does_not_wait_for_a_bucket_that_is_silent() -> None:
    assert end_of_one_who_leaves() <= LIVE + SECOND // 2
    with planted(instead(sidecar, "LAST_CHECKPOINTS_LIMIT_SECONDS", 10.0)):
        assert end_of_one_who_leaves() > LIVE + SECOND // 2


def fires_of_what_a_dead_one_held() -> int:
    """Let one die before its schedules come due, while the other one fires; count the former's fires."""
    with two() as (fleet, first, second):
        theirs = [subject for subject in SUBJECTS if shard_of(subject) in second.held]
        mine = next(subject for subject in SUBJECTS if shard_of(subject) in first.held)
        for subject in theirs:
            fleet.store(subject, f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
        fleet.store(mine, "* * * * * *")
        fleet.timeline.run(SECOND // 2)
        second.kill()
        fleet.timeline.run(2 * LIVE)
        fired = [fire.schedule for fire in fleet.server.history.fires if fire.schedule in theirs]
        assert len(fired) in (0, len(theirs))
        return len(fired)


async def write_for_all(original: Any, self: CheckpointKeeper, settled: CheckpointLoaded) -> Any:
    return await original(self, replace(settled, shards=ALL_SHARDS))


def test_nothing_is_settled_that_others_have_yet_to_fire() -> None:
    assert fires_of_what_a_dead_one_held() > 0
    with planted(together(NOBODY_SAYS, around(CheckpointKeeper, "write", write_for_all))):
        assert fires_of_what_a_dead_one_held() == 0


def fires_when_one_wakes_up_late() -> int:
    """Let one of two stall with a fire at hand until the duplicate window of the other one's fire has passed."""
    with two(divides=False) as (fleet, one, _other):  # the window is 7 s long
        fleet.store("s.1", "@every 12s")
        fleet.timeline.run(11 * SECOND)
        one.process.stall()
        fleet.timeline.run(9 * SECOND)
        assert len(fleet.server.history.fires) == 1
        one.wake(acts_first=True)
        fleet.timeline.run(SECOND)
        return len(fleet.server.history.fires)


def test_one_who_wakes_up_late_does_not_repeat_what_another_one_stored() -> None:
    assert fires_when_one_wakes_up_late() == 1
    with planted(instead(wakes, "CONTACT_STANDSTILL_LIMIT_NS", 1 << 100)):  # nothing is re-checked after a stall
        assert fires_when_one_wakes_up_late() == 2


def readings_of_one_whose_successor_dies(*, asks: bool) -> int:
    """Let the next reader die when a stream is handed over to it; return how often the one before reads the stream."""
    later, earlier = order_of("emulated.SIM", ["i0-1", "i1-1"])[::-1]
    with SimulatedFleet(readers=1, asks=asks) as fleet:
        before = fleet.boot(later.removesuffix("-1"))
        fleet.timeline.run(20 * SECOND)
        successor = fleet.boot(earlier.removesuffix("-1"))
        while before.held:
            fleet.timeline.run(SECOND // 100)
        successor.kill()
        fleet.timeline.run(2 * LIVE)
        assert before.held == ALL_SHARDS
        return sum(fault.instance == before.name for fault in fleet.server.history.faults)


async def ends_reading_all_the_same(original: Any, self: Instances, key: str) -> bool:
    await original(self, key)
    return True


@pytest.mark.parametrize("asks", [True, False], ids=["asked", "by its lease"])
def test_a_stream_is_not_left_if_the_one_that_took_it_over_is_gone(*, asks: bool) -> None:
    assert readings_of_one_whose_successor_dies(asks=asks) == 1
    with planted(around(Instances, "may_end_reading", ends_reading_all_the_same)):
        assert readings_of_one_whose_successor_dies(asks=asks) == 2


def relieved_by_a_removal() -> bool:
    """Remove the only schedule of one of two unseen; return whether the other one claims its shards."""
    with two() as (fleet, first, second):
        held = second.held
        subject = next(subject for subject in map("s.{}".format, range(1_000)) if shard_of(subject) in held)
        fleet.store(subject, f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
        fleet.timeline.run(SECOND // 10)
        fleet.server.stream.purge(subject)
        fleet.timeline.run(2 * IDLE_CONFIRMED_AFTER_NS + NEGLECT_LIMIT_NS)
        assert first.held == ALL_SHARDS - second.held
        return second.held != held


def test_a_removal_in_silence_takes_nothing_from_the_holder() -> None:
    assert not relieved_by_a_removal()
    with planted(removal_held_against_the_holder):
        assert relieved_by_a_removal()


def fired_after_a_leader_was_behind(*, divides: bool) -> set[str]:
    """Return which of the schedules, one fire a second each, fire within 3 s after their leader has caught up.

    It was behind by more than their interval: it refused their fires, and acknowledged the fires before them later.
    """
    with SimulatedFleet(divides=divides, lags=True) as fleet:
        fleet.boot("i0")
        fleet.timeline.run(3 * SECOND)
        for subject in SUBJECTS:
            fleet.store(subject, "@every 1s")
        fleet.timeline.run(3 * SECOND)
        fleet.server.stream.behind = 3 * SECOND // 2
        fleet.timeline.run(5 * SECOND)
        fleet.server.stream.behind = 0
        return set(fleet.fires_within(LIVE))


def any_fire_taken_for_the_refused(original: Any, self: Outcomes, stored: FiresStored, now: int) -> None:
    known = self._lifecycle.refusals
    for fire in stored.fires:
        if fire.sequence in known.held:
            known.stored(fire.sequence, now)
    original(self, stored, now)


@pytest.mark.parametrize("divides", [True, False], ids=["divided", "undivided"])
def test_all_fire_soon_after_their_leader_has_caught_up(*, divides: bool) -> None:
    assert fired_after_a_leader_was_behind(divides=divides) == set(SUBJECTS)
    none_rests_shorter = instead(lifecycle, "OF_A_MOMENT", frozenset())
    with planted(together(none_rests_shorter, around(Outcomes, "were_stored", any_fire_taken_for_the_refused))):
        assert fired_after_a_leader_was_behind(divides=divides) != set(SUBJECTS)
