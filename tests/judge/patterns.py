"""When a schedule is due, found naively: every second is checked.

Its rule: nothing of the package is used, so that a mistake there is not repeated here.
Limit: patterns that fire on whole seconds.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

SECOND = 1_000_000_000


def written(instant: int) -> str:
    """Write an instant (ns) on a whole second as RFC 3339."""
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern that a publisher asks for."""

    kind: str
    """`at`, `every` or `cron`."""
    number: int
    """The instant of `at` in seconds; the interval of `every`; `cron` fires if the second divides by it."""

    @property
    def repeats(self) -> bool:
        """Whether it fires more than once."""
        return self.kind != "at"

    @property
    def text(self) -> str:
        """The pattern as a publisher writes it."""
        if self.kind == "at":
            return f"@at {written(self.number * SECOND)}"
        return f"@every {self.number}s" if self.kind == "every" else f"*/{self.number} * * * * *"

    def dues(self, stored_at: int, until: int) -> list[int]:
        """List the instants (ns) up to `until` at which a schedule stored at `stored_at` is due; all that `at` has."""
        if self.kind == "at":
            return [self.number * SECOND]
        last = until // SECOND
        if self.kind == "every":
            anchor = (stored_at + SECOND // 2) // SECOND
            return [second * SECOND for second in range(anchor + self.number, last + 1, self.number)]
        seconds = range(stored_at // SECOND + 1, last + 1)
        return [second * SECOND for second in seconds if second % 60 % self.number == 0]

    def following(self, due: int, stored_at: int) -> int | None:
        """Give the due instant behind another; None behind the only one."""
        if not self.repeats:
            return None
        return next(d for d in self.dues(stored_at, due + 121 * SECOND) if d > due)
