"""The syntaxes `crontab` and `quartz` fire when croniter says, and on the days that a naive search finds.

The rule: what croniter reads otherwise is listed here, each with what croniter does, so that a change there is noticed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from random import Random
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, CroniterError, croniter

from nats_scheduler.schedule.cron_syntax import Syntax
from nats_scheduler.schedule.instants import DAY, SECOND, days_from_civil
from nats_scheduler.schedule.patterns import Cron, InvalidPattern, parse_pattern
from nats_scheduler.schedule.zones import Zone
from tests.hostile.effort import EFFORT, seeded
from tests.schedule.syntax_oracle import SyntaxMeaning, drawn_meaning
from tests.schedule.test_cron_fires import at, changes
from tests.schedule.test_cron_syntax import cron, refused
from tests.schedule.test_zones import standard

FIRES_COMPARED = 4


# -- croniter ------------------------------------------------------------------------------------------------------


def croniter_of(meaning: SyntaxMeaning, start: datetime) -> croniter:
    return croniter(meaning.text, start, second_at_beginning=not meaning.is_crontab)


def is_read_alike(meaning: SyntaxMeaning) -> bool:
    """Leave out one bug of croniter: a full day field counts as a star if the text of the other one has a star.

    `test_croniter_reads_a_full_field_by_the_text_of_the_other` is the evidence.
    """
    texts = meaning.month_days.text, meaning.week_days.text
    stars = meaning.month_days.star or meaning.week_days.star
    return bool(stars) or not any("*" in text for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("zone", [None, "Asia/Kolkata", "America/Bogota", "Europe/Berlin"])
def test_random_patterns_fire_when_croniter_says(zone: str | None) -> None:
    random, compared = seeded(), 0
    for _ in range(600 * EFFORT):
        meaning = drawn_meaning(random)
        start = random.randint(days_from_civil(2015, 1, 1), days_from_civil(2035, 1, 1)) * 86_400 + random.randint(
            0, 86_399
        )
        pattern = parse_pattern(meaning.text, zone, Syntax(meaning.syntax))
        other = croniter_of(meaning, datetime.fromtimestamp(start, UTC if zone is None else ZoneInfo(zone)))
        if not is_read_alike(meaning):
            continue
        if isinstance(pattern, InvalidPattern):
            with pytest.raises(CroniterBadDateError):
                other.get_next(datetime)
            continue
        assert isinstance(pattern, Cron), meaning.text
        compared += compare(pattern, other, start)
    assert compared > 500 * EFFORT


def compare(pattern: Cron, other: croniter, start: int) -> int:
    """Compare fires up to the horizon, or to a change of the clock, where croniter has rules of its own."""
    fire, compared = start * SECOND, 0
    segment = None if pattern.zone is None else pattern.zone.segment_at(fire)
    for _ in range(FIRES_COMPARED):
        last_year = local_year(pattern.zone, fire + SECOND) + 5
        found = pattern.next_fire(fire, 0)
        if segment is not None and segment.end is not None and (found is None or found >= segment.end - DAY):
            return compared
        try:
            expected: datetime | None = other.get_next(datetime)
        except CroniterBadDateError:
            expected = None
        if expected is not None and expected.year > last_year:
            expected = None
        shown = f"{pattern.text} after {pattern.format(fire)}"
        assert found == (None if expected is None else int(expected.timestamp()) * SECOND), shown
        if found is None:
            return compared + 1
        fire, compared = found, compared + 1
    return compared


def local_year(zone: Zone | None, instant: int) -> int:
    offset = 0 if zone is None else zone.offset_at(instant)
    return datetime.fromtimestamp(instant // SECOND + offset, UTC).year


def croniter_fires(text: str, count: int, *, quartz: bool = False) -> list[str]:
    other = croniter(text, datetime(2026, 1, 1, tzinfo=UTC), second_at_beginning=quartz)
    return [other.get_next(datetime).strftime("%m-%dT%H:%M") for _ in range(count)]


def our_fires(text: str, count: int) -> list[str]:
    found, fire = list[str](), at("2026-01-01T00:00:00Z")
    for _ in range(count):
        following = cron(text).next_fire(fire, 0)
        assert following is not None
        fire = following
        found.append(datetime.fromtimestamp(fire // SECOND, UTC).strftime("%m-%dT%H:%M"))
    return found


def test_croniter_loses_the_step_where_a_range_wraps() -> None:
    """Its manual says of such ranges that the step is respected; 3 hours after 22:00 is 01:00."""
    assert our_fires("0 22-4/3 * * *", 3) == ["01-01T01:00", "01-01T04:00", "01-01T22:00"]
    assert croniter_fires("0 22-4/3 * * *", 2) == ["01-01T02:00", "01-01T22:00"]


def test_croniter_reads_a_full_field_by_the_text_of_the_other() -> None:
    """The same set of weekdays, written in two ways, gives different days."""
    assert croniter_fires("0 0 1-31 * 0,2,4,6", 2) == ["01-02T00:00", "01-03T00:00"]
    assert croniter_fires("0 0 1-31 * */2", 2) == ["01-03T00:00", "01-04T00:00"]
    assert our_fires("0 0 1-31 * 0,2,4,6", 2) == our_fires("0 0 1-31 * */2", 2) == ["01-02T00:00", "01-03T00:00"]


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("30-30 * * * *", ["01-01T00:01", "01-01T00:02"]),  # one value: each minute
        ("0 0 * * 1#1,1", ["01-05T00:00", "02-02T00:00"]),  # Mondays: the second item is dropped
        ("0 0 * * *,1#1", ["01-05T00:00", "02-02T00:00"]),  # every day: the star is dropped
        ("0 0 13 * 5#2", ["01-09T00:00", "02-13T00:00"]),  # the 13th of January is dropped
        ("0 0 15W * 5", ["01-15T00:00", "02-16T00:00"]),  # Fridays are dropped
    ],
)
def test_what_croniter_reads_and_nobody_means_is_rejected(text: str, evidence: list[str]) -> None:
    assert croniter_fires(text, 2) == evidence
    assert refused(text)


def test_croniter_finds_no_date_where_it_drops_a_field() -> None:
    with pytest.raises(CroniterBadDateError):
        croniter_fires("0 0 6 1 5#2", 1)
    assert refused("0 0 6 1 5#2")


def test_croniter_draws_lots_for_r() -> None:
    assert len({tuple(croniter_fires("r r * * *", 1)) for _ in range(20)}) > 1
    assert refused("r r * * *")


MUTATED = "0159*?-/,#LWlwHR xjanmonSUN "


@pytest.mark.slow
def test_random_texts_that_croniter_rejects_are_rejected() -> None:
    random, accepted = seeded(), 0
    for _ in range(4_000 * EFFORT):
        meaning = drawn_meaning(random)
        text = list(meaning.text)
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(text))
            text[place : place + random.randint(0, 1)] = random.choice(MUTATED)
        changed = "".join(text)
        pattern = parse_pattern(changed, None, Syntax(meaning.syntax))
        if not isinstance(pattern, Cron):
            continue
        accepted += 1
        try:
            croniter(changed, datetime(2026, 1, 1, tzinfo=UTC), second_at_beginning=not meaning.is_crontab)
        except CroniterError as error:
            pytest.fail(f"{changed!r} is accepted, and croniter says {error}")
    assert accepted > 100 * EFFORT


# -- the naive oracle ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_random_patterns_fire_on_the_days_that_a_search_day_by_day_finds() -> None:
    random = seeded()
    for _ in range(600 * EFFORT):
        meaning = drawn_meaning(random)
        after = random.randint(days_from_civil(2015, 1, 1), days_from_civil(2035, 1, 1)) * 86_400 + random.randint(
            0, 86_399
        )
        expected = list(islice(meaning.fires(after), FIRES_COMPARED))
        pattern = parse_pattern(meaning.text, None, Syntax(meaning.syntax))
        if isinstance(pattern, InvalidPattern):
            assert expected == [], meaning.text
            continue
        assert isinstance(pattern, Cron)
        found, fire = list[int](), pattern.next_fire(after * SECOND, 0)
        while fire is not None and len(found) < len(expected):
            found.append(fire // SECOND)
            fire = pattern.next_fire(fire, 0)
        assert found == expected, (meaning.text, after)
        if not expected:
            assert fire is None, meaning.text
            continue
        assert pattern.latest_fire(after * SECOND, expected[-1] * SECOND + SECOND - 1, 0) == expected[-1] * SECOND, (
            meaning.text
        )
        before = expected[-2] if len(expected) > 1 else None
        latest = pattern.latest_fire(after * SECOND, expected[-1] * SECOND - 1, 0)
        assert latest == (None if before is None else before * SECOND), meaning.text


@pytest.mark.slow
def test_around_a_change_of_offset_it_fires_when_the_wall_clock_matches() -> None:
    """Each minute of two days before and after a change is checked."""
    random = seeded()
    for change in changes() * EFFORT:
        zone, first = standard(change.zone), change.second - change.second % 60 - 2 * 86_400
        minutes = range(first, first + 4 * 86_400, 60)
        if datetime.fromtimestamp(first, zone).second or datetime.fromtimestamp(minutes[-1], zone).second:
            continue  # an offset that is not whole minutes
        meaning = Random(random.random())
        drawn = drawn_meaning(meaning)
        while not drawn.is_crontab or not any(drawn.matches(datetime.fromtimestamp(one, zone)) for one in minutes):
            drawn = drawn_meaning(meaning)
        expected = [one * SECOND for one in minutes if drawn.matches(datetime.fromtimestamp(one, zone))]
        pattern = cron(drawn.text, zone=change.zone)
        found, fire = list[int](), pattern.next_fire((first - 1) * SECOND, 0)
        while fire is not None and fire <= minutes[-1] * SECOND:
            found.append(fire)
            fire = pattern.next_fire(fire, 0)
        assert found == expected, (drawn.text, change)
        assert pattern.latest_fire((first - 1) * SECOND, minutes[-1] * SECOND, 0) == expected[-1]
