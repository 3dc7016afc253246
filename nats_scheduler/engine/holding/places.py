"""Which schedules of a stream are held if the operator limits how many.

The rule: the oldest stored schedules have the places, by the sequence of the message that is the last on its
subject. That follows from what is stored alone, so that every instance holds the same ones, before and after a
restart. So a schedule that is replaced while others wait goes to the end of the queue: its message is the youngest.

A place becomes free when a schedule is not held any more: it was removed, overwritten, or replaced by an invalid
one. Then the oldest that waits is held. Fires that came due while it waited are not made up: they would be hours
late.

Cost: nothing without a limit; otherwise two heap entries a schedule.
"""

import heapq

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.restrictions import Restrictions


class Places:
    """The places of one stream, and the schedules that wait for one."""

    def __init__(self, schedules: Schedules, restrictions: Restrictions) -> None:
        self._schedules = schedules
        self._restrictions = restrictions
        self._most = restrictions.max_schedules
        self.is_limited = self._most is not None
        """True if the operator set a limit."""
        self._waiting: dict[str, Held] = {}
        self._oldest: list[tuple[int, str]] = []
        """Schedules that wait, as a heap; stale entries are skipped."""
        self._youngest: list[tuple[int, str]] = []
        """Schedules that are held, as a heap by their negative sequences; stale entries are skipped."""

    def __len__(self) -> int:
        return len(self._waiting)

    def waiting_on(self, subject: str) -> Held | None:
        """Return the schedule on a subject that waits for a place."""
        return self._waiting.get(subject)

    def all_waiting(self) -> list[Held]:
        """Return the schedules that wait."""
        return list(self._waiting.values())

    def wait(self, held: Held) -> None:
        """Let a schedule wait; it replaces an earlier version of it."""
        self._waiting[held.subject] = held
        heapq.heappush(self._oldest, (held.sequence, held.subject))

    def discard(self, subject: str) -> None:
        """Discard the schedule that waits on a subject, if there is one."""
        self._waiting.pop(subject, None)

    def placed(self, held: Held) -> None:
        """Note that a schedule has a place."""
        if self._most is not None:
            heapq.heappush(self._youngest, (-held.sequence, held.subject))

    def take_next(self) -> Held | None:
        """Take the oldest schedule that waits if there is a place for it."""
        if self._most is None or len(self._schedules) >= self._most or self._first_waiting() is None:
            return None
        _sequence, subject = heapq.heappop(self._oldest)
        return self._waiting.pop(subject)

    def misplaced(self) -> Held | None:
        """Return the youngest schedule with a place if an older one waits and no place is free."""
        waiting = self._first_waiting()
        if self._most is None or waiting is None or len(self._schedules) < self._most:
            return None
        held = self._last_held()
        return held if held is not None and held.sequence > waiting else None

    def rejection_of(self, held: Held) -> Rejection:
        """Return the rejection that says that there is no place for a schedule."""
        restrictions, most = self._restrictions, self._most or 0
        rejection = restrictions.number_fault(held.terms.dialect.schedule, held.pattern.text, most)
        assert rejection is not None, "a schedule waits only if there is a limit"
        return rejection

    def _first_waiting(self) -> int | None:
        """Return the sequence of the oldest schedule that waits."""
        oldest = self._oldest
        while oldest and not _is(self._waiting.get(oldest[0][1]), oldest[0][0]):
            heapq.heappop(oldest)
        return oldest[0][0] if oldest else None

    def _last_held(self) -> Held | None:
        youngest = self._youngest
        while youngest:
            sequence, subject = youngest[0]
            held = self._schedules.exactly(subject, -sequence)
            if held is not None:
                return held
            heapq.heappop(youngest)
        return None


def _is(held: Held | None, sequence: int) -> bool:
    return held is not None and held.sequence == sequence
