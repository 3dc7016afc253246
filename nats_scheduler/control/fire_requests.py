"""Store fires of a schedule on request: one now, or past ones that are missing.

The rules:

- A fire on request is stored beside the schedule: neither the schedule nor its own fires change
  (`control.requested_fire`).
- An attempt that is not answered is repeated with the same bytes, and so with the same identity: within the duplicate
  window of the stream it is stored once. From 2.11 on it is stored only if the schedule is still the one that was read.
- A backfill stores only what is missing and settled (`control.missing_fires`), the oldest first. A fire that a sidecar
  missed has its own identity, the same that the sidecar would use; others have that of a fire on request.

Limits: where the server fires, its own fires have no identity that could be compared: what it stores at the same moment
is not known. After the duplicate window only what is stored shows that a fire was.
"""

from dataclasses import replace

from nats_scheduler.control.changes import NOBODY, Author, Change, Kind
from nats_scheduler.control.current import Current
from nats_scheduler.control.errors import ConflictError, NotPossibleError, SchedulerError, UnknownOutcomeError
from nats_scheduler.control.missing_fires import missing_fires
from nats_scheduler.control.requested_fire import definition_of, requested_fire
from nats_scheduler.control.standing import opened
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.storing import MAX_ATTEMPTS, recorded, unseen
from nats_scheduler.message.publish_answers import Published
from nats_scheduler.message.stored import StoredMessage

DEFAULT_BACKFILL = 100
"""Most fires of one backfill, unless the caller wants another number."""

MAX_BACKFILL = 1_000
"""Most fires of one backfill."""

PORTABLE_NAMES = "it has the portable names (X-Nats-Scheduler): the server lets no client publish the others"
STORED_ALREADY = "it is stored already"
NOTHING_MISSING = "no fire is missing"


async def fire(
    store: ScheduleStore,
    stream: str,
    subject: str,
    *,
    at: int | None = None,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
) -> Change:
    """Store one fire of the schedule on a subject, paused or not, with the current time as its fire time.

    A caller that repeats a request gives its fire time, `at` (ns, not in the future): the same is stored once.
    Raises `RejectedError` if the schedule never fires.
    """
    served, found = await opened(store, stream, subject, expected)
    served.admit(found)
    now = store.now()
    fire_time = now if at is None else at
    if fire_time > now:
        raise NotPossibleError("the fire time is in the future: expected the time of the request, or an earlier one")
    block, body = requested_fire(found, served, await _sample(store, stream, found), fire_time, "fire")
    notes = (PORTABLE_NAMES,) if found.is_fired_by_server else ()
    sequence = found.sequence
    change = Change(Kind.FIRED, stream, subject, sequence, sequence, author, now, (fire_time,), notes, schedule=found)
    if dry_run:
        await store.check_publish(definition_of(found).terms.target)
        return change
    published = await _stored(store, stream, found, await _stream_of(store, stream, found), block, body)
    if published.is_duplicate:
        return replace(change, kind=Kind.UNCHANGED, fires=(), notes=(STORED_ALREADY,))
    return await recorded(store, replace(change, sequences=(published.sequence,)))


async def backfill(
    store: ScheduleStore,
    stream: str,
    subject: str,
    since_ns: int,
    until_ns: int,
    *,
    limit: int = DEFAULT_BACKFILL,
    author: Author = NOBODY,
    expected: int | None = None,
    dry_run: bool = False,
) -> Change:
    """Store the fires of a schedule that are missing in a range of fire times (ns), both ends included.

    The kind of the change is `UNCHANGED` if none is. Raises `NotPossibleError` if more than `limit` are missing.
    If an error ends it half-way, what was stored until then is recorded, and to repeat it stores the rest.
    """
    if since_ns > until_ns:
        raise NotPossibleError("the range ends before it begins")
    if not 1 <= limit <= MAX_BACKFILL:
        raise NotPossibleError(f"a limit of {limit:,} fires: expected 1 to {MAX_BACKFILL:,}")
    served, found = await opened(store, stream, subject, expected)
    served.admit(found)
    target = definition_of(found).terms.target
    now = store.now()
    stored = await store.fires(stream, found.message, since_ns, min(until_ns, now))
    times, notes = missing_fires(found, stored, since_ns, until_ns, now)
    if len(times) > limit:
        sentence = f"{subject}: {len(times):,} fires are missing, and at most {limit:,} are stored at once"
        raise NotPossibleError(f"{sentence}: name a shorter range, or a higher limit")
    sequence = found.sequence
    change = Change(Kind.BACKFILLED, stream, subject, sequence, sequence, author, now, times, notes, schedule=found)
    if not times:
        return replace(change, kind=Kind.UNCHANGED, notes=(NOTHING_MISSING, *notes))
    if dry_run:
        await store.check_publish(target)
        return change
    return await _fill(store, served, found, change)


async def _fill(store: ScheduleStore, served: Served, found: Current, change: Change) -> Change:
    """Store the fires of a change, the oldest first, and record those that were stored."""
    stream, stored_at = change.stream, found.message.stored_at
    target_stream, source = await _stream_of(store, stream, found), await _sample(store, stream, found)
    is_own = not (found.is_paused or found.is_fired_by_server)
    done: dict[int, int] = {}
    known = 0
    try:
        for time in change.fires:
            is_missed = is_own and time > stored_at
            block, body = requested_fire(found, served, source, time, "backfill", is_missed=is_missed)
            published = await _stored(store, stream, found, target_stream, block, body)
            if published.is_duplicate:
                known += 1
            else:
                done[time] = published.sequence
    except SchedulerError:
        if done:
            await recorded(store, replace(change, fires=tuple(done), notes=(*change.notes, "it ended half-way")))
        raise
    notes = change.notes
    if known:
        notes = (*notes, f"{known} of the fires were stored meanwhile by a sidecar or another request")
    change = replace(change, fires=tuple(done), sequences=tuple(done.values()), notes=notes)
    return await recorded(store, change) if done else replace(change, kind=Kind.UNCHANGED)


async def _stored(store: ScheduleStore, home: str, found: Current, stream: str, block: bytes, body: bytes) -> Published:
    """Store a fire once; one that was stored by an attempt that was not answered counts as stored now.

    `home` is the stream of the schedule, `stream` that of the target. A leader that is behind may
    refuse the guard although nobody changed the schedule.
    """
    target = definition_of(found).terms.target
    unanswered: UnknownOutcomeError | None = None
    behind: SchedulerError | None = None
    for _ in range(MAX_ATTEMPTS):
        try:
            published = await store.publish(stream, target, block, body, expected=None)
            return published if unanswered is None else Published(published.sequence)
        except UnknownOutcomeError as error:
            unanswered = error
        except ConflictError as error:
            if unanswered is not None:
                break  # the schedule was changed; the fire may have been stored before
            behind = await unseen(error, store, home, found.subject, found.sequence)
        except SchedulerError as error:
            raise unanswered or error from None
    failure = unanswered or behind
    assert failure is not None, "an attempt ends with a result, an error or no answer"
    raise failure


async def _sample(store: ScheduleStore, stream: str, found: Current) -> StoredMessage | None:
    """Return the last message of the schedule's source; None if it has none, or nothing is there."""
    source = definition_of(found).terms.source
    return None if source is None else await store.last(stream, source)


async def _stream_of(store: ScheduleStore, stream: str, found: Current) -> str:
    """Return the stream that has the schedule's target."""
    elsewhere = definition_of(found).terms.policies.target_stream
    return stream if elsewhere is None else await store.stream_of(elsewhere)
