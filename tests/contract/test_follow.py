"""A limits stream is followed through a consumer, within what server and stream allow their consumers."""

import pytest

from tests.conftest import StartServer
from tests.contract.sides import server_side
from tests.harness.servers import V2_10, V2_11


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
