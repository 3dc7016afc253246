"""Times are parsed and printed as in Go; forms that only Python accepts are rejected. The calendar is Python's."""

from datetime import date

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.instants import (
    DAY,
    SECOND,
    ZERO_TIME_NS,
    civil_from_days,
    days_from_civil,
    days_in_month,
    floor_to_second,
    is_leap,
    next_multiple,
    round_to_second,
    weekday_of,
)
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339, is_as_printed, offset_in, offset_text, parse_rfc3339
from tests.harness.seeds import draws

EPOCH = date(1970, 1, 1).toordinal()
BASE = 1_767_323_045 * SECOND
"""2026-01-02T03:04:05Z."""

READ = {
    "2026-01-02T3:04:05Z": BASE,
    "2026-01-03T04:04:05+24:60": BASE,
    "2026-01-02T03:04:05,5Z": BASE + SECOND // 2,
    "2026-01-02T03:04:05." + "0" * 5_000 + "Z": BASE,
    "0000-01-01T00:00:00Z": days_from_civil(0, 1, 1) * DAY,
    "9999-12-31T23:59:59.999999999Z": days_from_civil(10_000, 1, 1) * DAY - 1,
}
REFUSED = [
    *("", "2026-01-02T03:04:05", "2026-01-02t03:04:05Z", "2026-01-02 03:04:05Z", "2026-01-02T03:04:05Z\n"),
    *("2026-01-02T03:04:05\u221202:00", "2026-01-02T03:04:05.Z", "\u0662\u0660\u0662\u0666-01-02T03:04:05Z"),
    "2026-01-02T03:04:0\u00b2Z",
]
REASONS = {
    "2023-02-29T03:04:05Z": "there is no day 2023-02-29",
    "2026-01-02T24:04:05Z": "hour 24 is above 23",
    "2026-01-02T03:60:05Z": "minute 60 is above 59",
    "2026-12-31T23:59:60Z": "second 60 is above 59 (leap seconds are not accepted)",
    "2026-01-02T03:04:05+25:00": "offset +25:00 is above 24 hours or 60 minutes",
    "tomorrow": "expected a time such as 2026-11-20T15:04:05Z or 2026-11-20T15:04:05.25+01:00",
}
PRINTED = {
    (BASE, 0): "2026-01-02T03:04:05Z",
    (BASE + 1, 0): "2026-01-02T03:04:05.000000001Z",
    (BASE + 120_000_000, 0): "2026-01-02T03:04:05.12Z",
    (BASE, 3600): "2026-01-02T04:04:05+01:00",
    (BASE, -12_600): "2026-01-01T23:34:05-03:30",
    (BASE, 20_700): "2026-01-02T08:49:05+05:45",
    (BASE, 1_172): "2026-01-02T03:23:37+00:19",
    (BASE, -2_670): "2026-01-02T02:19:35-00:44",
    (BASE, -30): "2026-01-02T03:03:35+00:00",
    (-1, 0): "1969-12-31T23:59:59.999999999Z",
    (days_from_civil(10_000, 1, 1) * DAY, 0): "10000-01-01T00:00:00Z",
    (days_from_civil(-1, 12, 31) * DAY, 0): "-0001-12-31T00:00:00Z",
}


def test_times_are_read_as_go_reads_them() -> None:
    assert {text: parse_rfc3339(text) for text in READ} == READ
    assert [text for text in REFUSED if not isinstance(parse_rfc3339(text), Invalid)] == []
    assert {text: parse_rfc3339(text) for text in REASONS} == {
        text: Invalid(text, reason) for text, reason in REASONS.items()
    }


def test_times_are_printed_as_go_prints_them() -> None:
    assert {(instant, offset): format_rfc3339(instant, offset) for instant, offset in PRINTED} == PRINTED


USUAL_TEXTS = st.from_regex(
    r"20[0-9]{2}-0[1-9]-[12][0-8]T1?[0-9]:[0-5]9:59([.,][0-9]{1,11})?(Z|\+00:00|-01:30)", fullmatch=True
)


@settings(max_examples=draws(30))
@given(USUAL_TEXTS)
@example("2026-01-10T10:00:59.123456789Z")
@example("2026-01-10T10:00:59.1234567890Z")
def test_a_text_is_as_printed_where_printing_gives_it_back(text: str) -> None:
    instant = parse_rfc3339(text)
    assert isinstance(instant, int)
    assert is_as_printed(text) == (format_rfc3339(instant) == text)


# -- the calendar --------------------------------------------------------------------------------------------------


@settings(max_examples=draws(30))
@given(st.integers(-(10**6), 2_000_000) | st.integers(-(10**9), 10**9))
def test_a_date_of_any_size_comes_back_from_its_days(days: int) -> None:
    year, month, day = civil_from_days(days)
    assert days_from_civil(year, month, day) == days
    assert 1 <= day <= days_in_month(year, month)
    assert civil_from_days(days + 146_097) == (year + 400, month, day)
    if 1 <= year <= 9999:
        known = date.fromordinal(days + EPOCH)
        assert (known.year, known.month, known.day, known.isoweekday() % 7) == (year, month, day, weekday_of(days))


def test_years_have_the_leap_days_of_the_gregorian_calendar() -> None:
    assert [year for year in (1900, 2000, 2023, 2024, 2100, 2400) if is_leap(year)] == [2000, 2024, 2400]
    assert (days_in_month(2024, 2), days_in_month(2100, 2)) == (29, 28)
    assert days_from_civil(1, 1, 1) * DAY == ZERO_TIME_NS
    for last in ((2000, 2, 29), (2100, 2, 28), (2024, 2, 29), (2023, 12, 31)):
        assert civil_from_days(days_from_civil(*last)) == last, "the last days of an era, a century and four years"
    halves = (499_999_999, 500_000_000, -500_000_000, -500_000_001)
    assert [round_to_second(at) // SECOND for at in halves] == [0, 1, 0, -1]
    assert [floor_to_second(at) // SECOND for at in (999_999_999, SECOND, -1)] == [0, 1, -1]


def test_the_offset_that_a_time_is_written_with() -> None:
    for text, offset in (
        ("2026-11-28T09:30:00.5-03:30", -12_600),
        ("2026-11-28T09:30:00Z", 0),
        ("2026-11-28T09:30:00+25:00", None),
        ("2026-02-30T09:30:00+01:00", None),
        ("purge", None),
    ):
        assert offset_in(text) == offset, text
    assert [offset_text(one) for one in (0, 9 * 3_600, -12_600)] == ["Z", "+09:00", "-03:30"]


def test_the_next_multiple_of_a_period_is_later() -> None:
    assert [next_multiple(one, 5) for one in (-6, -5, 0, 4, 5, 6)] == [-5, 0, 5, 5, 10, 10]
