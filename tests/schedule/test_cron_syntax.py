"""The syntaxes `crontab` and `quartz`: what they accept and what that means, and why they reject the rest.

The rule: croniter decides. What it reads otherwise is listed here with what it does, so that a change there is noticed.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from croniter import CroniterBadDateError, croniter

from nats_scheduler.schedule.cron_syntax import MAX_FIELD_CHARS, Syntax, has_numbered_weekdays
from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, days_from_civil
from nats_scheduler.schedule.patterns import ALIASES, Cron, InvalidPattern, parse_pattern
from nats_scheduler.schedule.zones import load_zone
from tests.harness.seeds import draws, generator
from tests.schedule.reading import at, cron, first_fires, refused
from tests.schedule.syntax_texts import drawn_text

CRONTAB, QUARTZ = Syntax.CRONTAB, Syntax.QUARTZ


# -- what the fields mean ------------------------------------------------------------------------------------------


def test_ranges_wrap_around_and_keep_their_step() -> None:
    for text in ("0 9 * nov-feb *", "0 9 * 11-2 *", "0 9 * NOV-Feb *", "0 9 * 1,2,11,12 *"):
        assert cron(text, None, CRONTAB).fields.months == 1 << 11 | 1 << 12 | 1 << 1 | 1 << 2, text
    assert cron("0 22-4/3 * * *", None, CRONTAB).fields.hours == 1 << 22 | 1 << 1 | 1 << 4
    assert cron("0 0 * nov-mar/3 *", None, CRONTAB).fields.months == 1 << 11 | 1 << 2


def test_aliases_mean_the_same_in_each_syntax() -> None:
    start, zone = at("2026-03-01T12:00:00Z"), "Europe/Berlin"
    for alias in ALIASES:
        assert {cron(alias, zone, syntax).first_fire(start) for syntax in (None, *Syntax)} == {
            cron(alias, zone).first_fire(start)
        }, alias


def test_equal_texts_in_different_syntaxes_are_different_patterns() -> None:
    text = "0 0 12 */10 * fri"
    plain, quartz = cron(text), cron(text, None, QUARTZ)
    assert plain != quartz
    assert cron("@daily", None, QUARTZ) != cron("@daily", None, CRONTAB)
    start = at("2026-01-01T00:00:00Z")
    assert plain.first_fire(start) == at("2026-01-01T12:00:00Z"), "the server: a star with a step is a restriction"
    assert quartz.first_fire(start) == at("2026-05-01T12:00:00Z"), "crond: both must match"


# -- years and the horizon -----------------------------------------------------------------------------------------


def test_the_year_field_has_a_first_and_a_last_fire() -> None:
    pattern = cron("0 0 9 1 1,7 ? 2027-2028", None, QUARTZ)
    fires = [at(f"{year}-{month}-01T09:00:00Z") for year in (2027, 2028) for month in ("01", "07")]
    assert pattern.first_fire(at("2026-11-20T00:00:00Z")) == fires[0]
    assert pattern.next_fire(fires[0], 0) == fires[1]
    assert pattern.next_fire(fires[3], 0) is None
    assert pattern.latest_fire(at("2026-01-01T00:00:00Z"), at("2040-01-01T00:00:00Z"), 0) == fires[3]
    assert pattern.latest_fire(at("2026-01-01T00:00:00Z"), fires[0] - 1, 0) is None
    assert pattern.is_fire(fires[2], 0)
    assert not pattern.is_fire(at("2029-01-01T09:00:00Z"), 0)
    assert pattern.ends_by_itself
    assert not cron("0 0 9 1 1 ? *", None, QUARTZ).ends_by_itself
    assert not cron("0 0 9 L * ?", None, QUARTZ).ends_by_itself


def test_what_is_beyond_the_horizon_never_fires_as_yet() -> None:
    pattern = cron("0 0 9 1 1 ? 2040", None, QUARTZ)
    assert pattern.first_fire(at("2034-12-31T00:00:00Z")) is None
    assert pattern.first_fire(at("2035-01-01T00:00:00Z")) == at("2040-01-01T09:00:00Z")
    pattern = cron("0 9 * 2 5#5", None, CRONTAB)
    assert pattern.first_fire(at("2030-12-31T23:59:58Z")) is None
    assert pattern.first_fire(at("2031-01-01T00:00:00Z")) == at("2036-02-29T09:00:00Z")


def test_the_first_and_the_last_year_are_part_of_the_field() -> None:
    pattern = cron("0 0 0 31 12 ? 1970/1", None, QUARTZ)
    first, last = at("1970-12-31T00:00:00Z"), at("2099-12-31T00:00:00Z")
    assert pattern.next_fire(at("1965-06-01T00:00:00Z"), 0) == first
    assert pattern.next_fire(at("1964-06-01T00:00:00Z"), 0) is None
    assert pattern.next_fire(at("2099-01-01T00:00:00Z"), 0) == last
    assert pattern.next_fire(last, 0) is None
    assert pattern.latest_fire(at("2098-12-31T00:00:00Z"), at("2101-01-01T00:00:00Z"), 0) == last
    assert pattern.latest_fire(at("1969-01-01T00:00:00Z"), first - 1, 0) is None


def test_a_search_ends_with_the_year_that_it_is_given() -> None:
    fields = cron("0 0 L * *", None, CRONTAB).fields
    local = days_from_civil(2027, 1, 15) * SECONDS_PER_DAY
    assert fields.first_match(local, 2027) == days_from_civil(2027, 1, 31) * SECONDS_PER_DAY
    assert fields.first_match(local, 2026) is None
    assert fields.last_match(local, 2026) == days_from_civil(2026, 12, 31) * SECONDS_PER_DAY
    assert fields.last_match(local, 2028) is None


# -- what is rejected ----------------------------------------------------------------------------------------------

REASONS = {
    ("0 9 * * * *", CRONTAB): "expected 5 fields (minute hour day-of-month month day-of-week), got 6",
    ("0 9 * *", CRONTAB): "got 4",
    ("0 9 * * *", QUARTZ): "expected 6 or 7 fields",
    ("0 0 9 * * * * *", QUARTZ): "got 8",
    (" ", CRONTAB): "got 0",
    ("@reboot", CRONTAB): "expected the fields of crontab, or one of @yearly",
    ("@Daily", QUARTZ): "expected the fields of quartz",
    ("@every 5m", CRONTAB): "expected the fields of crontab",
    ("60 * * * *", CRONTAB): "minute '60' is above 59",
    ("0 0 0 * *", CRONTAB): "day of month '0' is below 1",
    ("0 0 * 13 *", CRONTAB): "month '13' is above 12",
    ("0 0 * * 8", CRONTAB): "day of week '8' is above 7",
    ("0 0 * * 3-9", CRONTAB): "day of week '3-9' is above 7",
    ("99999999999999999999 * * * *", CRONTAB): "is above 59",
    ("x * * * *", CRONTAB): "minute 'X' is not a number 0–59, a range or *",
    ("0 0 * foo *", CRONTAB): "is not a number 1–12, a name jan–dec, a range or *",
    ("0 0 * january *", CRONTAB): "a name jan–dec",
    ("+5 * * * *", CRONTAB): "is not a number",
    ("-5 * * * *", CRONTAB): "is not a number",
    ("1- * * * *", CRONTAB): "is not a number",
    ("\u0665 * * * *", CRONTAB): "is not a number",
    ("1-2-3 * * * *", CRONTAB): "is not a number",
    ("*-5 * * * *", CRONTAB): "is not a number",
    ("1,,2 * * * *", CRONTAB): "minute '' is not a number",
    (", * * * *", CRONTAB): "minute '' is not a number",
    ("*/0 * * * *", CRONTAB): "needs a step of 1 or more",
    ("*/x * * * *", CRONTAB): "needs a step of 1 or more",
    ("*/ * * * *", CRONTAB): "needs a step of 1 or more",
    ("*/2/3 * * * *", CRONTAB): "needs a step of 1 or more",
    ("? * * * *", CRONTAB): "? stands alone, for the day of month or the day of week",
    ("0 0 ?/2 * *", CRONTAB): "? stands alone",
    ("0 0 1,? * *", CRONTAB): "? stands alone",
    ("0 0 * * ?,1", CRONTAB): "? stands alone",
    ("5-5 * * * *", CRONTAB): "is one value in a crontab, and each to croniter: write 5 or *",
    ("0 0 * * 7-sun", CRONTAB): "is one value in a crontab, and each to croniter",
    ("0 0 31-L * *", CRONTAB): "is one value in a crontab",
    ("h * * * *", CRONTAB): "minute 'H' is not a number",
    ("r * * * *", CRONTAB): "minute 'R' is not a number",
    ("0 0 LW * *", CRONTAB): "the last weekday of a month is written 31W",
    ("0 0 L-3 * *", CRONTAB): "L alone is the last day of a month",
    ("0 0 L/2 * *", CRONTAB): "L alone is the last day of a month",
    ("0 0 1,15W * *", CRONTAB): "15W, which stands alone",
    ("0 0 1-5W * *", CRONTAB): "15W, which stands alone",
    ("0 0 32W * *", CRONTAB): "is not a day from 1W to 31W",
    ("0 0 W * *", CRONTAB): "W follows one day",
    ("0 0 * L *", CRONTAB): "month 'L' is not a number",
    ("0 0 * * L", CRONTAB): "L5 is the last Friday of a month; the last day is L as day of month",
    ("0 0 * * 5L", CRONTAB): "L comes first, as in L5 for the last Friday",
    ("0 0 * * FRIL", CRONTAB): "L comes first",
    ("0 0 * * Lfri", CRONTAB): "L comes first",
    ("0 0 * * L8", CRONTAB): "is above 7",
    ("0 0 * * 2#0", CRONTAB): "expected #1 to #5",
    ("0 0 * * 2#6", CRONTAB): "expected #1 to #5",
    ("0 0 * * 1-5#2", CRONTAB): "expected such as 2#1, TUE#1 or MON-FRI#1",
    ("0 0 * * *#2", CRONTAB): "expected such as 2#1",
    ("0 0 * * 1,2#1", CRONTAB): "mixes weekdays of each week with such as 2#1 or L5",
    ("0 0 * * *,2#1", CRONTAB): "mixes",
    ("0 0 13 * 5#2", CRONTAB): "day of month '13' is beside '5#2': write * instead",
    ("0 0 */2 * 5#2", CRONTAB): "day of month '*/2' is beside '5#2'",
    ("0 0 L * L5", CRONTAB): "day of month 'L' is beside 'L5'",
    ("0 0 15W * 5", CRONTAB): "day of week '5' is beside '15W': write * instead",
    ("0 0 15W * 5#1", CRONTAB): "day of month '15W' is beside '5#1'",
    ("0 0 9 * * * 1969", QUARTZ): "year '1969' is below 1970",
    ("0 0 9 * * * 2100", QUARTZ): "year '2100' is above 2099",
    ("0 0 9 * * * 2030-2028", QUARTZ): "year range 2030-2028 runs backwards",
    ("0 0 9 * * * *,x", QUARTZ): "year 'X' is not a number",
    ("0 0 9 * * * ?", QUARTZ): "? stands alone",
    ("0 0 9 * * * 2027,2040", QUARTZ): "no year between 2027 and 2040",
    ("0 0 31 2 *", CRONTAB): "none of the given months has one of the given days",
    ("0 0 31 4,6 ?", CRONTAB): "none of the given months",
    ("0 0 0 31 2 ? 2027", QUARTZ): "none of the given months",
    ("0 0 0 29 2 ? 2026,2027", QUARTZ): "none of the given years has one of the given days",
    ("0 0 0 ? 2 5#5 2027-2031", QUARTZ): "none of the given years",
    (f"{'1,' * MAX_FIELD_CHARS}1 * * * *", CRONTAB): "expected at most 1,000",
}


def test_what_is_invalid_says_what_is_expected() -> None:
    reasons = {scene: refused(scene[0], None, scene[1]) for scene in REASONS}
    assert {scene: reason for scene, reason in reasons.items() if REASONS[scene] not in reason} == {}
    for text in ("0 0 31W * *", "0 0 15W * *", "0 0 L * *", "0 0 * * L5", "0 0 * * 2#1,TUE#1,MON-FRI#1"):
        assert cron(text, None, CRONTAB)
    zone = load_zone("Europe/Nowhere")
    assert parse_pattern("nonsense", "Europe/Nowhere", CRONTAB) == zone


# -- croniter ------------------------------------------------------------------------------------------------------


def is_read_alike(text: str, syntax: Syntax) -> bool:
    """Leave out one bug of croniter: a full day field counts as a star if the text of one of them has a star.

    `test_croniter_reads_a_full_field_by_a_star_in_the_text` is the evidence.
    """
    first = 2 if syntax is CRONTAB else 3
    fields = text.split()
    day_fields = fields[first], fields[first + 2]
    return any(field[0] in "*?" for field in day_fields) or not any("*" in field for field in day_fields)


def croniter_of(text: str, start: datetime, syntax: Syntax) -> croniter:
    return croniter(text, start, second_at_beginning=syntax is QUARTZ, implement_cron_bug=True)


def compare_fires(pattern: Cron, other: croniter, start: int, count: int = 4) -> int:
    """Compare fires in UTC up to the horizon: where a clock changes, croniter has rules of its own."""
    fire, compared = start * SECOND, 0
    for _ in range(count):
        last_year = datetime.fromtimestamp(fire // SECOND + 1, UTC).year + 5
        found = pattern.next_fire(fire, 0)
        try:
            expected: datetime | None = other.get_next(datetime)
        except CroniterBadDateError:
            expected = None
        if expected is not None and expected.year > last_year:
            expected = None
        scene = f"{pattern.text} after {pattern.format(fire)}"
        assert found == (None if expected is None else int(expected.timestamp()) * SECOND), scene
        if found is None:
            return compared + 1
        assert pattern.latest_fire(fire, found, 0) == found, scene
        assert pattern.latest_fire(fire, found - 1, 0) is None, scene
        fire, compared = found, compared + 1
    return compared


DAYS = """
L * *|l * ?|15,L * *|28-L * *|25-L/3 * *|L * fri|*,L * fri|15W * *|W15 * *|1W * *|31W * *|30W * *
* * L5|* * L0|* * L7|* * 2#1|* * TUE#1|* * 5#5|* * 7#1|* * mon-wed#1|* * sat-mon#1|* * 1#1,5#3,L5
* * 5-7|* * 5-0|* * 0-7|* * 0-7/3|25-5 * *|13 * fri|? * fri
*/10 * fri|*/1 * fri|1-31 * fri|*/2,L * fri|1-7 * */7|13 * */2,2|13 * 2,*/2|1-31 * */2
"""


def test_days_are_those_of_croniter() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for days in DAYS.strip("\n").replace("\n", "|").split("|"):
        pattern = cron(f"0 0 {days}", None, CRONTAB)
        assert compare_fires(pattern, croniter_of(pattern.text, start, CRONTAB), int(start.timestamp()), 20) == 20


def test_random_patterns_fire_when_croniter_says() -> None:
    random, compared = generator("croniter"), 0
    for _ in range(draws(100)):
        text, syntax = drawn_text(random)
        days = random.randint(days_from_civil(2015, 1, 1), days_from_civil(2035, 1, 1))
        start = days * SECONDS_PER_DAY + random.randrange(SECONDS_PER_DAY)
        pattern = parse_pattern(text, None, syntax)
        other = croniter_of(text, datetime.fromtimestamp(start, UTC), syntax)
        if not is_read_alike(text, syntax):
            continue
        if isinstance(pattern, InvalidPattern):
            with pytest.raises(CroniterBadDateError):
                other.get_next(datetime)
            continue
        assert isinstance(pattern, Cron), text
        compared += compare_fires(pattern, other, start)
    assert compared > draws(50)


def croniter_fires(text: str, count: int = 2) -> list[str]:
    other = croniter(text, datetime(2026, 1, 1, tzinfo=UTC))
    return [other.get_next(datetime).strftime("%m-%dT%H:%M") for _ in range(count)]


def our_fires(text: str, count: int = 2) -> list[str]:
    found = first_fires(cron(text, None, CRONTAB), at("2026-01-01T00:00:00Z"), count)
    return [datetime.fromtimestamp(fire // SECOND, UTC).strftime("%m-%dT%H:%M") for fire in found]


def test_croniter_reads_a_full_field_by_a_star_in_the_text() -> None:
    """The same days, written in two ways, are two things to it; to crond only a star that comes first is one."""
    assert croniter_fires("0 0 1-31 * fri") == ["01-02T00:00", "01-03T00:00"]
    assert croniter_fires("0 0 13,* * fri") == ["01-02T00:00", "01-09T00:00"]
    assert our_fires("0 0 1-31 * fri") == our_fires("0 0 13,* * fri") == ["01-02T00:00", "01-03T00:00"]


def test_numbers_of_weekdays_are_told_from_names() -> None:
    numbered = {"0 0 9 ? * 2": True, "0 0 9 * * 2-6": True, "0 0 9 ? * MON": False, "0 0 9 * * ?": False, "0 9": False}
    assert {text: has_numbered_weekdays(text) for text in numbered} == numbered
