"""A test's own connection to a server, and a sidecar in the test's process.

Messages are published and read as raw bytes, because bytes are what is promised.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

from nats_scheduler.control.errors import DeadlineError, NoRespondersError, RefusedError, SchedulerError
from nats_scheduler.control.transport import Reply
from nats_scheduler.doctor.sidecar_examination import examine_sidecar
from nats_scheduler.engine.events import Ending, Event, ScheduleEnded, StreamReady
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import dial_for_a_command
from nats_scheduler.jetstream.lookups import is_temporary
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock, SystemClock
from nats_scheduler.runtime.sidecar import Sidecar
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.harness.blocks import block_to_send
from tests.harness.waiting import PATIENCE_SECONDS, eventually

DRAIN_NS = int(PATIENCE_SECONDS * SECOND)
"""A busy server acknowledges the last fires late, and a sidecar that has to end clean waits for them."""

NOT_PLACED_YET = frozenset({10005, 10008})
"""The error codes of a cluster that has not met all its nodes: no suitable peers, no meta leader."""

ANSWER_SECONDS = 20.0
"""Longest wait for an answer: a busy server takes some time, and a cluster without a leader never answers."""
CLOCK = SystemClock()


def in_seconds(seconds: float) -> str:
    """Return the time `seconds` from now, as `@at` takes it."""
    return format_rfc3339(CLOCK.now() + int(seconds * SECOND))


async def flushed(connection: Connection) -> None:
    """Return when the server has taken all that was sent before: what was subscribed to is delivered from now on.

    All that the server had delivered before has come, too.
    """
    await connection.request("$JS.API.INFO")


def far_hour(zone: str) -> int:
    """Return 9 or 21: the hour that is at least five hours away in this zone, before and after."""
    return 21 if 4 <= datetime.now(ZoneInfo(zone)).hour < 16 else 9


@dataclass
class Account:
    """One account of one server, seen by a test."""

    connection: Connection
    api: JetStreamApi

    async def create(self, name: str, **config: Any) -> Any:
        """Create a stream on `<name>.>`, flagged unless the test says otherwise.

        A cluster that has just elected its leader may not place replicas yet, or answer too late; it is asked again,
        which is safe, because the same creation is accepted twice.
        """
        wanted = {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True, "storage": "memory", **config}

        async def created() -> Any:
            try:
                return await self.api.call(f"STREAM.CREATE.{name}", wanted)
            except DeadlineError:
                return None
            except RefusedError as error:
                if error.code not in NOT_PLACED_YET:
                    raise
                return None

        return await eventually(created, describe=f"the stream {name} can be created")

    async def publish(self, subject: str, headers: Mapping[str, str] | str = "", body: bytes = b"body") -> int:
        """Store a message and return its sequence; raises AssertionError where the server refuses it."""
        return await self.publish_block(subject, block_to_send(headers) if headers else b"", body)

    async def publish_block(self, subject: str, block: bytes, body: bytes) -> int:
        """Store a message whose header block is sent as it is, and return its sequence.

        A node of a cluster learns some time after its creation that a stream of another node has the subject.
        """

        reply = await replied(self.connection, subject, body, block)
        answer = json.loads(reply.body)
        assert "error" not in answer, (answer, subject, block)
        return int(answer["seq"])

    async def messages(self, stream: str, subject: str) -> list[StoredMessage]:
        """Return everything stored on a subject, in order."""
        found = []
        sequence = 1
        while message := await self.api.message(stream, seq=sequence, next_by_subj=subject):
            found.append(message)
            sequence = message.sequence + 1
        return found

    async def number_on(self, stream: str, subject: str) -> int:
        """Return how many messages are stored on the subjects of a filter."""
        return sum([number async for _, number in self.api.subject_counts(stream, subject)])

    async def wait_for(self, stream: str, subject: str, count: int = 1) -> list[StoredMessage]:
        """Wait until at least `count` messages are stored on a subject, and return them all."""

        async def enough() -> list[StoredMessage] | None:
            try:
                found = await self.messages(stream, subject) if await self.number_on(stream, subject) >= count else []
            except SchedulerError as error:
                if not is_temporary(error):
                    raise
                return None  # a stream has no leader for a moment, or its server reads its configuration anew
            return found if len(found) >= count else None

        return await eventually(enough, describe=f"{count} messages on {subject} in {stream}")


async def replied(
    connection: Connection, subject: str, body: bytes, block: bytes = b"", seconds: float = PATIENCE_SECONDS
) -> Reply:
    """Send a request until somebody subscribes to its subject, and return the answer.

    What may arrive twice is sent again after fewer `seconds`: on a busy machine a sidecar may lose its connection, and
    with it what it was asked.
    """

    async def sent() -> Reply | None:
        try:
            return await connection.request(subject, body, block, seconds)
        except (NoRespondersError, DeadlineError):
            return None

    return await eventually(sent, describe=f"somebody answers {subject}")


@asynccontextmanager
async def account_on(url: str, **settings: Any) -> AsyncIterator[Account]:
    """Connect to a server as a test, which waits for a busy one."""
    patient = {"connect_timeout": int(ANSWER_SECONDS * SECOND), **settings}
    connection = await dial_for_a_command(ConnectionSettings(servers=(url,), **patient))
    try:
        yield Account(connection, JetStreamApi(connection, deadline=ANSWER_SECONDS))
    finally:
        await connection.close()


class OpenReporter(Reporter):
    """A reporter that also keeps the problems that it reports."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics)
        self.problems: list[tuple[str, dict[str, Any]]] = []

    def problem(self, action: str, **fields: Any) -> None:
        """Keep it, and report it."""
        self.problems.append((action, fields))
        super().problem(action, **fields)


@dataclass
class Running:
    """A sidecar in this process."""

    sidecar: Sidecar
    metrics: Metrics
    reporter: OpenReporter
    events: list[tuple[str, Event]] = field(default_factory=list)
    was_clean: bool = False
    """True if it left nothing in flight, once it has ended."""

    @property
    def problems(self) -> list[tuple[str, dict[str, Any]]]:
        """What it reported as problems: the kind of each, and its fields."""
        return self.reporter.problems

    def of(self, stream: str, kind: type[Any]) -> list[Any]:
        """Return the events of one kind about one stream."""
        return [event for name, event in self.events if name == stream and isinstance(event, kind)]

    async def reported(self, stream: str, kind: type[Any], count: int = 1) -> list[Any]:
        """Wait until at least `count` events of one kind were reported about one stream, and return them."""
        await eventually(
            lambda: len(self.of(stream, kind)) >= count,
            describe=lambda: f"{count} {kind.__name__} of {stream} among {self.events[-5:]}",
        )
        return self.of(stream, kind)

    async def ended(self, stream: str, schedule: str) -> Ending:
        """Wait until a schedule of a stream has ended and return why."""
        endings: list[Ending] = await eventually(
            lambda: [event.ending for event in self.of(stream, ScheduleEnded) if event.schedule == schedule],
            describe=f"the schedule on {schedule} ends",
        )
        return endings[-1]

    def told(self, action: str) -> list[dict[str, Any]]:
        """Return the fields of each reported problem of one kind."""
        return [fields for kind, fields in self.problems if kind == action]

    async def told_of(self, action: str, **wanted: Any) -> dict[str, Any]:
        """Wait until a problem was reported with these fields, and return all of its fields."""
        return await eventually(
            lambda: next((told for told in self.told(action) if wanted.items() <= told.items()), None),
            describe=lambda: f"{action} {wanted} among {self.problems}",
        )

    def gauge(self, name: str, **labels: str) -> float | None:
        """Return a sample as a scrape shows it now, None if there is no such series."""
        return self.metrics.registry.get_sample_value(f"nats_scheduler_{name}", labels)

    async def shows(self, name: str, least: float, most: float | None = None, **labels: str) -> float:
        """Wait until a sample is from `least` to `most`, and return it; without `most` there is no upper bound."""
        seen: list[float | None] = [None]

        def is_shown() -> bool:
            seen[0] = self.gauge(name, **labels)
            return seen[0] is not None and least <= seen[0] and (most is None or seen[0] <= most)

        await eventually(is_shown, describe=lambda: f"{name}{labels} from {least} to {most}, not {seen[0]},")
        return seen[0] or 0.0

    async def ready(self, stream: str, times: int = 1, within_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until a stream is served."""
        await eventually(
            lambda: len(self.of(stream, StreamReady)) >= times,
            within_seconds=within_seconds,
            describe=f"the sidecar serves {stream}",
        )

    async def not_healthy(self, sentence: str) -> None:
        """Wait until it is not ready for a reason that contains this."""
        await eventually(
            lambda: any(sentence in reason for reason in self.sidecar.not_ready()),
            describe=lambda: f"{sentence!r} among {self.sidecar.not_ready()}",
        )

    async def healthy(self) -> None:
        """Wait until all schedules fire: a stream is ready before it is taken over."""
        await eventually(
            lambda: not self.sidecar.not_ready(),
            describe=lambda: f"the sidecar is ready, and not {self.sidecar.not_ready()},",
        )


@asynccontextmanager
async def started_sidecar(connection: ConnectionSettings, **settings: Any) -> AsyncIterator[Running]:
    """Start a sidecar, which may never come to serve; it is drained at the end."""
    async with _started(SidecarSettings(connection=connection, **settings), CLOCK) as running:
        yield running


@asynccontextmanager
async def sidecar_on(url: str, **settings: Any) -> AsyncIterator[Running]:
    """Run a sidecar for a server; it is drained at the end, and must end clean."""
    async with sidecar_with(SidecarSettings(connection=ConnectionSettings(servers=(url,)), **settings)) as running:
        yield running


@asynccontextmanager
async def sidecar_with(chosen: SidecarSettings, clock: Clock = CLOCK) -> AsyncIterator[Running]:
    """Run a sidecar with these settings, on a machine with this clock; it must end clean."""
    async with _started(chosen, clock) as running:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await running.sidecar.serving.wait()
        yield running
    assert running.was_clean, "the sidecar left something in flight"


@asynccontextmanager
async def _started(chosen: SidecarSettings, clock: Clock) -> AsyncIterator[Running]:
    """Run a sidecar, with a folder of its own and time to drain, where the settings name none."""
    with TemporaryDirectory(prefix="data-") as folder:
        own = {"data": Path(folder), "drain_timeout": DRAIN_NS}
        chosen = chosen.model_copy(update={name: own[name] for name in own.keys() - chosen.model_fields_set})
        metrics = Metrics()
        reporter = OpenReporter(metrics)
        running = Running(Sidecar(chosen, clock, reporter, examine_sidecar), metrics, reporter)
        reporter.listen(lambda stream, event: running.events.append((stream, event)))
        task = asyncio.create_task(running.sidecar.run())
        try:
            yield running
        finally:
            running.sidecar.stop()
            running.was_clean = await task
