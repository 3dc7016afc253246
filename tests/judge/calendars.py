"""What the calendar of a schedule left at which time, as its editors know it.

Its rule: a calendar leaves every due instant, or none, or is gone; edits reach an instance that is ready soon.
"""

from collections.abc import Callable

from tests.judge.history import NEVER, SECOND, CalendarSeen, Leaves, Terms
from tests.judge.versions import Version

REACHES_WITHIN = SECOND
"""How long (ns) after an edit an instance that is ready acts by it at the latest."""


class CalendarRecord:
    """The edits of all calendars."""

    def __init__(self, edits: list[CalendarSeen]) -> None:
        self._edits = edits

    def within(self, name: str, begin: int, end: int) -> set[Leaves]:
        """Return what a calendar left at some time from `begin` to `end`, as far as an instance may have seen it."""
        return {leaves for b, e, leaves in self._stretches(name) if b <= end and e + REACHES_WITHIN >= begin}

    def leaves_all(self, name: str, begin: int, end: int) -> bool:
        """Return whether there is no calendar, or it left everything all the time, as any instance may have seen it."""
        return not name or self.within(name, begin, end) == {Leaves.ALL}

    def owes(self, name: str, begin: int, end: int) -> bool:
        """Return whether a fire that is due from `begin` until `end` may be owed: its day was never excepted."""
        return not name or Leaves.NOTHING not in self.within(name, begin, end)

    def ready(self, name: str, longest: Callable[[int, int], int], begin: int, end: int) -> int:
        """Return how long (ns) an instance was ready while the calendar left the fire, by `longest` for a stretch."""
        if not name:
            return longest(begin, end)
        left = [(b + REACHES_WITHIN, e) for b, e, leaves in self._stretches(name) if leaves is Leaves.ALL]
        return max((longest(max(begin, b), min(end, e)) for b, e in left), default=0)

    def forbids(self, name: str, stored_at: int, terms: Terms) -> bool:
        """Return whether the fire that was stored then was begun while its calendar did not leave it, or was gone.

        What was sent before an edit, and its outcome is unknown, is sent again until that is known.
        """
        in_flight = terms.window + terms.resumes_within
        return bool(name) and Leaves.ALL not in self.within(name, stored_at - in_flight, stored_at)

    def _stretches(self, name: str) -> list[tuple[int, int, Leaves]]:
        edits = [one for one in self._edits if one.name == name]
        ends = [one.since for one in edits[1:]] + [NEVER]
        return [(one.since, end, one.leaves) for one, end in zip(edits, ends, strict=True)]


def may_except_only(record: CalendarRecord, version: Version, end: int) -> bool:
    """Return whether the only fire of a version may be excepted by its calendar."""
    calendar = version.pattern.policies.calendar
    if version.pattern.repeats or not calendar:
        return False
    (due,) = version.dues(end)
    return not record.owes(calendar, version.sent_at(due), end)
