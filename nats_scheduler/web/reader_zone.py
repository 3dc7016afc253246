"""The time zone of a reader, which their browser keeps as a cookie: times of it stand beside those in UTC.

Rule: only a name of a zone that is known here counts; anything else in the cookie is as if it was not there.
Cost: a look-up in a cache for each page; a name that is looked up first reads a file.
"""

from collections.abc import Mapping
from urllib.parse import quote, unquote

from nats_scheduler.schedule.invalid import InvalidTimeZone
from nats_scheduler.schedule.zones import Zone, load_zone

ZONE_COOKIE = "nats_scheduler_zone"
ZONE_SECONDS = 365 * 24 * 60 * 60
"""The time for which a browser keeps it."""

MAX_NAME_CHARS = 64
"""Longest name that is looked up: the longest in use has 32."""


def zone_called(name: str) -> Zone | None:
    """Return a zone that a reader may name, None if there is none: that of this machine says nothing to them."""
    if len(name) > MAX_NAME_CHARS or not name.isascii() or name == "Local":
        return None
    zone = load_zone(name)
    return None if isinstance(zone, InvalidTimeZone) else zone


def reader_zone(cookies: Mapping[str, str]) -> Zone | None:
    """Return the zone that the browser has kept, None for UTC alone."""
    return zone_called(unquote(cookies.get(ZONE_COOKIE, "")))


def zone_cookie(zone: Zone) -> str:
    """Return the value of the cookie for a zone."""
    return quote(zone.name, safe="")
