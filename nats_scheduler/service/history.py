"""The past, newest first: the fires of one schedule, read from its stream, and the advisories that a stream keeps.

The rule: what is returned is what is stored. Nothing is written down about fires beside the fires themselves. A message
that is no advisory is passed over: any client that may publish there can store one, so that none of them is a proof.
Where to look is the schedule's own target, as it is stored now, so that the server skips all other messages. A schedule
that is not stored any more has no target: then the caller names one, or all subjects are searched.
A target that is in another stream is searched there.

Cost: see `jetstream.stretches`; at most `MAX_MESSAGES_READ` messages are read for one answer, and other work of the
event loop goes on after each `MESSAGES_PER_TURN` of them.
Limit: fires that were stored on an earlier target of the schedule are found only if that one is named. The stream keeps
`failures_per_schedule` changes of each schedule, as of each kind of failure; a change that was made by another tool,
such as the `nats` CLI, is not recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nats_scheduler.control.changes import Change, read_change
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.foreign_json import read_object
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX, ADVISORY_TYPE, SCHEDULE_CHANGED, advisory_subject
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.fires import PastFire, PastFires, StoredSchedule
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered, is_literal_subject, subject_matches
from nats_scheduler.message.timetable import stored_timetable
from nats_scheduler.observe.documents import FailureDocument
from nats_scheduler.schedule.rfc3339 import format_rfc3339

DEFAULT_FIRES = 20
"""Fires of one answer, unless the caller wants another number."""

MAX_FIRES = 1_000
"""The most fires of one answer."""

MAX_MESSAGES_READ = 200_000
"""The most messages that are read for one answer; about two seconds."""

MESSAGES_PER_TURN = 64
"""Messages that are interpreted before other work of the event loop goes on: less than a millisecond."""

ALL_SUBJECTS = ">"


@dataclass(frozen=True, slots=True)
class FireQuery:
    """Which fires are wanted."""

    schedule: str
    limit: int = DEFAULT_FIRES
    since: int | None = None
    """Only fires that were stored at this time (ns) or later."""
    target: str | None = None
    """Where to look, wildcards allowed; None for the target of the schedule as it is stored."""


@dataclass(slots=True)
class FoundFires:
    """An answer."""

    searched: str
    """The subject that was searched."""
    stream: str
    """The stream that was searched: the sequences of the fires are its own."""
    fires: list[PastFire] = field(default_factory=list)
    """The newest first."""
    oldest_read: int | None = None
    """When (ns) the oldest message that was read was stored; None if none was read."""
    is_complete: bool = False
    """Whether all fires that match, up to the limit, were found; else there were too many messages to read them all."""


async def find_fires(
    connection: Connection, api: JetStreamApi, state: StreamState, query: FireQuery, rules: StreamRules | None = None
) -> FoundFires:
    """Find the past fires of a schedule; `state` is its stream as it was read just now.

    `rules` are those by which its messages are read; None for those of the stream's state.
    Raises `JetStreamError` if the server does not answer, or refuses.
    """
    stored = await _stored_schedule(api, state, rules or state.rules, query.schedule)
    searched = query.target or _target_of(stored, state)
    own, state = state, await _stream_with(api, state, searched)
    found = FoundFires(searched, state.name)
    if not await _is_anything_on(api, state.name, searched):
        found.is_complete = True
        return found
    is_native = own.is_native and state is own
    past = PastFires(
        query.schedule,
        is_native=is_native,
        stored=stored,
        is_moved=state.rules.moves_subjects,
        is_elsewhere=state is not own,
    )
    reader = StretchReader(connection, api, state.config, found.searched)
    number = 0
    async for chunk in reader.backwards(max(state.first_sequence, 1), state.last_sequence):
        if await _took_enough(chunk, past, query, found):
            found.is_complete = True
            return found
        number += len(chunk)
        if number >= MAX_MESSAGES_READ:
            _take(past.rest(is_all=False), query, found)
            return found
    _take(past.rest(is_all=True), query, found)
    found.is_complete = True
    return found


def _target_of(stored: StoredSchedule | None, state: StreamState) -> str:
    """Return where the fires of a schedule are, as far as that is known."""
    if stored is None:
        return ALL_SUBJECTS
    is_moved = state.rules.moves_subjects and stored.terms.policies.target_elsewhere is None
    return ALL_SUBJECTS if is_moved else stored.terms.target  # moved: stored on another subject than the target


async def _stream_with(api: JetStreamApi, state: StreamState, searched: str) -> StreamState:
    """Return the stream that has the searched subject: that of the schedule, unless it is another's."""
    if not is_literal_subject(searched) or is_covered(searched, state.rules.subjects):
        return state
    if state.rules.moves_subjects and await _is_anything_on(api, state.name, searched):
        return state
    info = await api.stream_with(searched)
    return state if info is None else StreamState.from_info(info)


async def _took_enough(chunk: Sequence[StoredMessage], past: PastFires, query: FireQuery, found: FoundFires) -> bool:
    """Read a chunk, some messages at a time; return whether no older message is needed."""
    for place, message in enumerate(chunk):
        if place % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
            await asyncio.sleep(0)
        found.oldest_read = message.stored_at
        _take(past.read(message), query, found)
        if len(found.fires) >= query.limit:
            return True
        if query.since is not None and message.stored_at < query.since and not past.awaits_older:
            return True
    return False


def _take(fires: Iterable[PastFire], query: FireQuery, found: FoundFires) -> None:
    for fire in fires:
        if len(found.fires) < query.limit and (query.since is None or fire.stored_at >= query.since):
            found.fires.append(fire)


async def _is_anything_on(api: JetStreamApi, stream: str, subject: str) -> bool:
    """Return whether a stream holds a message on a subject; no consumer may filter by one that it cannot hold."""
    if subject == ALL_SUBJECTS:
        return True
    return await api.message(stream, seq=1, next_by_subj=subject) is not None


async def _stored_schedule(
    api: JetStreamApi, state: StreamState, rules: StreamRules, subject: str
) -> StoredSchedule | None:
    """Return the schedule that is stored on a subject, paused or not; None if there is none, or an invalid one."""
    message = await last_on(api, state.name, subject)
    if message is None or message.subject != subject:
        return None
    reading = read_message(message.block, subject, message.stored_at, rules, DIALECTS)
    definition = None if reading is None else reading.definition
    if reading is not None and reading.paused is not None and isinstance(reading.paused.resumed, Definition):
        definition = reading.paused.resumed
    if definition is None:
        return None
    (pattern, terms), sequence = definition, message.sequence
    timetable = stored_timetable(pattern, terms.policies, message.stored_at, subject, sequence)
    return StoredSchedule(sequence, timetable, terms)


# -- what went wrong ------------------------------------------------------------------------------------------------

DEFAULT_FAILURES = 20
"""Failures of one answer, unless the caller wants another number."""

MAX_FAILURES = 1_000
"""The most failures of one answer."""


@dataclass(frozen=True, slots=True)
class FailureQuery:
    """Which failures are wanted."""

    stream: str | None = None
    """Only those about this stream."""
    schedule: str | None = None
    """Only those about schedules on this subject, wildcards allowed."""
    limit: int = DEFAULT_FAILURES
    since: int | None = None
    """Only what was stored at this time (ns) or later."""


@dataclass(frozen=True, slots=True)
class KeptFailure:
    """An advisory that is stored."""

    kind: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch."""
    stream: str
    schedule: str | None
    """The subject of the schedule, or of the message; None if it is about neither."""
    body: Mapping[str, Any]


@dataclass(slots=True)
class FoundFailures:
    """An answer."""

    failures: list[KeptFailure] = field(default_factory=list)
    """The newest first."""
    is_complete: bool = True
    """Whether all failures that match, up to the limit, were found."""


async def find_failures(
    connection: Connection, api: JetStreamApi, kept_in: StreamState, query: FailureQuery
) -> FoundFailures:
    """Find what went wrong; `kept_in` is the stream that keeps advisories, as it was read just now.

    Raises `JetStreamError` if the server does not answer, or refuses.
    """
    return await find_kept(connection, api, kept_in, query, "*", lambda one: one.kind != SCHEDULE_CHANGED)


async def find_kept(
    connection: Connection,
    api: JetStreamApi,
    kept_in: StreamState,
    query: FailureQuery,
    kind: str,
    is_wanted: Callable[[KeptFailure], bool],
) -> FoundFailures:
    """Find advisories of a kind, `*` for any, of which those are returned that are wanted."""
    # One after the other: a server of 2.10 counts wrongly what is pending for a consumer with two filters.
    parts = [await _on(connection, api, kept_in, subject, query, is_wanted) for subject in _subjects(query, kind)]
    found = [failure for part in parts for failure in part.failures]
    found.sort(key=lambda failure: -failure.sequence)
    return FoundFailures(found[: query.limit], all(part.is_complete for part in parts))


async def _on(
    connection: Connection,
    api: JetStreamApi,
    kept_in: StreamState,
    subject: str,
    query: FailureQuery,
    is_wanted: Callable[[KeptFailure], bool],
) -> FoundFailures:
    """Find advisories on one of the subjects."""
    found = FoundFailures()
    reader = StretchReader(connection, api, kept_in.config, subject, headers_only=False)
    number = 0
    async for chunk in reader.backwards(max(kept_in.first_sequence, 1), kept_in.last_sequence):
        for place, message in enumerate(chunk):
            if place % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
                await asyncio.sleep(0)
            if query.since is not None and message.stored_at < query.since:
                return found
            failure = read_failure(message)
            if failure is not None and _matches(failure, query) and is_wanted(failure):
                found.failures.append(failure)
            if len(found.failures) >= query.limit:
                return found
        number += len(chunk)
        if number >= MAX_MESSAGES_READ:
            found.is_complete = False
            return found
    return found


def failure_document(failure: KeptFailure) -> FailureDocument:
    """Return what went wrong."""
    return {
        "kind": failure.kind,
        "stored": format_rfc3339(failure.stored_at),
        "sequence": failure.sequence,
        "stream": failure.stream,
        "schedule": failure.schedule,
        "advisory": dict(failure.body),
    }


def _subjects(query: FailureQuery, kind: str) -> list[str]:
    """Return where the advisories are: with the schedule behind the stream, or without it if it cannot be there."""
    if query.stream is None and query.schedule is None:
        return [f"{ADVISORY_PREFIX}.>" if kind == "*" else f"{ADVISORY_PREFIX}.{kind}.>"]
    general = f"{ADVISORY_PREFIX}.{kind}.{query.stream or '*'}"
    if query.schedule is None:
        return [general, f"{general}.>"]
    return [general, f"{general}.{query.schedule}"]


def _matches(failure: KeptFailure, query: FailureQuery) -> bool:
    if query.stream is not None and failure.stream != query.stream:
        return False
    return query.schedule is None or (
        failure.schedule is not None and subject_matches(failure.schedule, query.schedule)
    )


def read_failure(message: StoredMessage) -> KeptFailure | None:
    """Return the advisory that a message is; None if it is none, or is not on its own subject."""
    body = read_object(message.body or b"")
    if body is None:
        return None
    kind, stream = str(body.get("type")).removeprefix(f"{ADVISORY_TYPE}."), body.get("stream")
    about = body.get("schedule") or body.get("subject")
    if not isinstance(stream, str) or not isinstance(about, str | None):
        return None
    if message.subject != advisory_subject(kind, stream, about or ""):
        return None
    return KeptFailure(kind, message.sequence, message.stored_at, stream, about, body)


# -- who changed which schedule, when and why -----------------------------------------------------------------------

ChangeQuery = FailureQuery
"""Which changes are wanted: the same can be asked as of failures."""


@dataclass(frozen=True, slots=True)
class KeptChange:
    """A change that is recorded."""

    change: Change
    sequence: int
    """That of the advisory, in the stream that keeps it."""
    stored_at: int
    """When the advisory was stored (ns)."""


@dataclass(slots=True)
class FoundChanges:
    """An answer."""

    changes: list[KeptChange] = field(default_factory=list)
    """The newest first."""
    is_complete: bool = True
    """Whether all changes that match, up to the limit, were found."""


async def find_changes(
    connection: Connection, api: JetStreamApi, kept_in: StreamState, query: ChangeQuery
) -> FoundChanges:
    """Find recorded changes; `kept_in` is the stream that keeps advisories, as it was read just now.

    Raises `JetStreamError` if the server does not answer, or refuses.
    """
    found = await find_kept(
        connection, api, kept_in, query, SCHEDULE_CHANGED, lambda one: read_change(one.body) is not None
    )
    changes = [(read_change(one.body), one) for one in found.failures]
    kept = [KeptChange(change, one.sequence, one.stored_at) for change, one in changes if change is not None]
    return FoundChanges(kept, found.is_complete)
