"""Patterns and time zones drawn at random: texts that may be wrong anywhere, and cron patterns that fire soon.

Its rule: of a cron pattern that fires soon the meaning is known from how it was drawn (`tests.schedule.oracle`).
So the answer of a server can be judged without asking the parser under test.
"""

import random
from datetime import datetime
from zoneinfo import available_timezones

from tests.schedule.oracle import HIGH, LOW, Drawn, Meaning, Wall

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

ALL_ZONES = sorted(available_timezones() - {"Factory", "localtime"})

ZONES = (
    *(None, "UTC", "GMT", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/St_Johns"),
    *("America/Los_Angeles", "America/Sao_Paulo", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Asia/Tehran"),
    *("Australia/Sydney", "Australia/Adelaide", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Apia", "Etc/GMT+12"),
    *("Pacific/Kiritimati", "Africa/Johannesburg", "EST", "US/Pacific", "Asia/Colombo"),
)
"""Zones of which each run draws a pattern, beside zones that are drawn."""

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
QUIET_SECONDS = 21
"""A pattern that fires soon does not match so shortly before, or after: one who is late passes over the next fire."""


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


def firing_at(draw: random.Random, wall: Wall) -> Meaning:
    """Draw a cron pattern that matches what a wall clock shows, and no second shortly before or after."""
    second = wall[0]
    quiet = {(second + beside) % 60 for beside in range(-QUIET_SECONDS, QUIET_SECONDS + 1)}
    others = draw.sample([value for value in range(60) if value not in quiet], draw.choice((0, 0, 1, 3)))
    seconds = _list_of(draw, {second, *others}, 0)
    return Meaning((seconds, *(_around(draw, number, wall[number]) for number in range(1, 6))))


def _around(draw: random.Random, number: int, value: int) -> Drawn:
    """Draw a field that has a value among others."""
    low, high = LOW[number], HIGH[number]
    kind = draw.choice(("star", "list", "list", "range", "step"))
    if kind == "star":
        return Drawn(draw.choice("*?"), frozenset(range(low, high + 1)), star=True)
    if kind == "list":
        return _list_of(draw, {value, *(draw.randint(low, high) for _ in range(draw.choice((0, 0, 1, 3))))}, number)
    first, last, step = draw.randint(low, value), draw.randint(value, high), 1
    if kind == "step":
        step = draw.randint(2, 9)
        first = value - draw.randint(0, (value - low) // step) * step
    text = f"{_named(draw, first, number)}-{_named(draw, last, number)}" + (f"/{step}" if step > 1 else "")
    return Drawn(text, frozenset(range(first, last + 1, step)))


def _list_of(draw: random.Random, values: set[int], number: int) -> Drawn:
    shuffled = draw.sample(sorted(values), len(values))
    return Drawn(",".join(_named(draw, value, number) for value in shuffled), frozenset(values))


def _named(draw: random.Random, value: int, number: int) -> str:
    """Write a value, some months and weekdays by their names."""
    if number < 4 or draw.random() < 0.6:
        return str(value)
    name = MONTHS[value - 1] if number == 4 else WEEKDAYS[value]
    return draw.choice((name, name.upper(), name.title()))
