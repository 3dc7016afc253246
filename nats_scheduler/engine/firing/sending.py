"""Build the fires of schedules whose content was read, hand them out to be published, and wait before the next attempt.

The rules:

- An unknown outcome is repeated with the same fire, and so with the same identity, unless `engine.firing.identities`
  finds
  that nothing is stored under that; a refusal stored nothing, so the next attempt may stand for later fires too
  (`engine.holding.lifecycle` says when).
- A fire into another stream is looked for there before it is sent, if it may be stored there already: it was sent
  before, it was due before this instance could fire it, or it is late. What the stream drops as a duplicate ends with
  its window.
- A fire that may be in flight already at the leader of a stream with replicas waits until that is concluded
  (`engine.firing.proposals`).
- Overdue fires of a repeating schedule are collapsed into one make-up fire, the latest that is due. For a schedule with
  policies `engine.firing.missed` says which of them is sent.

`engine.firing.course` decides when a schedule comes here; what follows from the outcome of a fire is in
`engine.firing.outcomes`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nats_scheduler.engine.actions import Action, LookForFire, PublishFires, Report
from nats_scheduler.engine.events import AttemptRefused, FireRefused
from nats_scheduler.engine.fire import Fire, FireElsewhere
from nats_scheduler.engine.firing.missed import OverdueRule, dropped_before
from nats_scheduler.engine.firing.proposals import Proposals
from nats_scheduler.engine.holding.flight import UNKNOWN_BACK_OFF_LIMIT_NS, Failing, Flight, Stage
from nats_scheduler.engine.holding.held import Held, HeldElsewhere, HeldWithPolicies
from nats_scheduler.engine.holding.lifecycle import Lifecycle
from nats_scheduler.engine.inputs import NOT_PERMITTED, Refused
from nats_scheduler.message.generated import (
    REPORT_NAMES,
    as_stored_natively,
    fire_block,
    guard_headers,
    identity_header,
    plain_fire_block,
    report_headers,
)
from nats_scheduler.message.headers import MSG_ID, Header, header_value, without_headers
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_api_subject
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

# Build a fire completely, so that only bytes are sent at its due time, and check whether the server would accept it.
#
# The rule: what would make the server close the connection, or what it would take for a request, is never sent. What
# it would refuse is refused here, with its code and text, and costs no request. After the headers of ADR-51 come the
# identity and, if the server supports it, the guard; they come first if the server would not find them there.
#
# Cost: some microseconds for a block of ten headers.

MAX_BLOCK_BYTES = 65_535
"""Largest header block the server stores (10097)."""

MAX_TARGET_BYTES = 3_500
"""Longest target that is sent: with our reply subject it stays under the server's control line of 4,096 bytes."""

TARGET_TOO_LONG = Refused(
    400, 10190, f"the target is longer than the {MAX_TARGET_BYTES} bytes that can be published to"
)
TARGET_IS_API_SUBJECT = Refused(
    400, 10190, "the target is one of the server's own subjects, on which it takes requests"
)
HEADER_TOO_LARGE = Refused(400, 10097, "header size exceeds maximum allowed of 64k")
NO_CODE = 400
"""The code if no server has one for it."""
IDENTITY_HIDDEN = Refused(
    400, NO_CODE, "header names in its values would hide the identity or the guard of the fire from the server"
)
PAYLOAD_TOO_LARGE = 10054
UNGUARDED_LOOK_AHEAD_NS = 50 * MILLISECOND
"""Longest look-ahead if the server does not refuse a stale fire (2.10).

The shorter, the smaller the window in which a removal can be missed.
"""
UNSAFE = b""
"""The block of a fire that cannot be sent."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What the server supports and accepts."""

    guard: bool
    """It checks `Nats-Expected-Last-Subject-Sequence-Subject` (2.11 and later)."""
    max_payload: int = 1_048_576
    """Bytes of headers and body together."""
    look_ahead: int = 10 * SECOND
    """How long (ns) before its due time the content of a fire is read."""
    blocks_refused: bool = False
    """What its guard refuses stays "in process" until the duplicate window ends (2.11, streams with replicas)."""
    replicated: bool = False
    """What the leader has accepted may not be applied yet, and another leader does not know of it."""
    silent: bool = False
    """It acknowledges nothing (`no_ack`), and what it stored may be consumed before it is read back."""


def assembled(
    held: Held,
    content: StoredMessage,
    source: StoredMessage | None,
    fire_time: int,
    next_fire: int | None,
    *,
    guard: bool,
    last: int | None = None,
    taken: int = 0,
    report: Sequence[Header] = (),
    rolls_up_by_purge: bool = False,
) -> Fire:
    """Build the fire of a schedule from its message, `content`, or from the last message of its source.

    `last` is the sequence that the guard expects on the schedule's subject, the schedule's own if it is None;
    `taken` as for `fire_identity`; `report` is what the fire says of itself. With `rolls_up_by_purge` it does not say
    that it rolls up its target.
    """
    last = held.sequence if last is None else last
    identity = fire_identity(held.subject, held.sequence, fire_time, taken)
    is_to_roll_up = rolls_up_by_purge and held.terms.rollup
    terms = held.terms._replace(rollup=False) if is_to_roll_up else held.terms
    named = held.pattern, terms, held.subject, next_fire
    block = plain_fire_block(content.block, *named, identity, last) if guard and source is None and not report else None
    if block is None:
        base = as_stored_natively(content.block) if source is None else source.block
        if report:
            base = without_headers(base, REPORT_NAMES, ())
        ours = [*report, identity_header(identity), *(guard_headers(held.subject, last) if guard else ())]
        block = fire_block(base, *named, ours)
    body = (source or content).body or b""
    target = held.terms.target
    stored_at = held.stored_at
    kind = FireElsewhere if held.is_elsewhere else Fire
    fire = kind(held.subject, held.sequence, fire_time, next_fire, target, block or UNSAFE, body, stored_at, last)
    fire.taken, fire.is_to_roll_up = taken, is_to_roll_up
    if held.jitters:
        fire.delay = held.send_time_of(fire_time) - fire_time
    return fire


def with_another_identity(fire: Fire, taken: int) -> Fire:
    """Return the same fire with another identity; `taken` as for `fire_identity`."""
    before = header_value(fire.block, MSG_ID) or b""
    identity = identity_header(fire_identity(fire.schedule, fire.sequence, fire.fire_time, taken))[1]
    block = fire.block.replace(b"%b: %b\r\n" % (MSG_ID, before), b"%b: %b\r\n" % (MSG_ID, identity), 1)
    return replace(fire, block=block, taken=taken)


def refusal_of(fire: Fire, limits: ServerLimits) -> Refused | None:
    """Return why a fire is not sent: the server would close the connection, take it for a request, or refuse it."""
    if is_api_subject(fire.target):
        return TARGET_IS_API_SUBJECT
    if len(fire.target.encode("utf-8", "surrogateescape")) > MAX_TARGET_BYTES:
        return TARGET_TOO_LONG
    if len(fire.block) > MAX_BLOCK_BYTES:
        return HEADER_TOO_LARGE
    if not fire.block:
        return IDENTITY_HIDDEN
    size = len(fire.block) + len(fire.body)
    if size > limits.max_payload:
        described = f"message of {size} bytes exceeds the server's max_payload of {limits.max_payload}"
        return Refused(400, PAYLOAD_TOO_LARGE, described)
    return None


# How many fires are in flight, how many more may be, and whether there is a burst.
#
# The rule: no fire is published beyond the cap, whatever made it due: its time, an answer that arrived late, a retry.
# While a burst lasts, what can wait does: reports of what was stored, purges, removals.
#
# Cost: an addition for each fire.

MAX_IN_FLIGHT = 256
"""Most fires in flight at once: enough that server and sidecar need not wait for each other.

A cancel cannot stop a fire that is in flight: of 3,000 cancelled when they were due, 600 were stored after their
cancels, and with twice as many in flight 1,500; a burst takes hardly less time.
"""

BURST_IN_FLIGHT = 64
"""More fires in flight than this are a burst."""

BURST_LIMIT_NS = 30 * SECOND
"""What lasts longer is no burst but the usual load: fires to a distant server, many each second."""

MAX_WAITING_IN_BURST = 200_000
"""If more than this waits, some of it is done although a burst lasts."""


class InFlight:
    """The fires of one stream that are in flight."""

    def __init__(self) -> None:
        self.count = 0
        self._burst_since: int | None = None

    @property
    def room(self) -> int:
        """How many more fires may be published; no more than 0 if the next have to wait for outcomes."""
        return MAX_IN_FLIGHT - self.count

    def begun(self) -> None:
        """Count a fire that was handed out to be published."""
        self.count += 1

    def concluded(self, count: int = 1) -> None:
        """Count the outcomes of so many fires."""
        self.count -= count

    def is_burst(self, waiting: int, now: int) -> bool:
        """Return whether a burst keeps what waits, so much of it, from being done."""
        if self.count <= BURST_IN_FLIGHT:
            self._burst_since = None
            return False
        if self._burst_since is None:
            self._burst_since = now
        return waiting <= MAX_WAITING_IN_BURST and now - self._burst_since < BURST_LIMIT_NS

    def clock_stepped_back(self, by: int) -> None:
        """Keep a burst as long as it was although the wall clock shows `by` ns less than before."""
        if self._burst_since is not None:
            self._burst_since -= by


UNLOOKED_LIMIT_NS = 2 * SECOND
"""A fire into another stream that is later than this is looked for.

While two instances hold a schedule, the other one may have stored it meanwhile: the duplicate window may be over.
"""

LOOK_AGE_LIMIT_NS = 3 * SECOND
"""A fire that was looked for longer ago is looked for again; its schedule was read in between."""


class Firing:
    """The fires of one stream's schedules, from content that was read to a fire that was handed out."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        in_flight: InFlight,
        limits: ServerLimits,
        emit: Callable[[Action], None],
        *,
        rolls_up_by_purge: bool,
    ) -> None:
        self._rolls_up_by_purge = rolls_up_by_purge
        self._lifecycle = lifecycle
        self._landed = lifecycle.landed
        self._in_flight = in_flight
        self._limits = limits
        self._emit = emit
        self._handed_out: list[Fire] = []
        self.proposals = Proposals(lifecycle, emit, is_replicated=limits.replicated)
        """What may be in flight at the leader."""
        self.overdue = OverdueRule()
        """Since when this instance can fire."""
        self.is_open = False
        """Whether a fire may begin; set by the engine."""

    @property
    def may_publish(self) -> bool:
        """Whether a fire may begin now."""
        return self.is_open and self._in_flight.room > 0

    def is_guarded(self, held: Held) -> bool:
        """Return whether the server refuses a fire of a schedule that is not stored any more."""
        return self._limits.guard and not held.is_elsewhere and not self._landed.covers(held)

    def hand_out(self) -> Sequence[Action]:
        """Return the order to publish what was made since the last call; none if that is nothing."""
        fires, self._handed_out = self._handed_out, []
        return (PublishFires(fires),) if fires else ()

    # -- the fire ------------------------------------------------------------------------------------------------

    def make_ready(self, held: Held, flight: Flight) -> None:
        """Build the fire before it is due, so that at its time only bytes are sent."""
        self._lifecycle.move(held, Stage.READY)
        fire_time = held.fire_time
        flight.fire = self._build(held, flight, fire_time, held.next_fire(fire_time))
        self._lifecycle.roster.wake(held, held.send_time_of(fire_time))

    def publish(self, held: Held, flight: Flight, now: int) -> None:
        """Publish the fire that was built before its time, nearly always; or else a make-up fire."""
        fire, fire_time = flight.fire, held.fire_time
        next_fire = fire.next_fire if fire is not None and fire.fire_time == fire_time else held.next_fire(fire_time)
        until = min(now, held.expires - 1)
        if next_fire is not None and next_fire <= until and held.send_time_of(next_fire) <= until:
            fire_time, next_fire = self._make_up(held, flight, next_fire, until)
        if fire is None or fire.fire_time != fire_time or fire.next_fire != next_fire:
            fire = self._build(held, flight, fire_time, next_fire)
        self.send(held, flight, fire, now)

    def publish_chosen(self, held: Held, flight: Flight, fire_time: int, now: int) -> None:
        """Publish the fire of one fire time, whatever is due besides; it stands for all that came due before."""
        if fire_time != held.fire_time:
            if flight.missed_since is None:
                flight.missed_since = held.fire_time
            held.fire_time = fire_time
        if isinstance(held, HeldWithPolicies):
            held.is_known = True  # what comes due from now on: nobody else is to store it
        fire = flight.fire
        if fire is None or fire.fire_time != fire_time:
            fire = self._build(held, flight, fire_time, held.next_fire(fire_time))
        self.send(held, flight, fire, now)

    def send(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Hand out a fire, unless it is known that the server would refuse it."""
        if flight.refusal is not None:
            self.refused(held, flight, fire, flight.refusal, now)
            return
        may_be_sent_by_others = self.overdue.may_be_stored(held)
        if self.proposals.is_unconcluded(held, flight, may_be_sent_by_others=may_be_sent_by_others):
            self._await_conclusion(held, flight, fire, now)
            return
        self._lifecycle.move(held, Stage.IN_FLIGHT)
        flight.fire = fire
        if isinstance(held, HeldElsewhere):
            if self._is_to_be_looked_for(held, flight, fire, now):
                self._in_flight.begun()
                first = fire.fire_time if flight.missed_since is None else flight.missed_since
                self._emit(LookForFire(fire, max(fire.fire_time, held.stored_at), first, flight.may_be_stored))
                return
            held.was_sent()
        if fire.next_fire is None or held.terms.source is not None:
            flight.content = flight.source = None  # not what the next fire is built from
        self._in_flight.begun()
        self._handed_out.append(fire)

    def _await_conclusion(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Send a fire that may be stored already when that is known; one that we have not sent is built anew then."""
        self._lifecycle.move(held, Stage.BACKING_OFF)
        self._lifecycle.roster.cancel_wake(held)
        flight.fire = fire if flight.may_be_stored else None
        flight.content = flight.source = None  # it is read again
        self._lifecycle.contents.drop(flight)
        self.proposals.wait(held, fire, now)

    def repeat(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Repeat a fire of unknown outcome whose schedule is still stored."""
        if self.may_publish:
            self.send(held, flight, fire, now)
        else:
            self._lifecycle.move(held, Stage.BACKING_OFF)
            self._lifecycle.roster.wake(held, now)

    def _is_to_be_looked_for(self, held: HeldElsewhere, flight: Flight, fire: Fire, now: int) -> bool:
        """Return whether a fire may be stored in another stream without our knowledge: sent before, by us or others."""
        is_late = now - max(held.send_time, held.stored_at) > UNLOOKED_LIMIT_NS
        if not (is_late or flight.may_be_stored or self.overdue.may_be_stored(held)):
            return False
        return not held.was_looked_for(fire.fire_time, max(self.overdue.able_since(held), now - LOOK_AGE_LIMIT_NS))

    def _make_up(self, held: Held, flight: Flight, second: int, until: int) -> tuple[int, int | None]:
        """Collapse the fires that came due up to `until`, of which `second` is the second, into the latest."""
        latest = held.latest_due(held.fire_time, until) or second
        if flight.missed_since is None:
            flight.missed_since = held.fire_time
        held.fire_time = latest
        return latest, held.next_fire(latest)

    def _build(self, held: Held, flight: Flight, fire_time: int, next_fire: int | None) -> Fire:
        assert flight.content is not None, "a fire is built only after its content was read"
        last, limits = self._landed.last_on(held), self._limits
        # A refusal would block the identity for minutes, and what lands comes at the same instants as the fire.
        guard = limits.guard and not held.is_elsewhere and not (limits.blocks_refused and self._landed.covers(held))
        taken = flight.number_of(fire_time)
        parts = flight.content, flight.source, fire_time, next_fire
        report = _report_of(held, flight, fire_time) if held.is_treated else ()
        by_purge = self._rolls_up_by_purge and not held.is_elsewhere
        fire = assembled(held, *parts, guard=guard, last=last, taken=taken, report=report, rolls_up_by_purge=by_purge)
        flight.refusal = refusal_of(fire, self._limits)
        return fire

    # -- what failed ---------------------------------------------------------------------------------------------

    def refused(self, held: Held, flight: Flight, fire: Fire, outcome: Refused, now: int) -> None:
        """Have a fire that was refused built and sent again when the turn of its schedule comes."""
        flight.fire = flight.content = None
        self._lifecycle.contents.drop(flight)
        if outcome.code == NOT_PERMITTED:
            self._lifecycle.ownership.deny(held, f"{outcome.description}: {fire.target}", now)
        self._lifecycle.move(held, Stage.BACKING_OFF)
        flight.attempts += 1
        wait = self._lifecycle.refusals.refused(held, outcome.code, flight.attempts, now)
        self._emit(Report(AttemptRefused(fire, outcome.code, outcome.description, wait)))
        if flight.failing is None or flight.failing.code != outcome.code:
            flight.failing = Failing(outcome.code, outcome.description, now)
            self._emit(Report(FireRefused(fire, outcome.code, outcome.description, wait)))

    def back_off(self, held: Held, flight: Flight, now: int) -> int:
        """Retry after an unknown outcome; returns the wait (ns)."""
        wait = flight.back_off(UNKNOWN_BACK_OFF_LIMIT_NS)
        self._lifecycle.move(held, Stage.BACKING_OFF)
        self._lifecycle.roster.wake(held, now + wait)
        return wait


def _report_of(held: Held, flight: Flight, fire_time: int) -> Sequence[Header]:
    """Return what the fire of a fire time says of itself and of the fire before it, if its schedule asks for that."""
    if not isinstance(held, HeldWithPolicies) or not held.terms.policies.report:
        return ()
    missed = dropped_before(held, fire_time, flight.missed_since)
    return report_headers(held.pattern, fire_time, held.previous_fire, missed)
