"""Calendars: how they are written, and what they leave of the fire times of a pattern."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.bounds import Bounded, Bounds, OnExcepted
from nats_scheduler.schedule.calendars import (
    MAX_CALENDAR_BYTES,
    MAX_CALENDAR_PARTS,
    MAX_NAME_CHARS,
    Calendar,
    InvalidCalendar,
    KnownCalendars,
    is_calendar_name,
    read_calendar,
    with_days,
    without_days,
)
from nats_scheduler.schedule.days import (
    DayRows,
    Days,
    days_text,
    in_order,
    read_days,
    row_around,
    rows_between,
    without,
)
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.schedule.patterns import Pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.seeds import draws
from tests.schedule.reading import at, fires_until, first_fires, read

TEXT = b"""# Bavaria
2026-12-25  # Christmas Day
2026-12-27..2027-01-01, 2026-12-26

2027-01-06
"""
CHRISTMAS = DayRows([Days(20_812, 20_819), Days(20_824, 20_824)])


def test_a_calendar_is_lines_of_days_and_ranges_with_comments() -> None:
    found = read_calendar("de-by", TEXT)
    assert found == Calendar("de-by", CHRISTMAS)
    assert [days_text(one) for one in CHRISTMAS] == ["2026-12-25..2027-01-01", "2027-01-06"]
    assert read_calendar("de-by", "\n".join(map(days_text, CHRISTMAS)).encode()) == found
    assert read_calendar("none", b"# nothing yet\n") == Calendar("none", DayRows())
    longest = b"2026-12-25,2027-01-01..2027-01-06\n" * (MAX_CALENDAR_PARTS // 2)
    assert isinstance(read_calendar("long", longest), Calendar)


def test_days_are_added_once_and_removed_from_ranges() -> None:
    text = with_days(TEXT.decode(), [read_days("2026-12-27..2027-01-03"), read_days("2027-02-01")])
    assert text == f"{TEXT.decode()}2027-01-02..2027-01-03\n2027-02-01\n"
    left = without_days(text, [read_days("2026-12-25"), read_days("2026-12-30..2027-01-02")])
    assert left == "# Bavaria\n2026-12-26..2026-12-29\n\n2027-01-06\n2027-01-03\n2027-02-01\n"


def test_what_is_no_calendar_says_why() -> None:
    for text, reason in (
        (b"2026-12-25\n2026-02-30", "line 2 contains '2026-02-30': expected days such as 2026-12-25"),
        (b"0000-02-30", "line 1 contains '0000-02-30': expected days such as 2026-12-25"),
        (b"2026-12-25 2026-12-26", "line 1 contains '2026-12-25 2026-12-26': expected days"),
        (b"2026-12-26..2026-12-25", "line 1 contains '2026-12-26..2026-12-25', which ends before it begins"),
        (b"calendar:other", "line 1 contains 'calendar:other'"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"2026-12-25\n" * (MAX_CALENDAR_PARTS + 1), "has 2,001 days and ranges: expected at most 2,000"),
        (b"#" * (MAX_CALENDAR_BYTES + 1), "has 65,537 bytes: expected at most 65,536"),
    ):
        found = read_calendar("de-by", text)
        assert isinstance(found, InvalidCalendar), reason
        assert found.reason.startswith(reason)
        assert len(str(found)) < 400


def test_the_first_day_that_can_be_named_is_in_the_year_0() -> None:
    days = read_days("0000-02-29..0001-01-01")
    assert isinstance(days, Days)
    assert days.last - days.first == 307, "it has a leap day"


def test_names_that_a_calendar_can_have() -> None:
    assert [name for name in ("de-by", "DE_1", "x" * MAX_NAME_CHARS) if not is_calendar_name(name)] == []
    wrong = ("", "a.b", "a b", "a,b", "*", ">", "ä", "a\n", "x" * (MAX_NAME_CHARS + 1))
    assert [name for name in wrong if is_calendar_name(name)] == []


def test_days_are_joined_and_removed_from_within_ranges() -> None:
    assert in_order([Days(7, 9), Days(1, 2), Days(3, 4), Days(8, 12), Days(20, 19)]) == (Days(1, 4), Days(7, 12))
    days = (Days(10, 20), Days(30, 30), Days(40, 50))
    assert without(days, Days(12, 13)) == (Days(10, 11), Days(14, 20), Days(30, 30), Days(40, 50))
    assert without(days, Days(15, 45)) == (Days(10, 14), Days(46, 50))
    assert without(days, Days(0, 99)) == ()
    assert without(days, Days(21, 29)) == days


some_days = st.lists(
    st.tuples(st.integers(-40, 80), st.integers(-1, 9)).map(lambda pair: Days(pair[0], sum(pair))), max_size=20
)


@settings(max_examples=draws(40))
@given(some_days, some_days, st.integers(-50, 100), st.integers(0, 60))
def test_rows_of_days_are_those_of_a_set(one: list[Days], other: list[Days], first: int, length: int) -> None:
    days = {day for row in one for day in range(row.first, row.last + 1)}
    both = days | {day for row in other for day in range(row.first, row.last + 1)}
    rows, sets = DayRows(one), (DayRows(one), DayRows(other))
    assert (rows, tuple(rows)) == (DayRows(reversed(one)), in_order(one))
    assert rows[:2] == in_order(one)[:2]
    assert rows.of_month(first) == sum(1 << 1 + day - first for day in days if 0 <= day - first < 31)
    row = row_around(sets, first)
    assert first not in both if row is None else row.first <= first <= row.last
    for of, expected in (((rows,), days), (sets, both)):
        found = list(rows_between(of, first, first + length))
        assert found == list(in_order(found)), "in order, and none follows another at once"
        assert {day for row in found for day in range(row.first, row.last + 1)} >= {
            day for day in expected if first <= day <= first + length
        }
        assert all(row.last >= first and row.first <= first + length for row in found)
        assert all({*range(row.first, row.last + 1)} <= expected for row in found)


DAILY = read("0 0 9 * * *", "Europe/Berlin")
STORED_AT = at("2026-12-23T12:00:00Z")


def named(*calendars: Calendar, limit: int | None = None, end: int | None = None) -> Bounded:
    return Bounded(DAILY, Bounds(calendars=calendars, limit=limit, end=end))


def fires(of: Pattern, most: int) -> list[str]:
    return [format_rfc3339(fire)[:10] for fire in first_fires(of, STORED_AT, most)]


def test_a_pattern_leaves_out_the_days_of_all_its_calendars() -> None:
    holidays = Calendar("de-by", CHRISTMAS)
    company = Calendar("company", DayRows([Days(20_811, 20_811), Days(20_820, 20_820)]))
    assert fires(named(holidays, company), 2) == ["2027-01-03", "2027-01-04"]
    assert fires(named(holidays), 2) == ["2026-12-24", "2027-01-02"]
    assert named(holidays).latest_fire(STORED_AT, at("2027-01-01T12:00:00Z"), STORED_AT) == at("2026-12-24T08:00:00Z")
    assert not named(company).is_fire(at("2026-12-24T08:00:00Z"), STORED_AT)


def test_a_limit_counts_what_the_calendars_leave() -> None:
    assert fires(named(Calendar("de-by", CHRISTMAS), limit=3), 9) == ["2026-12-24", "2027-01-02", "2027-01-03"]
    every = Bounded(read("@every 24h"), Bounds(limit=2, calendars=(Calendar("de-by", CHRISTMAS),)))
    assert fires(every, 9) == ["2026-12-24", "2027-01-02"]


def test_with_an_unknown_calendar_fire_times_are_the_possible_ones() -> None:
    both = named(Calendar("a", DayRows()), Calendar("b"), limit=2)
    assert both.unknown_calendar == "b"
    assert fires(both, 4) == ["2026-12-24", "2026-12-25", "2026-12-26", "2026-12-27"]
    known = both.with_calendars(KnownCalendars({"a": Calendar("a", DayRows()), "b": Calendar("b", CHRISTMAS)}))
    assert known.unknown_calendar is None
    assert fires(known, 4) == ["2026-12-24", "2027-01-02"]
    assert known.with_calendars(KnownCalendars({"a": Calendar("a", DayRows())})) == both


@settings(max_examples=draws(20))
@given(
    st.sampled_from(["0 0 9 * * mon", "0 30 2 1,31 * *", "0 0 9 25 12 *"]),
    st.sampled_from(OnExcepted),
    st.lists(st.tuples(st.integers(-40, 60), st.integers(0, 33)), max_size=4),
    st.integers(1, 40),
)
def test_each_fire_time_that_an_edit_leaves_was_possible_before(
    text: str, on_excepted: OnExcepted, rows: list[tuple[int, int]], static: int
) -> None:
    today = STORED_AT // DAY
    edited = Calendar("a", DayRows(Days(today + first, today + first + more) for first, more in rows))
    bounds = Bounds(
        calendars=(Calendar("a"),), excepted=DayRows([Days(today + static, today + static)]), on_excepted=on_excepted
    )
    unknown = Bounded(read(text, "Europe/Berlin"), bounds)
    known, until = unknown.with_calendars(KnownCalendars({"a": edited})), STORED_AT + 60 * DAY
    left = fires_until(known, STORED_AT, until)
    assert all(known.possible.is_fire(one, STORED_AT) and unknown.is_fire(one, STORED_AT) for one in left)
    assert fires_until(known.possible, STORED_AT, until) == fires_until(unknown, STORED_AT, until)
    limited = Bounded(known.base, replace(known.bounds, limit=2))
    assert fires_until(limited, STORED_AT, until) == left[:2]


def test_what_is_possible_does_not_depend_on_calendars() -> None:
    with_days = named(Calendar("de-by", CHRISTMAS), limit=2, end=at("2027-01-01T00:00:00Z"))
    assert with_days.possible == named(Calendar("de-by", DayRows()), limit=7, end=at("2027-01-01T00:00:00Z")).possible
    assert with_days.possible.is_fire(at("2026-12-25T08:00:00Z"), STORED_AT)
    assert not with_days.possible.is_fire(at("2027-01-01T08:00:00Z"), STORED_AT)
    without_calendars = Bounded(DAILY, Bounds(limit=2))
    assert without_calendars.possible is without_calendars
    assert DAILY.possible is DAILY
