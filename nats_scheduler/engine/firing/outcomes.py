"""The consequences of the outcome of a fire, whether it was acknowledged or read back from the stream.

The rules:

- *Store first, advance second, purge last*: a schedule advances only when its fire is stored.
- An outcome for a schedule that is not held any more, or for an earlier flight, changes nothing.
- That the server has a fire already is believed only if what is stored there is that fire: anybody can write its
  identity. Otherwise the fire is published again; `engine.firing.sending` says under which identity.
- During a burst only what the next fires need is done at once; what was stored is reported, and what is done is purged,
  after it.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FireForged, FireReadBack, FireStored, FireUnknown, TargetMapped
from nats_scheduler.engine.fire import (
    Fire,
    ReadDuplicate,
)
from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.firing.course import Course
from nats_scheduler.engine.firing.done import DONE_WITHIN, Deadlines
from nats_scheduler.engine.holding.flight import DONE, Flight, Stage, Turn
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifecycle import BURST_LIMIT_NS, Lifecycle, Part
from nats_scheduler.engine.inputs import (
    DuplicateRead,
    FireLookedFor,
    FiresStored,
    PublishConcluded,
    Refused,
    Stored,
    Unknown,
)
from nats_scheduler.engine.reading.landed import fault_elsewhere, fault_of_duplicate, fault_of_generated
from nats_scheduler.engine.removing.expiry import Expiry
from nats_scheduler.engine.removing.purges import Purges
from nats_scheduler.message.fires import following_fire, names_end
from nats_scheduler.message.generated import is_requested
from nats_scheduler.message.reading import Generated, read_generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

# The fire after a stored one of a schedule with calendars: their days may have changed since it was built.
#
# The rule: what a stored fire says of the end of its schedule counts, and otherwise the days as they are now.
# Cost: nothing for other schedules.


def following_by_calendars(held: Held, fire: Fire) -> int | None:
    """Return the fire time after a stored fire; that of a calendar's days as they are now, unless it was the last."""
    if fire.next_fire is None or not held.calendars:
        return fire.next_fire
    return held.next_fire(fire.fire_time)


def is_named_last(held: Held, fire_time: int, block: bytes) -> bool:
    """Return whether the stored fire of a schedule with a calendar says that it is the last one."""
    if not held.calendars:
        return False
    if block:
        return names_end(block, held.terms)
    fire = None if held.flight is None else held.flight.fire  # it was acknowledged, and not read again
    return fire is not None and fire.fire_time == fire_time and fire.next_fire is None


SILENT_ATTEMPTS = 2
"""The attempts at a fire of which nothing can show that it was stored; after them it is taken for stored.

To go on would be to store it again, once the duplicate window is over.
"""

ANSWERED_ELSEWHERE_ATTEMPTS = 2
"""The attempt at a fire after which it is reported that another stream answers it."""

NO_STREAM_ATTEMPTS = 10
"""The attempt after which it is reported that none takes it: that is after 6 s, when a stream has a leader again."""

ADVANCE_AT_ONCE_NS = 2 * BURST_LIMIT_NS
"""A schedule that fires again within this time advances at once: no burst that it is part of may delay that."""

MAX_REPORTS_PER_STEP = 256
"""The most stored fires that are reported in one step after a burst, so that what is due does not have to wait."""


class Outcomes(Part):
    """The outcomes of one stream's fires."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        course: Course,
        purges: Purges,
        expiry: Expiry | None,
        deadlines: Deadlines,
        limits: ServerLimits,
    ) -> None:
        """Conclude fires; with `expiry` the stream's messages are removed by the sidecar when they expire."""
        super().__init__(lifecycle)
        self._course = course
        self._firing = course.firing
        self._purges = purges
        self._expiry = expiry
        self._deadlines = deadlines
        self._limits = limits
        self._unreported: deque[Fire] = deque()
        """The fires that were stored and are to be reported."""
        self.stored = 0
        """Fires that were acknowledged as stored."""

    # -- acknowledgements ----------------------------------------------------------------------------------------

    def concluded(self, conclusion: PublishConcluded, now: int) -> None:
        """Act on the outcome of a fire."""
        fire, outcome = conclusion.fire, conclusion.outcome
        held = self._lifecycle.awaiting(fire)
        if isinstance(outcome, Stored):
            if outcome.duplicate and held is not None:
                self._emit(ReadDuplicate(fire, outcome.sequence, outcome.stream))  # in flight until that is read
            else:
                self.is_stored(fire, outcome, now)
            return
        self._in_flight.conclude(fire)
        if held is not None and held.flight is not None:
            self._not_stored(held, fire, outcome, now)

    def _not_stored(self, held: Held, fire: Fire, outcome: Refused | Unknown, now: int) -> None:
        flight = held.flight
        assert flight is not None, "a schedule that awaits an outcome has a flight"
        is_unknown = isinstance(outcome, Unknown)
        is_silent = self._limits.silent and not fire.is_elsewhere
        if is_unknown and is_silent and flight.attempts >= SILENT_ATTEMPTS:
            flight.content = None  # it is read again: the guard may have refused in silence, since the schedule is gone
            held.fire_is_stored(fire.fire_time, 0, now)
            self._course.advance(held, following_by_calendars(held, fire), is_last=fire.next_fire is None)
        elif not self._ownership.is_owner:
            self._course.leave_to_owner(held, now)
        elif isinstance(outcome, Unknown):
            if outcome.may_be_stored:
                flight.may_be_stored, flight.unconcluded = True, self._firing.proposals.begun
            if not outcome.in_process:
                flight.in_process = None  # this attempt may have been received by another leader
            elif self._firing.is_in_process(held, flight, fire, now):
                self._emit(Report(FireUnknown(fire, outcome.reason, 0)))
                return
            wait = self._firing.back_off(held, flight, Turn.UNKNOWN, now)
            self._emit(Report(FireUnknown(fire, outcome.reason, wait)))
            most = ANSWERED_ELSEWHERE_ATTEMPTS if outcome.may_be_stored else NO_STREAM_ATTEMPTS
            if outcome.is_misplaced and flight.attempts == most:
                self._emit(Report(TargetMapped(fire.schedule, fire.sequence, fire.target, outcome.reason)))
        else:
            self._course.refused(held, flight, fire, outcome, now)

    def report_mapped(self) -> None:
        """Report the targets of which it is news that a mapping moves their fires."""
        for fire, subject in self._progress.mapped:
            reason = f"its fires are stored on {subject}, so the account has a mapping"
            self._emit(Report(TargetMapped(fire.schedule, fire.sequence, fire.target, reason)))
        self._progress.mapped.clear()

    def _is_moved(self, held: Held) -> bool:
        return self._landed.moves.moves(held.terms.target)

    def duplicate_read(self, read: DuplicateRead, now: int) -> None:
        """Act on what is stored under the sequence of which the server says that it is this fire."""
        fire, held = read.fire, self._lifecycle.awaiting(read.fire)
        fault = "" if held is None else fault_of_duplicate(held, read, moved=self._is_moved(held))
        if held is None or held.flight is None or not fault:
            if held is not None and held.calendars and read.message is not None:
                # Another instance may have stored it by other days.
                fire.next_fire = following_fire(read.message.block, held.terms.dialect)
            self.is_stored(fire, Stored(read.sequence, duplicate=True), now)
            return
        self._in_flight.conclude(fire)
        if held.flight.forgery != read.sequence:
            held.flight.forgery = read.sequence
            subject = "" if read.message is None else read.message.subject
            self._emit(Report(FireForged(fire.schedule, fire.sequence, fire.fire_time, subject, read.sequence, fault)))
        if self._ownership.is_owner:
            self._firing.is_forged(held, held.flight, read, now)
        else:
            self._course.leave_to_owner(held, now)

    def were_stored(self, stored: FiresStored, now: int) -> None:
        """Advance the schedules of fires that are stored."""
        fires = stored.fires
        self.stored += len(fires)
        self._unreported.extend(fires)
        if self._refusals.held:
            self._end_refusals(fires, now)
        for fire, sequence in zip(fires, stored.sequences, strict=True):
            fire.stored_as, fire.stored_at = sequence, now
        self._guard.each(fires, self._go_on_after)
        self._in_flight.conclude(*fires)  # not before: fires that are stored together are a burst too
        if fires and not fires[0].is_elsewhere:  # such a fire is concluded alone, and is not read back
            self._expect(fires)
        for fire in fires:
            fire.block = fire.body = b""  # never sent again, and it may wait to be reported and read back
            held = self._lifecycle.active(fire.sequence)
            if held is not None and held.flight is not None and held.flight.fire is fire:
                self._contents.drop(held.flight)

    def _end_refusals(self, fires: Sequence[Fire], now: int) -> None:
        """Note which refused fires are stored: another fire of the same schedule says nothing about them."""
        for fire in fires:
            if fire.sequence in self._refusals.held and self._lifecycle.awaiting(fire) is not None:
                self._refusals.stored(fire.sequence, now)

    def _go_on_after(self, fire: Fire) -> None:
        """Do what cannot wait after a fire that is stored."""
        if fire.is_to_roll_up:  # before its schedule is purged: until then it says that this is to be done
            self._purges.roll_up(fire.target, fire.stored_as - 1)
        if fire.purge_through:
            self._advance_while_purged(fire)
        elif fire.next_fire is not None and fire.next_fire < fire.stored_at + ADVANCE_AT_ONCE_NS:
            self._advance_after(fire)

    def _expect(self, fires: Sequence[Fire]) -> None:
        """Expect to read back what was stored, and note when it expires if its headers are not read again."""
        self._guard.each(filter(_is_watched, fires), self._watch_own)
        self._progress.expect(fires)
        if self._expiry is not None:
            self._expiry.fires_stored(fire for fire in fires if not self._progress.is_read_by_headers(fire))

    def is_stored(self, fire: Fire, outcome: Stored, now: int) -> None:
        """Advance the schedule of a fire that is stored."""
        fire.was_stored_before, fire.purge_through = outcome.duplicate, 0
        self.were_stored(FiresStored((fire,), (outcome.sequence,)), now)

    # -- what is read back ---------------------------------------------------------------------------------------

    def read_back(self, generated: Generated, message: StoredMessage, *, is_acknowledged: bool) -> bool:
        """Take a message that claims to be a fire of ours for it; returns whether it can be.

        One that `is_acknowledged` is ours. One that changes nothing is accepted.
        """
        held = self._roster.exactly(generated.schedule, generated.sequence)
        is_reported = self._progress.is_live and self._ownership.is_owner
        fault = ""
        if held is not None and not is_acknowledged:
            self._roll_up_again(held, generated, message)
        # An older fire changes nothing, unless policies need the last one that is stored.
        is_news = held is not None and held.is_news(generated.fire_time)
        if is_news and held is not None and not is_acknowledged:
            fault = fault_of_generated(held, generated, message, moved=self._is_moved(held))
        if fault:
            if is_reported:
                claimed = generated.schedule, generated.sequence, generated.fire_time
                self._emit(Report(FireForged(*claimed, message.subject, message.sequence, fault)))
            return False
        if is_reported and (is_acknowledged or self._landed.may_be_in_time(held, generated, message)):
            self._report_read_back(generated, held, *message[:4])
        if held is not None:
            self._guard.each((held,), partial(self._go_on_with, generated, message))
        if (held is None or held.terms.policies.done_within) and DONE_WITHIN in message.block:
            self._watch(generated, *message[:4])
        return True

    def _go_on_with(self, generated: Generated, message: StoredMessage, held: Held) -> None:
        held.fire_is_stored(generated.fire_time, message.sequence, message.stored_at)
        self.was_fired(held, generated.fire_time, message.block)

    def watch_older(self, message: StoredMessage) -> None:
        """Have a fire watched that lies under the last message on its subject, if it says when it is to be done."""
        generated = read_generated(message.block) if DONE_WITHIN in message.block else None
        if generated is not None:
            self._watch(generated, *message[:4])

    def _watch_own(self, fire: Fire) -> None:
        self._watch(fire, fire.target, fire.stored_as, fire.stored_at, fire.block)

    def _watch(self, fire: Fire | Generated, target: str, sequence: int, stored_at: int, block: bytes) -> None:
        """Have a stored fire watched that says within which time it is to be done."""
        self._deadlines.watch(fire.schedule, fire.sequence, fire.fire_time, target, sequence, stored_at, block)

    def _roll_up_again(self, held: Held, generated: Generated, message: StoredMessage) -> None:
        """Have the target rolled up by a fire whose sender may not have done it: others sent it, or it was ours before.

        Anybody can write what a fire says, so an old one is judged too.
        """
        is_owed = self._purges.rolls_up and held.terms.rollup and not held.is_elsewhere
        if is_owed and not fault_of_generated(held, generated, message, moved=self._is_moved(held)):
            self._purges.roll_up(message.subject, message.sequence - 1)

    def take_read_back(self, fire: Fire) -> bool:
        """Do what `read_back` does for a fire of ours, and build nothing for it but the event.

        Does nothing, and returns False, if its schedule is not held.
        """
        held = self._roster.exactly(fire.schedule, fire.sequence)
        if held is None:
            return False
        if self._progress.is_live and self._ownership.is_owner:
            self._report_read_back(fire, held, fire.target, fire.stored_as, fire.stored_at)
        held.fire_is_stored(fire.fire_time, fire.stored_as, fire.stored_at)
        self.was_fired(held, fire.fire_time, b"")
        return True

    def _report_read_back(
        self, fire: Fire | Generated, held: Held | None, subject: str, sequence: int, stored_at: int, block: bytes = b""
    ) -> None:
        """Report a fire that is stored; `held` is its schedule, None if it is held no longer.

        A fire is overdue if it was due before it could be fired in time, so that it says nothing about punctuality: if
        its send time is before its schedule was stored (an `@at` in the past), or before this instance could fire. A
        fire that another instance stored before that is not overdue. A fire that this instance held back until the one
        before was finished is, and so is one that was requested later. What delayed the fire of a schedule that is held
        no longer is known only if this instance sent it.
        """
        if held is None:
            known_since = fire.schedule_stored_at
            send_time = fire.fire_time + fire.delay
        else:
            known_since = held.stored_at
            send_time = held.send_time_of(fire.fire_time)
        overdue = send_time < known_since or send_time < self._ownership.able_since <= stored_at
        waited = held is not None and held.waited_fire == fire.fire_time
        late = overdue or waited or (stored_at - send_time > SECOND and is_requested(block))
        times = fire.fire_time, send_time, stored_at
        self._emit(Report(FireReadBack(fire.schedule, subject, *times, sequence, late, known_since, waited)))

    def was_fired(self, held: Held, fire_time: int, block: bytes) -> None:
        """Advance a schedule whose fire was read back, acknowledged to us or not; without policies from any message."""
        is_done = held.flight is not None and held.flight.stage in DONE
        is_last = is_named_last(held, fire_time, block)
        if (fire_time >= held.read_back_threshold or is_last) and not is_done:
            self._ownership.last_fired = held.send_time_of(fire_time)
            self._course.advance(held, None if is_last else held.next_fire(fire_time), is_last=is_last)

    def _advance_after(self, fire: Fire) -> None:
        """Advance the schedule of a fire that is stored, if it still waits for that."""
        held = self._lifecycle.awaiting(fire)
        if held is not None:
            landed = self._landed
            is_last = fire.next_fire is None and held.ends_by_itself
            if is_last and fire.is_elsewhere and landed.last_on(held) > fire.last:
                landed.set_back(held, fire.last)  # as below, but the sequences of two streams cannot be compared
            elif is_last and not fire.is_elsewhere and landed.last_on(held) > fire.stored_as:
                landed.set_back(held, fire.last if fire.last < fire.stored_as else 0)  # what landed later stays
            held.fire_is_stored(fire.fire_time, fire.stored_as, fire.stored_at)
            self._course.advance(held, following_by_calendars(held, fire), is_last=fire.next_fire is None)

    def _advance_while_purged(self, fire: Fire) -> None:
        """Advance the schedule of a last fire, which is being purged since its acknowledgement."""
        self._purges.outstanding += 1
        self._purges.under_way = fire
        try:
            self._advance_after(fire)
        finally:
            self._purges.under_way = None

    # -- fires into other streams, after a look into these -------------------------------------------------------
    #
    # No follower reads such fires back, and the guard of a publish cannot name a message of another stream. So:
    #
    # - A schedule is read shortly before each of its fires, as all are on a server without the guard.
    # - A fire that may be stored without our knowledge is looked for in the stream of its target before it is sent
    #   (`Firing.send`): one of unknown outcome, one that is late, and one that came due before this instance could fire
    #   it, since an earlier owner may have stored it and written no checkpoint since. What is stored after the look
    #   is a matter of the duplicate window.
    # - A later fire of the same schedule counts too: the instance that stored it has dealt with all before it.
    #
    # Cost: nothing for a fire in time; for one that is looked for, a look and another read of its schedule.
    # Limit: what was removed from the other stream is not found.

    def looked_for(self, look: FireLookedFor, now: int) -> None:
        """Go on with a fire that was looked for: it is stored, or is to be sent."""
        fire, held = look.fire, self._lifecycle.awaiting(look.fire)
        if held is None or held.flight is None:
            self._in_flight.conclude(fire)
            return
        latest, message = self._latest_found(held, look)
        if message is not None:
            held.flight.missed_since = _missed_between(held, latest, fire)
        if message is not None and latest == fire.fire_time:
            self.is_stored(fire, Stored(message.sequence, duplicate=True), now)
            fire.stored_at = message.stored_at
            return
        self._in_flight.conclude(fire)
        if message is not None:
            held.fire_is_stored(latest, message.sequence, message.stored_at)
        if message is not None and latest > fire.fire_time:
            self.was_fired(held, latest, message.block)
        else:
            self._was_not_found(held, held.flight, fire, now)

    def _was_not_found(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Go on with a fire that another stream does not have: what is read of its schedule has aged meanwhile.

        One that was not sent before may have become a make-up fire for a later time.
        """
        held.looked_for = fire.fire_time, now
        if not self._ownership.is_owner:
            self._course.leave_to_owner(held, now)
            return
        if not (flight.may_be_stored or fire.taken):  # built anew, it would have the identity again that is taken
            flight.fire = None
        self._course.read(held)

    def _latest_found(self, held: Held, look: FireLookedFor) -> tuple[int, StoredMessage | None]:
        """Return the fire time of the latest fire that was found and can be genuine, and it; None if there is none."""
        latest: StoredMessage | None = None
        fire_time = look.first
        for message in look.found:
            generated = read_generated(message.block)
            if generated is None or generated[:2] != (held.subject, held.sequence) or generated.fire_time < fire_time:
                continue
            fault = fault_elsewhere(held, generated, message)
            if not fault:
                fire_time, latest = generated.fire_time, message
                continue
            claimed = generated.schedule, generated.sequence, generated.fire_time
            self._emit(Report(FireForged(*claimed, message.subject, message.sequence, fault)))
        return fire_time, latest

    # -- reports -------------------------------------------------------------------------------------------------

    def report(self, now: int) -> bool:
        """Report what was stored, and advance after it; returns whether there is more, False while a burst lasts."""
        self._refusals.report(now)
        if self._in_flight.is_burst(len(self._unreported), now) or not self._unreported:
            return False
        unreported = self._unreported
        reported = (unreported.popleft() for _ in range(min(MAX_REPORTS_PER_STEP, len(unreported))))
        self._guard.each(reported, self._report_stored)
        return bool(unreported)

    def _report_stored(self, fire: Fire) -> None:
        self._emit(Report(FireStored(fire, fire.stored_as, fire.was_stored_before)))
        if fire.is_elsewhere:
            held = self._roster.exactly(fire.schedule, fire.sequence)
            self._report_read_back(fire, held, fire.target, fire.stored_as, fire.stored_at)
        self._advance_after(fire)

    @property
    def is_idle(self) -> bool:
        """True if nothing that was stored is still to be reported."""
        return not self._unreported

    @property
    def has_unknown(self) -> bool:
        """True if a fire was sent that may be stored, and no answer says so; checks everything in progress."""
        flights = [held.flight for held in self._lifecycle.all_active() if held.flight is not None]
        return any(one.stage is Stage.BACKING_OFF and one.fire is not None and one.may_be_stored for one in flights)


_is_watched = attrgetter("is_watched")


def _missed_between(held: Held, latest: int, fire: Fire) -> int | None:
    """Return the first fire time (ns) after the `latest` that is stored, for which a fire stands as well; None if none.

    What was missed before that was reported by the instance that stored it.
    """
    first = held.next_fire(latest) if latest < fire.fire_time else None
    return first if first is not None and first < fire.fire_time else None
