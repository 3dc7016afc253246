"""The schedules whose missed fires wait for their turn, so that an outage does not end with all of them at once.

The rules:

- So many a second of them get their turn, the earliest send time first (`catch_up_rate`). They come in groups, some
  times a second, so that what reads and writes them has something to do at once.
- One that waits is still in the table as it was: a restart, or another owner, finds that its fire is owed.

Cost: two entries for each schedule that waits, which is an object as long (`engine.holding.scheduled`).
"""

import heapq

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

MIN_PERIOD_NS = 100 * MILLISECOND
"""The shortest time (ns) between two groups."""


class CatchUp:
    """The schedules of one stream that wait for their turn."""

    def __init__(self, rate: int) -> None:
        """Give a turn to at most `rate` schedules a second (1 or more)."""
        self.rate = rate
        self.waiting: dict[int, Held] = {}
        """Those that wait, by sequence; one that is taken out does not wait any more."""
        self._order: list[tuple[int, int]] = []
        """Their send times and sequences, as a heap; stale entries are skipped."""
        self._most = max(rate * MIN_PERIOD_NS // SECOND, 1)
        """The number of schedules in a group."""
        self._left = 0
        """Turns of this group that are left."""
        self._next_group_at = 0
        self.reported_at = 0
        """The instant (ns) at which it was reported last that many wait, 0 if it was not since none waited."""

    def wait(self, held: Held) -> None:
        """Have a schedule wait for its turn."""
        if held.sequence not in self.waiting:
            self.waiting[held.sequence] = held
            heapq.heappush(self._order, (held.send_time, held.sequence))

    def need_not_wait(self, now: int) -> bool:
        """Take a turn at `now` (ns) for a schedule that does not wait, if there is one and none waits; return that."""
        if self.waiting or not self._turns(now):
            return False
        self._left -= 1
        return True

    def take(self, now: int, most: int) -> list[Held]:
        """Return the schedules whose turn has come at `now` (ns), at most `most`: they do not wait any more."""
        taken: list[Held] = []
        most = min(self._turns(now), most) if self.waiting else 0
        while len(taken) < most and self.earliest() is not None:
            taken.append(self.waiting.pop(heapq.heappop(self._order)[1]))
        self._left -= len(taken)
        return taken

    def _turns(self, now: int) -> int:
        """Return how many turns are left at `now` (ns)."""
        if now >= self._next_group_at:
            self._left, self._next_group_at = self._most, now + self._most * SECOND // self.rate
        return self._left

    def next_turn(self) -> int:
        """Return when (ns) the next turn comes, which may be past."""
        return 0 if self._left else self._next_group_at

    def earliest(self) -> int | None:
        """Return the earliest send time (ns) of those that wait, None if none does."""
        order = self._order
        while order:
            send_time, sequence = order[0]
            if sequence in self.waiting:
                return send_time
            heapq.heappop(order)
        return None

    def clock_stepped_back(self, by: int) -> None:
        """Keep the wait as long as it was although the wall clock shows `by` ns less than before."""
        self._next_group_at -= by
