"""Instances that divide their work, or do it twice, in worlds made by hand: cases that few seeds show.

The rule: each test fails with the bug planted that it stands for.
"""

import pytest

from nats_scheduler.engine.firing.course import NEGLECT_LIMIT_NS
from nats_scheduler.engine.sharing.leases import IDLE_CONFIRMED_AFTER_NS, Leases
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, shard_of
from nats_scheduler.runtime.instances import HEARTBEAT_INTERVAL_NS
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import SECOND
from tests.simulation.fleet import SimulatedFleet
from tests.simulation.planted import old_knowledge_trusted, planted
from tests.simulation.planted_division import (
    Changes,
    checkpoint_for_the_shards_of_others,
    dead_brought_back_to_life,
    dead_holders_buried_late,
    drained_before_handing_over,
    last_word_awaited,
    life_not_told_while_waiting,
    removal_held_against_the_holder,
    shards_given_to_one_who_reads,
)
from tests.simulation.scenario import LIVE

pytestmark = pytest.mark.slow

READING = 6 * SECOND


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


def longest_silence_of_one_who_waits() -> int:
    """Let one claim the shards of a dead one without an answer; return the longest time (ns) without its heartbeat."""
    with SimulatedFleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        assert first.held == ALL_SHARDS - second.held != frozenset()
        fleet.bucket.answers = False
        second.kill()
        return max(fleet.silences("instance.i0-1", 6 * SECOND))


def held_after_a_death(duration: int) -> frozenset[int]:
    """Kill one of two, and return what the other one holds after a time (ns)."""
    with SimulatedFleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        assert first.held == ALL_SHARDS - second.held != frozenset()
        second.kill()
        fleet.timeline.run(duration)
        return first.held


def held_after_a_reconnect() -> frozenset[int]:
    """Let one connect again while an old heartbeat of a dead one is still stored; return what it holds then."""
    with SimulatedFleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        fleet.bucket.forgets = False
        second.kill()
        fleet.timeline.run(6 * SECOND)
        assert first.held == ALL_SHARDS
        first.cut(SECOND // 2)
        fleet.timeline.run(2 * SECOND)
        return first.held


def hand_overs_after_an_outage(*, second_dies: bool = False) -> int:
    """Cut off two instances, the second a moment longer; return how often shards changed hands then."""
    with SimulatedFleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        assert first.held == ALL_SHARDS - second.held != frozenset()
        before = fleet.records()
        first.cut(4 * SECOND)
        second.cut(4 * SECOND + SECOND // 2)
        if second_dies:
            second.kill()
        fleet.timeline.run(4 * SECOND + LIVE)
        assert first.held == ALL_SHARDS if second_dies else first.held == ALL_SHARDS - second.held
        return fleet.records() - before


def nobody_counted_on() -> Changes:
    """Treat an instance that is not back yet as gone."""
    yield Leases, "_expect_the_others", lambda _self, _now, _stored_at: None


def test_the_first_one_back_from_an_outage_of_all_takes_nothing_from_the_others() -> None:
    assert hand_overs_after_an_outage() == 0
    with planted(nobody_counted_on):
        assert hand_overs_after_an_outage() >= 2


def test_who_died_in_an_outage_of_all_is_replaced_within_the_time_that_is_promised() -> None:
    assert hand_overs_after_an_outage(second_dies=True) >= 1


def missing_while_one_leaves() -> int:
    """Let one of two leave, with its hand-over unanswered; return how many fires are missing afterwards."""
    with SimulatedFleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        subjects = [f"s.{number}" for number in range(12)]
        shards = {shard_of(subject) for subject in subjects}
        assert shards & first.held
        assert shards & second.held
        for subject in subjects:
            fleet.store(subject, "@every 1s")
        fleet.timeline.run(7 * SECOND // 10)
        fleet.bucket.unanswered_until = fleet.timeline.now + SECOND
        second.leave()
        fleet.timeline.run(LIVE)
        return len(subjects) * LIVE // SECOND - len(fleet.server.history.fires)


def end_of_one_who_leaves() -> int:
    """Let the only one leave while no request is answered; return how long (ns) it takes to end."""
    with SimulatedFleet() as fleet:
        one = fleet.boot("i0")
        fleet.timeline.run(3 * SECOND)
        fleet.store("s.1", "@every 1s")
        fleet.timeline.run(3 * SECOND)
        fleet.bucket.answers = False
        begun = fleet.timeline.now
        one.leave()
        while one.is_alive:
            fleet.timeline.run(SECOND // 10)
        return fleet.timeline.now - begun


def fires_of_what_a_dead_one_held() -> int:
    """Let one die before its schedules come due, while the other one fires; count the former's fires."""
    with SimulatedFleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        subjects = [f"s.{number}" for number in range(12)]
        theirs = [subject for subject in subjects if shard_of(subject) in second.held]
        mine = next(subject for subject in subjects if shard_of(subject) in first.held)
        for subject in theirs:
            fleet.store(subject, f"@at {format_rfc3339(fleet.timeline.now + SECOND)}")
        fleet.store(mine, "* * * * * *")
        fleet.timeline.run(SECOND // 2)
        second.kill()
        fleet.timeline.run(2 * LIVE)
        fired = [fire.schedule for fire in fleet.server.history.fires if fire.schedule in theirs]
        assert len(fired) in (0, len(theirs))
        return len(fired)


def fires_when_one_wakes_up_late() -> int:
    """Let one of two stall with a fire at hand until the duplicate window of the other one's fire has passed."""
    with SimulatedFleet(divides=False, guard=True, consumes=False, duplicate_window=7 * SECOND) as fleet:
        one, _other = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        fleet.store("s.1", "@every 12s")
        fleet.timeline.run(11 * SECOND)
        one.process.stall()
        fleet.timeline.run(9 * SECOND)
        assert len(fleet.server.history.fires) == 1
        one.wake(acts_first=True)
        fleet.timeline.run(SECOND)
        return len(fleet.server.history.fires)


def relieved_by_a_removal() -> bool:
    """Remove the only schedule of one of two unseen; return whether the other one claims its shards."""
    with SimulatedFleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
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


def test_one_who_wakes_up_late_does_not_repeat_what_another_one_stored() -> None:
    assert fires_when_one_wakes_up_late() == 1
    with planted(old_knowledge_trusted):
        assert fires_when_one_wakes_up_late() == 2


def test_what_the_dead_held_fires_elsewhere_within_the_time_that_is_promised() -> None:
    assert held_after_a_death(LIVE) == ALL_SHARDS
    with planted(dead_holders_buried_late):
        assert held_after_a_death(LIVE) != ALL_SHARDS


def test_the_dead_are_not_brought_back_to_life_by_what_is_stored_of_them() -> None:
    assert held_after_a_reconnect() == ALL_SHARDS
    with planted(dead_brought_back_to_life):
        assert held_after_a_reconnect() != ALL_SHARDS


def test_one_who_is_still_reading_is_given_nothing() -> None:
    assert held_while_reading() == frozenset()
    with planted(shards_given_to_one_who_reads):
        assert held_while_reading() != frozenset()


def test_one_who_waits_for_an_answer_tells_all_the_same_that_it_lives() -> None:
    assert longest_silence_of_one_who_waits() <= 2 * HEARTBEAT_INTERVAL_NS
    with planted(life_not_told_while_waiting):
        assert longest_silence_of_one_who_waits() > 2 * HEARTBEAT_INTERVAL_NS


def test_one_who_leaves_fires_until_what_it_holds_is_handed_over() -> None:
    assert missing_while_one_leaves() == 0
    with planted(drained_before_handing_over):
        assert missing_while_one_leaves() > 0


def test_one_who_leaves_does_not_wait_for_a_bucket_that_is_silent() -> None:
    assert end_of_one_who_leaves() <= LIVE + SECOND // 2
    with planted(last_word_awaited):
        assert end_of_one_who_leaves() > LIVE + SECOND // 2


def test_nothing_is_settled_that_others_have_yet_to_fire() -> None:
    assert fires_of_what_a_dead_one_held() > 0
    with planted(checkpoint_for_the_shards_of_others):
        assert fires_of_what_a_dead_one_held() == 0
