"""A limits stream is followed through a consumer, within the limits of server and stream for consumers."""

import asyncio

import pytest

from tests.conftest import SharedServer, StartServer
from tests.contract.sides import server_side
from tests.harness.servers import V2_10, V2_11, V2_15


@pytest.mark.parametrize("version", [V2_10, V2_11])
@pytest.mark.parametrize("allowed", [1, 7])
async def test_no_more_is_asked_for_at_a_time_than_the_server_allows(
    start_server: StartServer, stream_name: str, version: str, allowed: int
) -> None:
    server = await start_server(version, config=f"jetstream {{ limits {{ max_request_batch: {allowed} }} }}\n")
    async with server_side(server.url, stream_name, {}) as side:
        for _ in range(20):
            await side.store("before")
        async with side.following():
            for _ in range(20):
                await side.store("after")
            read = await side.reads(40)
            assert [message.sequence for message in read] == list(range(1, 41))
            assert await side.consumers() == 1


async def test_a_stream_whose_consumers_may_not_be_idle_for_long_is_followed(
    start_server: StartServer, stream_name: str
) -> None:
    limits = {"consumer_limits": {"inactive_threshold": 1_000_000_000}}
    async with server_side((await start_server(V2_11)).url, stream_name, limits) as side, side.following():
        await side.store("a")
        assert len(await side.reads(1)) == 1


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_many_that_come_at_once_are_read_as_they_were_stored(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    """Unusual blocks are stored among usual ones, so that both are read in runs and one by one."""
    blocks = [b"NATS/1.0\r\nA: 1\r\n\r\n"] * 50 + [b"NATS/1.0\r\nA:\t\xff \r\nA:1\r\n\r\n", b""]
    count = 40 * len(blocks)
    async with server_side((await shared_server(version)).url, stream_name, {}) as side:
        await asyncio.gather(*(side.store(f"s{number}", blocks[number % len(blocks)]) for number in range(count)))
        async with side.following():
            read = await side.reads(count)
    assert [message.sequence for message in read] == list(range(1, count + 1))
    for message in read:
        block = blocks[int(message.subject.rpartition(".s")[2]) % len(blocks)]
        assert message.block == (block or b"NATS/1.0\r\n\r\n").removesuffix(b"\r\n") + b"Nats-Msg-Size: 0\r\n\r\n"
