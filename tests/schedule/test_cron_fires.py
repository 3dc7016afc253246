"""A cron schedule fires at exactly the instants whose local wall-clock fields match."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache

import pytest
from croniter import CroniterBadDateError, croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.instants import DAY, SECOND, SECONDS_PER_DAY, days_from_civil
from nats_scheduler.schedule.patterns import Cron, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.schedule.zones import Zone, load_zone
from tests.schedule.oracle import Drawn, Meaning, Wall, fields, meanings, wall_at
from tests.schedule.test_zones import standard


def cron(text: str, zone: str | None = None) -> Cron:
    pattern = parse_pattern(text, zone)
    assert isinstance(pattern, Cron), pattern
    return pattern


def at(text: str) -> int:
    instant = parse_rfc3339(text)
    assert isinstance(instant, int), instant
    return instant


def fires(pattern: Cron, after: int, until: int) -> list[int]:
    """Yield the fire times in (after, until]."""
    found = []
    fire = pattern.next_fire(after, after)
    while fire is not None and fire <= until:
        found.append(fire)
        fire = pattern.next_fire(fire, after)
    return found


def following(text: str, zone: str | None, after: str, count: int) -> list[str]:
    """Return the next fire times, as they are printed."""
    pattern, fire, found = cron(text, zone), at(after), []
    for _ in range(count):
        following_fire = pattern.next_fire(fire, 0)
        assert following_fire is not None
        fire = following_fire
        found.append(pattern.format(fire))
    return found


# Changes of offset: midnight gaps, half hours, two hours, whole days, odd seconds, negative daylight time.
ZONES_AND_YEARS = {
    "Africa/Cairo": (2023, 2028),
    "Africa/Casablanca": (2026, 2028),
    "Africa/Monrovia": (1972, 1973),
    "America/Caracas": (2007, 2017),
    "America/Havana": (2024, 2027),
    "America/New_York": (2025, 2027),
    "America/Nuuk": (2023, 2026),
    "America/Santiago": (2024, 2027),
    "America/St_Johns": (2005, 2012),
    "Antarctica/Troll": (2025, 2027),
    "Asia/Beirut": (2024, 2026),
    "Asia/Gaza": (2024, 2027),
    "Asia/Pyongyang": (2015, 2019),
    "Atlantic/Azores": (2025, 2028),
    "Australia/Lord_Howe": (2024, 2028),
    "Europe/Amsterdam": (2026, 2150),
    "Europe/Dublin": (1968, 1973),
    "Pacific/Apia": (2010, 2013),
    "Pacific/Chatham": (2025, 2027),
    "Pacific/Kwajalein": (1969, 1994),
}
WINDOW = 75 * 60
"""The number of seconds that are checked on each side of a change."""


@dataclass(frozen=True)
class Change:
    """A change of offset, and the wall-clock time of every second around it."""

    zone: str
    second: int

    def __repr__(self) -> str:
        return f"{self.zone} {format_rfc3339(self.second * SECOND)}"

    @cache  # noqa: B019 - a few dozen of them, for as long as the tests run
    def walls(self) -> list[tuple[int, Wall]]:
        zone = standard(self.zone)
        return [(second, wall_at(second, zone)) for second in range(self.second - WINDOW, self.second + WINDOW)]


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
        found += [Change(name, edge) for edge in edges[:: max(1, len(edges) // 3)]]
    return found


@pytest.mark.slow
@settings(max_examples=200)
@given(data=st.data())
def test_around_a_change_of_offset_it_fires_when_the_wall_clock_matches(data: st.DataObject) -> None:
    change = data.draw(st.sampled_from(changes()))
    walls = change.walls()
    meaning: Meaning = data.draw(meanings(near=data.draw(st.sampled_from(walls[:: 10 * 60]))[1]))
    expected = [second * SECOND for second, wall in walls if meaning.matches(wall)]
    pattern = parse_pattern(meaning.text, change.zone)
    assume(isinstance(pattern, Cron))
    assert isinstance(pattern, Cron)
    after, until = (walls[0][0] - 1) * SECOND, walls[-1][0] * SECOND
    assert fires(pattern, after, until) == expected
    assert pattern.latest_fire(after, until, 0) == (expected[-1] if expected else None)


def test_the_seconds_beside_a_change_of_offset_are_found_from_both_sides() -> None:
    for change in changes():
        for second in (change.second - 1, change.second):
            wall = wall_at(second, standard(change.zone))
            pattern = cron(f"{wall[0]} {wall[1]} {wall[2]} {wall[3]} {wall[4]} *", change.zone)
            assert pattern.next_fire((second - 1) * SECOND, 0) == second * SECOND, change
            assert pattern.latest_fire((second - 1) * SECOND, second * SECOND, 0) == second * SECOND, change


@pytest.mark.slow
@settings(max_examples=100)
@given(data=st.data())
def test_the_latest_fire_before_any_second_around_a_change_is_the_last_that_matches(data: st.DataObject) -> None:
    change = data.draw(st.sampled_from(changes()))
    walls = change.walls()
    meaning: Meaning = data.draw(meanings(near=data.draw(st.sampled_from(walls[:: 10 * 60]))[1]))
    pattern = parse_pattern(meaning.text, change.zone)
    assume(isinstance(pattern, Cron))
    assert isinstance(pattern, Cron)
    matching = [second for second, wall in walls if meaning.matches(wall)]
    first, last = sorted(data.draw(st.tuples(*[st.integers(walls[0][0], walls[-1][0])] * 2)))
    expected = [second * SECOND for second in matching if first < second <= last]
    fraction = data.draw(st.integers(0, SECOND - 1))
    assert pattern.latest_fire(first * SECOND + fraction, last * SECOND + fraction, 0) == (
        expected[-1] if expected else None
    )


@settings(max_examples=150)
@given(
    meanings(),
    st.sampled_from([None, *ZONES_AND_YEARS]),
    st.integers(days_from_civil(1960, 1, 1) * DAY, days_from_civil(2150, 1, 1) * DAY),
    st.integers(0, 30),
    st.integers(-SECOND, SECOND),
)
def test_the_latest_fire_is_the_last_one_of_the_iteration(
    meaning: Meaning, zone: str | None, after: int, steps: int, beside: int
) -> None:
    pattern = parse_pattern(meaning.text, zone)
    assume(isinstance(pattern, Cron))
    assert isinstance(pattern, Cron)
    chain = [after]
    for _ in range(steps):
        fire = pattern.next_fire(chain[-1], after)
        if fire is None:
            break
        chain.append(fire)
    until = max(chain[-1] + beside, after)
    expected = fires(pattern, chain[-2] if len(chain) > 1 else after, until) or chain[1:-1]
    assert pattern.latest_fire(after, until, after) == (expected[-1] if expected else None)


def rare_days() -> st.SearchStrategy[Meaning]:
    """Draw a pattern for leap days, on all weekdays or on some; leap days after 2096 are beyond the horizon."""

    def of(weekday: Drawn) -> Meaning:
        star = Drawn("*", frozenset(range(60)), star=True)
        day = Drawn("*/28", frozenset({1, 29}))  # no star: weekdays are added
        leap = Drawn("29", frozenset({29})) if weekday.star else day
        return Meaning((star, star, star, leap, Drawn("2", frozenset({2})), weekday))

    every = Drawn("*", frozenset(range(7)), star=True)
    return st.one_of(st.just(every), fields(5)).map(of)


DAYS_LOOKED_AT = 3
"""Check each minute before and after a change of offset."""


@pytest.mark.slow
@pytest.mark.clause("pattern-cron")
@settings(max_examples=60)
@given(data=st.data())
def test_days_around_a_change_of_offset_it_fires_at_the_minutes_that_match(data: st.DataObject) -> None:
    """Check more than a day: days that are skipped, doubled or shortened, and the weekdays after them."""
    change = data.draw(st.sampled_from(changes()))
    zone = standard(change.zone)
    first = change.second - change.second % 60 - DAYS_LOOKED_AT * SECONDS_PER_DAY
    minutes = range(first, first + 2 * DAYS_LOOKED_AT * SECONDS_PER_DAY, 60)
    assume(wall_at(first, zone)[0] == 0 == wall_at(minutes[-1], zone)[0])  # offsets of whole minutes only
    near = wall_at(data.draw(st.sampled_from(minutes)), zone)
    meaning: Meaning = data.draw(meanings(near=(0, *near[1:])))
    meaning = Meaning((Drawn("0", frozenset({0})), *meaning.fields[1:]))
    pattern = parse_pattern(meaning.text, change.zone)
    assume(isinstance(pattern, Cron))
    assert isinstance(pattern, Cron)
    expected = [minute * SECOND for minute in minutes if meaning.matches(wall_at(minute, zone))]
    assert fires(pattern, (first - 1) * SECOND, minutes[-1] * SECOND) == expected


@pytest.mark.clause("pattern-cron")
@settings(max_examples=100)
@given(
    st.sampled_from(sorted(ZONES_AND_YEARS)),
    st.integers(days_from_civil(1990, 1, 1), days_from_civil(2120, 1, 1)),
    st.one_of(meanings(), rare_days()),
)
def test_up_to_the_horizon_it_fires_on_the_first_day_that_matches_or_never(name: str, day: int, drawn: Meaning) -> None:
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


SIZES = (60, 60, 24, 31, 12, 7)


def means_the_same_to_croniter(field: Drawn, size: int) -> bool:
    """Leave out what croniter interprets differently: there a full range is a star, and 5-5 wraps around once."""
    if field.star:
        return True
    first, _, last = field.text.partition("-")
    return len(field.values) < size and first != last


@settings(max_examples=200)
@given(meanings(), st.integers(days_from_civil(1980, 1, 1), days_from_civil(2090, 1, 1)), st.integers(0, 86_399))
def test_in_utc_it_fires_when_croniter_says(meaning: Meaning, day: int, second: int) -> None:
    assume(all(means_the_same_to_croniter(field, size) for field, size in zip(meaning.fields, SIZES, strict=True)))
    start = day * SECONDS_PER_DAY + second
    pattern = parse_pattern(meaning.text)
    other = croniter(meaning.text, datetime.fromtimestamp(start, UTC), second_at_beginning=True)
    if not isinstance(pattern, Cron):
        with pytest.raises(CroniterBadDateError):
            other.get_next(float)
        return
    fire: int | None = start * SECOND
    for _ in range(3):
        assert fire is not None
        last_year = datetime.fromtimestamp(fire // SECOND + 1, UTC).year + 5
        fire = pattern.next_fire(fire, 0)
        expected = other.get_next(datetime)
        if expected.year > last_year:
            assert fire is None
            return
        assert fire == int(expected.timestamp()) * SECOND


def test_a_time_in_a_gap_does_not_exist_that_day() -> None:
    assert following("0 30 2 * * *", "Europe/Amsterdam", "2026-03-27T12:00:00Z", 2) == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_in_a_fold_happens_twice() -> None:
    assert following("0 30 2 * * *", "Europe/Amsterdam", "2026-10-24T12:00:00Z", 3) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-26T02:30:00+01:00",
    ]


@pytest.mark.parametrize(
    ("text", "zone", "after", "fire"),
    [
        ("0 0 5 * * 4", "Africa/Cairo", "2025-04-24T10:00:00Z", "2025-05-01T05:00:00+03:00"),
        ("0 0 8 * * 1", "Atlantic/Azores", "2025-03-29T12:00:00Z", "2025-03-31T08:00:00Z"),
        ("0 0 8 15 * *", "Atlantic/Azores", "2025-03-24T12:00:00Z", "2025-04-15T08:00:00Z"),
        ("0 0 8 1 * *", "America/Santiago", "2025-09-06T12:00:00Z", "2025-10-01T08:00:00-03:00"),
        ("0 0 8 15 * *", "America/Havana", "2025-03-01T12:00:00Z", "2025-03-15T08:00:00-04:00"),
        ("0 0 3/5 * * *", "Australia/Lord_Howe", "2025-10-04T13:00:00Z", "2025-10-05T03:00:00+11:00"),
    ],
)
def test_a_gap_at_midnight_skips_nothing_but_itself(text: str, zone: str, after: str, fire: str) -> None:
    """The server fires on wrong weekdays and skips months and years (docs/reference/patterns.md)."""
    assert following(text, zone, after, 1) == [fire]


def test_a_day_that_a_zone_skipped_is_skipped() -> None:
    """The server's search does not end in this zone."""
    assert following("0 0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3) == [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T12:00:00+14:00",
        "2012-01-01T12:00:00+14:00",
    ]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 0 */10 * 5", [1, 2, 9, 11, 16, 21, 23, 30, 31]),
        ("0 0 0 * * 5", [2, 9, 16, 23, 30]),
        ("0 0 0 ? * 5/1", [2, 3, 9, 10, 16, 17, 23, 24, 30, 31]),
        ("0 0 0 13 * 5", [2, 9, 13, 16, 23, 30]),
        ("0 0 0 13 * *", [13]),
        ("0 0 0 1-31 * 5", list(range(1, 32))),
        ("0 0 0 , * 1", [5, 12, 19, 26]),
        ("0 0 0 *,13 * 5", [2, 9, 16, 23, 30]),
        ("0 0 0 */2 * */3", [1, 3, 4, 5, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 23, 24, 25, 27, 28, 29, 31]),
    ],
)
def test_the_two_day_fields_are_combined_as_on_the_server(text: str, days: list[int]) -> None:
    begin, end = at("2026-01-01T00:00:00Z") - 1, at("2026-02-01T00:00:00Z") - 1
    assert [(fire - begin) // DAY + 1 for fire in fires(cron(text), begin, end)] == days


def test_fires_are_strictly_after_the_second_asked_for() -> None:
    pattern = cron("* * * * * *")
    assert [pattern.next_fire(after, 0) for after in (0, 1, SECOND - 1, SECOND)] == [SECOND, SECOND, SECOND, 2 * SECOND]
    assert pattern.first_fire(SECOND - 1) == SECOND
    assert pattern.latest_fire(0, SECOND - 1, 0) is None
    assert pattern.latest_fire(0, SECOND, 0) == SECOND


@pytest.mark.parametrize(
    ("text", "until", "latest"),
    [
        ("0 0 12 31 12 *", "2026-01-15T00:00:00Z", "2025-12-31T12:00:00Z"),
        ("0 0 12 31 12 *", "2025-12-31T12:00:00Z", "2025-12-31T12:00:00Z"),
        ("0 0 12 31 12 *", "2025-12-31T11:59:59Z", "2024-12-31T12:00:00Z"),
        ("0 0 12 15,16 * *", "2026-01-16T11:59:59Z", "2026-01-15T12:00:00Z"),
        ("0 0 12 15 3,12 *", "2026-02-01T00:00:00Z", "2025-12-15T12:00:00Z"),
        ("5,50 30,45 9,12 * * *", "2026-01-15T11:00:00Z", "2026-01-15T09:45:50Z"),
        ("5,50 30,45 9,12 * * *", "2026-01-15T12:40:00Z", "2026-01-15T12:30:50Z"),
        ("5,50 30,45 9,12 * * *", "2026-01-15T12:45:30Z", "2026-01-15T12:45:05Z"),
        ("5,50 30,45 9,12 * * *", "2026-01-15T09:30:04Z", "2026-01-14T12:45:50Z"),
    ],
)
def test_the_latest_fire_is_found_in_the_minute_hour_month_or_year_before(text: str, until: str, latest: str) -> None:
    assert cron(text).latest_fire(at("2020-01-01T00:00:00Z"), at(until), 0) == at(latest)


def test_an_outage_of_centuries_is_searched() -> None:
    pattern = cron("0 0 12 * * *", "Europe/Amsterdam")
    assert pattern.latest_fire(0, at("2600-07-01T11:00:00Z"), 0) == at("2600-07-01T10:00:00Z")


def test_fires_go_on_beyond_the_years_of_the_standard_library() -> None:
    start = days_from_civil(12_345, 6, 1) * DAY
    assert cron("0 0 0 1 7 *").next_fire(start, 0) == days_from_civil(12_345, 7, 1) * DAY
    amsterdam = cron("0 0 2 1 7 *", "Europe/Amsterdam")
    assert amsterdam.next_fire(start, 0) == days_from_civil(12_345, 7, 1) * DAY
    assert cron("0 0 0 1 7 *").next_fire(-start, 0) is not None
