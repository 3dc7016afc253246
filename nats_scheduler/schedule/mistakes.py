"""What was meant by a pattern that the grammar refuses: the usual mistakes, each with the text to write instead.

Rule: this is asked only after the grammar has refused a text, and changes nothing about that; a text that is shown to
be written instead is one that the grammar accepts.
Cost: some microseconds for a short text; long ones are not looked at. Limit: what is guessed is a form, not an intent:
a naive time is shown in UTC because that is the zone that a pattern has without another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nats_scheduler.schedule.cron import FIELDS, parse_cron
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

LONGEST_LOOKED_AT = 100
"""Characters of a text in which a mistake is looked for."""

_DAY_FIRST = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[Tt ]+([0-9:.,]+))? *(\S*)").fullmatch
_COMPACT_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})?").fullmatch
_EPOCH = re.compile(r"[0-9]{9,11}|[0-9]{12,14}").fullmatch
_WORDED = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-zµ]*)")
_MILLISECONDS_FROM = 12
"""A number of so many digits counts milliseconds, a shorter one seconds."""

_HOURS = {"d": 24, "day": 24, "days": 24, "w": 168, "week": 168, "weeks": 168}
_UNITS = {
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
    """Return why a pattern is refused, in words that say how to mend it; `reason` is what the grammar said."""
    if len(text) > LONGEST_LOOKED_AT:
        return reason
    bare = text.strip().strip("\"'").strip()
    if bare != text and _is_accepted(bare, aliases):
        return f"blanks or quotation marks stand around it: write '{bare}'"
    if bare.startswith("@at "):
        return _about_time(bare.removeprefix("@at ").strip(), reason) or reason
    if bare[:1].isdigit() and (told := _about_time(bare, reason)) is not None:
        return told
    if bare.startswith("@every "):
        return _about_interval(bare.removeprefix("@every ").strip(), reason)
    return _about_form(bare, aliases) or _about_fields(bare, reason)


def _is_accepted(text: str, aliases: Iterable[str]) -> bool:
    if text.startswith("@at "):
        return _is_time(text[4:])
    if text.startswith("@every "):
        return not isinstance(parse_duration(text[7:]), Invalid)
    return text in aliases or _is_cron(text)


# -- @at -----------------------------------------------------------------------------------------------------------


def _about_time(text: str, reason: str) -> str | None:
    """Explain a time that is refused, or one that stands without `@at`; None where it is no time at all."""
    if _is_time(text):
        return f"a time stands behind '@at ', with one blank and nothing else: write '@at {text}'"
    if _EPOCH(text):
        seconds = int(text) * SECOND // (1000 if len(text) >= _MILLISECONDS_FROM else 1)
        return f"a time is written out, and not as a number since 1970: write '@at {format_rfc3339(seconds)}'"
    parts = _DAY_FIRST(text)
    if parts is None:
        return None
    year, month, day, clock, zone = parts.groups()
    date, clock = f"{year}-{month:0>2}-{day:0>2}", clock or "00:00:00"
    clock = f"{clock}:00" if clock.count(":") == 1 else clock
    if not zone:
        utc = f"{date}T{clock}Z"
        told = f"the time zone is missing: write '@at {utc}' for UTC, or an offset such as +01:00 in place of the Z"
        instant = parse_rfc3339(utc)
        return instant.reason if isinstance(instant, Invalid) else told
    for offset in _offsets(zone):
        if _is_time(f"{date}T{clock}{offset}"):
            return f"expected the form of RFC 3339: write '@at {date}T{clock}{offset}'"
    if _is_time(f"{date}T{clock}Z"):
        return f"{zone!r} is no offset: a time ends with Z for UTC, or with an offset such as +01:00"
    return reason


def _offsets(zone: str) -> list[str]:
    """Return what may be meant by the text behind a time."""
    if zone.upper() in ("Z", "UTC", "GMT"):
        return ["Z"]
    parts = _COMPACT_OFFSET(zone)
    return [] if parts is None else [f"{parts[1]}{parts[2]}:{parts[3] or '00'}"]


def _is_time(text: str) -> bool:
    return not isinstance(parse_rfc3339(text), Invalid)


# -- @every --------------------------------------------------------------------------------------------------------


def _about_interval(text: str, reason: str) -> str:
    """Explain an interval that is refused."""
    meant = _interval(text)
    if meant is None:
        return reason if "least" in reason else f"{reason}; an interval is written as in '@every 5m'"
    if any(letter.isalpha() for letter in text):
        return f"the units of an interval are ms, s, m and h: write '@every {meant}'"
    return f"the unit is missing: write '@every {meant}' for seconds"


def _interval(text: str) -> str | None:
    """Return an interval as it is to be written; None where it cannot be told."""
    terms = _WORDED.findall(text)
    if not terms or _WORDED.sub("", text).strip(" ,"):
        return None
    written = []
    for number, unit in terms:
        name = unit.lower()
        if name in _HOURS and number.isdigit():
            written.append(f"{int(number) * _HOURS[name]}h")
        else:
            written.append(number + _UNITS.get(name, unit))
    meant = "".join(written)
    interval = parse_duration(meant)
    return meant if isinstance(interval, int) and interval >= SECOND and meant != text else None


# -- other forms ---------------------------------------------------------------------------------------------------


def _about_form(text: str, aliases: Iterable[str]) -> str | None:
    """Explain what is none of the forms, and no list of fields; None where it may be one."""
    word, _, rest = text.partition(" ")
    name = word.lower().lstrip("@").rstrip(":")
    if name == "every" and not isinstance(parse_duration(rest), Invalid):
        return f"expected '@every ' and a duration, in lower case: write '@every {rest}'"
    if name == "at" and _is_time(rest.strip()):
        return f"expected '@at ' and a time, in lower case: write '@at {rest.strip()}'"
    if not rest and f"@{name}" in aliases:
        return f"expected an alias in lower case, without blanks around it: write '@{name}'"
    if not rest and not isinstance(parse_duration(text), Invalid):
        return f"an interval stands behind '@every ': write '@every {text}'"
    if name == "in":
        return "a time is not counted from now: write the instant itself, as in '@at 2026-11-20T15:04:05Z'"
    if text.startswith("@"):
        known = ", ".join(["@at TIME", "@every DURATION", *aliases])
        return f"expected one of {known}, in lower case and without blanks around it"
    if not any(letter in "*?0123456789" for letter in text):
        return "expected a pattern such as '@every 5m', '@at 2026-11-20T15:04:05Z', '@daily' or '0 30 9 * * mon-fri'"
    return None


def _about_fields(text: str, reason: str) -> str:
    """Explain six fields that are refused, or so many that are not six."""
    fields = text.split(" ")  # not at whatever Python takes for a blank
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
    return reason


def _is_cron(text: str) -> bool:
    return not isinstance(parse_cron(text), Invalid)
