"""The due instants of a schedule, found naively: every second is checked.

Its rule: nothing of the package is used, so that a mistake there is not repeated here.
Limit: patterns that repeat match on whole seconds, and bounds are whole seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from itertools import islice

SECOND = 1_000_000_000

DEFAULT_GRACE_SECONDS = 10

LOOK_AHEAD_SECONDS = 121
"""The next due instant is within this time, or later than a bound: intervals are shorter."""


def written(instant: int) -> str:
    """Write an instant (ns) as RFC 3339."""
    fraction = f".{instant % SECOND:09d}".rstrip("0").rstrip(".")
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime(f"%Y-%m-%dT%H:%M:%S{fraction}Z")


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that bound a pattern that repeats, in seconds since the Unix epoch; None is no bound."""

    start: int | None = None
    end: int | None = None
    limit: int | None = None
    """The number of times that it fires."""
    anchor: int | None = None
    """The first instant of the grid of `every`."""
    every: tuple[int, str, str] | None = None
    """The number of days or weeks (`d`, `w`) between two days or weeks of `cron`, and one of these days."""
    clock_change: str = ""
    """The value of `X-Clock-Change`, of a pattern in a zone whose clock shows UTC and is not changed meanwhile."""
    jitter: int | None = None
    """The most milliseconds by which each fire is late; for `at` too."""
    spread: int | None = None
    """The number of seconds over which schedules are spread; for `at` too."""
    moved: int = 0
    """How much later (ns) each fire is due by that, as the documentation says (`moved_by`)."""
    calendar: str = ""
    """The calendar that it names; for `at` too."""
    is_moved: bool = False
    """True if the day of `cron` is two before the world's, to which its calendar moves it, or not.

    So no spread moves a time into the world that the calendar did not.
    """
    missed: str = ""
    """The value of `X-Missed`; for `at` too."""
    grace: int | None = None
    """The number of seconds by which a fire may be late and is not missed; for `at` too."""
    report: bool = False
    """True if fires say which fire was stored before them; for `at` too."""
    overlap: str = "allow"
    """The treatment of a fire while the one before is unfinished; the consumer of its target says what is finished."""
    consumer: str = ""
    timeout: int | None = None
    """The number of milliseconds after which an unfinished fire counts as finished."""
    done_within: int | None = None
    """The number of seconds after which an unfinished fire is reported; for `at` too."""

    def headers(self) -> dict[str, str]:
        """Return the headers as a publisher writes them."""
        instants = {"Start": self.start, "End": self.end, "Anchor": self.anchor}
        found = {f"Nats-Schedule-X-{name}": written(at * SECOND) for name, at in instants.items() if at is not None}
        found |= {"Nats-Schedule-X-Except": f"calendar:{self.calendar}"} if self.calendar else {}
        if self.every is not None:
            found["Nats-Schedule-X-Every"] = "{}{} from {}".format(*self.every)
        if self.clock_change:
            found |= {"Nats-Schedule-Time-Zone": "Europe/London", "Nats-Schedule-X-Clock-Change": self.clock_change}
        found |= {"Nats-Schedule-X-Excepted": "next"} if self.is_moved else {}
        found |= {} if self.limit is None else {"Nats-Schedule-X-Limit": str(self.limit)}
        found |= {} if self.jitter is None else {"Nats-Schedule-X-Jitter": f"{self.jitter}ms"}
        found |= {} if self.spread is None else {"Nats-Schedule-X-Spread": f"{self.spread}s"}
        found |= {"Nats-Schedule-X-Missed": self.missed} if self.missed else {}
        found |= {} if self.grace is None else {"Nats-Schedule-X-Grace": f"{self.grace}s"}
        found |= {} if self.overlap == "allow" else {"Nats-Schedule-X-Overlap": self.overlap}
        found |= {} if self.done_within is None else {"Nats-Schedule-X-Done-Within": f"{self.done_within}s"}
        found |= {"Nats-Schedule-X-Consumer": self.consumer} if self.consumer else {}
        found |= {} if self.timeout is None else {"Nats-Schedule-X-Timeout": f"{self.timeout}ms"}
        return found | ({"Nats-Schedule-X-Report": "true"} if self.report else {})

    def deadline_headers(self) -> list[tuple[str, str]]:
        """Return those that a fire has too, in their order."""
        if self.done_within is None:
            return []
        return [
            (name, value) for name, value in sorted(self.headers().items()) if name.endswith(("Consumer", "Within"))
        ]

    @property
    def most(self) -> int | None:
        """The number of the latest missed fires that are made up; None is all of them."""
        if not self.missed.startswith("all"):
            return 1
        return int(self.missed[4:]) if self.missed[4:] else None

    @property
    def skipped_after(self) -> int | None:
        """The lateness (ns) from which on a fire is skipped; None if it never is."""
        return self.grace_time if self.missed == "skip" else None

    @property
    def grace_time(self) -> int:
        """The lateness (ns) up to which a fire is not missed yet."""
        return (DEFAULT_GRACE_SECONDS if self.grace is None else self.grace) * SECOND

    @property
    def bounds_something(self) -> bool:
        """True if a policy leaves only some of the due instants."""
        return (self.start, self.end, self.limit, self.every) != (None, None, None, None)

    def left(self, dues: Iterable[int]) -> list[int]:
        """Return which of the due instants (ns) are left, from the first one on."""
        found = (
            due
            for due in dues
            if (self.start is None or due >= self.start * SECOND)
            and (self.end is None or due < self.end * SECOND)
            and self._is_on_its_days((due - self.moved) // SECOND)
        )
        return list(islice(found, self.limit))

    def _is_on_its_days(self, second: int) -> bool:
        day = datetime.fromtimestamp(second, UTC).date()
        if self.is_moved:
            return (day.month, day.day) == (1, 1)
        if self.every is None:
            return True
        number, unit, written_day = self.every
        other = date.fromisoformat(written_day)
        if unit == "w":
            day, other = (one - timedelta(one.weekday()) for one in (day, other))
        return (day - other).days % (number * (7 if unit == "w" else 1)) == 0


NO_POLICIES = Policies()


def moved_by(schedule: str, spread: int) -> int:
    """Give how much later (ns) a schedule is due that is spread over some seconds."""
    drawn = int(blake2b(schedule.encode(), digest_size=8).hexdigest(), 16)
    return drawn * spread * 1000 // 2**64 * (SECOND // 1000)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern that a publisher asks for."""

    kind: str
    """`at`, `every` or `cron`."""
    number: int
    """The instant of `at` in seconds; the interval of `every`; `cron` fires if the second divides by it."""
    policies: Policies = NO_POLICIES
    """Only for patterns that repeat, but for the jitter."""
    thousandths: int = 0
    """The number of milliseconds after that instant at which `at` is due."""

    @property
    def repeats(self) -> bool:
        """True if it fires more than once."""
        return self.kind != "at"

    @property
    def text(self) -> str:
        """The pattern as a publisher writes it."""
        if self.kind == "at":
            return f"@at {written(self.number * SECOND + self.thousandths * (SECOND // 1000))}"
        if self.kind == "every":
            return f"@every {self.number}s"
        return f"*/{self.number} * * 30 12 *" if self.policies.is_moved else f"*/{self.number} * * * * *"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the pattern as a publisher writes them."""
        return {"Nats-Schedule": self.text, **self.policies.headers()}

    def dues(self, stored_at: int, until: int) -> list[int]:
        """List the instants (ns) up to `until` at which a schedule stored at `stored_at` is due; all that `at` has."""
        moved = self.policies.moved
        if self.kind == "at":
            return [self.number * SECOND + self.thousandths * (SECOND // 1000) + moved]
        seconds = self._seconds(stored_at, (until - moved) // SECOND)
        return self.policies.left(second * SECOND + moved for second in seconds)

    def _seconds(self, stored_at: int, last: int) -> Iterable[int]:
        moved = self.policies.moved
        if self.kind == "cron":
            first = (stored_at - moved) // SECOND + 1
            return (second for second in range(first, last + 1) if second % 60 % self.number == 0)
        if self.policies.anchor is None:
            anchor = (stored_at + SECOND // 2) // SECOND
            return range(anchor + self.number, last + 1, self.number)
        grid = range(self.policies.anchor, last + 1, self.number)
        return (second for second in grid if second * SECOND + moved > stored_at)

    def sent_at(self, due: int, stored_at: int, schedule: str, sequence: int) -> int:
        """Give the instant (ns) at which the fire of a due instant is to be sent, as the documentation says."""
        if self.policies.jitter is None:
            return due
        # What an edit of a calendar may change does not count, and so neither does a limit beside it.
        limit = None if self.policies.calendar else self.policies.limit
        following = replace(self, policies=replace(self.policies, limit=limit)).following(due, stored_at)
        span = self.policies.jitter * (SECOND // 1000)
        if following is not None and following - due < span:
            span = following - due
        named = f"nats-scheduler:{sequence}:{due}:{schedule}"
        drawn = int(blake2b(named.encode(), digest_size=8).hexdigest(), 16)
        return due + drawn * span // 2**64

    def following(self, due: int, stored_at: int) -> int | None:
        """Give the due instant behind another; None behind the last one."""
        if not self.repeats:
            return None
        until = due + LOOK_AHEAD_SECONDS * SECOND
        found = next((instant for instant in self.dues(stored_at, until) if instant > due), None)
        assert found is not None or self.policies.bounds_something, f"{self}: nothing is due behind {due}"
        return found
