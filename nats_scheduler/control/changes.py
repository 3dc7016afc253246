"""A change of a schedule, by whom, when and why: the result of an operation."""

from dataclasses import dataclass
from enum import StrEnum

MAX_AUTHOR_CHARS = 256
"""Characters of an author's name, and of a reason, that are kept."""


class Kind(StrEnum):
    """The kind of a change."""

    ADDED = "added"
    UNCHANGED = "unchanged"
    """It was there already, in the same words: nothing was stored."""
    EDITED = "edited"
    PAUSED = "paused"
    RESUMED = "resumed"
    REMOVED = "removed"
    FIRED = "fired"
    """One fire was stored beside the schedule."""
    BACKFILLED = "backfilled"
    """Past fires were stored."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes schedules, and why."""

    name: str = ""
    """As the program or person gives it, up to `MAX_AUTHOR_CHARS`; the server vouches for none of it."""
    reason: str = ""
    """Up to `MAX_AUTHOR_CHARS`."""


NOBODY = Author()


@dataclass(frozen=True, slots=True)
class Change:
    """One change that was made, or would be made by a dry run."""

    kind: Kind
    stream: str
    subject: str
    """Subject of the schedule."""
    before: int | None
    """Sequence of the schedule message before; None if there was none."""
    after: int | None
    """Sequence of the schedule message now; None if there is none. The same as `before` if nothing was stored there."""
    author: Author = NOBODY
    at: int = 0
    """The instant (ns) at which it was made, by the server's clock."""
    fires: tuple[int, ...] = ()
    """The fire times (ns) of the fires that were stored."""
    notes: tuple[str, ...] = ()
    """Notes for the operator, such as that a phase is lost; one sentence each."""
