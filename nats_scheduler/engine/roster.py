"""The schedules that are held, and when each of them has to be looked at next.

The rule: a held schedule has at most one valid entry in the agenda, the one whose instant equals its `wake`.
Entries are never searched for; one that became stale is skipped when its time comes.
When more than half of the agenda is stale, it is built anew, so that memory follows what is held.

Cost: a lookup per message, a heap push and pop per wake; about 300 bytes a schedule.
"""

import heapq
from collections.abc import Iterator

from nats_scheduler.engine.flight import Flight
from nats_scheduler.engine.shards import shard_of
from nats_scheduler.message.definition import Definition

MIN_AGENDA_ENTRIES = 1024
"""Below this many entries the agenda is never rebuilt."""

NO_WAKE = -1

NO_EXPIRY = 1 << 100
"""Later (ns) than any TTL can end."""


class Held:
    """A schedule that is held: the last message on its subject, and valid."""

    __slots__ = ("definition", "due", "expires", "flight", "sequence", "shard", "stored_at", "subject", "wake")

    def __init__(self, subject: str, sequence: int, stored_at: int, definition: Definition, due: int) -> None:
        self.subject = subject
        self.shard = shard_of(subject)
        self.sequence = sequence
        self.stored_at = stored_at
        self.definition = definition
        self.due = due
        """Its next fire (ns), or the last one where it has ended."""
        self.expires = NO_EXPIRY
        """When its TTL runs out (ns), where the sidecar has to see to it: it never fires for a time from then on."""
        self.flight: Flight | None = None
        """What is under way, None while it only waits."""
        self.wake: int = NO_WAKE
        """The instant of its valid agenda entry."""

    @property
    def only_expires(self) -> bool:
        """Whether its TTL runs out before its next fire."""
        return self.expires <= self.due

    def __lt__(self, other: "Held") -> bool:
        """Order two entries of one message: at most one of them is valid, so that any order will do."""
        return False


class Roster:
    """The held schedules by subject, and the agenda."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._agenda: list[tuple[int, int, Held]] = []

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def on(self, subject: str) -> Held | None:
        """Return the schedule held on a subject."""
        return self._held.get(subject)

    def exactly(self, subject: str, sequence: int) -> Held | None:
        """Return the schedule held on a subject if it is still the one with this sequence."""
        held = self._held.get(subject)
        return held if held is not None and held.sequence == sequence else None

    def hold(self, held: Held) -> None:
        """Hold a schedule in place of whatever was held on its subject."""
        self.drop(held.subject)
        self._held[held.subject] = held

    def drop(self, subject: str) -> Held | None:
        """Hold nothing on a subject; returns what was held."""
        held = self._held.pop(subject, None)
        if held is not None:
            held.wake = NO_WAKE
        return held

    def wake(self, held: Held, instant: int) -> None:
        """Have the schedule looked at when `instant` (ns) comes, instead of any time set before."""
        held.wake = instant
        heapq.heappush(self._agenda, (instant, held.sequence, held))
        if len(self._agenda) > 2 * len(self._held) + MIN_AGENDA_ENTRIES:
            self._agenda = [(h.wake, h.sequence, h) for h in self._held.values() if h.wake != NO_WAKE]
            heapq.heapify(self._agenda)

    def rest(self, held: Held) -> None:
        """Look at the schedule no more, until it is woken for another reason."""
        held.wake = NO_WAKE

    def next_wake(self) -> int | None:
        """Return the earliest instant at which something is to be looked at."""
        agenda = self._agenda
        while agenda and agenda[0][2].wake != agenda[0][0]:
            heapq.heappop(agenda)
        return agenda[0][0] if agenda else None

    def pop_woken(self, now: int) -> Held | None:
        """Take the next schedule whose time has come, by time and then by sequence; None when there is none."""
        instant = self.next_wake()
        if instant is None or instant > now:
            return None
        held = heapq.heappop(self._agenda)[2]
        held.wake = NO_WAKE
        return held
