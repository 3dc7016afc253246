"""Cron patterns that fire soon, and patterns and time zones drawn at random: texts that may be wrong anywhere."""

import random
from datetime import datetime
from zoneinfo import available_timezones

from tests.schedule.oracle import HIGH, LOW

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

ALL_ZONES = sorted(available_timezones() - {"Factory", "localtime"})

ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu")
"""Of each, all templates are written."""

TEMPLATES = (
    *("{s} * * * * *", "{s} {m} * * * *", "{s} {m} {h} * * *", "{s} {m} {h} {d} * *", "{s} {m} {h} {d} {mon} *"),
    *("{s} {m} {h} * {mon} *", "{s} {m} {h} * * {dow}", "{s} {m} {h} ? * {day}", "{s},0 {m} {h} * * *"),
    *("{s}/59 {m} {h} * * *", "{s}-{s} {m}-{m} * * * *", "{s} {m} {h} {d} * {dow}", "{s} {m} {h} 1-31 * 5"),
    *("  {s}\t{m}  {h} * * * ", "{s} {m} {h} {d},28 * *", "{s} {m} {h} * {month} *", "{s} {m} {h} ,{d} * *"),
    *("+{s} {m} {h} * * *", "{s} {m} {h} *-x * *", "{s} {m} {h} {d}-31/2 * *", "{s} {m} {h} {d} * ?"),
)
"""Patterns that match a chosen instant; `*-x` and `,1` are taken by the server, so by us too."""


def written_at(template: str, local: datetime) -> str:
    """Write one of the templates so that it matches a local time."""
    day, weekday = local.isoweekday() % 7, WEEKDAYS[local.isoweekday() % 7]
    names = {"month": f"{local:%b}".upper(), "dow": day, "day": weekday}
    return template.format(s=local.second, m=local.minute, h=local.hour, d=local.day, mon=local.month, **names)


UNITS = ("ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "w", "S", "H", "")
LETTERS = "0123456789*/-,?+ :.TZtz@jafebsunmo_xLW#\t"


def random_pattern(draw: random.Random) -> str:
    """Draw a text that is, or once was, a pattern."""
    text = draw.choice((_cron, _cron, _cron, _at, _every, _alias))(draw)
    for _ in range(draw.choice((0, 0, 0, 1, 1, 2))):
        text = _broken(draw, text)
    return text


def random_zone(draw: random.Random) -> str:
    """Draw the name of a zone, or what once was one."""
    name = draw.choice(ALL_ZONES)
    spoilt = draw.random()
    if spoilt < 0.7:
        return name
    return draw.choice(
        (name.lower(), name.upper(), name + " ", name[1:], name[:-1], f"../{name}", f"{name}/", name[::-1])
    )


def is_costly(pattern: str) -> bool:
    """Return whether a native server looks through five years of seconds before it refuses: an empty list there."""
    return any(field and not field.strip(",") for field in pattern.split()[:3])


def _broken(draw: random.Random, text: str) -> str:
    at = draw.randrange(len(text) + 1)
    inserted = draw.choice(LETTERS)
    return draw.choice(
        (text[:at] + inserted + text[at:], text[:at] + text[at + 1 :], text[:at] + inserted + text[at + 1 :])
    )


def _at(draw: random.Random) -> str:
    numbers = (draw.randrange(2090, 2200), draw.randrange(14), draw.randrange(33), draw.randrange(26))
    fraction = draw.choice(("", "", ".5", ",25", ".000000001", ".12345678901", "."))
    offset = draw.choice(("Z", "Z", "+01:00", "-23:59", "+24:00", "+00:60", "+0100", "z", ""))
    year, month, day, hour = numbers
    return f"@at {year}-{month:02}-{day:02}T{hour:02}:{draw.randrange(62):02}:{draw.randrange(62):02}{fraction}{offset}"


def _every(draw: random.Random) -> str:
    parts = [
        f"{draw.choice(('', '1', '90', '1.5', '.5', '2.', '007'))}{draw.choice(UNITS)}"
        for _ in range(draw.randint(1, 3))
    ]
    return f"@every {draw.choice(('', '', '', '+', '-'))}{''.join(parts)}"


def _alias(draw: random.Random) -> str:
    return draw.choice(("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@minutely"))


def _cron(draw: random.Random) -> str:
    return draw.choice((" ", " ", "  ", "\t")).join(
        _field(draw, number) for number in range(draw.choice((6, 6, 6, 6, 5, 7)))
    )


def _field(draw: random.Random, number: int) -> str:
    return ",".join(_item(draw, number) for _ in range(draw.choice((1, 1, 1, 2, 3))))


def _item(draw: random.Random, number: int) -> str:
    begin = draw.choice(
        ("*", "?", _value(draw, number), _value(draw, number), f"{_value(draw, number)}-{_value(draw, number)}")
    )
    return begin + draw.choice(("", "", "", "/2", "/7", "/1", "/0", "/", "/100"))


def _value(draw: random.Random, number: int) -> str:
    number = min(number, 5)
    if number >= 4 and draw.random() < 0.3:
        return draw.choice(MONTHS if number == 4 else WEEKDAYS)
    return draw.choice(("", "", "", "0", "+")) + str(draw.randint(LOW[number], HIGH[number] + 1))
