"""The cron grammar of nats-server: six fields, read into bit masks.

One rule: exactly the texts that the server accepts are accepted, with the same meaning, oddities included.
A field becomes one integer in which bit n is set if n matches, plus STAR, so that matching is arithmetic.
The two day fields are also combined once, into a mask for each length of a month and each weekday on which it begins.
Different patterns often have fields in common, so the masks of fields are cached.
Cost: a few microseconds for a pattern whose fields are cached, 70 µs otherwise; `patterns` shares equal patterns.
A list may fill a header of 64 KB and is parsed in some milliseconds: items with the same meaning are parsed once.
Limit: `L`, `W`, `#`, day 7, wrapped ranges and a year field are not in the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from nats_scheduler.schedule.calendars import DayRows
from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, civil_from_days, days_from_civil, days_in_month
from nats_scheduler.schedule.invalid import FaultError, Invalid
from nats_scheduler.schedule.zones import UTC, Zone

# The days and seconds that cron fields match, on a calendar without time zones.
#
# One rule: local seconds in, local seconds out; a local second counts from 1970-01-01T00:00:00 local time.
# The fields are bit masks, so "the next one" is the lowest bit left after a shift and "the last one" the highest bit
# left under a mask. A search looks once at each month that the pattern names, and never at single days or seconds.
# A month has one of four lengths and begins on one of seven weekdays, and nothing else decides which of its days match.
# So all that can be written about days, `L`, `W` and `#` of other syntaxes included, is a table of 28 masks.
# The forward and the backward search are the same one, with a step of 1 or -1.
# Days that are excepted (`schedule.bounds`) are left out of the mask of each month, so they cost no step of their own.
# Cost: about 3 µs, plus 1 µs for each month without a match that the search passes; with excepted days 2 to 5 µs.
# Limit: the caller gives the year at which the search ends.

STAR = 1 << 63
"""Set in a field that holds an unrestricted `*` or `?`."""

FIRST_YEAR, LAST_YEAR = 1970, 2099
"""The years that a pattern can name."""

MONTH_LENGTHS = (28, 29, 30, 31)

LAST = 0
"""The number of the last Friday of a month, where 1 is that of the first."""

_SUNDAY, _SATURDAY = 0, 6
_ALL_WEEKDAYS = (1 << 7) - 1
_EACH_WEEK = sum(1 << 7 * week for week in range(5))
"""A product with a mask of weekdays repeats it in each week of a month."""


class NthWeekday(NamedTuple):
    """One weekday of each month: the second Tuesday is (2, 2), the last one (2, LAST)."""

    weekday: int
    """0–6, Sunday is 0."""
    number: int
    """1–5, or `LAST`."""


@dataclass(frozen=True, slots=True)
class NamedDays:
    """The days that masks cannot name, since they are not the same in each month."""

    last: bool = False
    """True if the last day of the month matches, besides the days of the month."""
    nearest: int | None = None
    """The day of the month (1–31) whose nearest weekday matches, and no other day."""
    nth: tuple[NthWeekday, ...] = ()
    """The weekdays that match, and no other day."""


NO_NAMED_DAYS = NamedDays()


@dataclass(frozen=True, slots=True)
class CronFields:
    """The fields of a pattern as bit masks: bit n is set if n matches."""

    seconds: int
    minutes: int
    hours: int
    days_of_month: int
    """With STAR if the field is unrestricted."""
    months: int
    days_of_week: int
    """With STAR if the field is unrestricted; Sunday is bit 0."""
    days: tuple[tuple[int, ...], ...]
    """The matching days (bits 1–31) of months of 28, 29, 30 and 31 days that begin on a Sunday, on a Monday, …"""
    named: NamedDays = NO_NAMED_DAYS
    years: int | None = None
    """Bit n is the year 1970 + n; None is every year."""
    excepted: tuple[DayRows, ...] = ()
    """The days that do not match, whatever the other fields say."""

    def first_match(self, local: int, last_year: int) -> int | None:
        """Return the first matching second at or after `local`, up to the end of the last year."""
        return self._match(local, last_year, 1)

    def last_match(self, local: int, first_year: int) -> int | None:
        """Return the last matching second at or before `local`, down to the beginning of the first year."""
        return self._match(local, first_year, -1)

    def _match(self, local: int, end_year: int, step: int) -> int | None:
        """Return the nearest matching second from `local` on, in the direction of `step`, up to a year."""
        days, time_of_day = divmod(local, SECONDS_PER_DAY)
        year, month, day = civil_from_days(days)
        if (year - end_year) * step > 0:
            return None
        if self.months >> month & 1 and self.days_of(year, month, days - day + 1) >> day & 1:
            time = self._time(time_of_day, step)
            if time is not None:
                return days * SECONDS_PER_DAY + time
        found = self._day(year, month, day, end_year, step)
        if found is None:
            return None
        time = outermost(self.hours, step) * 3600 + outermost(self.minutes, step) * 60 + outermost(self.seconds, step)
        return found * SECONDS_PER_DAY + time

    def _time(self, time_of_day: int, step: int) -> int | None:
        """Return the nearest matching second of a day from `time_of_day` (0–86,399) on."""
        minute_of_day, second = divmod(time_of_day, 60)
        hour, minute = divmod(minute_of_day, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := nearest(self.seconds, second, step)) is not None:
                return minute_of_day * 60 + found
            if (found := nearest(self.minutes, minute + step, step)) is not None:
                return hour * 3600 + found * 60 + outermost(self.seconds, step)
        if (found := nearest(self.hours, hour + step, step)) is not None:
            return found * 3600 + outermost(self.minutes, step) * 60 + outermost(self.seconds, step)
        return None

    def _day(self, year: int, month: int, day: int, end_year: int, step: int) -> int | None:
        """Return the nearest matching day beyond a date, in days since 1970-01-01."""
        while True:
            if self.months >> month & 1:
                first = days_from_civil(year, month, 1)
                found = nearest(self.days_of(year, month, first), day + step, step)
                if found is not None:
                    return first - 1 + found
            day = 0 if step > 0 else 32
            other = nearest(self.months, month + step, step)
            if other is not None:
                month = other
            elif year == end_year:
                return None
            else:
                year, month = year + step, outermost(self.months, step)

    def days_of(self, year: int, month: int, first: int) -> int:
        """Return the matching days of a month as bits 1–31; `first` is its first day, in days since 1970-01-01."""
        if self.years is not None and not (year >= FIRST_YEAR and self.years >> year - FIRST_YEAR & 1):
            return 0
        days = self.days[days_in_month(year, month) - MONTH_LENGTHS[0]][(first + 4) % 7]
        for excepted in self.excepted:
            days &= ~excepted.of_month(first)
        return days


@lru_cache(maxsize=1_024)
def days_by_length(
    days_of_month: int, days_of_week: int, named: NamedDays = NO_NAMED_DAYS
) -> tuple[tuple[int, ...], ...]:
    """Return the matching days of months of 28 to 31 days, for each weekday on which a month can begin.

    As the server does: if one of the two day fields has the star, both must match; otherwise one is enough
    (`docs/reference/patterns.md`, "Which day").
    """
    both = (days_of_month | days_of_week) & STAR
    table = []
    for length in MONTH_LENGTHS:
        masks = []
        for first in range(7):
            month_days = _month_days(days_of_month, named, length, first)
            week_days = _week_days(days_of_week, named.nth, length, first)
            masks.append((month_days & week_days if both else month_days | week_days) & (2 << length) - 2)
        table.append(tuple(masks))
    return tuple(table)


def nearest_weekday(day: int, length: int, first: int) -> int:
    """Return the day from Monday to Friday that is nearest to a day, in the same month.

    `length` is that of the month, `first` the weekday on which it begins. A day that the month does not have is its
    last one.
    """
    day = min(day, length)
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _month_days(days_of_month: int, named: NamedDays, length: int, first: int) -> int:
    if named.nearest is not None:
        return 1 << nearest_weekday(named.nearest, length, first)
    return days_of_month & ~STAR | (1 << length if named.last else 0)


def _week_days(days_of_week: int, nth: Sequence[NthWeekday], length: int, first: int) -> int:
    if not nth:
        week = days_of_week & _ALL_WEEKDAYS
        return ((week >> first | week << 7 - first) & _ALL_WEEKDAYS) * _EACH_WEEK << 1
    mask = 0
    for weekday, number in nth:
        earliest = 1 + (weekday - first) % 7
        if number == LAST:
            mask |= 1 << earliest + (length - earliest) // 7 * 7
        else:
            mask |= 1 << earliest + (number - 1) * 7
    return mask


def nearest(mask: int, number: int, step: int) -> int | None:
    """Return the first bit that is set from a number (-1 or more) on, in the direction of `step`; None if none is."""
    if step > 0:
        rest = mask >> number
        return number + (rest & -rest).bit_length() - 1 if rest else None
    rest = mask & (1 << number + 1) - 1
    return rest.bit_length() - 1 if rest else None


def outermost(mask: int, step: int) -> int:
    """Return the bit that is set and comes first in the direction of `step`; the mask must not be 0."""
    return (mask & -mask if step > 0 else mask).bit_length() - 1


def values_of(mask: int) -> list[int]:
    """Return the numbers of the bits that are set."""
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Go's `unicode.IsSpace`; Python's `str.split()` also splits at \\x1c–\\x1f."""

_words = re.compile(f"[^{WHITE_SPACE}]+").findall
_number = re.compile(r"\+?([0-9]+)").fullmatch
_MAX_NUMBER = (1 << 63) - 1
_MAX_DIGITS = 19
"""The largest number has this many digits."""
_LEAP_YEAR = 2000
_MAX_CACHED_FIELD_CHARS = 64
"""Longer fields are not cached, so that the cache stays small."""
_MAX_STEP = 64
"""A step beyond every range: all steps from here on mean the same."""

_MULTIPLES = (0, *(sum(1 << value for value in range(0, 64, step)) for step in range(1, _MAX_STEP + 1)))
"""The multiples of each step, as bits."""

_after_star = re.compile(r"(?<![^,])([*?])-[^,/]*").sub
_leading_zeros = re.compile(r"(?<![^,/-])\+?0+(?=[0-9])").sub


@dataclass(frozen=True, slots=True)
class Field:
    """The bounds of one field, and the names that stand for its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Names of low, low + 1, …"""

    @property
    def expected(self) -> str:
        """Say what may be written in the field."""
        names = f", a name {self.names[0]}–{self.names[-1]}" if self.names else ""
        return f"a number {self.low}–{self.high}{names}, a range or *"


FIELDS = (
    Field("second", 0, 59),
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    Field("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


def parse_cron(text: str) -> CronFields | Invalid:
    """Parse six fields: second, minute, hour, day of month, month, day of week.

    A pattern that matches no day of any year, or no time of day, is rejected here, without a search
    (`test_a_pattern_that_can_never_match_is_refused_at_once`).
    """
    words: list[str] = _words(text)
    if len(words) != len(FIELDS):
        return Invalid(text, _explain_count(words))
    try:
        seconds, minutes, hours, days_of_month, months, days_of_week = map(_field_of, range(len(FIELDS)), words)
        days = days_by_length(days_of_month, days_of_week)
        check_possible(seconds, minutes, hours, months, days)
    except FaultError as fault:
        return Invalid(text, fault.reason)
    return CronFields(
        seconds & ~STAR, minutes & ~STAR, hours & ~STAR, days_of_month, months & ~STAR, days_of_week, days
    )


def _explain_count(words: list[str]) -> str:
    """Return the reason why this number of fields is wrong."""
    expected = "expected 6 fields (second minute hour day-of-month month day-of-week)"
    return f"{expected}, got {len(words)}"


def _field_of(number: int, word: str) -> int:
    """Parse field 0–5; a long one is not cached."""
    return _read_field(number, word) if len(word) > _MAX_CACHED_FIELD_CHARS else _read_cached_field(number, word)


def _read_field(number: int, word: str) -> int:
    """Parse the list of ranges of field 0–5 as a mask; raises `FaultError`.

    As the server does: empty items are ignored, and a list of nothing but commas matches nothing
    (`test_empty_items_of_a_list_are_ignored`).
    """
    mask = 0
    for item in _items(word):
        mask |= _read_item(FIELDS[number], item) if item else 0
    return mask


_read_cached_field = lru_cache(maxsize=4_096)(_read_field)


def _items(word: str) -> Iterable[str]:
    """Split a list; of a long one, return each item once, without the parts that the grammar ignores.

    A list that repeats the same items is legal up to the 64 KB of a header; its cost must depend on the number of
    different items, not on its length (`test_a_pattern_of_any_length_is_cheap`).
    """
    if len(word) <= _MAX_CACHED_FIELD_CHARS:
        return word.split(",")
    shortened = _leading_zeros("", _after_star(r"\1", word))
    return dict.fromkeys(shortened.split(","))


def _read_item(field: Field, item: str) -> int:
    """Parse `*`, `n` or `a-b`, each with or without `/step`."""
    span, *steps = item.split("/")
    if len(steps) > 1:
        raise FaultError(f"{field.name} {item!r} has two slashes")
    step = _read_number(steps[0]) if steps else 1
    if not step:
        raise FaultError(f"{field.name} {item!r} needs a step of 1 or more after the slash")
    low, high, star = _read_span(field, item, span, bool(steps))
    bits = _MULTIPLES[min(step, _MAX_STEP)] << low & (2 << high) - 1
    # As the server does: a step above 1 makes a star a restriction (`test_a_stepped_star_is_a_restriction`).
    return bits | STAR if star and step == 1 else bits


def _read_span(field: Field, item: str, span: str, stepped: bool) -> tuple[int, int, bool]:
    """Parse the part before the step: return the lowest and the highest value, and whether it is a star."""
    first, *rest = span.split("-")
    if first in ("*", "?"):
        # As the server does: what follows a hyphen after a star is ignored (`test_text_after_a_star_is_ignored`).
        return field.low, field.high, True
    if len(rest) > 1:
        raise FaultError(f"{field.name} {item!r} has two hyphens")
    low = _read_value(field, first)
    high = _read_value(field, rest[0]) if rest else low
    if low is None or high is None:
        raise FaultError(f"{field.name} {item!r} is not {field.expected}")
    if stepped and not rest:
        high = field.high
    if low < field.low:
        raise FaultError(f"{field.name} {low} is below {field.low}")
    if high > field.high or low > field.high:
        raise FaultError(f"{field.name} {max(low, high)} is above {field.high}")
    if low > high:
        raise FaultError(f"{field.name} range {low}-{high} runs backwards (ranges do not wrap around)")
    return low, high, False


def _read_value(field: Field, text: str) -> int | None:
    """Parse a number, or a name in any case."""
    number = _read_number(text)
    if number is not None or not field.names:
        return number
    # As the server does: Go converts the dotted capital I to i, so FRİ is Friday
    # (`test_names_are_folded_as_go_folds_them`).
    name = text.replace("\u0130", "i").lower()
    return field.low + field.names.index(name) if name in field.names else None


def _read_number(text: str) -> int | None:
    """Parse the non-negative numbers that Go's `Atoi` accepts: ASCII digits, 63 bits, optionally with a plus."""
    digits = _number(text)
    if digits is None:
        return None
    significant = digits[1].lstrip("0") or "0"
    # Python raises an error for thousands of digits, and Go for every number of more than 63 bits.
    return int(significant) if len(significant) <= _MAX_DIGITS and int(significant) <= _MAX_NUMBER else None


def check_possible(seconds: int, minutes: int, hours: int, months: int, days: tuple[tuple[int, ...], ...]) -> None:
    """Raise `FaultError` if a pattern can never match in any year."""
    for field, mask in zip(FIELDS, (seconds, minutes, hours), strict=False):
        if mask == 0:
            raise FaultError(f"the list of the {field.name} field is empty, so nothing ever matches")
    longest = _longest_month(months)
    if not (longest and any(days[longest - MONTH_LENGTHS[0]])):
        raise FaultError("none of the given months has one of the given days")


@lru_cache(maxsize=4_096)
def _longest_month(months: int) -> int:
    """Return the most days that one of the months can have, 0 if there is none."""
    return max((days_in_month(_LEAP_YEAR, month) for month in range(1, 13) if months >> month & 1), default=0)


# The fire times of a cron schedule.
#
# One rule: a cron schedule fires at exactly the instants whose local wall-clock fields match. Therefore a local time
# that the clock skips (a gap) has no fire that day, and one that occurs twice (a fold) has two. There is no
# correction that could be wrong; nats-server has some (`docs/reference/patterns.md`, "Better than the server"). The
# search applies the calendar without time zones to each segment of constant UTC offset, within which local time has
# no gap and no fold. Cost: a few microseconds for any pattern, and one for each change of offset that the search
# passes. Limit: the server's horizon, 31 December of the fifth year after that of the start.

HORIZON_YEARS = 5
"""As the server does: a schedule has ended if it has no match up to the end of the year that is this much later
(`test_the_last_day_of_the_fifth_year_is_within_the_horizon_and_the_next_is_not`)."""

_BACKWARD_SEARCH_NS = 4 * 365 * SECONDS_PER_DAY * SECOND
"""The time that one step of `latest_fire` searches back; two fires that are this close are within the horizon."""


def next_fire(fields: CronFields, zone: Zone | None, after: int) -> int | None:
    """Return the first fire time strictly after an instant; None beyond the horizon. Without a zone it is UTC."""
    start = after // SECOND + 1
    if zone is not None:
        return _next_fire_in(fields, zone, start)
    match = fields.first_match(start, _year(start) + HORIZON_YEARS)
    return None if match is None else match * SECOND


def _next_fire_in(fields: CronFields, zone: Zone, start: int) -> int | None:
    """Search the local calendar, from a second of UTC on, and once again only where the clock was changed before that.

    A match beyond the end of a segment is that of the next one too, unless the clock skips it, or goes back to before
    the time at which the search began.
    """
    segment = zone.segment_at(start * SECOND)
    begun = start + segment.offset
    last_year = _year(begun) + HORIZON_YEARS
    match = fields.first_match(begun, last_year)
    while True:
        if match is not None and (segment.end is None or (match - segment.offset) * SECOND < segment.end):
            return (match - segment.offset) * SECOND
        if segment.end is None:
            return None
        start, segment = segment.end // SECOND, zone.segment_at(segment.end)
        local = start + segment.offset
        if local < begun or (match is not None and match < local):
            begun, match = local, fields.first_match(local, last_year)
        elif match is None:
            return None


def latest_fire(fields: CronFields, zone: Zone | None, after: int, until: int) -> int | None:
    """Return the last fire time in (after, until] of a schedule that fires from `after` on.

    A schedule that reaches its horizon within this period has ended there, so a long outage is searched in parts.
    """
    latest, start = None, after
    while start < until:
        reached = min(start + _BACKWARD_SEARCH_NS, until)
        found = _last_fire(fields, zone, start, reached)
        if found is None:
            found = next_fire(fields, zone, start) if reached < until else None
        if found is None or found > until:
            return latest
        latest = start = found
        if reached == until:
            return latest
    return latest


def _last_fire(fields: CronFields, zone: Zone | None, after: int, until: int) -> int | None:
    """Return the last match in (after, until], without regard to the horizon."""
    end = until // SECOND
    first_year = _year(after // SECOND) - 1  # the offset may move the local year by one
    if zone is not None:
        fire = _last_fire_in(fields, zone, after, end, first_year)
    else:
        fire = fields.last_match(end, first_year)
    return fire * SECOND if fire is not None and fire * SECOND > after else None


def _last_fire_in(fields: CronFields, zone: Zone, after: int, end: int, first_year: int) -> int | None:
    """Search the local calendar, from a second of UTC back to the segment that contains `after`, as `_next_fire_in`."""
    segment = zone.segment_at(end * SECOND)
    begun = end + segment.offset
    match = fields.last_match(begun, first_year)
    while True:
        if match is not None and (segment.start is None or (match - segment.offset) * SECOND >= segment.start):
            return match - segment.offset
        if segment.start is None or segment.start <= after:
            return None
        end, segment = segment.start // SECOND - 1, zone.segment_at(segment.start - 1)
        local = end + segment.offset
        if local > begun or (match is not None and match > local):
            begun, match = local, fields.last_match(local, first_year)
        elif match is None:
            return None


# The number of times that a pattern fires between two instants, without finding each of these times.
#
# One rule: the count is that of the fire times. They are counted month by month, in each segment of constant UTC
# offset: all days that match have the same times of day. Cost: about a microsecond for each month. Limit: the horizon
# is not regarded, which ends a schedule without a fire in five years.


def count_fires(fields: CronFields, zone: Zone | None, after: int, until: int) -> int:
    """Return how many fire times there are in (after, until]."""
    count, start, end = 0, after // SECOND + 1, until // SECOND
    while start <= end:
        segment = (zone or UTC).segment_at(start * SECOND)
        last = end if segment.end is None else min(end, segment.end // SECOND - 1)
        count += _count_matches(fields, start + segment.offset, last + segment.offset)
        start = last + 1
    return count


def _count_matches(fields: CronFields, first: int, last: int) -> int:
    """Count the local seconds from `first` to `last` that match."""
    first_day, begin = divmod(first, SECONDS_PER_DAY)
    last_day, end = divmod(last, SECONDS_PER_DAY)
    in_a_day = _up_to(fields, SECONDS_PER_DAY - 1)
    count = 0
    year, month, _day = civil_from_days(first_day)
    while (month_begins := days_from_civil(year, month, 1)) <= last_day:
        if fields.months >> month & 1:
            begins, ends = first_day - month_begins + 1, last_day - month_begins + 1
            days = fields.days_of(year, month, month_begins)
            days &= (2 << min(ends, 31)) - (1 << max(begins, 1))  # bit n is day n of the month
            count += days.bit_count() * in_a_day
            if begins >= 1 and days >> begins & 1:
                count -= _up_to(fields, begin - 1)
            if ends <= 31 and days >> ends & 1:
                count -= in_a_day - _up_to(fields, end)
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return count


def _up_to(fields: CronFields, time_of_day: int) -> int:
    """Return how many times of day match up to this one (-1 to 86,399 s)."""
    minute_of_day, second = divmod(time_of_day, 60)
    hour, minute = divmod(minute_of_day, 60)
    if time_of_day < 0:
        return 0
    seconds = fields.seconds.bit_count()
    count = (fields.hours & (1 << hour) - 1).bit_count() * fields.minutes.bit_count() * seconds
    if fields.hours >> hour & 1:
        count += (fields.minutes & (1 << minute) - 1).bit_count() * seconds
        if fields.minutes >> minute & 1:
            count += (fields.seconds & (2 << second) - 1).bit_count()
    return count


def _year(local: int) -> int:
    return civil_from_days(local // SECONDS_PER_DAY)[0]
