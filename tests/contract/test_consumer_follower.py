"""A limits stream is followed through a consumer: within the limits of the server, through bursts of the sidecar's own
fires, of which it reads only what others store, and past consumers whose node died.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from nats_scheduler.control.requests import MESSAGE_NOT_FOUND
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, Input, MessagesRead, PublishConcluded, Stored
from nats_scheduler.jetstream import consumer_follower, followed_bodies, pulled_consumer
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.burst import MIN_BURST_FIRES
from nats_scheduler.jetstream.connection import Connection, ServerInfo, frame
from nats_scheduler.jetstream.consumer_follower import ConsumerFollower
from nats_scheduler.jetstream.publish import outcome_of
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.message.stored import MAX_FOLLOWED_BODY_BYTES
from tests.conftest import SharedServer, StartServer
from tests.contract.sides import PortSide, server_side
from tests.harness.account import account_on
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually


@pytest.mark.parametrize("version", [V2_10, V2_11])
async def test_no_more_is_asked_for_at_a_time_than_the_server_allows(
    start_server: StartServer, stream_name: str, version: str
) -> None:
    server = await start_server(version, config="jetstream { limits { max_request_batch: 1 } }\n")
    async with server_side(server.url, stream_name, {}) as side:
        for _ in range(20):
            await side.store("before")
        async with side.following():
            for _ in range(20):
                await side.store("after")
            read = await side.reads(40)
            assert [message.sequence for message in read] == list(range(1, 41))
            assert await side.consumers() == 1


async def test_a_stream_with_an_idle_limit_for_consumers_is_followed(
    shared_server: SharedServer, stream_name: str
) -> None:
    limits = {"consumer_limits": {"inactive_threshold": 1_000_000_000}}
    async with server_side((await shared_server(V2_11)).url, stream_name, limits) as side, side.following():
        await side.store("a")
        assert len(await side.reads(1)) == 1


async def test_bodies_are_followed_until_they_cost_much(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, one = (await shared_server(V2_11)).url, {"max_msgs_per_subject": 1}

    async def last_body(side: PortSide, body: bytes = b"small") -> bytes | None:
        """Store a message on a subject of its own, and return the body with which it is read."""
        sequence = await side.store(f"a{len(side.read)}", body=body)
        read = await side.reads(sequence)
        assert [message.sequence for message in read] == list(range(1, sequence + 1)), "none is left out"
        return read[-1].body

    async def come(side: PortSide, body: bytes | None) -> None:
        async def comes() -> bool:
            return await last_body(side) == body

        await eventually(comes)  # another consumer has to be created

    async with server_side(url, f"{stream_name}-1", one) as side, side.following():
        await come(side, b"small")
        await last_body(side, b"x" * (MAX_FOLLOWED_BODY_BYTES + 1))
        await come(side, None)
        assert {await last_body(side) for _ in range(10)} == {None}
    meant: dict[str, Any] = {**one, "metadata": {"nats-scheduler.debounce": "true"}}
    for number, config in enumerate(({}, meant)):
        async with server_side(url, f"{stream_name}-0{number}", config) as side, side.following():
            assert {await last_body(side) for _ in range(10)} == {None}
    monkeypatch.setattr(followed_bodies, "MAX_BODIES_PER_SECOND", 2)
    async with server_side(url, f"{stream_name}-2", one) as side, side.following():
        await come(side, b"small")
        await come(side, None)


async def test_what_others_send_to_the_inbox_of_a_consumer_is_nothing_to_it(shared_server: SharedServer) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        connection, said = account.connection, list[str]()
        consumer = PulledConsumer(connection, account.api, "S", lambda: said.append("arrived"))
        for block in (
            b"",
            b"NATS/1.0\r\n\r\n",
            b"409",
            b"NATS/1.0 409",
            b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: many\r\n\r\n",
            b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages:",
        ):
            consumer._received(b"any", b"", block, b"body")
        assert (consumer.pop_messages(), consumer.to_come) == ([], 0)
        # The server refuses a message with the reply subject of one that a consumer delivers.
        heard: list[bytes] = []
        connection.subscribe("forged.>", lambda subject, *_rest: heard.append(subject))
        connection.write(frame("forged.one", "$JS.ACK.S.c.1.1.1.1.0", b"", b"") + frame("forged.two", "", b"", b""))
        await eventually(lambda: heard)
        assert heard == [b"forged.two"]


# -- bursts of our own fires -----------------------------------------------------------------------------------------

BURST = 5_000
ROUNDS = 3
"""Bursts until one is recognised: a machine that stands still for some milliseconds ends one."""


def fires(side: PortSide) -> list[Fire]:
    """Make a burst of fires that differ in their identity, also from those before."""
    first = len(side.received(PublishConcluded))
    blocks = (b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number for number in range(first, first + BURST))
    return [Fire(side.subject("s"), 1, 0, None, side.subject("out"), block, b"x" * 100) for block in blocks]


class Course:
    """A burst that is stored, and messages of other clients between its fires."""

    def __init__(self, side: PortSide, others: Connection) -> None:
        self.side = side
        self._others = others
        self.theirs: list[int] = []

    async def store(self, subject: str) -> None:
        """Store a message of another client."""
        block, body = await self._others.request(self.side.subject(subject), b"theirs")
        stored = outcome_of(self.side.name, block, body)
        assert isinstance(stored, Stored)
        self.theirs.append(stored.sequence)

    async def run(self, each: int) -> None:
        """Store a burst, and between its fires messages of another client, one for each `each` fires."""
        before = self.concluded()
        self.side.contact.publish(fires(self.side))
        for number in range(before + each, before + BURST, each):
            await self._until(partial(self.has_concluded, number))
            await self.store("theirs")
        await self._until(partial(self.has_concluded, before + BURST))
        await self.store("last")
        await self._until(lambda: self.side.read and self.side.read[-1].sequence >= self.theirs[-1])

    def has_concluded(self, count: int) -> bool:
        return self.concluded() >= count

    def concluded(self) -> int:
        return len(self.side.received(PublishConcluded))

    @property
    def ours(self) -> set[int]:
        """The sequences of the burst's fires."""
        outcomes = [concluded.outcome for concluded in self.side.received(PublishConcluded)]
        return {outcome.sequence for outcome in outcomes if isinstance(outcome, Stored)}

    async def _until(self, condition: Callable[[], object]) -> None:
        await eventually(condition, describe=lambda: f"{self.concluded()} concluded")


def assert_all_is_known(course: Course) -> set[int]:
    """Compare what was delivered with what was stored; return the sequences that were not read."""
    known, read = 0, list[int]()
    for received in course.side.received(MessagesRead):
        read += [message.sequence for message in received.messages]
        passed = set(range(known + 1, received.through + 1)) - set(read)
        assert passed <= course.ours, "a message of another was passed by"
        known = max(known, received.through, read[-1] if read else 0)
    assert read == sorted(set(read))
    assert [sequence for sequence in read if sequence not in course.ours] == course.theirs
    return set(range(1, course.theirs[-1] + 1)) - set(read)


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_what_others_store_among_a_herd_is_read_and_the_herd_is_not(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    url = (await shared_server(version)).url
    async with server_side(url, stream_name, {}) as side, account_on(url) as others, side.following():
        course = Course(side, others.connection)
        await course.store("first")
        for _ in range(ROUNDS):
            await course.run(each=250)
            unread = assert_all_is_known(course)
            if len(unread) > MIN_BURST_FIRES:
                break
        assert len(unread) > MIN_BURST_FIRES

        async def has_one_consumer() -> bool:
            return await side.consumers() == 1

        await eventually(has_one_consumer)
        before = len(side.read)
        await course.store("after")
        await side.reads(before + 1)


@pytest.mark.deep
async def test_where_others_store_as_much_everything_is_read(shared_server: SharedServer, stream_name: str) -> None:
    url = (await shared_server(V2_11)).url
    async with server_side(url, stream_name, {}) as side, account_on(url) as others, side.following():
        course = Course(side, others.connection)
        side.contact.publish(fires(side))
        while course.concluded() < BURST:
            await asyncio.gather(*(course.store("theirs") for _ in range(50)))
        course.theirs.sort()
        await course.store("last")
        await eventually(lambda: side.read and side.read[-1].sequence >= course.theirs[-1])
        assert_all_is_known(course)


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_a_standby_leaves_a_burst_to_the_owner(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(consumer_follower, "STANDBY_REST_SECONDS", 600.0)
    monkeypatch.setattr(consumer_follower, "STANDBY_PULL_BATCH", 50)
    monkeypatch.setattr(consumer_follower, "STANDBY_BURST_SECONDS", 60.0)
    monkeypatch.setattr(consumer_follower, "MAX_PULL_BATCH", 200)
    url, is_standby = (await shared_server(version)).url, True
    stands_by = server_side(url, stream_name, {}, is_standby=lambda: is_standby)
    async with stands_by as side, account_on(url) as others, side.following():
        course = Course(side, others.connection)
        for _ in range(10):
            await asyncio.gather(*(course.store("theirs") for _ in range(100)))
        await side.reads(200)  # of what was asked for before
        assert len(side.read) < 400, "the rest is left to the owner"
        is_standby = False
        read = await side.reads(1_000)
        assert [message.sequence for message in read] == list(range(1, 1_001))


async def test_a_standby_reads_all_if_the_duplicate_window_is_short(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_follower, "STANDBY_REST_SECONDS", 600.0)
    monkeypatch.setattr(consumer_follower, "STANDBY_PULL_BATCH", 50)
    url, window = (await shared_server(V2_11)).url, {"duplicate_window": consumer_follower.MIN_WINDOW_FOR_REST_NS - 1}
    stands_by = server_side(url, stream_name, window, is_standby=lambda: True)
    async with stands_by as side, account_on(url) as others, side.following():
        await asyncio.gather(*(Course(side, others.connection).store("theirs") for _ in range(1_000)))
        await side.reads(1_000)


async def test_a_standby_reads_what_it_left_after_a_rest(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_follower, "STANDBY_REST_SECONDS", 0.2)
    monkeypatch.setattr(consumer_follower, "STANDBY_PULL_BATCH", 20)
    url = (await shared_server(V2_11)).url
    async with server_side(url, stream_name, {}, is_standby=lambda: True) as side, account_on(url) as others:
        course = Course(side, others.connection)
        async with side.following():
            for number in range(1, 4):
                await asyncio.gather(*(course.store("theirs") for _ in range(1_000)))
                await side.reads(1_000 * number)
            for number in range(3_001, 3_101):
                await course.store("slowly")
                await side.reads(number)
            assert [message.sequence for message in side.read] == list(range(1, 3_101))
            assert not side.received(ContactLost)


# -- consumers whose node died ---------------------------------------------------------------------------------------

STREAM = "S"


class OfACluster:
    """A connection whose server reports that it is part of a cluster."""

    server = ServerInfo("n1", "2.11.11", 1 << 20, "", "C", has_jetstream=True)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Nodes:
    """Nodes of a cluster on which consumers are placed; they send no heartbeat.

    Subscriptions on a real server play the API: a node that died is one without its subscription.
    """

    def __init__(self, connection: Connection, prefix: str, *, is_cluster: bool = False) -> None:
        self._connection = connection
        self._prefix = prefix
        self._followed: Any = OfACluster(connection) if is_cluster else connection
        self._listening: dict[str, int] = {}
        self.dead_places = 0
        """The number of next consumers that are placed on a node that has died."""
        self.stored = 0
        """The number of stored messages, with the sequences from 1 on."""
        self.has_stream = True
        """True if the stream has a leader, which answers."""
        self.placed: list[str] = []
        self.asked = 0
        """The number of times that a consumer was probed."""
        connection.subscribe(f"{prefix}.CONSUMER.CREATE.{STREAM}.*", self._create)
        connection.subscribe(f"{prefix}.STREAM.MSG.GET.{STREAM}", self._get)
        connection.subscribe(f"{prefix}.STREAM.INFO.{STREAM}", self._inform)

    def die(self) -> None:
        """End the consumers."""
        for number in self._listening.values():
            self._connection.unsubscribe(number)
        self._listening.clear()

    def _create(self, subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        name = subject.decode().rpartition(".")[2]
        if name in self.placed:
            return
        self.placed.append(name)
        if self.dead_places:
            self.dead_places -= 1
            return
        pulled = f"{self._prefix}.CONSUMER.MSG.NEXT.{STREAM}.{name}"
        self._listening[name] = self._connection.subscribe(pulled, self._pulled)
        self._connection.publish(reply.decode(), json.dumps({"config": {}, "num_pending": 0}).encode())

    def _inform(self, _subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        if self.has_stream:
            self._connection.publish(reply.decode(), json.dumps({"state": {"last_seq": self.stored}}).encode())

    def _get(self, _subject: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
        sequence = json.loads(body)["seq"]
        found = {"message": {"subject": "s", "seq": sequence, "time": "2026-01-01T00:00:00Z", "data": "Ym9keQ=="}}
        missing = {"error": {"code": 404, "err_code": MESSAGE_NOT_FOUND, "description": "no message found"}}
        if self.has_stream:
            answer = found if sequence <= self.stored else missing
            self._connection.publish(reply.decode(), json.dumps(answer).encode())

    def _pulled(self, _subject: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
        if json.loads(body).get("no_wait"):
            self.asked += 1
            self._connection.write(frame(reply.decode(), "", b"NATS/1.0 404 No Messages\r\n\r\n", b""))

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[list[Input]]:
        """Follow the stream, and yield the inputs."""
        received: list[Input] = []
        api = JetStreamApi(self._connection, self._prefix)
        config = {"name": STREAM}
        follower = ConsumerFollower(self._followed, api, config, received.append, otherwise=asyncio.Event().wait)
        following = asyncio.create_task(follower.follow(0))
        yield received
        following.cancel()
        await asyncio.wait((following,))


@pytest.fixture
async def nodes(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Nodes]:
    """Run nodes of a cluster behind a prefix of the test's own."""
    async with account_on((await shared_server(V2_11)).url) as account:
        yield Nodes(account.connection, stream_name)


@pytest.fixture
async def clustered(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Nodes]:
    """Run the same, where the server that the follower is connected to is one of them."""
    async with account_on((await shared_server(V2_11)).url) as account:
        yield Nodes(account.connection, stream_name, is_cluster=True)


async def received_so_far(received: list[Input], *kinds: type[Input]) -> None:
    """Wait until the inputs begin with these kinds, in this order; a process that stands still may find more."""
    await eventually(lambda: tuple(map(type, received))[: len(kinds)] == kinds, describe=lambda: f"{kinds}: {received}")


async def test_a_consumer_that_forgot_its_pull_is_replaced(nodes: Nodes) -> None:
    """A probe would get one message at each check, and no more."""
    async with nodes.followed() as received:
        await received_so_far(received, CaughtUp, ContactLost, CaughtUp)
    assert nodes.asked >= 1


async def test_a_consumer_whose_node_died_is_noticed_by_asking(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulled_consumer, "MAX_SILENT_CHECKS", 1_000_000)  # it was not detected by the silence
    async with nodes.followed() as received:
        await received_so_far(received, CaughtUp)
        nodes.die()
        await received_so_far(received, CaughtUp, ContactLost, CaughtUp)
    assert len(nodes.placed) == 2


async def test_a_consumer_on_a_dead_node_is_replaced(clustered: Nodes) -> None:
    clustered.dead_places, clustered.has_stream = len(consumer_follower.CLUSTER_CONSUMER_DEADLINES_SECONDS) - 1, False
    async with clustered.followed() as received:
        await received_so_far(received, CaughtUp)
    assert len(set(clustered.placed)) == len(consumer_follower.CLUSTER_CONSUMER_DEADLINES_SECONDS)


async def test_while_a_cluster_makes_no_consumer_messages_are_asked_for(
    clustered: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_follower, "CLUSTER_CONSUMER_DEADLINES_SECONDS", (0.2, 0.2))
    clustered.dead_places, clustered.stored = 1_000_000, 2
    async with clustered.followed() as received:
        await received_so_far(received, MessagesRead, MessagesRead, CaughtUp)
        await eventually(lambda: len(clustered.placed) > 4, describe="consumers are asked for")
        clustered.stored = 3
        await received_so_far(received, MessagesRead, MessagesRead, CaughtUp, MessagesRead)
        read = [message for given in received if isinstance(given, MessagesRead) for message in given.messages]
        assert [(message.sequence, message.body) for message in read] == [(1, None), (2, None), (3, None)]
        clustered.dead_places = 0
        await received_so_far(received, MessagesRead, MessagesRead, CaughtUp, MessagesRead, CaughtUp)


async def test_while_messages_cannot_be_asked_for_either_contact_is_lost(
    clustered: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_follower, "CLUSTER_CONSUMER_DEADLINES_SECONDS", (0.2, 30.0))
    clustered.dead_places = 1_000_000
    async with clustered.followed() as received:
        await received_so_far(received, CaughtUp)
        clustered.has_stream = False
        await received_so_far(received, CaughtUp, ContactLost)
        clustered.has_stream, clustered.stored = True, 1
        await received_so_far(received, CaughtUp, ContactLost, MessagesRead, CaughtUp)
