"""The messages that expire, and the removal of those whose TTL has run out, on servers that do not do it.

A server of 2.10 stores `Nats-TTL` and does not act on it. Later servers remove such messages themselves, and no
`Expiry` is made for them.

The rules:

- A removal is a request to read and then remove: what the server holds under the sequence is judged again by its own
  headers. So nothing else is ever removed, whatever is noted here.
- What expired first is removed first: where removals lag behind, all messages wait alike.
- The owner of the stream removes what has expired. A standby keeps it noted for a while, in case the owner does not.
- A message is never removed early, and at most a second late: instants are rounded up to the second, as newer servers
  do.
- A removal that fails is retried. After one that the server refuses for good, which is reported once, none is tried.

Sequences are kept in one array for each second: the order inside a second does not matter, and an array needs no object
for each message.
Cost: 8 bytes a message, about 160 for each second in which anything expires. That is 9 MB for a million messages in an
hour, and at worst 170 MB for a million that expire in as many different seconds.
Limit: a message that others removed stays noted until its time, and costs one read then.
"""

import heapq
from array import array
from collections.abc import Callable, Iterable, Sequence

from nats_scheduler.engine.actions import Action, RemoveExpired, Report
from nats_scheduler.engine.events import ExpiryFailed, MessagesExpired
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.flight import REFUSED_BACK_OFF_LIMIT_NS, wait_after
from nats_scheduler.engine.holding.ownership import Ownership
from nats_scheduler.engine.inputs import ExpiryConcluded
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.reading import expiry_of, lifetime_of
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

MAX_REMOVALS_IN_FLIGHT = 512
"""Removals that are in flight at once; the rest wait here, where a message costs 8 bytes."""

MAX_TAKEN_PER_STEP = 1_024
"""Messages that are taken from the queue in one step: those that wait for their fires are in no flight."""

EXPIRED_KEPT_NS = 60 * SECOND
"""The time (ns) for which a standby keeps noted what has expired, in case the owner ends before it removes it."""


class ExpiryQueue:
    """Numbers by the second in which they are due."""

    def __init__(self) -> None:
        self._seconds: list[int] = []
        self._numbers: dict[int, array[int]] = {}

    def add(self, instant: int, number: int) -> None:
        """Note that a number is due at the first full second that is not before `instant` (ns)."""
        second = -(-instant // SECOND)
        known = self._numbers.get(second)
        if known is None:
            self._numbers[second] = array("Q", (number,))
            heapq.heappush(self._seconds, second)
        else:
            known.append(number)

    def pop_due(self, now: int) -> int | None:
        """Take a number of the earliest second that has come by `now` (ns); None when there is none."""
        if not self._seconds or self._seconds[0] * SECOND > now:
            return None
        second = self._seconds[0]
        numbers = self._numbers[second]
        number = numbers.pop()
        if not numbers:
            del self._numbers[heapq.heappop(self._seconds)]
        return number

    def discard(self, until: int) -> None:
        """Discard what came due up to `until` (ns)."""
        while self._seconds and self._seconds[0] * SECOND <= until:
            del self._numbers[heapq.heappop(self._seconds)]

    def next_due(self) -> int | None:
        """Return the earliest instant (ns) at which a number comes due."""
        return self._seconds[0] * SECOND if self._seconds else None

    def clear(self) -> None:
        """Discard everything."""
        self._seconds.clear()
        self._numbers.clear()


class Expiry:
    """The messages that expire on one stream."""

    def __init__(self, dialects: Sequence[Dialect], ownership: Ownership, emit: Callable[[Action], object]) -> None:
        self._ownership = ownership
        self._emit = emit
        self._dialects = dialects
        self._queue = ExpiryQueue()
        self._refused = False
        self._attempts = 0
        self._paused_until = 0
        self._removed = 0
        self.in_flight = 0
        """The number of removals in flight."""

    def take(self, message: StoredMessage) -> int | None:
        """Note a message that was read; returns when it expires (ns), None if it does not."""
        expires = expiry_of(message, self._dialects)
        if expires is not None:
            self._add(expires, message.sequence)
        return expires

    def fires_stored(self, fires: Iterable[Fire]) -> None:
        """Note the messages that these fires have stored: they may not be read back before they expire."""
        for fire in fires:
            if (lifetime := lifetime_of(fire.block)) is not None:
                self._add(fire.stored_at + lifetime, fire.stored_as)

    def remove_due(self, now: int, is_needed: Callable[[int], bool]) -> None:
        """Request the removal of what has expired; a message that `is_needed` for a fire waits for another second."""
        if not self._ownership.is_owner:
            self._queue.discard(now - EXPIRED_KEPT_NS)
            return
        for _ in range(MAX_TAKEN_PER_STEP):
            if now < self._paused_until or self.in_flight >= MAX_REMOVALS_IN_FLIGHT:
                return
            if (sequence := self._queue.pop_due(now)) is None:
                return
            if is_needed(sequence):
                self._add(now + SECOND, sequence)
            else:
                self.in_flight += 1
                self._emit(RemoveExpired(sequence, now))

    def next_wake(self) -> int | None:
        """Return the earliest instant (ns) with something to remove; None if an answer has to arrive first."""
        due = self._queue.next_due()
        if due is None or self.in_flight >= MAX_REMOVALS_IN_FLIGHT:
            return None
        return max(due, self._paused_until) if self._ownership.is_owner else due + EXPIRED_KEPT_NS

    def concluded(self, conclusion: ExpiryConcluded, now: int) -> None:
        """Discard a message that is gone, or note it again."""
        self.in_flight -= 1
        if conclusion.refused:
            self._give_up(conclusion)
        elif conclusion.failure is not None:
            self._pause(conclusion, conclusion.failure, now)
        else:
            self._attempts = 0
            self._removed += conclusion.subject is not None
            if conclusion.expires is not None:
                self._add(conclusion.expires, conclusion.sequence)

    def clock_stepped_back(self, by: int) -> None:
        """Keep a pause as long as it was although the wall clock shows `by` ns less than before."""
        self._paused_until -= by

    def report(self) -> None:
        """Report how many messages were removed since the last report."""
        if self._removed:
            self._emit(Report(MessagesExpired(self._removed)))
            self._removed = 0

    def _add(self, instant: int, sequence: int) -> None:
        if not self._refused:
            self._queue.add(instant, sequence)

    def _pause(self, conclusion: ExpiryConcluded, reason: str, now: int) -> None:
        """Pause all removals, longer each time; failures of removals that are in flight do not extend a pause."""
        if now >= self._paused_until:
            self._attempts += 1
            self._paused_until = now + wait_after(self._attempts, REFUSED_BACK_OFF_LIMIT_NS)
            self._emit(Report(ExpiryFailed(conclusion.sequence, reason, refused=False)))
        self._add(self._paused_until, conclusion.sequence)

    def _give_up(self, conclusion: ExpiryConcluded) -> None:
        if not self._refused:
            self._refused = True
            self._queue.clear()
            self._emit(Report(ExpiryFailed(conclusion.sequence, conclusion.failure or "", refused=True)))
