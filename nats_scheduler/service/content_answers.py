"""The endpoint that answers contents: the body and all headers of one schedule, or of one of its fires.

The rules:

- It answers what a schedule is, or a message that was to be one, and what is a fire: nobody reads other messages with
  the permissions of the sidecar.
- Bodies may hold secrets, so the operator can switch it off (`show_contents`), and it has a subject of its own, which
  permissions can deny.
- An answer is as long as the server takes, whatever is stored.

Cost: one request to the server, two for a fire; a message of a megabyte takes some milliseconds of the process.
"""

import json
from typing import Annotated

from pydantic import Field

from nats_scheduler.control.errors import StreamNotFoundError
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.message_contents import ContentDocument, content_document
from nats_scheduler.service.endpoint import Asked, Document, shown
from nats_scheduler.service.micro import FORBIDDEN, NOT_FOUND, ServiceError
from nats_scheduler.service.past_answers import fire_past, stream_of_fires
from nats_scheduler.service.schemas import Answer, ScheduleRequest

MAX_HALVINGS = 16
"""After so many halvings of its limits a content has neither headers nor a body."""


class ContentRequest(ScheduleRequest):
    """A request for the body and all headers of one schedule, or of one of its fires."""

    fire: Annotated[
        int | None,
        Field(ge=1, le=2**63 - 1, description="The sequence of a fire, as in `fires.list`; null for the schedule."),
    ] = None
    fire_stream: Annotated[
        str | None,
        Field(
            pattern=r"^[^\s.*>/\\]+$",
            max_length=255,
            description="The stream of that fire, as in `fires.list`; null for that of the schedule.",
        ),
    ] = None


class ContentAnswer(Answer, ContentDocument):
    """The body and all headers of one message, up to limits."""


def admit(asked: Asked, _body: bytes) -> None:
    """Raise `ServiceError` unless the operator lets contents be shown."""
    if not asked.shows_contents:
        where = f"sidecar {asked.instance} shows" if asked.instance else "this program shows"
        raise ServiceError(FORBIDDEN, f"{where} no contents: its setting show_contents is off")


async def get_content(asked: Asked, request: ContentRequest) -> Document:
    """Return the body and all headers of a schedule, or of a fire."""
    is_fire = request.fire is not None
    message = await (_schedule(asked, request) if request.fire is None else _fire(asked, request, request.fire))
    encoded = b""
    for halvings in range(MAX_HALVINGS + 1):
        answer: ContentAnswer = {
            **asked.head(),
            **content_document(message, is_fire=is_fire, halvings=halvings),
        }
        encoded = json.dumps(answer).encode()
        if len(encoded) <= asked.room:
            break
    return encoded


async def _schedule(asked: Asked, request: ContentRequest) -> StoredMessage:
    """Return the message of a schedule, valid or not, as `schedules.get` shows it."""
    name, subject = request.stream, request.subject
    view = (await asked.known(name)).view
    found = view.schedule(subject, asked.now()) or view.rejection(subject) or view.misnaming(subject)
    if found is None:
        raise ServiceError(NOT_FOUND, f"stream {name} has no schedule on {shown(subject)}: schedules.list lists them")
    message = await asked.api.message(name, seq=found.sequence)
    if message is None or message.subject != subject:  # another stream may have the name by now
        raise ServiceError(NOT_FOUND, f"the schedule on {shown(subject)}, sequence {found.sequence}, was removed")
    return message


async def _fire(asked: Asked, request: ContentRequest, sequence: int) -> StoredMessage:
    name = request.fire_stream or request.stream
    past = fire_past(asked.connection, asked.api, await stream_of_fires(asked, request.stream))
    try:
        message = await past.fire(request.subject, name, sequence)
    except StreamNotFoundError:
        raise ServiceError(NOT_FOUND, f"stream {shown(name)} does not exist") from None
    if message is None:
        what = f"sequence {sequence} of stream {name}"
        raise ServiceError(
            NOT_FOUND, f"{what} is no fire of {shown(request.subject)} that is stored: fires.list lists them"
        )
    return message
