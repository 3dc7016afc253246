"""Notice what is replaced before it fired: a one-shot, whose body is lost, and a schedule that never gets to fire.

A repeating schedule that is stored again and again with the same pattern, each time before its first fire, fires
nothing: `@every 1h` begins anew with each message. That is a silence (`message.silence`), reported when it has lasted
for three periods, and again each day. What is known of it is one instant of its row, so it outlives a restart.

The rules for a one-shot:

- It is a loss if the other message has another body, or is no valid schedule. The same body again is the same message,
  repeated or moved to another time.
- Marks of four bytes say whether bodies differ (`message.stored.body_mark`). If they do not, both messages are read
  once, and the older one is purged after that. If it is gone by then, nothing is known, and nothing is reported.
- What was due when it was replaced may have fired, and what a request or its stream may have removed before is no
  loss: neither is reported here.
- Nothing is reported where replacement is meant: by `X-Debounce` on one of the two, or for the whole stream.
- Before all is read, whose schedule it is is not known: what is certain is reported by the owner then.

Cost: nothing for what is not replaced; up to three searches for a fire time where a repeating schedule is.
Limit: `MAX_COMPARED` comparisons at once; beyond that, bodies of one size count as equal.
"""

from collections.abc import Iterable

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import ScheduleReplacedUnfired, ScheduleSilent
from nats_scheduler.engine.fire import CompareBodies
from nats_scheduler.engine.holding.flight import DONE
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.reading import has_schedule_header
from nats_scheduler.message.silence import Silence, restarted_for
from nats_scheduler.message.stored import StoredMessage, body_mark, is_other_body
from nats_scheduler.schedule.instants import DAY

MAX_COMPARED = 64
"""Pairs of bodies that are read at once."""

MAX_UNREPORTED = 1_000
"""Losses that are noted while the stream is read, until it is known whose they are."""


class Replacements:
    """The schedules of one stream that were replaced before they fired."""

    def __init__(self, state: EngineState, *, debounces: bool) -> None:
        """Report what is replaced, unless the stream `debounces`: there replacement is meant."""
        self._state = state
        self._debounces = debounces
        self._compared: dict[CompareBodies, ScheduleReplacedUnfired] = {}
        self.unreported: list[ScheduleReplacedUnfired] = []
        """What was replaced before all was read."""

    def by_schedule(self, before: Held, held: Held) -> bool:
        """Report a one-shot that a schedule with another body replaces, or a schedule that is replaced again and again.

        Returns whether the bodies are read first, so that `before` may not be purged yet.
        """
        if held.terms.policies.debounce:
            return False
        if before.repeats:
            self._note_restart(before, held)
            return False
        if not self._is_pending(before, held.stored_at):
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

    def _note_restart(self, before: Held, held: Held) -> None:
        """Note that one with the same pattern replaces a schedule that has not fired, and report that if it lasts."""
        is_pending = before.send_time > held.stored_at and not before.only_expires
        if not is_pending or before.pattern != held.pattern or self._debounces or before.terms.policies.debounce:
            return
        if before.unfired_since is None and before.fire_time != before.first_fire():
            return
        since = held.unfired_since = before.fire_time if before.unfired_since is None else before.unfired_since
        silent_for = restarted_for(held, since)
        was_silent_for = silent_for - (held.stored_at - before.stored_at)
        is_news = silent_for >= 0 and silent_for // DAY > was_silent_for // DAY
        if is_news and self._state.progress.is_live and self._state.ownership.is_owner:
            reason = "it is stored again and again with the same pattern, each time before its first fire"
            event = ScheduleSilent(held.subject, held.sequence, since, Silence.REPUBLISHED, reason)
            self._state.emit(Report(event))

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
