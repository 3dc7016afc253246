"""The number of fires in each of the next minutes, and the schedules that fire next, over any number of streams.

The rules:

- Nothing is changed; each schedule is counted once, at the instant that was given. What fires once and only waits is
  counted by SQLite (`engine.views.view`).
- Schedules that repeat at the same instants (`Pattern.grid`) are searched once and counted together.
- A schedule that its stream removes within the span is counted until then.
- The work is bounded: after `MAX_GRIDS` different grids, or `MAX_STEPS` minutes that were searched, only the next fire
  of each further schedule is counted, and `is_complete` is False.

Limit: a fire is counted at its fire time, also if a jitter delays it.
Cost: about two microseconds for a schedule that is counted here, and for each minute of a grid.
"""

from collections.abc import Generator, Hashable

from nats_scheduler.engine.holding.flight import DONE
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.patterns import Every

MAX_GRIDS = 50_000
"""Different grids of repeating schedules that are counted."""

MAX_STEPS = 200_000
"""Minutes of patterns that are searched, for one timeline: about a second of work."""

STEPS_PER_UNIT = 32
"""Minutes that are searched in one unit of work, some microseconds each."""

MAX_UNSORTED = 512
"""Schedules that may be among the soonest and are not sorted yet."""

_NEVER = 1 << 100


class _Grid:
    """Schedules that fire at the same instants in (after, until), in ns."""

    __slots__ = ("after", "count", "pattern", "stored_at", "until")

    def __init__(self, held: Held, after: int, until: int) -> None:
        self.pattern = held.pattern
        self.stored_at = held.stored_at
        self.after = after
        self.until = until
        self.count = 0


class Timeline:
    """The counts of one request."""

    def __init__(self, now: int, minutes: int, soonest: int) -> None:
        """Count the fires after `now` (ns) in `minutes` minutes of UTC, what is left of the present one included."""
        self.now = now
        self.start = now - now % MINUTE
        self.end = self.start + minutes * MINUTE
        self.counts = [0] * minutes
        self.is_complete = True
        self._grids: dict[Hashable, _Grid] = {}
        self._steps = 0
        self.most = soonest
        """The most schedules that are named."""
        self._found: list[tuple[int, str, str]] = []
        self._last = _NEVER
        """No schedule that fires later (ns) is among the soonest."""

    @property
    def soonest(self) -> list[tuple[int, str, str]]:
        """The schedules that fire next: fire time (ns), subject, stream."""
        return sorted(self._found)[: self.most]

    def add(self, stream: str, held: Held, lifetimes: Lifetimes) -> bool:
        """Take a schedule of a stream; returns whether it was looked at, and not left out at once."""
        if held.fire_time >= self.end and held.fire_time > self._last:
            return False
        fire = self.count(held, lifetimes)
        if fire is not None and fire <= self._last:
            self.note(fire, held.subject, stream)
        return True

    def count(self, held: Held, lifetimes: Lifetimes) -> int | None:
        """Count the fires of a schedule; returns its next one (ns), None if it has none."""
        if (held.flight is not None and held.flight.stage in DONE) or held.no_fire is not None:
            return None
        is_past = held.fire_time <= self.now and held.repeats
        fire = held.next_fire(self.now) if is_past else held.fire_time
        ends = lifetimes.ends(held)
        if fire is None or ends <= fire:
            return None
        if self.now < fire < self.end:
            self._count(held, fire, min(ends, self.end))
        return fire

    def note(self, fire: int, subject: str, stream: str) -> None:
        """Note a schedule that may be among the soonest."""
        self._found.append((fire, subject, stream))
        if len(self._found) >= self.most + MAX_UNSORTED:
            self._found = self.soonest
            self._last = self._found[-1][0]

    def finish(self) -> Generator[None, None, None]:
        """Count the schedules that repeat, after all were added; yield after each unit of work."""
        for grid in self._grids.values():
            for minute, count in grid.pattern.by_minute(grid.after, grid.until, grid.stored_at):
                self.counts[(minute - self.start) // MINUTE] += count * grid.count
                self._steps += 1
                if self._steps % STEPS_PER_UNIT == 0:
                    yield
                if self._steps >= MAX_STEPS:
                    self.is_complete = False
                    break
        self._grids.clear()  # the result may be kept

    def _count(self, held: Held, fire: int, until: int) -> None:
        pattern = held.pattern
        if not held.repeats or (isinstance(pattern, Every) and fire + pattern.interval >= until):
            self.counts[(fire - self.start) // MINUTE] += 1
            return
        # The grid of an interval begins with its first fire, which may be later than one interval from now.
        is_late = isinstance(pattern, Every) and fire > self.now + pattern.interval
        after = fire - 1 if is_late else self.now
        key = pattern.grid(held.stored_at), after, until
        grid = self._grids.get(key)
        if grid is None:
            if len(self._grids) >= MAX_GRIDS:
                self.counts[(fire - self.start) // MINUTE] += 1
                self.is_complete = False
                return
            grid = self._grids[key] = _Grid(held, after, until)
        grid.count += 1
