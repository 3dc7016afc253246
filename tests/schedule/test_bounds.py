"""Patterns with bounds, and counts of fires, against the fire times of the same pattern found one by one."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import combinations, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.bounds import MAX_EXCEPTED_POINTS, MAX_LIMIT, Bounded, Bounds, OnExcepted
from nats_scheduler.schedule.cron_fields import MAX_MOVED_DAYS
from nats_scheduler.schedule.days import DayRows, Days, EveryNth, read_days
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.patterns import Every, Pattern, Syntax
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.seeds import draws, generator
from tests.schedule.reading import at, fires_until, read

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
    ("0 30 1,2 1-20 * mon,thu", "Europe/Berlin"),
    ("0 0 9 1,29-31 3 *", "Europe/Berlin"),
    ("@daily", None),
]


def day(text: str) -> int:
    return (date.fromisoformat(text) - EPOCH).days


def is_excepted(day: int, bounds: Bounds) -> bool:
    return any(days.first <= day <= days.last for days in bounds.excepted)


def is_nth(day: int, every: EveryNth | None) -> bool:
    """Return whether a day is one of each n-th day or week."""
    if every is None:
        return True
    one, other = EPOCH + timedelta(day), EPOCH + timedelta(every.day)
    if every.is_weeks:
        one, other = (each - timedelta(each.weekday()) for each in (one, other))
        return (one - other).days % (7 * every.number) == 0
    return (one - other).days % every.number == 0


def left_day(day: int, bounds: Bounds) -> int | None:
    """Return the day to which the fires of a day move, found day by day; None if they are left out."""
    step = {OnExcepted.SKIP: 0, OnExcepted.NEXT: 1, OnExcepted.PREVIOUS: -1}[bounds.on_excepted]
    reached = (day + step * moved for moved in range(MAX_MOVED_DAYS + 1))
    return next((one for one in reached if not is_excepted(one, bounds)), None)


def instants_of(day: int, time: int, zone: str | None) -> set[int]:
    """Return when a clock shows a time (s) of a day: never, once or twice, as Python's own zones say."""
    local = datetime.combine(EPOCH + timedelta(day), datetime.min.time()) + timedelta(seconds=time)
    both = [local.replace(tzinfo=ZoneInfo(zone) if zone else UTC, fold=fold) for fold in (0, 1)]
    shown = [one for one in both if one.astimezone(UTC).astimezone(one.tzinfo).replace(tzinfo=None) == local]
    return {int(one.timestamp()) * SECOND for one in shown}


def expected_fires(
    text: str, zone: str | None, bounds: Bounds, until: int, offset: int, *, only_excepted: bool = False
) -> list[int]:
    """Return all fire times up to an instant that bounds leave, or only those of the pattern on excepted days.

    All are later by an offset.
    """
    if text.startswith("@every"):
        fires = {
            one for one in fires_until(read(text), STORED_AT, until) if is_excepted(one // DAY, bounds) == only_excepted
        }
    else:
        spare = (MAX_MOVED_DAYS + 2) * DAY
        fires = set()
        for shown in fires_until(read(text), STORED_AT - spare, until + spare):
            day, time = divmod(shown // SECOND, 86_400)
            to = day if only_excepted and is_excepted(day, bounds) else None if only_excepted else left_day(day, bounds)
            fires |= instants_of(to, time, zone) if to is not None and is_nth(day, bounds.every) else set()
    begin, end = max(STORED_AT + 1, bounds.start or 0), min(until + 1, bounds.end or until + 1)
    return sorted(one + offset for one in fires if begin <= one + offset < end)[: bounds.limit]


def bounds_for(text: str, bounds: Bounds) -> Bounds:
    """Return what a pattern may have of some bounds: an interval has no days, and moves none."""
    return replace(bounds, every=None, on_excepted=OnExcepted.SKIP) if text.startswith("@every") else bounds


instants = st.integers(-2 * DAY, SPAN_DAYS * DAY).map(lambda after: STORED_AT + after)
days = st.tuples(st.integers(-2, SPAN_DAYS), st.integers(0, 5) | st.integers(27, 33)).map(
    lambda pair: Days(STORED_AT // DAY + pair[0], STORED_AT // DAY + sum(pair))
)
some_bounds = st.builds(
    Bounds,
    start=st.none() | instants,
    end=st.none() | instants,
    limit=st.none() | st.integers(1, 40),
    every=st.none() | st.builds(EveryNth, st.integers(2, 9), st.booleans(), st.integers(0, 40_000)),
    excepted=st.lists(days, max_size=6).map(DayRows),
    on_excepted=st.sampled_from(OnExcepted),
)


offsets = st.sampled_from([0, 0, 1, 3 * SECOND, 25 * MINUTE, 7 * HOUR, DAY - 1])


@settings(max_examples=draws(30))
@given(st.sampled_from(PATTERNS), some_bounds, offsets, st.lists(instants, min_size=1, max_size=5))
def test_a_bounded_pattern_answers_as_the_filtered_list_does(
    pattern: tuple[str, str | None], bounds: Bounds, offset: int, asked: list[int]
) -> None:
    base, bounds = read(*pattern), bounds_for(pattern[0], bounds)
    bounded, until = Bounded(base, bounds, offset), STORED_AT + (SPAN_DAYS + 8) * DAY
    fires = expected_fires(*pattern, bounds, until, offset)
    assert fires_until(bounded, STORED_AT, until) == fires
    for instant in (*asked, *fires[:5]):
        after = max(instant, STORED_AT)
        following = bounded.next_fire(after, STORED_AT)
        if fires and fires[-1] > after:
            assert following == next(fire for fire in fires if fire > after)
        else:
            assert following is None or following > until
        assert bounded.is_fire(instant, STORED_AT) is (instant in fires)
        for later in (after + HOUR, after + 3 * DAY, *(fire for fire in fires[1:40:13] if fire > after)):
            within = [fire for fire in fires if after < fire <= later]
            if later < until:
                assert bounded.latest_fire(after, later, STORED_AT) == (within[-1] if within else None)
                assert bounded.count(after, later, STORED_AT) == len(within)
                last_two = within[-2] if len(within) > 2 else None
                assert bounded.latest_but(2, after, later, STORED_AT) == last_two
                minutes = Counter(fire - fire % MINUTE for fire in within if fire < later)
                assert list(bounded.by_minute(after, later, STORED_AT)) == sorted(minutes.items())


@settings(max_examples=draws(30))
@given(st.sampled_from(PATTERNS), some_bounds, offsets, instants, instants)
def test_the_fires_that_are_excepted_are_those_on_excepted_days(
    pattern: tuple[str, str | None], bounds: Bounds, offset: int, one: int, other: int
) -> None:
    base = read(*pattern)
    bounds = bounds_for(pattern[0], replace(bounds, limit=None))
    after, until = max(min(one, other), STORED_AT), max(one, other, STORED_AT)
    rows = list(Bounded(base, bounds, offset).excepted_fires(after, until, STORED_AT))
    on_days = Bounded(base, replace(bounds, excepted=DayRows()), offset)
    fires = [fire for fire in fires_until(on_days, STORED_AT, until - 1) if fire > after]
    expected = expected_fires(*pattern, bounds, until - 1, offset, only_excepted=True)
    wanted = [one for one in expected if one > after]
    assert [fire for fire in fires if any(first <= fire <= last for first, last in rows)] == wanted
    assert all(first in wanted and last in wanted for first, last in rows)


def test_an_at_fires_within_its_bounds_or_never() -> None:
    fire = STORED_AT + HOUR
    for bounds, fires in (
        (Bounds(start=fire), True),
        (Bounds(start=fire + 1), False),
        (Bounds(end=fire + 1), True),
        (Bounds(end=fire), False),
        (Bounds(excepted=DayRows([Days(fire // DAY, fire // DAY)])), False),
    ):
        once = Bounded(read("@at 2026-03-28T13:13:20Z"), bounds)
        expected = fire if fires else None
        assert once.first_fire(STORED_AT) == expected, bounds
        assert once.first_fire(STORED_AT + DAY) == expected, "also if it is stored later: it fires at once"
        assert once.is_fire(fire, STORED_AT) is fires, bounds
        assert once.latest_fire(STORED_AT, STORED_AT + DAY, STORED_AT) == expected, bounds
        assert once.next_fire(STORED_AT, STORED_AT) is None
        assert not once.repeats


def test_the_anchor_is_the_first_point_of_the_grid() -> None:
    every, anchor = read("@every 90m"), at("2026-03-28T12:00:00Z")
    earlier = Bounded(every, Bounds(anchor=anchor))
    assert earlier.first_fire(STORED_AT) == anchor + 90 * MINUTE
    assert earlier.is_fire(anchor + 90 * MINUTE, STORED_AT)
    assert not earlier.is_fire(anchor, STORED_AT), "it is past"
    later = Bounded(every, Bounds(anchor=anchor + DAY))
    assert later.first_fire(STORED_AT) == anchor + DAY
    assert later.next_fire(anchor + DAY, STORED_AT) == anchor + DAY + 90 * MINUTE
    assert later.latest_fire(STORED_AT, anchor + DAY, STORED_AT) == anchor + DAY
    assert later.is_fire(anchor + DAY, STORED_AT)


def test_the_anchor_is_a_fire_time_of_an_interval_with_a_fraction() -> None:
    for interval in ("1.5s", "90m0.25s"):
        every, anchor = read(f"@every {interval}"), at("2026-03-28T12:00:00Z")
        assert isinstance(every, Every)
        anchored = Bounded(every, Bounds(anchor=anchor))
        points = [anchor + number * every.interval for number in range(4)]
        assert fires_until(anchored, anchor - DAY, points[-1] + 1) == points
        assert [anchored.latest_fire(anchor - DAY, point + 1, anchor - DAY) for point in points] == points
        assert all(anchored.is_fire(point, anchor - DAY) for point in points)
        assert not anchored.is_fire(anchor - every.interval, anchor - DAY), "the grid begins at the anchor"
        assert anchored.count(anchor - DAY, points[-1], anchor - DAY) == len(points)


def test_a_limit_counts_from_the_stored_time_and_from_the_start() -> None:
    first = at("2026-04-01T00:00:00Z")
    daily = Bounded(read("@daily"), Bounds(start=first, limit=2))
    assert fires_until(daily, STORED_AT, STORED_AT + 90 * DAY) == [first, first + DAY]
    for text in ("* * * * * *", "@every 1s"):
        fires = fires_until(Bounded(read(text), Bounds(limit=MAX_LIMIT)), STORED_AT, STORED_AT + DAY)
        assert len(fires) == MAX_LIMIT
        assert {second - first for first, second in pairwise(fires)} == {SECOND}


def test_excepted_days_are_skipped_at_once_whatever_fires_in_them() -> None:
    """A year that is left out of `@every 1s` has 31 million fire times."""
    every = Bounded(read("@every 1s"), Bounds(excepted=DayRows([Days(day("2026-03-28"), day("2027-03-27"))])))
    end = at("2027-03-28T00:00:00Z")
    assert every.first_fire(STORED_AT) == end
    assert every.latest_fire(STORED_AT, end - 1, STORED_AT) is None


def test_days_that_leave_nothing_for_five_years_leave_nothing() -> None:
    for text, zone in (*PATTERNS, ("* * * * * *", "Europe/Dublin"), ("0 0 0 1 7 *", None), ("@every 1s", None)):
        base = read(text, zone)
        for end, fires in (("2026-04-02", True), ("2029-06-30", True), ("2033-01-01", False), ("9999-12-31", False)):
            bounded = Bounded(base, Bounds(excepted=DayRows([Days(day("2026-03-27"), day(end))])))
            assert (bounded.first_fire(STORED_AT) is not None) is fires, (text, end)
    later = Bounds(start=at("2060-01-01T00:00:00Z"), excepted=DayRows([Days(day("2026-03-27"), day("2059-12-31"))]))
    assert Bounded(read("@daily"), later).first_fire(STORED_AT) == at("2060-01-01T00:00:00Z"), "counted from the start"


def test_each_second_monday_keeps_its_local_time_all_year() -> None:
    start, end = at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z")
    for text, every, distance, count in (
        ("0 0 9 * * mon", EveryNth(2, True, day("2026-01-08")), 14, 26),  # a Thursday of the same week
        ("0 0 9 * * *", EveryNth(3, False, day("2030-01-05")), 3, 122),
    ):
        fires = fires_until(Bounded(read(text, "Europe/Berlin"), Bounds(every=every)), start, end)
        local = [
            datetime.fromtimestamp(fire // SECOND, ZoneInfo("Europe/Berlin")).replace(tzinfo=None) for fire in fires
        ]
        assert {(later - earlier).days for earlier, later in pairwise(local)} == {distance}
        assert ({one.hour for one in local}, len(local)) == ({9}, count)
    never = Bounded(read("0 0 9 29 2 *"), Bounds(every=EveryNth(7, False, 0)))
    assert never.first_fire(start) is None, "each 28 years, which is beyond the horizon"


def test_what_is_found_of_a_pattern_is_not_taken_for_what_its_bounds_leave() -> None:
    daily = read("0 0 9 * * *")
    first = daily.next_fire(STORED_AT, STORED_AT)
    assert first == at("2026-03-29T09:00:00Z")
    for bounds, fire in (
        (Bounds(every=EveryNth(2, False, day("2026-03-30"))), "2026-03-30T09:00:00Z"),
        (Bounds(excepted=DayRows([Days(day("2026-03-29"), day("2026-03-30"))])), "2026-03-31T09:00:00Z"),
    ):
        assert Bounded(daily, bounds).next_fire(STORED_AT, STORED_AT) == at(fire)
    assert daily.next_fire(STORED_AT, STORED_AT) == first


@pytest.mark.parametrize(
    ("pattern", "on_excepted", "excepted", "fires"),
    [
        ("0 9 31 3 ?", "next", "2026-03-31..2026-04-30", ["2026-05-01", "2027-03-31"]),
        ("0 9 31 3 ?", "next", "2026-03-31..2026-05-01", ["2027-03-31", "2028-03-31"]),
        ("0 9 3 3 ?", "previous", "2027-01-31..2027-03-03", ["2028-03-03", "2029-03-03"]),
        ("0 9 31 12 ? 2026", "next", "2026-12-31..2027-01-01", ["2027-01-02"]),
        ("0 9 1,2 1 ? 2027", "previous", "2026-12-31..2027-01-02", ["2026-12-30"]),
        ("0 9 1-5 4 ? 2026", "next", "2026-04-02..2026-04-03", ["2026-04-01", "2026-04-04", "2026-04-05"]),
    ],
)
def test_a_fire_of_an_excepted_day_moves_31_days_at_most(
    pattern: str, on_excepted: str, excepted: str, fires: list[str]
) -> None:
    bounds = Bounds(excepted=DayRows([read_days(excepted)]), on_excepted=OnExcepted(on_excepted))
    found = fires_until(
        Bounded(read(f"0 {pattern}", None, Syntax.QUARTZ), bounds), STORED_AT, at("2029-04-01T00:00:00Z")
    )
    assert [format_rfc3339(one)[:10] for one in found][: len(fires)] == fires
    assert len(found) == len(fires) or not pattern.endswith("2026")


def test_a_moved_time_is_left_or_not_by_the_day_from_which_it_moves() -> None:
    christmas = Bounds(excepted=DayRows([read_days("2026-12-25")]))
    bounded = Bounded(read("0 0 23 * * *"), christmas, 2 * HOUR)
    for instant, is_left in (("2026-12-25T01:00:00Z", True), ("2026-12-26T01:00:00Z", False)):
        assert bounded.leaves(at(instant)) is bounded.is_fire(at(instant), at("2026-12-01T00:00:00Z")) is is_left


def test_an_interval_on_four_hundred_rows_of_days_has_ended() -> None:
    every, first = read("@every 48h"), STORED_AT // DAY + 2
    for rows, fires in ((MAX_EXCEPTED_POINTS - 1, True), (MAX_EXCEPTED_POINTS, False)):
        excepted = DayRows(Days(first + 2 * row, first + 2 * row) for row in range(rows))
        assert (Bounded(every, Bounds(excepted=excepted)).first_fire(STORED_AT) is not None) is fires, rows


def test_a_limit_of_a_rare_pattern_is_counted_for_fifty_years() -> None:
    leap_days = Bounded(read("0 0 0 29 2 *", "Europe/Dublin"), Bounds(limit=MAX_LIMIT))
    fires = fires_until(leap_days, STORED_AT, STORED_AT + 100 * 366 * DAY)
    assert (len(fires), fires[-1]) == (13, at("2076-02-29T00:00:00Z"))
    for instant in (fires[-1], fires[-1] + 1, at("2999-01-01T00:00:00Z")):
        assert leap_days.latest_fire(STORED_AT, instant, STORED_AT) == fires[-1]
    assert leap_days.is_fire(fires[-1], STORED_AT)
    assert not leap_days.is_fire(at("2080-02-29T00:00:00Z"), STORED_AT)


def test_a_day_is_that_of_the_zone_also_where_its_clock_changes() -> None:
    hourly = read("0 0 * * * *", "Europe/Berlin")
    bounded = Bounded(hourly, Bounds(excepted=DayRows([Days(day("2026-03-29"), day("2026-03-29"))])))
    fires = fires_until(bounded, STORED_AT, STORED_AT + 3 * DAY)
    (gap,) = [(first, second) for first, second in pairwise(fires) if second - first > HOUR]
    assert gap == (at("2026-03-28T23:00:00+01:00"), at("2026-03-30T00:00:00+02:00"))


# -- the number of fires, in a period and in each minute of it, is that of the fires found one by one ---------------

NOW = at("2026-10-25T00:59:42.5Z")
"""18 s before the clocks of Berlin are set back."""

COUNTED = [
    *(read(f"@every {interval}") for interval in ("1s", "1.4s", "59.999s", "90s", "5h")),
    read("@at 2026-10-25T01:10:00.25Z"),
    read("* * * * * *"),
    read("30,31,59 */5 * * * *"),
    read("@daily"),
    read("* * 2 * * *", "Europe/Berlin"),
    read("*/10 */3 * * * sun", "Europe/Berlin"),
    read("0 0 0 29 2 *"),
    read("15 * * * * *", "Asia/Kathmandu"),
    read("0 12 L * *", None, Syntax.CRONTAB),
    read("0 0 6 ? * 6#2 2026-2027", None, Syntax.QUARTZ),
    read("0 */30 1-3 L * ? *", "America/St_Johns", Syntax.QUARTZ),
]


def fires_after(pattern: Pattern, stored_at: int, after: int, most: int) -> list[int]:
    """Find fire times after an instant one by one."""
    if not pattern.repeats:
        fire = pattern.first_fire(stored_at)
        return [fire] if fire is not None and fire > after else []
    found, fire = list[int](), pattern.next_fire(max(after, stored_at), stored_at)
    while fire is not None and len(found) < most:
        found.append(fire)
        fire = pattern.next_fire(fire, stored_at)
    return found


def check_counts(pattern: Pattern, stored_at: int, after: int, most: int) -> None:
    """Compare the counts of periods that end at, before and after a fire time."""
    fires = fires_after(pattern, stored_at, after, most)
    last = min(fires[-1] if fires else after + HOUR, after + 4 * DAY)
    counts = {until: pattern.count(after, until, stored_at) for until in (last - 1, last, last + 1)}
    assert counts == {until: sum(fire <= until for fire in fires) for until in counts}, (pattern, stored_at, after)
    for until in (last, last + 1):
        scene = pattern, stored_at, after, until
        minutes = list(pattern.by_minute(after, until, stored_at))
        assert dict(minutes) == Counter(fire - fire % MINUTE for fire in fires if fire < until), scene
        assert minutes == sorted(dict(minutes).items()), "in order, each minute once"


def test_the_counts_are_those_of_the_fire_times() -> None:
    random = generator("counts")
    for pattern in COUNTED:
        for _ in range(draws(4)):
            stored_at = NOW - random.randrange(3 * HOUR)
            after = stored_at + random.choice([0, random.randrange(HOUR), random.randrange(3 * DAY)])
            check_counts(pattern, stored_at, after, random.choice([1, 2, 40]))


def test_an_only_fire_counts_once() -> None:
    pattern, due = read("@at 2026-10-25T01:10:00Z"), at("2026-10-25T01:10:00Z")
    counts = [pattern.count(after, until, NOW) for after, until in ((NOW, due), (due, due + 1), (NOW, due - 1))]
    assert counts == [1, 0, 0]
    left_out = Bounded(pattern, Bounds(excepted=DayRows([Days(due // DAY, due // DAY)])))
    assert left_out.count(NOW, due, NOW) == 0


def test_the_first_instant_of_an_excepted_day_is_not_counted() -> None:
    today = STORED_AT // DAY
    bounds = Bounds(anchor=today * DAY, excepted=DayRows([Days(today + 1, today + 1)]))
    hourly = Bounded(read("@every 1h"), bounds)
    assert hourly.count(today * DAY, (today + 3) * DAY - 1, today * DAY) == 23 + 24


def test_a_hundred_years_of_seconds_are_counted_without_finding_them() -> None:
    begin = NOW // SECOND * SECOND
    for pattern in (read("* * * * * *"), read("@every 1s")):
        assert pattern.count(begin, begin + 36_525 * DAY, begin) == 36_525 * 86_400
        minutes = list(pattern.by_minute(NOW, NOW + HOUR, NOW - DAY))
        assert (len(minutes), sum(count for _minute, count in minutes)) == (61, 3_600)


def test_equal_grids_have_equal_fires() -> None:
    every, cron = read("@every 5m"), read("0 */5 * * * *", "Europe/Berlin")
    assert every.grid(NOW) == every.grid(NOW + 5 * MINUTE) == every.grid(NOW + 100 * MILLISECOND)
    assert every.grid(NOW) != every.grid(NOW + SECOND)
    assert every.grid(NOW) != read("@every 10m").grid(NOW)
    assert cron.grid(NOW) == read("0 */5 * * * *", "Europe/Berlin").grid(NOW + SECOND)
    assert cron.grid(NOW) != read("0 */5 * * * *").grid(NOW)


def test_counts_are_right_to_the_second_of_a_clock_change() -> None:
    """In Berlin, where 02:00 becomes 03:00 at one change and 03:00 becomes 02:00 at the other."""
    each = read("* * * * * *", "Europe/Berlin")
    for change in map(at, ("2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z")):
        seconds = [change + number * SECOND for number in range(-3, 4)]
        for after, until in combinations(seconds, 2):
            assert each.count(after, until, change) == (until - after) // SECOND
            assert each.latest_fire(after, until, change) == until
    hourly = read("0 0 * * * *", "Europe/Berlin")
    assert hourly.latest_fire(change - 2 * HOUR, change - SECOND, change) == change - HOUR
