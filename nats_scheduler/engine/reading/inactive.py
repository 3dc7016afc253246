"""The subjects whose last message is a schedule that does not fire: it is rejected or paused.

The rules:

- There is at most one on a subject: the message that was stored last. What is held on a subject is not here.
- A rejection is reported once, by the holder of its shard, when everything stored has been read.
- A paused schedule is read again some time after a request that names it, and after the end of its lifetime. It is
  discarded if it is gone.
- What is removed in another way is discarded a moment after it is known (`engine.reading.admission`).

Cost: two look-ups for a question; some hundred bytes for each rejected or paused schedule.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import HeadersMisnamed, ScheduleRejected
from nats_scheduler.engine.fire import ReadContent
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.engine.holding.lifecycle import BURST_IN_FLIGHT, Lifecycle
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.inputs import ContentRead, RemovalRequested
from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.message.reading import Misnamed, paused_pattern
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

# What is kept of a message that is rejected as a schedule, active or paused.
#
# The rule: its texts are cut, since a stream may hold a million of them.

IF_RESUMED = "; it is paused, and would be rejected if it was resumed"
"""What follows the reason for which a paused schedule is rejected."""


class Rejected(NamedTuple):
    """A message that is rejected as a schedule; its texts are as they were written, up to `MAX_KEPT_CHARS`."""

    subject: str
    sequence: int
    rejection: Rejection
    stored_at: int
    """When (ns) the message was stored."""
    dialect: Dialect
    pattern: str
    target: str
    is_paused: bool = False
    """Whether it is paused: it is rejected for what it would be if it was resumed."""


def rejected_message(message: StoredMessage, rejection: Rejection, dialects: Sequence[Dialect]) -> Rejected:
    """Return what is kept of a rejected message; its dialect is the first one with a pattern, or with any header."""
    block = message.block
    written = [d for d in dialects if header_value(block, d.schedule)]
    others = (d for d in dialects if any(header_value(block, name) is not None for name in d.names))
    dialect = written[0] if written else next(others, dialects[0])
    pattern, target = (decoded(header_value(block, name) or b"") for name in (dialect.schedule, dialect.target))
    return _kept(message, rejection, dialect, pattern, target)


def rejected_paused(message: StoredMessage, rejection: Rejection, dialect: Dialect) -> Rejected:
    """Return what is kept of a paused schedule that would be rejected if it was resumed, and says so in its reason."""
    rejection = replace(rejection, reason=rejection.reason[: MAX_KEPT_CHARS - len(IF_RESUMED)] + IF_RESUMED)
    target = decoded(header_value(message.block, dialect.target) or b"")
    kept = _kept(message, rejection, dialect, paused_pattern(message.block, dialect), target)
    return kept._replace(is_paused=True)


def rejected_schedule(held: Held, rejection: Rejection) -> Rejected:
    """Return what is kept of a schedule that is valid, and rejected because the operator limits their number."""
    terms = held.terms
    return _kept(held, rejection, terms.dialect, held.pattern.text, terms.target)


def _kept(of: StoredMessage | Held, rejection: Rejection, dialect: Dialect, pattern: str, target: str) -> Rejected:
    texts = pattern[:MAX_KEPT_CHARS], target[:MAX_KEPT_CHARS]
    return Rejected(of.subject, of.sequence, rejection.shortened(), of.stored_at, dialect, *texts)


REMOVAL_CHECK_DELAYS_NS = (1 * SECOND, 30 * SECOND)
"""How long (ns) after a removal was possible a paused schedule is read, and then once more: servers take their time."""

MAX_CHECKS_PER_STEP = 64
"""Paused schedules that are read at once."""


class Inactive:
    """The rejected and paused schedules of one stream."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._ownership = lifecycle.ownership
        self._lifetimes = lifecycle.lifetimes
        self._progress = lifecycle.progress
        self._emit = lifecycle.emit
        self.rejected: dict[str, Rejected] = {}
        """By subject, as is `paused`."""
        self.paused: dict[str, PausedSchedule] = {}
        self._paused_at: dict[int, str] = {}
        """Their subjects, by their sequences."""
        self.checks: list[tuple[int, int, str, int]] = []
        """When (ns) paused schedules are to be read, as a heap, with how often they were, and with their sequences."""
        self._awaited: dict[tuple[int, int], int] = {}
        """The earliest of these times for each sequence and how often it was read: a later one is not needed."""

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self.rejected or self.paused)

    def on(self, subject: str) -> Rejected | PausedSchedule | None:
        """Return what is rejected or paused on a subject."""
        return self.rejected.get(subject) or self.paused.get(subject)

    def at(self, subject: str) -> int:
        """Return the sequence of what is rejected or paused on a subject, 0 if there is nothing."""
        if not self.rejected and not self.paused:
            return 0
        known = self.on(subject)
        return 0 if known is None else known.sequence

    def reject(self, rejected: Rejected) -> None:
        """Keep a rejection, and report it if it is ours and everything stored has been read."""
        self.rejected[rejected.subject] = rejected
        if self._progress.is_live and self._ownership.is_ours_on(rejected.subject):
            self.report(rejected)

    def report(self, rejected: Rejected) -> None:
        """Report a rejection."""
        self._emit(Report(ScheduleRejected(rejected.subject, rejected.sequence, rejected.rejection)))

    def pause(self, paused: PausedSchedule) -> None:
        """Keep a paused schedule."""
        self._discard_paused(paused.subject)
        self.paused[paused.subject] = paused
        self._paused_at[paused.sequence] = paused.subject
        if (ends := self._lifetimes.ends(paused)) < NO_EXPIRY:
            self._check(paused, ends, 0)

    def discard(self, subject: str) -> Rejected | PausedSchedule | None:
        """Keep nothing on a subject; returns what was there."""
        if not self.rejected and not self.paused:
            return None
        return self.rejected.pop(subject, None) or self._discard_paused(subject)

    def _discard_paused(self, subject: str) -> PausedSchedule | None:
        """Keep no paused schedule on a subject; returns the one that was there."""
        paused = self.paused.pop(subject, None)
        if paused is not None:
            self._paused_at.pop(paused.sequence, None)  # a server that lost messages may give a sequence twice
        return paused

    # -- whether a paused schedule is still stored ---------------------------------------------------------------

    def removal_requested(self, request: RemovalRequested, now: int) -> None:
        """Have the paused schedule read that a request names."""
        wanted = request.filter if request.sequence is None else self._paused_at.get(request.sequence)
        one = None if wanted is None else self.paused.get(wanted)
        if one is not None and (request.below is None or one.sequence < request.below):
            self._check(one, now, 0)

    def next_check(self, outstanding: int) -> int | None:
        """Return when (ns) the next paused schedule is to be read, None if none is, or an outcome comes first."""
        return self.checks[0][0] if self.checks and outstanding <= BURST_IN_FLIGHT else None

    def check_due(self, now: int, outstanding: int) -> None:
        """Read paused schedules whose time has come; none while many fires and purges are `outstanding`."""
        for _ in range(MAX_CHECKS_PER_STEP if outstanding <= BURST_IN_FLIGHT else 0):
            if not self.checks or self.checks[0][0] > now:
                return
            due, times, subject, sequence = heapq.heappop(self.checks)
            if self._awaited.get((sequence, times)) == due:
                del self._awaited[sequence, times]
            paused = self.paused.get(subject)
            if paused is not None and paused.sequence == sequence:
                self._emit(ReadContent(subject, sequence, None))
                if times + 1 < len(REMOVAL_CHECK_DELAYS_NS):
                    self._check(paused, now, times + 1)

    def content_read(self, read: ContentRead) -> StoredMessage | None:
        """Take what is stored on the subject of a paused schedule; returns the message if it is a later one."""
        paused = self.paused.get(read.schedule)
        if paused is None or paused.sequence != read.sequence:
            return None
        if read.message is None or read.message.sequence < read.sequence:
            self._discard_paused(read.schedule)
            return None
        return read.message if read.message.sequence > read.sequence else None

    def _check(self, paused: PausedSchedule, since: int, times: int) -> None:
        due, check = since + REMOVAL_CHECK_DELAYS_NS[times], (paused.sequence, times)
        if self._awaited.get(check, due + 1) <= due:
            return
        self._awaited[check] = due
        heapq.heappush(self.checks, (due, times, paused.subject, paused.sequence))


# The messages of a stream whose headers look like those of a schedule: reported once, and listed.
#
# The rule: a message is reported when it is read, or, if it was stored before, when this instance gains its shard;
# one that another message covers is not. Cost: a truth test for each message while there is none, and memory for up
# to `MAX_MISNAMED_NOTED` of them.

MAX_MISNAMED_NOTED = 10_000
"""Most messages that are noted; beyond that the oldest is discarded."""

MAX_MISNAMED_REPORTS = 100
"""Most reports when shards are gained, of messages that were stored before: the log would drop further lines."""


class Misnaming:
    """The misnamed headers of one stream's messages."""

    def __init__(self, emit: Callable[[Action], None]) -> None:
        self._emit = emit
        self.noted: dict[str, HeadersMisnamed] = {}
        """The last messages on their subjects whose headers are misnamed, by subject."""

    def covered(self, message: StoredMessage) -> None:
        """Discard the note of an earlier message on the same subject."""
        known = self.noted.get(message.subject)
        if known is not None and known.sequence < message.sequence:
            del self.noted[message.subject]

    def gone(self, subject: str, sequence: int) -> None:
        """Discard the note of a message that is not stored any more."""
        known = self.noted.get(subject)
        if known is not None and known.sequence == sequence:
            del self.noted[subject]

    def found(self, message: StoredMessage, headers: Sequence[Misnamed], *, is_reported: bool) -> None:
        """Note a message, and report it now if `is_reported`."""
        known = self.noted.get(message.subject)
        if known is not None and known.sequence >= message.sequence:
            return
        event = HeadersMisnamed(message.subject, message.sequence, message.stored_at, tuple(headers))
        self.noted[message.subject] = event
        if len(self.noted) > MAX_MISNAMED_NOTED:
            del self.noted[next(iter(self.noted))]
        if is_reported:
            self._emit(Report(event))

    def report(self, shards: frozenset[int]) -> None:
        """Report the messages noted in these shards."""
        ours = (event for event in self.noted.values() if shard_of(event.subject) in shards)
        for event in islice(ours, MAX_MISNAMED_REPORTS):
            self._emit(Report(event))
