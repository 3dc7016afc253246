"""One document of a file of schedules, or of a request: plain values, the line of each, and what is wrong with them.

The rules:

- A place is the line of a file, or the keys that lead there in a document that has no lines, such as a request.
- No library is imported here: a sidecar receives values, and only what reads texts needs one (`files.text`).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Path = tuple[str | int, ...]
"""Keys and positions from a document to a value in it."""

MAX_DEPTH = 32
"""So deep values may be nested."""


class TextError(Exception):
    """A text is neither YAML nor JSON, or has what no file of schedules may have."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        """From 1; None if it is not known."""


@dataclass(frozen=True, slots=True)
class FileDocument:
    """One document of a file: its value, and where its parts are."""

    value: Any
    node: Any = field(default=None, repr=False)
    """The same as a node of PyYAML, for the lines; None if it is of no text."""
    _values: dict[int, dict[str | int, Any]] = field(default_factory=dict, repr=False, compare=False)
    """The values of each map that was asked for, by the map's id: a map may have thousands of keys, all wrong."""

    def line(self, path: Path) -> int | None:
        """Return the line (from 1) of a value, of the nearest one around it if there is none, None if not known."""
        node = self.node
        for part in path:
            below = self._below(node, part)
            if below is None:
                break
            node = below
        return None if node is None else int(node.start_mark.line) + 1

    def _below(self, node: Any, part: str | int) -> Any:
        if node is None or node.id == "scalar":
            return None
        if node.id != "mapping":
            return node.value[part] if isinstance(part, int) and part < len(node.value) else None
        if id(node) not in self._values:
            self._values[id(node)] = {key.value: value for key, value in node.value if isinstance(key.value, str)}
        return self._values[id(node)].get(part)


class FilePlace(NamedTuple):
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

    place: FilePlace
    stream: str
    """Empty if it is not known, and so is the subject."""
    subject: str
    text: str
    code: int | None = None
    """The server's code, if it has one for this."""

    def __str__(self) -> str:
        return ": ".join(filter(None, (str(self.place), self.subject, self.text)))


def place_in(file: str, document: FileDocument, path: Path) -> FilePlace:
    """Return where a value is, or the nearest one around it."""
    return FilePlace(file, document.line(path), path)
