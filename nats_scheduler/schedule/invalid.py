"""Text that the schedule language refuses, as a value.

One rule: bad input is returned, never raised, and always carries the text and what was expected.
Callers turn it into a rejection with the server's code; exceptions are left to the edge of the package.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_SHOWN = 80
"""Characters of the text that a message shows; the rest is cut, since a header may hold 64 KB."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """A text that was refused, and why: `str()` gives `'61 …': minute 61 is above 59`."""

    text: str
    reason: str

    def __str__(self) -> str:
        cut = len(self.text) > LONGEST_SHOWN
        shown = self.text[:LONGEST_SHOWN] + "…" if cut else self.text
        return f"{shown!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class InvalidPattern(Invalid):
    """A pattern that is not in the grammar, or that can never fire (server code 10189)."""


@dataclass(frozen=True, slots=True)
class InvalidTimeZone(Invalid):
    """A time zone that is empty or cannot be loaded (server code 10223)."""
