"""Beside the next fires stands what a change of the clock does to them: moved, skipped, or one of two."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.clock_changes import ClockChange, NextFire, SkippedTimes, with_clock_changes
from nats_scheduler.schedule.clock_policy import BY_THE_CLOCK, ClockPolicy, Fold, Gap
from nats_scheduler.schedule.days import DayRows, Days
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.schedule.patterns import Cron, parse_pattern, with_clock
from tests.harness.seeds import draws
from tests.schedule.oracle import Meaning, Wall, meanings, wall_at
from tests.schedule.reading import at, cron, first_fires, read

BERLIN, HOWE, CAIRO = "Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo"
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # local times have no zone


def local_text(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()


def shown(text: str, zone: str | None, after: str, count: int, policy: ClockPolicy = BY_THE_CLOCK) -> list[str]:
    """Return the next fires as short lines."""
    pattern = read(text, zone)
    if policy != BY_THE_CLOCK:
        pattern = with_clock(cron(text, zone), policy)
    lines = []
    for entry in with_clock_changes(pattern, at(after), first_fires(pattern, at(after), count)):
        if isinstance(entry, NextFire):
            lines.append(f"{pattern.format(entry.fire_time)}{f' {entry.change} {entry.shift}' if entry.change else ''}")
        else:
            gap = f"{local_text(entry.gap_start)[11:]}-{local_text(entry.gap_end)[11:]}"
            lines.append(f"{local_text(entry.first)} {local_text(entry.last)[11:]} skipped {gap}")
    return lines


SHOWN = {
    ("0 30 2 * * *", BERLIN, "2026-03-27T12:00:00Z"): [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T02:30:00 02:30:00 skipped 02:00:00-03:00:00",
        "2026-03-30T02:30:00+02:00 moved 3600",
    ],
    ("0 30 2 * * *", BERLIN, "2026-10-24T12:00:00Z"): [
        "2026-10-25T02:30:00+02:00 first_of_two -3600",
        "2026-10-25T02:30:00+01:00 second_of_two -3600",
        "2026-10-26T02:30:00+01:00",
    ],
    ("0 30 9 * * *", BERLIN, "2026-10-24T00:00:00Z"): [
        "2026-10-24T09:30:00+02:00",
        "2026-10-25T09:30:00+01:00 moved -3600",
        "2026-10-26T09:30:00+01:00",
    ],
    ("0 */30 * * * *", BERLIN, "2026-03-29T00:15:00Z"): [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T02:00:00 02:30:00 skipped 02:00:00-03:00:00",
        "2026-03-29T03:00:00+02:00",
    ],
    ("0 10 2 * * *", HOWE, "2026-10-02T17:00:00Z"): [
        "2026-10-04T02:10:00 02:10:00 skipped 02:00:00-02:30:00",
        "2026-10-05T02:10:00+11:00 moved 1800",
    ],
    ("0 0 0 * * *", CAIRO, "2026-04-23T00:00:00Z"): [
        "2026-04-24T00:00:00 00:00:00 skipped 00:00:00-01:00:00",
        "2026-04-25T00:00:00+03:00 moved 3600",
    ],
    ("0 0 12 1 7 *", BERLIN, "2026-01-01T00:00:00Z"): ["2026-07-01T12:00:00+02:00 moved 3600"],
    ("@yearly", BERLIN, "2026-03-01T00:00:00Z"): ["2027-01-01T00:00:00+01:00"],
    ("0 30 2 * * *", None, "2026-03-28T12:00:00Z"): ["2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"],
    ("@every 12h", None, "2026-03-28T12:00:00Z"): ["2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z"],
    ("@at 2020-03-28T12:00:00Z", None, "2026-03-28T12:00:00Z"): ["2020-03-28T12:00:00Z"],
}


def test_what_a_change_of_the_clock_does_is_marked() -> None:
    counts = {scene: sum("skipped" not in line for line in lines) for scene, lines in SHOWN.items()}
    assert {scene: shown(*scene, count) for scene, count in counts.items()} == SHOWN


AFTER = ClockPolicy(Gap.AFTER)
UNDER_POLICIES = {
    ("0 30 1,2 * * *", BERLIN, "2026-03-28T12:00:00Z", 3, AFTER): [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:00:00+02:00 after_gap 3600",
        "2026-03-30T01:30:00+02:00",
    ],
    ("0 0 1 30 3 *", "Europe/Lisbon", "2030-04-01T00:00:00Z", 2, AFTER): [
        "2031-03-30T02:00:00+01:00 after_gap 3600",
        "2032-03-30T01:00:00+01:00",
    ],
    ("0 0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3, AFTER): [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T00:00:00+14:00 after_gap 86400",
        "2011-12-31T12:00:00+14:00",
    ],
    ("0 0 * * * *", BERLIN, "2026-10-24T23:30:00Z", 3, ClockPolicy(fold=Fold.FIRST)): [
        "2026-10-25T02:00:00+02:00 first_of_two -3600",
        "2026-10-25T03:00:00+01:00",
        "2026-10-25T04:00:00+01:00",
    ],
    ("0 30 2 * * *", BERLIN, "2026-10-24T12:00:00Z", 2, ClockPolicy(fold=Fold.LAST)): [
        "2026-10-25T02:30:00+01:00 second_of_two -3600",
        "2026-10-26T02:30:00+01:00",
    ],
}


def test_what_a_policy_makes_of_a_change_of_the_clock_is_marked() -> None:
    assert {scene: shown(*scene) for scene in UNDER_POLICIES} == UNDER_POLICIES


def test_what_stands_for_a_skipped_time_belongs_to_the_day_of_that_time() -> None:
    """The clock of Nuuk goes from 23:00 to 00:00, on a Saturday."""
    pattern, since = with_clock(cron("0 30 23 * * *", "America/Nuuk"), AFTER), at("2026-03-28T12:00:00Z")
    for excepted, days in (("2026-03-28", (29, 30)), ("2026-03-29", (29, 30)), ("2026-03-30", (29, 29))):
        day = at(f"{excepted}T00:00:00Z") // DAY
        bounded = Bounded(pattern, Bounds(excepted=DayRows([Days(day, day)])))
        shown = [int(bounded.format(fire)[8:10]) for fire in first_fires(bounded, since, 2)]
        left_out = [fire for row in bounded.excepted_fires(since, since + 3 * DAY, since) for fire in row]
        assert (tuple(shown), any(bounded.is_fire(fire, since) for fire in left_out)) == (days, False), excepted


CHANGES = [
    ("2026-03-29T01:00:00Z", BERLIN),
    ("2026-10-25T01:00:00Z", BERLIN),
    ("2026-10-03T15:30:00Z", HOWE),
    ("2026-04-04T15:00:00Z", HOWE),
    ("2026-04-23T22:00:00Z", CAIRO),
    ("2026-10-29T21:00:00Z", CAIRO),
]
"""Instants at which a clock changes."""
AROUND_SECONDS = 3_700
MAX_FIRES = 40


@cache
def walls(start: int, end: int, zone: ZoneInfo) -> list[Wall]:
    """List what the wall clock shows at each second."""
    return [wall_at(second, zone) for second in range(start, end)]


def is_one_of_two(second: int, zone: ZoneInfo) -> ClockChange | None:
    """Return what the standard library says of a local time that exists twice."""
    local = datetime.fromtimestamp(second, zone)
    if local.replace(fold=0).utcoffset() <= local.replace(fold=1).utcoffset():  # type: ignore[operator]
        return None  # in no fold: in a gap the order is the other one
    return ClockChange.SECOND_OF_TWO if local.fold else ClockChange.FIRST_OF_TWO


@settings(max_examples=draws(12))
@given(st.sampled_from(CHANGES), st.data())
def test_marks_are_those_of_the_standard_library(change: tuple[str, str], data: st.DataObject) -> None:
    zone, changes = ZoneInfo(change[1]), at(change[0]) // SECOND
    meaning = data.draw(meanings(wall_at(changes, zone)))
    pattern = parse_pattern(meaning.text, change[1])
    if not isinstance(pattern, Cron):
        return  # a date that does not exist
    start, end = changes - AROUND_SECONDS, changes + AROUND_SECONDS
    seconds = enumerate(walls(start + 1, end, zone), start + 1)
    expected = list(islice((second for second, wall in seconds if meaning.matches(wall)), MAX_FIRES))
    found = with_clock_changes(pattern, start * SECOND, first_fires(pattern, start * SECOND, len(expected)))
    fires = [entry for entry in found if isinstance(entry, NextFire)]
    assert [fire.fire_time // SECOND for fire in fires] == expected
    marks = [fire.change if fire.change is not ClockChange.MOVED else None for fire in fires]
    assert marks == [is_one_of_two(second, zone) for second in expected]
    if fires and expected[-1] >= changes:
        assert [entry for entry in found if isinstance(entry, SkippedTimes)] == skipped(meaning, changes, zone)


def skipped(meaning: Meaning, changes: int, zone: ZoneInfo) -> list[SkippedTimes]:
    """Return the matching local times between what a clock shows before a change and at it."""
    before, after = (datetime.fromtimestamp(second, zone).replace(tzinfo=None) for second in (changes - 1, changes))
    low, high = (round((local - EPOCH).total_seconds()) for local in (before + timedelta(seconds=1), after))
    matching = [local for local in range(low, high) if meaning.matches(wall_at(local, UTC))]
    return [SkippedTimes(matching[0], matching[-1], low, high, changes * SECOND)] if matching else []


def test_what_is_before_the_start_is_not_skipped_by_a_clock() -> None:
    daily, start = read("0 30 1 * * *", "Europe/Dublin"), at("9990-01-01T00:00:00Z")
    bounded = Bounded(daily, Bounds(start=start))
    fires = first_fires(bounded, at("2026-03-01T00:00:00Z"), 100)
    found = with_clock_changes(bounded, at("2026-03-01T00:00:00Z"), fires)
    assert found == with_clock_changes(daily, start - 1, fires)
    assert len([entry for entry in found if isinstance(entry, SkippedTimes)]) == 1


def test_what_lies_on_an_excepted_day_is_not_skipped_by_a_clock() -> None:
    daily, since = read("0 30 2 * * *", BERLIN), at("2026-03-27T12:00:00Z")
    for text, skipped in (("2026-03-29T00:00:00Z", 0), ("2026-03-28T00:00:00Z", 1)):
        day = at(text) // DAY
        bounded = Bounded(daily, Bounds(excepted=DayRows([Days(day, day)])))
        found = with_clock_changes(bounded, since, first_fires(bounded, since, 3))
        assert len([entry for entry in found if isinstance(entry, SkippedTimes)]) == skipped, text
