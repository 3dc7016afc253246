"""Both implementations of `engine.stream_port.StreamPort`, each with its stream, behind the same interface.

Its rule: a test names no implementation; a side says what its server can do (`has_guard`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from nats_scheduler.engine.fire import Fire, LookForFire
from nats_scheduler.engine.inputs import (
    CaughtUp,
    FireLookedFor,
    FiresStored,
    Input,
    MessagesRead,
    PublishConcluded,
    PurgeConcluded,
    SchedulesPurged,
    Stored,
)
from nats_scheduler.engine.stream_port import StreamPort
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.contact import StreamContact
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.publish import outcome_of
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.testing.manual_clock import ManualClock
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.harness.blocks import with_guard, with_identity
from tests.harness.replicated import LaggingContact, ReplicatedStream
from tests.harness.waiting import eventually
from tests.harness.workers import Worker

ANSWER_SECONDS = 30.0
"""Longest wait for an input; a busy machine is slow, and the promise is only that it comes."""

Kind = TypeVar("Kind", bound=Input)


def each(given: Input) -> Iterable[Input]:
    """Return one input for each fire, or purge, of an input about many."""
    if isinstance(given, SchedulesPurged):
        return [PurgeConcluded(*purge) for purge in zip(given.schedules, given.throughs, strict=True)]
    if not isinstance(given, FiresStored):
        return (given,)
    pairs = zip(given.fires, given.sequences, strict=True)
    return [PublishConcluded(fire, Stored(sequence)) for fire, sequence in pairs]


class PortSide:
    """One contact, its inputs, and its stream."""

    def __init__(self, name: str, contact: StreamPort, backing: "Backing", inputs: list[Input], *, guard: bool) -> None:
        self.contact = contact
        self.inputs = inputs
        self.has_guard = guard
        self.name = name
        self._backing = backing
        self._fires = 0

    def subject(self, name: str) -> str:
        """Return a subject of the stream."""
        return f"{self.name}.{name}"

    def fire(
        self, block: bytes = EMPTY_BLOCK, body: bytes = b"", *, target: str = "out", guarded_by: int | None = None
    ) -> Fire:
        """Build a fire with an identity of its own; `guarded_by` is the expected sequence on the subject `schedule`."""
        self._fires += 1
        schedule = self.subject("schedule")
        block = with_identity(block, f"fire-{self._fires}")
        if guarded_by is not None:
            block = with_guard(block, schedule, guarded_by)
        return Fire(schedule, guarded_by or 0, self._fires, None, self.subject(target), block, body)

    async def store(self, name: str, block: bytes = b"", body: bytes = b"") -> int:
        """Store a message as an application does, and return its sequence."""
        outcome = await self._backing.publish(self.subject(name), block, body)
        assert isinstance(outcome, Stored), outcome
        return outcome.sequence

    async def deny_delete(self) -> None:
        """Let the stream refuse from now on to delete a message."""
        await self._backing.deny_delete()

    async def delete(self, sequence: int) -> None:
        """Delete a message."""
        await self._backing.delete(sequence)

    async def stored(self) -> list[tuple[int, str]]:
        """List what is stored: sequence and name of the subject."""
        return [(sequence, subject[len(self.name) + 1 :]) for sequence, subject in await self._backing.messages()]

    async def consumers(self) -> int:
        """Return how many consumers the stream has."""
        return await self._backing.consumers()

    async def add_consumer(self, name: str, matching: str | None = None, *, is_behind: bool = False) -> None:
        """Create a durable consumer, as an application does; `matching` names what it receives, without for all.

        One that `is_behind` receives only what is stored later.
        """
        await self._backing.add_consumer(
            name, None if matching is None else self.subject(matching), is_behind=is_behind
        )

    async def acknowledge(self, name: str, sequence: int) -> None:
        """Have a consumer acknowledge one message."""
        await self._backing.acknowledge(name, sequence)

    async def add_stream(self, **config: Any) -> "Backing":
        """Create the other stream of the account."""
        return await self._backing.add_stream(f"{self.name}_OTHER", config)

    def elsewhere(
        self, target: str = "run", *, fire_time: int = 0, sequence: int = 7, schedule: str = "schedule"
    ) -> Fire:
        """Build a fire of a schedule into the other stream."""
        name = self.subject(schedule)
        block = with_headers(None, [(b"X-Nats-Scheduler", name.encode()), (b"X-Nats-Schedule-Next", b"purge")])
        block = with_identity(block, fire_identity(name, sequence, fire_time))
        return Fire(
            name, sequence, fire_time, None, f"{self.name}_OTHER.{target}", block, b"body", is_to_other_stream=True
        )

    async def looked_for(self, fire: Fire, since: int = 0, first: int | None = None) -> FireLookedFor:
        """Look for a fire, and return the answer."""
        before = len(self.received(FireLookedFor))
        first = fire.fire_time if first is None else first
        self.contact.ask(LookForFire(fire, since, first, was_sent=True))
        return (await self.hears(FireLookedFor, before + 1))[before]

    def received(self, kind: type[Kind]) -> list[Kind]:
        """Return the inputs of one kind, in order."""
        return [given for given in self.inputs if isinstance(given, kind)]

    async def hears(self, kind: type[Kind], count: int = 1) -> list[Kind]:
        """Wait for `count` inputs of a kind."""
        await eventually(
            lambda: len(self.received(kind)) >= count,
            describe=lambda: f"{count} {kind.__name__}, among {self.inputs[-5:]}",
        )
        return self.received(kind)

    async def outcome(self, fire: Fire) -> Any:
        """Publish a fire and return its outcome."""
        before = len(self.received(PublishConcluded))
        self.contact.publish([fire])
        concluded = (await self.hears(PublishConcluded, before + 1))[before]
        assert concluded.fire is fire
        return concluded.outcome

    @property
    def read(self) -> list[StoredMessage]:
        """The messages that the follower has delivered so far."""
        return [message for received in self.received(MessagesRead) for message in received.messages]

    async def reads(self, count: int) -> list[StoredMessage]:
        """Wait until the follower has delivered `count` messages."""
        await eventually(lambda: len(self.read) >= count, describe="messages read")
        return self.read

    @asynccontextmanager
    async def following(self, after: int = 0) -> AsyncIterator[None]:
        """Follow the stream for the length of a `with` block, which begins when everything stored was delivered."""
        task = asyncio.ensure_future(self.contact.follow(after))
        try:
            await self.hears(CaughtUp)
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))


# -- in memory -------------------------------------------------------------------------------------------------------


class _MemoryBacking:
    def __init__(self, stream: MemoryStream, others: list[MemoryStream]) -> None:
        self._stream, self._others = stream, others

    async def publish(self, subject: str, block: bytes = b"", body: bytes = b"") -> Any:
        return self._stream.publish(subject, block, body)

    async def delete(self, sequence: int) -> None:
        assert self._stream.delete(sequence)

    async def deny_delete(self) -> None:
        self._stream.config["deny_delete"] = True

    async def messages(self) -> list[tuple[int, str]]:
        return [(message.sequence, message.subject) for message in self._stream.messages()]

    async def consumers(self) -> int:
        return 0

    async def add_stream(self, name: str, config: Mapping[str, Any]) -> "_MemoryBacking":
        stream = MemoryStream(memory_config(name, config), self._stream._now)
        self._others.append(stream)
        return _MemoryBacking(stream, self._others)

    async def add_consumer(self, name: str, matching: str | None = None, *, is_behind: bool = False) -> None:
        consumer = self._stream.add_consumer(name, matching or ">")
        if is_behind:
            consumer.give_up_all()

    async def acknowledge(self, name: str, sequence: int) -> None:
        self._stream.consumers[name].acknowledge(sequence)


class _DrivenContact(LaggingContact):
    """Contact with a stream in memory that the event loop drives."""

    async def follow(self, after: int) -> None:
        """Deliver what is stored until this is cancelled."""
        stop = self.begin_following(after)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stop()

    def _after(self, duration: int, event: Callable[[], None]) -> None:
        super()._after(duration, event)
        if not duration:
            asyncio.get_running_loop().call_soon(self.deliver)


@asynccontextmanager
async def memory_side(
    name: str, config: Mapping[str, Any], stream: ReplicatedStream | None = None
) -> AsyncIterator[PortSide]:
    """Make contact with a stream in memory, driven by the event loop."""
    clock, inputs = ManualClock(), list[Input]()
    if stream is None:
        stream = ReplicatedStream(memory_config(name, config), clock.now)
    others: list[MemoryStream] = []
    contact = _DrivenContact(stream, inputs.append, clock, others=others)
    yield PortSide(name, contact, _MemoryBacking(stream, others), inputs, guard=True)


# -- on a real server ------------------------------------------------------------------------------------------------


class _ServerBacking:
    def __init__(self, connection: Connection, api: JetStreamApi, name: str) -> None:
        self._connection, self._api, self._name = connection, api, name
        self._workers: dict[str, Worker] = {}

    async def publish(self, subject: str, block: bytes = b"", body: bytes = b"") -> Any:
        return outcome_of(self._name, *await self._connection.request(subject, body, block))

    async def delete(self, sequence: int) -> None:
        await self._api.call(f"STREAM.MSG.DELETE.{self._name}", {"seq": sequence, "no_erase": True})

    async def deny_delete(self) -> None:
        info = await self._api.stream(self._name)
        await self._api.update_stream({**info["config"], "deny_delete": True})

    async def messages(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        after = 0
        while (message := await self._api.message(self._name, seq=after + 1, next_by_subj=">")) is not None:
            after = message.sequence
            found.append((after, message.subject))
        return found

    async def consumers(self) -> int:
        info = await self._api.stream(self._name)
        return int(info["state"]["consumer_count"])

    async def add_stream(self, name: str, config: Mapping[str, Any]) -> "_ServerBacking":
        await self._api.create_stream(memory_config(name, config))
        return _ServerBacking(self._connection, self._api, name)

    async def add_consumer(self, name: str, matching: str | None = None, *, is_behind: bool = False) -> None:
        worker = self._workers[name] = Worker(self._connection, self._api, self._name, name)
        filtered = {} if matching is None else {"filter_subject": matching}
        await worker.begin(**filtered, deliver_policy="new" if is_behind else "all")

    async def acknowledge(self, name: str, sequence: int) -> None:
        worker = self._workers[name]
        while sequence not in worker.taken:
            worker.pull(1)
            await worker.takes(len(worker.taken) + 1)
        await worker.acknowledge(sequence)


Backing = _MemoryBacking | _ServerBacking
"""A stream as its users see it."""


@asynccontextmanager
async def server_side(
    url: str,
    name: str,
    config: Mapping[str, Any],
    *,
    prefix: str = "$JS.API",
    is_standby: Callable[[], bool] = lambda: False,
) -> AsyncIterator[PortSide]:
    """Make contact with a stream on a server, through the API under a prefix; it `is_standby` of another sidecar."""
    connection = await Dialer(ConnectionSettings(servers=(url,))).dial()
    api = JetStreamApi(connection)
    inputs: list[Input] = []
    version = tuple(map(int, connection.server.version.split(".")[:2]))
    try:
        await api.create_stream(memory_config(name, config))
        through = JetStreamApi(connection, prefix)
        info = await through.stream(name)
        async with asyncio.TaskGroup() as tasks:
            contact = StreamContact(
                connection,
                through,
                info["config"],
                lambda given: inputs.extend(each(given)),
                tasks,
                holds=lambda _subject: False,
                is_standby=is_standby,
                window=256,
                ack_timeout=ANSWER_SECONDS,
            )
            yield PortSide(name, contact, _ServerBacking(connection, api, name), inputs, guard=version >= (2, 11))
            contact.end("the test is over")
        for stream in [info["config"]["name"] async for info in api.streams()]:
            if stream.startswith(name):
                await api.call(f"STREAM.DELETE.{stream}")
    finally:
        await connection.close()


def memory_config(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a stream in memory on its own subjects."""
    basis = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "retention": "limits"}
    return {**basis, "allow_rollup_hdrs": True, "num_replicas": 1, "max_msgs_per_subject": -1, **config}
