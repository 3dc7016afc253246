"""A change of a schedule, by whom, when and why: the result of an operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from nats_scheduler.control.changed_parts import NO_PARTS, ChangedParts

if TYPE_CHECKING:
    from nats_scheduler.control.current import Current
    from nats_scheduler.message.findings import Finding

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
    parts: ChangedParts = NO_PARTS
    """What it makes of the schedule that was there before."""
    findings: tuple[Finding, ...] = ()
    """What is found about the schedule that was stored."""
    sequences: tuple[int, ...] = field(default=(), compare=False)
    """The sequences of these fires, in the stream of their target."""
    schedule: Current | None = field(default=None, compare=False, repr=False)
    """The schedule after the change, with the sequence 0 if it is only a dry run; None if there is none."""
