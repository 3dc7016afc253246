"""The past, newest first: the fires of one schedule, read from its stream, and the advisories that a stream keeps.

The rule: what is returned is what is stored. Nothing is written down about fires beside the fires themselves.
Both are read from streams, so any instance answers, also of what another one fires; and commands read with the same
code if none answers.

Cost: see `control.past` and `service.advisories`.
"""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from nats_scheduler.control.past import FirePast, FireQuery
from nats_scheduler.control.port import Served
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.observe.documents import FailuresDocument, PastFireDocument, Rows, Time, past_fire_document
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.advisories import AdvisoryQuery, find_failures
from nats_scheduler.service.endpoint import Asked, Document, not_served, shown, with_items
from nats_scheduler.service.micro import NOT_FOUND, ServiceError
from nats_scheduler.service.schemas import Answer, Instant, Request, ScheduleRequest, SubjectFilter, TargetFilter

DEFAULT_ROWS = 20
"""Fires or advisories of one answer, unless the caller wants another number."""

MAX_ROWS = 1_000
"""The most of them in one answer."""

Since = Annotated[
    Instant | None,
    Field(description="Only what was stored at this time, RFC 3339, or later; null for all."),
]


class FiresRequest(ScheduleRequest):
    """A request for the past fires of a schedule, newest first; the schedule itself may be gone."""

    since: Since = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="The most fires.")] = DEFAULT_ROWS
    target: Annotated[
        TargetFilter, Field(description="Where to look, wildcards allowed; null for the target of the stored schedule.")
    ] = None


class FailuresRequest(Request):
    """A request for what went wrong, newest first."""

    stream: Annotated[
        str | None,
        Field(pattern=r"^[^\s.*>/\\]+$", max_length=255, description="Only failures about this stream; null for all."),
    ] = None
    subject: Annotated[
        SubjectFilter,
        Field(description="Only failures about schedules on this subject, wildcards allowed."),
    ] = None
    since: Since = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="The most failures.")] = DEFAULT_ROWS


class FiresDocument(TypedDict):
    """The past fires of a schedule, newest first."""

    stream: str
    schedule: str | None
    """Null if the fires of all schedules of the stream were wanted."""
    searched: str
    """The subject that was searched."""
    complete: bool
    """True if all fires up to the limit are here: they fit into the answer, and not too many messages were read."""
    oldest_read: Time | None
    """The time at which the oldest message that was read was stored; null if none was."""
    fires: Rows[PastFireDocument]


class FiresAnswer(Answer, FiresDocument):
    """The past fires of a schedule, newest first."""


class FailuresAnswer(Answer, FailuresDocument):
    """Failures, newest first."""


async def list_fires(asked: Asked, request: FiresRequest) -> Document:
    """Return the past fires of a schedule, newest first."""
    served = asked.streams.get(request.stream)
    if served is None:
        raise ServiceError(NOT_FOUND, not_served(request.stream))
    query = FireQuery(request.subject, request.limit, request.since, request.target)
    state = replace(await _stream(asked, request.stream), remembered=served.state.remembered)
    return await _with_rows(asked, await find_fires(asked.connection, asked.api, state, query), "fires")


async def list_failures(asked: Asked, request: FailuresRequest) -> Document:
    """Return what went wrong, newest first."""
    kept_in = asked.failures_stream
    if kept_in is None:
        raise ServiceError(NOT_FOUND, "no stream keeps failures: keep_failures is false")
    query = AdvisoryQuery(request.stream, request.subject, request.limit, request.since)
    found = await find_failures(asked.connection, asked.api, await _stream(asked, kept_in), query)
    return await _with_rows(asked, found, "failures")


async def _with_rows(asked: Asked, document: FiresDocument | FailuresDocument, key: str) -> Document:
    """Return an answer, with as many of the rows below a key as fit into it."""
    head: dict[str, Any] = {**asked.head(), **document}
    rows = head.pop(key)
    items = await asked.encoded(rows, dict)
    return with_items({**head, "complete": head["complete"] and len(items) == len(rows)}, key, items)


async def _stream(asked: Asked, name: str) -> StreamState:
    info = await asked.api.stream(name)
    if info is None:
        raise ServiceError(NOT_FOUND, f"stream {shown(name)} does not exist")
    return StreamState.from_info(info)


async def find_fires(connection: Connection, api: JetStreamApi, state: StreamState, query: FireQuery) -> FiresDocument:
    """Find the past fires of a schedule; `state` is its stream as it was read just now, whether it is served or not.

    What the operator forbids by now may have fired before, so that its messages are read without restrictions.
    Raises `ScheduleError` if the server does not answer, or refuses.
    """
    served = Served(state.rules, tuple(DIALECTS), state.is_native)
    found = await FirePast(ScheduleWire(connection, api), served).find(query)
    return {
        "stream": state.name,
        "schedule": query.schedule,
        "searched": found.searched,
        "complete": found.is_complete,
        "oldest_read": None if found.oldest_read is None else format_rfc3339(found.oldest_read),
        "fires": [past_fire_document(found.stream, fire) for fire in found.fires],
    }
