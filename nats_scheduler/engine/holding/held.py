"""A schedule that is held: its definition, its next fire, what is in progress for it, and what its policies decide.

The rules of `X-Missed` and `X-Grace`, which say which of the fires that are due is sent next:

- A fire is missed when it is later than the grace; its lateness is the time since its send time.
- `once` sends the latest fire that is due. `skip` sends it too, unless it is missed: then all of them are dropped.
- `all` sends each, oldest first, and each is stored before the next one is sent. With a number it drops what is missed
  and is not among that number of the latest fires that are due. So fires that are late and not missed are all sent.
- A backlog is never invented. If it is not known which fires of a schedule are stored (`Held.is_known`), `all` sends
  the latest fire that is due, as `once` does.

Nothing is kept of a decision: it follows from the time and from the fire that is due, so it may be made again, here or
on another instance.

Cost: 140 bytes, about 400 with its numbers, its subject and a pattern of its own; equal terms are shared. Most of those
that are held only wait, and are rows and no objects (`engine.holding.table`). What only some policies need
(`needs_history`) takes about 200 bytes more, and a search for a fire time for each fire that is due; some more, and a
few counts, if `all` with a number drops something.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.jitter import jittered
from nats_scheduler.message.policies import Kept, Overlap, Policies
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.patterns import kind_of

NO_WAKE = -1
"""The wake of a schedule without an entry."""

NO_EXPIRY = 1 << 100
"""Later (ns) than any TTL can end."""

NEVER_EXPIRES = NO_EXPIRY + 1
"""The end of a message whose TTL is `never`: it outlives the `max_age` of its stream."""

NO_ROW = 0
"""The id of the row of a schedule that has none yet."""


class NoFire(Enum):
    """Why a schedule waits for an edit of a calendar, and not for its next fire."""

    NO_CALENDAR = "no_calendar"
    """The days of a calendar that it names are not known; its fire time is the first that may be left."""
    EXCEPTED = "excepted"
    """Its calendars leave none of its fire times that are to come."""


@dataclass(slots=True)
class DroppedRun:
    """The fires of one schedule that policies dropped since one was stored (`engine.firing.silence`)."""

    first: int
    """The fire time (ns) of the first one."""
    times: int = 0
    """The number of times that what was due was dropped."""
    fires: int = 0
    reported_at: int = 0
    """The last fire time (ns) of those that were reported, 0 if none were."""


def needs_history(policies: Policies) -> bool:
    """Return whether schedules with these policies need more than their definitions."""
    return policies.are_kept or policies.target_stream is not None


class Held(Timetable):
    """A schedule that is held: the last message on its subject, and valid.

    It is its own timetable: a second object for each of a million schedules would take 60 MB. An attribute that has its
    value here is kept for a schedule only once it has another one, as it may have for those that `needs_history`.
    """

    __slots__ = (
        "__dict__",
        "expires",
        "fire_time",
        "flight",
        "headers",
        "kind",
        "mark",
        "row",
        "sequence",
        "subject",
        "terms",
        "wake",
    )
    has_history: bool = False
    """True if its policies need more than its definition."""
    is_to_other_stream: bool = False
    """True if its target is in another stream: its fires are not read back."""
    fires_each_time: bool = True
    """True if a fire is stored soon after each of its fire times, if the owner is able; another one may wait."""
    calendars: Sequence[str] = ()
    """The names of its calendars."""
    no_fire: NoFire | None = None
    """Why it does not wait for its next fire; None if it does."""
    previous_fire: int | None = None
    """The fire time (ns) of its last fire that is known to be stored, if a policy needs that; None if none is.

    After a start these are the fires that the stream still holds: what was consumed before is not known.
    """
    previous_sequence: int = 0
    """The stream sequence of that fire, 0 if it is not known."""
    previous_stored_at: int = 0
    """The instant (ns) at which that fire was stored, by the server's clock, if it was read back; else that of its
    acknowledgement."""
    unfired_since: int | None = None
    """The fire time (ns) that an earlier version with the same pattern was to fire first, if each since then was
    replaced before it fired; None if it is the first one, or has fired."""
    dropped: int = 0
    """The number of fires that a policy dropped since then."""
    dropped_run: DroppedRun | None = None
    """Those of them that this instance dropped."""
    unreported: int | None = None
    """The first fire time (ns) since the last stored one that another owner was to drop and to report."""
    is_known: bool = True
    """True if no fire from `fire_time` on is stored, as far as the stream and checkpoints can show."""
    last_unfinished: int = 0
    """The sequence of a fire of it that was unfinished when it was asked about last, 0 if none was."""
    overlap_fault: str = ""
    """Why nothing can show whether its fire before is finished, as it was reported."""
    waited_fire: int | None = None
    """The fire time (ns) of its last fire that waited for the one before: it is not late."""
    replaced_at: int | None = None
    """The instant (ns) at which what replaced it was stored: it is held for the fires that were due by then, and that
    are still to be stored (`engine.receiving.replaced`). None if nothing replaced it."""
    looked_for: tuple[int, int] | None = None
    """A fire time, and an instant at which no fire of that or of a later time was stored elsewhere (ns)."""
    _send_time: tuple[int, int] = NO_WAKE, NO_WAKE
    """The fire time whose send time was computed last, and that: the same one is needed some ten times."""

    def __init__(
        self, subject: str, sequence: int, definition: Definition, stored_at: int, fire_time: int | None = None
    ) -> None:
        """Hold the schedule that was stored on a subject under a sequence; it waits for a fire, the first if None."""
        self.pattern, self.terms = definition
        self.stored_at = stored_at
        self.kind = kind_of(self.pattern)
        self.subject = subject
        self.sequence = sequence
        first = self.first_fire() if fire_time is None else fire_time
        assert first is not None, "a schedule that never fires is rejected before"
        self.fire_time = first
        """The time (ns) that its next fire stands for, or that of its last one if it is done."""
        self.expires = NO_EXPIRY
        """The instant (ns) at which its TTL runs out: it has no fires from that time on."""
        self.flight: Flight | None = None
        """The work in progress, None while it only waits."""
        self.mark = 0
        """What is known of its body (`message.stored.body_mark`), if it fires once; 0 for nothing."""
        self.wake: int = NO_WAKE
        """The instant of its valid entry."""
        self.row = NO_ROW
        """The id of its row."""
        self.headers = b""
        """The headers that its row has; empty if they are to be written from its definition."""
        policies = self.terms.policies
        if needs_history(policies):
            self.has_history = True
            self.jitters = policies.jitter is not None
            self.fires_each_time = policies.overlap is Overlap.ALLOW
            self.is_to_other_stream = policies.target_stream is not None
            self.calendars = [calendar.name for calendar in policies.bounds.calendars]

    @property
    def send_time(self) -> int:
        """The instant (ns) at which its next fire is published: it is due from then on."""
        return self.send_time_of(self.fire_time)

    def send_time_of(self, fire_time: int) -> int:
        """Return when the fire of a fire time is published: never before it."""
        if not self.jitters:
            return fire_time
        known = self._send_time  # a view in another thread may ask for that of another fire time meanwhile
        if fire_time != known[0]:
            jitter = self.terms.policies.jitter or 0
            known = self._send_time = fire_time, jittered(self, self.subject, self.sequence, jitter, fire_time)
        return known[1]

    @property
    def confirmed_from(self) -> int:
        """A fire that is read back advances it if its fire time (ns) is this one or later."""
        return self.fire_time

    @property
    def only_expires(self) -> bool:
        """True if its TTL runs out before its next fire is sent."""
        return self.no_fire is not None or self.expires <= self.send_time

    # -- calendars -----------------------------------------------------------------------------------------------

    @property
    def may_fire(self) -> bool:
        """True if its calendars, if it names any, leave its next fire."""
        return self.no_fire is None and (not self.calendars or self.is_left(self.fire_time))

    @property
    def bounded(self) -> Bounded:
        """The pattern of a schedule that names a calendar."""
        assert isinstance(self.pattern, Bounded), "a pattern that names a calendar is bounded"
        return self.pattern

    @property
    def over_at(self) -> int:
        """The instant (ns) at which the last fire time has passed that an edit of a calendar may leave.

        `NO_EXPIRY` if that is not known, or never, or if the schedule waits for its next fire.
        """
        if self.no_fire is not NoFire.EXCEPTED:
            return NO_EXPIRY
        end = self.bounded.bounds.end
        return self.send_time if not self.repeats else NO_EXPIRY if end is None else end

    # -- which of the fires that are due is sent, and which are dropped --------------------------------------------

    def due_fire(self, following: int | None, now: int) -> int | None:
        """Return the fire time of the due fire that is sent next; None if all that are due are dropped.

        The schedule is due at `now` (ns); `following` is the fire time after its next one, None if there is none. What
        comes due once its TTL has run out does not count.
        """
        first, until = self.fire_time, min(now, self.expires - 1)
        if not self.has_history:
            if following is None or following > until or self.send_time_of(following) > until:
                return first
            return self.latest_to_send(now)
        policies = self.terms.policies  # `following` does not count: an edit of a calendar may have changed it
        kept, most = policies.missed
        if kept is Kept.ALL and self.is_known:
            missed_until = now - policies.grace - 1
            if most is None or self.send_time > missed_until:
                return first
            latest = self.latest_to_send(now)
            following = self.next_fire(self.latest_to_send(missed_until))
            first_of_most = self.latest_but(most, first - 1, latest) or first
            return first_of_most if following is None else min(first_of_most, following)
        latest = self.latest_to_send(now)
        if kept is Kept.SKIP and now - self.send_time_of(latest) > policies.grace:
            return None
        return latest

    def latest_to_send(self, until: int) -> int:
        """Return the latest fire time that is due by `until` (ns), the next one if no later one is.

        What comes due once its TTL has run out does not count.
        """
        first, until = self.fire_time, min(until, self.expires - 1)
        latest = self.latest_due(first, until) if self.repeats else None
        if latest is not None and self.replaced_at is not None and latest > self.replaced_at:
            latest = self.latest_passed(first, self.replaced_at)
        return first if latest is None else latest

    def is_settled_at(self, following: int | None) -> bool:
        """Return whether it was replaced, and nothing is owed of it from a fire time (ns) on; None if it has none."""
        return self.replaced_at is not None and (following is None or following > self.replaced_at)

    def dropped_between(self, first: int, made_up: int) -> int:
        """Return how many fires are said to be dropped from `first` (ns), which is one, to before what is made up.

        Without a policy that needs them they are not counted.
        """
        if not self.has_history:
            return 0
        return self.count(first - 1, made_up - 1) if self.repeats else 1

    def dropped_before(self, fire_time: int, missed_since: int | None) -> int:
        """Return how many fires were dropped between the last one that is stored and that of a fire time.

        `missed_since` is the first (ns) that the fire of `fire_time` stands for, None if there is none.
        If no stored fire is known, only those count that were dropped here.
        """
        if self.previous_fire is not None:
            return self.count(self.previous_fire, fire_time - 1)
        return self.dropped + (0 if missed_since is None else self.dropped_between(missed_since, fire_time))

    # -- what is known of its last fire --------------------------------------------------------------------------

    def is_news(self, fire_time: int) -> bool:
        """Return whether a stored fire may change anything: for most an older one than the next does not."""
        return self.has_history or fire_time >= self.confirmed_from

    def fire_is_stored(self, fire_time: int, sequence: int, stored_at: int) -> None:
        """Note that the fire of a fire time is stored, if a policy needs that; `sequence` is 0 if it is not known.

        Each fire may be noted several times: when it is acknowledged, and when it is read back. An older one than the
        last changes nothing.
        """
        if not self.has_history:
            return
        before = self.previous_fire
        if before is not None and fire_time < before:
            return
        if before is None or fire_time > before:
            self.previous_fire, self.dropped, self.unreported, self.dropped_run = fire_time, 0, None, None
        self.previous_sequence, self.previous_stored_at = sequence, stored_at
        self.is_known = True

    def was_looked_for(self, fire_time: int, since: int) -> bool:
        """Return whether the fire of a fire time was not stored at an instant after `since` (ns), nor sent later."""
        return self.looked_for is not None and fire_time <= self.looked_for[0] and self.looked_for[1] >= since


def flight_of(held: Held) -> Flight:
    """Return what is in progress for a schedule that does not only wait."""
    assert held.flight is not None, "what is in progress has a flight"
    return held.flight
