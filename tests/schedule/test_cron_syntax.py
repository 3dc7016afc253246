"""The syntaxes `crontab` and `quartz`: what they accept and what that means, and why they reject the rest."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nats_scheduler.schedule.cron_syntax import MAX_FIELD_CHARS, Syntax
from nats_scheduler.schedule.instants import DAY, SECOND, SECONDS_PER_DAY, days_from_civil
from nats_scheduler.schedule.patterns import ALIASES, Cron, InvalidPattern, parse_pattern
from nats_scheduler.schedule.zones import load_zone
from tests.schedule.test_cron_fires import at

CRONTAB, QUARTZ = Syntax.CRONTAB, Syntax.QUARTZ


def cron(text: str, syntax: Syntax = CRONTAB, zone: str | None = None) -> Cron:
    pattern = parse_pattern(text, zone, syntax)
    assert isinstance(pattern, Cron), pattern
    return pattern


def refused(text: str, syntax: Syntax = CRONTAB) -> str:
    invalid = parse_pattern(text, None, syntax)
    assert isinstance(invalid, InvalidPattern), text
    assert invalid.text == text
    return invalid.reason


def days(text: str, year: int, month: int, months: int = 1) -> list[int]:
    """Return the days of a month, or of some, on which a pattern of a crontab fires."""
    last = days_from_civil(year + (month + months - 1) // 12, (month + months - 1) % 12 + 1, 1) * DAY
    found, fire = list[int](), cron(f"0 0 {text}").next_fire(days_from_civil(year, month, 1) * DAY - 1, 0)
    while fire is not None and fire < last:
        found.append(int(datetime.fromtimestamp(fire // SECOND, UTC).day))
        fire = cron(f"0 0 {text}").next_fire(fire, 0)
    return found


# -- what the day fields mean --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "year", "month", "expected"),
    [
        ("L * *", 2026, 2, [28]),
        ("L * *", 2028, 2, [29]),
        ("l * ?", 2026, 4, [30]),
        ("15,L * *", 2026, 4, [15, 30]),
        ("28-L * *", 2026, 2, [28]),
        ("25-L/3 * *", 2026, 1, [25, 28, 31]),
        ("L * fri", 2026, 1, [2, 9, 16, 23, 30, 31]),  # either is enough
        ("*,L * fri", 2026, 1, [2, 9, 16, 23, 30]),  # a list with a star is a star
        ("15W * *", 2026, 1, [15]),  # a Thursday
        ("15W * *", 2026, 8, [14]),  # a Saturday
        ("15W * *", 2026, 11, [16]),  # a Sunday
        ("W15 * *", 2026, 11, [16]),
        ("1W * *", 2026, 8, [3]),  # a Saturday: not in July
        ("1W * *", 2026, 2, [2]),
        ("31W * *", 2026, 5, [29]),  # a Sunday: not in June
        ("31W * *", 2026, 1, [30]),
        ("31W * *", 2026, 2, [27]),  # the 28th is a Saturday
        ("30W * *", 2027, 2, [26]),
        ("* * L5", 2026, 1, [30]),
        ("* * L0", 2026, 1, [25]),
        ("* * L7", 2026, 1, [25]),
        ("* * 2#1", 2026, 9, [1]),
        ("* * TUE#1", 2026, 10, [6]),
        ("* * 5#5", 2026, 1, [30]),
        ("* * 5#5", 2026, 2, []),
        ("* * 7#1", 2026, 2, [1]),
        ("* * mon-wed#1", 2026, 9, [1, 2, 7]),
        ("* * sat-mon#1", 2026, 9, [5, 6, 7]),
        ("* * 1#1,5#3,L5", 2026, 9, [7, 18, 25]),
        ("* * 5-7", 2026, 9, [4, 5, 6, 11, 12, 13, 18, 19, 20, 25, 26, 27]),
        ("* * 5-0", 2026, 9, [4, 5, 6, 11, 12, 13, 18, 19, 20, 25, 26, 27]),
        ("* * 0-7", 2026, 9, list(range(1, 31))),
        ("* * 0-7/3", 2026, 9, [2, 5, 6, 9, 12, 13, 16, 19, 20, 23, 26, 27, 30]),
        ("25-5 * *", 2026, 9, [1, 2, 3, 4, 5, 25, 26, 27, 28, 29, 30]),
        ("13 * fri", 2026, 9, [4, 11, 13, 18, 25]),
        ("*/10 * fri", 2026, 9, [1, 4, 11, 18, 21, 25]),
        ("*/1 * fri", 2026, 9, list(range(1, 31))),  # a star with a step is a restriction, also with 1
        ("? * fri", 2026, 9, [4, 11, 18, 25]),
        ("1-31 * */2", 2026, 9, list(range(1, 31))),
    ],
)
def test_days_are_those_of_the_documentation(text: str, year: int, month: int, expected: list[int]) -> None:
    assert days(text, year, month) == expected


@pytest.mark.parametrize("text", ["0 9 * nov-feb *", "0 9 * 11-2 *", "0 9 * NOV-Feb *", "0 9 * 1,2,11,12 *"])
def test_ranges_of_months_wrap_around(text: str) -> None:
    assert cron(text).fields.months == 1 << 11 | 1 << 12 | 1 << 1 | 1 << 2


def test_a_range_that_wraps_around_keeps_its_step() -> None:
    assert cron("0 22-4/3 * * *").fields.hours == 1 << 22 | 1 << 1 | 1 << 4
    assert cron("0 0 * nov-mar/3 *").fields.months == 1 << 11 | 1 << 2


def test_a_crontab_fires_at_second_0_and_quartz_at_those_it_names() -> None:
    start = at("2026-01-01T00:00:00Z")
    assert cron("* * * * *").next_fire(start, 0) == at("2026-01-01T00:01:00Z")
    assert cron("*/20 * * * * ?", QUARTZ).next_fire(start, 0) == at("2026-01-01T00:00:20Z")


@pytest.mark.parametrize("syntax", list(Syntax))
@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_mean_the_same_in_each_syntax(alias: str, syntax: Syntax) -> None:
    usual = parse_pattern(alias, "Europe/Berlin")
    start = at("2026-03-01T12:00:00Z")
    assert isinstance(usual, Cron)
    assert cron(alias, syntax, "Europe/Berlin").first_fire(start) == usual.first_fire(start)


def test_equal_texts_in_different_syntaxes_are_different_patterns() -> None:
    text = "0 0 12 */1 * fri"
    plain, quartz = parse_pattern(text), cron(text, QUARTZ)
    assert plain != quartz
    assert cron("@daily", QUARTZ) != cron("@daily", CRONTAB)
    start = at("2026-01-01T00:00:00Z")
    assert isinstance(plain, Cron)
    assert plain.first_fire(start) == at("2026-01-02T12:00:00Z"), "the server: a star with the step 1 is a star"
    assert quartz.first_fire(start) == at("2026-01-01T12:00:00Z"), "croniter: it is a restriction"


# -- years and the horizon -----------------------------------------------------------------------------------------


def test_the_year_field_has_a_first_and_a_last_fire() -> None:
    pattern = cron("0 0 9 1 1,7 ? 2027-2028", QUARTZ)
    fires = [at(f"{year}-{month}-01T09:00:00Z") for year in (2027, 2028) for month in ("01", "07")]
    assert pattern.first_fire(at("2026-11-20T00:00:00Z")) == fires[0]
    assert pattern.next_fire(fires[0], 0) == fires[1]
    assert pattern.next_fire(fires[3], 0) is None
    assert pattern.latest_fire(at("2026-01-01T00:00:00Z"), at("2040-01-01T00:00:00Z"), 0) == fires[3]
    assert pattern.latest_fire(at("2026-01-01T00:00:00Z"), fires[0] - 1, 0) is None
    assert pattern.is_fire(fires[2], 0)
    assert not pattern.is_fire(at("2029-01-01T09:00:00Z"), 0)
    assert pattern.ends_by_itself
    assert not cron("0 0 9 1 1 ? *", QUARTZ).ends_by_itself
    assert not cron("0 0 9 L * ?", QUARTZ).ends_by_itself


def test_years_beyond_the_horizon_never_fire_as_yet() -> None:
    pattern = cron("0 0 9 1 1 ? 2040", QUARTZ)
    assert pattern.first_fire(at("2034-12-31T00:00:00Z")) is None
    assert pattern.first_fire(at("2035-01-01T00:00:00Z")) == at("2040-01-01T09:00:00Z")


def test_the_fifth_friday_of_february_is_beyond_the_horizon_for_most_of_28_years() -> None:
    pattern = cron("0 9 * 2 5#5")
    assert pattern.first_fire(at("2030-12-31T23:59:58Z")) is None
    assert pattern.first_fire(at("2031-01-01T00:00:00Z")) == at("2036-02-29T09:00:00Z")


def test_the_first_and_the_last_year_are_part_of_the_field() -> None:
    pattern = cron("0 0 0 31 12 ? 1970/1", QUARTZ)
    first, last = at("1970-12-31T00:00:00Z"), at("2099-12-31T00:00:00Z")
    assert pattern.next_fire(at("1965-06-01T00:00:00Z"), 0) == first
    assert pattern.next_fire(at("1964-06-01T00:00:00Z"), 0) is None
    assert pattern.next_fire(at("2099-01-01T00:00:00Z"), 0) == last
    assert pattern.next_fire(last, 0) is None
    assert pattern.latest_fire(at("2098-12-31T00:00:00Z"), at("2101-01-01T00:00:00Z"), 0) == last
    assert pattern.latest_fire(at("1969-01-01T00:00:00Z"), first - 1, 0) is None


def test_a_search_ends_with_the_year_that_it_is_given() -> None:
    fields = cron("0 0 L * *").fields
    local = days_from_civil(2027, 1, 15) * SECONDS_PER_DAY
    assert fields.first_match(local, 2027) == days_from_civil(2027, 1, 31) * SECONDS_PER_DAY
    assert fields.first_match(local, 2026) is None
    assert fields.last_match(local, 2026) == days_from_civil(2026, 12, 31) * SECONDS_PER_DAY
    assert fields.last_match(local, 2028) is None


def test_local_years_are_those_of_the_zone() -> None:
    pattern = cron("0 30 0 1 1 ? 2027", QUARTZ, "Asia/Tokyo")
    assert pattern.first_fire(at("2026-11-20T00:00:00Z")) == at("2026-12-31T15:30:00Z")
    assert pattern.next_fire(at("2026-12-31T15:30:00Z"), 0) is None


# -- what is rejected ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "syntax", "reason"),
    [
        ("0 9 * * * *", CRONTAB, "expected 5 fields (minute hour day-of-month month day-of-week), got 6"),
        ("0 9 * *", CRONTAB, "got 4"),
        ("0 9 * * *", QUARTZ, "expected 6 or 7 fields"),
        ("0 0 9 * * * * *", QUARTZ, "got 8"),
        (" ", CRONTAB, "got 0"),
        ("@reboot", CRONTAB, "expected the fields of crontab, or one of @yearly"),
        ("@Daily", QUARTZ, "expected the fields of quartz"),
        ("@every 5m", CRONTAB, "expected the fields of crontab"),
        ("60 * * * *", CRONTAB, "minute '60' is above 59"),
        ("0 0 0 * *", CRONTAB, "day of month '0' is below 1"),
        ("0 0 * 13 *", CRONTAB, "month '13' is above 12"),
        ("0 0 * * 8", CRONTAB, "day of week '8' is above 7"),
        ("0 0 * * 3-9", CRONTAB, "day of week '3-9' is above 7"),
        ("99999999999999999999 * * * *", CRONTAB, "is above 59"),
        ("x * * * *", CRONTAB, "minute 'X' is not a number 0–59, a range or *"),
        ("0 0 * foo *", CRONTAB, "is not a number 1–12, a name jan–dec, a range or *"),
        ("0 0 * january *", CRONTAB, "a name jan–dec"),
        ("+5 * * * *", CRONTAB, "is not a number"),
        ("-5 * * * *", CRONTAB, "is not a number"),
        ("1- * * * *", CRONTAB, "is not a number"),
        ("\u0665 * * * *", CRONTAB, "is not a number"),
        ("1-2-3 * * * *", CRONTAB, "is not a number"),
        ("*-5 * * * *", CRONTAB, "is not a number"),
        ("1,,2 * * * *", CRONTAB, "minute '' is not a number"),
        (", * * * *", CRONTAB, "minute '' is not a number"),
        ("*/0 * * * *", CRONTAB, "needs a step of 1 or more"),
        ("*/x * * * *", CRONTAB, "needs a step of 1 or more"),
        ("*/ * * * *", CRONTAB, "needs a step of 1 or more"),
        ("*/2/3 * * * *", CRONTAB, "needs a step of 1 or more"),
        ("? * * * *", CRONTAB, "? stands alone, for the day of month or the day of week"),
        ("0 0 ?/2 * *", CRONTAB, "? stands alone"),
        ("0 0 1,? * *", CRONTAB, "? stands alone"),
        ("0 0 * * ?,1", CRONTAB, "? stands alone"),
        ("5-5 * * * *", CRONTAB, "is one value in a crontab, and each to croniter: write 5 or *"),
        ("0 0 * * 7-sun", CRONTAB, "is one value in a crontab, and each to croniter"),
        ("0 0 31-L * *", CRONTAB, "is one value in a crontab"),
        ("h * * * *", CRONTAB, "minute 'H' is not a number"),
        ("r * * * *", CRONTAB, "minute 'R' is not a number"),
        ("0 0 LW * *", CRONTAB, "the last weekday of a month is written 31W"),
        ("0 0 L-3 * *", CRONTAB, "L alone is the last day of a month"),
        ("0 0 L/2 * *", CRONTAB, "L alone is the last day of a month"),
        ("0 0 1,15W * *", CRONTAB, "15W, which stands alone"),
        ("0 0 1-5W * *", CRONTAB, "15W, which stands alone"),
        ("0 0 32W * *", CRONTAB, "is not a day from 1W to 31W"),
        ("0 0 W * *", CRONTAB, "W follows one day"),
        ("0 0 * L *", CRONTAB, "month 'L' is not a number"),
        ("0 0 * * L", CRONTAB, "L5 is the last Friday of a month; the last day is L as day of month"),
        ("0 0 * * 5L", CRONTAB, "L comes first, as in L5 for the last Friday"),
        ("0 0 * * FRIL", CRONTAB, "L comes first"),
        ("0 0 * * Lfri", CRONTAB, "L comes first"),
        ("0 0 * * L8", CRONTAB, "is above 7"),
        ("0 0 * * 2#0", CRONTAB, "expected #1 to #5"),
        ("0 0 * * 2#6", CRONTAB, "expected #1 to #5"),
        ("0 0 * * 1-5#2", CRONTAB, "expected such as 2#1, TUE#1 or MON-FRI#1"),
        ("0 0 * * *#2", CRONTAB, "expected such as 2#1"),
        ("0 0 * * 1,2#1", CRONTAB, "mixes weekdays of each week with such as 2#1 or L5"),
        ("0 0 * * *,2#1", CRONTAB, "mixes"),
        ("0 0 13 * 5#2", CRONTAB, "day of month '13' has no effect in croniter beside '5#2': write * instead"),
        ("0 0 L * L5", CRONTAB, "day of month 'L' has no effect in croniter beside 'L5'"),
        ("0 0 15W * 5", CRONTAB, "day of week '5' has no effect in croniter beside '15W': write * instead"),
        ("0 0 15W * 5#1", CRONTAB, "has no effect in croniter"),
        ("0 0 9 * * * 1969", QUARTZ, "year '1969' is below 1970"),
        ("0 0 9 * * * 2100", QUARTZ, "year '2100' is above 2099"),
        ("0 0 9 * * * 2030-2028", QUARTZ, "year range 2030-2028 runs backwards"),
        ("0 0 9 * * * *,x", QUARTZ, "year 'X' is not a number"),
        ("0 0 9 * * * ?", QUARTZ, "? stands alone"),
        ("0 0 9 * * * 2027,2040", QUARTZ, "no year between 2027 and 2040"),
        ("0 0 31 2 *", CRONTAB, "none of the given months has one of the given days"),
        ("0 0 31 4,6 ?", CRONTAB, "none of the given months"),
        ("0 0 0 31 2 ? 2027", QUARTZ, "none of the given months"),
        ("0 0 0 29 2 ? 2026,2027", QUARTZ, "none of the given years has one of the given days"),
        ("0 0 0 ? 2 5#5 2027-2031", QUARTZ, "none of the given years"),
        (f"{'1,' * MAX_FIELD_CHARS}1 * * * *", CRONTAB, "expected at most 1,000"),
    ],
)
def test_what_is_invalid_says_what_is_expected(text: str, syntax: Syntax, reason: str) -> None:
    assert reason in refused(text, syntax)


def test_what_the_reasons_propose_is_accepted() -> None:
    for text in ("0 0 31W * *", "0 0 15W * *", "0 0 L * *", "0 0 * * L5", "0 0 * * 2#1,TUE#1,MON-FRI#1"):
        assert cron(text)


def test_a_time_that_the_clock_skips_or_shows_twice_follows_the_wall_clock() -> None:
    """The clocks of Berlin change on the last Sundays of March and October."""
    pattern = cron("30 2 * 3,10 L0", zone="Europe/Berlin")
    shown, fire = list[str](), at("2026-01-01T00:00:00Z")
    for _ in range(3):
        following = pattern.next_fire(fire, 0)
        assert following is not None
        fire = following
        shown.append(pattern.format(fire))
    assert shown == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2027-10-31T02:30:00+02:00"]


def test_zones_are_read_before_the_syntax() -> None:
    zone = load_zone("Europe/Nowhere")
    assert parse_pattern("nonsense", "Europe/Nowhere", CRONTAB) == zone
