"""The ends of schedules that a stream removes by itself, and the reasons why a schedule that was held is gone.

A stream removes messages without a request: by `max_age`, by a message's own TTL, and by its limits of messages and
bytes. A schedule that is removed that way before its fire is a mistake that is easily missed, so it is reported.

The rules:

- A TTL is known from the message alone: a schedule with one ends when it runs out, whether the server or the sidecar
  acts on it.
- `max_age` is decided by the server alone: when it is over the schedule is re-checked, and again after a while if it is
  still there, since servers remove such messages some time later.
- A removal that was requested is not attributed to a limit: requests seen on the API are noted until what they concern
  is found gone.
- A request may be received before the messages that it removes: it concerns all that was stored before it was received.

Cost: one addition for each schedule that is read or advances; one dictionary entry for each request to remove a
schedule that is held. Limit: `Nats-Rollup: all` empties a stream without a request, and is attributed to a limit.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.holding.held import NEVER_EXPIRES, NO_EXPIRY, Held
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.message.ages import is_cut_off, is_early
from nats_scheduler.message.headers import MARKER_REASON, MSG_TTL, header_value
from nats_scheduler.message.reading import lifetime_of
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject, subject_matches
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import Pattern


class PausedSchedule(NamedTuple):
    """A paused schedule, as it would be if it was resumed.

    One that would be rejected then is kept as rejected (`engine.holding.inactive`): it has no pattern to be shown.
    """

    subject: str
    sequence: int
    stored_at: int
    """The instant (ns) at which the message was stored, which is when it was paused."""
    expires: int
    """The instant (ns) at which its TTL runs out, `NO_EXPIRY` if it has none."""
    pattern: Pattern
    terms: Terms


MAX_AGE_SLACK_NS = 2 * SECOND
"""The time (ns) after the end of `max_age` at which a schedule is re-checked: servers remove aged messages about once a
second."""

MAX_REQUESTS_NOTED = 10_000
"""Most requests to remove one message that are noted; beyond that the oldest is discarded."""

MAX_SUBJECTS_NOTED = 1_000
"""Most subjects of which it is noted when the removal of all that is stored on them was requested."""

MAX_WIDE_REQUESTS_NOTED = 64
"""Most requests with a wildcard, or for a whole stream, that are noted."""

_NEVER = b"never"


class Lifetimes:
    """The ends of one stream's schedules that were not requested."""

    def __init__(self, rules: StreamRules, *, removes_expired: bool, keeps_all: bool) -> None:
        """Take the rules of the stream; `removes_expired` if the sidecar acts on TTLs because the server does not.

        `keeps_all` is False if consumers remove messages too.
        """
        self._keeps_all = keeps_all
        self.limited(rules)
        self._reads_ttl = not removes_expired and rules.allow_msg_ttl
        self._asked: dict[int, None] = {}
        self._emptied: dict[str, int] = {}
        """By subject, when (ns) the removal of all that is stored on it was requested."""
        self._wide: list[tuple[str | None, int, int]] = []
        """Filters, up to which sequence, and of what was stored until when (ns)."""
        self._discarded_through = 0
        """The removal of what was read up to this sequence may have been requested by a request that was discarded."""
        self._unseen_through = 0
        """The removal of what was read up to this sequence may have been requested while no requests were received."""

    def limited(self, rules: StreamRules) -> None:
        """Take the limits of the stream, which may have changed.

        A schedule that already waits is re-checked at the instant of the old limits; from then on the new ones count.
        """
        self.max_age = rules.max_age
        """The time (ns) for which the stream keeps a message; 0 if it sets no limit."""
        self.duplicate_window = rules.duplicate_window
        """The time (ns) for which the stream keeps an identity."""
        self._evicts = rules.evicts and self._keeps_all

    def expiry(self, message: StoredMessage, known: int | None) -> int:
        """Return when the TTL of a schedule runs out (ns); `known` is that instant if the sidecar acts on TTLs."""
        if known is not None:
            return known
        if not self._reads_ttl or message.block.find(MSG_TTL) < 0:
            return NO_EXPIRY
        lifetime = lifetime_of(message.block)
        if lifetime is not None:
            return message.stored_at + lifetime
        # As newer servers do: such a message outlives `max_age`.
        return NEVER_EXPIRES if header_value(message.block, MSG_TTL) == _NEVER else NO_EXPIRY

    def may_end(self, message: StoredMessage, fire_time: int) -> bool:
        """Return whether a TTL may end a schedule that was stored, or `max_age` before a fire time (ns)."""
        if self.max_age and message.stored_at + self.max_age <= fire_time:
            return True
        return self._reads_ttl and message.block.find(MSG_TTL) >= 0 and self.expiry(message, None) != NO_EXPIRY

    def may_end_any(self, run: MessageRun, fire_times: Sequence[int]) -> bool:
        """Return the same for one of many that were stored, each with its fire time."""
        age = self.max_age
        if age and any(stored_at + age <= fire for stored_at, fire in zip(run.times, fire_times, strict=True)):
            return True
        return self._reads_ttl and any(block.find(MSG_TTL) >= 0 for block in run.blocks)

    def ends(self, held: Held | PausedSchedule) -> int:
        """Return when the stream removes a schedule (ns); `NO_EXPIRY` or later if it keeps it."""
        return self.ends_at(held.expires, held.stored_at)

    def ends_at(self, expires: int, stored_at: int) -> int:
        """Return the same for a schedule that expires and was stored at these instants (ns)."""
        if not self.max_age or expires == NEVER_EXPIRES:
            return expires
        return min(expires, stored_at + self.max_age)

    def early(self, held: Held) -> Ending | None:
        """Return what ends a schedule before its next fire, None if nothing does."""
        ends = self.ends(held)
        if not is_early(ends, held.send_time):
            return None
        return Ending.EXPIRED if ends == held.expires else Ending.MAX_AGE

    def cuts_off(self, held: Held) -> bool:
        """Return whether `max_age` ends a schedule that would fire again after that."""
        ends = self.ends(held)
        return bool(self.max_age) and ends < held.expires and is_cut_off(held, ends)

    def age_check_at(self, held: Held, now: int = 0) -> int:
        """Return when (ns) to re-check whether `max_age` has ended a schedule.

        One that outlived it by some time is re-checked after as long again. So a schedule that is kept for another
        reason costs a few reads in its life.
        """
        if held.expires == NEVER_EXPIRES:
            return NEVER_EXPIRES
        aged = held.stored_at + self.max_age
        return max(aged, now) + max(MAX_AGE_SLACK_NS, now - aged)

    def why_gone(self, held: Held, now: int) -> Ending:
        """Return why a schedule is gone that was not found at `now` (ns)."""
        if self.was_asked(held.subject, held.sequence, held.stored_at):
            return Ending.REMOVED
        if self.ends(held) <= now:
            return Ending.EXPIRED if held.expires <= now else Ending.MAX_AGE
        return Ending.LIMITS if self._evicts and held.sequence > self._unseen_through else Ending.REMOVED

    def why_expired(self, held: Held) -> Ending:
        """Return why a schedule ends whose TTL has run out: it may have been removed long before."""
        return Ending.REMOVED if self.was_asked(held.subject, held.sequence, held.stored_at) else Ending.EXPIRED

    def why_overwritten(self, held: Held, message: StoredMessage) -> Ending:
        """Return why a message that is no schedule replaced one: it may be the marker that the server left."""
        if message.block.find(MARKER_REASON) < 0:
            return Ending.OVERWRITTEN
        if header_value(message.block, MARKER_REASON) != b"MaxAge":
            return Ending.REMOVED
        return Ending.EXPIRED if held.expires <= message.stored_at else Ending.MAX_AGE

    # -- requests ------------------------------------------------------------------------------------------------

    def removal_requested(self, request: RemovalRequested, schedules: Schedules, last_read: int, now: int) -> None:
        """Note what a request may have removed, `now` (ns); `last_read` is the highest sequence read."""
        below, until = (last_read + 1, now) if request.below is None else (request.below, 0)
        if request.sequence is not None:
            self._remember(request.sequence)
        elif request.filter is None or not is_literal_subject(request.filter):
            self._wide.append((request.filter, below - 1, until))
            if len(self._wide) > MAX_WIDE_REQUESTS_NOTED:
                self._discarded_through = max(self._discarded_through, self._wide.pop(0)[1])
        else:
            if until:
                self._emptied[request.filter] = until
                if len(self._emptied) > MAX_SUBJECTS_NOTED:
                    del self._emptied[next(iter(self._emptied))]
            for held in (schedules.on(request.filter), *schedules.owed_on(request.filter)):
                if held is not None and held.sequence < below:
                    self._remember(held.sequence)

    def requests_missed(self, last_read: int) -> None:
        """Note that requests to remove messages up to `last_read` may have been missed."""
        self._unseen_through = last_read

    def _remember(self, sequence: int) -> None:
        self._asked[sequence] = None
        if len(self._asked) > MAX_REQUESTS_NOTED:
            oldest = next(iter(self._asked))
            del self._asked[oldest]
            self._discarded_through = max(self._discarded_through, oldest)

    def was_asked(self, subject: str, sequence: int, stored_at: int) -> bool:
        """Return whether the removal of a schedule was requested, or may have been."""
        if sequence in self._asked or sequence <= self._discarded_through or stored_at <= self._emptied.get(subject, 0):
            return True
        return any(
            (sequence <= through or stored_at <= until) and (wanted is None or subject_matches(subject, wanted))
            for wanted, through, until in self._wide
        )
