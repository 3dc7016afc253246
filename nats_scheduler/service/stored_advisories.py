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
from nats_scheduler.control.past import ALL_SUBJECTS, MAX_MESSAGES_READ, last_before
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
    until: int | None = None
    """Only what was stored before this time (ns)."""
    before: int | None = None
    """Only what has a smaller sequence: `older` of the answer before."""
    kind: str | None = None
    """Only failures of this kind."""


async def find_failures(
    connection: Connection, api: JetStreamApi, kept_in: StreamState, query: AdvisoryQuery
) -> FailuresDocument:
    """Find what went wrong; `kept_in` is the stream that keeps advisories, as it was read just now.

    Raises `SchedulerError` if the server does not answer, or refuses.
    """
    kind = query.kind or "*"
    return await _find(connection, api, kept_in, query, kind, lambda one: one["kind"] != SCHEDULE_CHANGED)


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
    unread = 0
    last = await _last(api, kept_in, query)
    # One after the other: a server of 2.10 counts wrongly what is pending for a consumer with two filters.
    for subject in _subjects(query, kind):
        found, read_down_to = await _on(connection, api, kept_in, subject, last, query, is_wanted)
        rows += found
        unread = max(unread, read_down_to - 1)
    rows = sorted((one for one in rows if one["sequence"] > unread), key=lambda advisory: -advisory["sequence"])
    older = unread + 1 if unread else None
    if len(rows) >= query.limit:
        older = rows[query.limit - 1]["sequence"]
    return {"kept_in": kept_in.name, "complete": not unread, "older": older, "failures": rows[: query.limit]}


async def _last(api: JetStreamApi, kept_in: StreamState, query: AdvisoryQuery) -> int:
    """Return the last sequence that a query concerns."""
    last = kept_in.last_sequence if query.before is None else min(query.before - 1, kept_in.last_sequence)

    async def stored_at(sequence: int) -> int | None:
        message = await api.message(kept_in.name, seq=sequence, next_by_subj=ALL_SUBJECTS)
        return None if message is None else message.stored_at

    if query.until is None:
        return last
    return await last_before(query.until, max(kept_in.first_sequence, 1), last, stored_at)


async def _on(
    connection: Connection,
    api: JetStreamApi,
    kept_in: StreamState,
    subject: str,
    last: int,
    query: AdvisoryQuery,
    is_wanted: Callable[[FailureDocument], bool],
) -> tuple[list[FailureDocument], int]:
    """Find advisories on one of the subjects, from a sequence down.

    Returns them, and the sequence down to which all were read, 1 if no older one is wanted.
    """
    found: list[FailureDocument] = []
    reader = StretchReader(connection, api, kept_in.config, subject, headers_only=False)
    number = 0
    async for chunk in reader.backwards(max(kept_in.first_sequence, 1), last):
        for place, message in enumerate(chunk):
            if place % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
                await asyncio.sleep(0)
            if query.since is not None and message.stored_at < query.since:
                return found, 1
            advisory = _read(message)
            if advisory is not None and _matches(advisory, query) and is_wanted(advisory):
                found.append(advisory)
            if len(found) >= query.limit:
                return found, 1
        number += len(chunk)
        if number >= MAX_MESSAGES_READ:
            return found, chunk[-1].sequence
    return found, 1


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
