"""The past, newest first: the fires of one schedule, read from its stream, and the advisories that a stream keeps.

The rule: what is returned is what is stored. Nothing is written down about fires beside the fires themselves.
Both are read from streams, so any instance answers, also of what another one fires; and commands read with the same
code if none answers.

Cost: see `control.past` and `service.stored_advisories`.
"""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from nats_scheduler.control.change_advisory import read_change
from nats_scheduler.control.changes import Change
from nats_scheduler.control.past import DEFAULT_ROWS, MAX_ROWS, FirePast, FireQuery
from nats_scheduler.control.store_port import Served
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.observe.documents import (
    ChangeDocument,
    FailureDocument,
    FailuresDocument,
    Number,
    PastFireDocument,
    Rows,
    Time,
    change_document,
    past_fire_document,
)
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoded_items import with_items
from nats_scheduler.service.endpoint import Asked, Document, not_served, shown
from nats_scheduler.service.micro import NOT_FOUND, ServiceError
from nats_scheduler.service.schemas import Answer, Instant, Request, ScheduleRequest, SubjectFilter, TargetFilter
from nats_scheduler.service.stored_advisories import AdvisoryQuery, find_changes, find_failures

Since = Annotated[
    Instant | None,
    Field(description="Only what was stored at this time, RFC 3339, or later; null for all."),
]


Until = Annotated[
    Instant | None,
    Field(description="Only what was stored before this time, RFC 3339; null for all."),
]

Before = Annotated[
    int | None,
    Field(
        ge=1,
        le=(1 << 63) - 1,
        description="Only what has a smaller sequence: `older` of the answer before; null for all.",
    ),
]


class FiresRequest(ScheduleRequest):
    """A request for the past fires of a schedule, newest first; the schedule itself may be gone."""

    since: Since = None
    until: Until = None
    before: Before = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="The most fires.")] = DEFAULT_ROWS
    target: Annotated[
        TargetFilter, Field(description="Where to look, wildcards allowed; null for the target of the stored schedule.")
    ] = None


class AdvisoriesRequest(Request):
    """A request for advisories that are kept, newest first."""

    stream: Annotated[
        str | None,
        Field(pattern=r"^[^\s.*>/\\]+$", max_length=255, description="Only what is about this stream; null for all."),
    ] = None
    subject: Annotated[
        SubjectFilter,
        Field(description="Only what is about schedules on this subject, wildcards allowed."),
    ] = None
    since: Since = None
    until: Until = None
    before: Before = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="The most of them.")] = DEFAULT_ROWS


class FailuresRequest(AdvisoriesRequest):
    """A request for what went wrong, newest first."""

    kind: Annotated[
        str | None,
        Field(pattern=r"^[a-z_]+$", max_length=64, description="Only failures of this kind; null for all."),
    ] = None


class ChangesRequest(AdvisoriesRequest):
    """A request for who changed which schedule, newest first."""


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
    older: Number | None
    """The sequence before which there may be older fires that match; null if there are none."""
    fires: Rows[PastFireDocument]


class FiresAnswer(Answer, FiresDocument):
    """The past fires of a schedule, newest first."""


class FailuresAnswer(Answer, FailuresDocument):
    """Failures, newest first."""


class KeptChangeDocument(ChangeDocument):
    """A change, as it is kept: the names of those who ask for one are vouched for by nothing."""

    stored: Time
    kept_as: Number
    """Its sequence in the stream that keeps it."""


class ChangesDocument(TypedDict):
    """Changes, newest first."""

    kept_in: str
    """The stream that keeps them."""
    complete: bool
    """True if all changes up to the limit are here."""
    older: Number | None
    """The sequence before which there may be older ones that match; null if there are none."""
    changes: Rows[KeptChangeDocument]


class ChangesAnswer(Answer, ChangesDocument):
    """Changes, newest first, as `nats-scheduler changes --json` prints them."""


async def list_fires(asked: Asked, request: FiresRequest) -> Document:
    """Return the past fires of a schedule, newest first."""
    state = await stream_of_fires(asked, request.stream)
    query = FireQuery(request.subject, request.limit, request.since, request.target, request.until, request.before)
    return await _with_rows(asked, await find_fires(asked.connection, asked.api, state, query), "fires")


async def list_failures(asked: Asked, request: FailuresRequest) -> Document:
    """Return what went wrong, newest first."""
    query = replace(_query(request), kind=request.kind)
    found = await find_failures(asked.connection, asked.api, await _kept_in(asked), query)
    return await _with_rows(asked, found, "failures")


async def list_changes(asked: Asked, request: ChangesRequest) -> Document:
    """Return who changed which schedule, when and why, newest first."""
    found = await find_changes(asked.connection, asked.api, await _kept_in(asked), _query(request))
    return await _with_rows(asked, changes_document(found), "changes")


def kept_changes(found: FailuresDocument) -> list[tuple[FailureDocument, Change]]:
    """Return the changes among the advisories that are kept, each with its advisory."""
    return [(one, change) for one in found["failures"] if (change := read_change(one["advisory"])) is not None]


def changes_document(found: FailuresDocument) -> ChangesDocument:
    """Describe the changes among the advisories that are kept."""
    changes: list[KeptChangeDocument] = [
        {"stored": one["stored"], "kept_as": one["sequence"], **change_document(change)}
        for one, change in kept_changes(found)
    ]
    return {
        "kept_in": found["kept_in"],
        "complete": found["complete"],
        "older": found["older"],
        "changes": changes,
    }


def _query(request: AdvisoriesRequest) -> AdvisoryQuery:
    return AdvisoryQuery(request.stream, request.subject, request.limit, request.since, request.until, request.before)


async def stream_of_fires(asked: Asked, name: str) -> StreamState:
    """Return a stream as it is now, to read the fires of its schedules; raises `ServiceError` if it is not served."""
    served = asked.known_stream(name)
    if served is None:
        raise ServiceError(NOT_FOUND, not_served(name))
    return replace(await _stream(asked, name), remembered=served.state.remembered)


async def _kept_in(asked: Asked) -> StreamState:
    """Return the stream that keeps advisories; raises `ServiceError` if there is none."""
    if asked.failures_stream is None:
        raise ServiceError(NOT_FOUND, "no stream keeps failures: keep_failures is false")
    return await _stream(asked, asked.failures_stream)


async def _with_rows(asked: Asked, document: FiresDocument | FailuresDocument | ChangesDocument, key: str) -> Document:
    """Return an answer, with as many of the rows below a key as fit into it."""
    head: dict[str, Any] = {**asked.head(), **document}
    rows = head.pop(key)
    items = await asked.encoded(rows, dict)
    if 0 < len(items) < len(rows):
        last = rows[len(items) - 1]
        head |= {"complete": False, "older": last.get("kept_as", last.get("sequence"))}
    return with_items(head, key, items)


async def _stream(asked: Asked, name: str) -> StreamState:
    info = await asked.api.stream(name)
    if info is None:
        raise ServiceError(NOT_FOUND, f"stream {shown(name)} does not exist")
    return StreamState.from_info(info)


def fire_past(connection: Connection, api: JetStreamApi, state: StreamState) -> FirePast:
    """Return what reads the fires of the schedules of a stream.

    What the operator forbids by now may have fired before, so that its messages are read without restrictions.
    """
    return FirePast(ScheduleWire(connection, api), Served(state.rules, tuple(DIALECTS), state.is_native))


async def find_fires(connection: Connection, api: JetStreamApi, state: StreamState, query: FireQuery) -> FiresDocument:
    """Find the past fires of a schedule; `state` is its stream as it was read just now, whether it is served or not.

    What the operator forbids by now may have fired before, so that its messages are read without restrictions.
    Raises `SchedulerError` if the server does not answer, or refuses.
    """
    found = await fire_past(connection, api, state).find(query)
    return {
        "stream": state.name,
        "schedule": query.schedule,
        "searched": found.searched,
        "complete": found.is_complete,
        "oldest_read": None if found.oldest_read is None else format_rfc3339(found.oldest_read),
        "older": found.older,
        "fires": [past_fire_document(found.stream, fire) for fire in found.fires],
    }
