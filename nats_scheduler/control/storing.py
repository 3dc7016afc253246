"""Replace and delete the message of a schedule, and find out what became of an attempt that was not answered.

The rules:

- Each attempt names the message that it replaces. So an attempt that is repeated stores nothing twice, and the edit of
  another client is never lost.
- If an attempt is not answered, the last message on the subject is read. If that is the one that was there before,
  the attempt is repeated; if it is what was to be stored, it is done. Any other error after that leaves it unknown.
- A refusal is another client's change only if that is seen: a leader that is behind refuses too, and the attempt is
  repeated.
- Nothing is reported as stored that a stream with interest retention has acknowledged and not stored; of what is due
  already that is not known, because it may have fired and be gone.

Cost: one request, two on a work queue or interest stream; two more for each attempt that is not answered.
Limit: if an attempt was not answered, and another client has changed the schedule since, nothing shows whether it was
stored in between: that is an `UnknownOutcomeError`.
"""

from dataclasses import replace

from nats_scheduler.control.changes import Change
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.errors import (
    ConflictError,
    NoAnswerError,
    NotFoundError,
    NotPossibleError,
    RejectedError,
    SchedulerError,
    UnknownOutcomeError,
)
from nats_scheduler.control.standing import CLOCK_MARGIN_NS
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.words import is_same, publishable
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import MSG_ROLLUP, decoded, header_value
from nats_scheduler.message.misnamed import misnamed_fault
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.rejection import SCHEDULES_DISABLED
from nats_scheduler.message.rights import lent_header, wide_rollup
from nats_scheduler.message.schedule_form import hidden_fault, hidden_headers
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered, is_literal_subject
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.patterns import At
from nats_scheduler.schedule.rfc3339 import format_rfc3339

NOT_KEPT = (
    "the server acknowledged it, and it is not stored: on an interest stream a schedule needs a consumer of its subject"
)

MAX_ATTEMPTS = 3
"""Attempts of which none is answered, before the operation ends with `UnknownOutcomeError`."""


async def replace_message(
    store: ScheduleStore, stream: str, subject: str, block: bytes, body: bytes, expected: int
) -> int:
    """Store a message in place of the one with the sequence `expected`, 0 for none; return its sequence."""
    unanswered: UnknownOutcomeError | None = None
    behind: SchedulerError | None = None
    for _ in range(MAX_ATTEMPTS):
        try:
            published = await store.publish(stream, subject, block, body, expected=expected)
        except UnknownOutcomeError as error:
            unanswered = error
        except ConflictError as error:
            if unanswered is None:
                behind = await unseen(error, store, stream, subject, expected)
                continue
        except SchedulerError as error:
            raise unanswered or error from None
        else:
            if published.is_duplicate:
                raise ConflictError(f"{subject}: the server knows the Nats-Msg-Id already, and stored nothing")
            return published.sequence
        last = await _last_after(unanswered, store, stream, subject)
        if last is not None and last.sequence > expected and is_same(last, block, body):
            return last.sequence
        if (0 if last is None else last.sequence) != expected:
            break
    failure = unanswered or behind
    assert failure is not None, "an attempt ends with a result, an error or no answer"
    raise failure


async def unseen(
    refused: ConflictError, store: ScheduleStore, stream: str, subject: str, expected: int
) -> SchedulerError:
    """Return what a refusal is if it is not repeated any more; raise it if another client's message is seen.

    A leader that is behind refuses although `expected` is the last sequence, or does not have that message yet. Then it
    has no later message, which a message that was removed does not have either.
    """
    last = await store.last(stream, subject)
    found = 0 if last is None else last.sequence
    if found == expected:
        return NoAnswerError(f"{subject}: nobody changed it, and the leader of the stream does not know that yet")
    seen = ConflictError(str(refused), found)
    if found > expected:
        raise seen from None
    return seen


async def delete_message(store: ScheduleStore, stream: str, message: StoredMessage) -> None:
    """Delete the last message on a subject."""
    unanswered: UnknownOutcomeError | None = None
    for _ in range(MAX_ATTEMPTS):
        try:
            return await store.delete(stream, message)
        except UnknownOutcomeError as error:
            unanswered = error
        except NotFoundError:
            if unanswered is None:
                raise
            return None
        except SchedulerError as error:
            raise unanswered or error from None
        last = await _last_after(unanswered, store, stream, message.subject)
        if last is None or last.sequence < message.sequence:
            return None
        if last.sequence > message.sequence:
            raise ConflictError(f"{message.subject}: another client changed it at the same time", last.sequence)
    assert unanswered is not None, "an attempt ends with a result, an error or no answer"
    raise unanswered


async def _last_after(
    unanswered: UnknownOutcomeError | None, store: ScheduleStore, stream: str, subject: str
) -> StoredMessage | None:
    """Return the last message on a subject after an attempt; if it cannot be read, the attempt stays unanswered."""
    try:
        return await store.last(stream, subject)
    except SchedulerError as error:
        raise unanswered or UnknownOutcomeError(f"{subject}: whether it is stored cannot be read: {error}") from None


async def store_schedule(store: ScheduleStore, served: Served, change: Change, block: bytes, body: bytes) -> Change:
    """Store a schedule in place of what the change names as `before`, record the change and return it.

    What the block has of another publish, such as a part of a batch, is not sent.
    """
    expected = change.before or 0
    after = await replace_message(store, served.name, change.subject, publishable(block), body, expected)
    if not served.rules.keeps_acknowledged:
        last = await _last_after(None, store, served.name, change.subject)
        is_gone = last is None or last.sequence < after
        if is_gone and not _is_due(served, StoredMessage(change.subject, after, store.now(), block, body)):
            raise NotPossibleError(f"{change.subject}: {NOT_KEPT}")
    stored = StoredMessage(change.subject, after, store.now(), publishable(block), body)
    return await recorded(store, replace(change, after=after, schedule=read_current(stored, served)))


def _is_due(served: Served, message: StoredMessage) -> bool:
    """Return whether a schedule fires as soon as it is stored: then it may have fired, and be gone, within a moment.

    The time that is known here may be behind the server's, which matters if it fires once and is gone by then.
    """
    found = read_current(message, served)
    if found is None or found.definition is None or found.is_paused:
        return False
    first = found.timetable().first_fire()
    margin = CLOCK_MARGIN_NS if isinstance(found.definition.pattern.base, At) else 0
    return first is not None and first <= message.stored_at + margin


async def recorded(store: ScheduleStore, change: Change) -> Change:
    """Record a change that was made, with the time; return it."""
    made = replace(change, at=store.now())
    await store.record([made])
    return made


def pending(found: Current, now: int) -> int | None:
    """Return when (ns) a schedule is due that fires once and has not fired by `now` (ns); None for any other one."""
    if found.definition is None or found.is_paused or not isinstance(found.definition.pattern.base, At):
        return None
    first = found.timetable().first_fire()
    return first if first is not None and first > now else None


def losses(served: Served, found: Current, block: bytes, body: bytes, now: int) -> tuple[str, ...]:
    """Return what to say of the fires that a schedule still has if another message replaces it at `now` (ns)."""
    return (*unfired(served, found, block, body, now), *_delayed(served, found, block, now))


def _delayed(served: Served, found: Current, block: bytes, now: int) -> tuple[str, ...]:
    """Return what becomes of a fire that was due, and that a jitter delays; what else lets one wait is not known here.

    A sidecar decides the same (`engine.receiving.replaced`).
    """
    if found.definition is None or found.is_paused or found.is_fired_by_server:
        return ()
    timetable = found.timetable()
    first = timetable.first_fire()
    due = timetable.latest_passed(timetable.stored_at, now) if timetable.repeats else first
    if due is None or due > now or timetable.send_time_of(due) <= now:
        return ()
    wanted = read_current(StoredMessage(found.subject, 0, now, block, b""), served)
    pattern = None if wanted is None or wanted.definition is None else wanted.definition.pattern
    own = None if wanted is None or pattern is None else wanted.timetable().first_fire()
    if own is not None and own <= due:
        return ()
    takes_it_away = isinstance(pattern, Bounded) and not pattern.leaves(due)
    if pattern is None or takes_it_away or not timetable.repeats:
        what = "is not stored any more"
    elif served.rules.keeps_one:
        what = "is lost, since the stream keeps one message for each subject"
    else:
        what = "is still stored, as it was before this change"
    return (f"its fire of {format_rfc3339(due)} waits until {format_rfc3339(timetable.send_time_of(due))}, and {what}",)


def unfired(served: Served, found: Current, block: bytes, body: bytes, now: int) -> tuple[str, ...]:
    """Return what to say if another body replaces at `now` (ns) a schedule that fires once, and that is not meant.

    A sidecar reports the same afterwards (`engine.receiving.replaced`).
    """
    due, blocks = pending(found, now), (block, found.message.block)
    is_meant = any(header_value(one, policy_header("X-Debounce", of)) for one in blocks for of in DIALECTS)
    if due is None or is_meant or served.rules.debounces or body == (found.message.body or b""):
        return ()
    published, at = format_rfc3339(found.message.stored_at), format_rfc3339(due)
    return (f"it replaces sequence {found.sequence}, published {published}, which was to fire at {at} and never will",)


def check_subject(served: Served, subject: str) -> None:
    """Raise `NotPossibleError` if a message that is published to a subject is not stored under it in the stream."""
    if not is_literal_subject(subject):
        raise NotPossibleError(f"{subject!r} is no literal subject such as 'orders.due': no wildcards or empty tokens")
    if served.rules.moves_subjects:
        raise NotPossibleError(f"stream {served.name} stores messages on other subjects (subject_transform)")
    if not is_covered(subject, served.rules.subjects):
        expected = ", ".join(served.rules.subjects) or "none"
        raise NotPossibleError(f"{subject} is not a subject of stream {served.name}: expected one of {expected}")


def check_schedule(served: Served, subject: str, block: bytes, body: bytes, now: int, before: bytes = b"") -> Current:
    """Return the schedule that a message would be if it was stored now (ns); raise the reason if it would be none.

    `before` is the block in whose place it is stored, if it is made of that.
    """
    check_subject(served, subject)
    found = read_current(StoredMessage(subject, 0, now, block, body), served)
    if found is not None:
        served.admit(found)
    check_written(block, before)
    if found is None:
        raise _no_schedule(served, block)
    if found.rejection is not None:
        raise RejectedError(found.rejection)
    check_rights(subject, block)
    if not found.is_fired_by_server:
        check_no_request(served, found)
    return found


def check_written(block: bytes, before: bytes = b"") -> None:
    """Raise `RejectedError` if a block has a header that is not read, or not as it is written.

    What is so in the block `before` it does not count.
    """
    fault = hidden_fault(block, but_for=hidden_headers(before)) or misnamed_fault(block, before)
    if fault is not None:
        raise RejectedError(fault)


IS_REQUEST = "one of the server's own subjects, or of the sidecars', on which they take requests"


def check_no_request(served: Served, found: Current) -> None:
    """Raise `NotPossibleError` if a fire of a schedule would be a request, or repeat one."""
    if found.definition is None:
        return
    terms, restrictions = found.definition.terms, served.rules.restrictions
    if restrictions.is_request(terms.target):
        raise NotPossibleError(f"{found.subject}: the target {terms.target} is {IS_REQUEST}")
    if terms.source is not None and restrictions.reads_requests(terms.source):
        raise NotPossibleError(f"{found.subject}: the source {terms.source} is {IS_REQUEST}")


def check_rights(subject: str, block: bytes) -> None:
    """Raise `NotPossibleError` if to publish a block would make the server do more than to store a schedule."""
    if (name := lent_header(block)) is not None:
        raise NotPossibleError(f"{subject}: {name} is no header of a schedule: expected the message without it")
    if (rollup := wide_rollup(block)) is not None:
        what = f"{subject} has a {decoded(MSG_ROLLUP)} of {decoded(rollup)!r}"
        raise NotPossibleError(f"{what}, which would remove other messages: expected 'sub', or no such header")


def _no_schedule(served: Served, block: bytes) -> SchedulerError:
    for dialect in DIALECTS:
        if value := header_value(block, dialect.schedule):
            expected = " or ".join(one.schedule.decode() for one in served.dialects)
            reason = f"fires nothing on stream {served.name!r}: expected {expected}"
            return RejectedError(SCHEDULES_DISABLED.rejection(dialect.schedule.decode(), decoded(value), reason))
    return NotPossibleError(f"the message has no {served.dialects[0].schedule.decode()}: it would be no schedule")
