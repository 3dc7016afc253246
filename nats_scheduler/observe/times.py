"""Instants, spans, lateness and numbers as people read them: on the page, in `top`, in tables, warnings and answers.

The rules: an instant is in UTC, with no more digits than are of use to a reader; a lateness has a unit and at most
three digits that matter; what is not known is `UNKNOWN`, and never 0.

A command may show instants in the time zone of its reader (`times_in`): they have their offset then, so none is taken
for UTC. The page shows such a zone beside UTC (`local_text`). Documents are in UTC whatever is shown.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.schedule.zones import UTC, Zone

UNKNOWN = "–"

_zone: ContextVar[Zone] = ContextVar("zone", default=UTC)
"""The time zone in which this context shows instants."""

SHOWN_IN_DAYS_FROM_NS = 2 * DAY
"""A span (ns) from here on is shown in days."""

SHOWN_IN_YEARS_FROM_NS = 730 * DAY
"""A span (ns) from here on is shown in years of 365 days."""

MOMENT_NS = 10 * SECOND
"""The greatest age (ns) of an answer that is shown as if it was of now."""

_DIGITS = re.compile(r"(\.\d{3})\d+")


# -- instants ----------------------------------------------------------------------------------------------------------


def shortened(instant: int) -> int:
    """Return an instant (ns) rounded down to the second, or to the millisecond if it is between two seconds."""
    return instant - instant % (MILLISECOND if instant % SECOND >= MILLISECOND else SECOND)


@contextmanager
def times_in(zone: Zone) -> Iterator[None]:
    """Have the texts of instants that commands print be in a time zone, for as long as the context lasts."""
    token = _zone.set(zone)
    try:
        yield
    finally:
        _zone.reset(token)


def zone_name() -> str:
    """Return the name of the time zone in which instants are shown, `UTC` unless there is another one."""
    return _zone.get().name


def time_text(instant: int) -> str:
    """Return an instant (ns) as text, to the second or to the millisecond: 2026-01-31T09:00:00.250Z."""
    return _text_in(_zone.get(), shortened(instant))


def moment_text(instant: int) -> str:
    """Return an instant (ns) of the past as text, to the second: 2026-01-31T09:00:00Z."""
    return _text_in(_zone.get(), instant - instant % SECOND)


def local_text(instant: int, now: int, zone: Zone) -> str:
    """Return an instant (ns) in a time zone, without the date if that is the date of `now` there: 11:00:00 +02:00."""
    text, today = (_text_in(zone, one - one % SECOND) for one in (instant, now))
    date, _, time = text.partition("T")
    shown = f"{time[:8]} {time[8:].replace('Z', '+00:00')}"
    return shown if today.startswith(f"{date}T") else f"{date} {shown}"


def _text_in(zone: Zone, instant: int) -> str:
    return format_rfc3339(instant, zone.offset_at(instant))


def utc_text(instant: int | None) -> str:
    """Return an instant (ns) to the second, or to the millisecond if it is between two seconds: 2026-01-31 09:00:00."""
    if instant is None:
        return UNKNOWN
    text = _text_in(UTC, instant - instant % SECOND).removesuffix("Z").replace("T", " ")
    milliseconds = instant % SECOND // MILLISECOND
    return f"{text}.{milliseconds:03}" if milliseconds else text


def when_text(instant: int | None, now: int) -> str:
    """Return an instant (ns) as `utc_text`, without the date if that is the date of `now`: 09:00:00."""
    text = utc_text(instant)
    return text[11:] if instant is not None and instant // DAY == now // DAY else text


def clock_text(instant: int | None) -> str:
    """Return an instant (ns) as the time of its day in UTC: 09:00:00."""
    return UNKNOWN if instant is None else _text_in(UTC, instant - instant % SECOND)[11:19]


def minute_text(instant: int | None) -> str:
    """Return an instant (ns) as the minute of its day in UTC: 09:00."""
    return clock_text(instant)[:5]


def short_text(instant: int, now: int) -> str:
    """Return an instant (ns) in little room: as the time of the day of `now`, or as a minute: 01-31 09:00."""
    text = moment_text(instant)
    return text[11:19] if text[:10] == moment_text(now)[:10] else text[5:16].replace("T", " ")


# -- spans -------------------------------------------------------------------------------------------------------------


def span_text(nanoseconds: int) -> str:
    """Return a span (ns) as text, to the second; long spans in days and hours, or in years and days."""
    if nanoseconds < SHOWN_IN_DAYS_FROM_NS:
        return format_duration(round_to_second(nanoseconds))
    if nanoseconds < SHOWN_IN_YEARS_FROM_NS:
        return f"{nanoseconds // DAY}d{nanoseconds % DAY // HOUR}h"
    days = nanoseconds // DAY
    return f"{days // 365}y{days % 365}d"


def distance_text(instant: int | None, now: int) -> str:
    """Return how far an instant (ns) is away: `in 3m20s`, `12s ago`, `now`; "" if there is none."""
    if instant is None:
        return ""
    away = instant - now
    if -SECOND < away < SECOND:
        return "now"
    span = _coarse(abs(away))
    return f"in {span}" if away > 0 else f"{span} ago"


def upcoming_text(instant: int | None, now: int) -> str:
    """Return how far a fire is away; one that came due a moment ago is due now, since the answer is a moment old."""
    return "now" if instant is not None and -MOMENT_NS < instant - now < SECOND else distance_text(instant, now)


def lateness_text(nanoseconds: float | None) -> str:
    """Return a lateness (ns) with its unit: `0.84 ms`, `12 ms`, `1.3 s`, `2m5s`."""
    if nanoseconds is None:
        return UNKNOWN
    milliseconds = nanoseconds / MILLISECOND
    size = abs(milliseconds)
    if size >= 100_000:
        return span_text(int(nanoseconds))
    if size < 10:
        text = f"{milliseconds:.2f} ms"
    elif size < 1000:
        text = f"{milliseconds:.0f} ms"
    else:
        text = f"{milliseconds / 1000:.1f} s"
    return text.replace("-", "−")


def _coarse(span: int) -> str:
    """Return a span (ns) with no more digits than help: seconds matter below ten minutes only."""
    if 10 * MINUTE <= span < SHOWN_IN_DAYS_FROM_NS:
        return span_text(span - span % MINUTE).removesuffix("0s")
    return span_text(span - span % SECOND)


# -- numbers -----------------------------------------------------------------------------------------------------------


def fewer_digits(text: str) -> str:
    """Return a text in which no number has more than three digits behind its point."""
    return _DIGITS.sub(r"\1", text)


def count_text(number: int) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def wall_text(seconds: int) -> str:
    """Print a local time, in seconds since 1970-01-01T00:00:00 local time, without an offset."""
    return format_rfc3339(seconds * SECOND).removesuffix("Z")
