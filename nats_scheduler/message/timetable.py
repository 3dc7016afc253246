"""The fire times of one schedule: the only code outside `schedule/` that asks a pattern for fire times.

The rule: code that needs a fire time asks the timetable of the schedule, and never its pattern.
A pattern answers for all schedules that have it, and so every question to it needs the stored time beside it. A
timetable belongs to one schedule. What else may decide when that schedule fires belongs to its timetable too, as its
jitter does (`message.jitter`), so that no caller changes with it.

Three times are kept apart:

- The *fire time* is the time that a fire stands for. It is part of its identity.
- The *send time* is when that fire is published: its fire time, or up to the jitter of the schedule later.
  The send times of a schedule are in the order of its fire times.
- The *read-back threshold* of a schedule that is held (`engine.holding.held`) is the fire time from which on a
  generated message that is read back advances it.

Instants are nanoseconds since the Unix epoch.
Cost: a reference to the pattern and one to the stored time; a held schedule is a timetable itself, since a million more
objects would take 60 MB. A question costs a call more than the pattern's answer.
Limit: the native scheduler of a server has rules of its own (`schedule.native`).
"""

from collections.abc import Iterator
from itertools import islice

from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.patterns import Pattern


class Timetable:
    """The fire times of one schedule."""

    __slots__ = ("pattern", "stored_at")
    jitters: bool = False
    """True if its fires are sent later than at their fire times."""

    def __init__(self, pattern: Pattern, stored_at: int) -> None:
        """Answer for a schedule with this pattern that was stored at `stored_at`."""
        self.pattern = pattern
        self.stored_at = stored_at

    @property
    def repeats(self) -> bool:
        """True if the schedule goes on after its first fire, and does not end with it."""
        return self.pattern.repeats

    @property
    def ends_by_itself(self) -> bool:
        """True if its publisher said that it has a last fire: it is removed after that, as an `@at` is."""
        return self.pattern.ends_by_itself

    def first_fire(self) -> int | None:
        """Return the first fire time, which may be past; None if there is none."""
        return self.pattern.first_fire(self.stored_at)

    def next_fire(self, after: int) -> int | None:
        """Return the first fire time strictly after an instant; None if the schedule has ended by then.

        `after` is not before the stored time.
        """
        return self.pattern.next_fire(after, self.stored_at)

    def next_to_send(self, after: int) -> int | None:
        """Return the first fire time whose send time is after an instant; None if the schedule has ended by then."""
        if self.jitters and after > self.stored_at:
            latest = self.pattern.latest_fire(self.stored_at, after, self.stored_at)
            if latest is not None and self.send_time_of(latest) > after:
                return latest
        return self.next_fire(after)

    def latest_passed(self, after: int, until: int) -> int | None:
        """Return the last fire time in (after, until], whenever it is sent; None if there is none."""
        return self.pattern.latest_fire(after, until, self.stored_at)

    def latest_due(self, after: int, until: int) -> int | None:
        """Return the latest fire time after `after` whose send time is not after `until`; None if there is none.

        `after` is not before the stored time.
        """
        latest = self.pattern.latest_fire(after, until, self.stored_at)
        while latest is not None and self.send_time_of(latest) > until:
            latest = self.pattern.latest_fire(after, latest - 1, self.stored_at)
        return latest

    def count(self, after: int, until: int) -> int:
        """Return how many fire times there are in (after, until]."""
        return self.pattern.count(after, until, self.stored_at)

    def latest_but(self, number: int, after: int, until: int) -> int | None:
        """Return the first of the last `number` fire times (1 or more) in (after, until]; None if there are no more."""
        return self.pattern.latest_but(number, after, until, self.stored_at)

    def is_fire(self, instant: int) -> bool:
        """Return whether an instant is one of the fire times, or may have been before a calendar was edited."""
        return self.pattern.possible.is_fire(instant, self.stored_at)

    def is_left(self, instant: int) -> bool:
        """Return whether an instant is one of the fire times, by the calendars as they are known."""
        return self.pattern.is_fire(instant, self.stored_at)

    def next_possible(self, after: int) -> int | None:
        """Return the first fire time strictly after an instant that an edit of a calendar may leave; None if none.

        `after` is not before the stored time.
        """
        return self.pattern.possible.next_fire(after, self.stored_at)

    def each(self, after: int | None = None) -> Iterator[int]:
        """Yield the fire times, from the first one on, or from the first one after an instant (ns)."""
        fire = self.first_fire()
        if fire is not None and after is not None and fire <= after:
            fire = self.next_fire(max(after, self.stored_at))
        while fire is not None:
            yield fire
            fire = self.next_fire(max(fire, self.stored_at))

    def fires(self, most: int) -> list[int]:
        """Return the first `most` fire times; fewer if the schedule ends before."""
        return list(islice(self.each(), most))

    def excepted_fires(self, after: int, until: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last fire time of each row of days between two instants that `X-Except` leaves out.

        Cost: as many searches as there are fire times in (after, until) that are left, and two for each row.
        """
        if isinstance(self.pattern, Bounded):
            yield from self.pattern.excepted_fires(after, until, self.stored_at)

    def send_time_of(self, fire_time: int) -> int:
        """Return when the fire of a fire time is published: never before it."""
        return fire_time

    def delayed_to(self, fire_time: int) -> int | None:
        """Return when the fire of a fire time is published if a jitter delays it, else None."""
        return self.send_time_of(fire_time) if self.jitters else None


def first_fire_of(pattern: Pattern, stored_at: int) -> int | None:
    """Return the first fire time (ns) of a schedule with this pattern, stored at `stored_at` (ns); None if it has none.

    No timetable is made for that, because it is asked for each of a million messages at start.
    """
    return pattern.first_fire(stored_at)


def never_fires(pattern: Pattern, stored_at: int) -> bool:
    """Return whether a schedule with this pattern has no fire at all if it is stored at `stored_at`."""
    return pattern.repeats and pattern.first_fire(stored_at) is None
