"""Explain the usual mistakes in patterns that the grammar rejects, each with the text to write instead.

Rule: `explain` is called only after the grammar has rejected a text, and the text stays rejected. The grammar accepts
every text that an explanation proposes. `uneven_steps` are those that it accepts, and that seldom mean what was meant.
Cost: some microseconds for a short text; long texts are not examined. Limit: the guess is about the form, not about the
intent: a time without a zone is proposed in UTC, because UTC is the default zone of a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nats_scheduler.schedule.cron import FIELDS, parse_cron
from nats_scheduler.schedule.cron_fields import STAR, CronFields, values_of
from nats_scheduler.schedule.cron_syntax import Syntax, parse_syntax
from nats_scheduler.schedule.days import MAX_EVERY_DAYS
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

MAX_EXPLAINED_CHARS = 100
"""Longer texts are not searched for mistakes."""

_DATE_AND_TIME = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[Tt ]+([0-9:.,]+))? *(\S*)").fullmatch
_COMPACT_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})?").fullmatch
_EPOCH = re.compile(r"[0-9]{9,11}|[0-9]{12,14}").fullmatch
_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-zµ]*)")
_MILLISECONDS_MIN_DIGITS = 12
"""A number with this many digits or more counts milliseconds, a shorter one seconds."""

_HOURS_BY_UNIT = {"d": 24, "day": 24, "days": 24, "w": 168, "week": 168, "weeks": 168}
_UNIT_NAMES = {
    "": "s",
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "min": "m",
    "mins": "m",
    "minute": "m",
    "minutes": "m",
    "hr": "h",
    "hrs": "h",
    "hour": "h",
    "hours": "h",
}


def explain(text: str, reason: str, aliases: Iterable[str]) -> str:
    """Return why a pattern is invalid and how to correct it; `reason` is the reason that the grammar gave."""
    if len(text) > MAX_EXPLAINED_CHARS:
        return reason
    bare = text.strip().strip("\"'").strip()
    if bare != text and _is_accepted(bare, aliases):
        return f"it has blanks or quotation marks around it: write '{bare}'"
    if bare.startswith("@at "):
        return _explain_time(bare.removeprefix("@at ").strip(), reason) or reason
    if bare[:1].isdigit() and (explanation := _explain_time(bare, reason)) is not None:
        return explanation
    if bare.startswith("@every "):
        return _explain_interval(bare.removeprefix("@every ").strip(), reason)
    return _explain_form(bare, aliases) or _explain_fields(bare, reason)


def _is_accepted(text: str, aliases: Iterable[str]) -> bool:
    if text.startswith("@at "):
        return _is_time(text[4:])
    if text.startswith("@every "):
        return not isinstance(parse_duration(text[7:]), Invalid)
    return text in aliases or _is_cron(text)


class UnevenStep(NamedTuple):
    """A field of which the step does not divide what it counts: `*/45` minutes are 45 and 15 minutes apart."""

    field: str
    """The name of the field, such as `minute`."""
    item: str
    """As it is written."""
    instead: str
    """What repeats as often as the step says: `@every 45m`, or a policy; "" if nothing does."""
    values: str
    """The values that match, as a list that means the same: `0,45`."""
    around: str
    """In what it begins anew: `hour`."""


_stepped = re.compile(r"(?:[*?][^,/]*|[^*?,/-]+)/\+?0*([1-9][0-9]{0,3})").fullmatch
"""`*/45` or `5/45`, alone in its field: in a list the other values say what is meant, and a range has an end."""

_BY_DAYS = "* with X-Every: {}d from a date"

_COUNTED = (
    (60, "minute", "@every {}s"),
    (60, "hour", "@every {}m"),
    (24, "day", "@every {}h"),
    (0, "month", _BY_DAYS),  # months have different lengths
    (12, "year", ""),
    (7, "week", _BY_DAYS),
)
"""What each field counts: how many there are, in what, and what repeats as often."""


def uneven_steps(text: str, fields: CronFields, syntax: Syntax | None) -> Iterator[UnevenStep]:
    """Yield the steps of a pattern of fields that do not divide what they count; those above 9,999 are not examined."""
    words = text.split()
    words = ["0", *words] if syntax is Syntax.CRONTAB else words
    masks = fields.seconds, fields.minutes, fields.hours, fields.days_of_month, fields.months, fields.days_of_week
    for field, (size, around, instead), word, mask in zip(FIELDS, _COUNTED, words, masks, strict=False):
        stepped = _stepped(word)
        step = int(stepped[1]) if stepped else 1
        if step > 1 and not (size and size % step == 0):
            values = ",".join(map(str, values_of(mask & ~STAR)))
            is_too_long = instead is _BY_DAYS and step > MAX_EVERY_DAYS
            yield UnevenStep(field.name, word, "" if is_too_long else instead.format(step), values, around)


# -- @at -----------------------------------------------------------------------------------------------------------


def _explain_time(text: str, reason: str) -> str | None:
    """Explain why a time is invalid, or that it needs `@at` in front; None if it is no time at all."""
    if _is_time(text):
        return f"a time follows '@at ', with one blank and nothing else: write '@at {text}'"
    if _EPOCH(text):
        seconds = int(text) * SECOND // (1000 if len(text) >= _MILLISECONDS_MIN_DIGITS else 1)
        return f"a time is a date and a time of day, not a number since 1970: write '@at {format_rfc3339(seconds)}'"
    parts = _DATE_AND_TIME(text)
    if parts is None:
        return None
    year, month, day, clock, zone = parts.groups()
    date, clock = f"{year}-{month:0>2}-{day:0>2}", clock or "00:00:00"
    clock = f"{clock}:00" if clock.count(":") == 1 else clock
    if not zone:
        utc = f"{date}T{clock}Z"
        advice = f"the time zone is missing: write '@at {utc}' for UTC, or an offset such as +01:00 in place of the Z"
        instant = parse_rfc3339(utc)
        return instant.reason if isinstance(instant, Invalid) else advice
    for offset in _offsets(zone):
        if _is_time(f"{date}T{clock}{offset}"):
            return f"expected the form of RFC 3339: write '@at {date}T{clock}{offset}'"
    if _is_time(f"{date}T{clock}Z"):
        return f"{zone!r} is not an offset: a time ends with Z for UTC, or with an offset such as +01:00"
    return reason


def _offsets(zone: str) -> list[str]:
    """Return the offsets that the text after a time may stand for."""
    if zone.upper() in ("Z", "UTC", "GMT"):
        return ["Z"]
    parts = _COMPACT_OFFSET(zone)
    return [] if parts is None else [f"{parts[1]}{parts[2]}:{parts[3] or '00'}"]


def _is_time(text: str) -> bool:
    return not isinstance(parse_rfc3339(text), Invalid)


# -- @every --------------------------------------------------------------------------------------------------------


def _explain_interval(text: str, reason: str) -> str:
    """Explain why an interval is invalid."""
    meant = _interval(text)
    if meant is None:
        return reason if "least" in reason else f"{reason}; an interval is written as in '@every 5m'"
    if any(letter.isalpha() for letter in text):
        return f"the units of an interval are ms, s, m and h: write '@every {meant}'"
    return f"the unit is missing: write '@every {meant}' for seconds"


def _interval(text: str) -> str | None:
    """Return an interval in the form that the grammar accepts; None if its form cannot be guessed."""
    terms = _NUMBER_AND_UNIT.findall(text)
    if not terms or _NUMBER_AND_UNIT.sub("", text).strip(" ,"):
        return None
    written = []
    for number, unit in terms:
        name = unit.lower()
        if name in _HOURS_BY_UNIT and number.isdigit():
            written.append(f"{int(number) * _HOURS_BY_UNIT[name]}h")
        else:
            written.append(number + _UNIT_NAMES.get(name, unit))
    meant = "".join(written)
    interval = parse_duration(meant)
    return meant if isinstance(interval, int) and interval >= SECOND and meant != text else None


# -- other forms ---------------------------------------------------------------------------------------------------


def _explain_form(text: str, aliases: Iterable[str]) -> str | None:
    """Explain a text that has none of the forms of a pattern; None if it may be a list of cron fields."""
    word, _, rest = text.partition(" ")
    name = word.lower().lstrip("@").rstrip(":")
    if name == "every" and not isinstance(parse_duration(rest), Invalid):
        return f"expected '@every ' and a duration, in lower case: write '@every {rest}'"
    if name == "at" and _is_time(rest.strip()):
        return f"expected '@at ' and a time, in lower case: write '@at {rest.strip()}'"
    if not rest and f"@{name}" in aliases:
        return f"expected an alias in lower case, without blanks around it: write '@{name}'"
    if not rest and not isinstance(parse_duration(text), Invalid):
        return f"an interval follows '@every ': write '@every {text}'"
    if name == "in":
        return "a time is not counted from now: write the time itself, as in '@at 2026-11-20T15:04:05Z'"
    if text.startswith("@"):
        known = ", ".join(["@at TIME", "@every DURATION", *aliases])
        return f"expected one of {known}, in lower case and without blanks around it"
    if not any(letter in "*?0123456789" for letter in text):
        return "expected a pattern such as '@every 5m', '@at 2026-11-20T15:04:05Z', '@daily' or '0 30 9 * * mon-fri'"
    return None


def _explain_fields(text: str, reason: str) -> str:
    """Explain why six fields are invalid, or that there are too few or too many."""
    fields = text.split(" ")  # `split()` also splits at blanks that the grammar does not accept
    if _is_cron(meant := f"0 {text}"):
        return (
            "it has five fields, as in a crontab; the server's grammar has six, beginning with seconds: "
            f"write '{meant}'"
        )
    if len(fields) > len(FIELDS) and _is_cron(meant := " ".join(fields[:-1])):
        return f"it has seven fields; the server's grammar has six, and no year: write '{meant}' for every year"
    if len(fields) == len(FIELDS) and "7" in fields[-1] and "#" not in fields[-1]:
        meant = " ".join([*fields[:-1], re.sub(r"\b7\b", "0", fields[-1])])
        return f"{reason}; Sunday is 0: write '{meant}'" if _is_cron(meant) else reason
    syntax = next((one for one in Syntax if not isinstance(parse_syntax(text, one), Invalid)), None)
    return reason if syntax is None else f"{reason}; it is valid with portable headers, and X-Syntax: {syntax}"


def _is_cron(text: str) -> bool:
    return not isinstance(parse_cron(text), Invalid)
