"""Pause and resume a schedule: `Nats-Schedule` gets another name, and back (`message.paused`).

The rules:

- A paused schedule keeps its headers, its body and its phase; what comes due while it is paused is skipped. A resumed
  one fires from then on.
- An `@at` whose time has passed fires at once when it is resumed; with `drop` it is removed instead.

Limit: a server that fires by itself begins the interval of an `@every` anew, and a schedule that was paused by another
tool has lost the time at which it was stored; both are said in the notes.
"""

from nats_scheduler.control.anchor import BEGINS_ANEW, anchor_name, counted_anew, has_grid, with_phase
from nats_scheduler.control.changed_parts import changed_parts
from nats_scheduler.control.changes import NOBODY, Author, Change, Kind
from nats_scheduler.control.current import Current
from nats_scheduler.control.edits import found_about
from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.control.standing import opened
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.storing import (
    check_rights,
    check_schedule,
    check_subject,
    check_written,
    delete_message,
    recorded,
    store_schedule,
)
from nats_scheduler.control.words import publishable_again
from nats_scheduler.message.headers import MSG_ROLLUP, header_value, with_header
from nats_scheduler.message.paused import paused_block
from nats_scheduler.schedule.patterns import At

PHASE_LOST = "the interval of @every begins anew: it was paused without X-Anchor, so its phase is not known any more"
FIRES_AT_ONCE = "its time has passed: it fires at once"
DROPPED = "its time has passed: it was removed and not resumed"


async def pause(
    store: ScheduleStore,
    stream: str,
    subject: str,
    *,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
) -> Change:
    """Pause the schedule on a subject; `expected` is its sequence, if the caller knows one.

    Raises `NotPossibleError` if it is paused already, or if to store it again would remove other messages.
    """
    served, found = await opened(store, stream, subject, expected)
    if found.is_paused:
        raise NotPossibleError(f"{subject} is paused already")
    check_subject(served, subject)
    block, notes = with_phase(found, publishable_again(found.message.block))
    check_rights(subject, block)
    if found.rejection is not None:
        notes = (f"it is rejected, paused or not: {found.rejection}",)
    if found.is_fired_by_server and not header_value(block, MSG_ROLLUP):
        # A server that builds its index anew would find an older version, if one was left, and fire it.
        block = with_header(block, MSG_ROLLUP, b"sub")
    paused, sequence, body = paused_block(block, found.dialect), found.sequence, found.message.body or b""
    check_written(paused, before=block)
    parts = changed_parts(found, found.dialect, block, body)
    change = Change(Kind.PAUSED, stream, subject, sequence, sequence, author, store.now(), notes=notes, parts=parts)
    if dry_run:
        await store.check_publish(subject)
        return change
    return await store_schedule(store, served, change, paused, body)


async def resume(
    store: ScheduleStore,
    stream: str,
    subject: str,
    *,
    drop: bool = False,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
) -> Change:
    """Resume the schedule on a subject; with `drop` an `@at` whose time has passed is removed instead.

    Raises `NotPossibleError` if it is not paused, and `RejectedError` if it would never fire.
    """
    served, found = await opened(store, stream, subject, expected)
    if not found.is_paused:
        raise NotPossibleError(f"{subject} is not paused")
    now, sequence = store.now(), found.sequence
    if drop and has_passed(found, now):
        change = Change(Kind.REMOVED, stream, subject, sequence, None, author, now, notes=(DROPPED,))
        if dry_run:
            await store.check_delete(stream, subject)
            return change
        await delete_message(store, stream, found.message)
        return await recorded(store, change)
    block, body = publishable_again(found.active_block), found.message.body or b""
    resumed = check_schedule(served, subject, block, body, now, before=found.message.block)
    change = Change(
        Kind.RESUMED,
        stream,
        subject,
        before=sequence,
        after=sequence,
        author=author,
        at=now,
        notes=_notes(found, resumed, now),
        parts=changed_parts(found, found.dialect, block, body),
        findings=found_about(served, resumed, now),
        schedule=resumed,
    )
    if dry_run:
        await store.check_publish(subject)
        return change
    return await store_schedule(store, served, change, block, body)


def has_passed(found: Current, now: int) -> bool:
    """Return whether a schedule fires once, at a time that has passed."""
    if found.definition is None or not isinstance(found.definition.pattern.base, At):
        return False
    first = found.definition.timetable(now).first_fire()
    return first is not None and first <= now


def _notes(found: Current, resumed: Current, now: int) -> tuple[str, ...]:
    """Return what to say of a schedule that is resumed."""
    if has_passed(found, now):
        return (FIRES_AT_ONCE,)
    notes = counted_anew(found)
    assert resumed.definition is not None, "a rejected schedule is not resumed"
    if has_grid(resumed.definition.pattern):
        if found.is_fired_by_server:
            notes = (BEGINS_ANEW, *notes)
        elif header_value(found.message.block, anchor_name(found)) is None:
            notes = (PHASE_LOST, *notes)
    return notes
