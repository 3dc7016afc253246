"""The number of fires of a pattern in a period is the one that finding these times one by one gives."""

from random import Random

import pytest

from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.calendars import Days, in_order
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern, Syntax, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.schedule.test_by_minute import NOW, PATTERNS, pattern_of

OTHERS: list[tuple[str, str | None, Syntax]] = [
    ("0 12 L * *", None, Syntax.CRONTAB),
    ("*/20 9-17 15W * *", "Europe/Berlin", Syntax.CRONTAB),
    ("0 0 6 ? * 6#2 2026-2027", None, Syntax.QUARTZ),
    ("0 */30 1-3 L * ? *", "America/St_Johns", Syntax.QUARTZ),
]

EVERYTHING: list[Pattern] = [
    *(pattern_of(text, zone) for text, zone in PATTERNS),
    *(found for text, zone, syntax in OTHERS if isinstance(found := parse_pattern(text, zone, syntax), Cron)),
]


def one_by_one(pattern: Pattern, stored_at: int, after: int, until: int) -> int:
    """Count the fire times in (after, until] by asking for each of them."""
    count, fire = 0, pattern.next_fire(max(after, stored_at), stored_at)
    if not pattern.repeats:
        fire = pattern.first_fire(stored_at)
    while fire is not None and fire <= until:
        count += fire > after
        fire = pattern.next_fire(fire, stored_at)
    return count


def instant(text: str) -> int:
    found = parse_rfc3339(text)
    assert isinstance(found, int)
    return found


def test_all_patterns_are_there() -> None:
    assert len(EVERYTHING) == len(PATTERNS) + len(OTHERS)


@pytest.mark.parametrize("pattern", EVERYTHING, ids=lambda pattern: pattern.text)
def test_the_count_is_that_of_the_fire_times(pattern: Pattern) -> None:
    random = Random(f"counting {pattern.text}")
    for _ in range(12):
        stored_at = NOW - random.randrange(3 * HOUR)
        after = stored_at + random.choice([0, random.randrange(HOUR), random.randrange(3 * DAY)])
        length = random.choice([SECOND, 20 * MINUTE, 6 * HOUR, 2 * DAY if isinstance(pattern, Cron) else HOUR])
        until = after + random.randrange(length)
        assert pattern.count(after, until, stored_at) == one_by_one(pattern, stored_at, after, until)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"])
@pytest.mark.parametrize("text", ["0 30 2 * * *", "0 0 12 31 * *", "15 10,20 0,23 * 2,10 sun", "0 0 0 29 2 *"])
def test_years_are_counted_exactly(text: str, zone: str | None) -> None:
    pattern, after = pattern_of(text, zone), NOW
    for until in (NOW + 40 * DAY, NOW + 400 * DAY, NOW + 1_500 * DAY):
        assert pattern.count(after, until, NOW) == one_by_one(pattern, NOW, after, until)


@pytest.mark.parametrize("pattern", EVERYTHING, ids=lambda pattern: pattern.text)
def test_the_count_of_bounded_patterns_is_that_of_what_is_left(pattern: Pattern) -> None:
    random = Random(f"bounded counting {pattern.text}")
    today = NOW // DAY
    for _ in range(8):
        excepted = [Days(first := today + random.randint(-2, 4), first + random.randint(0, 2)) for _ in range(2)]
        anchor = NOW // SECOND * SECOND - random.randrange(100) * SECOND
        bounds = Bounds(
            start=NOW + random.randrange(HOUR) if random.random() < 0.4 else None,
            end=NOW + random.randrange(DAY) if random.random() < 0.4 else None,
            limit=random.randint(1, 30) if random.random() < 0.3 else None,
            anchor=anchor if isinstance(pattern, Every) and random.random() < 0.5 else None,
            excepted=in_order(excepted) if random.random() < 0.7 else (),
        )
        bounded, after = Bounded(pattern, bounds), NOW + random.randrange(HOUR)
        until = after + random.randrange(2 * DAY if isinstance(pattern, Cron) else 5 * HOUR)
        if not isinstance(pattern, At):
            assert bounded.count(after, until, NOW) == one_by_one(bounded, NOW, after, until), bounds


def test_an_only_fire_counts_once() -> None:
    pattern = pattern_of("@at 2026-10-25T01:10:00Z")
    due = instant("2026-10-25T01:10:00Z")
    counts = [pattern.count(after, until, NOW) for after, until in ((NOW, due), (due, due + 1), (NOW, due - 1))]
    assert counts == [1, 0, 0]
    left_out = Bounded(pattern, Bounds(excepted=(Days(due // DAY, due // DAY),)))
    assert left_out.count(NOW, due, NOW) == 0


@pytest.mark.parametrize("text", ["* * * * * *", "@every 1s"])
def test_a_hundred_years_of_seconds_are_counted_without_finding_them(text: str) -> None:
    begin = NOW // SECOND * SECOND
    assert pattern_of(text).count(begin, begin + 36_525 * DAY, begin) == 36_525 * 86_400
