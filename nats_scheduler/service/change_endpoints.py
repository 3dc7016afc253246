"""The endpoints that change schedules: each is one operation of `nats_scheduler.control`, and its errors.

The rules:

- Nothing is changed unless the operator allows it (`allow_control`, or a rule: `service.rules`), only on streams that
  this sidecar serves, and not while it drains.
- An operation waits for the server most of the time. It begins in a moment without fires, and some time after the one
  before (`service.turns`), so it delays none.
- It ends within `CHANGE_LIMIT_SECONDS`. What it has done by then is not known, and it can be asked for again.
- A body is a text, or base64 for one that is not UTF-8. Headers are a list, because their order and repeated names
  count.

Cost: three to five requests to the server for each change, and the advisory; about a millisecond of the process. A
backfill also reads what `fires.list` reads, so one that has to read very much ends at the limit.
"""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from nats_scheduler.control import fire_requests
from nats_scheduler.control.changes import MAX_AUTHOR_CHARS, Author, Change
from nats_scheduler.control.declared import dialect_of
from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    NotPossibleError,
    NotServedError,
    RefusedError,
    RejectedError,
    SchedulerError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.fire_requests import DEFAULT_BACKFILL, MAX_BACKFILL
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.message.headers import EMPTY_BLOCK, decoded, with_headers
from nats_scheduler.message.policies import named_policies, policy_header
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.observe.documents import MadeChangeDocument, Number, Rows, made_change_document
from nats_scheduler.observe.outlook import OutlookDocument, outlook
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.endpoint import Asked, Document, Handler, not_served, shown
from nats_scheduler.service.micro import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    OUTCOME,
    UNAVAILABLE,
    UNPROCESSABLE,
    ServiceError,
)
from nats_scheduler.service.pattern_endpoints import header
from nats_scheduler.service.schemas import Answer, Instant, Request, ScheduleRequest

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

MAX_HEADERS = 1_000
"""Headers that one request names: each of them is searched for among all, and no fire leaves meanwhile."""


class ChangeRequest(ScheduleRequest):
    """A request that changes one schedule, and says who asks for it, and why."""

    author: Annotated[
        str, Field(max_length=MAX_AUTHOR_CHARS, description="Who asks for it, at most 256 characters: kept with it.")
    ] = ""
    reason: Annotated[
        str, Field(max_length=MAX_AUTHOR_CHARS, description="Why, at most 256 characters: kept with it.")
    ] = ""

    dry_run: Annotated[bool, Field(description="Whether to change nothing, and to answer what would be done.")] = False
    expected: Expected = None

    def arguments(self) -> dict[str, Any]:
        """Return what the operation gets beside the store, the place of the schedule and the author."""
        return {"expected": self.expected, "dry_run": self.dry_run}


class BodyRequest(Request):
    """A request that contains the body of a message."""

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


class ResumeRequest(ChangeRequest):
    """A request to resume a schedule."""

    drop: Annotated[
        bool,
        Field(description="Whether an `@at` whose time has passed is removed; otherwise it fires at once."),
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Return what the operation gets."""
        return {**super().arguments(), "drop": self.drop}


class FireRequest(ChangeRequest):
    """A request for one fire now."""

    fire_time: Annotated[
        Instant | None,
        Field(
            description="Its fire time, RFC 3339, not in the future; null for now. A second request with the same one "
            "stores nothing, within the duplicate window of the stream."
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return what the operation gets."""
        return {**super().arguments(), "at": self.fire_time}


class BackfillRequest(ChangeRequest):
    """A request for past fires that are missing."""

    since: Annotated[Instant, Field(description="The first fire time, RFC 3339.")]
    until: Annotated[Instant, Field(description="The last fire time, RFC 3339.")]
    limit: Annotated[
        int, Field(ge=1, le=MAX_BACKFILL, description="The most fires; if more are missing, none is stored.")
    ] = DEFAULT_BACKFILL

    def arguments(self) -> dict[str, Any]:
        """Return what the operation gets."""
        return {**super().arguments(), "since_ns": self.since, "until_ns": self.until, "limit": self.limit}


class AddRequest(BodyRequest, ChangeRequest):
    """A request to store a new schedule."""

    headers: Annotated[
        list[HeaderPair],
        Field(
            max_length=MAX_HEADERS,
            description="The headers in their order, each as a list of name and value; those of the schedule too.",
        ),
    ]
    policies: Annotated[
        dict[str, str],
        Field(
            max_length=MAX_HEADERS,
            description="Policies by their names, in any case, with or without `X-`, such as `limit`: written in the "
            "spelling of the headers.",
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it
    replace: Annotated[bool, Field(description="Whether to replace another schedule on this subject.")] = False
    expected: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_SEQUENCE,
            description="Only if the last message on the subject has this sequence, 0 for none or a schedule that has "
            "fired, else the error 409; null for any.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return what the operation gets; raises `ServiceError` for no header, and `RejectedError` for no policy."""
        block, body = with_headers(EMPTY_BLOCK, headers_of(self.headers)), self.content() or b""
        names = [(decoded(policy_header(name, dialect_of(block))), value) for name, value in policies_of(self.policies)]
        block = with_headers(block, headers_of(names))
        return {**super().arguments(), "block": block, "body": body, "replace": self.replace}


class EditRequest(BodyRequest, ChangeRequest):
    """A request to change headers or the body of a schedule; what is not named stays as it is."""

    set: Annotated[
        list[HeaderPair],
        Field(max_length=MAX_HEADERS, description="Headers to add or replace, each as a list of name and value."),
    ] = []  # noqa: RUF012 - pydantic copies it
    unset: Annotated[list[str], Field(max_length=MAX_HEADERS, description="Names of headers to remove.")] = []  # noqa: RUF012
    policies: Annotated[
        dict[str, str | None],
        Field(
            max_length=MAX_HEADERS,
            description="Policies to add or replace, null to remove: by their names, in any case, with or without "
            "`X-`, such as `limit`; written in the spelling of the schedule.",
        ),
    ] = {}  # noqa: RUF012

    def arguments(self) -> dict[str, Any]:
        """Return what the operation gets; raises `ServiceError` for no header, and `RejectedError` for no policy."""
        unset = [header(name, "")[0] for name in self.unset]
        edit = Edit(set=headers_of(self.set), unset=unset, body=self.content(), policies=policies_of(self.policies))
        return {**super().arguments(), "edit": edit}


class ChangeAnswer(Answer, MadeChangeDocument):
    """The change that was made, or would be made."""

    dry_run: bool
    """True if nothing was done."""
    fire_sequences: Rows[Number]
    """The sequences of the fires that were stored, in the stream of their target."""
    outlook: OutlookDocument | None
    """When the schedule fires next after the change; null if it does not: it is removed, paused or rejected."""


CONTROL_SUBJECTS = "nats_scheduler.control.v1"
"""The beginning of the subjects of endpoints that change something, so that permissions can distinguish them."""

CHANGE_LIMIT_SECONDS = 10.0
"""Longest time for one change."""

LAST_SEQUENCE = b"Nats-Last-Sequence"
"""The header of an error 409: the sequence of the last message on the subject, 0 if there is none."""

SERVER_ERROR_CODE = b"Nats-Server-Error-Code"
"""The header of an error for which the server has a code (`err_code`)."""

CODES: Mapping[type[SchedulerError], int] = {
    StreamNotFoundError: NOT_FOUND,
    NotServedError: NOT_FOUND,
    NotFoundError: NOT_FOUND,
    ConflictError: CONFLICT,
    NotPossibleError: UNPROCESSABLE,
    RejectedError: UNPROCESSABLE,
    RefusedError: UNPROCESSABLE,
    ForbiddenError: FORBIDDEN,
    NoAnswerError: UNAVAILABLE,
    UnknownOutcomeError: UNAVAILABLE,
}
"""The code of each error of an operation; that of any other one is `UNAVAILABLE`."""

_NAME = re.compile(r"[!-9;-~]+")
"""Printable ASCII without blanks and colons."""

MAX_AHEAD_SECONDS = 2.0
"""The time by which a fire time may be ahead of the server's clock, as a requester's clock is: it is waited for."""

SAFE = "asking again is safe"
UNSAFE = "asking again may store a second fire: only a request with a fire_time is safe to repeat"


# -- refusals before a request is read -------------------------------------------------------------------------


def admit(asked: Asked, body: bytes) -> None:
    """Raise `ServiceError` unless this requester is answered, at this time, and the request can be read exactly."""
    if asked.rule is not None:
        asked.rule.take_a_turn()
    elif not asked.allows_control:
        raise ServiceError(FORBIDDEN, f"sidecar {asked.instance} changes nothing: its setting allow_control is off")
    if asked.is_draining():
        raise ServiceError(UNAVAILABLE, f"sidecar {asked.instance} ends, and did nothing: {SAFE}")
    if not is_exact(body):
        raise ServiceError(BAD_REQUEST, f"a request of {shown(body)}: a JSON object in UTF-8 is expected")


def is_exact(body: bytes) -> bool:
    """Return whether each text of a JSON document can be stored as it is: UTF-8, and no half of a surrogate pair."""
    try:
        text = body.decode()
        if "\\ud" in text.lower():
            json.dumps(json.loads(text), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


# -- operations ------------------------------------------------------------------------------------------------

R = TypeVar("R", bound=ChangeRequest)
V = TypeVar("V", str, str | None)

Operation = Callable[..., Awaitable[Change]]
"""Gets the store, stream and subject of the schedule, the author, and the arguments of the request."""


async def fire(store: ScheduleStore, stream: str, subject: str, *, at: int | None, **given: Any) -> Change:
    """Store one fire beside a schedule; a fire time that is at most `MAX_AHEAD_SECONDS` ahead is waited for."""
    ahead = 0.0 if at is None else (at - store.now()) / SECOND
    if 0 < ahead <= MAX_AHEAD_SECONDS:
        await asyncio.sleep(ahead)
    return await fire_requests.fire(store, stream, subject, at=at, **given)


def headers_of(pairs: Sequence[Sequence[str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as bytes; raises `ServiceError` for what is no header."""
    for name, _value in pairs:
        if not _NAME.fullmatch(name):
            raise ServiceError(BAD_REQUEST, f"a header named {shown(name)}: a name of a header is expected")
    return [header(name, value) for name, value in pairs]


def policies_of(given: Mapping[str, V]) -> list[tuple[str, V]]:
    """Return policies by their names such as `X-Limit`; raises `RejectedError` for a name that is none."""
    found = named_policies((name, value or "") for name, value in given.items())
    if isinstance(found, Rejection):
        raise RejectedError(found)
    return [(one.name, value) for one, value in zip(found, given.values(), strict=True)]


# -- answers ---------------------------------------------------------------------------------------------------


def changing(name: str, operation: Operation) -> Handler[R]:
    """Return the handler that does an operation, which rules call by its name, and answers what it did."""

    async def handle(asked: Asked, request: R) -> Document:
        author, has_begun = Author(request.author, request.reason), False
        try:
            if asked.rule is not None:
                asked.rule.check_request(name, request.stream, request.subject)
                author = Author(asked.rule.signed(request.author), request.reason)
            _check_place(asked, request)
            async with asyncio.timeout(CHANGE_LIMIT_SECONDS):
                await asked.turns.begin()
                has_begun = True
                change = await operation(
                    asked.store, request.stream, request.subject, author=author, **request.arguments()
                )
        except ServiceError:
            raise
        except SchedulerError as error:
            raise refusal_of(error, request) from None
        except TimeoutError:
            raise refusal_of(_unfinished(has_begun=has_begun), request) from None
        schedule = change.schedule
        answer: ChangeAnswer = {
            **asked.head(),
            "dry_run": request.dry_run,
            **made_change_document(change, dry_run=request.dry_run),
            "fire_sequences": list(change.sequences),
            "outlook": None if schedule is None else await asked.turns.run(outlook(schedule, asked.now())),
        }
        return answer

    return handle


def _check_place(asked: Asked, request: ChangeRequest) -> None:
    """Raise `ServiceError` unless the schedule is on a stream that is served, and no request to the server."""
    if asked.known_stream(request.stream) is None:
        raise ServiceError(NOT_FOUND, not_served(request.stream))
    if asked.restrictions_on(request.stream).is_request(request.subject):
        sentence = f"subject {shown(request.subject)}: what is published there is a request to the server"
        raise ServiceError(FORBIDDEN, sentence)


def _unfinished(*, has_begun: bool) -> SchedulerError:
    """Return the error of a change that was not finished within the limit."""
    if has_begun:
        return UnknownOutcomeError(f"not finished within {CHANGE_LIMIT_SECONDS:.0f} s: it may be done or not")
    return NoAnswerError(f"not begun within {CHANGE_LIMIT_SECONDS:.0f} s, so nothing is done: the sidecar is busy")


def refusal_of(error: SchedulerError, request: Request) -> ServiceError:
    """Return what the requester gets for an error of an operation."""
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), UNAVAILABLE)
    sentence, headers = str(error), list[tuple[bytes, bytes]]()
    if error.code:
        headers.append((SERVER_ERROR_CODE, b"%d" % error.code))
        sentence += "" if f"server code {error.code}" in sentence else f" (server code {error.code})"
    if isinstance(error, ConflictError) and error.sequence is not None:
        headers.append((LAST_SEQUENCE, b"%d" % error.sequence))
        sentence += f"; the sequence there is {error.sequence} now" if error.sequence else "; nothing is there now"
    if isinstance(error, UnknownOutcomeError):
        headers.append((OUTCOME, b"unknown"))
    if code == UNAVAILABLE:
        is_safe = isinstance(error, NoAnswerError) or not _fires_now(request)
        sentence += f"; {SAFE if is_safe else UNSAFE}"
    return ServiceError(code, sentence, headers)


def _fires_now(request: Request) -> bool:
    """Return whether a request stores another fire each time."""
    return isinstance(request, FireRequest) and request.fire_time is None
