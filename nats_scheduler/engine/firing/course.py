"""Bring one held schedule to its fire, and from there to the next one: read, re-check, retry, advance.

The rules:

- A schedule is read before each fire, but for one whose content is kept, and again whenever something may have changed
  it.
- An unknown outcome is concluded before anything else happens to the schedule.
- A standby leaves all to the owner. It reads a schedule only if no fire of it is read back for long, or purges it if it
  is done, so that nothing stays held that the stream does not hold.
- A schedule advances (`Course.advance`) once its fire is stored, or dropped by a policy: to its next fire or its end.

Its fires are built and sent in `engine.firing.sending`; what an outcome says is in `engine.firing.outcomes`.
"""

from collections.abc import Iterable

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import AttemptRefused, Ending, FiresMissed
from nats_scheduler.engine.fire import (
    CheckFinished,
    Fire,
    ReadContent,
)
from nats_scheduler.engine.firing.building import UNGUARDED_LOOK_AHEAD_NS, ServerLimits
from nats_scheduler.engine.firing.contents import size_of
from nats_scheduler.engine.firing.overlap import Overlaps, Verdict
from nats_scheduler.engine.firing.sending import Firing
from nats_scheduler.engine.holding.flight import DONE, WITH_CONTENT, Flight, Stage, Turn
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held, NoFire
from nats_scheduler.engine.holding.lifecycle import BURST_IN_FLIGHT, UNFIRED_LIMIT_NS, Lifecycle, Part
from nats_scheduler.engine.holding.silence import dropped as note_dropped
from nats_scheduler.engine.inputs import (
    ContentRead,
    FinishAnswer,
    Refused,
    RemovalRequested,
    Unanswered,
)
from nats_scheduler.engine.removing.purges import LEFT_TO_OWNER_NS, Purges
from nats_scheduler.message.generated import WRONG_LAST_SEQUENCE
from nats_scheduler.message.policies import MAKE_UP_ONCE, Kept
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject
from nats_scheduler.schedule.instants import SECOND

# Find, while standing by, schedules that came due and that the owner did not fire.
#
# An owner may be alive and unable to fire, which shows only in what it does not store. A removal leaves nothing in the
# stream either, so a schedule is read before the owner is said not to have fired it.
#
# The rules:
#
# - A while after its due time, one schedule at a time is read; if it is still stored, the owner has not fired it.
# - If it was due long ago nothing is noted: its fires may be gone, and the owner knows better.
# - Where the fires of the owner cannot be read back, it is not judged by them: on streams that do not keep their
#   messages, and by schedules whose targets are in other streams.
#
# Cost: one read while a schedule seems to be unfired.

LEFT_WITH_OTHER_TARGET_NS = 10 * LEFT_TO_OWNER_NS
"""The same as `LEFT_TO_OWNER_NS` for repeating schedules whose fires are in other streams.

They are not read back, so a standby does not know the next fire of any of them until it is to fire it.
"""


class Unfired(Part):
    """The schedules of one stream that the owner seems not to fire, as a standby sees it."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        super().__init__(lifecycle)
        self._live_since = 0
        self._read_last: Held | None = None
        """The schedule that was read last because nobody fired it."""

    def contact_regained(self, now: int) -> None:
        """Expect nothing of the time before: fires could not be read back."""
        self._live_since = now

    def due_since(self, held: Held) -> int:
        """Return since when (ns) a fire may be read here: the schedule is due and stored, and there is contact."""
        return max(held.send_time, held.stored_at, self._live_since)

    def wait(self, held: Held, now: int) -> bool:
        """Leave a due schedule to the owner for a while; returns False if it is to be read now."""
        ownership, due = self._ownership, self.due_since(held)
        since = due + UNFIRED_LIMIT_NS
        if not held.fires_each_time:
            self._lifecycle.set_aside(held, due + LEFT_TO_OWNER_NS)
            return True
        is_settled = ownership.unfired or ownership.last_fired >= held.send_time
        if is_settled or held.is_elsewhere or not ownership.reads_all:
            self._lifecycle.set_aside(held, due + limit_of(held))
        elif now < since:
            self._lifecycle.set_aside(held, since)
        elif self._is_reading():
            self._lifecycle.set_aside(held, now + UNFIRED_LIMIT_NS)
        else:
            self._read_last = held
            return False
        return True

    def note_stored(self, held: Held, now: int) -> None:
        """Note that a schedule is stored although its due time has passed."""
        since, until = self.due_since(held) + UNFIRED_LIMIT_NS, max(held.send_time, held.stored_at) + LEFT_TO_OWNER_NS
        if self._ownership.reads_all and held.fires_each_time and since <= now < until:
            self._ownership.blame(held)

    def unread(self, held: Held, now: int) -> None:
        """Read a schedule again soon that could not be read: the owner may not have fired it."""
        if now < self.due_since(held) + LEFT_TO_OWNER_NS:
            self._lifecycle.set_aside(held, now + UNFIRED_LIMIT_NS)

    def _is_reading(self) -> bool:
        held = self._read_last
        return held is not None and self._lifecycle.in_stage(held.subject, held.sequence, Stage.READING) is held


def limit_of(held: Held) -> int:
    """Return how long (ns) after its due time a standby reads a schedule, to notice that it is gone."""
    return LEFT_WITH_OTHER_TARGET_NS if held.is_elsewhere and held.repeats else LEFT_TO_OWNER_NS


UNGUARDED_CONTENT_AGE_LIMIT_NS = 2 * UNGUARDED_LOOK_AHEAD_NS
"""Content that was read longer ago is read again before it is published where no guard checks it."""

MIN_GROUPS_AHEAD = 4
"""A group is no longer than the look-ahead, divided by this."""

MIN_WAIT_AHEAD_NS = SECOND // 2
"""What is read this time (ns) or more before its fire may wait for others that are read with it."""

CONTENT_KEPT_NS = 10 * SECOND
"""A schedule that fires again within this time keeps its content in memory, if the guard protects it."""

HELD_BACK_LOOK_INTERVAL_NS = 300 * SECOND
"""The interval (ns) at which a standby reads a due schedule whose fires the owner may hold back or skip."""

ATTEMPTS_PER_READ = 7
"""After this number of attempts without an answer the content is read again, guard or not."""


class Course(Part):
    """The way of one stream's schedules from waiting to their outcome."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        purges: Purges,
        rules: StreamRules,
        limits: ServerLimits,
    ) -> None:
        super().__init__(lifecycle)
        self._purges = purges
        self._limits = limits
        self._look_ahead = limits.longest_ahead
        self._first_group = min(limits.read_group, self._look_ahead // MIN_GROUPS_AHEAD)
        self._unfired = Unfired(lifecycle)
        self.overlaps = Overlaps(lifecycle, rules)
        """Holds fires back until the one before is finished."""
        self.firing = Firing(lifecycle, limits, rules)
        """Builds and sends the fires of what this has brought so far."""
        self.running_since: int | None = None
        """The instant (ns) at which everything stored had been read for the first time."""

    # -- time ----------------------------------------------------------------------------------------------------

    def await_due(self, held: Held, now: int = 0) -> None:
        """Have the schedule read in time for its due fire, or ended when its TTL runs out if that comes first.

        `now` (ns) if it was read already, and outlived the age that its stream allows.
        A standby has it looked at `Ownership.lag` later, so a takeover needs no visit of all.
        Checkpoints rely on it that no schedule is woken after its send time (`Takeover.checkpoint`).
        """
        if held.no_fire is not None:
            wake = min(held.over_at, held.expires)  # an edit of a calendar has it looked at before
        else:
            send_time, expires = held.send_time, held.expires
            wake = expires if expires <= send_time else self._read_at(send_time, self._ahead(held))
        if self._lifetimes.max_age:
            wake = min(wake, self._lifetimes.age_check_at(held, now))
        if wake < NO_EXPIRY:
            self._roster.wake(held, wake)
        else:
            self._roster.cancel_wake(held)

    def woken(self, held: Held, now: int) -> None:
        """Take the next step of a schedule whose time has come."""
        flight = held.flight
        if flight is None:
            self._wake_waiting(held, now)
        elif flight.stage is Stage.READY or flight.stage is Stage.KEPT:
            self._wake_with_content(held, flight, now)
        elif flight.stage is Stage.BACKING_OFF:
            self._retry(held, flight, now)
        elif flight.stage is Stage.HELD_BACK:
            self._wake_held_back(held, flight, now)
        elif flight.stage is Stage.PURGING:
            self._purges.purge_subject(held)
        elif flight.stage is Stage.DONE_BY_OWNER:
            self._purges.purge_now(held, flight.ending)  # the owner did not, or its request was not received

    def _wake_waiting(self, held: Held, now: int) -> None:
        ends = self._lifetimes.ends(held)
        since = ends if ends < held.send_time else self._unfired.due_since(held)
        if self._is_dropped_by_owner(held, now):
            return
        if self._ownership.is_owner or now >= since + LEFT_TO_OWNER_NS:
            self.read(held, may_wait=held.send_time - now >= MIN_WAIT_AHEAD_NS)
        elif ends < held.send_time:
            self._lifecycle.set_aside(held, since + LEFT_TO_OWNER_NS)
        elif not self._unfired.wait(held, now):
            self.read(held)

    def _is_dropped_by_owner(self, held: Held, now: int) -> bool:
        """Go on after fires that the owner drops: it stores nothing that would show it. Return whether it does."""
        may_drop = held.terms.policies.missed.kept is Kept.SKIP
        if not may_drop or self._ownership.is_owner or now < held.send_time:
            return False
        if held.is_elsewhere or held.due_fire(None, now) is not None:
            return False  # of fires in another stream it is not known here which are stored
        self.drop_due(held, now)
        return True

    def _wake_with_content(self, held: Held, flight: Flight, now: int) -> None:
        if not self._ownership.is_owner:
            self.leave(held)
        elif now < held.send_time:
            self.firing.make_ready(held, flight)
        elif not self.firing.is_guarded(held) and now - flight.read_at > UNGUARDED_CONTENT_AGE_LIMIT_NS:
            self._recheck((held,))  # no guard checks it, and the process did not run for a time: it may be gone
        else:
            self._publish(held, flight, now)

    def _wake_held_back(self, held: Held, flight: Flight, now: int) -> None:
        if not self._ownership.is_owner:
            self.leave(held)
        else:
            self.overlaps.woken(held, flight, now)

    def _publish(self, held: Held, flight: Flight, now: int) -> None:
        """Publish the fire of a schedule that is due, hold it back, or go on after it if its policies drop it."""
        if not held.fires_each_time and self.overlaps.holds_back(held, flight, now):
            return
        due: int | None = held.fire_time
        if not flight.has_waited:  # or else for the fire before: so none of what is due was missed
            fire = flight.fire
            is_built = fire is not None and fire.fire_time == due
            following = fire.next_fire if fire is not None and is_built else held.next_fire(held.fire_time)
            due = held.due_fire(following, now)
        if due is None:
            self.drop_due(held, now)
        else:
            self.firing.publish(held, flight, due, now)

    def _go_ahead(self, held: Held, flight: Flight, now: int) -> None:
        """Publish a fire that was held back; it is read again if it had to wait, or if what was read may be old."""
        may_change = held.terms.source is not None or not self.firing.is_guarded(held)
        is_old = now - flight.read_at > UNGUARDED_CONTENT_AGE_LIMIT_NS
        if flight.content is None or (may_change and is_old):
            flight.fire = None
            self.read(held)
        elif self.firing.may_publish:
            self._publish(held, flight, now)
        else:
            self.firing.make_ready(held, flight)

    def finish_answered(self, answer: FinishAnswer, request: CheckFinished, now: int) -> None:
        """Go on with a schedule that asked about its fire before."""
        held = self._roster.exactly(request.schedule, request.sequence)
        if held is None or held.flight is None:
            return
        if held.flight.stage is not Stage.HELD_BACK:
            self.overlaps.answered_too_soon(held.flight, request)
        elif not self._ownership.is_owner:
            self.leave_to_owner(held, now)
        else:
            verdict = self.overlaps.answered(held, request, answer, now)
            if verdict is Verdict.GO_AHEAD:
                self._go_ahead(held, held.flight, now)
            elif verdict is Verdict.SKIPPED:
                self._pass_over(held, held.next_fire(held.fire_time))

    # -- what follows --------------------------------------------------------------------------------------------

    def advance(
        self, held: Held, next_fire: int | None, ending: Ending = Ending.FIRED, *, is_last: bool = False
    ) -> None:
        """Go on after a stored fire: to the next one, or to the purge of a schedule that is done.

        `is_last` if the stored fire says that it is: an edit of a calendar does not change that any more.
        """
        flight = held.flight
        if flight is not None and flight.missed_since is not None:
            self._report_missed(held, flight.missed_since, held.fire_time)
        if next_fire is None:
            if not is_last and _may_be_left(held):
                held.no_fire = NoFire.EXCEPTED
                self._lifecycle.move(held, Turn.ADVANCED)
                self.await_due(held)
            elif held.ends_by_itself:
                self._purges.purge(held, ending)
            else:
                self._lifecycle.end(held, Ending.EXHAUSTED)
        else:
            kept = None if flight is None else flight.content
            pause = held.send_time_of(next_fire) - held.send_time_of(held.fire_time)
            self._lifecycle.move(held, Turn.ADVANCED)
            held.fire_time = next_fire
            is_protected = self.firing.is_guarded(held) and held.terms.source is None and self._ownership.is_owner
            is_near = pause <= CONTENT_KEPT_NS and held.may_fire
            if kept is not None and is_near and is_protected and self._contents.may_keep(kept):
                self.keep_content(held, kept, pause)
            else:
                self.await_due(held)

    def drop_due(self, held: Held, now: int) -> None:
        """Go on after the fires that are due at `now` (ns): a policy drops all of them, and none is made up."""
        first = held.fire_time
        if held.flight is not None and held.flight.missed_since is not None:
            first, held.flight.missed_since = held.flight.missed_since, None
        if held.repeats:
            held.fire_time = held.latest_due(held.fire_time, min(now, held.expires - 1)) or held.fire_time
        if held.unreported is None:
            held.unreported = first
        if self._ownership.is_owner:
            self._report_dropped(held, held.fire_time + 1)
        self.advance(held, held.next_fire(held.fire_time) if held.repeats else None, Ending.MISSED_ITS_TIME)
        if held.sequence in self._lifecycle.aside:
            self._lifecycle.set_aside(held, now + LEFT_TO_OWNER_NS)  # the owner reports it first

    def _pass_over(self, held: Held, next_fire: int | None) -> None:
        """Go on after fires that were not sent: to the next one, or to the purge of a schedule that is done."""
        if next_fire is None and held.ends_by_itself:
            self._purges.purge(held, Ending.SKIPPED)
        else:
            self.advance(held, next_fire)

    def join_late(self, held: Held, now: int) -> bool:
        """Begin with a schedule that had to wait for a place: what came due meanwhile is not made up.

        It is read first: nobody noticed if it was removed while it waited.
        Returns False if none of its fires is to come.
        """
        if held.send_time <= now and held.may_fire:
            following = held.next_to_send(now) if held.repeats else None
            if following is None:
                self._purges.purge(held, Ending.MISSED_ITS_TIME)
                return False
            held.fire_time = following
        self.await_due(held)
        self.recheck_waiting(held)
        return True

    def took_over(self, held: Held, settled_through: int) -> None:
        """Report what was dropped while standing by and the owner before has not settled."""
        if held.unreported is None:
            return
        if held.send_time_of(held.unreported) <= settled_through:
            held.unreported = None
        else:
            is_done = held.flight is not None and held.flight.stage in DONE
            self._report_dropped(held, held.fire_time + is_done)

    def _report_dropped(self, held: Held, before: int) -> None:
        """Report that no fire before an instant (ns) is stored of those that were dropped and are not reported."""
        first, held.unreported = held.unreported, None
        assert first is not None, "something was dropped"
        dropped = held.dropped_between(first, before)
        held.dropped += dropped
        self._report_missed(held, first, None, dropped)
        note_dropped(self._lifecycle, held, first, before - 1, dropped, f"X-Missed: {held.terms.policies.missed}")

    def _report_missed(self, held: Held, first: int, made_up: int | None, dropped: int = 0) -> None:
        """Report that fires from `first` (ns) on were not stored, and for a schedule with policies how many."""
        was_running = self.running_since is not None and first >= self.running_since
        missed = held.terms.policies.missed
        dropped = dropped if made_up is None else held.dropped_between(first, made_up)
        policy = "" if missed == MAKE_UP_ONCE else f"X-Missed: {missed}"
        event = FiresMissed(held.subject, held.sequence, first, made_up, was_running, dropped, policy)
        self._emit(Report(event))

    # -- what may have changed -----------------------------------------------------------------------------------

    def leave(self, held: Held) -> None:
        """Leave a schedule to another owner: what is in flight is concluded here, and not repeated."""
        if held.flight is None or held.flight.stage in (Stage.READY, Stage.KEPT, Stage.HELD_BACK, Stage.BACKING_OFF):
            self._lifecycle.move(held, Turn.LEFT)
            self.await_due(held)

    def recheck_waiting(self, held: Held) -> None:
        """Read whether a schedule that waits is still stored."""
        if held.flight is None:
            self.read(held)

    def removal_requested(self, request: RemovalRequested, now: int) -> None:
        """Re-check what the request may have removed, before it fires, and retry what was refused.

        Only schedules whose content was read already are concerned; the others will be read anyway. A request for many
        subjects concerns those that no guard protects: the server refuses the fires of what it has removed of the
        others, and to read all of them at each request would cost more than the request.
        """
        self.conditions_changed(now)
        if request.filter is not None and is_literal_subject(request.filter):
            # The purges of other instances are received too, in bursts.
            self._purges.requested_on(request.filter, request.below, now)
        elif request.sequence is not None:
            self._purges.requested_of(self._lifecycle.aside.get(request.sequence), None, now)
        elif request.filter is not None and request.below is not None:
            self._purges.requested_jointly(request.filter, request.below, now)
        active = self._lifecycle.active_in(request)
        is_wide = request.sequence is None and not (request.filter is not None and is_literal_subject(request.filter))
        self._recheck(self._unprotected(active) if is_wide else active)

    def contact_regained(self, now: int) -> None:
        """Re-check samples, which have aged, and, without the guard, what may have been removed during the outage."""
        if self.running_since is None:
            self.running_since = now
        self._unfired.contact_regained(now)
        self.conditions_changed(now)
        self._purges.purge_returned(now)
        self._recheck(self._unprotected(self._lifecycle.all_active()))

    def _unprotected(self, active: Iterable[Held]) -> list[Held]:
        """Return the schedules whose fires the server would store although they, or their sources, are gone."""
        return [held for held in active if not self.firing.is_guarded(held) or held.terms.source is not None]

    def covered(self, held: Held, sequence: int, now: int) -> None:
        """Go on with a schedule on which something landed that leaves it alive.

        What lands on one that is done does not concern it, and stays.
        """
        flight = held.flight
        if flight is not None and flight.stage in DONE:
            return
        if not self._landed.note(held, sequence if self._ownership.reads_all else self._landed.last_on(held)):
            return
        if flight is not None:
            flight.found_landing()
        if flight is not None and flight.stage not in WITH_CONTENT:
            return  # a guard that expects less refuses what is in flight, and it is re-checked
        if flight is not None and held.send_time <= now:
            self._recheck((held,))
        elif held.sequence not in self._lifecycle.aside:
            self._lifecycle.move(held, Turn.COVERED)  # its fire expects less, and is read and built anew in time
            self.await_due(held)

    def look_under(self, held: Held, found: StoredMessage, *, may_have_landed: bool) -> bool:
        """Read a schedule by its sequence if what was found on its subject leaves it alive; return whether it does."""
        flight = held.flight
        assert flight is not None, "it was read"
        if not (may_have_landed or self._landed.knows(held, found.sequence)):
            return False
        if self._landed.found(held, found.sequence, is_next=flight.above > 0):
            flight.found_landing()
        self.read(held, is_covered=True)
        return True

    def conditions_changed(self, now: int) -> None:
        """Retry soon what was refused: the stream, or our permissions on it, may have changed."""
        if self._refusals.held:
            self._refusals.retry_soon(now)

    # -- content -------------------------------------------------------------------------------------------------

    def content_read(self, read: ContentRead, now: int) -> StoredMessage | None:
        """Take what is stored on the subject; returns the message if it is another one than the schedule held."""
        held = self._lifecycle.in_stage(read.schedule, read.sequence, Stage.READING)
        if held is None or held.flight is None or self._is_outdated(held.flight):
            return None
        if read.message is None or read.message.sequence < held.sequence:
            self._lifecycle.end(held, self._lifetimes.why_gone(held, now))
            return None
        if read.message.sequence > held.sequence:
            return read.message
        if read.above is not None:
            return read.above
        # A leader with replicas may be behind what was read; there nothing depends on it that what landed is gone.
        may_be_gone = not (held.flight.by_sequence or self._limits.blocks_refused)
        if may_be_gone and self._landed.forget(held):
            held.flight.found_landing()
        if held.flight.fire is None and (held.send_time - now > self._ahead(held) or not held.may_fire):
            self._lifecycle.move(held, Turn.NOT_DUE)  # it was read for another reason than its fire
            self.await_due(held, now)
        elif not self._ownership.is_owner:
            self.leave_to_owner(held, now)
            self._unfired.note_stored(held, now)
        else:
            held.flight.content, held.flight.source = read.message, read.source
            held.flight.read_at = now
            size = size_of(read.message, read.source)
            if held.flight.fire is None and not self._contents.takes(held, held.flight, size):
                self.read(held)  # its size was not known: its turn comes when there is room for it
            else:
                self._go_on(held, held.flight, now)
        return None

    def content_unread(self, request: ReadContent, unread: Unanswered, now: int) -> None:
        """Retry later."""
        held = self._lifecycle.in_stage(request.schedule, request.sequence, Stage.READING)
        if held is None or held.flight is None or self._is_outdated(held.flight):
            return
        self._contents.drop(held.flight)
        if self._ownership.is_owner:
            if unread.denied:
                self._ownership.deny(unread.reason, now)
            self.firing.back_off(held, held.flight, Turn.UNREAD, now)
        else:
            self.leave_to_owner(held, now)
            self._unfired.unread(held, now)

    def _go_on(self, held: Held, flight: Flight, now: int) -> None:
        """Go on with a schedule whose content was read just now."""
        if flight.fire is not None:
            self.firing.repeat(held, flight, flight.fire, now)
        elif held.send_time <= now and self.firing.may_publish:
            self._publish(held, flight, now)
        else:
            self.firing.make_ready(held, flight)

    def keep_content(self, held: Held, content: StoredMessage, pause: int) -> None:
        """Keep the content for the next fire, which is built at once, or in a burst in the middle of the pause (ns)."""
        self._lifecycle.move(held, Turn.CONTENT_KEPT)
        assert held.flight is not None, "what is in progress has a flight"
        held.flight.content = content
        self._contents.use(held.flight, size_of(content))
        if self._in_flight.count <= BURST_IN_FLIGHT:
            self.firing.make_ready(held, held.flight)
        else:
            self._roster.wake(held, held.send_time - pause // 2)

    def _ahead(self, held: Held) -> int:
        """Return how long (ns) before its fire a schedule is read: a sample is taken at its due time."""
        if held.terms.source is not None:
            return 0
        is_close = held.is_elsewhere or self._landed.covers(held)
        return min(self._look_ahead, UNGUARDED_LOOK_AHEAD_NS) if is_close else self._look_ahead

    def first_read_at(self, fire_time: int, source: str | None) -> int:
        """Return when (ns) a new schedule without policies is read for its first fire, if that is far."""
        if source is not None and self._ownership.is_owner:
            return fire_time
        instant = fire_time - self._look_ahead  # as `_read_at` of a time beyond the look-ahead, at a third of its cost
        together = instant + -instant % self._first_group if self._first_group else instant
        return together if fire_time - together >= MIN_WAIT_AHEAD_NS else instant

    def _read_at(self, send_time: int, ahead: int) -> int:
        """Return when (ns) to read for a fire at `send_time` (ns): `ahead` before it, with what is due near it."""
        if not self._ownership.is_owner:
            return self.first_read_at(send_time, None)  # the lag of a standby is counted from the longest look-ahead
        group = min(self._limits.read_group, ahead // MIN_GROUPS_AHEAD)
        instant = max(send_time - ahead, self._contents.now)
        together = instant + -instant % group if group else instant
        return together if send_time - together >= MIN_WAIT_AHEAD_NS else send_time - ahead

    def read(self, held: Held, *, is_covered: bool = False, may_wait: bool = False) -> None:
        """Have what is stored of a schedule read, with others that follow if it `may_wait`; the answer decides."""
        self._lifecycle.move(held, Turn.ASKED)
        flight = held.flight
        assert flight is not None, "what is in progress has a flight"
        is_first = flight.reads == flight.attempts == 0 and not flight.was_rechecked
        flight.content = flight.source = None
        self._contents.drop(flight)
        source = held.terms.source
        # A covered one is read below what landed: if that is gone, the guard refuses, or it does no harm.
        is_covered = is_covered or (is_first and self._landed.covers(held))
        by_sequence = is_first and source is None and self.firing.is_guarded(held)
        flight.by_sequence = is_covered or by_sequence
        flight.above = self._landed.last_on(held) if is_covered else 0
        flight.may_wait = may_wait and (flight.may_wait or not flight.waits_for_room)
        if not flight.waits_for_room and self._contents.begins(held, flight):
            self._ask(held, flight)

    def read_what_has_room(self) -> None:
        """Ask for the contents that waited for room, as far as there is room now."""
        self._guard.each(self._contents.granted(), self._ask_for)

    def _ask_for(self, held: Held) -> None:
        assert held.flight is not None, "what is read has a flight"
        self._ask(held, held.flight)

    def _ask(self, held: Held, flight: Flight) -> None:
        flight.reads += 1
        is_plain = flight.by_sequence and not flight.above
        asked = held.terms.source, is_plain, flight.above, flight.may_wait
        self._emit(ReadContent(held.subject, held.sequence, *asked))

    def _recheck(self, doubtful: Iterable[Held]) -> None:
        self._guard.each(doubtful, self._recheck_one)

    def _recheck_one(self, held: Held) -> None:
        flight = held.flight
        if flight is not None and flight.stage in (Stage.READY, Stage.KEPT, Stage.HELD_BACK, Stage.READING):
            if flight.stage is not Stage.READING:
                flight.fire = None
            self.read(held)

    def leave_to_owner(self, held: Held, now: int) -> None:
        """Leave a schedule to the owner, and look at it after a while."""
        self._lifecycle.move(held, Turn.LEFT)
        wait = limit_of(held) if held.fires_each_time else HELD_BACK_LOOK_INTERVAL_NS
        self._lifecycle.set_aside(held, max(held.send_time, now) + wait)

    def _is_outdated(self, flight: Flight) -> bool:
        """Count an answer to a read, and return whether the content was asked for again since."""
        flight.reads -= 1
        return flight.reads > 0 or flight.waits_for_room

    # -- retries -------------------------------------------------------------------------------------------------

    def _retry(self, held: Held, flight: Flight, now: int) -> None:
        if not self._ownership.is_owner:
            self.leave(held)
            return
        # If nothing is acknowledged, the guard refuses in silence: without a read that would never end.
        reads = flight.attempts % ATTEMPTS_PER_READ == 0
        if flight.fire is not None and self.firing.is_guarded(held) and not reads:
            self.firing.send(held, flight, flight.fire, now)
        else:
            self.read(held)

    def refused(self, held: Held, flight: Flight, fire: Fire, outcome: Refused, now: int) -> None:
        """Re-check a schedule whose guard refused, or have it retried when its turn comes."""
        is_by_guard = outcome.code in WRONG_LAST_SEQUENCE
        flight.refused(fire, by_guard=is_by_guard, blocks=self._limits.blocks_refused)
        if is_by_guard and not flight.was_rechecked:
            self._emit(Report(AttemptRefused(fire, outcome.code, outcome.description, 0)))
            flight.fire = flight.content = None
            flight.was_rechecked = True
            self.read(held)
        else:
            self.firing.refused(held, flight, fire, outcome, now)


def _may_be_left(held: Held) -> bool:
    """Return whether an edit of a calendar may leave a later fire of a schedule of which its calendars leave none."""
    if not held.calendars or not held.repeats:
        return False
    return held.next_possible(held.fire_time) is not None
