"""Store fires of a schedule on request: one now, or past ones that are missing.

The rules:

- A fire on request is stored beside the schedule: neither the schedule nor its own fires change (`control.fires`).
- An attempt that is not answered is repeated with the same bytes, and so with the same identity: within the duplicate
  window of the stream it is stored once. From 2.11 on it is stored only if the schedule is still the one that was read.
- A backfill stores only what is missing and settled (`control.fires`), the oldest first. A fire that a sidecar missed
  has its own identity, the same that the sidecar would use; others have that of a fire on request.

Cost: a request for each fire; a backfill reads the fires on the target.
Limits: where the server fires, its own fires have no identity that could be compared: what it stores at the same moment
is not known. After the duplicate window only what is stored shows that a fire was.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Literal

from nats_scheduler.control.changes import NOBODY, Author, Change, Kind
from nats_scheduler.control.current import Current
from nats_scheduler.control.errors import (
    ConflictError,
    NotPossibleError,
    RejectedError,
    ScheduleError,
    UnknownOutcomeError,
)
from nats_scheduler.control.port import EVER, Published, Served, StoredFires
from nats_scheduler.control.store import ScheduleStore, opened
from nats_scheduler.control.storing import MAX_ATTEMPTS, check_no_request, recorded, unseen
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.fires import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.generated import (
    BY,
    PURGE,
    REPORT_NAMES,
    as_stored_natively,
    fire_block,
    guard_headers,
    identity_header,
    report_headers,
)
from nats_scheduler.message.headers import Header, without_headers
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339

# Build a fire that was requested: the message that a fire stores, with an identity of its own, and who asked for
# what.
#
# The rules:
#
# - It is what a fire of the schedule is (`message.generated`): its target, its content or the last message of its
#   source, its TTL and roll-up, and its report if the schedule has an `X-Report`.
# - `X-Nats-Schedule-X-By` says that it was requested. Its identity is that of no fire of the timetable, unless it is
#   one that was missed.
# - It never says `purge`: a program that does not know this identity would take it for the cancel of the schedule.
# - Servers of 2.14 and later refuse a client's `Nats-Scheduler` (10212). So where the server itself fires, the fire
#   has the portable names, as the make-up fires of a graduation.
#
# Cost: some microseconds. Limit: nothing is published here.


def requested_fire(
    found: Current,
    served: Served,
    source: StoredMessage | None,
    fire_time: int,
    by: Literal["fire", "backfill"],
    *,
    is_missed: bool = False,
) -> tuple[bytes, bytes]:
    """Return the header block and the body of the fire of a schedule for a fire time (ns).

    `is_missed` if that is a fire time of its timetable.
    `source` is the last message of the schedule's source. Raises `RejectedError` if the schedule never fires, and
    `NotPossibleError` if the server would not store the fire.
    """
    definition = definition_of(found)
    pattern, terms = definition
    check_no_request(served, found)
    stamped = terms._replace(dialect=PORTABLE) if found.is_fired_by_server else terms
    if served.rules.rolls_up_by_purge and terms.policies.target_stream is None:
        stamped = stamped._replace(rollup=False)  # the sidecar rolls up when it reads the fire
    identity = fire_identity if is_missed else beside_identity
    ours: list[Header] = [(BY, by.encode()), identity_header(identity(found.subject, found.sequence, fire_time))]
    if terms.policies.report:
        ours = [*report_headers(pattern, fire_time, None, 0), *ours]
    if served.server.has_guard and terms.policies.target_stream is None:
        ours += guard_headers(found.subject, found.sequence)
    following = _following(found, fire_time)
    content = found.message if source is None else source
    block = fire_block(_base(found, source, stamped), pattern, stamped, found.subject, following, ours)
    if block is not None and following is None and not is_missed:
        block = without_headers(block, (stamped.dialect.next,))
        if b"\n%b: %b\r\n" % (stamped.dialect.next, PURGE) in block:
            block = None
    if block is None:
        raise NotPossibleError(f"{found.subject}: header names in the values of the message hide those of the fire")
    return block, content.body or b""


def definition_of(found: Current) -> Definition:
    """Return what a schedule says; raises `RejectedError` if it is rejected."""
    if found.rejection is not None:
        raise RejectedError(found.rejection)
    assert found.definition is not None, "what is not rejected has a definition"
    return found.definition


def _base(found: Current, source: StoredMessage | None, terms: Terms) -> bytes:
    """Return the headers that the fire copies, without those that say something of another fire."""
    base = as_stored_natively(found.message.block) if source is None else source.block
    if PORTABLE.schedule not in base:
        return base
    others = (PORTABLE.schedule,) if terms.dialect is ADR51 else ()
    return without_headers(base, (*REPORT_NAMES, BY), others)


def _following(found: Current, fire_time: int) -> int | None:
    """Return when the schedule fires next by itself after a fire time (ns); None if it does not."""
    if found.is_paused:
        return None
    return next(found.timetable().each(fire_time), None)


# Which past fire times of a schedule can be stored now without being stored a second time.
#
# A fire time is *settled* if whatever fires the schedule will not store it any more:
#
# - A later one is stored, by the sidecar or the server itself: both go on from there.
# - The schedule is paused, or was stored later.
# - A sidecar fires it, and its `X-Missed` leaves the fire out: with `once` (or without the header) all but the latest
#   one that is due, with `skip` those that are later than `X-Grace`, with `all N` those before the last N.
#
# All else is left out: it may still be made up.
#
# The rule: what is stored, or cannot be known, is never stored again. A stream that removes what was consumed shows
# nothing; one with limits shows what is younger than its limits.
#
# Cost: some microseconds for each fire time in the range. Limit: what a client deleted counts as not stored.

MAX_EXAMINED = 10_000
"""Most fire times in one range; a backfill of more is better done in parts."""

GRACE_MARGIN_NS = 10 * SECOND
"""The time beyond `X-Grace` after which a fire is settled: clocks differ, and a fire may be in flight."""


def missing_fires(
    found: Current, stored: StoredFires, since: int, until: int, now: int
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return which fire times (ns) of a range, both ends included, are missing and settled; and what is left out."""
    if stored.known_from is None:
        raise NotPossibleError(f"{found.subject}: nothing shows which fires were stored, because they may be removed")
    times = _times(found, since, min(until, now))
    missing = [time for time in times if time not in stored.fire_times]
    certain = stored.known_from + MAX_CLOCK_DIFFERENCE_NS if stored.known_from > EVER else EVER
    known = [time for time in missing if time >= certain]
    is_settled = _settled(found, stored.latest, now)
    settled = [time for time in known if is_settled(time)]
    notes = []
    stored_at = found.message.stored_at
    if _would_be_earlier(found, since) and not (times and times[0] <= stored_at):
        notes.append(f"fire times before {format_rfc3339(stored_at)}, when the schedule was stored, are not its own")
    if len(known) < len(missing):
        number, at = len(missing) - len(known), format_rfc3339(certain)
        notes.append(f"{_fire_times(number)} left out, before {at}: the stream does not show what was stored then")
    if len(settled) < len(known):
        first = format_rfc3339(next(time for time in known if not is_settled(time)))
        who = "server" if found.is_fired_by_server else "sidecar"
        notes.append(
            f"{_fire_times(len(known) - len(settled))} left out, from {first} on: the {who} may still store them"
        )
    return tuple(settled), tuple(notes)


def _times(found: Current, since: int, until: int) -> list[int]:
    """Return the fire times of a schedule in a range; those before it was stored count only if it has an anchor."""
    pattern, timetable = definition_of(found).pattern, found.timetable()
    if not timetable.repeats:
        raise NotPossibleError(f"{found.subject} has one fire time: fire it, or resume it if it is paused")
    if (calendar := pattern.unknown_calendar) is not None:
        raise NotPossibleError(f"{found.subject} names the calendar {calendar!r}, whose days are not known here")
    policies = definition_of(found).terms.policies
    times: list[int] = []
    if policies.bounds.anchor is not None and policies.bounds.limit is None and since <= timetable.stored_at:
        times += _between(Timetable(pattern, since - 1), since - 1, min(until, timetable.stored_at), found.subject)
    times += _between(timetable, max(since - 1, timetable.stored_at), until, found.subject)
    return times


def _would_be_earlier(found: Current, since: int) -> bool:
    """Return whether it would have more fire times from `since` (ns) on if it had been stored before that."""
    stored_at = found.message.stored_at
    return since <= stored_at and Timetable(definition_of(found).pattern, since - 1).count(since - 1, stored_at) > 0


def _between(timetable: Timetable, after: int, until: int, subject: str) -> list[int]:
    if after >= until:
        return []
    if (number := timetable.count(after, until)) > MAX_EXAMINED:
        raise NotPossibleError(
            f"{subject} has {number:,} fire times in this range: at most {MAX_EXAMINED:,} are examined"
        )
    return list(takewhile(lambda time: time <= until, timetable.each(after)))


def _settled(found: Current, latest: int | None, now: int) -> Callable[[int], bool]:
    """Return the function that says whether a fire time is settled."""
    timetable, policies = found.timetable(), definition_of(found).terms.policies
    stored_at, missed = timetable.stored_at, policies.missed
    passed = stored_at if latest is None else max(latest - 1, stored_at)
    if found.is_paused:
        return lambda _time: True
    if not found.is_fired_by_server and missed.kept is Kept.SKIP:
        limit = now - policies.grace - GRACE_MARGIN_NS
        return lambda time: time <= passed or timetable.send_time_of(time) < limit
    made_up: int | None = None
    if not found.is_fired_by_server:
        if missed.kept is Kept.ONCE:
            made_up = timetable.latest_due(stored_at, now)
        elif missed.most is not None:
            made_up = timetable.latest_but(missed.most, stored_at, now)
    before = passed if made_up is None else max(passed, made_up - 1)
    return lambda time: time <= before


def _fire_times(number: int) -> str:
    return "1 fire time is" if number == 1 else f"{number:,} fire times are"


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
    change = Change(Kind.FIRED, stream, subject, sequence, sequence, author, now, (fire_time,), notes)
    if dry_run:
        return change
    published = await _stored(store, stream, found, await _stream_of(store, stream, found), block, body)
    if published.is_duplicate:
        return replace(change, kind=Kind.UNCHANGED, fires=(), notes=(STORED_ALREADY,))
    return await recorded(store, change)


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
    definition_of(found)
    now = store.now()
    stored = await store.fires(stream, found.message, since_ns, min(until_ns, now))
    times, notes = missing_fires(found, stored, since_ns, until_ns, now)
    if len(times) > limit:
        sentence = f"{subject}: {len(times):,} fires are missing, and at most {limit:,} are stored at once"
        raise NotPossibleError(f"{sentence}: name a shorter range, or a higher limit")
    sequence = found.sequence
    change = Change(Kind.BACKFILLED, stream, subject, sequence, sequence, author, now, times, notes)
    if not times:
        return replace(change, kind=Kind.UNCHANGED, notes=(NOTHING_MISSING, *notes))
    return change if dry_run else await _fill(store, served, found, change)


async def _fill(store: ScheduleStore, served: Served, found: Current, change: Change) -> Change:
    """Store the fires of a change, the oldest first, and record those that were stored."""
    stream, stored_at = change.stream, found.message.stored_at
    target_stream, source = await _stream_of(store, stream, found), await _sample(store, stream, found)
    is_own = not (found.is_paused or found.is_fired_by_server)
    done: list[int] = []
    known = 0
    try:
        for time in change.fires:
            is_missed = is_own and time > stored_at
            block, body = requested_fire(found, served, source, time, "backfill", is_missed=is_missed)
            if (await _stored(store, stream, found, target_stream, block, body)).is_duplicate:
                known += 1
            else:
                done.append(time)
    except ScheduleError:
        if done:
            await recorded(store, replace(change, fires=tuple(done), notes=(*change.notes, "it ended half-way")))
        raise
    notes = change.notes
    if known:
        notes = (*notes, f"{known} of the fires were stored meanwhile by a sidecar or another request")
    change = replace(change, fires=tuple(done), notes=notes)
    return await recorded(store, change) if done else replace(change, kind=Kind.UNCHANGED)


async def _stored(store: ScheduleStore, home: str, found: Current, stream: str, block: bytes, body: bytes) -> Published:
    """Store a fire once; one that was stored by an attempt that was not answered counts as stored now.

    `home` is the stream of the schedule, `stream` that of the target. A leader that is behind may
    refuse the guard although nobody changed the schedule.
    """
    target = definition_of(found).terms.target
    unanswered: UnknownOutcomeError | None = None
    behind: ScheduleError | None = None
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
        except ScheduleError as error:
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
