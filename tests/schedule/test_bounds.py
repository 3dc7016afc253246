"""Patterns with bounds, against a list of the fire times of the same pattern that is filtered by hand."""

from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.schedule.bounds import MAX_LIMIT, Bounded, Bounds
from nats_scheduler.schedule.calendars import Days, in_order
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND
from nats_scheduler.schedule.patterns import Every, Pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.schedule.test_patterns import read

EPOCH = date(1970, 1, 1)
STORED_AT = 1_774_700_000 * SECOND
"""2026-03-28T12:13:20Z: the clocks of Berlin change in the night that follows."""
SPAN_DAYS = 30

PATTERNS = [
    ("@every 7h", None),
    ("@every 45m", None),
    ("0 30 2 * * *", "Europe/Berlin"),
    ("0 0 */5 * * *", "America/New_York"),
    ("0 15 0,23 * * *", "Pacific/Apia"),
    ("@daily", None),
]


def instant(text: str) -> int:
    parsed = parse_rfc3339(text)
    assert isinstance(parsed, int)
    return parsed


def day(text: str) -> int:
    return (date.fromisoformat(text) - EPOCH).days


def local_day(at: int, zone: str | None) -> int:
    """The day on a clock, as Python's own zones see it."""
    local = datetime.fromtimestamp(at // SECOND, ZoneInfo(zone) if zone else UTC)
    return (local.date() - EPOCH).days


def fires_of(pattern: Pattern, stored_at: int, until: int) -> list[int]:
    found, fire = [], pattern.first_fire(stored_at)
    while fire is not None and fire <= until:
        found.append(fire)
        fire = pattern.next_fire(fire, stored_at)
    return found


def expected_fires(base: Pattern, zone: str | None, bounds: Bounds, until: int) -> list[int]:
    """Filter the fires of the pattern without bounds, one by one."""
    left = [
        fire
        for fire in fires_of(base, STORED_AT, until)
        if (bounds.start is None or fire >= bounds.start)
        and (bounds.end is None or fire < bounds.end)
        and not any(days.first <= local_day(fire, zone) <= days.last for days in bounds.excepted)
    ]
    return left if bounds.limit is None else left[: bounds.limit]


instants = st.integers(-2 * DAY, SPAN_DAYS * DAY).map(lambda after: STORED_AT + after)
days = st.tuples(st.integers(-2, SPAN_DAYS), st.integers(0, 5)).map(
    lambda pair: Days(STORED_AT // DAY + pair[0], STORED_AT // DAY + sum(pair))
)
some_bounds = st.builds(
    Bounds,
    start=st.none() | instants,
    end=st.none() | instants,
    limit=st.none() | st.integers(1, 40),
    excepted=st.lists(days, max_size=6).map(in_order),
)


@pytest.mark.slow
@given(st.sampled_from(PATTERNS), some_bounds, st.lists(instants, min_size=1, max_size=5))
def test_a_bounded_pattern_answers_each_question_as_the_filtered_list_does(
    pattern: tuple[str, str | None], bounds: Bounds, asked: list[int]
) -> None:
    base = read(*pattern)
    bounded, until = Bounded(base, bounds), STORED_AT + (SPAN_DAYS + 8) * DAY
    fires = expected_fires(base, pattern[1], bounds, until)
    assert fires_of(bounded, STORED_AT, until) == fires
    for at in (*asked, *fires[:5]):
        after = max(at, STORED_AT)
        following = bounded.next_fire(after, STORED_AT)
        if fires and fires[-1] > after:
            assert following == next(fire for fire in fires if fire > after)
        else:
            assert following is None or following > until
        assert bounded.is_fire(at, STORED_AT) is (at in fires)
        for later in (after + HOUR, after + 3 * DAY):
            within = [fire for fire in fires if after < fire <= later]
            if later < until:
                assert bounded.latest_fire(after, later, STORED_AT) == (within[-1] if within else None)


@pytest.mark.parametrize(
    ("bounds", "fires"),
    [
        (Bounds(), True),
        (Bounds(start=STORED_AT + HOUR), True),
        (Bounds(start=STORED_AT + HOUR + 1), False),
        (Bounds(end=STORED_AT + HOUR + 1), True),
        (Bounds(end=STORED_AT + HOUR), False),
        (Bounds(excepted=(Days((STORED_AT + HOUR) // DAY, (STORED_AT + HOUR) // DAY),)), False),
        (Bounds(excepted=(Days((STORED_AT + HOUR) // DAY + 1, (STORED_AT + HOUR) // DAY + 9),)), True),
    ],
)
def test_an_at_fires_within_its_bounds_or_never(bounds: Bounds, fires: bool) -> None:
    at = Bounded(read("@at 2026-03-28T13:13:20Z"), bounds)
    expected = STORED_AT + HOUR if fires else None
    assert at.first_fire(STORED_AT) == expected
    assert at.first_fire(STORED_AT + DAY) == expected, "also if it is stored later: it fires at once"
    assert at.is_fire(STORED_AT + HOUR, STORED_AT) is fires
    assert at.latest_fire(STORED_AT, STORED_AT + DAY, STORED_AT) == expected
    assert at.next_fire(STORED_AT, STORED_AT) is None
    assert not at.repeats


def test_the_anchor_is_the_first_point_of_the_grid() -> None:
    every, anchor = read("@every 90m"), instant("2026-03-28T12:00:00Z")
    earlier = Bounded(every, Bounds(anchor=anchor))
    assert earlier.first_fire(STORED_AT) == anchor + 90 * MINUTE
    assert earlier.is_fire(anchor + 90 * MINUTE, STORED_AT)
    assert not earlier.is_fire(anchor, STORED_AT), "it is past"
    later = Bounded(every, Bounds(anchor=anchor + DAY))
    assert later.first_fire(STORED_AT) == anchor + DAY
    assert later.next_fire(anchor + DAY, STORED_AT) == anchor + DAY + 90 * MINUTE
    assert later.latest_fire(STORED_AT, anchor + DAY, STORED_AT) == anchor + DAY
    assert later.is_fire(anchor + DAY, STORED_AT)


@pytest.mark.parametrize("interval", ["1.5s", "1001ms", "90m0.25s"])
def test_the_anchor_is_a_fire_time_of_an_interval_with_a_fraction_of_a_second(interval: str) -> None:
    every, anchor = read(f"@every {interval}"), instant("2026-03-28T12:00:00Z")
    assert isinstance(every, Every)
    anchored = Bounded(every, Bounds(anchor=anchor))
    points = [anchor + number * every.interval for number in range(4)]
    assert fires_of(anchored, anchor - DAY, points[-1] + 1) == points
    assert [anchored.latest_fire(anchor - DAY, point + 1, anchor - DAY) for point in points] == points
    assert all(anchored.is_fire(point, anchor - DAY) for point in points)
    assert not anchored.is_fire(anchor - every.interval, anchor - DAY), "the grid begins at the anchor"
    assert anchored.count(anchor - DAY, points[-1], anchor - DAY) == len(points)


def test_a_schedule_that_is_stored_again_with_an_anchor_keeps_its_grid() -> None:
    every = read("@every 7m")
    before = fires_of(every, STORED_AT, STORED_AT + DAY)
    anchored = Bounded(every, Bounds(anchor=STORED_AT))
    assert fires_of(anchored, STORED_AT + 3 * HOUR, STORED_AT + DAY) == [
        fire for fire in before if fire > STORED_AT + 3 * HOUR
    ]


def test_a_limit_counts_from_the_stored_time_and_from_the_start() -> None:
    daily = Bounded(read("@daily"), Bounds(start=instant("2026-04-01T00:00:00Z"), limit=2))
    assert fires_of(daily, STORED_AT, STORED_AT + 90 * DAY) == [
        instant("2026-04-01T00:00:00Z"),
        instant("2026-04-02T00:00:00Z"),
    ]


def test_the_highest_limit_holds_for_a_cron_and_for_an_interval_that_repeats_each_second() -> None:
    for text in ("* * * * * *", "@every 1s"):
        fires = fires_of(Bounded(read(text), Bounds(limit=MAX_LIMIT)), STORED_AT, STORED_AT + DAY)
        assert len(fires) == MAX_LIMIT
        assert {second - first for first, second in pairwise(fires)} == {SECOND}


def test_excepted_days_are_skipped_at_once_whatever_fires_in_them() -> None:
    """A year that is left out of `@every 1s` has 31 million fire times."""
    excepted = in_order([Days(day("2026-03-28"), day("2027-03-27"))])
    every = Bounded(read("@every 1s"), Bounds(excepted=excepted))
    assert every.first_fire(STORED_AT) == instant("2027-03-28T00:00:00Z")
    end = instant("2027-03-28T00:00:00Z")
    assert every.latest_fire(STORED_AT, end - 1, STORED_AT) is None


@given(st.sampled_from(PATTERNS), some_bounds, instants, instants)
def test_the_fires_that_are_excepted_are_those_of_the_base_on_excepted_days(
    pattern: tuple[str, str | None], bounds: Bounds, one: int, other: int
) -> None:
    base = read(*pattern)
    bounds = replace(bounds, limit=None, anchor=None)
    after, until = max(min(one, other), STORED_AT), max(one, other, STORED_AT)
    begin, end = bounds.start or STORED_AT, bounds.end or until
    rows = list(Bounded(base, bounds).excepted_fires(after, until, STORED_AT))
    fires = [fire for fire in fires_of(base, STORED_AT, until - 1) if after < fire and begin <= fire < end]
    wanted = [fire for fire in fires if any(d.first <= local_day(fire, pattern[1]) <= d.last for d in bounds.excepted)]
    assert [fire for fire in fires if any(first <= fire <= last for first, last in rows)] == wanted
    assert all(first in wanted and last in wanted for first, last in rows)


def test_a_day_is_that_of_the_zone_also_where_its_clock_changes() -> None:
    hourly = read("0 0 * * * *", "Europe/Berlin")
    bounded = Bounded(hourly, Bounds(excepted=(Days(day("2026-03-29"), day("2026-03-29")),)))
    fires = fires_of(bounded, STORED_AT, STORED_AT + 3 * DAY)
    (gap,) = [(first, second) for first, second in pairwise(fires) if second - first > HOUR]
    assert gap == (instant("2026-03-28T23:00:00+01:00"), instant("2026-03-30T00:00:00+02:00"))


def test_days_are_put_in_order_and_joined() -> None:
    assert in_order([Days(7, 9), Days(1, 2), Days(3, 4), Days(8, 12), Days(20, 19)]) == (Days(1, 4), Days(7, 12))


def test_the_text_and_the_printed_times_are_those_of_the_pattern() -> None:
    base = read("0 30 9 * * *", "Europe/Berlin")
    bounded = Bounded(base, Bounds(limit=3))
    assert (bounded.text, bounded.repeats, bounded.base) == (base.text, True, base)
    assert bounded.format(STORED_AT) == base.format(STORED_AT) == "2026-03-28T13:13:20+01:00"


@pytest.mark.slow
@given(st.sampled_from(PATTERNS), some_bounds, instants, st.integers(1, 300))
def test_the_fires_of_each_minute_are_counted_as_one_by_one(
    pattern: tuple[str, str | None], bounds: Bounds, after: int, minutes: int
) -> None:
    bounded = Bounded(read(*pattern), bounds)
    after = max(after, STORED_AT)
    until = after + minutes * MINUTE
    counts: dict[int, int] = {}
    for fire in fires_of(bounded, STORED_AT, until - 1):
        if fire > after:
            counts[fire - fire % MINUTE] = counts.get(fire - fire % MINUTE, 0) + 1
    assert dict(bounded.by_minute(after, until, STORED_AT)) == counts
