"""Times are parsed and printed as in Go; forms that only Python accepts are rejected."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.schedule.instants import MICROSECOND, SECOND, SECONDS_PER_DAY, days_from_civil
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339, is_as_printed, parse_rfc3339

BASE = 1_767_323_045 * SECOND
"""2026-01-02T03:04:05Z."""

READ = {
    "2026-01-02T03:04:05Z": BASE,
    "2026-01-02T3:04:05Z": BASE,
    "2026-01-02T05:04:05+02:00": BASE,
    "2026-01-02T03:04:05-00:00": BASE,
    "2026-01-03T03:04:05+24:00": BASE,
    "2026-01-03T04:04:05+24:60": BASE,
    "2026-01-02T03:04:05.5Z": BASE + SECOND // 2,
    "2026-01-02T03:04:05,5Z": BASE + SECOND // 2,
    "2026-01-02T03:04:05.1234567899Z": BASE + 123_456_789,
    "2026-01-02T03:04:05." + "0" * 5_000 + "Z": BASE,
    "0000-01-01T00:00:00Z": days_from_civil(0, 1, 1) * SECONDS_PER_DAY * SECOND,
    "9999-12-31T23:59:59.999999999Z": days_from_civil(10_000, 1, 1) * SECONDS_PER_DAY * SECOND - 1,
    "2024-02-29T00:00:00Z": days_from_civil(2024, 2, 29) * SECONDS_PER_DAY * SECOND,
}

REFUSED = [
    "",
    "2026-01-02",
    "2026-01-02T03:04:05",
    "2026-01-02t03:04:05Z",
    "2026-01-02T03:04:05z",
    "2026-01-02 03:04:05Z",
    "2026-01-02T03:04:05 Z",
    "2026-01-02T03:04:05Z ",
    "2026-01-02T03:04:05Z\n",
    " 2026-01-02T03:04:05Z",
    "2026-01-02T03:04:05+0200",
    "2026-01-02T03:04:05+02",
    "2026-01-02T03:04:05+02:00:00",
    "2026-01-02T03:04:05\u221202:00",
    "2026-01-02T03:04:05.Z",
    "2026-01-02T03:04Z",
    "2026-1-02T03:04:05Z",
    "2026-01-2T03:04:05Z",
    "12026-01-02T03:04:05Z",
    "-026-01-02T03:04:05Z",
    "2026-00-02T03:04:05Z",
    "2026-13-02T03:04:05Z",
    "2026-01-00T03:04:05Z",
    "2026-04-31T03:04:05Z",
    "2023-02-29T03:04:05Z",
    "2026-01-02T24:04:05Z",
    "2026-01-02T03:60:05Z",
    "2026-12-31T23:59:60Z",
    "2026-01-02T03:04:05+25:00",
    "2026-01-02T03:04:05+02:61",
    "1767323045",
    "\u0662\u0660\u0662\u0666-01-02T03:04:05Z",
    "2026-01-02T03:04:05.\u0665Z",
    "2026-01-02T03:04:0\u00b2Z",
]


@pytest.mark.parametrize("text", READ, ids=lambda text: text[:40])
def test_times_are_read_as_go_reads_them(text: str) -> None:
    assert parse_rfc3339(text) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_go_refuses_is_refused(text: str) -> None:
    assert isinstance(parse_rfc3339(text), Invalid)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2023-02-29T03:04:05Z", "there is no day 2023-02-29"),
        ("2026-01-02T24:04:05Z", "hour 24 is above 23"),
        ("2026-01-02T03:60:05Z", "minute 60 is above 59"),
        ("2026-12-31T23:59:60Z", "second 60 is above 59 (leap seconds are not accepted)"),
        ("2026-01-02T03:04:05+25:00", "offset +25:00 is above 24 hours or 60 minutes"),
        ("tomorrow", "expected a time such as 2026-11-20T15:04:05Z or 2026-11-20T15:04:05.25+01:00"),
    ],
)
def test_the_reason_names_the_part_that_is_wrong(text: str, reason: str) -> None:
    assert parse_rfc3339(text) == Invalid(text, reason)


@pytest.mark.parametrize(
    ("instant", "offset", "text"),
    [
        (BASE, 0, "2026-01-02T03:04:05Z"),
        (BASE + 1, 0, "2026-01-02T03:04:05.000000001Z"),
        (BASE + 120_000_000, 0, "2026-01-02T03:04:05.12Z"),
        (BASE, 3600, "2026-01-02T04:04:05+01:00"),
        (BASE, -12_600, "2026-01-01T23:34:05-03:30"),
        (BASE, 20_700, "2026-01-02T08:49:05+05:45"),
        (BASE, 1_172, "2026-01-02T03:23:37+00:19"),
        (BASE, -2_670, "2026-01-02T02:19:35-00:44"),
        (BASE, -30, "2026-01-02T03:03:35+00:00"),
        (-1, 0, "1969-12-31T23:59:59.999999999Z"),
        (days_from_civil(10_000, 1, 1) * SECONDS_PER_DAY * SECOND, 0, "10000-01-01T00:00:00Z"),
        (days_from_civil(-1, 12, 31) * SECONDS_PER_DAY * SECOND, 0, "-0001-12-31T00:00:00Z"),
    ],
)
def test_times_are_printed_as_go_prints_them(instant: int, offset: int, text: str) -> None:
    assert format_rfc3339(instant, offset) == text


INSTANTS = st.integers(
    days_from_civil(0, 1, 3) * SECONDS_PER_DAY * SECOND, days_from_civil(9999, 12, 30) * SECONDS_PER_DAY * SECOND
)


@given(INSTANTS, st.integers(-24 * 60, 24 * 60))
def test_a_printed_time_is_read_back_as_the_same_instant(instant: int, offset_minutes: int) -> None:
    assert parse_rfc3339(format_rfc3339(instant, offset_minutes * 60)) == instant


_TEXTS = st.from_regex(
    r"20[0-9]{2}-0[1-9]-[12][0-8]T1?[0-9]:[0-5]9:59([.,][0-9]{1,11})?(Z|\+00:00|-01:30)", fullmatch=True
)


@given(_TEXTS)
def test_a_text_is_as_printed_where_printing_gives_it_back(text: str) -> None:
    instant = parse_rfc3339(text)
    assert isinstance(instant, int)
    assert is_as_printed(text) == (format_rfc3339(instant) == text)


@given(st.datetimes(), st.integers(-23 * 60, 23 * 60))
def test_times_are_those_of_the_standard_library(moment: datetime, offset_minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    instant = since // timedelta(microseconds=1) * MICROSECOND
    assert parse_rfc3339(aware.isoformat()) == instant


@given(st.text("0123456789-+:.,TZtz \u0661", max_size=32))
def test_a_text_is_read_or_refused_but_never_raises(text: str) -> None:
    answer = parse_rfc3339(text)
    assert isinstance(answer, int) or answer.text == text
