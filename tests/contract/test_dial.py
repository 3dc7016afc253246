"""The order of servers: each process draws its own, the one that failed last comes last, and none delays the next."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from nats_scheduler.jetstream import dial
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import SharedServer
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.servers import V2_11

DEADLINE_SECONDS = 20.0
"""Far below the wait for one server that is set in these tests."""


def dialer(*servers: str) -> Dialer:
    """Return a dialer that would wait a minute for each server."""
    return Dialer(ConnectionSettings(servers=servers, connect_timeout=MINUTE))


async def reached(one: Dialer, proxies: list[Proxy]) -> int:
    """Connect, and return the number of the proxy that it went through."""
    before = [proxy.links_made for proxy in proxies]
    connection = await one.dial()
    await connection.close()
    [number] = [n for n, proxy in enumerate(proxies) if proxy.links_made != before[n]]
    return number


@asynccontextmanager
async def proxies_to(url: str, count: int) -> AsyncIterator[list[Proxy]]:
    """Run several ways to one server."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(proxy_to(url)) for _ in range(count)]


async def test_the_server_that_was_lost_last_is_tried_last(
    shared_server: SharedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "NEXT_SERVER_DELAY_SECONDS", 60.0)  # none is tried beside another one
    async with proxies_to((await shared_server(V2_11)).url, 3) as proxies:
        urls = [proxy.url for proxy in proxies]
        assert {await reached(dialer(*urls), proxies) for _ in range(30)} == {0, 1, 2}
        one = dialer(*urls)
        order = [await reached(one, proxies) for _ in range(6)]
    assert sorted(order[:3]) == [0, 1, 2]
    assert order[3:] == order[:3]


async def test_hosts_that_went_dark_do_not_hold_up_the_one_that_answers(shared_server: SharedServer) -> None:
    """Whatever the timeouts, and whatever the drawn order."""
    server = await shared_server(V2_11)
    for dark in (1, 3):
        async with proxies_to(server.url, dark) as proxies:
            for proxy in proxies:
                proxy.freeze()
            for _ in range(4):
                async with asyncio.timeout(DEADLINE_SECONDS):
                    connection = await dialer(*(proxy.url for proxy in proxies), server.url).dial()
                await connection.close()
