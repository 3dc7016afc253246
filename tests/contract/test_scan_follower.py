"""Streams that a consumer would harm (work queue, interest) are followed by look-ups of the messages that matter.

Look-ups continue where they were: what was read once is not read again, and no hint is lost. To show it, requests are
counted, and refused, on a prefix of the test's own in front of the real API.
The hints that it looks up are in `jetstream.publish_hints`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from nats_scheduler.engine.inputs import CaughtUp, ContactLost, Input, MessagesRead
from nats_scheduler.jetstream import publish_hints, scan_follower
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.contact import StreamContact
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.stored import StoredMessage
from tests.conftest import SharedServer
from tests.contract.sides import PortSide, server_side
from tests.harness.account import Account, account_on
from tests.harness.servers import V2_10, V2_15
from tests.harness.waiting import eventually

SCHEDULE = with_headers(EMPTY_BLOCK, [(b"X-Nats-Schedule", b"@every 5m"), (b"X-Nats-Schedule-Target", b"t")])
OpenQueue = Callable[[], AbstractAsyncContextManager[PortSide]]
TOLD_SECONDS = 30.0


@pytest.fixture(params=[V2_10, V2_15])
async def open_queue(request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str) -> OpenQueue:
    server = await shared_server(request.param)
    return lambda: server_side(server.url, stream_name, {"retention": "workqueue"})


async def test_the_scan_tells_in_order_and_creates_no_consumer(
    open_queue: OpenQueue,
) -> None:
    async with open_queue() as side:
        for name in ("c", "a", "b", "a", "a"):
            await side.store(name, SCHEDULE)
        await side.store("plain", b"", b"work")
        for _ in range(3):
            await side.store("generated", with_headers(EMPTY_BLOCK, [(b"X-Nats-Schedule-Next", b"purge")]))
        async with side.following():
            assert [message.sequence for message in side.read] == [1, 2, 3, 5, 9]
            assert len(side.received(CaughtUp)) == 1
            assert await side.consumers() == 0


# -- where look-ups go on --------------------------------------------------------------------------------------------

PREFIX = "gate.API"
CANCEL = [(b"X-Nats-Scheduler", b"a"), (b"X-Nats-Schedule-Next", b"purge")]
NO_LEADER = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'
FEW = 60
"""The most requests that a few new messages cost, among hundreds of subjects."""


class Gate:
    """A proxy of the API: it counts requests, and refuses them while it is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.looked_up = 0
        self.refuses = 0
        """The number of next look-ups that are refused."""
        connection.subscribe(f"{PREFIX}.>", self._pass_on)

    def _pass_on(self, subject: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
        request = subject.decode().removeprefix(f"{PREFIX}.")
        if request.startswith("STREAM.MSG.GET."):
            self.looked_up += 1
            if self.refuses > 0:
                self.refuses -= 1
                self._connection.write(frame(reply.decode(), "", b"", NO_LEADER))
                return
        self._connection.write(frame(f"$JS.API.{request}", reply.decode(), b"", body))


class FollowedQueue:
    """A work queue that is followed, by one contact after the other."""

    def __init__(self, account: Account, name: str, gate: Gate) -> None:
        self._account = account
        self._name = name
        self.gate = gate
        self.inputs: list[Input] = []
        self.held: set[str] = set()
        self.contact: StreamContact | None = None

    async def store(self, name: str, block: bytes = SCHEDULE, body: bytes = b"") -> int:
        return await self._account.publish_block(f"{self._name}.{name}", block, body)

    async def store_all(self, number: int, start: int = 0) -> None:
        for first in range(start, start + number, 100):
            names = range(first, min(first + 100, start + number))
            await asyncio.gather(*(self.store(f"s.{n}") for n in names))

    @asynccontextmanager
    async def following(
        self, after: int = 0, notify: Callable[[Input], None] | None = None, *, last_read: int = 0
    ) -> AsyncIterator[None]:
        """Follow behind a sequence; the block begins when all that has to be read before fires was delivered."""
        self.inputs.clear()
        self.gate.looked_up = 0
        config = (await self._account.api.stream(self._name))["config"]
        api = JetStreamApi(self._account.connection, PREFIX)
        async with asyncio.TaskGroup() as tasks:
            self.contact = StreamContact(
                self._account.connection,
                api,
                config,
                notify or self.inputs.append,
                tasks,
                holds=lambda subject: subject.removeprefix(f"{self._name}.") in self.held,
                window=256,
                ack_timeout=TOLD_SECONDS,
                last_read=lambda: last_read,
            )
            task = asyncio.ensure_future(self.contact.follow(after))
            try:
                await self.reached(lambda: self.caught_up)
                yield
            finally:
                task.cancel()
                await asyncio.wait((task,))
                self.contact.end("the test is over")

    async def reached(self, condition: Callable[[], object]) -> None:
        await eventually(condition, describe=lambda: f"{self.inputs[-5:]}")

    @property
    def caught_up(self) -> list[CaughtUp]:
        return [given for given in self.inputs if isinstance(given, CaughtUp)]

    @property
    def read(self) -> list[StoredMessage]:
        return [message for given in self.inputs if isinstance(given, MessagesRead) for message in given.messages]

    @property
    def sequences(self) -> set[int]:
        return {message.sequence for message in self.read}


@pytest.fixture
async def queue(shared_server: SharedServer, stream_name: str) -> AsyncIterator[FollowedQueue]:
    server = await shared_server(V2_10)
    async with account_on(server.url) as account:
        await account.create(stream_name, retention="workqueue", allow_msg_schedules=False)
        yield FollowedQueue(account, stream_name, Gate(account.connection))
        await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_after_lost_contact_only_what_is_new_is_looked_at(queue: FollowedQueue) -> None:
    await queue.store_all(300)
    async with queue.following():
        assert len(queue.read) == 300
        through = queue.caught_up[-1].through
        assert through == 300
    await queue.store("s.7", SCHEDULE, b"body")
    await queue.store("new")
    last = await queue.store("work", b"", b"work")
    async with queue.following(through):
        assert [(message.sequence, message.body) for message in queue.read] == [(301, None), (302, None)]
        assert queue.caught_up[-1].through == last
        assert queue.gate.looked_up < FEW
        while_followed = await queue.store("b", SCHEDULE, b"body")
        await queue.reached(lambda: while_followed in queue.sequences)
        assert queue.read[-1].body == b"body", "what is published is compared with what it replaces"


async def test_a_schedule_and_a_cancel_under_others_are_read(queue: FollowedQueue) -> None:
    await queue.store("a")
    async with queue.following():
        through = queue.caught_up[-1].through
    cancel = await queue.store("cancels", with_headers(EMPTY_BLOCK, CANCEL))
    await queue.store("cancels", b"", b"work")
    version = await queue.store("b")
    covering = await queue.store("b", b"", b"not a schedule")
    queue.held = {"a"}
    ended = await queue.store("a", b"", b"not a schedule")
    async with queue.following(through):
        # A later message on the subject of the cancel is delivered too, as on any subject that matters.
        assert [m.sequence for m in queue.read] == [cancel, cancel + 1, version, covering, ended]


async def test_a_burst_of_more_hints_than_are_kept_loses_none(
    queue: FollowedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_hints, "MAX_WAITING_HINTS", 5)
    monkeypatch.setattr(publish_hints, "MAX_HINT_LOOKUPS_IN_FLIGHT", 1)
    monkeypatch.setattr(scan_follower, "MAX_READ_AT_ONCE", 20)
    claimed: list[bool] = []

    def note(given: Input) -> None:
        queue.inputs.append(given)
        if isinstance(given, CaughtUp) and queue.read and not given.is_behind:
            claimed.append(len(queue.sequences) == max(queue.sequences))

    await queue.store_all(10)
    async with queue.following(notify=note):
        await queue.store_all(290, 10)
        await queue.reached(lambda: len(queue.sequences) == 300 and claimed)
        assert all(claimed), "no checkpoint claims what was not read"


async def test_fires_go_on_while_what_was_missed_in_an_outage_is_read(
    queue: FollowedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_follower, "MAX_READ_AT_ONCE", 50)
    await queue.store_all(210)
    async with queue.following(10, last_read=150):
        first = queue.caught_up[0]
        before = queue.inputs[: queue.inputs.index(first)]
        read_first = [one.sequence for given in before if isinstance(given, MessagesRead) for one in given.messages]
        assert read_first == list(range(151, 211))
        assert first == CaughtUp(10, is_behind=True), "and it is read if contact is lost again before"
        await queue.reached(lambda: queue.caught_up[-1] == CaughtUp(210))
        assert queue.sequences == set(range(11, 211))
    for after, last_read in ((170, 190), (10, 1_000)):
        async with queue.following(after, last_read=last_read):
            is_new = last_read > 210
            assert queue.caught_up[0] == CaughtUp(210), "little is read at once, and all of a stream that went back"
            assert queue.sequences == set(range(1 if is_new else after + 1, 211))


async def test_without_a_leader_contact_is_lost_and_nothing_is_missed(
    queue: FollowedQueue,
) -> None:
    await queue.store_all(300)
    async with queue.following():
        queue.gate.refuses = 1_000
        new = await queue.store("new")
        await queue.reached(lambda: any(isinstance(given, ContactLost) for given in queue.inputs))
        asked, queue.gate.refuses = queue.gate.looked_up, 0
        before = len(queue.caught_up)
        await queue.reached(lambda: new in queue.sequences and len(queue.caught_up) > before)
        assert queue.gate.looked_up - asked < FEW
