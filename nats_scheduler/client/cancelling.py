"""Publish a message that ends a schedule: the atomic cancel of ADR-51.

The message carries `Nats-Scheduler` and `Nats-Schedule-Next: purge`, in the spelling of the schedule. From 2.11 on it
also carries the guard, so that it is stored only if the schedule is still the version that was read.

Limit: a server of 2.10 ignores the guard. There, and wherever a sidecar fires, the schedule ends when the sidecar has
read the message (`docs/concepts/promises.md`).
"""

from dataclasses import dataclass

from nats_scheduler.client.schedule_block import Headers, headers_of
from nats_scheduler.control.changes import Author, Change, Kind
from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.control.standing import opened
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.storing import check_subject, recorded
from nats_scheduler.message.effective_headers import with_effective_headers
from nats_scheduler.message.generated import PURGE, guard_headers
from nats_scheduler.message.headers import with_headers
from nats_scheduler.message.schedule_form import ScheduleForm


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A message that was stored, and the schedule that ends with it."""

    stream: str
    schedule: str
    """Subject of the schedule."""
    schedule_sequence: int
    subject: str
    sequence: int
    """Stream sequence of the message."""
    is_immediate: bool
    """True if the server purged the schedule in the same step; else a sidecar ends it when it reads the message."""


async def publish_and_cancel(
    store: ScheduleStore,
    stream: str,
    schedule: str,
    subject: str,
    body: bytes,
    headers: Headers,
    *,
    expected: int | None,
    author: Author,
) -> Cancelled:
    """Store a message and end a schedule with it; raises as `Schedules.publish_and_cancel` does."""
    served, found = await opened(store, stream, schedule, expected)
    if found.is_paused:
        raise NotPossibleError(f"{schedule} is paused, and no server ends a paused schedule by a message: cancel it")
    if subject == schedule:
        raise NotPossibleError(f"{subject} is the subject of the schedule itself: publish to another one")
    check_subject(served, subject)
    name = schedule.encode("utf-8", "surrogateescape")
    guard = guard_headers(schedule, found.sequence) if served.server.has_guard else ()
    ending = [(found.dialect.scheduler, name), (found.dialect.next, PURGE), *guard]
    own = ScheduleForm(headers=headers_of(headers)).items(found.dialect)
    block = with_effective_headers(with_headers(None, own), ending)
    if block is None:
        raise NotPossibleError("a value of the headers contains the name of another one, and hides it from the server")
    published = await store.publish(stream, subject, block, body, expected=None)
    await recorded(store, Change(Kind.REMOVED, stream, schedule, found.sequence, None, author))
    return Cancelled(
        stream, schedule, found.sequence, subject, published.sequence, is_immediate=found.is_fired_by_server
    )
