"""Bring one held schedule to its fire: look, build, send, and try again.

The rules:

- An unknown outcome is repeated with the same fire, and so with the same identity, before anything else happens to the
  schedule; a refusal stored nothing, so the next attempt may stand for later fires too (`engine.refusals` says when).
- Overdue fires of a repeating schedule are collapsed into one make-up fire, the latest that is due.
- A schedule of a shard that another instance holds rests. Only where its fire stays out for long it is looked at, or
  removed if it is known to be done, so that none is kept that the stream does not hold.

What follows from an outcome builds on it, in `engine.firing`.
"""

from collections.abc import Callable, Iterable, Sequence

from nats_scheduler.engine.actions import Action, PublishFires, ReadContent, Report
from nats_scheduler.engine.assembly import ServerLimits, assembled, refusal_of
from nats_scheduler.engine.events import FireRefused
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.flight import UNKNOWN_RETRY_LIMIT, Failing, Flight, Stage
from nats_scheduler.engine.held import NO_WAKE, Held
from nats_scheduler.engine.inputs import NOT_PERMITTED, ContentRead, ContentUnread, Refused, RemovalRequested
from nats_scheduler.engine.removing import NEGLECTED_AFTER, OTHERS_MAY_TAKE, Removing
from nats_scheduler.engine.roster import Roster
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_literal_subject, subject_matches
from nats_scheduler.schedule.instants import MILLISECOND

UNGUARDED_LOOK_AHEAD = 50 * MILLISECOND
"""Longest look-ahead (ns) where the server does not refuse a stale fire (2.10).

The shorter, the smaller the window in which a removal can be missed.
"""

LOOK_AGAIN_EVERY = 7
"""After so many attempts without an answer the schedule is looked at again, guard or not."""

MAX_FLYING = 256
"""Most fires on their way at once: enough that server and sidecar need not wait for each other.

What is cancelled while a fire is on its way cannot stop it: of 3,000 cancelled when they were due, 600 were stored
behind their cancels, and with twice as many on their way 1,500; a herd takes hardly less time.
"""

WRONG_LAST_SEQUENCE = frozenset({10071, 10164})


class Approach(Removing):
    """The ways of one stream's schedules to their fires."""

    def __init__(self, roster: Roster, limits: ServerLimits, emit: Callable[[Action], None]) -> None:
        super().__init__(roster, emit, may_return=not limits.guard)
        self._limits = limits
        self._look_ahead = limits.look_ahead if limits.guard else min(limits.look_ahead, UNGUARDED_LOOK_AHEAD)
        self._handed_out: list[Fire] = []

    @property
    def room(self) -> int:
        """How many fires more may be on their way; no more than 0 where the next have to wait for outcomes."""
        return MAX_FLYING - self._flying

    def hand_out(self) -> Sequence[Action]:
        """Return the order to publish what was made since the last time; none where that is nothing."""
        fires, self._handed_out = self._handed_out, []
        return (PublishFires(fires),) if fires else ()

    # -- the way to a fire ---------------------------------------------------------------------------------------

    def await_due(self, held: Held, now: int = 0) -> None:
        """Have the schedule looked at in time for its due fire, or at its end where that comes first.

        `now` (ns) where it was looked at already, and outlived the age that its stream allows.

        The same for all holders: who holds it then is asked when its time comes, so that shards change hands at once.
        """
        due, expires = held.due, held.expires
        wake = expires if expires <= due else due - self._ahead(held)
        if self.lifetimes.max_age:
            wake = min(wake, self.lifetimes.look(held, now))
        self._roster.wake(held, wake)

    def look_whether_there(self, held: Held) -> None:
        """Look whether a schedule that only waits is still stored."""
        if held.flight is None:
            self._read(held, Flight(Stage.READING))

    def let_go(self, held: Held) -> None:
        """Leave a schedule to another holder: what is in flight is concluded, and not repeated."""
        if held.flight is None or held.flight.stage in (Stage.READY, Stage.RETRYING):
            self.settle(held)
            held.flight = None
            self.await_due(held)

    def woken(self, held: Held, now: int) -> None:
        """Take the next step of a schedule whose time has come."""
        flight = held.flight
        if flight is None:
            since = min(held.due, self.lifetimes.ends(held))
            if self.is_ours(held) or now >= since + OTHERS_MAY_TAKE:
                self._read(held, Flight(Stage.READING))
            elif since < held.due:
                self.leave_to_others(held, since)
            elif not self.rests(held, now):
                self._read(held, Flight(Stage.READING))
        elif flight.stage is Stage.READY:
            self._ready(held, flight, now)
        elif flight.stage is Stage.RETRYING:
            self._retry(held, flight, now)
        elif flight.stage is Stage.PURGING:
            self.remove_versions(held.subject, held.sequence)
        elif flight.stage is Stage.SPENT:
            self.remove(held, flight.ending)  # its holder did not, or nobody saw it

    def _ready(self, held: Held, flight: Flight, now: int) -> None:
        """Take the next step of a schedule whose content was read."""
        if not self.is_ours(held):
            self.let_go(held)
        elif now < held.due:
            self._make_ready(held, flight)
        elif not self._limits.guard and now - held.due > UNGUARDED_LOOK_AHEAD:
            self._look_again((held,))  # no guard looks, and we were stopped: what was read may be long gone
        elif (fire := flight.fire) is None or (fire.next_fire is not None and fire.next_fire <= now):
            self._publish(held, flight, now)
        else:
            self._send(held, flight, fire, now)  # as it was built before its time: nearly always

    def doubt(self, request: RemovalRequested, now: int) -> None:
        """Look again at what the request may have removed, before it fires, and try again what was refused.

        Only schedules whose content was read already are concerned; the others will be looked at anyway.
        """
        self.conditions_changed(now)
        if request.sequence is not None:
            doubted = [self._active.get(request.sequence)]
        elif request.filter is None:
            doubted = list(self._active.values())
        elif is_literal_subject(request.filter):  # the purges of other instances are seen too, and come in herds
            doubted = [self._roster.on(request.filter)]
            self.forget_removed(doubted[0], request.below)
        else:
            doubted = [held for held in self._active.values() if subject_matches(held.subject, request.filter)]
        self._look_again(held for held in doubted if held is not None)

    def contact_regained(self, now: int) -> None:
        """Look again at samples, which have aged, and without the guard at what was removed while nobody listened."""
        self._live_since = now
        self.conditions_changed(now)
        self.remove_returned(now)
        guarded = self._limits.guard
        self._look_again([h for h in self._active.values() if not guarded or h.terms.source is not None])

    def clock_stepped_back(self, by: int) -> None:
        """Keep the back-offs as long as they were although the wall clock shows `by` ns less than before."""
        for held in self.in_hand():
            backs_off = held.flight is not None and held.flight.stage in (Stage.RETRYING, Stage.PURGING)
            if backs_off and held.wake != NO_WAKE:
                self._roster.wake(held, held.wake - by)
        self._left_over_until -= by
        self._refusals.clock_stepped_back(by)
        if self._herd_since is not None:
            self._herd_since -= by

    def earliest_unsettled(self) -> int | None:
        """Return the due time (ns) of the earliest fire that was begun and is not known to be stored, nor stuck."""
        shards, stuck = self.shards, self._stuck
        # Asked once a second, of everything in its look-ahead: no call for each.
        dues = [
            held.due
            for held in self._active.values()
            if held.shard in shards
            and held.sequence not in stuck
            and (held.flight is None or held.flight.fire is None or not held.flight.fire.stored_as)
        ]
        return min(dues, default=None)

    def has_begun(self, sequence: int) -> bool:
        """Tell whether a fire of the schedule with this sequence was begun and is not settled."""
        return sequence in self._active

    def stuck(self) -> list[Held]:
        """Return the schedules whose fires the server refuses for the time being."""
        return [held for held in self._stuck.values() if self.is_ours(held)]

    def conditions_changed(self, now: int) -> None:
        """Try again soon what was refused: the stream, or what we may do there, may have changed."""
        if self._stuck:
            self._refusals.look_again(now)

    def content_read(self, read: ContentRead, now: int) -> StoredMessage | None:
        """Take what lay on the subject; returns the message where it is another one than the schedule held."""
        held = self.in_stage(read.schedule, read.sequence, Stage.READING)
        if held is None or held.flight is None or self._is_outdated(held.flight):
            return None
        if read.message is None or read.message.sequence < held.sequence:
            self.end(held, self.lifetimes.why_gone(held, now))
            return None
        if read.message.sequence > held.sequence:
            return read.message
        if held.flight.fire is None and held.due - now > self._ahead(held):
            self._rest(held, now)
            return None
        if not self.is_ours(held):
            self._leave_alone(held, now)
            self.neglect(held, now)
            return None
        flight = held.flight
        flight.content, flight.source = read.message, read.source
        if flight.fire is not None:
            self._repeat(held, flight, flight.fire, now)
        elif held.due <= now and self.is_open:
            self._publish(held, flight, now)
        else:
            self._make_ready(held, flight)
        return None

    def content_unread(self, unread: ContentUnread, now: int) -> None:
        """Try again later."""
        held = self.in_stage(unread.schedule, unread.sequence, Stage.READING)
        if held is None or held.flight is None or self._is_outdated(held.flight):
            return
        if self.is_ours(held):
            if unread.denied:
                self.deny(held, unread.reason, now)
            self._back_off(held, held.flight, now, UNKNOWN_RETRY_LIMIT)
        else:
            self._leave_alone(held, now)
            if now < held.due + OTHERS_MAY_TAKE:
                self._rest_until(held, now + NEGLECTED_AFTER)  # its holder may neglect it

    # -- steps ---------------------------------------------------------------------------------------------------

    def _after(self, held: Held, fire_time: int) -> int | None:
        return held.pattern.next_fire(fire_time, held.stored_at)

    def _ahead(self, held: Held) -> int:
        """Return how long (ns) before its fire a schedule is looked at: a sample is taken at its time."""
        return 0 if held.terms.source is not None else self._look_ahead

    def _rest(self, held: Held, now: int) -> None:
        """Let a schedule wait for its time again, which was looked at for another reason and is still there."""
        self.settle(held)
        held.flight = None
        self.await_due(held, now)

    def _make_ready(self, held: Held, flight: Flight) -> None:
        """Have the fire built before it is due, so that at its time only bytes are sent."""
        held.flight, flight.stage = flight, Stage.READY
        flight.fire = self._build(held, flight, held.due, self._after(held, held.due))
        self._active[held.sequence] = held
        self._roster.wake(held, held.due)

    def _read(self, held: Held, flight: Flight) -> None:
        is_first = flight.reads == flight.attempts == 0 and not flight.looked_again
        flight.stage, flight.content = Stage.READING, None
        flight.reads += 1
        held.flight = flight
        self._active[held.sequence] = held
        source = held.terms.source
        by_sequence = is_first and source is None and self._limits.guard
        self._emit(ReadContent(held.subject, held.sequence, source, by_sequence))

    def _look_again(self, doubted: Iterable[Held]) -> None:
        for held in doubted:
            if held.flight is not None and held.flight.stage in (Stage.READY, Stage.READING):
                if held.flight.stage is Stage.READY:
                    held.flight.fire = None
                self._read(held, held.flight)

    def _leave_alone(self, held: Held, now: int) -> None:
        """Let a schedule of another holder rest."""
        self.settle(held)
        held.flight = None
        self.leave_to_others(held, max(held.due, now))

    def _is_outdated(self, flight: Flight) -> bool:
        """Count an answer to a read, and tell whether it was asked again since."""
        flight.reads -= 1
        return flight.reads > 0

    def _publish(self, held: Held, flight: Flight, now: int) -> None:
        fire, fire_time = flight.fire, held.due
        next_fire = fire.next_fire if fire is not None and fire.fire_time == fire_time else self._after(held, fire_time)
        until = min(now, held.expires - 1)
        if next_fire is not None and next_fire <= until:
            fire_time, next_fire = self._make_up(held, flight, next_fire, until)
        if fire is None or fire.fire_time != fire_time or fire.next_fire != next_fire:
            fire = self._build(held, flight, fire_time, next_fire)
        self._send(held, flight, fire, now)

    def _make_up(self, held: Held, flight: Flight, second: int, until: int) -> tuple[int, int | None]:
        """Collapse the fires that came due up to `until`, of which `second` is the second, into the latest."""
        latest = held.pattern.latest_fire(held.due, until, held.stored_at) or second
        if flight.missed_since is None:
            flight.missed_since = held.due
        held.due = latest
        return latest, self._after(held, latest)

    def _build(self, held: Held, flight: Flight, fire_time: int, next_fire: int | None) -> Fire:
        assert flight.content is not None, "a fire is built only after its content was read"
        fire = assembled(held, flight.content, flight.source, fire_time, next_fire, guard=self._limits.guard)
        flight.refusal = refusal_of(fire, self._limits)
        return fire

    def _send(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        if flight.refusal is not None:
            self._refused(held, flight, fire, flight.refusal, now)
            return
        flight.stage, flight.fire = Stage.FLYING, fire
        if fire.next_fire is None or held.terms.source is not None:
            flight.content = flight.source = None  # not what the next fire is built from
        self.under_way += 1
        self._flying += 1
        self._handed_out.append(fire)

    def _retry(self, held: Held, flight: Flight, now: int) -> None:
        if not self.is_ours(held):
            self.let_go(held)
            return
        # Where nothing is acknowledged, the guard refuses in silence: for ever, unless somebody looks.
        looks = flight.attempts % LOOK_AGAIN_EVERY == 0
        if flight.fire is not None and self._limits.guard and not looks:
            self._send(held, flight, flight.fire, now)
        else:
            self._read(held, flight)

    def _repeat(self, held: Held, flight: Flight, fire: Fire, now: int) -> None:
        """Repeat a fire of unknown outcome whose schedule was found to be still there."""
        if self.is_open:
            self._send(held, flight, fire, now)
        else:
            flight.stage = Stage.RETRYING
            self._roster.wake(held, now)

    def _refused(self, held: Held, flight: Flight, fire: Fire, outcome: Refused, now: int) -> None:
        flight.fire = flight.content = None
        if outcome.code in WRONG_LAST_SEQUENCE and not flight.looked_again:
            flight.looked_again = True
            self._read(held, flight)
            return
        if outcome.code == NOT_PERMITTED:
            self.deny(held, f"{outcome.description}: {fire.target}", now)
        flight.stage = Stage.RETRYING
        flight.attempts += 1
        wait = self._refusals.refused(held, outcome.code, now)
        if flight.failing is None or flight.failing.code != outcome.code:
            flight.failing = Failing(outcome.code, outcome.description, now)
            self._emit(Report(FireRefused(fire, outcome.code, outcome.description, wait)))

    def _back_off(self, held: Held, flight: Flight, now: int, limit: int) -> int:
        wait = flight.back_off(limit)
        flight.stage = Stage.RETRYING
        self._roster.wake(held, now + wait)
        return wait
