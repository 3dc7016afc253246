"""What a message takes from the schedule that it replaces: a fire that was due stays owed, a pending one-shot is lost.

The rules for a fire that was due when the replacement was stored, and is not stored itself:

- Of a schedule that repeats it is owed: it is stored as what it was, whatever let it wait (a jitter, the fire before, a
  retry, or the milliseconds of its flight). The version that was replaced is held for it (`Held.replaced_at`), with its
  stage and all that is in progress, and its replacement counts as stored over it (`engine.holding.stored_over`): its
  guard expects that, and so it is refused once the subject is purged. It is purged when nothing of it is owed any more.
- It is not owed if the replacement takes its time away: it fires for that time itself, as an `@at` does that was
  edited, its bounds (`X-Start`, `X-End`, `X-Except`) leave it out, or the one that it replaced had one time only, as an
  `@at` that is moved has.
- It is not owed if the server refuses it: to correct that may be why it was replaced. `fires_dropped` reports it.
- What removes or pauses the schedule, or replaces it by what is no valid schedule, takes all that is owed.
- After a start it is owed if the owner before had written a checkpoint, which shows that it was not settled. Otherwise
  no backlog is invented.
- Of several versions that were missed while nothing was read, the last one makes up for those before, but for those
  whose policy makes up each missed fire.
- What is owed and cannot be stored is reported.

A repeating schedule that is stored again and again with the same pattern, each time before its first fire, fires
nothing: `@every 1h` begins anew with each message. That is a silence (`message.silence`), reported when it has lasted
for three periods, and again each day. What is known of it is one instant of its row, so it outlives a restart.

The rules for a pending one-shot, whose time was to come and whose body is lost:

- It is a loss if the other message has another body, or is no valid schedule. The same body again is the same message,
  repeated or moved to another time.
- Marks of four bytes say whether bodies differ (`message.stored.body_mark`). If they do not, both messages are read
  once, and the older one is purged after that. If it is gone by then, nothing is known, and nothing is reported.
- What a request or its stream may have removed before is no loss: it is not reported here.
- Nothing is reported where replacement is meant: by `X-Debounce` on one of the two, or for the whole stream.
- Before all is read, whose schedule it is is not known: what is certain is reported by the owner then.

Cost: nothing for what is not replaced; up to three searches for a fire time where a repeating schedule is.
Limit: `MAX_COMPARED` comparisons at once; beyond that, bodies of one size count as equal. `MAX_OWED` versions are held
for what is owed of them.
"""

from collections.abc import Iterable

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import (
    NO_VALID_SCHEDULE,
    Ending,
    ScheduleReplacedUnfired,
    ScheduleSilent,
)
from nats_scheduler.engine.fire import CompareBodies
from nats_scheduler.engine.holding.flight import DONE, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.refusals import OF_A_MOMENT
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.reading import has_schedule_header
from nats_scheduler.message.silence import Silence, restarted_for
from nats_scheduler.message.stored import StoredMessage, body_mark, is_other_body
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.instants import DAY

MAX_OWED = 10_000
"""Versions of one stream that were replaced and are held for what is owed of them."""

MAX_COMPARED = 64
"""Pairs of bodies that are read at once."""

MAX_UNREPORTED = 1_000
"""Losses that are noted while the stream is read, until it is known whose they are."""


class Replacements:
    """What replacements take from the schedules of one stream."""

    def __init__(self, state: EngineState, *, debounces: bool) -> None:
        """Report what is replaced, unless the stream `debounces`: there replacement is meant."""
        self._state = state
        self._debounces = debounces
        self._compared: dict[CompareBodies, ScheduleReplacedUnfired] = {}
        self.unreported: list[ScheduleReplacedUnfired] = []
        """What was replaced before all was read."""

    def leaves_owed(self, before: Held, held: Held) -> bool:
        """Return whether a fire of a version stays owed that a schedule replaces; report it if it should and cannot."""
        due, state = before.fire_time, self._state
        if due >= held.fire_time or not self._is_due(before, held.stored_at):
            return False
        if isinstance(held.pattern, Bounded) and not held.pattern.leaves(due):
            return False
        is_in_flight = _is_in_flight(before)
        if not before.repeats:
            if not is_in_flight and not self._is_meant(before) and not held.terms.policies.debounce:
                state.report_lost(before, "it had one time, which another one replaced")
            return False
        reason = f"{MAX_OWED} schedules that were replaced owe a fire"
        if state.rules.keeps_one:
            reason = "its stream keeps one message for each subject, and the schedule is gone"
        if state.schedules.owed_count >= MAX_OWED or (state.rules.keeps_one and not is_in_flight):
            state.report_lost(before, reason)
            return False
        if not state.progress.is_live and before.send_time <= state.now:
            for earlier in state.schedules.owed_on(before.subject):
                if earlier.send_time <= state.now and earlier.terms.policies.missed.kept is not Kept.ALL:
                    state.end(earlier, Ending.REPLACED)
        return True

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
        """Report a one-shot, and what was due, that a message replaces which is no valid schedule."""
        if self._is_pending(before, message.stored_at):
            self._report(_loss(before, message.sequence, message.stored_at))
        for version in (*self._state.schedules.owed_on(before.subject), before):
            if not _is_in_flight(version) and self._is_due(version, message.stored_at):
                self._state.report_lost(version, NO_VALID_SCHEDULE)

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
        if before.repeats or is_done or before.only_expires or at >= before.fire_time:
            return False
        is_ours = self._state.ownership.is_owner or not self._state.progress.is_live
        return is_ours and not self._is_meant(before) and not self._may_be_gone(before, at)

    def _is_meant(self, before: Held) -> bool:
        return self._debounces or before.terms.policies.debounce

    def _is_due(self, before: Held, at: int) -> bool:
        """Return whether a fire of a version that is replaced at an instant (ns) was due, and is not stored."""
        flight = before.flight
        if before.fire_time > at or not before.may_fire or before.only_expires:
            return False
        if flight is not None and (flight.stage in DONE or (flight.fire is not None and flight.fire.stored_as)):
            return False
        if flight is not None and flight.failing is not None and flight.failing.code not in OF_A_MOMENT:
            return False
        state = self._state
        is_unknown = state.ownership.is_owner and not state.progress.is_live and not state.knows_settled(at)
        return not is_unknown and not self._may_be_gone(before, at)

    def _may_be_gone(self, before: Held, at: int) -> bool:
        """Return whether a version may have been removed before it was replaced at an instant (ns)."""
        was_asked = self._state.lifetimes.was_asked(before.subject, before.sequence, before.stored_at)
        return was_asked or self._state.lifetimes.ends(before) <= at

    def _report(self, lost: ScheduleReplacedUnfired) -> None:
        if self._state.progress.is_live:
            self._state.emit(Report(lost))
        elif len(self.unreported) < MAX_UNREPORTED:
            self.unreported.append(lost)


def _is_in_flight(version: Held) -> bool:
    """Return whether the fire of a version is in flight: its outcome says what becomes of it."""
    return version.flight is not None and version.flight.stage is Stage.IN_FLIGHT


def _loss(before: Held, sequence: int, stored_at: int) -> ScheduleReplacedUnfired:
    return ScheduleReplacedUnfired(
        before.subject, before.sequence, before.stored_at, before.fire_time, sequence, stored_at
    )
