"""The schedules whose fires the server refuses at the moment, by reason, and which of them retries next.

The first refusal of a fire by its guard does not come here: its schedule is fetched at once (`engine.firing.outcomes`).

The rules:

- Refusals with the same code are assumed to have the same reason and to end together: a stream that was full, a
  missing permission. So for each reason one schedule, the *probe*, retries soon, and the others rest.
- A refused fire that is stored in the end starts two others, so that all are back after some round trips; if the
  reason persists for others, it costs no more attempts than that.
- A probe that is refused again passes its turn on: one schedule with a mistake of its own delays no other.
- A schedule that rests is retried now and then anyway, at most `MAX_RESTING_RETRIES_PER_SECOND` for each reason.
- A refusal that concerns one subject at one moment (`OF_A_MOMENT`) is no reason that others share. Each such fire
  is retried on its own, within `OWN_BACK_OFF_LIMIT_NS` unless there are very many.

- How many schedules are failing is reported when that has changed, and each reason that persists now and then.

Cost: two dictionary entries for each refused schedule, one attempt a second for each reason that persists.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import SchedulesFailing, StillRefused
from nats_scheduler.engine.holding.flight import FIRST_BACK_OFF_NS, REFUSED_BACK_OFF_LIMIT_NS, wait_after
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.message.generated import UNDECIDED, WRONG_LAST_SEQUENCE
from nats_scheduler.message.rejection import Failing
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

PROBE_BACK_OFF_LIMIT_NS = 1 * SECOND
"""Longest back-off (ns) of the probe: *Live* promises that fires resume within 3 s."""

MAX_RESTING_RETRIES_PER_SECOND = 100
"""Most resting schedules that are retried in a second, for each reason."""

OF_A_MOMENT = WRONG_LAST_SEQUENCE | UNDECIDED
"""The server's codes for conditions of one subject, or of one message, that end within moments.

Another message is the last one on the subject (10071), as also a leader finds that is behind the node from which the
schedule was read; or is being stored there (10164), as the fire before is on a leader that has not applied it; or that
cannot be found out yet (10163). The leader has numbered the message as one before it led (10063).
All others last until an operator acts, and are the stream's or the account's: no room (10002, 10023, 10047, 10077), no
permission (403), an option that is off (10109, 10111, 10166); or they are the schedule's own for ever (400, 10054,
10097, 10165, 10190). That an identity is in process (10158) is no refusal: its outcome is unknown.
"""

OWN_BACK_OFF_LIMIT_NS = 500 * MILLISECOND
"""Longest back-off (ns) after a refusal of a moment."""

MAX_OWN_RETRIES_PER_SECOND = 500
"""Most schedules that are retried in a second after refusals of a moment, for each code."""

RETRIES_PER_STORED = 2
"""Schedules that retry for each fire that is stored: the number doubles, so 100,000 are back after 17 round trips."""

REMINDER_INTERVAL_NS = 300 * SECOND
"""A reason that persists is reported again after this time (ns)."""


@dataclass(slots=True)
class _Reason:
    """The schedules that are refused with one code."""

    reported_at: int
    is_shared: bool
    """True if one schedule retries for all; else each retries on its own."""
    members: dict[int, Held] = field(default_factory=dict)
    """By sequence; the one that waits longest is first."""
    probe: int = 0
    """The sequence of the schedule that retries for all."""
    tries_at: int = 0
    """The instant (ns) at which the probe retries, or did."""
    attempts: int = 0


class Refusals:
    """The refused schedules of one stream."""

    def __init__(self, schedules: Schedules, emit: Callable[[Action], object]) -> None:
        self._schedules = schedules
        self._emit = emit
        self.reported = 0
        """The number of failing schedules that was reported last."""
        self.held: dict[int, Held] = {}
        """The schedules whose fires are refused, by sequence."""
        self._codes: dict[int, int] = {}
        self.reasons: dict[int, _Reason] = {}

    def schedule_retry(self, held: Held, code: int, failures: int, now: int) -> int:
        """Schedule the retry of a fire that was refused, after so many `failures`; returns the longest wait (ns)."""
        sequence = held.sequence
        if self._codes.get(sequence, code) != code:
            self.discard(sequence)
        reason = self.reasons.get(code)
        if reason is None:
            reason = self.reasons[code] = _Reason(now, code not in OF_A_MOMENT)
        self.held[sequence], self._codes[sequence] = held, code
        reason.members.pop(sequence, None)
        reason.members[sequence] = held
        if not reason.is_shared:
            reason.probe = reason.probe or sequence
            wait = wait_after(failures, OWN_BACK_OFF_LIMIT_NS)
            wait = max(wait, len(reason.members) * SECOND // MAX_OWN_RETRIES_PER_SECOND)
            self._schedules.wake(held, now + wait)
            return wait
        rest = max(REFUSED_BACK_OFF_LIMIT_NS, len(reason.members) * SECOND // MAX_RESTING_RETRIES_PER_SECOND)
        self._schedules.wake(held, now + rest)
        if reason.probe in (0, sequence):
            reason.attempts += 1
            wait = wait_after(reason.attempts, PROBE_BACK_OFF_LIMIT_NS)
            self._probe(reason, now + wait)
        return reason.tries_at - now if reason.probe == sequence else rest

    def stored(self, sequence: int, now: int) -> None:
        """Let others retry, since a fire that was refused is stored."""
        reason = self.reasons[self._codes[sequence]]
        self.discard(sequence)
        reason.attempts = 0
        for other in list(islice(reason.members, RETRIES_PER_STORED if reason.is_shared else 0)):
            reason.members[other] = held = reason.members.pop(other)
            self._schedules.wake(held, now)

    def retry_soon(self, now: int) -> None:
        """Let the probe of each reason retry soon: the reason may have ended."""
        at = now + FIRST_BACK_OFF_NS  # a request for a change is seen before the change is made, and may come often
        for reason in self.reasons.values():
            reason.attempts = 0
            if reason.is_shared and reason.tries_at > at:
                reason.tries_at = at
                self._schedules.wake(reason.members[reason.probe], at)

    def discard(self, sequence: int) -> None:
        """Discard a schedule; if it was the probe, the next one is."""
        del self.held[sequence]
        code = self._codes.pop(sequence)
        reason = self.reasons[code]
        del reason.members[sequence]
        if not reason.members:
            del self.reasons[code]
        elif reason.probe == sequence:
            self._probe(reason, reason.tries_at)

    def clock_stepped_back(self, by: int) -> None:
        """Keep the waits as long as they were although the wall clock shows `by` ns less than before."""
        for reason in self.reasons.values():
            reason.reported_at -= by
            reason.tries_at -= by

    def report(self, now: int) -> None:
        """Report what has changed by `now` (ns), and what lasts."""
        if len(self.held) != self.reported:
            self.reported = len(self.held)
            self._emit(Report(SchedulesFailing(self.reported)))
        for reason in self.reasons.values():
            if now - reason.reported_at >= REMINDER_INTERVAL_NS:
                reason.reported_at = now
                held = reason.members[reason.probe]
                assert held.flight is not None, "what is refused is in progress"
                assert held.flight.failing is not None, "and known to be refused"
                told = (*held.flight.failing, len(reason.members))
                self._emit(Report(StillRefused(held.subject, held.sequence, *told)))

    def longest(self, most: int) -> list[tuple[int, Failing]]:
        """Return at most `most` schedules by sequence, those that are refused longest first, and why."""
        flights = ((sequence, held.flight) for sequence, held in islice(self.held.items(), most))
        return [(sequence, flight.failing) for sequence, flight in flights if flight is not None and flight.failing]

    def _probe(self, reason: _Reason, at: int) -> None:
        """Make the schedule that waits longest the probe, which retries at an instant (ns) if the reason is shared."""
        reason.probe, reason.tries_at = next(iter(reason.members)), at
        if reason.is_shared:
            self._schedules.wake(reason.members[reason.probe], at)
