"""Times and durations as Python programs have them, and as the package counts them: integer nanoseconds.

The rule: a time without a zone is refused, never taken for UTC or for the zone of the machine. Nothing is rounded on
the way in; on the way out a `datetime` cuts off what is below a microsecond, so all values keep the nanoseconds too.
Cost: a microsecond. Limit: a `datetime` has the years 1 to 9999 only.
"""

from datetime import UTC, datetime, timedelta

from nats_scheduler.schedule.instants import MICROSECOND

MAX_DURATION_NS = (1 << 63) - 1
"""Longest duration that a server reads: 2562047h47m16.854775807s, about 292 years."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant_of(when: datetime, what: str) -> int:
    """Return a time in nanoseconds since the Unix epoch.

    `what` names the parameter in the error. Raises `TypeError` for what is no `datetime`, and `ValueError` for one
    without a time zone.
    """
    if not isinstance(when, datetime):
        raise TypeError(f"{what} of {when!r} is no datetime: write one such as datetime(2026, 11, 20, 9, tzinfo=UTC)")
    if when.utcoffset() is None:
        shown = f"datetime({', '.join(map(str, _fields(when)))}"
        raise ValueError(
            f"{what} of {when.isoformat()} has no time zone: write {shown}, tzinfo=UTC) "
            f'or {shown}, tzinfo=ZoneInfo("Europe/Berlin"))'
        )
    return (when - _EPOCH) // _MICROSECOND * MICROSECOND


def datetime_of(instant: int) -> datetime:
    """Return an instant (ns) as a `datetime` in UTC, without what is below a microsecond.

    Raises `OverflowError` outside the years 1 to 9999.
    """
    return _EPOCH + timedelta(microseconds=instant // MICROSECOND)


def nanoseconds_of(duration: timedelta, what: str) -> int:
    """Return a duration in nanoseconds.

    Raises `TypeError` for what is no `timedelta`, and `ValueError` for one that no server reads.
    """
    if not isinstance(duration, timedelta):
        raise TypeError(f"{what} of {duration!r} is no timedelta: write one such as timedelta(minutes=5)")
    nanoseconds = duration // _MICROSECOND * MICROSECOND
    if abs(nanoseconds) > MAX_DURATION_NS:
        raise ValueError(f"{what} of {duration} is longer than 292 years, the longest duration of a server")
    return nanoseconds


def _fields(when: datetime) -> tuple[int, ...]:
    """Return what a reader would write: the date and the time as far as it is not zero."""
    fields = (when.year, when.month, when.day, when.hour, when.minute, when.second, when.microsecond)
    last = max(number for number, value in enumerate(fields) if value or number == 2)
    return fields[: last + 1]
