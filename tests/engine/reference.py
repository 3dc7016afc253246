"""What must have fired, found naively: every second of a run is looked at, for every version of every schedule.

Its rule: nothing of the package is used, so that a mistake there is not repeated here.
Only patterns that fire on whole seconds are known, and everything else happens between the seconds, so that what comes
first is never a matter of opinion.
"""

from dataclasses import dataclass

SECOND = 1_000_000_000


@dataclass
class Version:
    """One version of a schedule, from its storing to its end."""

    subject: str
    sequence: int
    stored_at: int
    kind: str
    """`at`, `every` or `cron`."""
    number: int
    """The instant of `at` in seconds; the interval of `every`; `cron` fires where the second divides by it."""
    ended_at: int | None = None
    was_cancelled: bool = False
    """It was ended by a message that the sidecar has to read first, and not by the server."""

    @property
    def pattern(self) -> str:
        """The pattern as a publisher writes it, but for `at`, which has to be formatted."""
        return f"@every {self.number}s" if self.kind == "every" else f"*/{self.number} * * * * *"

    def dues(self, until: int) -> list[int]:
        """List the seconds at which it is due, up to `until` (ns)."""
        if self.kind == "at":
            return [self.number]
        anchor = (self.stored_at + SECOND // 2) // SECOND
        if self.kind == "every":
            return list(range(anchor + self.number, until // SECOND + 1, self.number))
        return [s for s in range(self.stored_at // SECOND + 1, until // SECOND + 1) if s % 60 % self.number == 0]


Stored = tuple[str, int, int, int]
"""Schedule, its sequence, fire time (ns), and when the fire must have been stored (ns)."""


def expected(version: Version, served: list[tuple[int, int]]) -> list[Stored]:
    """List the fires of a version that was served in the stretches `served` (from, to; ns)."""
    found: list[Stored] = []
    last = -(1 << 62)
    for begin, end in served:
        begin, end = max(begin, version.stored_at), min(end, version.ended_at or end)
        if begin >= end or (version.kind == "at" and found):
            continue
        dues = [due * SECOND for due in version.dues(end)]
        overdue = [due for due in dues if last < due <= begin]
        coming = [due for due in dues if begin < due < end]
        fires = [(due, begin) for due in overdue[-1:]] + [(due, due) for due in coming]
        found += [(version.subject, version.sequence, due, at) for due, at in fires]
        last = fires[-1][0] if fires else last
    return found
