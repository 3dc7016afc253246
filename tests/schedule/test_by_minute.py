"""The fires in each minute are those that the pattern itself returns, counted one by one."""

from collections import Counter
from random import Random

import pytest

from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339


def instant(text: str) -> int:
    found = parse_rfc3339(text)
    assert isinstance(found, int)
    return found


def pattern_of(text: str, zone: str | None = None) -> Pattern:
    found = parse_pattern(text, zone)
    assert isinstance(found, At | Every | Cron), found
    return found


NOW = instant("2026-10-25T00:59:42.5Z")
"""18 s before the clocks of Berlin are set back."""

PATTERNS = [
    ("@every 1s", None),
    ("@every 1.4s", None),
    ("@every 7s", None),
    ("@every 59.999s", None),
    ("@every 1m", None),
    ("@every 90s", None),
    ("@every 45m", None),
    ("@every 5h", None),
    ("@at 2026-10-25T01:10:00.25Z", None),
    ("@at 2026-10-25T00:10:00Z", None),
    ("* * * * * *", None),
    ("*/7 * * * * *", None),
    ("0 * * * * *", None),
    ("30,31,59 */5 * * * *", None),
    ("0 0 * * * *", None),
    ("@daily", None),
    ("0 30 2 * * *", "Europe/Berlin"),
    ("* * 2 * * *", "Europe/Berlin"),
    ("*/10 */3 * * * sun", "Europe/Berlin"),
    ("0 0 0 29 2 *", None),
    ("15 * * * * *", "Asia/Kathmandu"),
]


def one_by_one(pattern: Pattern, stored_at: int, after: int, until: int) -> dict[int, int]:
    found: Counter[int] = Counter()
    fire = pattern.next_fire(after, stored_at) if pattern.repeats else pattern.first_fire(stored_at)
    while fire is not None and fire < until:
        if fire > after:
            found[fire - fire % MINUTE] += 1
        fire = pattern.next_fire(fire, stored_at)
    return dict(found)


@pytest.mark.parametrize(("text", "zone"), PATTERNS)
def test_the_fires_of_each_minute(text: str, zone: str | None) -> None:
    random = Random(text)
    pattern = pattern_of(text, zone)
    for _ in range(12):
        stored_at = NOW - random.randrange(HOUR)
        after = NOW + random.randrange(-MINUTE, HOUR)
        until = after + random.randrange(90 * MINUTE)
        found = list(pattern.by_minute(after, until, stored_at))
        assert dict(found) == one_by_one(pattern, stored_at, after, until)
        assert found == sorted(dict(found).items()), "in order, each minute once"


def test_a_zone_whose_offset_had_seconds() -> None:
    """Amsterdam was 19 min 32 s ahead of UTC until 1937."""
    pattern = pattern_of("5,50 * * * * *", "Europe/Amsterdam")
    after = instant("1936-12-01T10:00:00Z")
    found = dict(pattern.by_minute(after, after + HOUR, after))
    assert found == one_by_one(pattern, after, after, after + HOUR)
    assert set(found.values()) == {2}


def test_the_work_does_not_grow_with_the_fires() -> None:
    for text in ("@every 1s", "* * * * * *"):
        found = list(pattern_of(text).by_minute(NOW, NOW + HOUR, NOW - DAY))
        assert len(found) == 61
        assert sum(count for _minute, count in found) == 3_600


def test_equal_grids_have_equal_fires() -> None:
    every, cron = pattern_of("@every 5m"), pattern_of("0 */5 * * * *", "Europe/Berlin")
    assert every.grid(NOW) == every.grid(NOW + 5 * MINUTE) == every.grid(NOW + 100 * MILLISECOND)
    assert every.grid(NOW) != every.grid(NOW + SECOND)
    assert every.grid(NOW) != pattern_of("@every 10m").grid(NOW)
    assert cron.grid(NOW) == pattern_of("0 */5 * * * *", "Europe/Berlin").grid(NOW + SECOND)
    assert cron.grid(NOW) != pattern_of("0 */5 * * * *").grid(NOW)


def test_what_a_pattern_keeps_for_its_fires_is_not_replaced() -> None:
    cron = pattern_of("0 * * * * *")
    cron.next_fire(NOW, NOW)
    before = list(cron._found)  # type: ignore[attr-defined]
    list(cron.by_minute(NOW, NOW + HOUR, NOW))
    assert cron._found == before  # type: ignore[attr-defined]
