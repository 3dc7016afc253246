"""A consumer whose node died is noticed by asking for it, and another one is made until one answers.

The API is played here by subscriptions on a real server: a node that died is one that listens no more.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nats_scheduler.engine.inputs import CaughtUp, ContactLost, Input
from nats_scheduler.jetstream import follow
from nats_scheduler.jetstream.api import JetStreamApi
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
    """Nodes of a cluster, on which consumers are placed; nothing is stored, and they send no heartbeat."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._listening: dict[str, int] = {}
        self.dead_places = 0
        """So many consumers are placed on a node that has died."""
        self.placed: list[str] = []
        self.asked = 0
        """How often a consumer was asked for a message that may be there."""
        connection.subscribe(f"{prefix}.CONSUMER.CREATE.{STREAM}.*", self._create)

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
        self._connection.tell(reply.decode(), json.dumps({"config": {}, "num_pending": 0}).encode())

    def _pulled(self, _subject: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
        if json.loads(body).get("no_wait"):
            self.asked += 1
            self._connection.write(frame(reply.decode(), "", NO_MESSAGES, b""))


@asynccontextmanager
async def followed(connection: Connection, prefix: str) -> AsyncIterator[list[Input]]:
    """Follow the stream, and yield what is told."""
    told: list[Input] = []
    follower = ConsumerFollower(connection, JetStreamApi(connection, prefix), {"name": STREAM}, told.append)
    following = asyncio.create_task(follower.follow(0))
    yield told
    following.cancel()
    await asyncio.wait((following,))


async def told_so_far(told: list[Input], *kinds: type[Input]) -> None:
    """Wait until facts of these kinds were told, in this order."""
    await eventually(
        lambda: tuple(map(type, told)) == kinds, within_seconds=NOTICED_SECONDS, describe=lambda: f"{kinds}: {told}"
    )


async def test_a_consumer_that_only_answers_has_forgotten_what_it_was_asked_for(
    shared_server: SharedServer, stream_name: str
) -> None:
    """It would hand over one message at each look, and no more."""
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        async with followed(account.connection, stream_name) as told:
            await told_so_far(told, CaughtUp, ContactLost, CaughtUp)
    assert nodes.asked >= 1


async def test_a_consumer_whose_node_died_is_noticed_by_asking(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SILENT_LOOKS", 1_000_000)  # it is not the silence that tells
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        async with followed(account.connection, stream_name) as told:
            await told_so_far(told, CaughtUp)
            nodes.die()
            await told_so_far(told, CaughtUp, ContactLost, CaughtUp)
    assert len(nodes.placed) == 2


async def test_where_a_cluster_places_consumers_on_a_dead_node_another_one_is_made(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_cluster = ServerInfo("n1", "2.11.11", 1 << 20, "", "C")
    monkeypatch.setattr(Connection, "server", property(lambda _self: of_a_cluster))
    async with account_on((await shared_server(V2_11)).url) as account:
        nodes = Nodes(account.connection, stream_name)
        nodes.dead_places = len(follow.CLUSTER_SECONDS) - 1
        async with followed(account.connection, stream_name) as told:
            await told_so_far(told, CaughtUp)
    assert len(set(nodes.placed)) == len(follow.CLUSTER_SECONDS)
