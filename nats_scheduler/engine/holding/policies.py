"""Schedules whose policies need more than their definitions: what they keep, and what their policies decide.

It is a class of its own, so that the others neither ask nor keep anything (`engine.holding.held`). The rules of
`X-Missed` and `X-Grace`, which say which of the fires that are due is sent next:

- A fire is missed when it is later than the grace; its lateness is the time since its send time.
- `once` sends the latest fire that is due. `skip` sends it too, unless it is missed: then all of them are dropped.
- `all` sends each, oldest first, and each is stored before the next one is sent. With a number it drops what is missed
  and is not among so many of the latest fires that are due. So fires that are late and not missed are all sent.
- A backlog is never invented. If it is not known which fires of a schedule are stored (`Held.is_known`), `all` sends
  the latest fire that is due, as `once` does.

Nothing is kept of a decision: it follows from the time and from the fire that is due, so it may be made again, here or
on another instance.

Cost: about 60 bytes for each such schedule, and a search for a fire time for each fire that is due; about sixty counts
if `all` with a number drops something.
"""

from collections.abc import Sequence
from typing import ClassVar

from nats_scheduler.engine.holding.held import NO_EXPIRY, NO_PLACE, NO_WAKE, Held, NoFire
from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.policies import Kept, Overlap
from nats_scheduler.message.timetable import jittered


class HeldWithPolicies(Held):
    """A schedule that is held and whose policies need more than its definition.

    It is a class of its own, so that the others neither ask nor keep anything. It keeps what is known of its last fire
    that is stored, and the send time that was computed last, since the same one is needed some ten times for each fire.
    """

    __slots__ = (
        "_fire_time_asked",
        "_send_time_found",
        "dropped",
        "fires_each_time",
        "is_known",
        "jitters",
        "last_unfinished",
        "no_fire",
        "overlap_fault",
        "previous_fire",
        "previous_sequence",
        "previous_stored_at",
        "unreported",
        "waited_fire",
    )

    def __init__(self, subject: str, sequence: int, definition: Definition, stored_at: int) -> None:
        """Hold the schedule as `Held` does; nothing is known of its fires."""
        super().__init__(subject, sequence, definition, stored_at)
        self._know_nothing()

    @classmethod
    def from_snapshot(
        cls, subject: str, sequence: int, definition: Definition, stored_at: int, fire_time: int
    ) -> "HeldWithPolicies":
        """Hold the schedule, which waits for the fire of `fire_time` (ns); nothing is known of its other fires."""
        held = cls.__new__(cls)
        held.pattern, held.terms = definition
        held.stored_at, held.subject, held.sequence = stored_at, subject, sequence
        held.shard = shard_of(subject)
        held.fire_time = fire_time
        held.expires, held.flight, held.wake, held.place = NO_EXPIRY, None, NO_WAKE, NO_PLACE
        held._know_nothing()
        return held

    def _know_nothing(self) -> None:
        policies = self.terms.policies
        self.jitters = policies.jitter is not None
        self.fires_each_time = policies.overlap is Overlap.ALLOW
        self._fire_time_asked: int | None = None
        self._send_time_found = 0
        self.previous_fire: int | None = None
        self.previous_sequence = self.previous_stored_at = 0
        self.dropped = 0
        self.unreported: int | None = None
        self.is_known = True
        self.last_unfinished = 0
        self.overlap_fault = ""
        self.waited_fire: int | None = None
        self.no_fire: NoFire | None = None

    @property
    def calendars(self) -> Sequence[str]:  # type: ignore[override]
        """The names of its calendars."""
        return [calendar.name for calendar in self.terms.policies.bounds.calendars]

    @property
    def may_fire(self) -> bool:  # type: ignore[override]
        """Whether its calendars, if it names any, leave its next fire."""
        if self.no_fire is not None:
            return False
        return not self.terms.policies.bounds.calendars or self.is_left(self.fire_time)

    @property
    def over_at(self) -> int:  # type: ignore[override]
        """When (ns) the last fire time has passed that an edit of a calendar may leave."""
        if self.no_fire is not NoFire.EXCEPTED:
            return NO_EXPIRY
        end = self.bounded.bounds.end
        return self.send_time if not self.repeats else NO_EXPIRY if end is None else end

    @property
    def only_expires(self) -> bool:
        """Whether its TTL runs out before its next fire is sent."""
        return self.no_fire is not None or super().only_expires

    def send_time_of(self, fire_time: int) -> int:
        """Return when the fire of a fire time is published: never before it."""
        jitter = self.terms.policies.jitter
        if jitter is None:
            return fire_time
        if fire_time != self._fire_time_asked:
            self._send_time_found = jittered(self, self.subject, self.sequence, jitter, fire_time)
            self._fire_time_asked = fire_time
        return self._send_time_found

    # -- which of the fires that are due is sent, and which are dropped: `X-Missed` and `X-Grace` ---------------------

    def due_fire(self, following: int | None, now: int) -> int | None:
        """Return the fire time of the due fire that is sent next; None if all that are due are dropped."""
        del following  # an edit of a calendar may have changed it
        policies, first, until = self.terms.policies, self.fire_time, min(now, self.expires - 1)
        kept, most = policies.missed
        if kept is Kept.ALL and self.is_known:
            missed_until = now - policies.grace - 1
            if most is None or self.send_time > missed_until:
                return first
            latest = self._latest(first, until)
            following = self.next_fire(self._latest(first, min(missed_until, until)))
            first_of_most = self.latest_but(most, first - 1, latest) or first
            return first_of_most if following is None else min(first_of_most, following)
        latest = self._latest(first, until)
        if kept is Kept.SKIP and now - self.send_time_of(latest) > policies.grace:
            return None
        return latest

    def dropped_between(self, first: int, made_up: int) -> int:
        """Return how many fire times there are from `first` (ns), which is one, to before that of what is made up."""
        return self.count(first - 1, made_up - 1) if self.repeats else 1

    def dropped_before(self, fire_time: int, missed_since: int | None) -> int:
        """Return how many fires were dropped between the last one that is stored and that of a fire time.

        If no stored fire is known, only those count that were dropped here.
        """
        if self.previous_fire is not None:
            return self.count(self.previous_fire, fire_time - 1)
        return self.dropped + (0 if missed_since is None else self.dropped_between(missed_since, fire_time))

    def is_sent_for(self, fire_time: int) -> None:
        """Note that the fire of a fire time is sent: it stands for all that came due before."""
        self.fire_time = fire_time
        self.is_known = True  # what comes due from now on: nobody else is to store it

    def _latest(self, first: int, until: int) -> int:
        """Return the latest fire time that is due by `until`, of which `first` is the first."""
        return first if not self.repeats else self.latest_due(first, until) or first

    def knows(self, *, is_known: bool) -> None:
        """Note whether it is known that no fire from the next one on is stored."""
        self.is_known = is_known

    def was_to_drop(self, first: int) -> None:
        """Note that its holder drops its fires from a fire time (ns) on, and reports that."""
        if self.unreported is None:
            self.unreported = first

    def take_unreported(self) -> int | None:
        """Return `unreported`, and note that it is reported."""
        first, self.unreported = self.unreported, None
        return first

    def were_dropped(self, count: int) -> None:
        """Count fires that a policy dropped."""
        self.dropped += count

    # -- `X-Overlap` and calendars -------------------------------------------------------------------------------

    def waits_without_fire(self, why: NoFire | None) -> None:
        """Note why it waits for an edit of a calendar, or with None that it waits for its next fire."""
        self.no_fire = why

    def was_unfinished(self, sequence: int) -> None:
        """Note the fire of it that is unfinished, 0 if none is."""
        self.last_unfinished = sequence

    def has_waited(self) -> None:
        """Note that its next fire had to wait for the one before."""
        self.waited_fire = self.fire_time

    def has_new_fault(self, fault: str) -> bool:
        """Note why nothing can show whether the fire before is finished; returns whether that is to be reported."""
        before, self.overlap_fault = self.overlap_fault, fault
        return bool(fault) and fault != before

    # -- what is known of its last fire --------------------------------------------------------------------------

    def is_news(self, fire_time: int) -> bool:
        """Return whether a stored fire may change anything: the last one that is stored counts."""
        del fire_time
        return True

    def fire_is_stored(self, fire_time: int, sequence: int, stored_at: int) -> None:
        """Note that the fire of a fire time is stored; `sequence` is 0 if that is not known.

        Each fire may be noted several times: when it is acknowledged, and when it is read back. An older one than the
        last changes nothing.
        """
        before = self.previous_fire
        if before is not None and fire_time < before:
            return
        if before is None or fire_time > before:
            self.previous_fire = fire_time
            self.dropped = 0
            self.unreported = None
        self.previous_sequence = sequence
        self.previous_stored_at = stored_at
        self.is_known = True


class HeldElsewhere(HeldWithPolicies):
    """A schedule that is held and whose target is in another stream: its fires are not read back.

    It keeps for which of its fires was looked there, so that none of unknown outcome is repeated without that.
    """

    __slots__ = ("_looked_at", "_looked_for")
    is_elsewhere: ClassVar[bool] = True

    def _know_nothing(self) -> None:
        super()._know_nothing()
        self._looked_for: int | None = None
        self._looked_at = 0

    def was_fired_by_others(self) -> None:
        """Note that an earlier holder has settled fires: nothing tells which of them are stored."""
        self.previous_fire, self.previous_sequence, self.previous_stored_at, self.dropped = None, 0, 0, 0

    def was_not_found(self, fire_time: int, now: int) -> None:
        """Note that no fire of a fire time (ns), and none of a later one, was stored at `now` (ns)."""
        self._looked_for, self._looked_at = fire_time, now

    def was_looked_for(self, fire_time: int, since: int) -> bool:
        """Return whether the fire of a fire time was not stored at an instant after `since` (ns), nor sent later."""
        return self._looked_for is not None and fire_time <= self._looked_for and self._looked_at >= since

    def was_sent(self) -> None:
        """Note that a fire was sent, which may be stored now."""
        self._looked_for = None


def held_schedule(subject: str, sequence: int, definition: Definition, stored_at: int) -> Held:
    """Return the schedule that was stored on a subject under a sequence, waiting for its first fire."""
    policies = definition.terms.policies
    if policies.target_elsewhere is not None:
        return HeldElsewhere(subject, sequence, definition, stored_at)
    kind = HeldWithPolicies if policies.are_kept else Held
    return kind(subject, sequence, definition, stored_at)
