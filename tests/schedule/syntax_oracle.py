"""The independent oracle for the syntaxes `crontab` and `quartz`: it draws patterns together with their meaning.

The rule: it uses nothing of the grammar or the search under test. The meaning of a day field is a function of a date,
and the calendar is that of the standard library.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from random import Random

from tests.schedule.oracle import Drawn

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIRST_YEAR, LAST_YEAR = 1970, 2099


@dataclass(frozen=True)
class DrawnDays:
    """A day field: its text, the dates that it stands for, and whether it is unrestricted."""

    text: str
    matches: Callable[[date], bool]
    star: bool = False


@dataclass(frozen=True)
class SyntaxMeaning:
    """A pattern in one of the syntaxes."""

    times: tuple[Drawn, Drawn, Drawn]
    """Second, minute and hour; a crontab does not write its second."""
    month_days: DrawnDays
    months: Drawn
    week_days: DrawnDays
    years: Drawn | None = None
    is_crontab: bool = False

    @property
    def syntax(self) -> str:
        """The value of the policy."""
        return "crontab" if self.is_crontab else "quartz"

    @property
    def text(self) -> str:
        """The pattern."""
        written = [field.text for field in self.times[1 if self.is_crontab else 0 :]]
        written += [self.month_days.text, self.months.text, self.week_days.text]
        return " ".join(written if self.years is None else [*written, self.years.text])

    def matches_day(self, day: date) -> bool:
        """Return whether the pattern fires on a date."""
        if day.month not in self.months.values or (self.years is not None and day.year not in self.years.values):
            return False
        both = self.month_days.star or self.week_days.star
        found = self.month_days.matches(day), self.week_days.matches(day)
        return all(found) if both else any(found)

    def matches(self, wall: datetime) -> bool:
        """Return whether the pattern fires when the wall clock shows this."""
        shown = wall.second, wall.minute, wall.hour
        if not all(value in field.values for value, field in zip(shown, self.times, strict=True)):
            return False
        return self.matches_day(wall.date())

    def fires(self, after: int) -> Iterator[int]:
        """Yield the seconds after a second at which it fires in UTC, each day checked, up to the horizon of `after`."""
        wall = datetime.fromtimestamp(after + 1, UTC)
        day = wall.date()
        while day.year <= wall.year + 5:
            if self.matches_day(day):
                midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
                yield from (midnight + second for second in self._seconds() if midnight + second > after)
            day += timedelta(days=1)

    def _seconds(self) -> Iterator[int]:
        seconds, minutes, hours = (sorted(field.values) for field in self.times)
        return (hour * 3600 + minute * 60 + second for hour in hours for minute in minutes for second in seconds)


# -- the meaning of days, as naive as possible ---------------------------------------------------------------------


def length_of_month(day: date) -> int:
    """Return how many days the month of a date has."""
    return calendar.monthrange(day.year, day.month)[1]


def is_nearest_weekday(day: date, number: int) -> bool:
    """Return whether a date is the weekday that is nearest to a day of its month, or to its last day."""
    meant = min(number, length_of_month(day))
    weekdays = [n for n in range(1, length_of_month(day) + 1) if day.replace(day=n).isoweekday() <= 5]
    return day.day == min(weekdays, key=lambda n: abs(n - meant))


def is_nth(day: date, weekday: int, number: int) -> bool:
    """Return whether a date is a weekday (Sunday is 0) with a number in its month."""
    return day.isoweekday() % 7 == weekday and (day.day - 1) // 7 + 1 == number


def is_last(day: date, weekday: int) -> bool:
    """Return whether a date is the last one of its weekday in its month."""
    return day.isoweekday() % 7 == weekday and (day + timedelta(days=7)).month != day.month


# -- drawing -------------------------------------------------------------------------------------------------------


def drawn_meaning(random: Random) -> SyntaxMeaning:
    """Draw a pattern."""
    is_crontab = random.random() < 0.5
    second = Drawn("0", frozenset({0})) if is_crontab else drawn_field(random, 0, 59)
    minute, hour = drawn_field(random, 0, 59), drawn_field(random, 0, 23)
    month_days, week_days = drawn_days(random)
    months = drawn_field(random, 1, 12, MONTHS)
    years = None if is_crontab or random.random() < 0.6 else drawn_years(random)
    return SyntaxMeaning((second, minute, hour), month_days, months, week_days, years, is_crontab)


def drawn_field(random: Random, low: int, high: int, names: tuple[str, ...] = ()) -> Drawn:
    """Draw a list of values, ranges and steps, or a star."""
    if random.random() < 0.3:
        return Drawn("*", frozenset(range(low, high + 1)), star=True)
    items = [_item(random, low, high, names) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    return Drawn(",".join(item.text for item in items), frozenset[int]().union(*(item.values for item in items)))


def _item(random: Random, low: int, high: int, names: tuple[str, ...]) -> Drawn:
    def written(value: int) -> str:
        is_named = names and value - low < len(names) and random.random() < 0.5
        return random.choice([names[value - low], names[value - low].upper()]) if is_named else str(value)

    step = random.choice([1, 2, 3, 7, 15, 100])
    first, last = random.sample(range(low, high + 1), 2)
    kind = random.choice(["value", "value", "range", "wrapped", "stepped", "from", "star"])
    if kind == "value":
        return Drawn(written(first), frozenset({first}))
    if kind == "wrapped":
        around = [*range(max(first, last), high + 1), *range(low, min(first, last) + 1)]
        return Drawn(f"{written(max(first, last))}-{written(min(first, last))}", frozenset(around))
    if kind == "from":
        return Drawn(f"{written(first)}/{step}", frozenset(range(first, high + 1, step)))
    if kind == "star":
        return Drawn(f"*/{step}", frozenset(range(low, high + 1, step)))
    begin, end = sorted((first, last))
    step = step if kind == "stepped" else 1
    return Drawn(
        f"{written(begin)}-{written(end)}" + (f"/{step}" if kind == "stepped" else ""),
        frozenset(range(begin, end + 1, step)),
    )


def drawn_years(random: Random) -> Drawn:
    """Draw years around 2026."""
    first = random.randint(2020, 2032)
    last = first + random.randint(1, 4)
    return random.choice(
        [
            Drawn("*", frozenset(range(FIRST_YEAR, LAST_YEAR + 1)), star=True),
            Drawn(str(first), frozenset({first})),
            Drawn(f"{first}-{last}", frozenset(range(first, last + 1))),
            Drawn(f"{first},{last}", frozenset({first, last})),
            Drawn(f"{first}/2", frozenset(range(first, LAST_YEAR + 1, 2))),
        ]
    )


def drawn_days(random: Random) -> tuple[DrawnDays, DrawnDays]:
    """Draw the two day fields; `W`, `#` and the last weekday stand beside a star only."""
    unrestricted = DrawnDays(random.choice("*?"), lambda _day: True, star=True)
    kind = random.choice(["plain", "plain", "last", "nearest", "weekdays"])
    if kind == "nearest":
        return drawn_nearest(random), unrestricted
    if kind == "weekdays":
        return unrestricted, drawn_weekdays(random)
    month_days = drawn_last_day(random) if kind == "last" else plain_days(drawn_field(random, 1, 31), _day_of_month)
    week_days = drawn_field(random, 0, 6, WEEKDAYS)
    text = week_days.text.replace("0", "7") if week_days.text in ("0", "0,0") else week_days.text
    return month_days, plain_days(Drawn(text, week_days.values, week_days.star), _day_of_week)


def _day_of_month(day: date) -> int:
    return day.day


def _day_of_week(day: date) -> int:
    return day.isoweekday() % 7


def plain_days(field: Drawn, read: Callable[[date], int]) -> DrawnDays:
    """Return a day field that has no more than values."""
    return DrawnDays(field.text, lambda day: read(day) in field.values, field.star)


def drawn_last_day(random: Random) -> DrawnDays:
    """Draw the last day of the month, alone, in a list or as the end of a range."""
    number = random.randint(1, 30)
    return random.choice(
        [
            DrawnDays("L", lambda day: day.day == length_of_month(day)),
            DrawnDays(f"{number},l", lambda day: day.day in (number, length_of_month(day))),
            DrawnDays(f"{number}-L", lambda day: day.day >= number),
        ]
    )


def drawn_nearest(random: Random) -> DrawnDays:
    """Draw the weekday that is nearest to a day."""
    number = random.randint(1, 31)
    return DrawnDays(random.choice(["{}W", "W{}", "{}w"]).format(number), lambda day: is_nearest_weekday(day, number))


def drawn_weekdays(random: Random) -> DrawnDays:
    """Draw one to three weekdays with a number, or the last of the month."""
    texts, found = list[str](), list[tuple[int, int]]()
    for _ in range(random.choice([1, 1, 2, 3])):
        weekday, number = random.randint(0, 6), random.randint(0, 5)
        if number == 0:
            texts.append(f"{random.choice('Ll')}{weekday or random.choice([0, 7])}")
            found.append((weekday, 0))
        elif random.random() < 0.2:
            texts.append(f"{WEEKDAYS[weekday]}-{WEEKDAYS[(weekday + 2) % 7]}#{number}")
            found += [((weekday + more) % 7, number) for more in range(3)]
        else:
            texts.append(f"{random.choice([str(weekday), WEEKDAYS[weekday].upper()])}#{number}")
            found.append((weekday, number))

    def matches(day: date) -> bool:
        return any(is_nth(day, weekday, number) if number else is_last(day, weekday) for weekday, number in found)

    return DrawnDays(",".join(texts), matches)
