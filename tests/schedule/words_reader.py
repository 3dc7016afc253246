"""Reads the plain words of a cron pattern as a person would, so that a test can compare them with what was meant.

The rule: it uses nothing of the code under test. A sentence that it cannot read is an error.
"""

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
EVERY_HOUR, EVERY_MINUTE, EVERY_SECOND = set(range(24)), set(range(60)), set(range(60))
ALL_WEEKDAYS = set(range(7))
DAY_SECONDS = 86_400
UNITS = {"second": 1, "minute": 60, "hour": 3600}
Matches = Callable[[date], bool]


@dataclass(frozen=True)
class Said:
    """The times of a day and the days that some words name."""

    seconds: set[int]
    matches: Matches


def read(words: str) -> Said:
    """Read words that end with `in UTC`, or with years after it."""
    words, _, only = words.partition(" in UTC, only in ")
    assert only or words.endswith(" in UTC"), words
    years = numbers(only) if only else None
    days, times = split_times(words.removesuffix(" in UTC"))
    parts = [read_days(part) for part in days.removesuffix(",").split(", and on ")]
    assert len(parts) <= 2, words
    return Said(
        read_times(times), lambda day: (years is None or day.year in years) and any(part(day) for part in parts)
    )


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


NUMBERS = ["first", "second", "third", "fourth", "fifth", "last"]


def read_days(words: str) -> Matches:
    """Read days of the week or of the month, or of both; no words are every day."""
    week_days, falls, month_days = words.partition(" that falls ")
    if falls:
        parts = [read_days(week_days), read_days(month_days)]
        return lambda day: all(part(day) for part in parts)
    special = re.fullmatch(r"on (the .*?|.* and the last day) of ((?:every month|[A-Z])[^()]*?)(?: \((.*)\))?", words)
    if special and re.search("weekday|last day|day$", special[1]):
        return read_special(special[1], read_months(special[2]), special[3])
    yearly = re.fullmatch(r"every (leap )?year on (\d+) (\w+)", words)
    if yearly:
        named = MONTHS.index(yearly[3]) + 1, int(yearly[2])
        assert (named == (2, 29)) == (yearly[1] is not None), words
        return lambda day: (day.month, day.day) == named
    monthly = re.fullmatch(r"on (.+) of ([^()]+?)( \(if the month has that day\))?", words)
    if monthly:
        months, days = read_months(monthly[2]), read_month_days(monthly[1])
        assert (max(days) > shortest(months)) == bool(monthly[3]), words
        return lambda day: day.month in months and day.day in days
    weekly = re.fullmatch(rf"(every .+?|)(?: (?:in|from) ((?:{'|'.join(MONTHS)}).*))?", words)
    assert weekly, words
    months, weekdays = read_months(weekly[2] or "every month"), read_weekdays(weekly[1])
    return lambda day: day.month in months and weekday_of(day) in weekdays


def read_special(words: str, months: set[int], remark: str | None) -> Matches:
    """Read days that depend on the length of the month, or on its weekdays."""
    nearest = re.fullmatch(r"the (first|last) weekday|the weekday nearest to the (\w+)", words)
    if nearest:
        number = ordinal(nearest[2]) if nearest[2] else {"first": 1, "last": 31}[nearest[1]]
        is_clipped = nearest[2] is not None and number > shortest(months)
        assert remark == ("or to its last day, if the month is shorter" if is_clipped else None), words
        return lambda day: day.month in months and is_nearest_weekday(day, number)
    last_day = re.fullmatch(r"the last day|(.+) and the last day", words)
    if last_day:
        days = read_month_days(last_day[1]) if last_day[1] else set[int]()
        assert remark == ("if the month has that day" if max(days, default=0) > shortest(months) else None), words
        return lambda day: day.month in months and (day.day in days or (day + timedelta(days=1)).day == 1)
    named = [item.removeprefix("the ").split(" ") for item in items(words)]
    assert remark == ("if the month has that day" if any(number == "fifth" for number, _ in named) else None), words
    wanted = {(WEEKDAYS.index(weekday), number) for number, weekday in named}
    return lambda day: day.month in months and bool(wanted & numbered(day))


def weekday_of(day: date) -> int:
    """Return the day of the week; Sunday is 0."""
    return day.isoweekday() % 7


def numbered(day: date) -> set[tuple[int, str]]:
    """Return what a date is among the weekdays of its month: the third Friday, and maybe the last."""
    is_last = (day + timedelta(days=7)).month != day.month
    return {(weekday_of(day), NUMBERS[(day.day - 1) // 7])} | ({(weekday_of(day), "last")} if is_last else set())


def is_nearest_weekday(day: date, number: int) -> bool:
    """Return whether a date is the weekday that is nearest to a day of its month, or to its last day."""
    length = calendar.monthrange(day.year, day.month)[1]
    weekdays = [n for n in range(1, length + 1) if day.replace(day=n).isoweekday() <= 5]
    return day.day == min(weekdays, key=lambda n: abs(n - min(number, length)))


def shortest(months: set[int]) -> int:
    """Return how many days each of some months has in any year."""
    return min(calendar.monthrange(2026, month)[1] for month in months)


def read_months(words: str) -> set[int]:
    """Read `every month`, or a list of names with ranges."""
    if words == "every month":
        return set(range(1, 13))
    found: set[int] = set()
    for item in items(words):
        first, _, last = item.partition(" to ")
        found |= set(range(MONTHS.index(first) + 1, MONTHS.index(last or first) + 2))
    return found


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


def ordinal(text: str) -> int:
    """Read `1st`, `22nd`, `13th`."""
    number, ending = int(text[:-2]), text[-2:]
    special = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    assert ending == ("th" if number in (11, 12, 13) else special), text
    return number
