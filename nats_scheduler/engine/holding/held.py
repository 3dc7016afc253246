"""A schedule that is held: its definition, its next fire, and what is in progress for it.

Cost: 120 bytes, about 380 with its numbers, its subject and a pattern of its own; equal terms are shared. One whose
policies need the fire before takes about 60 more. Most of those that are held are far and no objects
(`engine.holding.far`).
"""

from enum import Enum
from typing import ClassVar

from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.policies import Overlap
from nats_scheduler.message.timetable import Timetable, jittered
from nats_scheduler.schedule.bounds import Bounded

NO_WAKE = -1
"""The wake of a schedule without an agenda entry."""

NO_EXPIRY = 1 << 100
"""Later (ns) than any TTL can end."""

NEVER_EXPIRES = NO_EXPIRY + 1
"""The end of a message whose TTL is `never`: it outlives the `max_age` of its stream."""

NO_PLACE = -1
"""The place of a schedule that is in no row."""


class Held(Timetable):
    """A schedule that is held: the last message on its subject, and valid.

    It is its own timetable: a second object for each of a million schedules would take 60 MB.
    """

    __slots__ = ("expires", "fire_time", "flight", "place", "sequence", "shard", "subject", "terms", "wake")
    is_treated: ClassVar[bool] = False
    """Whether it has policies that need more than its definition: it is a `HeldWithPolicies`."""
    is_elsewhere: ClassVar[bool] = False
    """Whether its target is in another stream: it is a `HeldElsewhere`."""
    fires_each_time: bool = True
    """Whether a fire is stored soon after each of its fire times, if its holder is able; another one may wait."""
    may_fire: bool = True
    """Whether its calendars, if it names any, leave its next fire."""

    def __init__(self, subject: str, sequence: int, definition: Definition, stored_at: int) -> None:
        """Hold the schedule that was stored on a subject under a sequence; it waits for its first fire."""
        self.pattern, self.terms = definition
        self.stored_at = stored_at
        self.subject = subject
        self.shard = shard_of(subject)
        self.sequence = sequence
        first = self.first_fire()
        assert first is not None, "a schedule that never fires is rejected before"
        self.fire_time = first
        """The time (ns) that its next fire stands for, or that of its last one if it is done."""
        self.expires = NO_EXPIRY
        """When its TTL runs out (ns): it has no fires from that time on."""
        self.flight: Flight | None = None
        """What is in progress, None while it only waits."""
        self.wake: int = NO_WAKE
        """The instant of its valid agenda entry."""
        self.place = NO_PLACE
        """Its place in `engine.holding.roster`."""

    @property
    def send_time(self) -> int:
        """When (ns) its next fire is published: it is due from then on."""
        return self.send_time_of(self.fire_time)

    @property
    def read_back_threshold(self) -> int:
        """A fire that is read back advances it if its fire time (ns) is this one or later."""
        return self.fire_time

    @property
    def only_expires(self) -> bool:
        """Whether its TTL runs out before its next fire is sent."""
        return self.expires <= self.send_time


class NoFire(Enum):
    """Why a schedule waits for an edit of a calendar, and not for its next fire."""

    NO_CALENDAR = "no_calendar"
    """The days of a calendar that it names are not known; its fire time is the first that may be left."""
    EXCEPTED = "excepted"
    """Its calendars leave none of its fire times that are to come."""


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
    is_treated: ClassVar[bool] = True

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
        """The fire time (ns) of its last fire that is known to be stored; None if none is.

        After a start these are the fires that the stream still holds: what was consumed before is not known.
        """
        self.previous_sequence = 0
        """The stream sequence of that fire, 0 if it is not known."""
        self.previous_stored_at = 0
        """When (ns) that fire was stored: by the server's clock if it was read back, or else when it was acknowledged.
        """
        self.dropped = 0
        """How many fires were dropped by a policy since then."""
        self.unreported: int | None = None
        """The first fire time (ns) since the last stored one that another holder was to drop and to report."""
        self.is_known = True
        """Whether no fire from `fire_time` on is stored, as far as the stream and checkpoints can show."""
        self.last_unfinished = 0
        """The sequence of a fire of it that was unfinished when it was asked about last, 0 if none was."""
        self.overlap_fault = ""
        """Why nothing can show whether its fire before is finished, as it was reported."""
        self.waited_fire: int | None = None
        """The fire time (ns) of its last fire that waited for the one before: it is not late."""
        self.no_fire: NoFire | None = None
        """Why it does not wait for its next fire; None if it does."""

    @property
    def calendars(self) -> list[str]:
        """The names of its calendars."""
        return [calendar.name for calendar in self.terms.policies.bounds.calendars]

    @property
    def bounded(self) -> Bounded:
        """The pattern of a schedule that names a calendar."""
        assert isinstance(self.pattern, Bounded), "a pattern that names a calendar is bounded"
        return self.pattern

    @property
    def may_fire(self) -> bool:  # type: ignore[override]
        """Whether its calendars, if it names any, leave its next fire."""
        if self.no_fire is not None:
            return False
        return not self.terms.policies.bounds.calendars or self.is_left(self.fire_time)

    @property
    def over_at(self) -> int:
        """When (ns) the last fire time has passed that an edit of a calendar may leave.

        `NO_EXPIRY` if that is not known, or never, or if the schedule waits for its next fire.
        """
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
