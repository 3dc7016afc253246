"""Policies as Python programs say them, written as the headers of `docs/reference/policies.md` have them.

What is written here is read again by the code that every sidecar reads it with (`message.policies`), so a value that no
schedule may have is refused where the program names it. Whether a calendar exists, and which policies a stream needs,
shows when the schedule is stored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Literal, TypedDict

from nats_scheduler.client.times import instant_of, nanoseconds_of
from nats_scheduler.message.policies import CALENDAR
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.rfc3339 import format_rfc3339

Days = date | tuple[date, date]
"""A day, or the first and the last day of several."""


ClockChange = Literal["skip", "after", "both", "first", "last", "after,first", "after,last"]
"""What a schedule does at a local time that the clock skips, at one that it shows twice, or at both."""


class PolicyArguments(TypedDict, total=False):
    """The keyword arguments of `When.policies`; None removes a policy that was given before."""

    start: datetime | None
    end: datetime | None
    limit: int | None
    anchor: datetime | None
    every: str | None
    clock_change: ClockChange | None
    except_days: Iterable[Days] | None
    except_calendars: Iterable[str] | None
    excepted: Literal["skip", "next", "previous"] | None
    jitter: timedelta | None
    spread: timedelta | None
    missed: Literal["once", "skip", "all"] | int | None
    grace: timedelta | None
    report: bool | None
    debounce: bool | None
    overlap: Literal["allow", "skip", "queue"] | None
    consumer: str | None
    timeout: timedelta | None
    done_within: timedelta | None
    note: str | None
    owner: str | None


def policy_texts(before: Mapping[str, str], given: PolicyArguments) -> tuple[tuple[str, str], ...]:
    """Return all policies by their names without the prefix, such as `X-Limit`, after some were given.

    Raises `TypeError` or `ValueError` for a value that cannot be written; what is written may still be invalid.
    """
    texts = dict(before)
    for name, text in _texts(before, given):
        if text is None:
            texts.pop(name, None)
        else:
            texts[name] = text
    return tuple(sorted(texts.items()))


def _texts(before: Mapping[str, str], given: PolicyArguments) -> Iterator[tuple[str, str | None]]:
    values: Mapping[str, Any] = given
    for name, value in values.items():
        if name not in ("except_days", "except_calendars"):
            text = None if value is None or value is False else _WRITERS.get(name, _plain_text)(value, name)
            yield f"X-{name.title().replace('_', '-')}", text
    if "except_days" in given or "except_calendars" in given:
        yield "X-Except", _except_text(before.get("X-Except", ""), given)


def _time_text(value: datetime, name: str) -> str:
    return format_rfc3339(instant_of(value, name))


def _duration_text(value: timedelta, name: str) -> str:
    return format_duration(nanoseconds_of(value, name))


_WRITERS: Mapping[str, Callable[[Any, str], str]] = {
    **dict.fromkeys(("start", "end", "anchor"), _time_text),
    **dict.fromkeys(("jitter", "spread", "grace", "timeout", "done_within"), _duration_text),
}
"""The functions that write the value of a policy that is no text or number."""


def _plain_text(value: Any, name: str) -> str:
    if value is True and name in ("report", "debounce"):
        return "true"
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"{name} of {value!r}: a {'number' if name == 'limit' else 'text'} is expected")
    if name == "missed" and isinstance(value, int):
        return f"all {value}"
    if "\r" in str(value) or "\n" in str(value):
        raise ValueError(f"{name} of {value!r} has a line break: a header is one line")
    return str(value)


def _except_text(before: str, given: PolicyArguments) -> str | None:
    """Write both kinds of exceptions into the one header that they share; what is not given stays."""
    parts = [part.strip(" ") for part in before.split(",") if part]
    days = [part for part in parts if not part.startswith(CALENDAR)]
    calendars = [part for part in parts if part.startswith(CALENDAR)]
    if "except_days" in given:
        days = [_days_text(one) for one in given["except_days"] or ()]
    if "except_calendars" in given:
        names = given["except_calendars"] or ()
        if isinstance(names, str):
            raise TypeError(f"except_calendars of {names!r}: several names are expected, such as [{names!r}]")
        calendars = [f"{CALENDAR}{name}" for name in names]
    return ",".join((*days, *calendars)) or None


def _days_text(days: Days) -> str:
    first, last = days if isinstance(days, tuple) else (days, days)
    for one in (first, last):
        if not isinstance(one, date) or isinstance(one, datetime):
            raise TypeError(f"except_days of {one!r}: a date is expected, such as date(2026, 12, 25)")
    return first.isoformat() if first == last else f"{first.isoformat()}..{last.isoformat()}"
