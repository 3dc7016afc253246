"""Each fire is checked against its own schedule: what is lost, stored twice, early, or on another target fails."""

import pytest

from tests.bench.fires import Fire, WrongFiresError, fire_in, lateness, lateness_of_repeating
from tests.bench.load import source_of, subject_of, target_of, targets_of

MILLISECOND = 1_000_000
SECOND = 1_000_000_000

REPLY = b"$JS.ACK.BENCH.name.1.12.3.1700000000000000123.0"
BLOCK = b"NATS/1.0\r\n%s\r\nNats-Schedule-Next: purge\r\n\r\n"


def test_each_schedule_has_a_subject_a_target_and_a_source_of_its_own() -> None:
    assert subject_of(7) == "BENCH.s.7"
    assert (target_of("BENCH.s.7"), source_of(7)) == ("BENCH.t.7", "BENCH.u.7")
    held = subject_of(7, "s-held", "BENCH-1")
    assert (held, target_of(held), source_of(7, "s-held", "BENCH-1")) == (
        "BENCH-1.s-held.7",
        "BENCH-1.t-held.7",
        "BENCH-1.u-held.7",
    )
    assert (targets_of(), targets_of("s-held", "BENCH-1")) == ("BENCH.t.>", "BENCH-1.t-held.>")


@pytest.mark.parametrize("header", [b"Nats-Scheduler: BENCH.s.7", b"X-Nats-Scheduler: BENCH.s.7"])
def test_a_fire_is_read_from_its_target_its_time_and_the_schedule_that_it_names(header: bytes) -> None:
    assert fire_in((b"BENCH.t.7", REPLY, BLOCK % header)) == Fire(7, 1_700_000_000_000_000_123)


@pytest.mark.parametrize(
    ("target", "header", "reason"),
    [
        (b"BENCH.t.8", b"Nats-Scheduler: BENCH.s.7", "of BENCH.s.7 was stored on BENCH.t.8, expected BENCH.t.7"),
        (b"BENCH-1.t.7", b"Nats-Scheduler: BENCH.s.7", "stored on BENCH-1.t.7"),
        (b"BENCH.t.7", b"Nats-Scheduler: BENCH.s-held.7", "expected BENCH.t-held.7"),
        (b"BENCH.t.7", b"Other: Nats-Scheduler", "BENCH.t.7 names no schedule"),
    ],
)
def test_a_fire_on_the_target_of_another_schedule_is_no_measurement(target: bytes, header: bytes, reason: str) -> None:
    with pytest.raises(WrongFiresError, match=reason):
        fire_in((target, REPLY, BLOCK % header))


def test_lateness_is_sorted_and_in_milliseconds() -> None:
    fires = [Fire(1, 30 * MILLISECOND), Fire(0, 12 * MILLISECOND)]
    assert lateness(fires, [10 * MILLISECOND, 29 * MILLISECOND]) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("fires", "reason"),
    [
        ([Fire(0, 10)], r"1 fires of 2 schedules: 1 lost \(such as 1\)"),
        ([Fire(0, 10), Fire(0, 10)], r"1 lost \(such as 1\), 1 stored twice \(such as 0\)"),
        ([Fire(0, 10), Fire(1, 10), Fire(1, 10)], r"3 fires of 2 schedules: 1 stored twice \(such as 1\)"),
        ([Fire(0, 10), Fire(1, 10), Fire(2, 10)], r"1 of no schedule \(such as 2\)"),
        ([Fire(0, 10), Fire(1, -MILLISECOND)], "1.000 ms early"),
    ],
)
def test_a_fire_that_is_lost_doubled_or_early_is_no_measurement(fires: list[Fire], reason: str) -> None:
    with pytest.raises(WrongFiresError, match=reason):
        lateness(fires, [0, 0])


def repeated(*seconds: float, number: int = 0) -> list[Fire]:
    """Build the fires of one schedule, stored at these seconds."""
    return [Fire(number, round(at * SECOND)) for at in seconds]


def test_repeating_schedules_fire_at_each_of_their_seconds() -> None:
    before_and_after = repeated(98.001, 104.001)
    fires = [*before_and_after, *repeated(100.002, 102.004), *repeated(100.001, 101.003, 102.001, 103.001, number=1)]
    assert lateness_of_repeating(fires, [2, 1], 100, 104) == pytest.approx([1, 1, 1, 2, 3, 4])
    assert lateness_of_repeating(repeated(101.001, 103.5), [2], 100, 104) == pytest.approx([1, 500])


@pytest.mark.parametrize(
    "fires",
    [
        [],
        repeated(100.001),
        repeated(102.001),
        repeated(100.001, 102.001, 102.001),
        repeated(100.001, 103.001),
        repeated(100.001, 101.001, 102.001),
        repeated(100.001, 101.999),
    ],
    ids=["none", "last-lost", "first-lost", "twice", "late", "one-more", "early"],
)
def test_a_repeating_schedule_that_misses_or_doubles_a_fire_is_no_measurement(fires: list[Fire]) -> None:
    with pytest.raises(WrongFiresError):
        lateness_of_repeating(fires, [2], 100, 104)


def test_a_fire_that_is_early_into_the_second_before_is_no_measurement() -> None:
    with pytest.raises(WrongFiresError, match="early"):
        lateness_of_repeating(repeated(99.999, 100.999), [1], 99, 101)
