"""The schedules whose fires the server refuses at the moment, by reason, and which of them retries next.

The rules:

- Refusals with the same code are assumed to have the same reason and to end together: a stream that was full, a missing
  permission. So for each reason one schedule, the *probe*, retries soon, and the others rest.
- A refused fire that is stored in the end starts two others, so that all are back after some round trips; if the reason
  persists for others, it costs no more attempts than that.
- A probe that is refused again passes its turn on: one schedule with a mistake of its own delays no other.
- A schedule that rests is retried now and then anyway, at most `MAX_RESTING_RETRIES_PER_SECOND` for each reason.

Cost: two dictionary entries for each refused schedule, one attempt a second for each reason that persists.
"""

from dataclasses import dataclass, field
from itertools import islice

from nats_scheduler.engine.flight import FIRST_BACK_OFF_NS, REFUSED_BACK_OFF_LIMIT_NS, Failing
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.roster import Roster
from nats_scheduler.schedule.instants import SECOND

PROBE_BACK_OFF_LIMIT_NS = 1 * SECOND
"""Longest back-off (ns) of the probe: *Live* promises that fires resume within 3 s."""

MAX_RESTING_RETRIES_PER_SECOND = 100
"""Most resting schedules that are retried in a second, for each reason."""

RETRIES_PER_STORED = 2
"""Schedules that retry for each fire that is stored: the number doubles, so 100,000 are back after 17 round trips."""

REMINDER_INTERVAL_NS = 300 * SECOND
"""A reason that persists is reported again after this time (ns)."""


@dataclass(slots=True)
class _Reason:
    """The schedules that are refused with one code."""

    reported_at: int
    members: dict[int, Held] = field(default_factory=dict)
    """By sequence; the one that waits longest is first."""
    probe: int = 0
    """The sequence of the schedule that retries for all."""
    tries_at: int = 0
    """When (ns) the probe retries, or did."""
    attempts: int = 0


class Refusals:
    """The refused schedules of one stream."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.held: dict[int, Held] = {}
        """The schedules whose fires are refused, by sequence."""
        self._codes: dict[int, int] = {}
        self._reasons: dict[int, _Reason] = {}

    def refused(self, held: Held, code: int, now: int) -> int:
        """Schedule the retry of a refused fire, soon or when its turn comes; returns the longest wait (ns)."""
        sequence = held.sequence
        if self._codes.get(sequence, code) != code:
            self.discard(sequence)
        reason = self._reasons.get(code)
        if reason is None:
            reason = self._reasons[code] = _Reason(reported_at=now)
        self.held[sequence], self._codes[sequence] = held, code
        reason.members.pop(sequence, None)
        reason.members[sequence] = held
        rest = max(REFUSED_BACK_OFF_LIMIT_NS, len(reason.members) * SECOND // MAX_RESTING_RETRIES_PER_SECOND)
        self._roster.wake(held, now + rest)
        if reason.probe in (0, sequence):
            wait = min(FIRST_BACK_OFF_NS << min(reason.attempts, 20), PROBE_BACK_OFF_LIMIT_NS)
            reason.attempts += 1
            self._probe(reason, now + wait)
        return reason.tries_at - now if reason.probe == sequence else rest

    def stored(self, sequence: int, now: int) -> None:
        """Let others retry, since a fire that was refused is stored."""
        reason = self._reasons[self._codes[sequence]]
        self.discard(sequence)
        reason.attempts = 0
        for other in list(islice(reason.members, RETRIES_PER_STORED)):
            reason.members[other] = held = reason.members.pop(other)
            self._roster.wake(held, now)

    def retry_soon(self, now: int) -> None:
        """Let the probe of each reason retry soon: the reason may have ended."""
        at = now + FIRST_BACK_OFF_NS  # a request for a change is seen before the change is made, and may come often
        for reason in self._reasons.values():
            reason.attempts = 0
            if reason.tries_at > at:
                reason.tries_at = at
                self._roster.wake(reason.members[reason.probe], at)

    def discard(self, sequence: int) -> None:
        """Discard a schedule; if it was the probe, the next one is."""
        del self.held[sequence]
        code = self._codes.pop(sequence)
        reason = self._reasons[code]
        del reason.members[sequence]
        if not reason.members:
            del self._reasons[code]
        elif reason.probe == sequence:
            self._probe(reason, reason.tries_at)

    def clock_stepped_back(self, by: int) -> None:
        """Keep the waits as long as they were although the wall clock shows `by` ns less than before."""
        for reason in self._reasons.values():
            reason.reported_at -= by
            reason.tries_at -= by

    def reminders(self, now: int) -> list[tuple[Held, int]]:
        """Return the probe and the number of schedules of each reason that is due to be reported again."""
        persisting = [reason for reason in self._reasons.values() if now - reason.reported_at >= REMINDER_INTERVAL_NS]
        for reason in persisting:
            reason.reported_at = now
        return [(reason.members[reason.probe], len(reason.members)) for reason in persisting]

    def reasons(self, most: int) -> list[tuple[int, Failing]]:
        """Return at most so many schedules by sequence, those that are refused longest first, and why."""
        flights = ((sequence, held.flight) for sequence, held in islice(self.held.items(), most))
        return [(sequence, flight.failing) for sequence, flight in flights if flight is not None and flight.failing]

    def _probe(self, reason: _Reason, at: int) -> None:
        """Make the schedule that waits longest the probe, which retries at an instant (ns)."""
        reason.probe, reason.tries_at = next(iter(reason.members)), at
        self._roster.wake(reason.members[reason.probe], at)
