"""What files say of the schedules of a stream: each as it would be declared, or why it can not be.

Rule: what is declared here is stored again byte for byte where it is applied (`control.declared`, `control.plan`).
What cannot be applied is left out and named: schedules that are rejected, and subjects that are not UTF-8.
Cost: the schedules that match are read once. Limit: all of them are in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.declared import Declared, as_text, declare
from nats_scheduler.control.port import ScheduleStore, Served
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.stored import StoredMessage

NOT_TEXT = "its subject is not UTF-8, or has control characters"


class LeftOut(NamedTuple):
    """A schedule that no file can declare."""

    subject: str
    reason: str
    """Why, as a sentence without its subject."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The schedules of a stream, for a file."""

    served: Served
    declared: tuple[Declared, ...]
    left_out: tuple[LeftOut, ...]


async def exported(store: ScheduleStore, stream: str, subjects: str = ">", *, owner: str | None = None) -> Exported:
    """Return the schedules on subjects that match; with an owner, only those with this label, which is left out."""
    served = await store.served(stream)
    found: list[Declared] = []
    left_out: list[LeftOut] = []
    async for message in store.schedules(stream, subjects):
        one = exportable(message, served, owner)
        if isinstance(one, LeftOut):
            left_out.append(one)
        elif one is not None:
            found.append(one)
    return Exported(served, tuple(found), tuple(left_out))


def exportable(message: StoredMessage, served: Served, owner: str | None) -> Declared | LeftOut | None:
    """Return what a file says of the last message on a subject; None if it is no schedule, or not this owner's."""
    current = read_current(message, served)
    if current is None or (owner is not None and current.owner != owner):
        return None
    if (reason := _reason_to_leave_out(current)) is not None:
        return LeftOut(current.subject, reason)
    return _declared(current, served, owner)


def is_subject_of_files(subject: str) -> bool:
    """Return whether a file can name a subject."""
    return as_text(subject.encode("utf-8", "surrogateescape")) is not None


def _reason_to_leave_out(current: Current) -> str | None:
    if current.rejection is not None:
        return str(current.rejection)
    if not is_subject_of_files(current.subject):
        return NOT_TEXT
    if current.is_paused and paused_block(current.active_block, current.dialect) != current.message.block:
        return "it is paused, and has the headers of an active schedule too"
    return None


def _declared(current: Current, served: Served, owner: str | None) -> Declared:
    is_fired_by_server = served.is_fired_by_server(current.dialect)
    content = declare(current.active_block, current.dialect, owner=owner, is_fired_by_server=is_fired_by_server)
    return Declared(current.subject, content, current.message.body or b"", True if current.is_paused else None)
