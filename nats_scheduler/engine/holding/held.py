"""A schedule that is held: its definition, its next fire, and what is in progress for it.

The rule: nobody asks which class a schedule has. What policies may change is a question or a note here, which costs
nothing and changes nothing for the many that have none; `engine.holding.policies` says what the others do.

Cost: 120 bytes, about 380 with its numbers, its subject and a pattern of its own; equal terms are shared. Most of those
that are held are far and no objects (`engine.holding.far`).
"""

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.bounds import Bounded

NO_WAKE = -1
"""The wake of a schedule without an agenda entry."""

NO_EXPIRY = 1 << 100
"""Later (ns) than any TTL can end."""

NEVER_EXPIRES = NO_EXPIRY + 1
"""The end of a message whose TTL is `never`: it outlives the `max_age` of its stream."""

NO_PLACE = -1
"""The place of a schedule that is in no row."""


class NoFire(Enum):
    """Why a schedule waits for an edit of a calendar, and not for its next fire."""

    NO_CALENDAR = "no_calendar"
    """The days of a calendar that it names are not known; its fire time is the first that may be left."""
    EXCEPTED = "excepted"
    """Its calendars leave none of its fire times that are to come."""


class Held(Timetable):
    """A schedule that is held: the last message on its subject, and valid.

    It is its own timetable: a second object for each of a million schedules would take 60 MB.
    """

    __slots__ = ("expires", "fire_time", "flight", "place", "sequence", "shard", "subject", "terms", "wake")
    is_elsewhere: ClassVar[bool] = False
    """Whether its target is in another stream."""
    fires_each_time: bool = True
    """Whether a fire is stored soon after each of its fire times, if its holder is able; another one may wait."""
    may_fire: bool = True
    """Whether its calendars, if it names any, leave its next fire."""
    calendars: Sequence[str] = ()
    """The names of its calendars."""
    no_fire: NoFire | None = None
    """Why it does not wait for its next fire; None if it does."""
    over_at: int = NO_EXPIRY
    """When (ns) the last fire time has passed that an edit of a calendar may leave.

    `NO_EXPIRY` if that is not known, or never, or if the schedule waits for its next fire.
    """
    previous_fire: int | None = None
    """The fire time (ns) of its last fire that is known to be stored, if a policy needs that; None if none is.

    After a start these are the fires that the stream still holds: what was consumed before is not known.
    """
    previous_sequence: int = 0
    """The stream sequence of that fire, 0 if it is not known."""
    previous_stored_at: int = 0
    """When (ns) that fire was stored: by the server's clock if it was read back, or else when it was acknowledged."""
    dropped: int = 0
    """How many fires were dropped by a policy since then."""
    unreported: int | None = None
    """The first fire time (ns) since the last stored one that another holder was to drop and to report."""
    is_known: bool = True
    """Whether no fire from `fire_time` on is stored, as far as the stream and checkpoints can show."""
    last_unfinished: int = 0
    """The sequence of a fire of it that was unfinished when it was asked about last, 0 if none was."""
    overlap_fault: str = ""
    """Why nothing can show whether its fire before is finished, as it was reported."""
    waited_fire: int | None = None
    """The fire time (ns) of its last fire that waited for the one before: it is not late."""

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

    @property
    def bounded(self) -> Bounded:
        """The pattern of a schedule that names a calendar."""
        assert isinstance(self.pattern, Bounded), "a pattern that names a calendar is bounded"
        return self.pattern

    # -- what policies may change --------------------------------------------------------------------------------

    def due_fire(self, following: int | None, now: int) -> int | None:
        """Return the fire time of the due fire that is sent next; None if all that are due are dropped.

        The schedule is due at `now` (ns); `following` is the fire time after its next one, None if there is none. What
        comes due once its TTL has run out does not count.
        """
        until = min(now, self.expires - 1)
        if following is None or following > until or self.send_time_of(following) > until:
            return self.fire_time
        return self.latest_due(self.fire_time, until) or following

    def dropped_between(self, first: int, made_up: int) -> int:
        """Return how many fires are said to be dropped from `first` (ns), which is one, to before what is made up."""
        del first, made_up
        return 0

    def dropped_before(self, fire_time: int, missed_since: int | None) -> int:
        """Return how many fires were dropped between the last one that is stored and that of a fire time.

        `missed_since` is the first (ns) that the fire of `fire_time` stands for, None if there is none.
        """
        del fire_time, missed_since
        return 0

    def is_sent_for(self, fire_time: int) -> None:
        """Note that the fire of a fire time is sent: it stands for all that came due before."""
        self.fire_time = fire_time

    def is_news(self, fire_time: int) -> bool:
        """Return whether a stored fire may change anything: for most an older one than the next does not."""
        return fire_time >= self.read_back_threshold

    def fire_is_stored(self, fire_time: int, sequence: int, stored_at: int) -> None:
        """Note that the fire of a fire time is stored; `sequence` is 0 if that is not known."""

    def knows(self, *, is_known: bool) -> None:
        """Note whether it is known that no fire from the next one on is stored."""

    def waits_without_fire(self, why: NoFire | None) -> None:
        """Note why it waits for an edit of a calendar, or with None that it waits for its next fire."""

    def was_unfinished(self, sequence: int) -> None:
        """Note the fire of it that is unfinished, 0 if none is."""

    def has_waited(self) -> None:
        """Note that its next fire had to wait for the one before."""

    def has_new_fault(self, fault: str) -> bool:
        """Note why nothing can show whether the fire before is finished; returns whether that is to be reported."""
        del fault
        return False

    def was_to_drop(self, first: int) -> None:
        """Note that its holder drops its fires from a fire time (ns) on, and reports that."""

    def take_unreported(self) -> int | None:
        """Return `unreported`, and note that it is reported."""
        return None

    def were_dropped(self, count: int) -> None:
        """Count fires that a policy dropped."""

    def was_fired_by_others(self) -> None:
        """Note that an earlier holder has settled fires."""

    def was_not_found(self, fire_time: int, now: int) -> None:
        """Note that no fire of a fire time (ns), and none of a later one, was stored elsewhere at `now` (ns)."""

    def was_looked_for(self, fire_time: int, since: int) -> bool:
        """Return whether the fire of a fire time was not stored at an instant after `since` (ns), nor sent later."""
        del fire_time, since
        return True

    def was_sent(self) -> None:
        """Note that a fire was sent, which may be stored now."""
