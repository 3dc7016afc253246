"""Add, edit and remove schedules.

The rules:

- What would be rejected is refused at the door, and nothing is stored.
- Adding what is there already, in the same words (`control.words`), changes nothing, so that many replicas of a program
  may do it when they start. A schedule that is paused meanwhile stays paused, and the `X-Anchor` that an earlier
  operation has added does not count.
- An edit changes only what it names. The fire times stay, unless the pattern itself is changed. It does not change the
  spelling, so it sets nothing that the server would ignore which fires the schedule.
- A schedule is removed with its older versions, so that none of them comes back.
"""

from collections.abc import Callable
from dataclasses import replace as _with

from nats_scheduler.control.anchor import anchor_name, counted_anew, with_phase
from nats_scheduler.control.changed_parts import changed_parts
from nats_scheduler.control.changes import NOBODY, Author, Change, Kind
from nats_scheduler.control.current import Current, is_marker
from nats_scheduler.control.errors import (
    AlreadyExistsError,
    ConflictError,
    NotPossibleError,
    SchedulerError,
    UnknownOutcomeError,
)
from nats_scheduler.control.spelling import check_edit
from nats_scheduler.control.standing import (
    CLOCK_MARGIN_NS,
    SETTLING_LIMIT_NS,
    fired_already,
    has_passed_all,
    opened,
    standing,
)
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.storing import (
    MAX_ATTEMPTS,
    check_schedule,
    delete_message,
    losses,
    pending,
    recorded,
    store_schedule,
    unfired,
)
from nats_scheduler.control.words import edited, is_same, is_same_pattern, publishable_again
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.headers import decoded, header_value, without_headers
from nats_scheduler.message.paused import paused_block, paused_name
from nats_scheduler.message.schedule_findings import findings_about
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import format_rfc3339

EVERY = b"@every "
"""The prefix of a pattern with a grid."""

MAX_EDIT_ATTEMPTS = 8
"""The most attempts at an edit while others change the same schedule."""

STAYS_PAUSED = "it is paused, and stays so"


async def add(
    store: ScheduleStore,
    stream: str,
    subject: str,
    block: bytes,
    body: bytes,
    *,
    replace: bool = False,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
    warn: Callable[[str], object] = lambda _loss: None,
) -> Change:
    """Store a schedule, active or paused, where there is none, or with `replace` in place of what is there.

    `expected` is the sequence of the last message on the subject, 0 for none, if the caller knows it.
    `warn` is called before another body replaces a schedule that fires once and has not fired; if it raises, nothing is
    stored.
    The kind of the change is `UNCHANGED` if the same is stored already, and `EDITED` if it replaces another schedule.
    Raises `RejectedError` if it would never fire or a value hides a header, `AlreadyExistsError` if something else
    is there (without `replace`), and `ConflictError` if another client stored something at the same time (with
    `replace`). A schedule whose last fire is stored counts as absent, and what was removed at the same time is no
    conflict: a worker that receives a fire may store the next schedule before the last one is purged.
    """
    served = await store.served(stream)
    wanted = check_schedule(served, subject, block, body, store.now())
    conflict: ConflictError | None = None
    for _ in range(MAX_ATTEMPTS):
        last, found, has_ended = await standing(store, served, subject, limit_ns=SETTLING_LIMIT_NS if replace else None)
        found = None if has_ended else found
        change = _addition(served, wanted, last, found, author, store.now())
        if change.kind is Kind.UNCHANGED:
            return change
        is_free = last is None or has_ended or is_marker(last.block)
        if conflict is not None and replace and not is_free:
            raise conflict
        at = 0 if last is None else last.sequence
        if expected is not None and expected != at and not (has_ended and expected == 0):
            raise ConflictError(f"{subject}: the last message has sequence {at}, and not {expected}", at)
        if last is not None and not is_free and not replace:
            raise AlreadyExistsError(f"{subject}: {_what_is_there(last, found, store.now())}", last.sequence)
        if dry_run:
            await store.check_publish(subject)
            return change
        message = wanted.message
        lost = () if found is None else unfired(served, found, message.block, message.body or b"", store.now())
        if lost:
            warn(f"{subject}: {' '.join(lost)}")
        try:
            return await store_schedule(store, served, change, block, body)
        except ConflictError as error:
            conflict = error  # the other client may have stored the same
    assert conflict is not None, "an attempt ends with a result or an error"
    raise conflict


async def edit(
    store: ScheduleStore,
    stream: str,
    subject: str,
    edit: Edit,
    *,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
) -> Change:
    """Change what `edit` names of the schedule on a subject, paused or not; `expected` is its sequence.

    The kind of the change is `UNCHANGED` if that changes nothing. Raises `RejectedError` if it would never fire then,
    and `NotPossibleError` if the server that fires it would not do what is set.
    """
    served, found = await opened(store, stream, subject, expected)
    edit = edit.spelled(found.dialect)
    _check_names(edit, found.dialect)
    body = (found.message.body or b"") if edit.body is None else edit.body
    before = publishable_again(found.active_block)
    active = edited(before, edit)
    sequence = found.sequence
    change = Change(Kind.UNCHANGED, stream, subject, sequence, sequence, author, store.now(), schedule=found)
    if active == before and body == (found.message.body or b""):
        return change
    if found.is_fired_by_server:
        check_edit(served, active, edit, store.now())
    active, notes = _with_grid(found, before, active, edit)
    block = paused_block(active, found.dialect) if found.is_paused else active
    wanted = check_schedule(served, subject, block, body, store.now(), before=found.message.block)
    notes = (*notes, STAYS_PAUSED) if found.is_paused else (*notes, *counted_anew(found))
    notes = (*losses(served, found, block, body, store.now()), *notes)
    parts = changed_parts(found, found.dialect, active, body)
    change = _with(change, kind=Kind.EDITED, notes=notes, parts=parts, schedule=wanted)
    change = _with(change, findings=found_about(served, wanted, store.now()))
    if dry_run:
        await store.check_publish(subject)
        return change
    return await store_schedule(store, served, change, block, body)


async def edit_latest(
    store: ScheduleStore,
    stream: str,
    subject: str,
    wanted: Callable[[Current], Edit],
    *,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
) -> Change:
    """Make the edit that `wanted` returns for the schedule as it is stored, again if another client has changed it.

    With `expected` a schedule with another sequence is not edited. Raises as `edit`, and `ConflictError` if others
    changed it at each attempt.
    """
    for attempt in range(1, MAX_EDIT_ATTEMPTS + 1):
        _served, found = await opened(store, stream, subject, expected)
        one = wanted(found)
        try:
            return await edit(store, stream, subject, one, author=author, expected=found.sequence, dry_run=dry_run)
        except ConflictError:
            if expected is not None or attempt == MAX_EDIT_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


async def remove(
    store: ScheduleStore,
    stream: str,
    subject: str,
    *,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
) -> Change:
    """Remove the schedule on a subject, paused, rejected or not; `expected` is its sequence.

    Raises `NotFoundError` if its last fire is stored, also if that was stored in the moment before the removal.
    """
    served, found = await opened(store, stream, subject, expected)
    change = Change(Kind.REMOVED, stream, subject, found.sequence, None, author, store.now())
    if dry_run:
        await store.check_delete(stream, subject)
        return change
    await delete_message(store, stream, found.message)
    if await _had_fired(store, served, found):
        raise fired_already(found)
    return await recorded(store, change)


async def _had_fired(store: ScheduleStore, served: Served, removed: Current) -> bool:
    """Return whether the last fire of a schedule was stored before it was removed, which it is now."""
    if not has_passed_all(removed, store.now() + CLOCK_MARGIN_NS):
        return False
    try:
        return await store.has_ended(served, removed) is True
    except SchedulerError as error:
        reason = f"{removed.subject}: it is removed, and whether it had fired cannot be read: {error}"
        raise UnknownOutcomeError(reason) from None


def _addition(
    served: Served, wanted: Current, last: StoredMessage | None, found: Current | None, author: Author, now: int
) -> Change:
    """Return the change that storing a schedule would be, by the last message on its subject, and its schedule."""
    change = Change(
        Kind.ADDED,
        served.name,
        wanted.subject,
        before=None,
        after=None,
        author=author,
        at=now,
        findings=found_about(served, wanted, now),
        schedule=wanted,
    )
    if last is None:
        return change
    change = _with(change, before=last.sequence, after=last.sequence)
    if found is None:
        return change
    if _is_there(found, wanted):
        notes = (STAYS_PAUSED,) if found.is_paused and not wanted.is_paused else ()
        return _with(change, kind=Kind.UNCHANGED, notes=notes, findings=(), schedule=found)
    parts = changed_parts(found, wanted.dialect, wanted.active_block, wanted.message.body or b"")
    return _with(
        change,
        kind=Kind.EDITED,
        parts=parts,
        notes=losses(served, found, wanted.message.block, wanted.message.body or b"", now),
    )


def found_about(served: Served, wanted: Current, now: int) -> tuple[Finding, ...]:
    """Return what is found about a schedule that is stored now (ns)."""
    return findings_about(
        wanted.active_block,
        wanted.definition,
        served.rules_for(wanted.dialect),
        now,
        served.server,
        is_by_server=wanted.is_fired_by_server,
        is_paused=wanted.is_paused,
    )


def _is_there(found: Current, wanted: Current) -> bool:
    """Return whether a schedule that is to be stored is stored already; one that was paused since counts."""
    if found.dialect is not wanted.dialect or (wanted.is_paused and not found.is_paused):
        return False
    stored = found.message._replace(block=found.active_block)
    return is_same(stored, wanted.active_block, wanted.message.body or b"", but_for=(anchor_name(found),))


def _what_is_there(last: StoredMessage, found: Current | None, now: int) -> str:
    if found is None:
        return f"a message that is no schedule is stored there (sequence {last.sequence})"
    due = pending(found, now)
    unfired = "" if due is None else f", which has not fired yet and is due at {format_rfc3339(due)}"
    return f"another schedule is stored there (sequence {last.sequence}): {found.pattern!r}{unfired}"


def _with_grid(found: Current, before: bytes, after: bytes, edit: Edit) -> tuple[bytes, tuple[str, ...]]:
    """Return the edited block with the grid that it had, if its pattern is the same; and what to say of that."""
    name, pattern = anchor_name(found), header_value(after, found.dialect.schedule) or b""
    if is_same_pattern(pattern, header_value(before, found.dialect.schedule) or b""):
        return (after, ()) if found.is_paused else with_phase(found, after)
    if name in dict(edit.set) or pattern.startswith(EVERY) or header_value(after, name) is None:
        return after, ()
    return without_headers(after, (name,)), (f"{decoded(name)} is removed: the new pattern has no grid",)


def _check_names(edit: Edit, dialect: Dialect) -> None:
    """Raise `NotPossibleError` if an edit would pause or resume a schedule, or end it."""
    changed = {*dict(edit.set), *edit.unset}
    forbidden = {paused_name(one) for one in DIALECTS} | {one.schedule for one in DIALECTS if one is not dialect}
    if wrong := changed & forbidden:
        name = decoded(min(wrong))
        raise NotPossibleError(f"{name} is not changed by an edit: pause or resume the schedule, or add it anew")
    if dialect.schedule in edit.unset:
        raise NotPossibleError(f"without {decoded(dialect.schedule)} it would be no schedule: remove it, or pause it")
