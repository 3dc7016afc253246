"""A change of a schedule as a JSON object: one vocabulary for the commands and for the micro service."""

from typing_extensions import TypedDict  # not that of typing: pydantic refuses it before Python 3.12

from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.schedule.rfc3339 import format_rfc3339


class ChangeDocument(TypedDict):
    """What was done to a schedule, or would be done by a dry run."""

    change: Kind
    stream: str
    subject: str
    """Of the schedule."""
    sequence_before: int | None
    """Of the schedule message before; null if there was none."""
    sequence: int | None
    """Of the schedule message now; null if there is none."""
    changed: str | None
    """When it was done, by the server's clock; null if nothing was done."""
    author: str
    """As the requester names it: nothing vouches for it."""
    reason: str
    fires: list[str]
    """The fire times of the fires that were stored."""
    notes: list[str]
    """What the requester should know of it, one sentence each."""


def change_document(change: Change, *, dry_run: bool = False) -> ChangeDocument:
    """Describe a change that was made, or would be."""
    return {
        "change": change.kind,
        "stream": change.stream,
        "subject": change.subject,
        "sequence_before": change.before,
        "sequence": change.after,
        "changed": None if dry_run or change.kind is Kind.UNCHANGED else format_rfc3339(change.at),
        "author": change.author.name,
        "reason": change.author.reason,
        "fires": [format_rfc3339(fire) for fire in change.fires],
        "notes": list(change.notes),
    }
