"""A limits stream is followed through a consumer: within the limits of the server, and through bursts of own fires.

Of these (`jetstream/burst.py`) it reads only what others store.
Consumers whose node died are in `test_follower_attacked.py`.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import MessagesRead, PublishConcluded, Stored
from nats_scheduler.jetstream import burst, consumer_follower
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.publish import outcome_of
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.message.stored import MAX_FOLLOWED_BODY_BYTES
from tests.conftest import SharedServer, StartServer
from tests.contract.sides import PortSide, server_side
from tests.harness.account import account_on
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually


async def test_no_more_is_asked_for_at_a_time_than_the_server_allows(
    start_server: StartServer, stream_name: str
) -> None:
    server = await start_server(V2_11, config="jetstream { limits { max_request_batch: 1 } }\n")
    async with server_side(server.url, stream_name, {}) as side:
        for _ in range(20):
            await side.store("before")
        async with side.following():
            for _ in range(20):
                await side.store("after")
            read = await side.reads(40)
            assert [message.sequence for message in read] == list(range(1, 41))
            assert await side.consumers() == 1


async def test_bodies_are_followed_until_they_cost_much(shared_server: SharedServer, stream_name: str) -> None:
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

    async with server_side(url, stream_name, one) as side, side.following():
        await come(side, b"small")
        await last_body(side, b"x" * (MAX_FOLLOWED_BODY_BYTES + 1))
        await come(side, None)
        assert {await last_body(side) for _ in range(10)} == {None}


async def test_what_others_send_to_the_inbox_of_a_consumer_is_ignored(shared_server: SharedServer) -> None:
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

BURST = 1_000
MIN_RECOGNISED = 50
ROUNDS = 10
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


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_what_others_store_is_read_and_a_herd_of_ours_is_not(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(burst, "MIN_BURST_FIRES", MIN_RECOGNISED)
    url = (await shared_server(version)).url
    async with server_side(url, stream_name, {}) as side, account_on(url) as others, side.following():
        course = Course(side, others.connection)
        await course.store("first")
        for _ in range(ROUNDS):
            await course.run(each=250)
            unread = assert_all_is_known(course)
            if len(unread) > MIN_RECOGNISED:
                break
        assert len(unread) > MIN_RECOGNISED

        async def has_one_consumer() -> bool:
            return await side.consumers() == 1

        await eventually(has_one_consumer)
        before = len(side.read)
        await course.store("after")
        await side.reads(before + 1)


async def test_a_standby_leaves_a_burst_to_the_owner(
    shared_server: SharedServer, stream_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_follower, "STANDBY_REST_SECONDS", 600.0)
    monkeypatch.setattr(consumer_follower, "STANDBY_PULL_BATCH", 50)
    monkeypatch.setattr(consumer_follower, "STANDBY_BURST_SECONDS", 60.0)
    monkeypatch.setattr(consumer_follower, "MAX_PULL_BATCH", 200)
    url, is_standby = (await shared_server(V2_11)).url, True
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
