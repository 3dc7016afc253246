"""The endpoints about the past: the fires of one schedule, and what went wrong.

The rule: both are read from streams, so any instance answers them, also of what another one fires.
Cost: see `jetstream.backwards`. Between two requests to the server, at most `service.fire_history.MESSAGES_PER_TURN`
messages are interpreted at once.
"""

from dataclasses import replace

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import time_of
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.restrictions import UNRESTRICTED
from nats_scheduler.observe.documents import past_fire_document
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document, shown
from nats_scheduler.service.fire_history import FireQuery, find_fires
from nats_scheduler.service.kept_failures import FailureQuery, failure_document, find_failures
from nats_scheduler.service.micro import NOT_FOUND, UNAVAILABLE, ServiceError
from nats_scheduler.service.past_schemas import FailuresRequest, FiresRequest


async def list_fires(asked: Asked, request: FiresRequest) -> Document:
    """Return the past fires of a schedule, newest first."""
    served = asked.deployment.streams().get(request.stream)
    if served is None:
        raise ServiceError(
            NOT_FOUND, f"stream {shown(request.stream)} is not served: one that streams.list names is expected"
        )
    query = FireQuery(request.subject, request.limit, time_of(request.since), request.target)
    try:
        state = await _stream(asked, request.stream)
        # What the operator forbids by now may have fired before; the command reads without restrictions too.
        rules = replace(served.rules, restrictions=UNRESTRICTED)
        found = await find_fires(asked.connection, asked.api, state, query, rules)
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, str(error)) from None
    documents = encode_items(found.fires, lambda fire: past_fire_document(found.stream, fire), asked.room - FRAME_BYTES)
    items = await asked.turns.run(documents)
    answer = {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
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
    query = FailureQuery(request.stream, request.subject, request.limit, time_of(request.since))
    try:
        found = await find_failures(asked.connection, asked.api, await _stream(asked, kept_in), query)
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, str(error)) from None
    items = await asked.turns.run(encode_items(found.failures, failure_document, asked.room - FRAME_BYTES))
    answer = {
        "at": format_rfc3339(asked.deployment.now()),
        "instance": asked.deployment.instance,
        "kept_in": kept_in,
        "complete": found.is_complete and len(items) == len(found.failures),
    }
    return with_items(answer, "failures", items)


async def _stream(asked: Asked, name: str) -> StreamState:
    info = await asked.api.stream(name)
    if info is None:
        raise ServiceError(NOT_FOUND, f"stream {shown(name)} does not exist")
    return StreamState.from_info(info)
