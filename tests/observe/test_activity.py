"""The last hour by minute: each fire is in exactly one minute, whatever the clock does, and processes add up."""

from random import Random

import pytest

from nats_scheduler.engine.events import FireReadBack, FireStored
from nats_scheduler.engine.fire import Fire
from nats_scheduler.observe.activity import (
    MINUTES_KEPT,
    SAMPLE_LEAD_NS,
    STREAMS_PER_UNIT,
    Activity,
    Minute,
    minute_of,
    nothing_in,
    total_of,
)
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS, MAX_RECENT_FIRES, FireMetrics
from nats_scheduler.schedule.instants import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND
from nats_scheduler.testing.clock import START

FIRE = Fire("S.s", 1, START, None, "S.out", b"", b"")
NOON = START - START % HOUR


def read_back(late: int = MILLISECOND, sequence: int = 1) -> FireReadBack:
    return FireReadBack("S.s", "S.out", START, START, START + late, sequence)


class Process:
    """The counts of one process, and its activity."""

    def __init__(self) -> None:
        self.fires = FireMetrics()
        self.activity = Activity(self.fires)

    def fire(self, late: int = MILLISECOND, stream: str = "S") -> None:
        self.fires.stored(stream, FireStored(FIRE, 1, duplicate=False))
        self.fires.read_back(stream, read_back(late), late / SECOND)

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
    process.sample(NOON)
    process.fire()
    process.sample(NOON + MINUTE + MILLISECOND)  # taken when the next minute has just begun
    process.fire()
    process.fire()
    assert process.by_minute(NOON + MINUTE + 30 * SECOND) == {0: 1, 1: 2}
    process.fire()
    assert process.by_minute(NOON + MINUTE + 59 * SECOND) == {0: 1, 1: 3}
    assert process.by_minute(NOON + 60 * MINUTE) == {1: 3}, "an hour is kept"


def test_a_sample_just_before_a_minute_belongs_to_it() -> None:
    """A fire at the beginning of the minute is in it, and the sample does not delay that."""
    process = Process()
    process.sample(NOON)
    process.fire()
    process.sample(NOON + MINUTE - SAMPLE_LEAD_NS)
    process.fire()
    assert process.by_minute(NOON + MINUTE - SAMPLE_LEAD_NS // 2) == {0: 1}, "asked between the two"
    process.fire()
    assert process.by_minute(NOON + MINUTE) == {0: 1, 1: 2}


def test_a_minute_has_all_that_was_counted_in_it() -> None:
    process = Process()
    process.sample(NOON)
    for late in (0, 100 * MICROSECOND, 500 * MICROSECOND, 7 * MILLISECOND, 90 * SECOND):
        process.fire(late)
    process.fires.stored("S", FireStored(FIRE, 1, duplicate=True))
    process.fires.read_back("S", read_back(HOUR)._replace(overdue=True), 3600.0)
    process.fires.of("S").refused += 2
    process.sample(NOON + SECOND)
    (minute,) = process.activity.minutes(NOON + SECOND, 1)
    lateness = [0] * (len(LATENESS_BUCKETS_SECONDS) + 1)
    lateness[0], lateness[5], lateness[-1] = 3, 1, 1
    assert minute == Minute(NOON, 5, 1, 1, 2, tuple(lateness), 90 * SECOND)
    process.fire(MILLISECOND)
    process.sample(NOON + MINUTE)
    process.fire(2 * MILLISECOND)
    process.sample(NOON + MINUTE + 1)
    assert [one.lateness_max for one in process.activity.minutes(NOON + MINUTE, 2)] == [90 * SECOND, 2 * MILLISECOND]


def test_minutes_without_fires_are_listed_oldest_first() -> None:
    minutes = Process().activity.minutes(NOON + 90 * SECOND, 3)
    assert minutes == [nothing_in(NOON - MINUTE), nothing_in(NOON), nothing_in(NOON + MINUTE)]


def test_the_fires_of_one_stream_and_of_all() -> None:
    process = Process()
    process.sample(NOON)
    for number in range(2 * STREAMS_PER_UNIT + 1):
        process.fire(stream=f"S{number}")
    process.fire(stream="S3")
    assert process.by_minute(NOON) == {0: 2 * STREAMS_PER_UNIT + 2}
    assert process.by_minute(NOON, "S3") == {0: 2}
    assert process.by_minute(NOON, "none") == {}
    assert (process.activity.is_known("S3"), process.activity.is_known("none")) == (True, False)


def test_what_fires_while_a_sample_is_taken_is_counted_once() -> None:
    process = Process()
    for number in range(4 * STREAMS_PER_UNIT):
        process.fire(stream=f"S{number}")
    first, second = process.activity.sample(lambda: NOON), process.activity.sample(lambda: NOON)
    next(first)
    process.fire(stream="S0")
    next(second)
    process.fire(stream="S1")
    next(second)
    for _ in first:
        pass
    assert process.by_minute(NOON) == {0: 4 * STREAMS_PER_UNIT + 2}


def test_a_sample_is_taken_in_units() -> None:
    process = Process()
    for number in range(10 * STREAMS_PER_UNIT):
        process.fire(stream=f"S{number}")
    assert len(list(process.activity.sample(lambda: NOON))) == 10


def test_a_sample_that_had_to_wait_goes_on_in_the_next_minute() -> None:
    process = Process()
    for number in range(2 * STREAMS_PER_UNIT):
        process.fire(stream=f"S{number}")
    clock = [NOON]
    waiting = process.activity.sample(lambda: clock[0])
    next(waiting)
    clock[0] += MINUTE
    process.sample(NOON + MINUTE)
    process.fire(stream=f"S{2 * STREAMS_PER_UNIT - 1}")
    for _ in waiting:
        pass
    assert process.by_minute(NOON + MINUTE) == {0: 2 * STREAMS_PER_UNIT, 1: 1}


def test_a_clock_that_is_set_back_loses_no_fire() -> None:
    process = Process()
    process.sample(NOON)
    process.fire()
    assert process.by_minute(NOON + 10 * SECOND) == {0: 1}
    process.fire()
    assert process.by_minute(NOON - 30 * MINUTE) == {-30: 1}, "what is ahead of the clock is not listed"
    process.fire()
    assert process.by_minute(NOON - 29 * MINUTE) == {-30: 2}
    assert process.by_minute(NOON) == {-30: 2, 0: 1}


def test_a_clock_that_is_set_forward_leaves_minutes_without_fires() -> None:
    process = Process()
    process.sample(NOON)
    process.fire()
    assert process.by_minute(NOON + 10 * MINUTE) == {0: 1}
    process.fire()
    assert process.by_minute(NOON + 10 * MINUTE) == {0: 1, 10: 1}
    process.fire()
    assert process.by_minute(NOON + 100 * HOUR + 10 * MINUTE) == {}


def test_minutes_of_an_hour_ago_are_replaced() -> None:
    process = Process()
    process.sample(NOON)
    for hours in range(3):
        process.fire()
        assert process.by_minute(NOON + hours * HOUR) == {60 * hours: 1}
        process.sample(NOON + (hours + 1) * HOUR)


def test_a_stream_without_fires_for_an_hour_takes_no_room() -> None:
    process = Process()
    process.sample(NOON)
    process.fire()
    process.sample(NOON)
    assert [one.hour is None for one in process.activity._sampled.values()] == [False]
    process.sample(NOON + HOUR - MINUTE)
    assert [one.hour is None for one in process.activity._sampled.values()] == [False]
    process.sample(NOON + HOUR)
    assert [one.hour is None for one in process.activity._sampled.values()] == [True]
    process.fire()
    assert process.by_minute(NOON + HOUR, "S") == {60: 1}


@pytest.mark.parametrize("seed", range(20))
def test_the_minutes_of_several_processes_add_up_to_those_of_one(seed: int) -> None:
    """However fires are divided among processes, and whenever each takes its samples."""
    random = Random(seed)
    one, several = Process(), [Process() for _ in range(random.randrange(1, 5))]
    for process in (one, *several):
        process.sample(NOON)
    now = NOON
    for _ in range(500):
        after = now + random.randrange(1, 20 * SECOND)
        if minute_of(after) != minute_of(now):
            for process in (one, *several):
                process.sample(after)
        now = after
        late = int(10 ** random.uniform(3, 11))
        one.fire(late)
        random.choice(several).fire(late)
        if random.random() < 0.1:
            random.choice((one, *several)).sample(now)
    for process in (one, *several):
        process.sample(now)
    expected = one.activity.minutes(now, MINUTES_KEPT)
    parts = [process.activity.minutes(now, MINUTES_KEPT) for process in several]
    assert [total_of(same) for same in zip(*parts, strict=True)] == expected
    assert sum(sum(minute.lateness) for minute in expected) == sum(minute.fires for minute in expected) > 100


def test_the_last_fires_are_kept_and_no_more() -> None:
    fires = FireMetrics()
    for number in range(MAX_RECENT_FIRES + 5):
        fires.read_back(f"S{number}", read_back(sequence=number), 0.001)
    assert len(fires.recent) == MAX_RECENT_FIRES
    assert (fires.recent[0][0], fires.recent[-1][1].stored_sequence) == ("S5", MAX_RECENT_FIRES + 4)
