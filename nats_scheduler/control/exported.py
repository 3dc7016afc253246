"""What files say of the schedules of a stream: each as it would be declared, or why it can not be.

What is declared here is stored again byte for byte where it is applied (`control.declared`, `control.plan`). What
cannot be applied is left out and named: schedules that are rejected, and subjects that are not UTF-8. All that match
are in memory.
"""

from typing import NamedTuple

from nats_scheduler.control.current import Current
from nats_scheduler.control.declared import Declared, declare, is_text
from nats_scheduler.control.store import ScheduleStore, stored_schedules
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.paused import paused_block

NOT_TEXT = "its subject is not UTF-8, or has control characters"


class LeftOut(NamedTuple):
    """A schedule that no file can declare."""

    subject: str
    reason: str
    """Why, as a sentence without its subject."""


async def exported(
    store: ScheduleStore, stream: str, subjects: str, owner: str | None
) -> tuple[Served, list[Declared], list[LeftOut]]:
    """Return how a stream is served, its schedules on subjects that match, and those that no file can declare.

    With an owner, only those with this label, which is left out.
    """
    served = await store.served(stream)
    found: list[Declared] = []
    left_out: list[LeftOut] = []
    async for one in stored_schedules(store, served, subjects):
        if owner is not None and one.owner != owner:
            continue
        if (reason := _reason_to_leave_out(one)) is not None:
            left_out.append(LeftOut(one.subject, reason))
        else:
            found.append(_declared(one, served, owner))
    return served, found, left_out


def is_subject_of_files(subject: str) -> bool:
    """Return whether a file can name a subject."""
    return is_text(subject)


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
