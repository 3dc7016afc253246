"""The number of fires of a pattern, in a period and in each minute of it, is that of the fires found one by one."""

from collections import Counter

import pytest

from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.calendars import Days, in_order
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.patterns import At, Every, Pattern, Syntax
from tests.harness.seeds import draws, generator
from tests.schedule.reading import at, read

NOW = at("2026-10-25T00:59:42.5Z")
"""18 s before the clocks of Berlin are set back."""

PATTERNS = [
    *(read(f"@every {interval}") for interval in ("1s", "1.4s", "7s", "59.999s", "1m", "90s", "45m", "5h")),
    read("@at 2026-10-25T01:10:00.25Z"),
    read("@at 2026-10-25T00:10:00Z"),
    read("* * * * * *"),
    read("*/7 * * * * *"),
    read("0 * * * * *"),
    read("30,31,59 */5 * * * *"),
    read("0 0 * * * *"),
    read("@daily"),
    read("0 30 2 * * *", "Europe/Berlin"),
    read("* * 2 * * *", "Europe/Berlin"),
    read("*/10 */3 * * * sun", "Europe/Berlin"),
    read("0 0 0 29 2 *"),
    read("15 * * * * *", "Asia/Kathmandu"),
    read("0 12 L * *", None, Syntax.CRONTAB),
    read("*/20 9-17 15W * *", "Europe/Berlin", Syntax.CRONTAB),
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
    for pattern in PATTERNS:
        for _ in range(draws(4)):
            stored_at = NOW - random.randrange(3 * HOUR)
            after = stored_at + random.choice([0, random.randrange(HOUR), random.randrange(3 * DAY)])
            check_counts(pattern, stored_at, after, random.choice([1, 2, 40]))


def test_the_counts_of_bounded_patterns_are_those_of_what_is_left() -> None:
    random = generator("bounded counts")
    today = NOW // DAY
    for pattern in PATTERNS:
        for _ in range(0 if isinstance(pattern, At) else draws(2)):
            excepted = [Days(first := today + random.randint(-2, 4), first + random.randint(0, 2)) for _ in range(2)]
            anchor = NOW // SECOND * SECOND - random.randrange(100) * SECOND
            bounds = Bounds(
                start=NOW + random.randrange(HOUR) if random.random() < 0.4 else None,
                end=NOW + random.randrange(DAY) if random.random() < 0.4 else None,
                limit=random.randint(1, 30) if random.random() < 0.3 else None,
                anchor=anchor if isinstance(pattern, Every) and random.random() < 0.5 else None,
                excepted=in_order(excepted) if random.random() < 0.7 else (),
            )
            check_counts(Bounded(pattern, bounds), NOW, NOW + random.randrange(HOUR), random.choice([1, 2, 40]))


def test_a_zone_whose_offset_had_seconds() -> None:
    """Amsterdam was 19 min 32 s ahead of UTC until 1937."""
    pattern, after = read("5,50 * * * * *", "Europe/Amsterdam"), at("1936-12-01T10:00:00Z")
    check_counts(pattern, after, after, 120)
    assert {count for _minute, count in pattern.by_minute(after, after + HOUR, after)} == {2}


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"])
def test_years_are_counted_exactly(zone: str | None) -> None:
    for text in ("0 30 2 * * *", "0 0 12 31 * *", "15 10,20 0,23 * 2,10 sun", "0 0 0 29 2 *"):
        pattern, until = read(text, zone), NOW + 1_500 * DAY
        fires = [fire for fire in fires_after(pattern, NOW, NOW, 2_000) if fire <= until]
        for period in (40 * DAY, 400 * DAY, 1_500 * DAY):
            assert pattern.count(NOW, NOW + period, NOW) == sum(fire <= NOW + period for fire in fires), text


def test_an_only_fire_counts_once() -> None:
    pattern, due = read("@at 2026-10-25T01:10:00Z"), at("2026-10-25T01:10:00Z")
    counts = [pattern.count(after, until, NOW) for after, until in ((NOW, due), (due, due + 1), (NOW, due - 1))]
    assert counts == [1, 0, 0]
    left_out = Bounded(pattern, Bounds(excepted=(Days(due // DAY, due // DAY),)))
    assert left_out.count(NOW, due, NOW) == 0


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
