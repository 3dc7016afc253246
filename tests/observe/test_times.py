"""Instants as people read them, in UTC and in the time zone of a reader."""

from nats_scheduler.observe.times import (
    clock_text,
    moment_text,
    short_text,
    time_text,
    times_in,
    utc_text,
    zone_name,
)
from nats_scheduler.schedule.instants import HOUR, MILLISECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.schedule.zones import Zone, load_zone


def instant(text: str) -> int:
    """Return an instant (ns)."""
    found = parse_rfc3339(text)
    assert isinstance(found, int)
    return found


def zone(name: str) -> Zone:
    """Return a time zone."""
    found = load_zone(name)
    assert isinstance(found, Zone)
    return found


NIGHT = instant("2026-03-28T23:30:00Z")
"""The clock of Berlin goes forward in the night after it."""


def test_instants_are_shown_in_the_zone_of_the_reader() -> None:
    assert (zone_name(), moment_text(NIGHT)) == ("UTC", "2026-03-28T23:30:00Z")
    with times_in(zone("Europe/Berlin")):
        assert zone_name() == "Europe/Berlin"
        assert moment_text(NIGHT) == "2026-03-29T00:30:00+01:00"
        assert time_text(NIGHT + 2 * HOUR + 250 * MILLISECOND) == "2026-03-29T03:30:00.25+02:00"
        assert short_text(NIGHT, NIGHT + HOUR) == "00:30:00", "it is the same day there"
        assert short_text(NIGHT - HOUR, NIGHT) == "03-28 23:30"
        assert (utc_text(NIGHT), clock_text(NIGHT)) == ("2026-03-28 23:30:00", "23:30:00"), "these are in UTC always"
    assert moment_text(NIGHT) == "2026-03-28T23:30:00Z"
