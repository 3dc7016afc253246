"""Times of Python programs become nanoseconds exactly, or are refused with what to write instead."""

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from nats_scheduler.client.times import MAX_DURATION_NS, datetime_of, instant_of, nanoseconds_of
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (datetime(2026, 11, 20, 9, tzinfo=UTC), "2026-11-20T09:00:00Z"),
        (datetime(2026, 11, 20, 9, 0, 0, 1, tzinfo=UTC), "2026-11-20T09:00:00.000001Z"),
        (datetime(2026, 11, 20, 9, tzinfo=ZoneInfo("Europe/Berlin")), "2026-11-20T08:00:00Z"),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), "2026-10-25T01:30:00Z"),
        (datetime(2026, 11, 20, 9, tzinfo=timezone(timedelta(hours=-5))), "2026-11-20T14:00:00Z"),
        (datetime(1, 1, 2, tzinfo=UTC), "0001-01-02T00:00:00Z"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_a_time_with_a_zone_is_an_instant_and_comes_back(when: datetime, text: str) -> None:
    instant = instant_of(when, "the time")
    assert format_rfc3339(instant) == text
    assert datetime_of(instant) == when.astimezone(UTC)
    assert datetime_of(instant).tzinfo is UTC


def test_a_time_without_a_zone_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"tzinfo=UTC") as refused:
        instant_of(datetime(2026, 11, 20, 9, 30), "the time")  # noqa: DTZ001
    assert str(refused.value) == (
        "the time of 2026-11-20T09:30:00 has no time zone: write datetime(2026, 11, 20, 9, 30, tzinfo=UTC) "
        'or datetime(2026, 11, 20, 9, 30, tzinfo=ZoneInfo("Europe/Berlin"))'
    )


@pytest.mark.parametrize("value", [date(2026, 11, 20), 1_780_000_000, "2026-11-20T09:00:00Z", None])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="is no datetime"):
        instant_of(value, "the time")  # type: ignore[arg-type]


def test_what_is_below_a_microsecond_is_cut_off_on_the_way_out() -> None:
    assert datetime_of(1_500) == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert datetime_of(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def test_durations_are_exact_and_bounded() -> None:
    assert nanoseconds_of(timedelta(days=1, microseconds=1), "the delay") == 86_400 * SECOND + 1_000
    longest = timedelta(microseconds=MAX_DURATION_NS // 1_000)
    assert nanoseconds_of(longest, "the delay") == MAX_DURATION_NS // 1_000 * 1_000
    for wrong in (timedelta(days=365 * 293), -timedelta(days=365 * 293)):
        with pytest.raises(ValueError, match="longer than 292 years"):
            nanoseconds_of(wrong, "the delay")
    with pytest.raises(TypeError, match="is no timedelta"):
        nanoseconds_of(90, "the delay")  # type: ignore[arg-type]
