"""A micro service (ADR-32) on plain subscriptions of one connection: discovery, endpoints, errors, statistics.

`nats.micro` of nats-py needs a client object of nats-py, and our connection is none.

The rules:

- Discovery and requests are received on subscriptions that cost nothing until a request arrives.
- No request is worth a late fire: requests wait for places and for process time in turn by client, and what is too much
  gets the error 429 (`service.shares`). What takes long is done in slices by the endpoint (`service.turns`).
- Errors 429 and answers to discovery are limited too. What exceeds that is dropped, before anything is built for it,
  and counted. A subscription on which very much arrives is ended for a moment, so that the server drops it.
- While the server does not take what was written, no request begins, and discovery is not answered.
- An answer goes only to a subject that begins with `_`, as inboxes do, and answers across accounts. The requester names
  the subject of the answer, and must not make the sidecar publish where only the sidecar may.
- An answer that the server would close the connection over is not sent; the requester gets the error 500.
- A request that is in work when the service ends gets the error 503, as far as the connection still carries it.

Cost: some ten microseconds for each request, beside its answer; two for one that is dropped.
Limit: statistics count since the connection was made. While a subscription is ended, a request on it finds nobody.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import coroutine
from typing import Any, NamedTuple, TypeVar, cast

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.request_watch import SIDECAR_INBOX
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.jetstream.wire import Sink
from nats_scheduler.message.headers import header_value, with_headers
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.instance_questions import INBOX
from nats_scheduler.service.shares import Buckets, RequestPlaces, ShareRefused, Shares, client_of

T = TypeVar("T")

QUEUE_GROUP = "q"
"""The queue group of ADR-32: one of several sidecars answers a request."""

DISCOVERY_PREFIX = "$SRV"

MAX_REQUEST_BYTES = 64 * 1024
"""Longest request, headers included."""

MAX_ERROR_CHARS = 500
"""Longest sentence of an error; it may contain what the requester sent."""

NAME = re.compile(r"[A-Za-z0-9_-]+")
"""The characters that ADR-32 allows in the name of a service or an endpoint."""

_OWN = f".{SIDECAR_INBOX}".encode()

_OWN_INBOX = re.compile(rb"\.%b[^.]*\.(?!%b\.)" % (SIDECAR_INBOX.encode(), INBOX.encode()))
"""The inboxes of sidecars, but for the one on which they take answers of the service."""

BAD_REQUEST, FORBIDDEN, NOT_FOUND, CONFLICT, UNPROCESSABLE = 400, 403, 404, 409, 422
TOO_MANY_REQUESTS, INTERNAL_ERROR, UNAVAILABLE = 429, 500, 503

OUTCOME = b"Nats-Scheduler-Outcome"
"""The header of an error 503 after which a change may be made or not (`unknown`); without it nothing was done."""


class ServiceError(SchedulerError):
    """A sidecar answers a request with an error: a sentence with the value and what is expected, and a code."""

    def __init__(self, code: int, sentence: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.sentence = sentence if len(sentence) <= MAX_ERROR_CHARS else f"{sentence[:MAX_ERROR_CHARS]}…"
        super().__init__(self.sentence)
        self.code: int = code
        """As of HTTP, not one of the server's."""
        self.headers = headers
        """The headers of the answer beside code and sentence."""
        self.may_be_done = code == INTERNAL_ERROR or any(name == OUTCOME for name, _ in headers)


ENDS = ServiceError(UNAVAILABLE, "the sidecar ends, and has no answer: ask again")

Responder = Callable[[bytes], Awaitable[bytes]]
"""Answers the body of a request; raises `ServiceError`."""


@dataclass(slots=True)
class CountedEndpoint:
    """One endpoint, and what is counted of it."""

    name: str
    subject: str
    places: RequestPlaces
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


# -- what requests may make a service do, whatever the shares of clients are -----------------------------------------

BEGUN_AT_ONCE = 4
"""Requests that begin in one turn of the event loop."""

BEGINNING_SECONDS = 0.00005
"""The process time that a request takes beside its answer: it counts as the request's."""

REQUEST_BYTES = 512
"""The bytes of memory that a request takes beside its headers and its body, approximately."""

WAITING_CHECK_INTERVAL_SECONDS = 0.25
"""The interval at which it is checked whether requests have waited too long."""

MAX_UNSENT_BYTES = 1024 * 1024
"""If so much waits for the socket, nothing is answered that can wait or be dropped."""

UNSENT_CHECK_INTERVAL_SECONDS = 0.01
"""The interval at which it is checked whether the socket has taken it."""

DISCOVERY_BYTES_PER_SECOND, DISCOVERY_BYTES_PER_SECOND_OF_ONE = 512 * 1024, 128 * 1024
"""Bytes of answers to discovery, to all clients and to one."""

DISCOVERY_FRAME_BYTES = 512
"""Bytes that an answer to discovery counts beside its document."""

UNSENT_LIMIT_SECONDS = 5.0
"""Longest wait of an answer for that: of a server that is silent for so long, the connection has ended."""

FLOOD_PAUSE_SECONDS = 0.1
"""The time for which a subscription is ended on which too much arrives."""

FLOOD_REQUESTS = 1_000
"""Requests in one turn of the event loop after which the subscription of an endpoint is ended for a moment.

So much in one read, however fast this machine is, shows that more arrives than is read: the rest waits at the server,
and acknowledgements of fires wait behind it. It is more than may wait for a place.
"""

FLOOD_DISCOVERIES = 500
"""The same for a subscription of discovery, on which each client asks now and then."""

STATISTICS_REUSE_FACTOR = 10
"""Statistics are reused for this many times as long as they took."""

REPORT_AFTER_SECONDS = 1.0
REPORT_INTERVAL_SECONDS = 10.0
"""What was limited is reported this long after it began, and then at this interval."""


Limited = Callable[[int, int, int, str, str], None]
"""Receives what was too much of late: how many requests got the error 429, and how many that arrived got no answer; how
often a subscription was ended for a moment; and the client and the subject of the first of these.
"""


class _Request(NamedTuple):
    """A request that waits, or is in work."""

    one: CountedEndpoint
    answer: Responder
    client: bytes
    reply: bytes
    body: bytes


class _Subscription:
    """One subscription, which is ended for a moment if too much arrives on it."""

    def __init__(
        self,
        connection: Connection,
        subject: str,
        sink: Sink,
        group: str,
        most: int,
        paused: Callable[[bytes, str], None],
    ) -> None:
        self._connection, self._subject, self._sink, self._group = connection, subject, sink, group
        self._most, self._paused = most, paused
        self._loop = asyncio.get_running_loop()
        self._count = 0
        """What was received in this turn of the event loop."""
        self._again: asyncio.TimerHandle | None = None
        self._number = connection.subscribe(subject, self._received, group)

    def end(self) -> None:
        """End it for good."""
        if self._again is not None:
            self._again.cancel()
        self._connection.unsubscribe(self._number)

    def _received(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        self._count += 1
        if self._count == 1:
            self._loop.call_soon(self._end_turn)
        elif self._count > self._most and self._again is None:
            self._connection.unsubscribe(self._number)
            self._again = self._loop.call_later(FLOOD_PAUSE_SECONDS, self._begin_again)
            self._paused(client_of(reply, block), self._subject)
            return
        self._sink(subject, reply, block, body)

    def _end_turn(self) -> None:
        self._count = 0

    def _begin_again(self) -> None:
        self._again = None
        self._number = self._connection.subscribe(self._subject, self._received, self._group)


@coroutine
def _metered(
    work: Generator[Any, Any, T], clock: Callable[[], float], spend: Callable[[float], None]
) -> Generator[Any, Any, T]:
    """Do the work of a coroutine, return its result, and report the time of each of its steps."""
    given: Any = None
    thrown: BaseException | None = None
    while True:
        began = clock()
        try:
            awaited = work.send(given) if thrown is None else work.throw(thrown)
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            spend(max(0.0, clock() - began))
        given = thrown = None
        try:
            given = yield awaited
        except BaseException as error:
            thrown = error


_meter: ContextVar[Callable[[Generator[Any, Any, Any]], Awaitable[Any]]] = ContextVar("meter")
"""Reports the time of the steps of a coroutine as that of the request in work."""


async def metered(work: Awaitable[T]) -> T:
    """Do work in a task of its own; its process time counts as that of the request that began the task, if one did."""
    meter = _meter.get(None)
    return await work if meter is None else cast(T, await meter(work.__await__()))


class MicroService:
    """One service on one connection."""

    def __init__(
        self,
        connection: Connection,
        identity: Mapping[str, str],
        description: str,
        endpoints: Sequence[CountedEndpoint],
        now: Callable[[], int],
        defect: Callable[[Exception], None],
        limited: Limited = lambda *_of_late: None,
        process_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Answer nothing yet; `identity` is the name, the id and the version, as in each answer to discovery.

        `now` returns the time (ns), and `process_seconds` the process time (s) that counts as that of requests.
        `defect` takes errors of an endpoint's own making, and `limited` what was refused or dropped.
        """
        assert all(NAME.fullmatch(name) for name in (identity["name"], *(one.name for one in endpoints)))
        self._connection = connection
        self._identity = identity
        self._description = description
        self._endpoints = endpoints
        self._started = format_rfc3339(now())
        self._defect = defect
        self._report_limited = limited
        self._process_seconds = process_seconds
        self._tasks: TaskGroup | None = None
        self._loop = asyncio.get_running_loop()
        self._shares = Shares[_Request]()
        self._discovery = Buckets(DISCOVERY_BYTES_PER_SECOND, DISCOVERY_BYTES_PER_SECOND_OF_ONE, 2.0)
        self._documents = {"PING": self._encoded(self._ping), "INFO": self._encoded(self._info)}
        self._statistics, self._statistics_until = b"", 0.0
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._refused = self._dropped = self._pauses = 0
        self._reported_at = -REPORT_INTERVAL_SECONDS
        self._reporting: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Answer until cancelled."""
        subscriptions: list[_Subscription] = []
        try:
            async with TaskGroup() as self._tasks:
                try:
                    subscriptions += self._subscribe()
                    await self._loop.create_future()
                finally:
                    self._tasks = None  # what waits does not begin any more
        finally:
            for one in subscriptions:
                one.end()
            for handle in filter(None, (self._soon, self._later, self._reporting)):
                handle.cancel()
            for left in self._shares.clear():
                self._refuse(left.one, left.reply, ENDS)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def _subscribe(self) -> list[_Subscription]:
        me = self._identity
        discovery = [
            self._subscription(f"{DISCOVERY_PREFIX}.{verb}{rest}", partial(self._discovered, verb), "")
            for verb in ("PING", "INFO", "STATS")
            for rest in ("", f".{me['name']}", f".{me['name']}.{me['id']}")
        ]
        asked: list[_Subscription] = []
        for one in self._endpoints:
            asked.append(self._subscription(one.subject, partial(self._asked, one, one.answer), QUEUE_GROUP))
            if one.answer_alone is not None:
                sink = partial(self._asked, one, one.answer_alone)
                asked.append(self._subscription(f"{one.subject}.{me['id']}", sink, ""))
        return discovery + asked

    def _subscription(self, subject: str, sink: Sink, group: str) -> _Subscription:
        most = FLOOD_DISCOVERIES if subject.startswith(DISCOVERY_PREFIX) else FLOOD_REQUESTS
        return _Subscription(self._connection, subject, sink, group, most, self._count_pause)

    # -- discovery -----------------------------------------------------------------------------------------------

    def _discovered(self, verb: str, subject: bytes, reply: bytes, block: bytes, _body: bytes) -> None:
        if not is_inbox(reply):
            return
        client, now = client_of(reply, block), self._loop.time()
        if self._discovery.seconds(client, now) or self._connection.unsent_bytes() > MAX_UNSENT_BYTES:
            self._count_dropped(client, _shown(subject))
            return
        document = self._documents[verb] if verb in self._documents else self._statistics_at(now)
        self._discovery.use(client, len(document) + DISCOVERY_FRAME_BYTES, now, len(document) + DISCOVERY_FRAME_BYTES)
        self._connection.publish(_text(reply), document)

    def _statistics_at(self, now: float) -> bytes:
        if now >= self._statistics_until:
            self._statistics = self._encoded(self._stats)
            done = self._loop.time()
            self._statistics_until = done + STATISTICS_REUSE_FACTOR * (done - now)
        return self._statistics

    @staticmethod
    def _encoded(document: Callable[[], dict[str, Any]]) -> bytes:
        return json.dumps(document()).encode()

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

    def _asked(
        self, one: CountedEndpoint, answer: Responder, _subject: bytes, reply: bytes, block: bytes, body: bytes
    ) -> None:
        if not is_inbox(reply) or self._tasks is None:
            return
        one.requests += 1
        client, now = client_of(reply, block), self._loop.time()
        if one.places.drops(client, now):
            self._count_dropped(client, one.subject)
            return
        size = len(block) + len(body)
        request = _Request(one, answer, client, reply, body)
        if size > MAX_REQUEST_BYTES:
            too_long = f"a request of {size} bytes: at most {MAX_REQUEST_BYTES} are expected"
            self._limit(ShareRefused(request, too_long), now, BAD_REQUEST)
            return
        refused = self._shares.add(one.places, client, request, size + REQUEST_BYTES, now)
        if refused is not None:
            self._limit(refused, now)
        self._begin_soon()

    def _begin_soon(self) -> None:
        if self._soon is None and self._shares.has_waiting and self._tasks is not None:
            self._soon = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin some of the requests that wait, and see to the others later."""
        self._soon = None
        if self._tasks is None:
            return
        now, is_unsent = self._loop.time(), self._connection.unsent_bytes() > MAX_UNSENT_BYTES
        for _ in range(0 if is_unsent else BEGUN_AT_ONCE):
            request = self._shares.next(now)
            if request is None:
                break
            self._tasks.create_task(self._work(request))
        else:
            if not is_unsent:
                self._begin_soon()
        if self._later is None and self._shares.has_waiting:
            wait = UNSENT_CHECK_INTERVAL_SECONDS if is_unsent else self._shares.seconds(now)
            wait = WAITING_CHECK_INTERVAL_SECONDS if wait is None else min(wait, WAITING_CHECK_INTERVAL_SECONDS)
            self._later = self._loop.call_later(wait, self._check)

    def _check(self) -> None:
        """Refuse what has waited too long, and begin what may begin now."""
        self._later = None
        now = self._loop.time()
        for refused in self._shares.overdue(now):
            self._limit(refused, now)
        self._begin_soon()

    async def _work(self, request: _Request) -> None:
        one, client = request.one, request.client
        began = self._loop.time()
        places, answering = one.places, self._answer(request).__await__()

        def spend(seconds: float) -> None:
            places.budget.spend(places.owner or client, seconds, self._loop.time())

        spend(BEGINNING_SECONDS)
        try:
            meter = partial(_metered, clock=self._process_seconds, spend=spend)
            _meter.set(meter)
            await meter(answering)
        finally:
            self._shares.end(places, client)
            one.seconds += self._loop.time() - began
            self._begin_soon()

    async def _answer(self, request: _Request) -> None:
        one, answer, _client, reply, body = request
        try:
            answered = await answer(body)
            waited = 0.0
            # A fire would have to wait behind all answers that are written before it.
            while waited < UNSENT_LIMIT_SECONDS and self._connection.unsent_bytes() > MAX_UNSENT_BYTES:
                await asyncio.sleep(UNSENT_CHECK_INTERVAL_SECONDS)
                waited += UNSENT_CHECK_INTERVAL_SECONDS
            if not self._connection.publish(_text(reply), answered):
                raise ServiceError(INTERNAL_ERROR, f"an answer of {len(answered)} bytes: the server does not take it")
        except ServiceError as error:
            self._refuse(one, reply, error)
        except asyncio.CancelledError:
            self._refuse(one, reply, ENDS)
            raise
        except Exception as error:
            self._defect(error)
            self._refuse(one, reply, ServiceError(INTERNAL_ERROR, "the sidecar failed; its log has the error"))

    def _refuse(self, one: CountedEndpoint, reply: bytes, error: ServiceError) -> None:
        one.errors += 1
        one.last_error = f"{error.code}:{error.sentence}"
        # A subject that is not UTF-8 reaches us as an escape, which cannot be encoded: it is shown as `?`.
        sentence = error.sentence.encode("utf-8", "replace")
        headers = ((b"Nats-Service-Error", sentence), (b"Nats-Service-Error-Code", b"%d" % error.code))
        self._connection.publish(_text(reply), b"", with_headers(None, (*headers, *error.headers)))

    # -- limits --------------------------------------------------------------------------------------------------

    def _limit(self, refused: ShareRefused[_Request], now: float, code: int = TOO_MANY_REQUESTS) -> None:
        """Refuse a request, or drop it if too many are refused."""
        one, _answer, client, reply, _body = refused.item
        if self._connection.unsent_bytes() > MAX_UNSENT_BYTES or not one.places.may_refuse(client, now):
            self._count_dropped(client, one.subject)
            return
        self._refuse(one, reply, ServiceError(code, refused.why))
        self._refused += 1
        if self._reporting is None:
            self._report_soon(_shown(client), one.subject)

    def _count_dropped(self, client: bytes, subject: str) -> None:
        self._dropped += 1
        if self._reporting is None:
            self._report_soon(_shown(client), subject)

    def _count_pause(self, client: bytes, subject: str) -> None:
        self._pauses += 1
        self._count_dropped(client, subject)

    def _report_soon(self, client: str, subject: str) -> None:
        at = max(self._loop.time() + REPORT_AFTER_SECONDS, self._reported_at + REPORT_INTERVAL_SECONDS)
        self._reporting = self._loop.call_at(at, self._report, client, subject)

    def _report(self, client: str, subject: str) -> None:
        self._reporting, self._reported_at = None, self._loop.time()
        self._report_limited(self._refused, self._dropped, self._pauses, client, subject)
        self._refused = self._dropped = self._pauses = 0


def is_inbox(reply: bytes) -> bool:
    """Return whether an answer may be sent to a subject: inboxes begin with `_`, as do answers across accounts.

    On the inbox of a sidecar an answer could pass for an acknowledgement, so there is one token for answers.
    """
    return reply.startswith(b"_") and (_OWN not in reply or not _OWN_INBOX.search(reply))


def _text(subject: bytes) -> str:
    return subject.decode("utf-8", "surrogateescape")


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "replace")[:MAX_ERROR_CHARS]


def error_of(block: bytes) -> tuple[int, str]:
    """Return code and sentence of an error that a service answered, from the headers of the answer."""
    code = (header_value(block, b"Nats-Service-Error-Code") or b"").decode("ascii", "replace")
    sentence = (header_value(block, b"Nats-Service-Error") or b"").decode("utf-8", "replace")
    return int(code) if code.isdecimal() else INTERNAL_ERROR, sentence[: MAX_ERROR_CHARS + 1]
