"""An endpoint, and the values that its handlers may use; `service.endpoints` lists all endpoints.

The rules: a request is read into its model before the handler gets it, so a handler sees valid values only. An answer
is a JSON object: a document, or the encoded bytes of one that was encoded in slices.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.engine.ownership.owners import NO_RECORD, Owners, Record
from nats_scheduler.engine.views.timeline import Timeline
from nats_scheduler.engine.views.view import Counts, EngineView
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.single_flight import SingleFlights
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.observe.activity import Activity
from nats_scheduler.observe.documents import StreamModeDocument
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoded_items import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.instance_questions import INSTANCE_DEADLINE_SECONDS, Questions
from nats_scheduler.service.last_examination import Examination
from nats_scheduler.service.micro import BAD_REQUEST, NOT_FOUND, UNAVAILABLE, Responder, ServiceError, error_of
from nats_scheduler.service.rules import Rule
from nats_scheduler.service.schemas import Answer, ListRequest, read_answer
from nats_scheduler.service.sidecar_port import AskedStream, Fleet, KnownStream
from nats_scheduler.service.turns import MAX_RESULTS, Turns
from nats_scheduler.service.watched_streams import READ_WAIT_SECONDS, WatchedStreams
from nats_scheduler.settings.control_rules import ControlRule

SUBJECTS = "nats_scheduler.v1"
"""The beginning of the subjects of endpoints that only read.

A change that old requesters cannot read gets another version.
"""

MAX_SHOWN_CHARS = 100
"""The largest number of characters of a wrong value that an error shows."""

READER_DEADLINE_SECONDS = 4.0
"""Longest wait for an instance that reads a stream: a page of a million schedules takes a second or two."""

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

Views = Mapping[str, EngineView | None]
"""The views of several streams; None is one of which nothing is known at the moment."""

Document = Mapping[str, Any] | bytes
"""An answer; bytes are encoded already."""


@dataclass(frozen=True, slots=True)
class Known:
    """The schedules of a stream, as they are known at a moment."""

    view: EngineView
    """All of them, whichever part fires them."""
    read_through: int
    """The sequence up to which the stream was read for that."""


@dataclass
class Asked:
    """The sidecar that is asked, on one connection.

    Only `known`, `ask`, `fleet`, `stream_modes`, `examination` and the methods of `calendars` and `store` send
    requests, and only those of `store` are called to change anything.
    """

    connection: Connection
    api: JetStreamApi
    turns: Turns
    instance: str
    """The id of this instance."""
    now: Callable[[], int]
    """Returns the time by the server's clock, in ns since the Unix epoch."""
    streams: Mapping[str, AskedStream]
    """The streams that this instance serves, by name."""
    left: Mapping[str, KnownStream]
    """The streams that it leaves to others, by name: of them nothing is held here."""
    owners: Owners
    """The owners of the streams, as this instance knows them: they say which instance fires what."""
    activity: Activity
    """The fires of the last hour, as far as this instance sent them."""
    calendars: CalendarBucket
    """The calendars as they are stored."""
    store: ScheduleStore
    """The stored schedules, as they are changed."""
    restrictions_on: Callable[[str], Restrictions]
    """Returns what the operator forbids on a stream."""
    shows_contents: bool
    """True if the operator allows requests for contents (`show_contents`)."""
    allows_control: bool
    """True if the operator allows requests that change schedules (`allow_control`)."""
    control_rules: Sequence[ControlRule]
    """What the operator allows single requesters (`control_rules`)."""
    failures_stream: str | None
    """The stream that keeps advisories; None if none does."""
    is_draining: Callable[[], bool]
    """Returns whether the sidecar is about to end."""
    not_ready: Callable[[], list[str]]
    """Returns why schedules do not all fire at this moment; nothing if they do."""
    notes: Callable[[], list[str]]
    """Returns what an operator should know although they do."""
    fleet: Callable[[], Awaitable[Fleet]]
    """Reads all instances of the account from the registry's bucket; raises `SchedulerError`."""
    stream_modes: Callable[[], Awaitable[Sequence[StreamModeDocument]]]
    """Looks up the streams of the account that carry schedules, served or not; raises `SchedulerError`."""
    examination: Callable[[Turns], Awaitable[Examination]]
    """Returns what the doctor finds, at most five minutes old; raises `ServiceError` if it cannot be examined."""
    timelines: SingleFlights[tuple[Timeline, Views]] = field(default_factory=lambda: SingleFlights(MAX_RESULTS))
    """The timelines that were counted for `timeline.list`."""
    counts: SingleFlights[Counts] = field(default_factory=lambda: SingleFlights(MAX_RESULTS))
    """The counts for `streams.list`, by stream."""
    asks_others: bool = True
    """True if a handler may ask other instances."""
    relays: bool = True
    """True if what is asked about a stream that others read is asked of them; not if another instance asks."""
    rule: Rule | None = None
    """The rule of the requester; None for one of whom only the permissions of the server decide."""

    def __post_init__(self) -> None:
        """Read nothing yet of what the server itself fires."""
        self.watched_streams = WatchedStreams(self.connection, self.api, self.now, self.turns)

    def alone(self) -> "Asked":
        """Return the same sidecar as it is asked for what it knows by itself."""
        alone = self.relayed()
        alone.asks_others = False
        return alone

    def relayed(self) -> "Asked":
        """Return the same sidecar as another one asks it, about a stream that only this one reads."""
        relayed = copy(self)
        relayed.relays = False
        return relayed

    def under(self, rule: Rule) -> "Asked":
        """Return the same sidecar as it is asked by a requester who has a rule."""
        under = copy(self)
        under.rule, under.store = rule, self.store.admitting(rule.check_schedule)
        return under

    def owner(self, stream: str) -> str | None:
        """Return the instance that fires for a stream, as this one knows it; None if none that is alive does."""
        return self.ownership(stream).owner or None

    def other_owner(self, stream: str) -> str | None:
        """Return the owner of a stream if it is another instance."""
        owner = self.owner(stream)
        return None if owner == self.instance else owner

    def unanswered(self, stream: str) -> list[str]:
        """Return the owner of a stream if it is another instance: what is said of the stream here is not its answer."""
        owner = self.other_owner(stream)
        return [] if owner is None else [owner]

    def ownership(self, stream: str) -> Record:
        """Return the record of a stream's owner, as this instance knows it; `NO_RECORD` if that one is not alive."""
        known = self.known_stream(stream)
        record = NO_RECORD if known is None else self.owners.record(known.key)
        return record if record.owner == self.instance or record.owner in self.owners.others else NO_RECORD

    def standbys(self, stream: str) -> list[str]:
        """Return the instances that have read a stream and do not own it, in the order in which they take it over."""
        known = self.known_stream(stream)
        return [] if known is None else self.owners.standbys(known.key)

    def readers(self, stream: str) -> list[str]:
        """Return the other instances that can answer about a stream: its owner first, then the standbys."""
        known = self.known_stream(stream)
        serving = () if known is None else self.owners.served_by_others(known.key)
        return [one for one in (self.ownership(stream).owner, *self.standbys(stream)) if one in serving]

    def known_stream(self, name: str) -> KnownStream | None:
        """Return a stream that this instance serves or leaves to others; None if it is not served."""
        return self.streams.get(name) or self.left.get(name)

    def names(self, wanted: Collection[str] | None) -> list[str]:
        """Return the streams that are served, by name, of those that are `wanted`; None: all."""
        known = {*self.streams, *(self.left if self.relays else ())}
        return sorted(known if wanted is None else known.intersection(wanted))

    @property
    def room(self) -> int:
        """The most bytes of all items of an answer: what the server takes, less `FRAME_BYTES`."""
        return self.connection.server.max_payload - FRAME_BYTES

    def head(self, at: int | None = None) -> Answer:
        """Return what begins an answer; `at` is its time by the server's clock (ns), None for now."""
        instant = self.now() if at is None else at
        return {"at": format_rfc3339(instant), "instance": self.instance}

    async def encoded(
        self, rows: Iterable[T], document_of: Callable[[T], Mapping[str, Any]], room: int | None = None
    ) -> list[bytes]:
        """Encode as many rows, from the first on, as there is `room` for (bytes), between fires."""
        return await self.turns.run(encode_items(rows, document_of, self.room if room is None else room))

    def stream(self, name: str) -> AskedStream:
        """Return a stream that is served; raises `ServiceError` if it is not, or not read to its end."""
        stream = self.streams.get(name)
        if stream is None and name in self.left:
            raise ServiceError(UNAVAILABLE, f"other instances read stream {shown(name)}: ask again")
        if stream is None:
            raise ServiceError(NOT_FOUND, not_served(name))
        if not stream.is_ready:
            raise ServiceError(UNAVAILABLE, f"stream {shown(name)} is not read to its end: ask again")
        return stream

    async def known(self, name: str, within: float = READ_WAIT_SECONDS) -> Known:
        """Return what is known of all schedules of a stream; raises `ServiceError` as `stream` does, or after a wait.

        Each answer about schedules begins here, also about those that the server itself fires: what is not held is
        read, in `within` seconds at most. Raises `SchedulerError` as well if the server does not answer.
        """
        stream = self.stream(name)
        if (fired_by := stream.others_fired_by) is None:
            return Known(stream.view, stream.last_read)
        others, through = await self.watched_streams.read(name, fired_by, within)
        return Known(stream.view.joined(others), min(through, stream.last_read))

    async def ask(
        self,
        instance: str,
        endpoint: str,
        form: type[T],
        request: Mapping[str, object],
        seconds: float = INSTANCE_DEADLINE_SECONDS,
    ) -> T | None:
        """Return what another instance answers, None if it does not answer in this form and in time."""
        questions = self.connection.one(Questions)
        answer = await questions.ask(f"{SUBJECTS}.{endpoint}.{instance}", json.dumps(request).encode(), seconds)
        return None if answer is None else read_answer(form, answer)

    async def relay(self, endpoint: str, stream: str, request: BaseModel) -> bytes:
        """Return what another instance answers that reads the stream; raises the `ServiceError` that it answers.

        The owner is asked first, and if this instance does not read the stream, the standbys one after the other while
        there is no answer. The code is `UNAVAILABLE` if none can answer.
        """
        refusal = ServiceError(UNAVAILABLE, f"no instance that reads stream {shown(stream)} answers: ask again")
        questions, body = self.connection.one(Questions), request.model_dump_json().encode()
        readers = self.readers(stream) if stream in self.left else filter(None, (self.other_owner(stream),))
        for reader in readers:
            reply = await questions.reply(f"{SUBJECTS}.{endpoint}.{reader}", body, READER_DEADLINE_SECONDS)
            if reply is not None and not reply.block:
                return reply.body
            code, sentence = (UNAVAILABLE, "") if reply is None else error_of(reply.block)
            if sentence and code != UNAVAILABLE:
                raise ServiceError(code, sentence)
            if sentence:
                refusal = ServiceError(code, sentence)
        raise refusal


Handler = Callable[[Asked, R], Awaitable[Document]]


class AnsweredBy(Enum):
    """Who can answer a request about a stream."""

    ANY = "any instance"
    READER = "an instance that reads it"
    OWNER = "its owner, or else another one that reads it"


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
    is_for_one: bool = False
    """True if there is also `<name>.<id>`, for exactly this instance, which then asks no others."""
    answers: AnsweredBy = AnsweredBy.ANY
    """Who can answer about a stream; there is `<name>.<id>`, for what others relay, if not any instance can."""
    prefix: str = SUBJECTS
    """The beginning of its subject, without the dot before the name."""
    admit: Callable[[Asked, bytes], None] = lambda _asked, _body: None
    """Refuses a request before it is read: raises `ServiceError`."""

    @property
    def subject(self) -> str:
        """Return the subject on which all sidecars answer."""
        return f"{self.prefix}.{self.name}"

    async def handled(self, asked: Asked, request: R) -> Document:
        """Return the answer: that of another instance, if this one is not the one that can give it.

        In place of an owner that does not answer, a standby answers.
        """
        stream = getattr(request, "stream", None)
        if asked.relays and stream is not None and self.answers is not AnsweredBy.ANY:
            if stream in asked.left:
                return await asked.relay(self.name, stream, request)
            if self.answers is AnsweredBy.OWNER and asked.other_owner(stream) is not None:
                try:
                    return await asked.relay(self.name, stream, request)
                except ServiceError as error:
                    if error.code != UNAVAILABLE:
                        raise
        return await self.handle(asked, request)

    def answering(self, asked: Asked) -> Responder:
        """Return what reads a request, and encodes the answer."""

        async def answer(body: bytes) -> bytes:
            self.admit(asked, body)
            try:
                document = await self.handled(asked, read_request(self.request, body))
            except ServiceError:
                raise
            except SchedulerError as error:
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


# -- lists in the order of their names: streams, instances, subjects -------------------------------------------------


def name_cursor(name: str) -> str:
    """Return the cursor of the page that begins after a name."""
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode()


def read_name_cursor(text: str | None) -> str:
    """Return the name of a cursor, "" for none; raises `ServiceError`."""
    try:
        return base64.b64decode(text or "", altchars=b"-_", validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        raise ServiceError(BAD_REQUEST, f"cursor of {shown(text)}: the cursor of another page is expected") from None


async def page_by_name(
    asked: Asked, request: ListRequest, head: Mapping[str, Any], key: str, rows: Sequence[Mapping[str, Any]], name: str
) -> Document:
    """Return a page of documents that are in the order of their names, each below the key `name`."""
    after = read_name_cursor(request.cursor)
    found = [row for row in rows if row[name] > after]
    items = await asked.encoded(found[: request.limit], dict)
    cursor = name_cursor(found[len(items) - 1][name]) if len(items) < len(found) else None
    return with_items({**head, "cursor": cursor}, key, items)


async def ask_each(
    asked: Asked, instances: Iterable[str], endpoint: str, form: type[T], request: Mapping[str, object]
) -> tuple[list[T], list[str]]:
    """Ask these instances, but for this one; return the answers, and those that do not answer.

    All are asked at once, each within `INSTANCE_DEADLINE_SECONDS`. An instance of an older version, which does not have
    the endpoint, counts as one that does not answer, and so does one whose answer has another form.
    """
    others = sorted(set(instances) - {asked.instance}) if asked.asks_others else []
    found = await asyncio.gather(*(asked.ask(other, endpoint, form, request) for other in others))
    unanswered = [other for other, answer in zip(others, found, strict=True) if answer is None]
    return [answer for answer in found if answer is not None], unanswered


async def ask_owners(
    asked: Asked, streams: Iterable[str], endpoint: str, form: type[T], request: Mapping[str, object]
) -> tuple[list[T], list[str]]:
    """Ask, about those of the `streams` that others own, the owner of each; return as `ask_each` does.

    A standby is asked about a stream that this instance does not read and that has no owner. One that no instance
    serves at the moment is in no answer.
    """
    parts: dict[str, list[str]] = {}
    for name in streams if asked.relays else ():
        readers = asked.readers(name) if name in asked.left else [asked.other_owner(name)]
        if readers and readers[0] is not None:
            parts.setdefault(readers[0], []).append(name)
    asking = (
        asked.ask(reader, endpoint, form, {**request, "streams": names}, READER_DEADLINE_SECONDS)
        for reader, names in parts.items()
    )
    found = await asyncio.gather(*asking)
    unanswered = [reader for reader, answer in zip(parts, found, strict=True) if answer is None]
    return [answer for answer in found if answer is not None], unanswered
