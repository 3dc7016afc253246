"""Notice a pending one-shot that another message replaces before it fired: its body is lost.

The rules:

- It is a loss if the other message has another body, or is no valid schedule. The same body again is the same message,
  repeated or moved to another time.
- Marks of four bytes say whether bodies differ (`message.stored.body_mark`). If they do not, both messages are read
  once, and the older one is purged after that. If it is gone by then, nothing is known, and nothing is reported.
- What was due when it was replaced may have fired, and what a request or its stream may have removed before is no
  loss: neither is reported here.
- Nothing is reported where replacement is meant: by `X-Debounce` on one of the two, or for the whole stream.
- Before all is read, whose schedule it is is not known: what is certain is reported by the owner then.

Cost: nothing for what is not replaced. Limit: `MAX_COMPARED` comparisons at once; beyond that, bodies of one size count
as equal.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import ScheduleReplacedUnfired
from nats_scheduler.engine.fire import CompareBodies
from nats_scheduler.engine.holding.flight import DONE
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.fires import following_fire, scheduler_of
from nats_scheduler.message.headers import MARKER_REASON, MSG_TTL, decoded, header_value
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.reading import has_schedule_header, paused_name
from nats_scheduler.message.stored import NAME_PART_LOWER, StoredMessage, body_mark, is_other_body
from nats_scheduler.schedule.patterns import At, parse_pattern

MAX_COMPARED = 64
"""Pairs of bodies that are read at once."""

MAX_UNREPORTED = 1_000
"""Losses that are noted while the stream is read, until it is known whose they are."""


class Replacements:
    """The one-shots of one stream that were replaced before they fired."""

    def __init__(self, state: EngineState, *, debounces: bool) -> None:
        """Report what is replaced, unless the stream `debounces`: there replacement is meant."""
        self._state = state
        self._debounces = debounces
        self._compared: dict[CompareBodies, ScheduleReplacedUnfired] = {}
        self.unreported: list[ScheduleReplacedUnfired] = []
        """What was replaced before all was read."""

    def by_schedule(self, before: Held, held: Held) -> bool:
        """Report a one-shot that a schedule with another body replaces.

        Returns whether the bodies are read first, so that `before` may not be purged yet.
        """
        if held.terms.policies.debounce or not self._is_pending(before, held.stored_at):
            return False
        lost = _loss(before, held.sequence, held.stored_at)
        is_other = is_other_body(before.mark, held.mark)
        if is_other is None and self._state.progress.is_live and len(self._compared) < MAX_COMPARED:
            question = CompareBodies(held.subject, before.sequence, held.sequence)
            self._compared[question] = lost
            self._state.emit(question)
            return True
        if is_other:
            self._report(lost)
        return False

    def by_other(self, before: Held, message: StoredMessage) -> None:
        """Report a one-shot that a message replaces which is no valid schedule."""
        if self._is_pending(before, message.stored_at):
            self._report(_loss(before, message.sequence, message.stored_at))

    def by_no_schedule_of_ours(self, before: Held, message: StoredMessage) -> None:
        """Report a one-shot that such a message replaces, unless others fire the same body from there on."""
        if not has_schedule_header(message.block, DIALECTS) or is_other_body(before.mark, body_mark(message)):
            self.by_other(before, message)

    def of_server(self, message: StoredMessage, sequence: int, stored_at: int, due: int) -> None:
        """Report a one-shot of the server that a message replaces, if the report is ours."""
        subject = message.subject
        if self._debounces or self._state.lifetimes.was_asked(subject, sequence, stored_at):
            return
        if self._state.progress.is_live and self._state.ownership.is_owner:
            times = stored_at, due, message.sequence, message.stored_at
            self._state.emit(Report(ScheduleReplacedUnfired(subject, sequence, *times)))

    def compared(self, question: CompareBodies, *, is_other: bool) -> ScheduleReplacedUnfired | None:
        """Report a one-shot if its body `is_other` than that of its replacement; returns what may be purged now."""
        lost = self._compared.pop(question, None)
        if lost is not None and is_other:
            self._report(lost)
        return lost

    def uncompared(self) -> Iterable[ScheduleReplacedUnfired]:
        """Return the one-shots whose bodies are to be compared before they are purged."""
        return self._compared.values()

    def caught_up(self) -> None:
        """Report what was replaced before all was read, if that is ours to do."""
        unreported, self.unreported = self.unreported, []
        for lost in unreported if self._state.ownership.is_owner else ():
            self._state.emit(Report(lost))

    def _is_pending(self, before: Held, at: int) -> bool:
        """Return whether a one-shot was still to fire at an instant (ns), is ours, and is not meant to be replaced."""
        is_done = before.flight is not None and before.flight.stage in DONE
        if before.repeats or is_done or before.only_expires or at >= before.send_time:
            return False
        was_asked = self._state.lifetimes.was_asked(before.subject, before.sequence, before.stored_at)
        may_be_gone = was_asked or self._state.lifetimes.ends(before) <= at
        is_meant = self._debounces or before.terms.policies.debounce
        return not (is_meant or may_be_gone) and (self._state.ownership.is_owner or not self._state.progress.is_live)

    def _report(self, lost: ScheduleReplacedUnfired) -> None:
        if self._state.progress.is_live:
            self._state.emit(Report(lost))
        elif len(self.unreported) < MAX_UNREPORTED:
            self.unreported.append(lost)


def _loss(before: Held, sequence: int, stored_at: int) -> ScheduleReplacedUnfired:
    return ScheduleReplacedUnfired(
        before.subject, before.sequence, before.stored_at, before.fire_time, sequence, stored_at
    )


# The one-shots that the server itself fires, and where it stores its fires: they are not held here, and of each some
# numbers are kept.
#
# The server removes what is replaced at once, so only what was received before shows that something is lost.
#
# The rule: what may have been removed, or may end by itself before it fires, is not watched. Cost: some 300 bytes for
# each that is pending, and for each target. Limits: `MAX_WATCHED` and `MAX_TARGETS`; beyond that, those that were noted
# first are not known any more.

MAX_WATCHED = 50_000
"""One-shots of one stream that are watched and that the server itself fires."""

PAUSED, DEBOUNCE = paused_name(ADR51), policy_header("X-Debounce", ADR51)

MAX_TARGETS = 1_000
"""Targets, and sources, of schedules of one stream that the server itself fires."""


class _Watched(NamedTuple):
    sequence: int
    stored_at: int
    due: int
    mark: int
    is_meant: bool


class OfServer:
    """What is known of the schedules of one stream that the server itself fires."""

    def __init__(self, replacements: Replacements, max_age: int) -> None:
        """Report what is replaced; a message is stored for `max_age` (ns), 0 for ever."""
        self._replacements = replacements
        self._max_age = max_age
        self._watched: dict[str, _Watched] = {}
        self._fired: dict[str, tuple[str, int]] = {}
        self.sampled: dict[str, None] = {}
        """The sources of schedules that were read."""

    def fired_since(self, instant: int) -> dict[str, str]:
        """Return the targets on which a fire was read that was stored since then (ns), and the schedule of the last."""
        return {target: schedule for target, (schedule, stored_at) in self._fired.items() if stored_at >= instant}

    def are_on_none_of(self, subjects: Iterable[str]) -> bool:
        """Return whether none is on one of these subjects."""
        return self._watched.keys().isdisjoint(subjects)

    def take(self, message: StoredMessage) -> None:
        """Take a message of any kind: it replaces what is on its subject."""
        block = message.block
        if NAME_PART_LOWER in block and (schedule := scheduler_of(block)):
            ended = self._watched.pop(schedule, None)
            if following_fire(block, ADR51) is not None or (ended is not None and ended.due <= message.stored_at):
                _note(self._fired, message.subject, (schedule, message.stored_at), MAX_TARGETS)  # else it is a cancel
            return  # what lands on the subject of another schedule does not concern it
        before = self._watched.pop(message.subject, None)
        value = header_value(block, ADR51.schedule) if NAME_PART_LOWER in block else None
        if before is None and value is None:
            return  # nearly all messages
        mark = body_mark(message)
        is_meant = value is not None and header_value(block, DEBOUNCE) == b"true"
        if before is not None and before.sequence < message.sequence and message.stored_at < before.due:
            is_removal = value is None and (header_value(block, PAUSED) or MARKER_REASON in block)
            is_other = is_other_body(before.mark, mark) or not has_schedule_header(block, DIALECTS)
            if is_other and not (is_removal or is_meant or before.is_meant):
                self._replacements.of_server(message, before.sequence, before.stored_at, before.due)
        pattern = parse_pattern(decoded(value), None) if value is not None and value.startswith(b"@at ") else None
        ends = message.stored_at + self._max_age if self._max_age else NO_EXPIRY
        if isinstance(pattern, At) and message.stored_at < pattern.instant < ends and MSG_TTL not in block:
            watched = _Watched(message.sequence, message.stored_at, pattern.instant, mark, is_meant)
            _note(self._watched, message.subject, watched, MAX_WATCHED)
        if value is not None and (source := header_value(block, ADR51.source)):
            _note(self.sampled, decoded(source), None, MAX_TARGETS)

    def removal_requested(self, request: RemovalRequested) -> None:
        """Watch nothing any more on the one subject that a request names; other requests are noted with all others."""
        self._watched.pop(request.filter or "", None)


def _note(noted: dict[str, Any], name: str, value: object, most: int) -> None:
    """Note a value as the newest of at most so many."""
    noted.pop(name, None)
    noted[name] = value
    if len(noted) > most:
        del noted[next(iter(noted))]
