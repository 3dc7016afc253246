"""A history, read once for all checkers: its versions, which due each fire stands for, and what excuses a missing one.

Its rule: fires are matched to due targets one to one, so that what is missing and what is too much are both found.
"""

from tests.judge.calendars import CalendarRecord
from tests.judge.forgotten import Losses
from tests.judge.health import Readiness
from tests.judge.history import SECOND, FireKey, FireSeen, History
from tests.judge.identities import Identities
from tests.judge.versions import Version, matched, versions_of


class Case:
    """A history, read once for all checkers."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.terms = history.terms
        self.subjects = {operation.schedule for operation in history.operations}
        """The subjects on which schedules were stored."""
        self.versions = versions_of(history)
        self.readiness = Readiness(history)
        self.identities = Identities(history)
        self.calendars = CalendarRecord(history)
        self.losses = Losses(history)
        self.targets = _matched_to_dues(history, self.versions)
        """For each fire that a due asks for, by its stream sequence: the version's sequence and the due."""
        self.stored: dict[tuple[int, int], FireSeen] = {
            self.targets[fire.sequence]: fire for fire in history.fires if fire.sequence in self.targets
        }

    def ready_for(self, version: Version, due: int, begin: int, end: int) -> int:
        """Return how long (ns) an instance was ready for a fire, at a time; while it waits for its identity none is."""
        longest = 0
        for waits_from, free in self.identities.waits(FireKey(version.sequence, due)):
            longest = max(longest, self.readiness.longest(begin, min(end, waits_from)))
            begin = max(begin, free)
        return max(longest, self.readiness.longest(begin, end))

    def ahead(self, fire: FireSeen, earliest: int) -> int:
        """Return by how much (ns) a fire may be early that is to be sent at `earliest`."""
        known = [fault for fault in self.history.faults if fault.ahead]
        if not known:
            return self.terms.clock_ahead
        return max((f.ahead for f in known if f.begin <= fire.stored_at and earliest <= f.end), default=0)

    def at(self, instant: int) -> str:
        """Write an instant as seconds since the beginning."""
        return f"{(instant - self.history.begin) / SECOND:.3f} s"


def _matched_to_dues(history: History, versions: dict[int, Version]) -> dict[int, tuple[int, int]]:
    """Match fires to the dues of versions, one to one; one without an identity stands for none."""
    horizon = history.end + history.terms.clock_ahead
    known = {version.sequence: set(version.dues(horizon)) for version in versions.values()}
    candidates: dict[int, list[tuple[int, int]]] = {}
    for fire in history.fires:
        sequence, due = fire.schedule_sequence or 0, fire.fire_time or 0
        candidates[fire.sequence] = [(sequence, due)] if due in known.get(sequence, ()) else []
    return matched(candidates)
