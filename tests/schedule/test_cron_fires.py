"""A cron schedule fires at exactly the instants whose local wall-clock fields match, or as its policy says.

The reference answers of the server's grammar for the same are in `tests/schedule/test_vectors.py`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.clock_policy import BY_THE_CLOCK, ClockPolicy, Fold, Gap
from nats_scheduler.schedule.instants import DAY, MINUTE, SECOND, SECONDS_PER_DAY, days_from_civil
from nats_scheduler.schedule.patterns import Cron, Pattern, parse_pattern, with_clock
from nats_scheduler.schedule.zones import Zone, load_zone
from tests.harness.seeds import draws
from tests.schedule.oracle import Drawn, Meaning, fields, meanings, wall_at
from tests.schedule.reading import at, cron, fires_until, shown_fires
from tests.schedule.test_zones import standard

# Changes of offset: midnight gaps, half hours, two hours, whole days, odd seconds, negative daylight time.
ZONES_AND_YEARS = {
    "Africa/Cairo": (2023, 2028),
    "Africa/Monrovia": (1972, 1973),
    "America/Havana": (2024, 2027),
    "America/New_York": (2025, 2027),
    "America/Santiago": (2024, 2027),
    "America/St_Johns": (2005, 2012),
    "Antarctica/Troll": (2025, 2027),
    "Asia/Beirut": (2024, 2026),
    "Asia/Gaza": (2024, 2027),
    "Atlantic/Azores": (2025, 2028),
    "Australia/Lord_Howe": (2024, 2028),
    "Europe/Amsterdam": (2026, 2150),
    "Pacific/Apia": (2010, 2013),
}


@dataclass(frozen=True)
class Change:
    """A change of offset."""

    zone: str
    second: int


@cache
def changes() -> list[Change]:
    """List some changes of each zone."""
    found = []
    for name, (first, last) in ZONES_AND_YEARS.items():
        zone = load_zone(name)
        assert isinstance(zone, Zone)
        segment = zone.segment_at(days_from_civil(first, 1, 1) * DAY)
        edges = []
        while segment.end is not None and segment.end < days_from_civil(last, 1, 1) * DAY:
            edges.append(segment.end // SECOND)
            segment = zone.segment_at(segment.end)
        found += [Change(name, edge) for edge in edges[:: max(1, len(edges) // 2)]]
    return found


POLICIES = [ClockPolicy(gap, fold) for gap in Gap for fold in Fold]


def drawn_cron(meaning: Meaning, zone: str | None, policy: ClockPolicy = BY_THE_CLOCK) -> Cron:
    """Return the pattern of a meaning, unless it is a date that does not exist."""
    pattern = parse_pattern(meaning.text, zone)
    assume(isinstance(pattern, Cron))
    assert isinstance(pattern, Cron)
    return pattern if policy == BY_THE_CLOCK else with_clock(pattern, policy)


def walk(seconds: range, zone: tzinfo, meaning: Meaning, policy: ClockPolicy) -> list[int]:
    """Return the fire times (ns) at some seconds: what the local clock shows is looked at step by step."""
    fires, before = [], local_second(datetime.fromtimestamp(seconds.start - seconds.step, zone))
    for second in seconds:
        wall = datetime.fromtimestamp(second, zone)
        local = local_second(wall)
        skipped = range(before + seconds.step, local, seconds.step)
        is_first = not wall.fold and wall.utcoffset() > wall.replace(fold=1).utcoffset()  # type: ignore[operator]
        is_dropped = policy.fold is Fold.FIRST if wall.fold else is_first and policy.fold is Fold.LAST
        if (meaning.matches(wall_at(local, UTC)) and not is_dropped) or (
            policy.gap is Gap.AFTER and any(meaning.matches(wall_at(one, UTC)) for one in skipped)
        ):
            fires.append(second * SECOND)
        before = local
    return fires


def local_second(wall: datetime) -> int:
    """Return what a wall clock shows, in seconds since 1970-01-01T00:00:00 local time."""
    return int(wall.replace(tzinfo=UTC).timestamp())


def check_answers(pattern: Pattern, fires: list[int], begin: int, end: int, asked: list[int]) -> None:
    """Compare what a pattern answers about (begin, end] (ns), and about the instants between, with its fire times."""
    assert fires_until(pattern, begin, end) == fires
    for after, until in pairwise(sorted([begin, end, *asked])):
        within = [fire for fire in fires if after < fire <= until]
        assert pattern.count(after, until, begin) == len(within)
        assert pattern.latest_fire(after, until, begin) == (within[-1] if within else None)
        assert within == [] or pattern.next_fire(after, begin) == within[0]
        assert pattern.is_fire(until, begin) == (until in within)
        minutes = Counter(fire // MINUTE * MINUTE for fire in within if fire < until)
        assert list(pattern.by_minute(after, until, begin)) == sorted(minutes.items())
        if within:
            number = len(within) // 2 + 1
            assert pattern.nth_fire(number, after, until, begin) == within[number - 1]
            rest = None if number == len(within) else within[-number]
            assert pattern.latest_but(number, after, until, begin) == rest


def test_the_seconds_beside_a_change_of_offset_are_found() -> None:
    for change in changes():
        for second in (change.second - 1, change.second):
            wall = wall_at(second, standard(change.zone))
            pattern = cron(f"{wall[0]} {wall[1]} {wall[2]} {wall[3]} {wall[4]} *", change.zone)
            assert pattern.next_fire((second - 1) * SECOND, 0) == second * SECOND, change
            assert pattern.latest_fire((second - 1) * SECOND, second * SECOND, 0) == second * SECOND, change


DAYS_LOOKED_AT = 2
"""Check each minute before and after a change of offset."""


@pytest.mark.slow
@pytest.mark.clause("pattern-cron")
@settings(max_examples=draws(20))
@given(policy=st.sampled_from(POLICIES), data=st.data())
def test_around_a_change_of_offset_it_fires_as_clock_and_policy_say(policy: ClockPolicy, data: st.DataObject) -> None:
    """Check more than a day: days that are skipped, doubled or shortened, and the weekdays after them."""
    change = data.draw(st.sampled_from(changes()))
    zone = standard(change.zone)
    first = change.second - change.second % 60 - DAYS_LOOKED_AT * SECONDS_PER_DAY
    minutes = range(first, first + 2 * DAYS_LOOKED_AT * SECONDS_PER_DAY, 60)
    assume(wall_at(first, zone)[0] == 0 == wall_at(minutes[-1], zone)[0])  # offsets of whole minutes only
    near = wall_at(data.draw(st.sampled_from(minutes)), zone)
    meaning: Meaning = data.draw(meanings(near=(0, *near[1:])))
    meaning = Meaning((Drawn("0", frozenset({0})), *meaning.fields[1:]))
    begin, end = (first - 1) * SECOND, minutes[-1] * SECOND
    asked = data.draw(st.lists(st.integers(begin, end), max_size=3))
    fires = walk(minutes, zone, meaning, policy)
    check_answers(drawn_cron(meaning, change.zone, policy), fires, begin, end, asked)


def rare_days() -> st.SearchStrategy[Meaning]:
    """Draw a pattern for leap days, on all weekdays or on some; leap days after 2096 are beyond the horizon."""

    def of(weekday: Drawn) -> Meaning:
        star = Drawn("*", frozenset(range(60)), star=True)
        day = Drawn("*/28", frozenset({1, 29}))  # no star: weekdays are added
        leap = Drawn("29", frozenset({29})) if weekday.star else day
        return Meaning((star, star, star, leap, Drawn("2", frozenset({2})), weekday))

    every = Drawn("*", frozenset(range(7)), star=True)
    return st.one_of(st.just(every), fields(5)).map(of)


@pytest.mark.clause("pattern-cron")
@settings(max_examples=draws(60))
@given(
    st.sampled_from(sorted(ZONES_AND_YEARS)),
    st.integers(days_from_civil(1990, 1, 1), days_from_civil(2120, 1, 1)),
    st.one_of(meanings(), rare_days()),
)
def test_up_to_the_horizon_it_fires_on_the_first_day_that_matches(name: str, day: int, drawn: Meaning) -> None:
    """Check every day up to the last one of the fifth year, at noon; noon exists on every day but one."""
    zone = standard(name)
    at_noon = tuple(Drawn(text, frozenset({int(text)})) for text in ("0", "0", "12"))
    meaning = Meaning((*at_noon, *drawn.fields[3:]))
    after = day * SECONDS_PER_DAY
    last_year = wall_year(after + 1, zone) + 5
    expected = next(
        (noon for noon in noons(after, zone) if noon > after and meaning.matches(wall_at(noon, zone))), None
    )
    if expected is not None and wall_year(expected, zone) > last_year:
        expected = None
    pattern = parse_pattern(meaning.text, name)
    found = pattern.next_fire(after * SECOND, 0) if isinstance(pattern, Cron) else None
    assert found == (None if expected is None else expected * SECOND)


def wall_year(second: int, zone: tzinfo) -> int:
    """Return the year in the local time of a zone."""
    return datetime.fromtimestamp(second, zone).year


def noons(after: int, zone: tzinfo) -> Iterator[int]:
    """Yield the instants near each midday of UTC, for more than five years, at which the zone's clock shows noon."""
    for day in range(after // SECONDS_PER_DAY - 1, after // SECONDS_PER_DAY + 6 * 366 + 2):
        civil = datetime.fromtimestamp(day * SECONDS_PER_DAY, UTC)
        noon = int(datetime(civil.year, civil.month, civil.day, 12, tzinfo=zone).timestamp())
        if wall_at(noon, zone)[:3] == (0, 0, 12):
            yield noon


# The server fires on wrong weekdays, and skips months and years, where a gap is at midnight; in Apia its search does
# not end (docs/reference/patterns.md).
SHOWN = {
    ("0 0 5 * * 4", "Africa/Cairo", "2025-04-24T10:00:00Z"): ["2025-05-01T05:00:00+03:00"],
    ("0 0 8 * * 1", "Atlantic/Azores", "2025-03-29T12:00:00Z"): ["2025-03-31T08:00:00Z"],
    ("0 0 8 15 * *", "Atlantic/Azores", "2025-03-24T12:00:00Z"): ["2025-04-15T08:00:00Z"],
    ("0 0 8 1 * *", "America/Santiago", "2025-09-06T12:00:00Z"): ["2025-10-01T08:00:00-03:00"],
    ("0 0 8 15 * *", "America/Havana", "2025-03-01T12:00:00Z"): ["2025-03-15T08:00:00-04:00"],
    ("0 0 3/5 * * *", "Australia/Lord_Howe", "2025-10-04T13:00:00Z"): ["2025-10-05T03:00:00+11:00"],
    ("0 0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z"): [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T12:00:00+14:00",
        "2012-01-01T12:00:00+14:00",
    ],
}


def test_a_gap_skips_nothing_but_itself() -> None:
    for (text, zone, after), shown in SHOWN.items():
        assert shown_fires(cron(text, zone), after, len(shown)) == shown


def test_the_two_day_fields_are_combined_as_on_the_server() -> None:
    days = {
        "0 0 0 */10 * 5": [1, 2, 9, 11, 16, 21, 23, 30, 31],
        "0 0 0 * * 5": [2, 9, 16, 23, 30],
        "0 0 0 ? * 5/1": [2, 3, 9, 10, 16, 17, 23, 24, 30, 31],
        "0 0 0 13 * 5": [2, 9, 13, 16, 23, 30],
        "0 0 0 13 * *": [13],
        "0 0 0 1-31 * 5": list(range(1, 32)),
        "0 0 0 , * 1": [5, 12, 19, 26],
        "0 0 0 *,13 * 5": [2, 9, 16, 23, 30],
        "0 0 0 */2 * */3": sorted({*range(1, 32, 2), 4, 10, 14, 18, 24, 28}),
    }
    begin, end = at("2026-01-01T00:00:00Z") - 1, at("2026-02-01T00:00:00Z") - 1
    assert {text: [(fire - begin) // DAY + 1 for fire in fires_until(cron(text), begin, end)] for text in days} == days


def test_fires_are_strictly_after_the_second_asked_for() -> None:
    pattern = cron("* * * * * *")
    assert [pattern.next_fire(after, 0) for after in (0, 1, SECOND - 1, SECOND)] == [SECOND, SECOND, SECOND, 2 * SECOND]
    assert pattern.first_fire(SECOND - 1) == SECOND
    assert pattern.latest_fire(0, SECOND - 1, 0) is None
    assert pattern.latest_fire(0, SECOND, 0) == SECOND


def test_the_latest_fire_is_found_in_the_hour_or_the_year_before() -> None:
    latest = {
        ("0 0 12 31 12 *", "2026-01-15T00:00:00Z"): "2025-12-31T12:00:00Z",
        ("0 0 12 31 12 *", "2025-12-31T12:00:00Z"): "2025-12-31T12:00:00Z",
        ("0 0 12 31 12 *", "2025-12-31T11:59:59Z"): "2024-12-31T12:00:00Z",
        ("0 0 12 15,16 * *", "2026-01-16T11:59:59Z"): "2026-01-15T12:00:00Z",
        ("0 0 12 15 3,12 *", "2026-02-01T00:00:00Z"): "2025-12-15T12:00:00Z",
        ("5,50 30,45 9,12 * * *", "2026-01-15T11:00:00Z"): "2026-01-15T09:45:50Z",
        ("5,50 30,45 9,12 * * *", "2026-01-15T12:40:00Z"): "2026-01-15T12:30:50Z",
        ("5,50 30,45 9,12 * * *", "2026-01-15T12:45:30Z"): "2026-01-15T12:45:05Z",
        ("5,50 30,45 9,12 * * *", "2026-01-15T09:30:04Z"): "2026-01-14T12:45:50Z",
    }
    for (text, until), fire in latest.items():
        assert cron(text).latest_fire(at("2020-01-01T00:00:00Z"), at(until), 0) == at(fire), (text, until)


def test_the_latest_fire_is_found_before_a_change_of_offset() -> None:
    march, until = cron("0 0 12 15 3 *", "Europe/Berlin"), at("2026-04-10T00:00:00Z")
    assert march.latest_fire(at("2025-01-01T00:00:00Z"), until, 0) == at("2026-03-15T11:00:00Z")
    assert march.latest_fire(at("2026-03-15T11:00:00Z"), until, 0) is None
    pattern = cron("0 0 12 * * *", "Europe/Amsterdam")
    assert pattern.latest_fire(0, at("2600-07-01T11:00:00Z"), 0) == at("2600-07-01T10:00:00Z")


def test_fires_go_on_beyond_the_years_of_the_standard_library() -> None:
    start = days_from_civil(12_345, 6, 1) * DAY
    assert cron("0 0 0 1 7 *").next_fire(start, 0) == days_from_civil(12_345, 7, 1) * DAY
    amsterdam = cron("0 0 2 1 7 *", "Europe/Amsterdam")
    assert amsterdam.next_fire(start, 0) == days_from_civil(12_345, 7, 1) * DAY
    assert cron("0 0 0 1 7 *").next_fire(-start, 0) is not None


# -- the horizon ---------------------------------------------------------------------------------------------------


def test_the_last_day_of_the_fifth_year_is_within_the_horizon() -> None:
    leap = cron("0 0 0 29 2 *")
    assert leap.next_fire(at("2096-02-28T23:59:59Z"), 0) == at("2096-02-29T00:00:00Z")
    assert leap.next_fire(at("2096-02-29T00:00:00Z"), 0) is None
    assert leap.next_fire(at("2098-12-31T23:59:58Z"), 0) is None
    assert leap.next_fire(at("2098-12-31T23:59:59Z"), 0) == at("2104-02-29T00:00:00Z")
    in_berlin = cron("0 0 0 29 2 *", "Europe/Berlin")
    assert in_berlin.next_fire(at("2098-12-31T22:59:58Z"), 0) is None
    assert in_berlin.next_fire(at("2098-12-31T22:59:59Z"), 0) == at("2104-02-29T00:00:00+01:00")


def test_a_schedule_that_met_its_horizon_in_an_outage_has_ended_there() -> None:
    leap = cron("0 0 0 29 2 *")
    until = at("2200-01-01T00:00:00Z")
    assert leap.latest_fire(at("2080-01-01T00:00:00Z"), until, 0) == at("2096-02-29T00:00:00Z")
    assert leap.latest_fire(at("2096-02-29T00:00:00Z"), until, 0) is None
    assert leap.latest_fire(at("2099-01-01T00:00:00Z"), until, 0) == at("2196-02-29T00:00:00Z")
