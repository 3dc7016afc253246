"""A consumer whose node died is detected by a probe, and new ones are created until one answers.

Subscriptions on a real server play the API here: a node that died is one without its subscription.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nats_scheduler.engine.inputs import CaughtUp, ContactLost, Input, MessagesRead
from nats_scheduler.jetstream import follow
from nats_scheduler.jetstream.api import MESSAGE_NOT_FOUND, JetStreamApi
from nats_scheduler.jetstream.connection import Connection, ServerInfo, frame
from nats_scheduler.jetstream.follow import ConsumerFollower
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

STREAM = "S"
NOTICED_SECONDS = 30.0
NO_MESSAGES = b"NATS/1.0 404 No Messages\r\n\r\n"


class Nodes:
    """Nodes of a cluster on which consumers are placed; they send no heartbeat."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
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
            self._connection.write(frame(reply.decode(), "", NO_MESSAGES, b""))


@asynccontextmanager
async def followed(connection: Connection, prefix: str) -> AsyncIterator[list[Input]]:
    """Follow the stream, and yield the inputs."""
    received: list[Input] = []
    api = JetStreamApi(connection, prefix)
    follower = ConsumerFollower(connection, api, {"name": STREAM}, received.append, otherwise=asyncio.Event().wait)
    following = asyncio.create_task(follower.follow(0))
    yield received
    following.cancel()
    await asyncio.wait((following,))


async def received_so_far(received: list[Input], *kinds: type[Input]) -> None:
    """Wait until the inputs are of exactly these kinds, in this order."""
    await eventually(
        lambda: tuple(map(type, received)) == kinds,
        within_seconds=NOTICED_SECONDS,
        describe=lambda: f"{kinds}: {received}",
    )


async def test_a_consumer_that_only_answers_has_forgotten_what_it_was_asked_for(
    shared_server: SharedServer, stream_name: str
) -> None:
    """A probe would get one message at each check, and no more."""
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        async with followed(account.connection, stream_name) as received:
            await received_so_far(received, CaughtUp, ContactLost, CaughtUp)
    assert nodes.asked >= 1


async def test_a_consumer_whose_node_died_is_noticed_by_asking(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_SILENT_CHECKS", 1_000_000)  # it was not detected by the silence
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        async with followed(account.connection, stream_name) as received:
            await received_so_far(received, CaughtUp)
            nodes.die()
            await received_so_far(received, CaughtUp, ContactLost, CaughtUp)
    assert len(nodes.placed) == 2


@pytest.fixture
def of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server report that it is part of a cluster."""
    server = ServerInfo("n1", "2.11.11", 1 << 20, "", "C", has_jetstream=True)
    monkeypatch.setattr(Connection, "server", property(lambda _self: server))


@pytest.mark.usefixtures("of_a_cluster")
async def test_where_a_cluster_places_consumers_on_a_dead_node_another_one_is_made(
    shared_server: SharedServer, stream_name: str
) -> None:
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        nodes.dead_places, nodes.has_stream = len(follow.CLUSTER_CONSUMER_DEADLINES_SECONDS) - 1, False
        async with followed(account.connection, stream_name) as received:
            await received_so_far(received, CaughtUp)
    assert len(set(nodes.placed)) == len(follow.CLUSTER_CONSUMER_DEADLINES_SECONDS)


@pytest.mark.usefixtures("of_a_cluster")
async def test_while_a_cluster_makes_no_consumer_messages_are_asked_for(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "CLUSTER_CONSUMER_DEADLINES_SECONDS", (0.2, 0.2))
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        nodes.dead_places, nodes.stored = 1_000_000, 2
        async with followed(account.connection, stream_name) as received:
            await received_so_far(received, MessagesRead, MessagesRead, CaughtUp)
            await eventually(
                lambda: len(nodes.placed) > 4, within_seconds=NOTICED_SECONDS, describe="consumers are asked for"
            )
            nodes.stored = 3
            await received_so_far(received, MessagesRead, MessagesRead, CaughtUp, MessagesRead)
            read = [message for given in received if isinstance(given, MessagesRead) for message in given.messages]
            assert [(message.sequence, message.body) for message in read] == [(1, None), (2, None), (3, None)]
            nodes.dead_places = 0
            await received_so_far(received, MessagesRead, MessagesRead, CaughtUp, MessagesRead, CaughtUp)


@pytest.mark.usefixtures("of_a_cluster")
async def test_while_messages_cannot_be_asked_for_either_contact_is_lost(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "CLUSTER_CONSUMER_DEADLINES_SECONDS", (0.2, 30.0))
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        nodes.dead_places = 1_000_000
        async with followed(account.connection, stream_name) as received:
            await received_so_far(received, CaughtUp)
            nodes.has_stream = False
            await received_so_far(received, CaughtUp, ContactLost)
            nodes.has_stream, nodes.stored = True, 1
            await received_so_far(received, CaughtUp, ContactLost, MessagesRead, CaughtUp)
