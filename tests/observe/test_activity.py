"""The last hour by minute: each fire is in one minute, whatever the clock does; processes add up; quantiles fit."""

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from random import Random

from nats_scheduler.engine.events import FireConfirmed, FireStored
from nats_scheduler.engine.fire import Fire
from nats_scheduler.observe.activity import (
    MINUTES_KEPT,
    STREAMS_PER_UNIT,
    Activity,
    Minute,
    nothing_in,
    total_of,
)
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS, FireMetrics
from nats_scheduler.schedule.instants import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from tests.harness.seeds import draws, generator

FIRE = Fire("S.s", 1, START, None, "S.out", b"", b"")
NOON = START - START % HOUR
BOUNDS = tuple(round(one * SECOND) for one in LATENESS_BUCKETS_SECONDS)


def read_back(late: int) -> FireConfirmed:
    return FireConfirmed("S.s", "S.out", START, START, START + late, 1)


class Process:
    """The counts of one process, and its activity, sampled at noon."""

    def __init__(self) -> None:
        self.fires = FireMetrics()
        self.activity = Activity(self.fires)
        self.sample(NOON)

    def fire(self, late: int = MILLISECOND, stream: str = "S") -> None:
        self.fires.stored(stream, FireStored(FIRE, 1, duplicate=False))
        self.fires.read_back(stream, read_back(late), late / SECOND)

    def fire_each(self, streams: int) -> None:
        """Fire once in each of so many streams."""
        for number in range(streams):
            self.fire(stream=f"S{number}")

    def sample(self, now: int) -> None:
        for _ in self.activity.sample(lambda: now):
            pass

    def by_minute(self, now: int, stream: str | None = None) -> dict[int, int]:
        """Return the minutes after noon with fires, and how many there are, after a sample."""
        self.sample(now)
        minutes = self.activity.minutes(now, MINUTES_KEPT, stream)
        return {(one.start - NOON) // MINUTE: one.fires for one in minutes if one.fires}


def test_a_fire_is_in_the_minute_in_which_it_was_counted() -> None:
    process = Process()
    process.fire()
    process.sample(NOON + MINUTE + MILLISECOND)  # taken when the next minute has just begun
    process.fire()
    process.fire()
    assert process.by_minute(NOON + MINUTE + 30 * SECOND) == {0: 1, 1: 2}
    process.fire()
    assert process.by_minute(NOON + MINUTE + 59 * SECOND) == {0: 1, 1: 3}
    assert process.by_minute(NOON + 60 * MINUTE) == {1: 3}, "an hour is kept"
    process.fire()
    assert process.by_minute(NOON + 61 * MINUTE) == {60: 1}, "an hour later the place is another minute's"


def test_a_minute_has_all_that_was_counted_in_it() -> None:
    process = Process()
    for late in (0, 100 * MICROSECOND, 500 * MICROSECOND, 7 * MILLISECOND, 90 * SECOND):
        process.fire(late)
    process.fires.stored("S", FireStored(FIRE, 1, duplicate=True))
    process.fires.read_back("S", read_back(HOUR)._replace(overdue=True), 3600.0)
    process.fires.of("S").refused += 2
    process.sample(NOON + SECOND)
    lateness = [0] * (len(BOUNDS) + 1)
    lateness[0], lateness[5], lateness[-1] = 3, 1, 1
    minutes = process.activity.minutes(NOON + SECOND, 3)
    noon = Minute(NOON, 5, 1, 1, 2, tuple(lateness), HOUR)
    assert minutes == [nothing_in(NOON - 2 * MINUTE), nothing_in(NOON - MINUTE), noon], "oldest first"
    process.fire(MILLISECOND)
    process.sample(NOON + MINUTE)
    process.fire(2 * MILLISECOND)
    process.sample(NOON + MINUTE + 1)
    assert [one.lateness_max for one in process.activity.minutes(NOON + MINUTE, 2)] == [HOUR, 2 * MILLISECOND]


def test_the_fires_of_one_stream_and_of_all() -> None:
    process = Process()
    process.fire_each(2 * STREAMS_PER_UNIT + 1)
    process.fire(stream="S3")
    found = {stream: process.by_minute(NOON, stream) for stream in (None, "S3", "none")}
    assert found == {None: {0: 2 * STREAMS_PER_UNIT + 2}, "S3": {0: 2}, "none": {}}
    assert (process.activity.is_known("S3"), process.activity.is_known("none")) == (True, False)


def test_a_clock_that_is_set_loses_no_fire() -> None:
    process = Process()
    process.fire()
    assert process.by_minute(NOON + 10 * SECOND) == {0: 1}
    process.fire()
    assert process.by_minute(NOON - 30 * MINUTE) == {-30: 1}, "what is ahead of the clock is not listed"
    process.fire()
    assert process.by_minute(NOON - 29 * MINUTE) == {-30: 2}
    assert process.by_minute(NOON) == {-30: 2, 0: 1}
    process.fire()
    assert process.by_minute(NOON + 10 * MINUTE) == {-30: 2, 0: 2}, "set forward, the minutes between have none"
    process.fire()
    assert process.by_minute(NOON + 10 * MINUTE) == {-30: 2, 0: 2, 10: 1}
    process.fire()
    assert process.by_minute(NOON + 100 * HOUR + 10 * MINUTE) == {}


def some_lateness(random: Random) -> int:
    return int(10 ** random.uniform(3, 11))


def counted(lateness: list[int]) -> Minute:
    """Return a minute with fires that were so late."""
    counts = [0] * (len(BOUNDS) + 1)
    for one in lateness:
        counts[bisect_left(BOUNDS, one)] += 1
    return Minute(0, len(lateness), 0, 0, 0, tuple(counts), max(lateness, default=0))


def test_a_quantile_lies_in_the_bucket_of_its_rank() -> None:
    random = generator("quantiles of lateness")
    for _ in range(draws(30)):
        lateness = sorted(some_lateness(random) for _ in range(random.randrange(1, 300)))
        quantiles = []
        for share in range(101):
            quantile = counted(lateness).quantile(share / 100)
            assert quantile is not None
            quantiles.append(quantile)
            exact = lateness[max(-(-len(lateness) * share // 100) - 1, 0)]
            lower, upper = list(pairwise([0, *BOUNDS, lateness[-1]]))[bisect_left(BOUNDS, exact)]
            assert lower <= quantile <= min(upper, lateness[-1]), (share, lateness)
        assert quantiles == sorted(quantiles)


def test_minutes_of_several_processes_add_up() -> None:
    one, other, none = (counted(lateness) for lateness in ([3, SECOND], [MINUTE], []))
    found = total_of([replace(one, duplicates=1, overdue=2, refused=3), replace(other, overdue=4, refused=5), none])
    assert found == replace(counted([3, SECOND, MINUTE]), duplicates=1, overdue=6, refused=8)
