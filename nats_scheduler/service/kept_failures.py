"""What went wrong, newest first, read from the stream that keeps the advisories.

The rule: what is returned is what sidecars published. A message that is no advisory is passed over: any client that may
publish there can store one. So is the advisory of a change, where nothing went wrong (`service.kept_changes`).
Cost: see `jetstream.backwards`; the server filters by stream and schedule, and the stream is small.
Limit: at most `MAX_MESSAGES_READ` messages are read for one answer.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.backwards import BackwardReader
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.foreign_json import read_object
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.advisory_messages import (
    ADVISORY_PREFIX,
    ADVISORY_TYPE,
    SCHEDULE_CHANGED,
    advisory_subject,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.observe.documents import FailureDocument
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.fire_history import MAX_MESSAGES_READ, MESSAGES_PER_TURN

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
    reader = BackwardReader(connection, api, kept_in.config, subject, headers_only=False)
    number = 0
    async for chunk in reader.chunks(max(kept_in.first_sequence, 1), kept_in.last_sequence):
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
