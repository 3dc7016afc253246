"""Streams that a consumer would harm (work queue, interest) are followed by look-ups of the messages that matter.

Look-ups continue where they were: what was read once is not read again, and no hint is lost. To show it, requests are
counted, and refused, on a prefix of the test's own in front of the real API.
The hints that it looks up are in `jetstream.publish_hints`.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import pytest

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, FiresStored, Input, MessagesRead, PublishConcluded
from nats_scheduler.jetstream import lookups, publish_hints, scan_follower
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.contact import StreamContact
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.stored import StoredMessage
from tests.conftest import SharedServer, StartServer
from tests.contract.sides import PortSide, server_side
from tests.harness.account import Account, account_on
from tests.harness.blocks import with_identity
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

SCHEDULE = with_headers(EMPTY_BLOCK, [(b"X-Nats-Schedule", b"@every 5m"), (b"X-Nats-Schedule-Target", b"t")])
OpenQueue = Callable[[], AbstractAsyncContextManager[PortSide]]
TOLD_SECONDS = 30.0


@pytest.fixture(params=[V2_10, V2_11, V2_15])
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


async def test_the_scan_reads_headers_byte_for_byte(open_queue: OpenQueue) -> None:
    async with open_queue() as side, side.following():
        block = SCHEDULE[:-2] + b"X:\t\xff \r\nX: a\r\nX:a\r\n\r\n"
        await side.store("größe.ф", block)
        (message,) = await side.reads(1)
        assert (message.subject, message.sequence, message.block) == (side.subject("größe.ф"), 1, block)


async def test_of_versions_at_once_the_first_and_the_last_are_read(open_queue: OpenQueue) -> None:
    async with open_queue() as side, side.following():
        await asyncio.gather(*(side.store("a", SCHEDULE, b"%d" % number) for number in range(3)))
        for _ in range(17):
            await side.store("b", SCHEDULE)
        await eventually(lambda: {1, 3, 20} <= {message.sequence for message in side.read})


async def test_without_a_place_for_a_consumer_none_is_taken(
    shared_server: SharedServer, start_server: StartServer, stream_name: str
) -> None:
    limited = "accounts { A { users [{user: a, password: a}], jetstream { max_consumers: 1 } } }\nno_auth_user: a\n"
    for url, config, others in (
        ((await shared_server(V2_11)).url, {"max_consumers": 1}, 0),
        ((await start_server(V2_11, config=limited)).url, {}, 1),
    ):
        async with server_side(url, stream_name, config) as side:
            if others:
                await side.add_consumer("the-only-one")
            await side.store("a", SCHEDULE)
            async with side.following():
                await side.store("b", SCHEDULE)
                await side.reads(2)
                assert await side.consumers() == others


# -- where look-ups go on --------------------------------------------------------------------------------------------

PREFIX = "gate.API"
CANCEL = [(b"X-Nats-Scheduler", b"a"), (b"X-Nats-Schedule-Next", b"purge")]
NO_LEADER = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'
FIRES = 20
FEW = 60
"""The most requests that a few new messages cost, among hundreds of subjects."""


class Gate:
    """A proxy of the API: it counts requests, and refuses them while it is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.asked: Counter[str] = Counter()
        self.bodies: list[dict[str, object]] = []
        self.refuses = 0
        """The number of next look-ups that are refused."""
        connection.subscribe(f"{PREFIX}.>", self._pass_on)

    def _pass_on(self, subject: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
        request = subject.decode().removeprefix(f"{PREFIX}.")
        kind = request.rpartition(".")[0]
        self.asked[kind] += 1
        if kind == "STREAM.MSG.GET":
            self.bodies.append(json.loads(body))
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

    async def store_unseen(self) -> int:
        """Store a schedule on a subject that the stream did not have when the following began."""
        config = (await self._account.api.stream(self._name))["config"]
        elsewhere = f"elsewhere-{self._name}"
        await self._account.api.update_stream({**config, "subjects": sorted({*config["subjects"], elsewhere})})
        return await self._account.publish_block(elsewhere, SCHEDULE, b"")

    async def empty(self, name: str) -> None:
        """Remove what is stored on a subject, which may have a wildcard."""
        await self._account.api.call(f"STREAM.PURGE.{self._name}", {"filter": f"{self._name}.{name}"})

    async def refused(self, name: str) -> None:
        """Publish a schedule that the server does not store."""
        block = SCHEDULE[:-2] + b"Nats-Expected-Last-Sequence: 1000000\r\n\r\n"
        await self._account.connection.request(f"{self._name}.{name}", b"", block)

    @asynccontextmanager
    async def following(
        self, after: int = 0, notify: Callable[[Input], None] | None = None, *, last_read: int = 0
    ) -> AsyncIterator[None]:
        """Follow behind a sequence; the block begins when all that has to be read before fires was delivered."""
        self.inputs.clear()
        self.gate.asked.clear()
        self.gate.bodies.clear()
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

    @property
    def looked_up(self) -> int:
        return self.gate.asked["STREAM.MSG.GET"]


@pytest.fixture(params=[V2_10, V2_11])
async def queue(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str
) -> AsyncIterator[FollowedQueue]:
    server = await shared_server(request.param)
    async with account_on(server.url) as account:
        await account.create(stream_name, retention="workqueue", allow_msg_schedules=False)
        yield FollowedQueue(account, stream_name, Gate(account.connection))
        await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_after_lost_contact_only_what_was_stored_since_is_looked_at(queue: FollowedQueue) -> None:
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
        assert queue.looked_up < FEW
        while_followed = await queue.store("b", SCHEDULE, b"body")
        await queue.reached(lambda: while_followed in queue.sequences)
        assert queue.read[-1].body == b"body", "what is published is compared with what it replaces"


async def test_much_that_is_read_is_passed_on_in_parts(queue: FollowedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_follower, "MAX_DELIVERED_AT_ONCE", 50)
    await queue.store_all(300)
    async with queue.following():
        parts = [len(given.messages) for given in queue.inputs if isinstance(given, MessagesRead)]
        assert parts == 6 * [50]
        assert sorted(queue.sequences) == [message.sequence for message in queue.read]


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


async def test_few_subjects_with_much_on_them_are_looked_at(queue: FollowedQueue) -> None:
    await queue.store_all(10)
    async with queue.following():
        through = queue.caught_up[-1].through
    for _ in range(20):
        await asyncio.gather(*(queue.store("work", b"", b"work") for _ in range(25)))
    last = await queue.store("s.3")
    async with queue.following(through):
        assert last in queue.sequences
        assert queue.looked_up < FEW


async def test_progress_is_noted_while_messages_are_published(queue: FollowedQueue) -> None:
    async with queue.following():
        await queue.store("a")
        last = await queue.store("work", b"", b"work")
        await queue.reached(lambda: queue.caught_up[-1].through == last)
        assert queue.sequences == {1}


async def test_a_fire_of_ours_is_not_looked_up(queue: FollowedQueue) -> None:
    """If its acknowledgement is received before the publish itself, as seldom happens, it is looked up for nothing."""
    async with queue.following():
        assert queue.contact is not None
        block = with_identity(with_headers(EMPTY_BLOCK, [(b"X-Nats-Scheduler", b"s")]), "nats-scheduler:1:0:s")
        target = f"{queue._name}.out"
        for number in range(1, FIRES + 1):
            its_block = block.replace(b":1:0:", b":1:%d:" % number)
            queue.contact.publish([Fire("s", 1, number, None, target, its_block, b"")])
            await queue.reached(partial(is_concluded, queue, number))
        looked_up = len(queue.gate.bodies)
        others = await queue.store("out", block)
        await queue.reached(lambda: others in queue.sequences)
    assert looked_up < FIRES / 2


def is_concluded(queue: FollowedQueue, count: int) -> bool:
    """Return whether this number of fires is concluded."""
    stored = [len(one.fires) for one in queue.inputs if isinstance(one, FiresStored)]
    return sum(stored) + sum(isinstance(one, PublishConcluded) for one in queue.inputs) == count


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


async def test_each_part_that_was_read_is_noted(queue: FollowedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_follower, "MAX_READ_AT_ONCE", 2)
    await queue.store_all(10)
    async with queue.following():
        unseen = [await queue.store_unseen() for _ in range(6)]
        await queue.refused("s")
        await queue.reached(lambda: queue.caught_up[-1].through == unseen[-1])
        assert set(unseen[1::2]) <= {given.through for given in queue.caught_up}


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


async def test_gaps_make_no_parts(queue: FollowedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue.store_all(10)
    async with queue.following():
        through = queue.caught_up[-1].through
    await queue.store_all(200, 10)
    await queue.empty("s.1*")
    monkeypatch.setattr(scan_follower, "MAX_READ_AT_ONCE", 100)
    monkeypatch.setattr(lookups, "MAX_RANGE_READERS", 2)
    async with queue.following(through):
        asked, left = queue.looked_up, len(queue.read)
    assert asked <= left + 2 * 2, "a request for each message, and one at the end of each range"


async def test_a_part_that_was_read_is_not_read_again_after_a_failure(
    queue: FollowedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.store("s.0")
    async with queue.following():
        through = queue.caught_up[-1].through
    await queue.store_all(299, 1)
    await queue.store("s.50", b"", b"not a schedule")
    monkeypatch.setattr(scan_follower, "MAX_READ_AT_ONCE", 100)

    def fail_in_the_second_part(given: Input) -> None:
        queue.inputs.append(given)
        if isinstance(given, ContactLost):
            queue.gate.refuses = 0
        elif len(queue.read) == 100:
            queue.held, queue.gate.refuses = {"s.50"}, 1_000

    async with queue.following(through, fail_in_the_second_part):
        assert any(isinstance(given, ContactLost) for given in queue.inputs)
        sequences = [message.sequence for message in queue.read]
        assert sequences == list(range(2, 302)), "each once, and what ends a schedule of an earlier part"


async def test_a_look_up_that_fails_is_made_again_and_nothing_else(queue: FollowedQueue) -> None:
    await queue.store_all(300)
    async with queue.following():
        queue.gate.asked.clear()
        queue.gate.refuses = 3
        new = await queue.store("new")
        await queue.reached(lambda: new in queue.sequences)
        assert queue.looked_up < FEW
        assert not any(isinstance(given, ContactLost) for given in queue.inputs)


async def test_all_is_read_if_something_seen_is_not_found(queue: FollowedQueue) -> None:
    async with queue.following():
        unseen = await queue.store_unseen()
        await queue.refused("s")
        await queue.reached(lambda: unseen in queue.sequences)


async def test_without_a_leader_contact_is_lost_and_nothing_is_missed(
    queue: FollowedQueue,
) -> None:
    await queue.store_all(300)
    async with queue.following():
        queue.gate.asked.clear()
        queue.gate.refuses = 1_000
        new = await queue.store("new")
        await queue.reached(lambda: any(isinstance(given, ContactLost) for given in queue.inputs))
        asked, queue.gate.refuses = queue.looked_up, 0
        before = len(queue.caught_up)
        await queue.reached(lambda: new in queue.sequences and len(queue.caught_up) > before)
        assert queue.looked_up - asked < FEW
