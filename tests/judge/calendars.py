"""The due instants that the calendar of a schedule left at each time, as its editors know it.

Its rule: a calendar leaves every due instant, or none, or is gone; edits reach an instance that is ready soon.
"""

from collections.abc import Callable

from tests.judge.history import NEVER, SECOND, FireSeen, History, Leaves
from tests.judge.versions import Version

REACHES_WITHIN = SECOND
"""The time (ns) after an edit within which an instance that is ready acts by it."""


class CalendarRecord:
    """The edits of all calendars."""

    def __init__(self, history: History) -> None:
        self._edits = history.calendars
        self._terms = history.terms
        self._instances = {life.instance for life in history.lives}
        faults = (fault for fault in history.faults if not fault.delays_only)
        self._faults = sorted(faults, key=lambda fault: fault.end, reverse=True)

    def within(self, name: str, begin: int, end: int) -> set[Leaves]:
        """Return what a calendar left at some time from `begin` to `end`, as far as an instance may have seen it."""
        return {leaves for b, e, leaves in self._stretches(name) if b <= end and e + REACHES_WITHIN >= begin}

    def leaves_all(self, name: str, begin: int, end: int) -> bool:
        """Return whether there is no calendar, or it left everything all the time, as any instance may have seen it."""
        return not name or self.within(name, begin, end) == {Leaves.ALL}

    def owes(self, name: str, begin: int, end: int) -> bool:
        """Return whether a fire that is due from `begin` until `end` may be owed: its day was never excepted."""
        return not name or Leaves.NOTHING not in self.within(name, begin - self._terms.clock_ahead, end)

    def excepted_from(self, name: str, begin: int) -> int:
        """Return from when (ns) on the day of a fire that is due at `begin` may have been excepted; `NEVER` if not."""
        begin -= self._terms.clock_ahead
        stretches = [(b, e) for b, e, leaves in self._stretches(name) if leaves is Leaves.NOTHING]
        return min((max(b, begin) for b, e in stretches if e + REACHES_WITHIN >= begin), default=NEVER)

    def ready(self, name: str, longest: Callable[[int, int], int], begin: int, end: int) -> int:
        """Return how long (ns) an instance was ready while the calendar left the fire, by `longest` for a stretch."""
        if not name:
            return longest(begin, end)
        left = [(b + REACHES_WITHIN, e) for b, e, leaves in self._certain_stretches(name) if leaves is Leaves.ALL]
        return max((longest(max(begin, b), min(end, e)) for b, e in left), default=0)

    def forbids(self, version: Version, fire: FireSeen) -> bool:
        """Return whether a fire was begun while its calendar did not leave it, or was gone.

        What was sent before an edit, and its outcome is unknown, is sent again until that is known.
        """
        name = version.pattern.policies.calendar
        return bool(name) and Leaves.ALL not in self.within(name, self._acts_by(fire.stored_at), fire.stored_at)

    def _acts_by(self, stored_at: int) -> int:
        """Return the earliest time (ns) whose days an instance may have acted by that had a fire stored.

        In trouble it receives no edits, and once it is over, what is overdue may be sent before they are read.
        """
        in_flight = self._terms.window + self._terms.resumes_within
        earliest = stored_at - in_flight
        for instance in self._instances:
            begin = stored_at - in_flight
            for fault in self._faults:
                concerns = fault.instance in (None, instance) and fault.begin <= stored_at
                if concerns and fault.end >= begin:
                    begin = min(begin, fault.begin - in_flight)
            earliest = min(earliest, begin)
        return earliest

    def _stretches(self, name: str) -> list[tuple[int, int, Leaves]]:
        """List what a calendar left from when until when, at most: while an edit is on its way, both may be so."""
        edits = [one for one in self._edits if one.name == name]
        ends = [*(max(one.certain_from, one.since) for one in edits[1:]), NEVER]
        return [(one.since, end, one.leaves) for one, end in zip(edits, ends, strict=False)]

    def _certain_stretches(self, name: str) -> list[tuple[int, int, Leaves]]:
        """List what a calendar certainly left from when until when."""
        edits = [one for one in self._edits if one.name == name]
        ends = [*(one.since for one in edits[1:]), NEVER]
        return [(max(one.certain_from, one.since), end, one.leaves) for one, end in zip(edits, ends, strict=False)]


def may_except_last(record: CalendarRecord, version: Version, history: History) -> bool:
    """Return whether a version may be gone because its calendar excepts its last fire, and no edit can leave another.

    An edit may leave more fires of one with a limit, until its end.
    """
    policies, end = version.pattern.policies, history.end + history.terms.clock_ahead
    if not policies.calendar or (version.pattern.repeats and (policies.end is None or policies.end * SECOND > end)):
        return False
    dues = version.dues(end)
    is_last = bool(dues) and version.pattern.following(dues[-1], version.stored_at) is None
    return is_last and not record.owes(policies.calendar, version.sent_at(dues[-1]), history.end)
