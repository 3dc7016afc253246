"""What is wrong with a file of schedules, and where.

Rule: a place is the line of a file, or the keys that lead there in a document that has no lines, such as a request.
"""

from __future__ import annotations

from typing import NamedTuple

from nats_scheduler.files.document import Document, Path


class Place(NamedTuple):
    """Where something is in a file."""

    file: str
    """Empty if it is in no file, such as in a request."""
    line: int | None
    path: Path = ()
    """Keys and positions that lead to it."""

    def __str__(self) -> str:
        if not self.file:
            return ".".join(map(str, self.path))
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Problem(NamedTuple):
    """One thing that is wrong with a file."""

    place: Place
    stream: str
    """Empty if it is not known, and so is the subject."""
    subject: str
    text: str
    code: int | None = None
    """The server's code, if it has one for this."""

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.place), self.subject, self.text)))


def place_in(file: str, document: Document, path: Path) -> Place:
    """Return where a value is, or the nearest one around it."""
    return Place(file, document.line(path), (*document.at, *path))
