"""Reads the plain words of a cron pattern as a person would, so that a test can compare them with what was meant.

The rule: it uses nothing of the code under test. A sentence that it cannot read is an error.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from tests.schedule.syntax_oracle import is_nearest_weekday

MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
EVERY_HOUR, EVERY_MINUTE, EVERY_SECOND = set(range(24)), set(range(60)), set(range(60))
ALL_MONTHS, ALL_WEEKDAYS = set(range(1, 13)), set(range(7))
DAY_SECONDS = 86_400
LONGEST = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of each month in a leap year."""
UNITS = {"second": 1, "minute": 60, "hour": 3600}
Dates = set[tuple[int, int, int]]
"""Month, day of the month, and day of the week (Sunday is 0)."""


@dataclass(frozen=True)
class Said:
    """The times and dates that some words name."""

    seconds: set[int]
    """Of the day."""
    dates: Dates


def read(words: str, zone: str) -> Said:
    """Read words that end with `in ZONE`."""
    assert words.endswith(f" in {zone}"), words
    days, clock_times = split_times(words.removesuffix(f" in {zone}"))
    return Said(read_times(clock_times), read_days(days))


def split_times(words: str) -> tuple[str, str]:
    """Split days from the times of a day."""
    times = re.search(
        r"(?:^|,? )(at \d\d:\d\d.*|at (?:second|minute)s? .*"
        r"|every second of .*|every minute of .*|every (?:\d+ )?(?:second|minute|hour)s?(?: from \d\d:.*)?)$",
        words,
    )
    assert times, words
    return words[: times.start()], times[1]


# -- times ---------------------------------------------------------------------------------------------------------


def read_times(words: str) -> set[int]:
    """Return the seconds of a day that the words name."""
    if re.match(r"at \d\d:", words):
        return {clock(text) for text in items(words.removeprefix("at "))}
    stepped = re.fullmatch(r"every (?:(\d+) )?(second|minute|hour)s?(?: from (\S+) to (\S+))?", words)
    if stepped:
        count, unit, first, last = stepped.groups()
        step = int(count or 1) * UNITS[unit]
        if first is None:
            assert DAY_SECONDS % step == 0, words
            return set(range(0, DAY_SECONDS, step))
        assert (clock(last) - clock(first)) % step == 0, words
        return set(range(clock(first), clock(last) + 1, step))
    return by_units(re.split(" of (?=every|minute|hour)", words.removeprefix("at ")))


def by_units(parts: list[str]) -> set[int]:
    """Read `second 5`, `minutes 0 to 4`, `every hour`: what is missing below is 0, and what is missing above is all."""
    named: dict[str, set[int]] = {}
    whole = {"second": EVERY_SECOND, "minute": EVERY_MINUTE, "hour": EVERY_HOUR}
    for part in parts:
        kind, _, rest = part.partition(" ")
        if kind == "every":
            named[rest] = whole[rest]
        else:
            named[kind.removesuffix("s")] = numbers(rest)
    assert "hour" in named or "minute" in named, parts
    seconds, minutes = named.get("second", {0}), named["minute"]
    return {h * 3600 + m * 60 + s for h in named.get("hour", EVERY_HOUR) for m in minutes for s in seconds}


def clock(text: str) -> int:
    """Read `09:30` or `09:30:05` as seconds."""
    hour, minute, second = [*map(int, text.split(":")), 0][:3]
    assert hour < 24, text
    assert max(minute, second) < 60, text
    return hour * 3600 + minute * 60 + second


# -- days ----------------------------------------------------------------------------------------------------------


def read_days(words: str) -> Dates:
    """Return the dates that the words name; no words are every day."""
    parts = words.removesuffix(",").split(", and on ")
    assert len(parts) <= 2, words
    return set.union(*(read_part(part) for part in parts))


def read_part(words: str) -> Dates:
    """Read days of the week or of the month."""
    yearly = re.fullmatch(r"every (leap )?year on (\d+) (\w+)", words)
    if yearly:
        month, day = MONTHS.index(yearly[3]) + 1, int(yearly[2])
        assert ((month, day) == (2, 29)) == (yearly[1] is not None), words
        return dates({month}, {day}, ALL_WEEKDAYS)
    monthly = re.fullmatch(r"on (.+) of ([^()]+?)( \(if the month has that day\))?", words)
    if monthly:
        months = ALL_MONTHS if monthly[2] == "every month" else names(monthly[2], MONTHS, 1)
        days = read_month_days(monthly[1])
        assert all(max(days) <= LONGEST[month] - (month == 2) for month in months) != bool(monthly[3]), words
        return dates(months, days, ALL_WEEKDAYS)
    weekly = re.fullmatch(rf"(every .+?|)(?: (?:in|from) ((?:{'|'.join(MONTHS)}).*))?", words)
    assert weekly, words
    months = ALL_MONTHS if weekly[2] is None else names(weekly[2], MONTHS, 1)
    return dates(months, set(range(1, 32)), read_weekdays(weekly[1]))


# -- days that depend on the length of the month, and years --------------------------------------------------------

NUMBERS = ["first", "second", "third", "fourth", "fifth", "last"]


@dataclass(frozen=True)
class SaidOfMonths:
    """The times and days that some words name, if the days are not the same in each month."""

    seconds: set[int]
    matches: Callable[[date], bool]


def read_of_months(words: str, zone: str) -> SaidOfMonths:
    """Read words that end with `in ZONE`, or with years after it."""
    words, _, only = words.partition(f" in {zone}, only in ")
    words = words if only else words.removesuffix(f" in {zone}")
    years = numbers(only) if only else None
    days, times = split_times(words)
    parts = [read_dates(part) for part in re.sub(",$", "", days).split(", and on ")]

    def matches(day: date) -> bool:
        return (years is None or day.year in years) and any(part(day) for part in parts)

    return SaidOfMonths(read_times(times), matches)


def read_dates(words: str) -> Callable[[date], bool]:
    """Read one part of the days as a function of a date."""
    special = re.fullmatch(r"on (the .*?|.* and the last day) of ((?:every month|[A-Z])[^()]*?)(?: \((.*)\))?", words)
    months = ALL_MONTHS if special is None or special[2] == "every month" else names(special[2], MONTHS, 1)
    if special is None or not re.search("weekday|last day|day$", special[1]):
        plain = read_part(words)
        return lambda day: (day.month, day.day, day.isoweekday() % 7) in plain
    shown, remark = special[1], special[3]
    shortest = min(LONGEST[month] - (month == 2) for month in months)
    nearest = re.fullmatch(r"the (first|last) weekday|the weekday nearest to the (\w+)", shown)
    if nearest:
        number = ordinal(nearest[2]) if nearest[2] else {"first": 1, "last": 31}[nearest[1]]
        is_clipped = nearest[2] is not None and number > shortest
        assert remark == ("or to its last day, if the month is shorter" if is_clipped else None), words
        return lambda day: day.month in months and is_nearest_weekday(day, number)
    last_day = re.fullmatch(r"the last day|(.+) and the last day", shown)
    if last_day:
        days = read_month_days(last_day[1]) if last_day[1] else set[int]()
        assert remark == ("if the month has that day" if max(days, default=0) > shortest else None), words
        return lambda day: day.month in months and (day.day in days or (day + timedelta(days=1)).day == 1)
    named = [item.removeprefix("the ").split(" ") for item in items(shown)]
    assert remark == ("if the month has that day" if any(number == "fifth" for number, _ in named) else None), words
    wanted = {(WEEKDAYS.index(weekday), number) for number, weekday in named}
    return lambda day: day.month in months and bool(wanted & numbered(day))


def numbered(day: date) -> set[tuple[int, str]]:
    """Return what a date is among the weekdays of its month: the third Friday, and maybe the last."""
    weekday = day.isoweekday() % 7
    is_last = (day + timedelta(days=7)).month != day.month
    return {(weekday, NUMBERS[(day.day - 1) // 7])} | ({(weekday, "last")} if is_last else set())


def read_month_days(words: str) -> set[int]:
    """Read `the 1st and 15th`, `days 1 to 7`, `every 2nd day from the 1st to the 31st`."""
    stepped = re.fullmatch(r"every (\S+) day from the (\S+) to the (\S+)", words)
    if stepped:
        step, first, last = (ordinal(text) for text in stepped.groups())
        assert (last - first) % step == 0, words
        return set(range(first, last + 1, step))
    if words.startswith("days "):
        return numbers(words.removeprefix("days "))
    assert words.startswith("the "), words
    return {ordinal(text) for text in items(words.removeprefix("the "))}


def read_weekdays(words: str) -> set[int]:
    """Read `every weekday`, `every Friday`, `every day except Sunday`, `every day from Monday to Thursday`."""
    if words in ("", "every day"):
        return ALL_WEEKDAYS
    if words == "every weekday":
        return {1, 2, 3, 4, 5}
    if words.startswith("every day except "):
        return ALL_WEEKDAYS - {WEEKDAYS.index(name) for name in items(words.removeprefix("every day except "))}
    if words.startswith("every day from "):
        first, last = words.removeprefix("every day from ").split(" to ")
        monday_first = WEEKDAYS[1:] + WEEKDAYS[:1]
        run = monday_first[monday_first.index(first) : monday_first.index(last) + 1]
        return {WEEKDAYS.index(name) for name in run}
    return {WEEKDAYS.index(name) for name in items(words.removeprefix("every "))}


def dates(months: set[int], days: set[int], weekdays: set[int]) -> Dates:
    """List the dates that exist in some year."""
    return {(m, d, w) for m in months for d in days for w in weekdays if d <= LONGEST[m]}


# -- lists ---------------------------------------------------------------------------------------------------------


def items(words: str) -> list[str]:
    """Split `a, b and c`."""
    return re.split(r", | and ", words)


def numbers(words: str) -> set[int]:
    """Read `0 to 4, 10 and 20`, or `0 to 57 in steps of 3`."""
    found: set[int] = set()
    for item in items(words):
        run = re.fullmatch(r"(\d+)(?: to (\d+)(?: in steps of (\d+))?)?", item)
        assert run, words
        found |= set(range(int(run[1]), int(run[2] or run[1]) + 1, int(run[3] or 1)))
    return found


def names(words: str, known: list[str], low: int) -> set[int]:
    """Read a list of names with ranges as numbers from `low` on."""
    found: set[int] = set()
    for item in items(words):
        first, _, last = item.partition(" to ")
        found |= set(range(known.index(first) + low, known.index(last or first) + low + 1))
    return found


def ordinal(text: str) -> int:
    """Read `1st`, `22nd`, `13th`."""
    number, ending = int(text[:-2]), text[-2:]
    special = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    assert ending == ("th" if number in (11, 12, 13) else special), text
    return number
