"""Carry out the steps of a plan (`control.plan`): each is a compare-and-set on what the plan has read.

The rules:

- A step that finds another message than its plan has read changes nothing, and is a `ConflictError`; if that message
  says what the step would store, it is done already. So several programs may apply the same files at the same time, and
  what one that was killed has left is finished by another.
- A schedule that had ended when the plan was made may be purged since: what is added in its place is added then too.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from nats_scheduler.control.changed_parts import NO_PARTS, ChangedParts, changed_parts
from nats_scheduler.control.changes import NOBODY, Author, Change, Kind
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.each import Done, change_each
from nats_scheduler.control.edits import remove
from nats_scheduler.control.errors import ConflictError
from nats_scheduler.control.pausing import pause, resume
from nats_scheduler.control.plan import Action, Step
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.storing import store_schedule
from nats_scheduler.control.words import is_same
from nats_scheduler.message.stored import StoredMessage


async def carry_out_all(
    store: Callable[[], Awaitable[ScheduleStore]],
    served: Served,
    steps: Iterable[Step],
    author: Author,
    notify: Callable[[int], None] = lambda _number: None,
) -> Done:
    """Carry out steps, some at a time; `notify` is called with how many are done.

    `store` returns the store for each; it raises `NoAnswerError` if it is not reached.
    """
    by_subject = {step.subject: step for step in steps}

    async def change(subject: str) -> Change:
        return await carry_out(await store(), served, by_subject[subject], author)

    return await change_each(list(by_subject), change, notify)


async def carry_out(store: ScheduleStore, served: Served, step: Step, author: Author = NOBODY) -> Change:
    """Make one change; its kind is `UNCHANGED` if another client has made it since the plan.

    Raises `SchedulerError`; of these, `ConflictError` and `NotFoundError` say that the schedule was changed since.
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
    parts = NO_PARTS if step.before is None else _parts(served, step, step.before)
    change = Change(kind, stream, subject, before, before, author, store.now(), notes=step.notes, parts=parts)
    change = replace(change, findings=step.findings)
    try:
        return await store_schedule(store, served, change, step.block, step.body)
    except ConflictError as error:
        last = await store.last(stream, subject)
        if last is None and step.action is Action.ADD and expected:
            added = replace(change, before=None, parts=NO_PARTS)
            return await store_schedule(store, served, added, step.block, step.body)
        if last is None or not is_same(last, step.block, step.body):
            raise ConflictError(str(error), 0 if last is None else last.sequence) from None
        return Change(Kind.UNCHANGED, stream, subject, last.sequence, last.sequence, author, store.now())


def _parts(served: Served, step: Step, before: Current) -> ChangedParts:
    """Return what a step that replaces a schedule makes of it."""
    after = read_current(StoredMessage(step.subject, 0, 0, step.block, step.body), served)
    return NO_PARTS if after is None else changed_parts(before, after.dialect, after.active_block, step.body)
