"""The advisories that a stream keeps, newest first: what went wrong with schedules, and who changed which.

The rule: what is returned is what is stored. A message that is no advisory is passed over: any client that may publish
there can store one, so that none of them is a proof.
Cost: see `jetstream.stretches`; at most `MAX_MESSAGES_READ` messages are read for one answer, about two seconds, and
other work of the event loop goes on after each `MESSAGES_PER_TURN` of them.
Limit: the stream keeps `failures_per_schedule` changes of each schedule, as of each kind of failure; a change that was
made by another tool, such as the `nats` CLI, is not recorded.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nats_scheduler.control.change_advisory import read_change
from nats_scheduler.control.past import MAX_MESSAGES_READ
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.schedule_wire import MESSAGES_PER_TURN
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX, ADVISORY_TYPE, SCHEDULE_CHANGED, advisory_subject
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.headers import RELAYED, header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.observe.documents import FailureDocument, FailuresDocument
from nats_scheduler.schedule.rfc3339 import format_rfc3339

MAX_ANNOUNCED = 100
"""Most advisories of one kind that the doctor reads."""


@dataclass(frozen=True, slots=True)
class AdvisoryQuery:
    """Which advisories are wanted."""

    stream: str | None = None
    """Only those about this stream."""
    schedule: str | None = None
    """Only those about schedules on this subject, wildcards allowed."""
    limit: int = 20
    since: int | None = None
    """Only what was stored at this time (ns) or later."""


async def find_failures(
    connection: Connection, api: JetStreamApi, kept_in: StreamState, query: AdvisoryQuery
) -> FailuresDocument:
    """Find what went wrong; `kept_in` is the stream that keeps advisories, as it was read just now.

    Raises `JetStreamError` if the server does not answer, or refuses.
    """
    return await _find(connection, api, kept_in, query, "*", lambda one: one["kind"] != SCHEDULE_CHANGED)


async def find_changes(
    connection: Connection, api: JetStreamApi, kept_in: StreamState, query: AdvisoryQuery
) -> FailuresDocument:
    """Find who changed which schedule, when and why, as `find_failures` finds what went wrong."""

    def is_change(one: FailureDocument) -> bool:
        return read_change(one["advisory"]) is not None

    return await _find(connection, api, kept_in, query, SCHEDULE_CHANGED, is_change)


async def find_announced(
    connection: Connection, api: JetStreamApi, kept_in: StreamState, kinds: Iterable[str], since: int
) -> list[FailureDocument]:
    """Find the advisories of these kinds that were stored since an instant (ns), at most `MAX_ANNOUNCED` of each."""
    query, found = AdvisoryQuery(limit=MAX_ANNOUNCED, since=since), list[FailureDocument]()
    for kind in kinds:
        found += (await _find(connection, api, kept_in, query, kind, lambda _one: True))["failures"]
    return found


async def _find(
    connection: Connection,
    api: JetStreamApi,
    kept_in: StreamState,
    query: AdvisoryQuery,
    kind: str,
    is_wanted: Callable[[FailureDocument], bool],
) -> FailuresDocument:
    """Find advisories of a kind, `*` for any, of which those are returned that are wanted."""
    rows: list[FailureDocument] = []
    is_complete = True
    # One after the other: a server of 2.10 counts wrongly what is pending for a consumer with two filters.
    for subject in _subjects(query, kind):
        found, is_all = await _on(connection, api, kept_in, subject, query, is_wanted)
        rows += found
        is_complete = is_complete and is_all
    rows.sort(key=lambda advisory: -advisory["sequence"])
    return {"kept_in": kept_in.name, "complete": is_complete, "failures": rows[: query.limit]}


async def _on(
    connection: Connection,
    api: JetStreamApi,
    kept_in: StreamState,
    subject: str,
    query: AdvisoryQuery,
    is_wanted: Callable[[FailureDocument], bool],
) -> tuple[list[FailureDocument], bool]:
    """Find advisories on one of the subjects; return them, and whether all up to the limit were found."""
    found: list[FailureDocument] = []
    reader = StretchReader(connection, api, kept_in.config, subject, headers_only=False)
    number = 0
    async for chunk in reader.backwards(max(kept_in.first_sequence, 1), kept_in.last_sequence):
        for place, message in enumerate(chunk):
            if place % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
                await asyncio.sleep(0)
            if query.since is not None and message.stored_at < query.since:
                return found, True
            advisory = _read(message)
            if advisory is not None and _matches(advisory, query) and is_wanted(advisory):
                found.append(advisory)
            if len(found) >= query.limit:
                return found, True
        number += len(chunk)
        if number >= MAX_MESSAGES_READ:
            return found, False
    return found, True


def _subjects(query: AdvisoryQuery, kind: str) -> list[str]:
    """Return where the advisories are: with the schedule behind the stream, or without it if it cannot be there."""
    if query.stream is None and query.schedule is None:
        return [f"{ADVISORY_PREFIX}.>" if kind == "*" else f"{ADVISORY_PREFIX}.{kind}.>"]
    general = f"{ADVISORY_PREFIX}.{kind}.{query.stream or '*'}"
    if query.schedule is None:
        return [general, f"{general}.>"]
    return [general, f"{general}.{query.schedule}"]


def _matches(advisory: FailureDocument, query: AdvisoryQuery) -> bool:
    if query.stream is not None and advisory["stream"] != query.stream:
        return False
    return query.schedule is None or (
        advisory["schedule"] is not None and subject_matches(advisory["schedule"], query.schedule)
    )


def _read(message: StoredMessage) -> FailureDocument | None:
    """Return the advisory that a message is; None if it is none, is not on its own subject, or was directed there."""
    body = read_object(message.body or b"")
    if body is None or header_value(message.block, RELAYED) is not None:
        return None
    kind, stream = str(body.get("type")).removeprefix(f"{ADVISORY_TYPE}."), body.get("stream")
    about = body.get("schedule") or body.get("subject")
    if not isinstance(stream, str) or not isinstance(about, str | None):
        return None
    if message.subject != advisory_subject(kind, stream, about or ""):
        return None
    return {
        "kind": kind,
        "stored": format_rfc3339(message.stored_at),
        "sequence": message.sequence,
        "stream": stream,
        "schedule": about,
        "advisory": body,
    }
