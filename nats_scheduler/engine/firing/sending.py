"""Send the fires of schedules whose content was read, once or again, and wait before the next attempt.

The rules:

- An unknown outcome is repeated with the same fire, and so with the same identity, unless it is found that nothing
  is stored under that; a refusal stored nothing, so the next attempt may stand for later fires too
  (`engine.holding.lifecycle` says when).
- A fire into another stream is looked for there before it is sent, if it may be stored there already: it was sent
  before, it was due before this instance could fire it, or it is late. What the stream drops as a duplicate ends with
  its window.
- A fire that may be in flight already at the leader of a stream with replicas waits until that is concluded
  (`Proposals`).
- Overdue fires of a repeating schedule are collapsed into one make-up fire, the latest that is due. For a schedule with
  policies `engine.holding.held` says which of them is sent.

`engine.firing.course` decides when a schedule comes here; what follows from the outcome of a fire is in
`engine.firing.outcomes`.
"""

from collections.abc import Sequence

from nats_scheduler.engine.actions import Action, PublishFires, Report
from nats_scheduler.engine.events import AttemptRefused, FireRefused
from nats_scheduler.engine.fire import (
    AwaitProposals,
    Fire,
    LookForFire,
)
from nats_scheduler.engine.firing.building import (
    PAYLOAD_TOO_LARGE,
    ServerLimits,
    assembled,
    refusal_of,
    too_large,
    with_another_identity,
)
from nats_scheduler.engine.holding.flight import (
    UNKNOWN_BACK_OFF_LIMIT_NS,
    Failing,
    Flight,
    InProcess,
    Stage,
    Turn,
    wait_after,
)
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifecycle import BURST_IN_FLIGHT, Lifecycle, Part
from nats_scheduler.engine.inputs import (
    NOT_PERMITTED,
    DuplicateRead,
    ProposalsApplied,
    Refused,
    Unanswered,
)
from nats_scheduler.engine.reading.landed import free_soon
from nats_scheduler.message.generated import report_headers
from nats_scheduler.message.headers import Header
from nats_scheduler.message.identity import number_after
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

# What may be in flight at the leader is concluded before a fire is sent that may be stored without our knowledge.
#
# As the server does: the leader of a stream with replicas remembers what it has accepted and not applied. Whatever
# changes who leads (a kill, a pause, a step-down) makes it forget the identities of that, also if the same node leads
# again. The messages may be stored all the same: a fire that is sent again meanwhile is then stored twice, with the
# same identity.
#
# The rules, for streams with replicas:
#
# - A fire that may be stored already is sent only after the leader has applied all that it had accepted, asked after
#   the last attempt was concluded: then it is stored, and its identity known, or it never will be.
# - It may be stored already if an attempt has an unknown outcome, or if it was due before this instance could fire it:
#   another instance, or an earlier life of this one, may have sent it.
# - One question serves all fires that wait.
# - If the leader can never be asked (`deny_purge`, a missing permission), fires are sent as without replicas.
#
# Cost: nothing for a fire that is stored at once; one request for all that have to wait. Limit: a fire that two
# instances send at its time, while a stream is handed over, is not in question for either of them.

ASKED_AGAIN_LIMIT_NS = 400 * MILLISECOND
"""Longest wait before a question that was not answered is asked again: *Live* promises that fires resume within 3 s."""


PROOF_AGE_LIMIT_NS = 3 * SECOND
"""If the question to the leader was asked longer ago, it is asked again: the stream may have another leader."""


class Proposals(Part):
    """The questions to the leader of one stream, one at a time, and what they have proven."""

    def __init__(self, lifecycle: Lifecycle, *, is_replicated: bool) -> None:
        super().__init__(lifecycle)
        self._is_replicated = is_replicated
        self.begun = 0
        """The number of questions that were asked."""
        self._confirmed = 0
        """The number of the last one that was confirmed."""
        self._begun_at = self._confirmed_at = 0
        """The instants (ns) at which the last one was asked, and the last one of those that were confirmed."""
        self._able_since = 0
        """The number of questions that had been asked when this instance became able to fire."""
        self._is_impossible = False
        self._failures = 0
        self._asked: list[InProcess] = []
        self._to_ask: list[InProcess] = []
        """Identities in process about which to ask next."""
        self._asked_for: dict[int, tuple[Held, Fire]] = {}
        """The schedules whose fires wait for the answer, by sequence."""
        self._waiting: dict[int, tuple[Held, Fire]] = {}
        """Those for which it is asked next: what they have sent was concluded after the last question."""
        self._is_open = False
        """True if a question is not answered."""

    def caught_up(self) -> None:
        """Note that all that is stored has been read: what was due before may be in flight, from another instance."""
        self._is_impossible = False
        self.took_over()

    def took_over(self) -> None:
        """Note that the stream is ours from now on."""
        self._able_since = self.begun

    def proves(self, now: int) -> bool:
        """Return whether a repeated attempt proves that nothing is stored any more under an identity in process.

        It was sent after all was applied that had been accepted before, by the same leader unless that was long ago.
        """
        is_asked = self._is_replicated and not self._is_impossible
        return is_asked and now - self._confirmed_at <= PROOF_AGE_LIMIT_NS

    def is_unconcluded(self, held: Held, flight: Flight, *, may_be_sent_by_others: bool) -> bool:
        """Return whether the fire of a schedule may be in flight at the leader."""
        if not self._is_replicated or self._is_impossible or held.is_elsewhere:
            return False
        since = -1 if flight.unconcluded is None else flight.unconcluded
        if may_be_sent_by_others:
            since = max(since, self._able_since)
        return self._confirmed <= since

    def wait(self, held: Held, fire: Fire, now: int) -> None:
        """Wake a schedule when what may be in flight is concluded."""
        self._waiting[held.sequence] = held, fire
        self.ask_next(now)

    def ask_about(self, found: InProcess, now: int) -> None:
        """Ask about an identity in process; `answered` returns it."""
        self._to_ask.append(found)
        self.ask_next(now)

    def answered(self, answer: ProposalsApplied | Unanswered, now: int) -> list[InProcess]:
        """Wake what waited for this answer, and return the identities in process that were asked about."""
        asked, self._asked, self._is_open = self._asked, [], False
        is_confirmed = isinstance(answer, ProposalsApplied)
        if is_confirmed:
            self._confirmed, self._confirmed_at, self._failures = self.begun, self._begun_at, 0
        else:
            self._failures += 1
            self._is_impossible = isinstance(answer, Unanswered) and answer.denied
        wait = 0 if is_confirmed else wait_after(self._failures, ASKED_AGAIN_LIMIT_NS)
        waited, self._asked_for = self._asked_for, {}
        for held, _fire in waited.values():
            if held.flight is not None and held.flight.stage is Stage.BACKING_OFF:
                self._roster.wake(held, now + wait)
        return asked

    def ask_next(self, now: int) -> None:
        """Ask about what waits, unless the last question is still open."""
        if self._is_open or not (self._to_ask or self._waiting):
            return
        self._asked, self._to_ask = self._to_ask, []
        self._asked_for, self._waiting = self._waiting, {}
        self._is_open = True
        self.begun, self._begun_at = self.begun + 1, now
        fire = self._asked[0].fire if self._asked else next(iter(self._asked_for.values()))[1]
        self._emit(AwaitProposals(fire))


UNLOOKED_LIMIT_NS = 2 * SECOND
"""A fire into another stream that is later than this is looked for.

While two instances hold a schedule, the other one may have stored it meanwhile: the duplicate window may be over.
"""

LOOK_AGE_LIMIT_NS = 3 * SECOND
"""A fire that was looked for longer ago is looked for again; its schedule was read in between."""


# The identity under which a fire is sent again if its own one cannot be had.
#
# Two things keep a fire from an identity. A forged message has it (`engine.reading.landed`); or the server keeps it
# although no message has it: "in process".
# As the server does: the leader of a stream with replicas records an identity when it receives a message, before it
# checks and proposes it. What is refused then leaves its identity in process until the duplicate window ends, also if
# another client sent it (`test_a_refused_message_keeps_its_identity_in_process`).
#
# The rules:
#
# - All instances take the same way from one identity to the next (`message.identity.number_after`). So a fire that
#   one of them stored under another identity is a duplicate for the next one, which comes the same way.
# - An identity is given up only if no message that the server has received can be stored under it any more. A refusal
#   by the guard shows that. "In process" does not: the replicas may still be agreeing on the message. But a message
#   that was received before is applied before one that was received later. So the leader is asked to apply all that
#   it has accepted, and an identity that is in process after that belongs to nothing that is still to come
#   (`test_what_was_accepted_before_is_applied_before`).
# - For a short time nothing is asked, because most of what is in process is being stored by another instance.
# - A fire that is refused for another reason than the guard, such as a full stream, begins with its first identity
#   again. It may be refused for longer than the server keeps that, and then the first one is free again for every
#   instance. Each such refusal blocks an identity, so the next one is tried later each time.
#
# Cost: nothing for a fire that is stored at once; three requests to the server for each identity that is given up.
# Limit: another leader does not have the identities that the one before kept, and an instance that has not received a
# fire with another identity stores it again then. So it may if it sends the first identity at the end of the window.

IN_PROCESS_NS = 250 * MILLISECOND
"""The time (ns) for which the first identity of a fire may be in process before the leader is asked: replicas agree
sooner."""

IN_PROCESS_LIMIT_NS = 2 * SECOND
"""The longest such time; it doubles with each refusal. *Live* promises that fires resume within 3 s."""

MAX_GIVEN_UP_AT_ONCE = 8
"""After this number of identities of a fire in a row the leader is asked as late as for the first one."""


class Firing(Part):
    """The fires of one stream's schedules, from content that was read to a fire that was handed out."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        limits: ServerLimits,
        rules: StreamRules,
    ) -> None:
        super().__init__(lifecycle)
        self._rolls_up_by_purge = rules.rolls_up_by_purge
        self._restrictions = rules.restrictions
        self._limits = limits
        self._max_payload = limits.max_payload
        self.oversized = 0
        """Attempts that were not sent, because the fire is larger than what the server takes."""
        self._handed_out: list[Fire] = []
        self.proposals = Proposals(lifecycle, is_replicated=limits.replicated)
        """The proposals that may be in flight at the leader."""

    def limited(self, max_payload: int) -> None:
        """Send nothing any more that is larger than what the server takes now."""
        self._max_payload = max_payload

    @property
    def may_publish(self) -> bool:
        """True if a fire may begin now."""
        return self._progress.is_open and self._in_flight.room > 0

    def is_guarded(self, held: Held) -> bool:
        """Return whether the server refuses a fire of a schedule that is not stored any more."""
        return self._limits.guard and not held.is_elsewhere and not self._landed.covers(held)

    def hand_out(self) -> Sequence[Action]:
        """Return the order to publish what was made since the last call; none if that is nothing."""
        fires, self._handed_out = self._handed_out, []
        if self._in_flight.count > BURST_IN_FLIGHT:  # then the next fires come before any purge
            for fire in fires:
                fire.purge_through = 0
        return (PublishFires(fires),) if fires else ()

    # -- the fire ------------------------------------------------------------------------------------------------

    def make_ready(self, held: Held, flight: Flight) -> None:
        """Build the fire before it is due, so that at its time only bytes are sent."""
        self._lifecycle.move(held, Turn.BUILT)
        fire_time = held.fire_time
        flight.fire = self._build(held, flight, fire_time, held.next_fire(fire_time))
        self._roster.wake(held, held.send_time_of(fire_time))

    def publish(self, held: Held, flight: Flight, fire_time: int, now: int) -> None:
        """Publish the fire of one fire time, built before nearly always; it stands for all that came due before."""
        if fire_time != held.fire_time and flight.missed_since is None:
            flight.missed_since = held.fire_time
        held.fire_time = fire_time
        if not held.is_known:
            held.is_known = True  # what comes due from now on: nobody else is to store it
        fire = flight.fire
        if fire is None or fire.fire_time != fire_time:
            fire = self._build(held, flight, fire_time, held.next_fire(fire_time))
        self.send(held, flight, fire, now)

    def send(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Hand out a fire, unless it is known that the server would refuse it."""
        if (refusal := flight.refusal or too_large(fire, self._max_payload)) is not None:
            self.oversized += refusal.code == PAYLOAD_TOO_LARGE
            self.refused(held, flight, fire, refusal, now)
            return
        may_be_sent_by_others = self._ownership.may_be_stored(held)
        if self.proposals.is_unconcluded(held, flight, may_be_sent_by_others=may_be_sent_by_others):
            self._await_conclusion(held, flight, fire, now)
            return
        self._lifecycle.move(held, Turn.SENT)
        flight.fire = fire
        if held.is_elsewhere:
            if self._is_to_be_looked_for(held, flight, fire, now):
                self._in_flight.begin(fire)
                first = fire.fire_time if flight.missed_since is None else flight.missed_since
                self._emit(LookForFire(fire, max(fire.fire_time, held.stored_at), first, flight.may_be_stored))
                return
            held.looked_for = None  # it may be stored now
        if fire.next_fire is None or held.terms.source is not None:
            flight.content = flight.source = None  # not what the next fire is built from
        self._in_flight.begin(fire)
        fire.purge_through = fire.last if self._is_purged_at_once(held, fire) else 0
        self._handed_out.append(fire)

    def _is_purged_at_once(self, held: Held, fire: Fire) -> bool:
        """Return whether its schedule may be purged as soon as a fire is acknowledged: it is the last one.

        A roll-up of the target comes before that.
        """
        return fire.next_fire is None and held.ends_by_itself and not (fire.is_elsewhere or held.terms.rollup)

    def _await_conclusion(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Send a fire that may be stored already when that is known; one that we have not sent is built anew then."""
        self._lifecycle.move(held, Turn.POSTPONED)
        self._roster.cancel_wake(held)
        flight.fire = fire if flight.may_be_stored else None
        flight.content = flight.source = None  # it is read again
        self._contents.drop(flight)
        self.proposals.wait(held, fire, now)

    def repeat(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Repeat a fire of unknown outcome whose schedule is still stored."""
        if self.may_publish:
            self.send(held, flight, fire, now)
        else:
            self._lifecycle.move(held, Turn.POSTPONED)
            self._roster.wake(held, now)

    def _is_to_be_looked_for(self, held: Held, flight: Flight, fire: Fire, now: int) -> bool:
        """Return whether a fire may be stored in another stream without our knowledge: sent before, by us or others."""
        is_late = now - max(held.send_time, held.stored_at) > UNLOOKED_LIMIT_NS
        if not (is_late or flight.may_be_stored or self._ownership.may_be_stored(held)):
            return False
        able_since = self._ownership.able_since
        return not held.was_looked_for(fire.fire_time, max(able_since, now - LOOK_AGE_LIMIT_NS))

    def _build(self, held: Held, flight: Flight, fire_time: int, next_fire: int | None) -> Fire:
        assert flight.content is not None, "a fire is built only after its content was read"
        last, limits = self._landed.last_on(held), self._limits
        # A refusal would block the identity for minutes, and what lands comes at the same instants as the fire.
        guard = limits.guard and not held.is_elsewhere and not (limits.blocks_refused and self._landed.covers(held))
        taken = flight.number_of(fire_time)
        parts = flight.content, flight.source, fire_time, next_fire
        report = _report_of(held, flight, fire_time)
        by_purge = self._rolls_up_by_purge and not held.is_elsewhere
        fire = assembled(held, *parts, guard=guard, last=last, taken=taken, report=report, rolls_up_by_purge=by_purge)
        flight.refusal = refusal_of(fire, held.terms.source, self._restrictions)
        return fire

    # -- what failed ---------------------------------------------------------------------------------------------

    def refused(self, held: Held, flight: Flight, fire: Fire, outcome: Refused, now: int) -> None:
        """Have a fire that was refused built and sent again when the turn of its schedule comes."""
        flight.fire = flight.content = None
        self._contents.drop(flight)
        if outcome.code == NOT_PERMITTED:
            self._ownership.deny(f"{outcome.description}: {fire.target}", now)
        self._lifecycle.move(held, Turn.REFUSED)
        flight.attempts += 1
        wait = self._refusals.refused(held, outcome.code, flight.attempts, now)
        self._emit(Report(AttemptRefused(fire, outcome.code, outcome.description, wait)))
        if flight.failing is None or flight.failing.code != outcome.code:
            flight.failing = Failing(outcome.code, outcome.description, now)
            self._emit(Report(FireRefused(fire, outcome.code, outcome.description, wait)))

    def back_off(self, held: Held, flight: Flight, turn: Turn, now: int) -> int:
        """Retry after an unknown outcome, or a read that failed; returns the wait (ns)."""
        wait = flight.back_off(UNKNOWN_BACK_OFF_LIMIT_NS)
        self._lifecycle.move(held, turn)
        self._roster.wake(held, now + wait)
        return wait

    # -- a forged message has it ---------------------------------------------------------------------------------

    def is_forged(self, held: Held, flight: Flight, read: DuplicateRead, now: int) -> None:
        """Send a fire whose identity another message has: under another one, or under its first one once it is free.

        Another one is sent now or not at all: later, the first one may be free.
        """
        fire = read.fire
        wait = free_soon(read, self._lifetimes.duplicate_window, now)
        number = flight.number_of(fire.fire_time)  # not 0 if a refusal has blocked the first one
        if wait is None and self.may_publish:
            number = number_after(fire.taken, fire.sequence, read.sequence)
        fire = self._renumbered(flight, fire, number)
        if wait is None:
            self.repeat(held, flight, fire, now)
        else:
            self._lifecycle.move(held, Turn.POSTPONED)
            self._roster.wake(held, now + max(wait, flight.back_off(UNKNOWN_BACK_OFF_LIMIT_NS)))

    # -- the server keeps it in process --------------------------------------------------------------------------

    def is_in_process(self, held: Held, flight: Flight, fire: Fire, now: int) -> bool:
        """Take the answer that an identity is in process; returns whether the fire is sent under the next one now."""
        if fire.is_elsewhere:
            return False
        found = flight.in_process
        is_first = found is None or found.fire is not fire
        if found is None or found.fire is not fire:
            found = flight.in_process = InProcess(fire, since=now)
        is_next = 0 < flight.given_up <= MAX_GIVEN_UP_AT_ONCE
        limit = 0 if is_next else min(IN_PROCESS_NS << min(flight.refusals, 20), IN_PROCESS_LIMIT_NS)
        is_proven = found.is_applied and now - found.asked_at <= PROOF_AGE_LIMIT_NS
        if not is_first and now - found.since >= limit:
            is_proven = is_proven or self.proposals.proves(now)
        if is_proven and self.may_publish:
            flight.block(fire)
            flight.given_up += 1
            fire = self._renumbered(flight, fire, flight.number_of(fire.fire_time))
            self.repeat(held, flight, fire, now)
            return True
        found.is_applied = False
        if not found.is_asked and now - found.since >= limit:
            found.is_asked, found.asked_at = True, now
            self.proposals.ask_about(found, now)
        return False

    def applied(self, answer: ProposalsApplied | Unanswered, now: int) -> None:
        """Send fires once more, now that all is applied that came before: the answers decide."""
        for found in self.proposals.answered(answer, now):
            self._is_applied(found, isinstance(answer, ProposalsApplied), now)
        self.proposals.ask_next(now)

    def _is_applied(self, found: InProcess, is_confirmed: bool, now: int) -> None:
        held = self._lifecycle.active(found.fire.sequence)
        flight = None if held is None else held.flight
        if held is None or flight is None or flight.in_process is not found:
            return
        # What is in flight may have been answered before.
        is_to_be_sent = flight.fire is found.fire and flight.stage in (Stage.BACKING_OFF, Stage.READING)
        found.is_applied = is_confirmed and is_to_be_sent
        found.is_asked = False
        if found.is_applied and flight.stage is Stage.BACKING_OFF:
            self._roster.wake(held, now)

    def _renumbered(self, flight: Flight, fire: Fire, number: int) -> Fire:
        """Return the fire with the identity of this number, under which it is sent from now on."""
        flight.fire = fire = with_another_identity(fire, number)
        flight.refusal = refusal_of(fire, None, self._restrictions)
        return fire


def _report_of(held: Held, flight: Flight, fire_time: int) -> Sequence[Header]:
    """Return what the fire of a fire time says of itself and of the fire before it, if its schedule asks for that."""
    if not held.terms.policies.report:
        return ()
    missed = held.dropped_before(fire_time, flight.missed_since)
    return report_headers(held.pattern, fire_time, held.previous_fire, missed)
