"""Instances that divide their work, in worlds made by hand: what few seeds show, shown without luck.

The rule: each test fails with the bug planted that it stands for.
"""

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from nats_scheduler.engine.leases import Leases
from nats_scheduler.engine.shards import ALL_SHARDS
from nats_scheduler.runtime.instances import HEARTBEAT
from tests.judge.history import SECOND, History
from tests.simulation.bucket import BucketServer
from tests.simulation.instance import Instance
from tests.simulation.link import UnheardError
from tests.simulation.planted import (
    Changes,
    dead_brought_back_to_life,
    dead_holders_buried_late,
    life_not_told_while_waiting,
    planted,
    shards_given_to_one_who_reads,
)
from tests.simulation.scenario import LIVE, drawn
from tests.simulation.server import Server
from tests.simulation.timeline import Timeline
from tests.simulation.world import silent

READING = 6 * SECOND


class LeaderlessBucket(BucketServer):
    """The bucket, which may take heartbeats and answer no write, or forget nothing."""

    answers = True
    forgets = True

    def swap(self, key: str, value: Any, revision: int) -> int | None:
        """Write in place of a revision, where it answers."""
        if not self.answers:
            raise UnheardError
        return super().swap(key, value, revision)

    def forget(self, key: str) -> None:
        """Remove what is stored under a key, where it does that."""
        if not self.forgets:
            raise UnheardError
        super().forget(key)


class Fleet:
    """Instances on one server, where nothing breaks by itself."""

    def __init__(self) -> None:
        scenario = replace(drawn(1), divides=True, kinds=(), reads_for=0)
        self.timeline = Timeline()
        self.server = Server(scenario, self.timeline, History(scenario.terms, begin=0), silent)
        self.server.bucket = self.bucket = LeaderlessBucket(self.timeline)
        self._instances: list[Instance] = []

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_error: object) -> None:
        for instance in self._instances:
            instance.process.end()

    def boot(self, name: str) -> Instance:
        """Start an instance."""
        instance = Instance(name, self.server, Random(name), silent)
        self._instances.append(instance)
        instance.boot("latest")
        return instance

    def records(self) -> int:
        """Return how often a record of holders was written."""
        return sum(len(written) for key, written in self.bucket.versions.items() if key.startswith("lease."))

    def silences(self, key: str, duration: int) -> list[int]:
        """Let time pass, and return how long (ns) it was each time until a key was written again."""
        times = [self.timeline.now]
        stream = self.bucket.stream
        assert stream is not None
        stream.listen(lambda message: times.append(self.timeline.now) if message.subject == key else None)
        self.timeline.run(duration)
        return [after - before for before, after in pairwise([*times, self.timeline.now])]


def held_while_reading() -> frozenset[int]:
    """Have one join who needs a while to read the stream; return what it holds meanwhile."""
    with Fleet() as fleet:
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
    """Have one claim what a dead one held, which nobody answers; return how long (ns) it was not heard at most."""
    with Fleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        assert first.held == ALL_SHARDS - second.held != frozenset()
        fleet.bucket.answers = False
        second.kill()
        return max(fleet.silences("instance.i0-1", 6 * SECOND))


def held_after_a_death(duration: int) -> frozenset[int]:
    """Kill one of two, and return what the other one holds after a time (ns)."""
    with Fleet() as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        assert first.held == ALL_SHARDS - second.held != frozenset()
        second.kill()
        fleet.timeline.run(duration)
        return first.held


def held_after_a_reconnect() -> frozenset[int]:
    """Have one connect again while the word of one long dead is still stored; return what it holds then."""
    with Fleet() as fleet:
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
    """Cut off two, the second a moment longer than the first; return how often shards changed hands then."""
    with Fleet() as fleet:
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
    """Take whoever is not back yet for dead."""
    yield Leases, "_count_on_the_others", lambda _self, _now, _stored_at: None


def test_the_first_one_back_from_an_outage_of_all_takes_nothing_from_the_others() -> None:
    assert hand_overs_after_an_outage() == 0
    with planted(nobody_counted_on):
        assert hand_overs_after_an_outage() >= 2


def test_who_died_in_an_outage_of_all_is_replaced_within_the_time_that_is_promised() -> None:
    assert hand_overs_after_an_outage(second_dies=True) >= 1


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
    assert longest_silence_of_one_who_waits() <= 2 * HEARTBEAT
    with planted(life_not_told_while_waiting):
        assert longest_silence_of_one_who_waits() > 2 * HEARTBEAT
