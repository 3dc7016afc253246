"""The timing of a schedule, as a Python program writes it: `at`, `after`, `every`, `cron`, and policies beside them.

The rules:

- Everything here is pure: no clock is read, and nothing is sent. `after` counts from the time at which the schedule is
  stored, by the server's clock.
- A value is checked where it is written, by the code with which the sidecar reads it. What it refuses is an
  `InvalidScheduleError`, a `ValueError` with the code that a server would answer.
- A `When` says nothing of a server: how it is spelled is decided when it is stored.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, Unpack
from zoneinfo import ZoneInfo

from nats_scheduler.client.policy_arguments import PolicyArguments, policy_texts
from nats_scheduler.client.times import datetime_of, instant_of, nanoseconds_of
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.policies import policy_header, read_policies, with_policies
from nats_scheduler.message.rejection import PATTERN_INVALID, TIME_ZONE_INVALID, Rejection
from nats_scheduler.message.schedule_form import ScheduleForm
from nats_scheduler.message.spread import NO_SUBJECT
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.cron_syntax import Syntax
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import InvalidPattern, InvalidTimeZone
from nats_scheduler.schedule.patterns import Pattern, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339

TimeZone = tzinfo | str
"""A `ZoneInfo`, `UTC`, or the name of a zone, such as `Europe/Berlin`."""

MAX_INSTANT_NS = 253_402_300_800 * SECOND - 1
"""The end of the year 9999, the last one in which a schedule can fire once."""


class InvalidScheduleError(SchedulerError, ValueError):
    """The schedule asked for is invalid; the code is that of a server, None if no server knows such an error."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class When:
    """The timing of a schedule: a pattern, its time zone, and its policies. Equal values fire at the same times."""

    pattern: str
    """As `Nats-Schedule` has it; "" if it depends on the time of storage (`delay`)."""
    time_zone: str | None = None
    syntax: Literal["crontab", "quartz"] | None = None
    """The syntax of the pattern, if it is not that of the server."""
    delay: timedelta | None = None
    """The time from its storage to its one fire."""
    written_policies: tuple[tuple[str, str], ...] = ()
    """Names without the prefix, such as `X-Jitter`, and values, by name."""

    def policies(self, **given: Unpack[PolicyArguments]) -> "When":
        """Return the same with policies: how a schedule wants to be treated (`docs/reference/policies.md`).

        Policies that were given before stay; None removes one. A sidecar has to fire a schedule with policies: no
        server knows them.

        - `start`, `end`: no fire before, and none at that time or later.
        - `limit`: it ends after 1 to 1,000 fire times.
        - `anchor`: a whole second from which the interval of `every` counts.
        - `every`: only on each n-th day or in each n-th week, counted from a date: `"2w from 2026-01-05"`; with `cron`,
          `daily` and the like.
        - `except_days`, `except_calendars`: no fire on these days (a `date`, or the first and the last of several), or
          on those of calendars with these names; together at most 1,000, and 8 calendars.
        - `excepted`: the fires of such days are left out (`"skip"`, the default), or move to the other day that is
          `"next"` or `"previous"`; these two with `cron`, `daily` and the like.
        - `jitter`: the longest delay of a fire; more than 0, at most a day.
        - `spread`: the time over which schedules are spread: the fire times of each are always by the same time later,
          which is a part of it that follows from the subject of the schedule; 1 s to a day.
        - `missed`: what is made up after an outage: the latest fire (`"once"`, the default), none (`"skip"`), each
          (`"all"`), or, with a number, at most that number of the latest ones.
        - `grace`: from how late on a fire counts as missed, at least 1 s; 10 s by default.
        - `report`: each fire says for which time it is, and what was dropped before it.
        - `overlap`: what happens while the fire before is unfinished: `"allow"`, `"skip"`, `"queue"`. `consumer` is the
          one that finishes it on a stream with limits retention, `timeout` when it counts as finished at the latest.
        - `done_within`: a fire that is unfinished so long after it was stored is reported; at least 1 s. It needs
          `consumer` on a stream with limits retention, as `overlap` does.
        - `note`, `owner`: texts of up to 256 characters, which are shown with the schedule.

        Raises `InvalidScheduleError` for a value that no schedule may have, and `TypeError`.
        """
        changed = replace(self, written_policies=policy_texts(dict(self.written_policies), given))
        changed.read(0)
        return changed

    def next(self, n: int = 1, *, after: datetime) -> list[datetime]:
        """Return the first `n` fire times, in UTC, of a schedule that is stored at `after`; fewer if it ends before.

        They are those that the policies leave; a jitter is not added, nor a spread, which follows from the subject of
        the schedule, and calendars are not known here. A time of `at` that is past by then is among them, since such a
        schedule fires at once.
        Raises `ValueError` if `after` has no time zone.
        """
        stored_at = instant_of(after, "after")
        return [datetime_of(instant) for instant in Timetable(self.read(stored_at), stored_at).fires(n)]

    def text(self, now: int) -> str:
        """Return the pattern of a schedule that is stored now (ns since the Unix epoch)."""
        return self.pattern if self.delay is None else _at_text(now + nanoseconds_of(self.delay, "the delay"))

    def form(self, now: int) -> ScheduleForm:
        """Return the form of a schedule that is stored now (ns), with nothing else."""
        policies = ((name, value.strip(" \t")) for name, value in self._named_policies())
        return ScheduleForm(self.text(now).strip(" \t"), self.time_zone, policies=tuple(policies))

    def read(self, now: int) -> Pattern:
        """Return the pattern, with the bounds of its policies, of a schedule that is stored now (ns).

        Raises `InvalidScheduleError` if there is none. Whether it ever fires is not checked: that depends on the time.
        """
        text = self.text(now)
        pattern = parse_pattern(text, self.time_zone, None if self.syntax is None else Syntax(self.syntax))
        if isinstance(pattern, InvalidTimeZone):
            raise InvalidScheduleError(f"time zone of {pattern}", TIME_ZONE_INVALID.code)
        if pattern is None or isinstance(pattern, InvalidPattern):
            raise InvalidScheduleError(
                f"pattern of {pattern}" if pattern else f"pattern of {text!r} is that of no schedule",
                PATTERN_INVALID.code,
            )
        fields = {policy_header(name, PORTABLE): value for name, value in self._named_policies()}
        policies = read_policies(fields, PORTABLE, pattern)
        if isinstance(policies, Rejection):
            short = policies.header.removeprefix(f"{PORTABLE.schedule.decode()}-")
            raise InvalidScheduleError(f"{short} of {policies.value!r} {policies.reason}", policies.code or None)
        return with_policies(pattern, policies, NO_SUBJECT)

    def _named_policies(self) -> list[tuple[str, str]]:
        syntax = [] if self.syntax is None else [("X-Syntax", str(self.syntax))]
        return sorted([*self.written_policies, *syntax])


def at(when: datetime) -> When:
    """Fire once at a time; a time that is past when it is stored fires at once.

    Raises `ValueError` for a time without a zone, and `InvalidScheduleError` for the zero time of Go (0001-01-01).

    >>> at(datetime(2026, 11, 20, 9, 30, tzinfo=ZoneInfo("Europe/Berlin"))).pattern
    '@at 2026-11-20T08:30:00Z'
    """
    return _checked(When(_at_text(instant_of(when, "the time"))))


def after(delay: timedelta) -> When:
    """Fire once, `delay` after the schedule is stored, by the server's clock.

    From 0 to 292 years; raises `InvalidScheduleError` for another one.

    >>> after(timedelta(minutes=5)).next(after=datetime(2026, 1, 1, tzinfo=UTC))
    [datetime.datetime(2026, 1, 1, 0, 5, tzinfo=datetime.timezone.utc)]
    """
    if _bounded(delay, "the delay") < 0:
        raise InvalidScheduleError(f"the delay of {delay} is negative: write at(…) for a time that is past")
    return When("", delay=delay)


def every(interval: timedelta) -> When:
    """Fire after each interval, counted from the whole second that is nearest to the time of storage.

    From 1 second to 292 years; raises `InvalidScheduleError` for another one. Fractions of a second count, unless the
    server itself fires and rounds them.

    >>> every(timedelta(minutes=90)).pattern
    '@every 1h30m0s'
    """
    return _checked(When(f"@every {format_duration(_bounded(interval, 'the interval'))}"))


def cron(pattern: str, tz: TimeZone | None = None, *, syntax: Literal["crontab", "quartz"] | None = None) -> When:
    """Fire when the clock of a time zone (default: UTC) matches a pattern of six fields, or `@daily` and the like.

    The fields are second, minute, hour, day of the month, month and day of the week (0 to 6, Sunday is 0), as a server
    reads them. With a `syntax` the pattern is read as in a crontab (five fields), or as Quartz writes it (six or
    seven), with `L`, `W` and `#`; a sidecar has to fire that.
    Raises `InvalidScheduleError` for a pattern (10189) or a zone (10223) that is invalid.

    >>> friday = datetime(2026, 11, 20, 12, tzinfo=UTC)
    >>> cron("0 30 9 * * mon-fri", tz=ZoneInfo("Europe/Berlin")).next(after=friday)
    [datetime.datetime(2026, 11, 23, 8, 30, tzinfo=datetime.timezone.utc)]
    """
    if not isinstance(pattern, str):
        raise TypeError(f"a pattern of {pattern!r}: a text is expected, such as '0 30 9 * * mon-fri'")
    if pattern.startswith(("@at ", "@every ")) or not pattern:
        raise InvalidScheduleError(f"pattern of {pattern!r} is no cron: write at(…) or every(…)", PATTERN_INVALID.code)
    if "\n" in pattern or "\r" in pattern:
        raise InvalidScheduleError(f"pattern of {pattern!r} has a line break", PATTERN_INVALID.code)
    if syntax not in (None, *Syntax):
        raise InvalidScheduleError(f"syntax of {syntax!r}: expected {' or '.join(Syntax)}")
    return _checked(When(pattern, zone_name(tz), syntax))


def zone_name(tz: TimeZone | None) -> str | None:
    """Return the name of a time zone as a server takes it.

    Raises `InvalidScheduleError` for a zone without a name, such as a fixed offset, and `TypeError` for another value.
    """
    if tz is None or isinstance(tz, str):
        return tz
    if tz is UTC:
        return "UTC"
    if isinstance(tz, ZoneInfo) and tz.key is not None:
        return tz.key
    if not isinstance(tz, tzinfo):
        raise TypeError(f'time zone of {tz!r}: a ZoneInfo is expected, such as ZoneInfo("Europe/Berlin")')
    raise InvalidScheduleError(
        f'time zone of {tz} has no name that a server could load: write one such as ZoneInfo("Europe/Berlin")',
        TIME_ZONE_INVALID.code,
    )


def _checked(when: When) -> When:
    """Return it if it can be read; raise `InvalidScheduleError` otherwise."""
    when.read(0)
    return when


def _bounded(duration: timedelta, what: str) -> int:
    """Return a duration (ns) that a server can read; raises `InvalidScheduleError`."""
    try:
        return nanoseconds_of(duration, what)
    except ValueError as error:
        raise InvalidScheduleError(str(error), PATTERN_INVALID.code) from None


def _at_text(instant: int) -> str:
    """Return the pattern of a single fire time (ns); raises `InvalidScheduleError` for one after the year 9999."""
    if instant > MAX_INSTANT_NS:
        raise InvalidScheduleError("the time is after the year 9999, and no server reads it", PATTERN_INVALID.code)
    return f"@at {format_rfc3339(instant)}"
