"""Patterns whose fire times are compared: on a grid, and by the wall clock of a zone."""

import random
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

INTERVALS = ("1s", "2s", "3s", "1s1s", "2000ms", "1.4s", "2.5s", "1.5s", "1500000µs")
"""The intervals behind `@every`."""

CADENCES = {"1.4s": "1", "2.5s": "3", "1.5s": "2", "1500000µs": "2"}
"""The seconds at which a native scheduler repeats an interval that is not whole."""

LENGTHS = {"1s1s": "2", "2000ms": "2", "1500000µs": "1.5"}
"""The seconds of an interval that is not written in them."""

STEPS = (1, 2, 3)
"""Steps of cron patterns, in seconds."""

ZONES = (
    *(None, "UTC", "GMT", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/St_Johns"),
    *("America/Los_Angeles", "America/Sao_Paulo", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Asia/Tehran"),
    *("Australia/Sydney", "Australia/Adelaide", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Apia", "Etc/GMT+12"),
    *("Pacific/Kiritimati", "Africa/Johannesburg", "EST", "US/Pacific", "Asia/Colombo"),
)
"""Zones without a gap at midnight: in such a gap we are right and the server is not, which `tests/schedule` shows.

And none whose law changed lately: the server asks its host for zones, we the `tzdata` package, and one may be older.
"""

TEMPLATES = (
    *("{s} * * * * *", "{s} {m} * * * *", "{s} {m} {h} * * *", "{s} {m} {h} {d} * *", "{s} {m} {h} {d} {mon} *"),
    *("{s} {m} {h} * {mon} *", "{s} {m} {h} * * {dow}", "{s} {m} {h} ? * {day}", "{s},0 {m} {h} * * *"),
    *("{s}/59 {m} {h} * * *", "{s}-{s} {m}-{m} * * * *", "{s} {m} {h} {d} * {dow}", "{s} {m} {h} 1-31 * 5"),
    *("  {s}\t{m}  {h} * * * ", "{s} {m} {h} {d},28 * *", "{s} {m} {h} * {month} *", "{s} {m} {h} ,{d} * *"),
    *("+{s} {m} {h} * * *", "{s} {m} {h} *-x * *", "{s} {m} {h} {d}-31/2 * *", "{s} {m} {h} {d} * ?"),
)
"""Patterns that match a chosen instant; `*-x` and `,1` are taken by the server, so by us too."""


@dataclass(frozen=True)
class WallClock:
    """A cron pattern in a zone that matches a chosen instant."""

    template: str
    zone: str | None

    def at(self, local: datetime) -> str:
        """Write the pattern so that it matches a local time."""
        day = local.isoweekday() % 7
        return self.template.format(
            s=local.second,
            m=local.minute,
            h=local.hour,
            d=local.day,
            mon=local.month,
            month=f"{local:%b}".upper(),
            dow=day,
            day=("sun", "mon", "tue", "wed", "thu", "fri", "sat")[day],
        )


def wall_clocks(draw: random.Random, count: int) -> list[WallClock]:
    """Return every template in UTC, every zone with the daily one, and some that were drawn."""
    fixed = [WallClock(template, None) for template in TEMPLATES]
    fixed += [WallClock("{s} {m} {h} * * *", zone) for zone in ZONES]
    return fixed + [WallClock(draw.choice(TEMPLATES), draw.choice(ZONES)) for _ in range(count)]


def seconds(text: str) -> Fraction:
    """Return the length of one of the intervals."""
    return Fraction(LENGTHS.get(text, text.rstrip("s")))
