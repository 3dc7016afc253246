"""A micro service (ADR-32) on plain subscriptions of one connection: discovery, endpoints, errors, statistics.

`nats.micro` of nats-py needs a client object of nats-py, and our connection is none.

The rules:

- Discovery and requests are received on subscriptions that cost nothing until a request arrives.
- No request is worth a late fire: endpoints share a limited number of places for requests in work (`Places`), a further
  one gets the error 429 at once, and what takes long is done in slices by the endpoint (`service.turns`).
- An answer goes only to a subject that begins with `_`, as inboxes do, and answers across accounts. The requester names
  the subject of the answer, and must not make the sidecar publish where only the sidecar may.
- An answer that the server would close the connection over is not sent; the requester gets the error 500.
- A request that is in work when the service ends gets the error 503, as far as the connection still carries it.

Cost: some ten microseconds for each request, beside its answer.
Limit: statistics count since the connection was made.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nats_scheduler.jetstream.connection import NO_RESPONDERS, Connection, Reply, unguessable_numbers
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.jetstream.watch import SIDECAR_INBOX
from nats_scheduler.message.foreign_json import Object, read_object
from nats_scheduler.message.headers import header_value, with_headers
from nats_scheduler.schedule.rfc3339 import format_rfc3339

# A question of one instance to another, on an inbox that is for nothing else; also whether it is still there.
#
# The rule: a requester names the subject of an answer, and so can make a sidecar send an answer to any inbox. The
# inboxes of acknowledgements and of requests to the server are known to all who see a fire, so the service sends
# nothing there (`service.micro.is_inbox`). What arrives on the inbox of this module counts as the answer of another
# instance, and as nothing else.
#
# Cost: one subscription for each connection that has asked.

HOLDER_DEADLINE_SECONDS = 0.5
"""Longest wait for another instance: the requester waits 2 s by default, and gets an answer without it."""

INBOX = "asked"
"""The token that follows the name of a sidecar in the inbox for answers of other instances."""


class Questions:
    """The questions of one connection."""

    def __init__(self, connection: Connection) -> None:
        """Ask nothing yet."""
        self._connection = connection
        self._inbox = connection.inbox(INBOX)
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._numbers = unguessable_numbers()
        connection.subscribe(f"{self._inbox}.*", self._answered)

    async def ask(self, subject: str, body: bytes, seconds: float = HOLDER_DEADLINE_SECONDS) -> Object | None:
        """Return the object that another instance answers; None if there is none in time, or an error."""
        reply = await self.reply(subject, body, seconds)
        return None if reply is None or reply.block else read_object(reply.body)

    async def is_subscribed(self, subject: str) -> bool | None:
        """Return whether an instance subscribes to a subject: the server says if none does. None: no answer in time."""
        reply = await self.reply(subject, b"")
        return None if reply is None else not reply.block.startswith(NO_RESPONDERS)

    async def reply(self, subject: str, body: bytes, seconds: float = HOLDER_DEADLINE_SECONDS) -> Reply | None:
        """Return the answer of another instance, or of the server if none subscribes; None if none comes in time."""
        token = b"%d" % next(self._numbers)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            if not self._connection.publish(subject, body, reply=f"{self._inbox}.{token.decode()}"):
                return None
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[token]

    def _answered(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        answer = self._waiting.get(subject[subject.rfind(b".") + 1 :])
        if answer is not None and not answer.done():
            answer.set_result(Reply(block, body))


QUEUE_GROUP = "q"
"""The queue group of ADR-32: one of several sidecars answers a request."""

DISCOVERY_PREFIX = "$SRV"

MAX_REQUEST_BYTES = 64 * 1024
"""Longest request, headers included."""

MAX_ERROR_CHARS = 500
"""Longest sentence of an error; it may contain what the requester sent."""

NAME = re.compile(r"[A-Za-z0-9_-]+")
"""The characters that ADR-32 allows in the name of a service or an endpoint."""

_OWN_INBOX = re.compile(rb"\.%b[^.]*\.(?!%b\.)" % (SIDECAR_INBOX.encode(), INBOX.encode()))
"""The inboxes of sidecars, but for the one on which they take answers of the service."""

BAD_REQUEST, FORBIDDEN, NOT_FOUND, CONFLICT, UNPROCESSABLE = 400, 403, 404, 409, 422
TOO_MANY_REQUESTS, INTERNAL_ERROR, UNAVAILABLE = 429, 500, 503


class ServiceError(Exception):
    """A request is answered with an error: a code as of HTTP, and a sentence with the value and what is expected."""

    def __init__(self, code: int, sentence: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence if len(sentence) <= MAX_ERROR_CHARS else f"{sentence[:MAX_ERROR_CHARS]}…"
        self.headers = headers
        """The headers of the answer beside code and sentence."""


Responder = Callable[[bytes], Awaitable[bytes]]
"""Answers the body of a request; raises `ServiceError`."""


@dataclass(slots=True)
class Places:
    """The places for requests in work, which some endpoints share."""

    most: int
    taken: int = 0


@dataclass(slots=True)
class Served:
    """One endpoint, and what is counted of it."""

    name: str
    subject: str
    places: Places
    answer: Responder
    answer_alone: Responder | None = None
    """Answers a request for exactly this instance, on `<subject>.<id>`; None if there is no such subject."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The metadata that discovery shows of it."""
    requests: int = field(default=0, init=False)
    errors: int = field(default=0, init=False)
    last_error: str = field(default="", init=False)
    seconds: float = field(default=0.0, init=False)

    def document(self) -> dict[str, Any]:
        """Return what it is, as ADR-32 names it."""
        return {"name": self.name, "subject": self.subject, "queue_group": QUEUE_GROUP}

    def statistics(self) -> dict[str, Any]:
        """Return what is counted, as ADR-32 names it; times are nanoseconds."""
        total = int(self.seconds * 1e9)
        return {
            "num_requests": self.requests,
            "num_errors": self.errors,
            "last_error": self.last_error,
            "processing_time": total,
            "average_processing_time": total // self.requests if self.requests else 0,
        }


class MicroService:
    """One service on one connection."""

    def __init__(
        self,
        connection: Connection,
        identity: Mapping[str, str],
        description: str,
        endpoints: Sequence[Served],
        now: Callable[[], int],
        defect: Callable[[Exception], None],
    ) -> None:
        """Answer nothing yet; `identity` is the name, the id and the version, as in each answer to discovery.

        `now` returns the time (ns), and `defect` takes errors of an endpoint's own making.
        """
        assert all(NAME.fullmatch(name) for name in (identity["name"], *(one.name for one in endpoints)))
        self._connection = connection
        self._identity = identity
        self._description = description
        self._endpoints = endpoints
        self._started = format_rfc3339(now())
        self._defect = defect
        self._tasks: TaskGroup | None = None
        self._loop = asyncio.get_running_loop()

    async def serve(self) -> None:
        """Answer until cancelled."""
        numbers: list[int] = []
        try:
            async with TaskGroup() as self._tasks:
                numbers += self._subscribe()
                await self._loop.create_future()
        finally:
            for number in numbers:
                self._connection.unsubscribe(number)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def _subscribe(self) -> list[int]:
        connection, me = self._connection, self._identity
        numbers = [
            connection.subscribe(f"{DISCOVERY_PREFIX}.{verb}{rest}", partial(self._discovered, document))
            for verb, document in (("PING", self._ping), ("INFO", self._info), ("STATS", self._stats))
            for rest in ("", f".{me['name']}", f".{me['name']}.{me['id']}")
        ]
        for one in self._endpoints:
            asked = partial(self._asked, one)
            numbers.append(connection.subscribe(one.subject, partial(asked, one.answer), QUEUE_GROUP))
            if one.answer_alone is not None:
                numbers.append(connection.subscribe(f"{one.subject}.{me['id']}", partial(asked, one.answer_alone)))
        return numbers

    # -- discovery -----------------------------------------------------------------------------------------------

    def _discovered(
        self, document: Callable[[], dict[str, Any]], _subject: bytes, reply: bytes, _block: bytes, _body: bytes
    ) -> None:
        if is_inbox(reply):
            self._connection.publish(_text(reply), json.dumps(document()).encode())

    def _named(self, kind: str) -> dict[str, Any]:
        return {"type": f"io.nats.micro.v1.{kind}_response", **self._identity, "metadata": {}}

    def _ping(self) -> dict[str, Any]:
        return self._named("ping")

    def _info(self) -> dict[str, Any]:
        endpoints = [{**one.document(), "metadata": dict(one.metadata)} for one in self._endpoints]
        return {**self._named("info"), "description": self._description, "endpoints": endpoints}

    def _stats(self) -> dict[str, Any]:
        endpoints = [{**one.document(), **one.statistics()} for one in self._endpoints]
        return {**self._named("stats"), "started": self._started, "endpoints": endpoints}

    # -- requests ------------------------------------------------------------------------------------------------

    def _asked(self, one: Served, answer: Responder, _subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        if not is_inbox(reply) or self._tasks is None:
            return
        places = one.places
        one.requests += 1
        size = len(block) + len(body)
        if size > MAX_REQUEST_BYTES:
            expected = f"a request of {size} bytes: at most {MAX_REQUEST_BYTES} are expected"
            self._refuse(one, reply, ServiceError(BAD_REQUEST, expected))
        elif places.taken >= places.most:
            expected = f"{places.most} requests are in work: ask again when one of them is answered"
            self._refuse(one, reply, ServiceError(TOO_MANY_REQUESTS, expected))
        else:
            places.taken += 1
            self._tasks.create_task(self._work(one, answer, reply, body))

    async def _work(self, one: Served, answer: Responder, reply: bytes, body: bytes) -> None:
        began = self._loop.time()
        try:
            answered = await answer(body)
            if not self._connection.publish(_text(reply), answered):
                raise ServiceError(INTERNAL_ERROR, f"an answer of {len(answered)} bytes: the server does not take it")
        except ServiceError as error:
            self._refuse(one, reply, error)
        except asyncio.CancelledError:
            self._refuse(one, reply, ServiceError(UNAVAILABLE, "the sidecar ends, and has no answer: ask again"))
            raise
        except Exception as error:
            self._defect(error)
            self._refuse(one, reply, ServiceError(INTERNAL_ERROR, "the sidecar failed; its log has the error"))
        finally:
            one.places.taken -= 1
            one.seconds += self._loop.time() - began

    def _refuse(self, one: Served, reply: bytes, error: ServiceError) -> None:
        one.errors += 1
        one.last_error = f"{error.code}:{error.sentence}"
        # A subject that is not UTF-8 reaches us as an escape, which cannot be encoded: it is shown as `?`.
        sentence = error.sentence.encode("utf-8", "replace")
        headers = ((b"Nats-Service-Error", sentence), (b"Nats-Service-Error-Code", b"%d" % error.code))
        self._connection.publish(_text(reply), b"", with_headers(None, (*headers, *error.headers)))


def is_inbox(reply: bytes) -> bool:
    """Return whether an answer may be sent to a subject: inboxes begin with `_`, as do answers across accounts.

    On the inbox of a sidecar an answer could pass for an acknowledgement, so there is one token for answers.
    """
    return reply.startswith(b"_") and not _OWN_INBOX.search(reply)


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "surrogateescape")


def error_of(block: bytes) -> tuple[int, str]:
    """Return code and sentence of an error that a service answered, from the headers of the answer."""
    code = (header_value(block, b"Nats-Service-Error-Code") or b"").decode("ascii", "replace")
    sentence = (header_value(block, b"Nats-Service-Error") or b"").decode("utf-8", "replace")
    return int(code) if code.isdecimal() else INTERNAL_ERROR, sentence[: MAX_ERROR_CHARS + 1]
