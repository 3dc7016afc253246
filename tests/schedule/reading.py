"""What the tests of this folder share: instants and patterns out of texts, and the fires of a pattern."""

from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import Cron, InvalidPattern, Pattern, Syntax, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339


def at(text: str) -> int:
    """Return the instant of a time."""
    instant = parse_rfc3339(text)
    assert isinstance(instant, int), instant
    return instant


def read(text: str, zone: str | None = None, syntax: Syntax | None = None) -> Pattern:
    """Return the pattern of a valid text."""
    pattern = parse_pattern(text, zone, syntax)
    assert pattern is not None
    assert not isinstance(pattern, Invalid), str(pattern)
    return pattern


def cron(text: str, zone: str | None = None, syntax: Syntax | None = None) -> Cron:
    """Return the pattern of a valid text with fields."""
    pattern = read(text, zone, syntax)
    assert isinstance(pattern, Cron), pattern
    return pattern


def refused(text: str, zone: str | None = None, syntax: Syntax | None = None) -> str:
    """Return why a text is no pattern."""
    invalid = parse_pattern(text, zone, syntax)
    assert isinstance(invalid, InvalidPattern), text
    assert invalid.text == text
    return invalid.reason


def fires_until(pattern: Pattern, stored_at: int, until: int) -> list[int]:
    """Return the fire times of a stored pattern, up to and with `until`."""
    found, fire = list[int](), pattern.first_fire(stored_at)
    while fire is not None and fire <= until:
        found.append(fire)
        fire = pattern.next_fire(fire, stored_at)
    return found


def first_fires(pattern: Pattern, stored_at: int, count: int) -> list[int]:
    """Return the first fire times of a stored pattern."""
    found, fire = list[int](), pattern.first_fire(stored_at)
    while fire is not None and len(found) < count:
        found.append(fire)
        fire = pattern.next_fire(fire, stored_at)
    return found


def shown_fires(pattern: Pattern, stored_at: str, count: int) -> list[str]:
    """Return the first fire times as they are printed."""
    return [pattern.format(fire) for fire in first_fires(pattern, at(stored_at), count)]
