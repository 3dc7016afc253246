"""The endpoints about the past: the fires of one schedule, and what went wrong.

The rule: both are read from streams, so any instance answers them, also of what another one fires.
Cost: see `jetstream.stretches`. Between two requests to the server, at most `service.history.MESSAGES_PER_TURN`
messages are interpreted at once.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.stream_rules import UNRESTRICTED
from nats_scheduler.observe.documents import FailureDocument, PastFireDocument, Rows, Time, past_fire_document
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.endpoint import Asked, Document, not_served, shown, with_items
from nats_scheduler.service.history import (
    DEFAULT_FAILURES,
    DEFAULT_FIRES,
    MAX_FAILURES,
    MAX_FIRES,
    FailureQuery,
    FireQuery,
    failure_document,
    find_failures,
    find_fires,
)
from nats_scheduler.service.micro import NOT_FOUND, UNAVAILABLE, ServiceError
from nats_scheduler.service.schemas import Answer, Instant, Request, ScheduleRequest, SubjectFilter, TargetFilter

Since = Annotated[
    Instant | None,
    Field(description="Only what was stored at this time, RFC 3339, or later; null for all."),
]


class FiresRequest(ScheduleRequest):
    """A request for the past fires of a schedule, newest first; the schedule itself may be gone."""

    since: Since = None
    limit: Annotated[int, Field(ge=1, le=MAX_FIRES, description="The most fires.")] = DEFAULT_FIRES
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
    limit: Annotated[int, Field(ge=1, le=MAX_FAILURES, description="The most failures.")] = DEFAULT_FAILURES


class FiresAnswer(Answer):
    """The past fires of a schedule, newest first."""

    stream: str
    schedule: str
    searched: str
    """The subject that was searched."""
    complete: bool
    """Whether all fires up to the limit are here: they fit into the answer, and not too many messages were read."""
    oldest_read: Time | None
    """When the oldest message that was read was stored; null if none was."""
    fires: Rows[PastFireDocument]


class FailuresAnswer(Answer):
    """What went wrong, newest first."""

    kept_in: str
    """The stream that keeps it."""
    complete: bool
    """Whether all failures up to the limit are here."""
    failures: Rows[FailureDocument]


async def list_fires(asked: Asked, request: FiresRequest) -> Document:
    """Return the past fires of a schedule, newest first."""
    served = asked.deployment.streams().get(request.stream)
    if served is None:
        raise ServiceError(NOT_FOUND, not_served(request.stream))
    query = FireQuery(request.subject, request.limit, request.since, request.target)
    try:
        state = await _stream(asked, request.stream)
        # What the operator forbids by now may have fired before; the command reads without restrictions too.
        rules = replace(served.rules, restrictions=UNRESTRICTED)
        found = await find_fires(asked.connection, asked.api, state, query, rules)
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, str(error)) from None
    items = await asked.encoded(found.fires, lambda fire: past_fire_document(found.stream, fire))
    answer = {
        **asked.head(),
        "stream": request.stream,
        "schedule": request.subject,
        "searched": found.searched,
        "complete": found.is_complete and len(items) == len(found.fires),
        "oldest_read": None if found.oldest_read is None else format_rfc3339(found.oldest_read),
    }
    return with_items(answer, "fires", items)


async def list_failures(asked: Asked, request: FailuresRequest) -> Document:
    """Return what went wrong, newest first."""
    kept_in = asked.deployment.failures_stream
    if kept_in is None:
        raise ServiceError(NOT_FOUND, "no stream keeps failures: keep_failures is false")
    query = FailureQuery(request.stream, request.subject, request.limit, request.since)
    try:
        found = await find_failures(asked.connection, asked.api, await _stream(asked, kept_in), query)
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, str(error)) from None
    items = await asked.encoded(found.failures, failure_document)
    answer = {
        **asked.head(),
        "kept_in": kept_in,
        "complete": found.is_complete and len(items) == len(found.failures),
    }
    return with_items(answer, "failures", items)


async def _stream(asked: Asked, name: str) -> StreamState:
    info = await asked.api.stream(name)
    if info is None:
        raise ServiceError(NOT_FOUND, f"stream {shown(name)} does not exist")
    return StreamState.from_info(info)
