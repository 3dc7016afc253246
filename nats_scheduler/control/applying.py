"""Carry out one step of a plan (`control.plan`): a compare-and-set on what the plan has read.

The rule: a step that finds another message than its plan has read changes nothing, and is a `ConflictError`; if that
message says what the step would store, it is done already. So many may apply the same files at the same time, and one
that was killed is finished by another.
Cost: one request to add or replace, some more to pause, resume or remove; and one to publish the advisory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from nats_scheduler.control.changes import NOBODY, Author, Change, Kind
from nats_scheduler.control.edits import remove
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.control.plan import Action, Step
from nats_scheduler.control.port import ScheduleStore, Served
from nats_scheduler.control.storing import store_schedule
from nats_scheduler.control.switch import pause, resume
from nats_scheduler.control.words import is_same


def carrying_out(
    store: ScheduleStore, served: Served, steps: Iterable[Step], author: Author
) -> Callable[[str], Awaitable[Change]]:
    """Return what carries out the step on a subject, as `control.each.Each` does with all of them."""
    by_subject = {step.subject: step for step in steps}

    async def change(subject: str) -> Change:
        return await carry_out(store, served, by_subject[subject], author)

    return change


async def carry_out(store: ScheduleStore, served: Served, step: Step, author: Author = NOBODY) -> Change:
    """Make one change; its kind is `UNCHANGED` if another client has made it since the plan.

    Raises `ScheduleError`; of these, `ConflictError` and `NotFoundError` say that the schedule was changed since.
    """
    stream, subject, expected = served.name, step.subject, step.expected
    if step.action is Action.PAUSE:
        return await pause(store, stream, subject, author=author, expected=expected)
    if step.action is Action.RESUME:
        return await resume(store, stream, subject, author=author, expected=expected)
    if step.action is Action.REMOVE:
        return await remove(store, stream, subject, author=author, expected=expected)
    kind = Kind.ADDED if step.before is None else Kind.EDITED
    before = expected or None
    change = Change(kind, stream, subject, before, before, author, store.now(), notes=step.notes)
    try:
        return await store_schedule(store, served, change, step.block, step.body)
    except ConflictError as error:
        last = await store.last(stream, subject)
        if last is None or not is_same(last, step.block, step.body):
            raise ConflictError(str(error), 0 if last is None else last.sequence) from None
        return Change(Kind.UNCHANGED, stream, subject, last.sequence, last.sequence, author, store.now())
