"""What an endpoint is, and what its handlers may use; `service.endpoints` lists all endpoints.

The rules: a request is read into its model before the handler gets it, so a handler sees valid values only. An answer
is a JSON object: a document, or the encoded bytes of one that was encoded in slices.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from nats_scheduler.engine.joined_view import JoinedView
from nats_scheduler.engine.timeline import Timeline
from nats_scheduler.engine.view import Counts, EngineView
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import Object, read_object
from nats_scheduler.service.micro import BAD_REQUEST, NOT_FOUND, UNAVAILABLE, Answer, ServiceError
from nats_scheduler.service.port import AskedStream, Deployment, Known
from nats_scheduler.service.questions import Questions
from nats_scheduler.service.reuse import Reused
from nats_scheduler.service.server_schedules import READ_WAIT_SECONDS
from nats_scheduler.service.turns import Turns

SUBJECTS = "nats_scheduler.v1"
"""What the subjects of endpoints that only read begin with.

A change that old requesters cannot read gets another version.
"""

MAX_SHOWN_CHARS = 100
"""How much of a wrong value an error shows."""

R = TypeVar("R", bound=BaseModel)

Views = Mapping[str, EngineView | JoinedView | None]
"""What is known of some streams; None of one that is not read to its end."""

Document = Mapping[str, Any] | bytes
"""The answer to a request: an object, or an encoded one."""


@dataclass(frozen=True)
class Asked:
    """What the handlers of one connection use."""

    deployment: Deployment
    connection: Connection
    api: JetStreamApi
    turns: Turns
    timelines: Reused[tuple[Timeline, Views]] = field(default_factory=Reused)
    """What was counted for `timeline.list`."""
    counts: Reused[Counts] = field(default_factory=Reused)
    """What was counted for `streams.list`, by stream."""

    @property
    def room(self) -> int:
        """The longest answer (bytes): what the server takes, less what is around the items of a page."""
        return self.connection.server.max_payload

    def stream(self, name: str) -> AskedStream:
        """Return a stream that is served; raises `ServiceError` if it is not, or not read to its end."""
        stream = self.deployment.streams().get(name)
        if stream is None:
            raise ServiceError(NOT_FOUND, not_served(name))
        if not stream.is_ready:
            raise ServiceError(UNAVAILABLE, f"stream {shown(name)} is not read to its end: ask again")
        return stream

    async def known(self, name: str, within: float = READ_WAIT_SECONDS) -> Known:
        """Return what is known of all schedules of a stream; raises `ServiceError` as `stream` does, or after a wait.

        Each answer about schedules begins here, also about those that the server itself fires.
        """
        return await self.stream(name).known(within)

    async def ask(self, instance: str, endpoint: str, request: Mapping[str, object]) -> Object | None:
        """Return what another instance answers, None if it does not answer with an object in time."""
        questions = self.connection.one(Questions)
        return await questions.ask(f"{SUBJECTS}.{endpoint}.{instance}", json.dumps(request).encode())


Handler = Callable[[Asked, R], Awaitable[Document]]


@dataclass(frozen=True)
class Endpoint(Generic[R]):
    """One endpoint: its name below the prefix, its models, and who answers."""

    name: str
    """Two words, such as `schedules.get`, or one."""
    summary: str
    request: type[R]
    answer: Any
    """The type of the answer: a `TypedDict`."""
    handle: Handler[R]
    """Answers for all instances; it may ask others."""
    handle_alone: Handler[R] | None = None
    """Answers a request for exactly this instance, on `<name>.<id>`: without asking others."""
    prefix: str = SUBJECTS
    """What its subject begins with, without the dot before the name."""
    admit: Callable[[Asked, bytes], None] = lambda _asked, _body: None
    """Refuses a request before it is read: raises `ServiceError`."""

    @property
    def subject(self) -> str:
        """Return the subject on which all sidecars answer."""
        return f"{self.prefix}.{self.name}"

    def answering(self, asked: Asked, handle: Handler[R]) -> Answer:
        """Return what reads a request, and encodes the answer."""

        async def answer(body: bytes) -> bytes:
            self.admit(asked, body)
            try:
                document = await handle(asked, read_request(self.request, body))
            except JetStreamError as error:
                raise ServiceError(UNAVAILABLE, f"the server does not answer as expected: {error}") from None
            if not isinstance(document, bytes):
                return json.dumps(document).encode()
            await asked.turns.moment_without_fires()  # a page takes the server and the sidecar some 0.3 ms to move
            return document

        return answer


def read_request(model: type[R], body: bytes) -> R:
    """Read the body of a request, empty stands for an object without keys; raises `ServiceError`."""
    given = read_object(body) if body.strip() else {}
    if given is None:
        raise ServiceError(
            BAD_REQUEST, f"a request of {shown(body.decode(errors='replace'))}: a JSON object is expected"
        )
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise ServiceError(BAD_REQUEST, _sentence(model, error)) from None


def _sentence(model: type[BaseModel], error: ValidationError) -> str:
    """Return what is wrong with a request first: the key, its value, and what is expected."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        expected = ", ".join(model.model_fields) or "none"
        return f"the key {shown(key)} is unknown; expected: {expected}"
    if first["type"] == "missing":
        return f"the key {key} is missing"
    reason = first["msg"].removeprefix("Value error, ")
    return f"{key} of {shown(first['input'])}: {reason}" if key else reason


def not_served(stream: str) -> str:
    """Return why nothing is answered about a stream that is not served."""
    return f"stream {shown(stream)} is not served: one that streams.list names is expected"


def shown(value: object) -> str:
    """Return a value as an error shows it."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
