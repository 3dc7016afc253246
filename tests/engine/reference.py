"""The fires that must have been stored, and when, in a life that is simple enough to compute it exactly.

Its rule: nothing of the package is used, so that a mistake there is not repeated here.
Everything but the fires happens between full seconds, so that the order of events is never ambiguous.
Ambiguous histories are for the checkers of `tests.judge`.
"""

from dataclasses import dataclass

from tests.judge.patterns import Pattern


@dataclass
class Version:
    """One version of a schedule, from its storing to its end."""

    subject: str
    sequence: int
    stored_at: int
    pattern: Pattern
    ended_at: int | None = None
    was_cancelled: bool = False
    """True if it was ended by a message that the sidecar has to read first, and not by the server."""

    def dues(self, until: int) -> list[int]:
        """List the instants at which it is due, up to `until` (ns); all of them for `at`."""
        return self.pattern.dues(self.stored_at, until)


Stored = tuple[str, int, int, int]
"""Schedule, its sequence, fire time (ns), and when the fire must have been stored (ns)."""


def expected(version: Version, served: list[tuple[int, int]]) -> list[Stored]:
    """List the fires of a version that was served in the stretches `served` (from, to; ns)."""
    found: list[Stored] = []
    last = -(1 << 62)
    for begin, end in served:
        begin, end = max(begin, version.stored_at), min(end, version.ended_at or end)
        if begin >= end or (found and not version.pattern.repeats):
            continue
        dues = version.dues(end)
        overdue = [due for due in dues if last < due <= begin]
        coming = [due for due in dues if begin < due < end]
        fires = [(due, begin) for due in overdue[-1:]] + [(due, due) for due in coming]
        found += [(version.subject, version.sequence, due, at) for due, at in fires]
        last = fires[-1][0] if fires else last
    return found
