"""The effects of handing a stream's schedules over to the scheduler inside the server, found out beforehand.

Two views of the same messages are compared. One is ours: what all messages and the checkpoint of the sidecar that
fired until now say (`StoredSchedules`). The other is the server's: of each subject it adopts the last message with a
pattern that it can parse, whatever was stored on the subject later, and validates nothing else. If both hold the
same message, the schedule is handed over; each other case is a *finding*.

The rule: a finding that would lose or double a fire, or fire what never should, blocks until its kind was accepted.
Cost: one engine's reading, and some hundred bytes for each stored schedule.
Limit: a message that was stored and is gone is not seen; the checkpoint stands for it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.inputs import Checkpoint
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, schedule_fields
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.calendars import KnownCalendars
from nats_scheduler.schedule.instants import floor_to_second
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.native import Quirk, adopted_fire, quirk_of
from nats_scheduler.schedule.patterns import Pattern, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339


class Cause(StrEnum):
    """The cause of a finding; `BLOCKING_KINDS` says which of them stop a graduation."""

    REFUSED = "refused"
    COPIED = "copied"
    UNREADABLE = "unreadable"
    IGNORED = "ignored"
    INVALID = "invalid"
    COVERED = "covered"
    DOUBLED = "doubled"
    ROUNDED = "rounded"
    FAR = "far"
    GAP = "gap"
    POLICIES = "policies"
    MISSED = "missed"
    OVERDUE = "overdue"
    MOVED = "moved"
    SPENT = "spent"
    OLDER = "older"
    UNUSABLE = "unusable"
    PORTABLE = "portable"
    PAUSED = "paused"


BLOCKING_KINDS = frozenset(
    {
        Cause.REFUSED,
        Cause.COPIED,
        Cause.UNREADABLE,
        Cause.IGNORED,
        Cause.INVALID,
        Cause.COVERED,
        Cause.DOUBLED,
        Cause.ROUNDED,
        Cause.FAR,
        Cause.GAP,
        Cause.POLICIES,
    }
)
"""A stream with one of these is not graduated, unless its kind was accepted; `REFUSED` cannot be."""

PURGED_KINDS = frozenset({Cause.INVALID, Cause.COVERED, Cause.SPENT, Cause.OLDER})
"""Schedule messages with a finding of these kinds are purged before the flag is switched on."""

_OF_QUIRKS = {
    Quirk.ROUNDED: (Cause.ROUNDED, "the server rounds each fire to the second"),
    Quirk.FAR: (Cause.FAR, "beyond the server's 64 bits of nanoseconds: it fires at once, always, or never"),
    Quirk.GAP: (Cause.GAP, "where this zone's clock skips a midnight or half an hour, the server takes wrong days"),
}


LESS_BOUND = "it fires whenever its pattern says"

UNDER_PAUSED = "an older version, which lies under a paused one"

REVIVED = "a later message on its subject ended it, and the server revives it"


class GraduationFinding(NamedTuple):
    """One thing that a graduation has to deal with; `subject` and `sequence` are None if it is the stream itself."""

    kind: Cause
    detail: str
    subject: str | None = None
    sequence: int | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A schedule that the server will fire."""

    held: Held
    next_fire: int | None
    """The instant (ns) of the first fire by the server; one that has passed means at once."""


@dataclass(frozen=True, slots=True)
class MakeUp:
    """A fire that came due while no instance fired, and that the server would not make up."""

    held: Held
    fire_time: int
    next_fire: int | None
    last: int
    """Sequence of the last message on the schedule's subject: its own, or that of one over it."""


class Handover:
    """One stream, read for its graduation to a server."""

    def __init__(
        self,
        rules: StreamRules,
        server: Capabilities,
        checkpoint: Checkpoint,
        *,
        expired_by_us: bool = False,
    ) -> None:
        """Begin with nothing; `expired_by_us` if the sidecar acted on TTLs until now."""
        self._server = server
        self._candidates: dict[str, dict[int, Pattern]] = {}
        """The patterns on each subject that the server can parse, by sequence."""
        self._both: set[int] = set()
        self._stored = StoredSchedules(rules, DIALECTS, FiredBy.SIDECAR, checkpoint, removes_expired=expired_by_us)

    def take(self, messages: Sequence[StoredMessage], now: int) -> None:
        """Read messages, those of one subject in the order in which they were stored."""
        self._stored.take(messages, now)
        self.take_buried(messages)

    @property
    def names_calendars(self) -> bool:
        """True if a schedule names a calendar."""
        return self._stored.names_calendars

    def know(self, calendars: KnownCalendars, now: int) -> None:
        """Take the calendars as they are, after all messages were read."""
        self._stored.know(calendars, now)

    def take_buried(self, messages: Sequence[StoredMessage]) -> None:
        """Read messages for the server's view alone: later ones on their subjects cover them in ours."""
        for message in messages:
            if message.block and message.block.find(ADR51.schedule) >= 0:
                self._note(message)

    def findings(self, now: int) -> list[GraduationFinding]:
        """Return the findings: what would happen to each schedule that does not simply continue."""
        found = [finding for subject in self._candidates for finding in self._of_subject(subject, now)]
        found += self._of_unusable()
        found += [finding for paused in self._stored.paused.values() for finding in self._of_paused(paused, now)]
        portable = [one for one in self._all_valid() if one.terms.dialect is PORTABLE]
        found += [_about(Cause.PORTABLE, one, "portable headers stay with the sidecar") for one in portable]
        return sorted(found, key=lambda finding: (list(Cause).index(finding.kind), finding.subject or ""))

    def handed_over(self, now: int) -> list[HandedOver]:
        """Return what a server that adopts the stream at `now` will fire, soonest first."""
        waiting = (held for subject in self._candidates if (held := self._waiting(subject, now)) is not None)
        adopted = [HandedOver(h, adopted_fire(h.pattern, h.stored_at, now)) for h in waiting]
        return sorted(adopted, key=lambda one: (one.next_fire is None, one.next_fire or 0, one.held.sequence))

    def make_ups(self, now: int) -> list[MakeUp]:
        """Return the make-up fire of each repeating schedule that missed one or more, the latest of each."""
        return [make_up for one in self.handed_over(now) if (make_up := self._make_up_of(one.held, now)) is not None]

    # -- the two views -------------------------------------------------------------------------------------------

    def _note(self, message: StoredMessage) -> None:
        fields = schedule_fields(message.block, ADR51)
        pattern = parse_pattern(fields.get(ADR51.schedule, ""), fields.get(ADR51.time_zone))
        if pattern is None or isinstance(pattern, Invalid) or not self._server.reads(pattern):
            return
        self._candidates.setdefault(message.subject, {})[message.sequence] = pattern
        if header_value(message.block, PORTABLE.schedule):
            self._both.add(message.sequence)

    def _held(self, subject: str) -> Held | None:
        held = self._stored.held.on(subject)
        return held if held is not None and held.terms.dialect is ADR51 else None

    def _waiting(self, subject: str, now: int) -> Held | None:
        """Return the schedule that we hold on a subject if it is not done."""
        held = self._held(subject)
        return held if held is not None and held.flight is None and held.expires > now else None

    def _of_subject(self, subject: str, now: int) -> Iterator[GraduationFinding]:
        held, waiting = self._held(subject), self._waiting(subject, now)
        rejected, paused = self._stored.rejected.get(subject), self._stored.paused.get(subject)
        is_paused = paused is not None and paused.terms.dialect is ADR51
        for sequence, pattern in self._candidates[subject].items():
            if waiting is not None and waiting.sequence == sequence:
                yield from self._of_waiting(waiting, now)
            elif held is not None and held.sequence >= sequence:
                kind = Cause.SPENT if held.sequence == sequence else Cause.OLDER
                yield GraduationFinding(kind, _why_done(held, kind), subject, sequence, pattern.text)
            elif is_paused:
                yield GraduationFinding(Cause.OLDER, UNDER_PAUSED, subject, sequence, pattern.text)
            elif rejected is not None and rejected.sequence == sequence:
                yield GraduationFinding(Cause.INVALID, str(rejected.rejection), subject, sequence, pattern.text)
            else:
                yield GraduationFinding(Cause.COVERED, REVIVED, subject, sequence, pattern.text)

    def _of_waiting(self, held: Held, now: int) -> Iterator[GraduationFinding]:
        yield from self._of_definition(held, now)
        if held.sequence in self._both:
            yield _about(Cause.DOUBLED, held, "in both spellings: the server fires one and the sidecar the other")
        if not held.repeats:
            if held.fire_time <= now:
                yield _about(Cause.OVERDUE, held, "due since then, and fired by the server at once")
        elif (make_up := self._make_up_of(held, now)) is not None:
            due = format_rfc3339(make_up.fire_time)
            yield _about(Cause.MISSED, held, f"due at {due} while nobody fired: made up before the server takes over")
        if held.repeats and (moved := self._moved(held, now)):
            yield _about(Cause.MOVED, held, moved)

    def _of_definition(self, one: Held | PausedSchedule, now: int) -> Iterator[GraduationFinding]:
        """Find what the server does differently, whenever it fires the schedule."""
        pattern, terms = one.pattern, one.terms
        quirk = quirk_of(pattern, now)
        if quirk is not None:
            yield _about(_OF_QUIRKS[quirk][0], one, _OF_QUIRKS[quirk][1])
        if pattern.base is not pattern or terms.policies.are_kept or terms.policies.asking:
            names = ", ".join(name for name, _value in terms.policies.written)
            yield _about(Cause.POLICIES, one, f"the server knows no policies ({names}): {LESS_BOUND}")
        if not self._server.schedules_all and (terms.source or terms.rollup):
            yield _about(Cause.IGNORED, one, "its source and roll-up mean nothing to this server")

    def _of_paused(self, paused: PausedSchedule, now: int) -> Iterator[GraduationFinding]:
        if paused.terms.dialect is ADR51 and paused.expires > now:
            yield _about(Cause.PAUSED, paused, "handed over as it is: it fires nothing until it is resumed")
            if self._server.reads(paused.pattern):
                yield from self._of_definition(paused, now)

    def _all_valid(self) -> Iterator[Held | PausedSchedule]:
        yield from self._stored.held
        yield from self._stored.paused.values()

    def _moved(self, held: Held, now: int) -> str | None:
        """Return how the server moves an interval's fires, which it counts from the instant of its adoption."""
        # The flag is switched on in the first half of a second, which the server rounds down.
        pattern, counted = held.pattern, floor_to_second(now)
        ours, servers = held.next_fire(now), adopted_fire(pattern, held.stored_at, counted)
        if ours is None or servers is None or ours == servers:
            return None
        return f"would be due at {format_rfc3339(ours)}, and the server counts anew: {format_rfc3339(servers)}"

    def _make_up_of(self, held: Held, now: int) -> MakeUp | None:
        """Return the latest fire of a repeating schedule that is due and not stored; None where there is none.

        One that is delayed by a jitter or a spread is due: the server goes on after the time of its pattern. One that a
        policy skips is not made up, nor one whose calendar is not known, since it may be one of a holiday.
        """
        until = now + held.pattern.offset
        if not held.repeats or held.fire_time > until or not held.may_fire:
            return None
        if held.send_time <= now and held.due_fire(None, now) is None:
            return None
        latest = held.latest_passed(held.fire_time, until) or held.fire_time
        return MakeUp(held, latest, held.next_fire(latest), self._stored.stored_over.last_on(held))

    def _of_unusable(self) -> Iterator[GraduationFinding]:
        for subject, rejected in self._stored.rejected.items():
            if rejected.sequence not in self._candidates.get(subject, {}):
                reason = f"stays stored and never fires: {rejected.rejection}"
                yield GraduationFinding(Cause.UNUSABLE, reason, subject, rejected.sequence)
        for one in self._all_valid():
            if one.terms.dialect is ADR51 and not self._server.reads(one.pattern):
                yield _about(Cause.UNREADABLE, one, "servers before 2.14 know only @at: it stays stored, unfired")


def _about(kind: Cause, one: Held | PausedSchedule, detail: str) -> GraduationFinding:
    return GraduationFinding(kind, detail, one.subject, one.sequence, one.pattern.text)


def _why_done(held: Held, kind: Cause) -> str:
    if kind is Cause.OLDER:
        return "an older version, which lies under a newer one"
    if held.flight is None:
        return "its TTL has run out"
    return "cancelled and not removed yet" if held.flight.ending is Ending.CANCELLED else "fired and not removed yet"


def blocked_by(findings: Sequence[GraduationFinding], accepted: Callable[[Cause], bool]) -> list[Cause]:
    """Return the kinds that stop a graduation."""
    kinds = {finding.kind for finding in findings if finding.kind in BLOCKING_KINDS}
    return sorted(kind for kind in kinds if kind is Cause.REFUSED or not accepted(kind))
