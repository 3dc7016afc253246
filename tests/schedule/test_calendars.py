"""Calendars: how they are written, and what they leave of the fire times of a pattern."""

import pytest

from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.calendars import (
    MAX_CALENDAR_BYTES,
    MAX_CALENDAR_PARTS,
    MAX_NAME_CHARS,
    Calendar,
    Days,
    InvalidCalendar,
    KnownCalendars,
    days_text,
    in_order,
    is_calendar_name,
    read_calendar,
    read_days,
    with_days,
    without,
    without_days,
)
from nats_scheduler.schedule.invalid import FaultError
from nats_scheduler.schedule.patterns import Pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.schedule.reading import at, first_fires, read

TEXT = b"""# Bavaria
2026-12-25  # Christmas Day
2026-12-27..2027-01-01, 2026-12-26

2027-01-06
"""
CHRISTMAS = in_order([Days(20_812, 20_819), Days(20_824, 20_824)])


def test_a_calendar_is_lines_of_days_and_ranges_with_comments() -> None:
    found = read_calendar("de-by", TEXT)
    assert found == Calendar("de-by", CHRISTMAS)
    assert [days_text(one) for one in CHRISTMAS] == ["2026-12-25..2027-01-01", "2027-01-06"]
    assert read_calendar("de-by", "\n".join(map(days_text, CHRISTMAS)).encode()) == found
    assert read_calendar("none", b"# nothing yet\n") == Calendar("none", ())
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


def test_a_day_that_cannot_be_read_is_shown_cut_short() -> None:
    with pytest.raises(FaultError) as raised:
        read_days("9" * 1_000)
    assert len(str(raised.value)) < 200


def test_calendars_are_equal_by_name_and_days_and_have_a_cheap_hash() -> None:
    assert Calendar("a", (Days(1, 2),)) == Calendar("a", (Days(1, 2),))
    assert Calendar("a", (Days(1, 2),)) != Calendar("a", (Days(1, 3),))
    assert Calendar("a") != Calendar("b")
    assert Calendar("a", CHRISTMAS) != object()
    assert hash(Calendar("a", (Days(1, 2),))) == hash(Calendar("a"))


DAILY = read("0 0 9 * * *", "Europe/Berlin")
STORED_AT = at("2026-12-23T12:00:00Z")


def named(*calendars: Calendar, limit: int | None = None, end: int | None = None) -> Bounded:
    return Bounded(DAILY, Bounds(calendars=calendars, limit=limit, end=end))


def fires(of: Pattern, most: int) -> list[str]:
    return [format_rfc3339(fire)[:10] for fire in first_fires(of, STORED_AT, most)]


def test_a_pattern_leaves_out_the_days_of_all_its_calendars() -> None:
    holidays, company = Calendar("de-by", CHRISTMAS), Calendar("company", (Days(20_811, 20_811), Days(20_820, 20_820)))
    assert fires(named(holidays, company), 2) == ["2027-01-03", "2027-01-04"]
    assert fires(named(holidays), 2) == ["2026-12-24", "2027-01-02"]
    assert named(holidays).latest_fire(STORED_AT, at("2027-01-01T12:00:00Z"), STORED_AT) == at("2026-12-24T08:00:00Z")
    assert not named(company).is_fire(at("2026-12-24T08:00:00Z"), STORED_AT)


def test_a_limit_counts_what_the_calendars_leave() -> None:
    assert fires(named(Calendar("de-by", CHRISTMAS), limit=3), 9) == ["2026-12-24", "2027-01-02", "2027-01-03"]
    every = Bounded(read("@every 24h"), Bounds(limit=2, calendars=(Calendar("de-by", CHRISTMAS),)))
    assert fires(every, 9) == ["2026-12-24", "2027-01-02"]


def test_a_pattern_with_an_unknown_calendar_answers_with_its_possible_fire_times() -> None:
    both = named(Calendar("a", ()), Calendar("b"), limit=2)
    assert both.unknown_calendar == "b"
    assert fires(both, 4) == ["2026-12-24", "2026-12-25", "2026-12-26", "2026-12-27"]
    known = both.with_calendars(KnownCalendars({"a": Calendar("a", ()), "b": Calendar("b", CHRISTMAS)}))
    assert known.unknown_calendar is None
    assert fires(known, 4) == ["2026-12-24", "2027-01-02"]
    assert known.with_calendars(KnownCalendars({"a": Calendar("a", ())})) == both


def test_what_is_possible_does_not_depend_on_calendars() -> None:
    with_days = named(Calendar("de-by", CHRISTMAS), limit=2, end=at("2027-01-01T00:00:00Z"))
    assert with_days.possible == named(Calendar("de-by", ()), limit=7, end=at("2027-01-01T00:00:00Z")).possible
    assert with_days.possible.is_fire(at("2026-12-25T08:00:00Z"), STORED_AT)
    assert not with_days.possible.is_fire(at("2027-01-01T08:00:00Z"), STORED_AT)
    without_calendars = Bounded(DAILY, Bounds(limit=2))
    assert without_calendars.possible is without_calendars
    assert DAILY.possible is DAILY
