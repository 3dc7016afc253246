"""The requests and answers of the endpoints that change schedules; the rules are those of `service.schemas`.

A body is a text, or base64 for one that is not UTF-8. Headers are a list, because their order and repeated names count.
"""

import base64
import binascii
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from nats_scheduler.control.changes import MAX_AUTHOR_CHARS
from nats_scheduler.control.fires import DEFAULT_BACKFILL, MAX_BACKFILL
from nats_scheduler.observe.change_documents import ChangeDocument
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.service.past_schemas import as_time
from nats_scheduler.service.schemas import Answer, Request, ScheduleRequest

MAX_SEQUENCE = 2**63 - 1

Expected = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_SEQUENCE,
        description="Only if the schedule message still has this sequence, else the error 409; null for any.",
    ),
]

HeaderPair = Annotated[list[str], Field(min_length=2, max_length=2)]
"""A name and a value."""


class SignedRequest(Request):
    """A request that says who asks for a change, and why."""

    author: Annotated[
        str, Field(max_length=MAX_AUTHOR_CHARS, description="Who asks for it, at most 256 characters: kept with it.")
    ] = ""
    reason: Annotated[
        str, Field(max_length=MAX_AUTHOR_CHARS, description="Why, at most 256 characters: kept with it.")
    ] = ""


class ChangeRequest(SignedRequest, ScheduleRequest):
    """A request that changes one schedule."""

    dry_run: Annotated[bool, Field(description="Whether to change nothing, and to answer what would be done.")] = False


class VersionRequest(ChangeRequest):
    """A request that changes one schedule that is stored."""

    expected: Expected = None


class BodyRequest(Request):
    """What contains the body of a message."""

    body: Annotated[str | None, Field(description="The body as text, stored as UTF-8.")] = None
    body_base64: Annotated[str | None, Field(description="The body in base64; instead of `body`.")] = None

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if self.body is not None and self.body_base64 is not None:
            raise ValueError("either body or body_base64 is expected")
        self.content()
        return self

    def content(self) -> bytes | None:
        """Return the body; None if there is none. Raises `ValueError` for what is not base64."""
        if self.body_base64 is None:
            return None if self.body is None else self.body.encode()
        try:
            return base64.b64decode(self.body_base64, validate=True)
        except binascii.Error:
            raise ValueError("body_base64: base64 with padding is expected, such as 'aGVsbG8='") from None


class ResumeRequest(VersionRequest):
    """A request to resume a schedule."""

    drop: Annotated[
        bool,
        Field(description="Whether an `@at` whose time has passed is removed; otherwise it fires at once."),
    ] = False


class FireRequest(VersionRequest):
    """A request for one fire now."""

    fire_time: Annotated[
        str | None,
        AfterValidator(as_time),
        Field(
            description="Its fire time, RFC 3339, not in the future; null for now. A second request with the same one "
            "stores nothing, within the duplicate window of the stream."
        ),
    ] = None


class BackfillRequest(VersionRequest):
    """A request for past fires that are missing."""

    since: Annotated[str, AfterValidator(as_time), Field(description="The first fire time, RFC 3339.")]
    until: Annotated[str, AfterValidator(as_time), Field(description="The last fire time, RFC 3339.")]
    limit: Annotated[
        int, Field(ge=1, le=MAX_BACKFILL, description="The most fires; if more are missing, none is stored.")
    ] = DEFAULT_BACKFILL


class AddRequest(BodyRequest, ChangeRequest):
    """A request to store a new schedule."""

    headers: Annotated[
        list[HeaderPair],
        Field(description="The headers in their order, each as a list of name and value; those of the schedule too."),
    ]
    replace: Annotated[bool, Field(description="Whether to replace another schedule on this subject.")] = False
    expected: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_SEQUENCE,
            description="Only if the last message on the subject has this sequence, 0 for none, else the error 409; "
            "null for any.",
        ),
    ] = None


class EditRequest(BodyRequest, VersionRequest):
    """A request to change headers or the body of a schedule; what is not named stays as it is."""

    set: Annotated[
        list[HeaderPair], Field(description="Headers to add or replace, each as a list of name and value.")
    ] = []  # noqa: RUF012 - pydantic copies it
    unset: Annotated[list[str], Field(description="Names of headers to remove.")] = []  # noqa: RUF012


class ChangeAnswer(Answer, ChangeDocument):
    """What was done, or would be done."""

    dry_run: bool
    """Whether nothing was done."""


def instant_of(time: str) -> int:
    """Return a time of a request (ns since the Unix epoch)."""
    instant = parse_rfc3339(time)
    assert isinstance(instant, int), "the model has checked it"
    return instant
