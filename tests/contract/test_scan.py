"""Streams that a consumer would harm (work queue, interest) are followed by look-ups of the messages that matter."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from nats_scheduler.engine.inputs import CaughtUp
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from tests.conftest import SharedServer, StartServer
from tests.contract.sides import PortSide, server_side
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

SCHEDULE = with_headers(EMPTY_BLOCK, [(b"X-Nats-Schedule", b"@every 5m"), (b"X-Nats-Schedule-Target", b"t")])
OpenQueue = Callable[[], AbstractAsyncContextManager[PortSide]]


@pytest.fixture(params=[V2_10, V2_11, V2_15])
async def open_queue(request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str) -> OpenQueue:
    server = await shared_server(request.param)
    return lambda: server_side(server.url, stream_name, {"retention": "workqueue"})


async def test_the_schedules_that_are_stored_are_told_in_order_and_then_caught_up_once(open_queue: OpenQueue) -> None:
    async with open_queue() as side:
        for name in ("c", "a", "b"):
            await side.store(name, SCHEDULE)
        await side.store("plain", b"", b"work")
        async with side.following():
            assert [message.sequence for message in side.read] == [1, 2, 3]
            assert len(side.received(CaughtUp)) == 1


async def test_versions_that_were_stored_while_nobody_followed_are_told_by_the_first_and_the_last(
    open_queue: OpenQueue,
) -> None:
    async with open_queue() as side:
        for name in ("a", "b", "a", "a"):
            await side.store(name, SCHEDULE)
        for _ in range(3):
            await side.store("generated", with_headers(EMPTY_BLOCK, [(b"X-Nats-Schedule-Next", b"purge")]))
        async with side.following():
            assert [message.sequence for message in side.read] == [1, 2, 4, 7]


async def test_schedules_that_come_are_told_with_their_headers_byte_for_byte(open_queue: OpenQueue) -> None:
    async with open_queue() as side, side.following():
        block = SCHEDULE[:-2] + b"X:\t\xff \r\nX: a\r\nX:a\r\n\r\n"
        await side.store("größe.ф", block)
        (message,) = await side.reads(1)
        assert (message.subject, message.sequence, message.block) == (side.subject("größe.ф"), 1, block)


async def test_nothing_of_ours_is_attached_to_the_stream(open_queue: OpenQueue) -> None:
    async with open_queue() as side:
        await side.store("a", SCHEDULE)
        async with side.following():
            assert await side.consumers() == 0


async def test_a_replacement_is_told_even_where_both_came_at_once(open_queue: OpenQueue) -> None:
    async with open_queue() as side, side.following():
        for _ in range(20):
            await side.store("a", SCHEDULE)
        await eventually(lambda: side.read and side.read[-1].sequence == 20, within_seconds=30, describe="the last one")


async def test_each_version_but_the_last_is_known_to_lie_below_even_where_all_came_at_once(
    open_queue: OpenQueue,
) -> None:
    async with open_queue() as side, side.following():
        await asyncio.gather(*(side.store("a", SCHEDULE, b"%d" % number) for number in range(3)))
        await eventually(
            lambda: {1, 3} <= {message.sequence for message in side.read}, within_seconds=30, describe="first and last"
        )


async def test_what_a_subject_transform_moved_is_told_where_it_is_stored(
    shared_server: SharedServer, stream_name: str
) -> None:
    moved = {"src": f"{stream_name}.in.*", "dest": f"{stream_name}.kept.{{{{wildcard(1)}}}}"}
    config = {"retention": "workqueue", "subject_transform": moved}
    async with server_side((await shared_server(V2_11)).url, stream_name, config) as side:
        await side.store("in.before", SCHEDULE)
        async with side.following():
            await side.store("in.after", SCHEDULE)
            await side.store("plain", b"", b"work")
            await side.reads(3)
            assert [message.subject.removeprefix(f"{stream_name}.") for message in side.read] == [
                "kept.before",
                "kept.after",
                "plain",
            ]


async def test_a_stream_with_few_places_for_consumers_is_followed_without_taking_one(
    shared_server: SharedServer, stream_name: str
) -> None:
    async with server_side((await shared_server(V2_11)).url, stream_name, {"max_consumers": 1}) as side:
        await side.store("a", SCHEDULE)
        async with side.following():
            await side.store("b", SCHEDULE)
            await side.reads(2)
            assert await side.consumers() == 0


async def test_an_account_without_a_place_for_a_consumer_is_followed_by_look_ups(
    start_server: StartServer, stream_name: str
) -> None:
    limited = "accounts { A { users [{user: a, password: a}], jetstream { max_consumers: 1 } } }\nno_auth_user: a\n"
    server = await start_server(V2_11, config=limited)
    async with server_side(server.url, stream_name, {}) as side:
        await side.add_consumer("the-only-one")
        await side.store("a", SCHEDULE)
        async with side.following():
            await side.store("b", SCHEDULE)
            await side.reads(2)
            assert await side.consumers() == 1
