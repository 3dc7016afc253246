"""Text that the schedule language rejects, as a value.

One rule: bad input is returned, never raised, and always contains the text and what was expected.
Inside a parser `FaultError` carries the reason to the function that returns it with the text. A function that raises it
to its callers says so.
Callers turn it into a rejection with the server's code; only the edge of the package raises exceptions.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_SHOWN_CHARS = 80
"""Characters of a text that an error message shows; the rest is cut, since a header may hold 64 KB."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """A text that is invalid, and why: `str()` returns `'61 …': minute 61 is above 59`."""

    text: str
    reason: str

    def __str__(self) -> str:
        cut = len(self.text) > MAX_SHOWN_CHARS
        shown = self.text[:MAX_SHOWN_CHARS] + "…" if cut else self.text
        return f"{shown!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class InvalidPattern(Invalid):
    """A pattern that is not in the grammar, or that can never fire (server code 10189)."""


@dataclass(frozen=True, slots=True)
class InvalidTimeZone(Invalid):
    """A time zone that is empty or cannot be loaded (server code 10223)."""


class FaultError(Exception):
    """The reason why a text is rejected; it follows the text in a sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
