"""During a burst of the sidecar's own fires, only what others store is read: all of it, once, and in order."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import MessagesRead, PublishConcluded, Stored
from nats_scheduler.jetstream.burst import MIN_BURST_FIRES
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.publish import outcome_of
from tests.conftest import SharedServer
from tests.contract.sides import PortSide, server_side
from tests.contract.test_client import connected
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

BURST = 12_000


def fires(side: PortSide, count: int) -> list[Fire]:
    """Make fires that differ in their identity."""
    blocks = (b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number for number in range(count))
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
        self.side.contact.publish(fires(self.side, BURST))
        for number in range(each, BURST, each):
            await self._until(partial(self.has_concluded, number))
            await self.store("theirs")
        await self._until(partial(self.has_concluded, BURST))
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
        await eventually(condition, within_seconds=30, describe=lambda: f"{self.concluded()} concluded")


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
    async with server_side(url, stream_name, {}) as side, connected(url) as others, side.following():
        course = Course(side, others)
        await course.store("first")
        await course.run(each=250)
        unread = assert_all_is_known(course)
        assert len(unread) > MIN_BURST_FIRES

        async def has_one_consumer() -> bool:
            return await side.consumers() == 1

        await eventually(has_one_consumer, within_seconds=30)
        before = len(side.read)
        await course.store("after")
        await side.reads(before + 1)


@pytest.mark.deep
async def test_where_others_store_as_much_everything_is_read(shared_server: SharedServer, stream_name: str) -> None:
    url = (await shared_server(V2_11)).url
    async with server_side(url, stream_name, {}) as side, connected(url) as others, side.following():
        course = Course(side, others)
        side.contact.publish(fires(side, BURST))
        while course.concluded() < BURST:
            await asyncio.gather(*(course.store("theirs") for _ in range(50)))
        course.theirs.sort()
        await course.store("last")
        await eventually(lambda: side.read and side.read[-1].sequence >= course.theirs[-1], within_seconds=30)
        assert_all_is_known(course)
