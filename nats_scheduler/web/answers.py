"""What the sidecars answered: shared by all readers of the page, and kept to be shown when no answer comes any more.

The rules: two readers who look at the same thing cause one request. An answer is kept for `fresh_seconds`, and for
`PAUSE_FACTOR` times as long as the sidecar needed for it: a page is not worth that a sidecar works for it all the time.
After that a reader waits for the next one, but no longer than `PATIENCE_SECONDS`, and else gets the one before. An
answer that does not have the form of the schema counts as none: another version, or another program, sent it.
The page has a connection of its own (`Link`), and is one of the programs for which `service.client.ask` asks.
Cost: at most `MAX_KEPT` answers in memory, the least recently used one is dropped first; one connection, and a dial
every second while there is none.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.errors import ConnectError
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.observe.documents import instant_of
from nats_scheduler.observe.log import logger
from nats_scheduler.service.client import (
    PAUSE_FACTOR,
    NotConnectedError,
    NothingSubscribesError,
    QuestionError,
    RefusedError,
    ask,
    read,
)
from nats_scheduler.service.now import ActivityAnswer, RecentFiresAnswer, TimelineAnswer
from nats_scheduler.service.past import FailuresAnswer, FiresAnswer
from nats_scheduler.service.patterns import ExplainAnswer, NextAnswer
from nats_scheduler.service.schemas import (
    FindingsAnswer,
    HealthAnswer,
    InstancesAnswer,
    MisnamedAnswer,
    RejectedAnswer,
    ScheduleAnswer,
    SchedulesAnswer,
    StreamsAnswer,
)
from nats_scheduler.settings.connection import ConnectionSettings

RECONNECT_PAUSE_SECONDS = 1.0
"""Pause after a pass over all servers in which none accepted the connection."""

REPORT_INTERVAL_SECONDS = 30.0
"""How often the log repeats why there is no connection."""

ANSWER_SECONDS = 10.0
"""Longest wait for an answer: a sidecar has 30 s, and a page is not looked at for that long."""


class Link:
    """A connection that is made again when it is lost, for as long as that takes.

    A request never waits for it: without a connection it fails at once with the reason, so that a page can say so.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._dialer = Dialer(settings)
        self._connection: Connection | None = None
        self._reason = "the first connection is being made"
        self._reported: tuple[str, float] = ("", 0.0)

    @property
    def server(self) -> str:
        """The server that it is connected to, "" if it is not connected."""
        return "" if self._connection is None else self._connection.server.name

    async def keep(self) -> None:
        """Connect, and connect again, until cancelled."""
        while True:
            try:
                connection = await self._dialer.dial()
            except ConnectError as error:
                self._reason = str(error)
                self._report_failure()
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)
                continue
            await self._use(connection)

    async def _use(self, connection: Connection) -> None:
        """Serve requests with a connection until it is lost."""
        self._connection, self._reported = connection, ("", 0.0)
        server = connection.server
        logger().info("connected", server=connection.url, name=server.name, version=server.version)
        try:
            self._reason = await asyncio.shield(connection.lost)
            logger().warning("connection_lost", reason=self._reason)
        finally:
            self._connection = None
            await connection.close()

    def _report_failure(self) -> None:
        now, (reason, reported_at) = asyncio.get_running_loop().time(), self._reported
        if self._reason != reason or now - reported_at >= REPORT_INTERVAL_SECONDS:
            self._reported = self._reason, now
            logger().warning("connect_failed", reason=self._reason)

    async def ask(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Send a request to the micro service and return the answer; raises `QuestionError`."""
        if self._connection is None:
            raise NotConnectedError(self._reason)
        return await ask(self._connection, endpoint, request, ANSWER_SECONDS, "the user of this page")


T = TypeVar("T")

PATIENCE_SECONDS = 2.0
"""Longest wait of a reader; an answer that comes later is shown when the page updates itself."""

MAX_REQUESTS = 12
"""Requests in work at once; a sidecar takes 32, and others ask it too."""

MAX_KEPT = 256
"""Answers that are kept."""


@dataclass(frozen=True)
class Question(Generic[T]):
    """An endpoint, the model of its answer, and how long an answer may be shown to further readers."""

    endpoint: str
    form: type[T]
    fresh_seconds: float = 1.0


HEALTH = Question("health.get", HealthAnswer)


def health_of(instance: str) -> Question[HealthAnswer]:
    """Return the question whether one instance is ready."""
    return Question(f"{HEALTH.endpoint}.{instance}", HealthAnswer)


STREAMS = Question("streams.list", StreamsAnswer)
SCHEDULES = Question("schedules.list", SchedulesAnswer)
SCHEDULE = Question("schedules.get", ScheduleAnswer)
NEXT_FIRES = Question("schedules.next", NextAnswer)
EXPLANATION = Question("explain", ExplainAnswer, fresh_seconds=30.0)
REJECTED = Question("rejected.list", RejectedAnswer, fresh_seconds=5.0)
MISNAMED = Question("misnamed.list", MisnamedAnswer, fresh_seconds=5.0)
PAST_FIRES = Question("fires.list", FiresAnswer, fresh_seconds=2.0)
FAILURES = Question("failures.list", FailuresAnswer, fresh_seconds=2.0)
INSTANCES = Question("instances.list", InstancesAnswer)
RECENT_FIRES = Question("fires.recent", RecentFiresAnswer)
ACTIVITY = Question("activity.list", ActivityAnswer, fresh_seconds=2.0)
TIMELINE = Question("timeline.list", TimelineAnswer, fresh_seconds=2.0)
FINDINGS = Question("findings.list", FindingsAnswer, fresh_seconds=30.0)


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What is known of the answer to one question."""

    data: T | None
    """The last answer; None if there was none."""
    at: int | None
    """When it came, by the server's clock (ns since the Unix epoch)."""
    fault: str
    """Why the last request has no answer, as a sentence; "" if it has one, or is still in work."""
    code: int = 0
    """The code of the error that a sidecar answered, 0 for none."""
    is_waiting: bool = False
    """Whether the answer did not come in time, and is still awaited."""
    is_connected: bool = True
    """Whether there was a connection."""
    is_absent: bool = False
    """Whether nothing subscribes to the endpoint: no sidecar runs, or none that has it."""


class _Entry:
    """One question as it was asked: the last answer, and the request that is in work."""

    def __init__(self) -> None:
        self.part: Part[Any] = Part(None, None, "")
        self.fresh_until = 0.0
        self.task: asyncio.Task[None] | None = None


class Answers:
    """The answers to all questions, by endpoint and request."""

    def __init__(self, link: Link, now: Callable[[], int]) -> None:
        """Ask through `link`; `now` returns the time in ns since the Unix epoch."""
        self._link = link
        self._now = now
        self._offset = 0
        """The server's clock minus that of this machine (ns)."""
        self._places = asyncio.Semaphore(MAX_REQUESTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self.last_good_at: int | None = None
        """When the last answer of any kind came (ns)."""

    async def close(self) -> None:
        """End the requests that are in work."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def now(self) -> int:
        """Return the time by the server's clock, as of the last answer about health (ns since the Unix epoch)."""
        return self._now() + self._offset

    async def get(self, question: Question[T], request: Mapping[str, object] | None = None) -> Part[T]:
        """Return the answer to a question: a fresh one if it comes in time, or else the last one."""
        entry = self._entry(question.endpoint, request or {})
        now = asyncio.get_running_loop().time()
        if entry.task is None and now >= entry.fresh_until:
            entry.task = asyncio.create_task(self._ask(entry, question, request or {}))
            self._tasks.add(entry.task)
            entry.task.add_done_callback(self._tasks.discard)
        if entry.task is not None:
            await asyncio.wait([entry.task], timeout=PATIENCE_SECONDS)
        part: Part[T] = entry.part
        if entry.task is not None and part.data is None and not part.fault:
            return Part(None, None, "", is_waiting=True)
        return part

    def _entry(self, endpoint: str, request: Mapping[str, object]) -> _Entry:
        key = endpoint, json.dumps(request, sort_keys=True)
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        while len(self._entries) > MAX_KEPT:
            self._entries.popitem(last=False)
        return entry

    async def _ask(self, entry: _Entry, question: Question[Any], request: Mapping[str, object]) -> None:
        before, began = entry.part, asyncio.get_running_loop().time()
        try:
            async with self._places:
                began = asyncio.get_running_loop().time()
                answer = await self._link.ask(question.endpoint, request)
            found = read(question.form, answer)
            if question.form is HealthAnswer:
                self._offset = instant_of(found["at"]) - self._now()
            entry.part = Part(found, self.now(), "")
            self.last_good_at = entry.part.at
        except RefusedError as error:
            kept = before if error.code in PASSING_CODES else Part(None, None, "")
            entry.part = Part(kept.data, kept.at, str(error), error.code)
        except QuestionError as error:
            entry.part = Part(
                before.data,
                before.at,
                str(error),
                is_connected=not isinstance(error, NotConnectedError),
                is_absent=isinstance(error, NothingSubscribesError),
            )
        except Exception as error:
            logger().error("request_failed", exc_info=error)
            entry.part = Part(before.data, before.at, "this page failed to read the answer; its log has the reason")
        finally:
            now = asyncio.get_running_loop().time()
            entry.fresh_until = now + max(question.fresh_seconds, PAUSE_FACTOR * (now - began))
            entry.task = None


PASSING_CODES = frozenset({429, 500, 503})
"""Errors after which the answer before is still of use."""
