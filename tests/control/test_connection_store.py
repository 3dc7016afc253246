"""The store on a connection keeps the contract of all stores, on every version of the server."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from nats_scheduler.control.changes import Kind
from nats_scheduler.control.edits import add
from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.message.capabilities import capabilities
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.schedule_store import connection_store
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import SharedServer
from tests.control.contract import StoreContract
from tests.control.server_side import ServerSide, account_with
from tests.harness.account import CLOCK, Account
from tests.harness.blocks import block_to_send
from tests.harness.servers import ALL_VERSIONS


async def store_of(account: Account, *portable: str) -> ScheduleStore:
    """Return the store of an account; `portable` are the streams that the settings name."""
    greeting = account.connection.server
    server = capabilities(await account.api.info(), greeting.version, greeting.max_payload)
    access = Access.through(account.connection, SidecarSettings(portable_streams=portable))
    return connection_store(replace(access, server=server), ServerClock(CLOCK))


@pytest.fixture(params=ALL_VERSIONS)
async def side(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str
) -> AsyncIterator[ServerSide]:
    async with account_with((await shared_server(request.param)).url, stream_name) as account:
        yield ServerSide(account, await store_of(account, stream_name), stream_name)


class TestConnectionStore(StoreContract):
    """On a plain stream with portable headers, which every version has."""


async def test_what_a_stream_acknowledges_and_does_not_store_is_not_reported_as_stored(side: ServerSide) -> None:
    name = f"{side.stream}-interest"
    await side.account.create(name, allow_msg_schedules=False, retention="interest")
    store = await store_of(side.account, name)
    headers = {"X-Nats-Schedule": "@at 2200-01-01T00:00:00Z", "X-Nats-Schedule-Target": f"{name}.out"}
    with pytest.raises(NotPossibleError, match="needs a consumer of its subject"):
        await add(store, name, f"{name}.s", block_to_send(headers), b"")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    await side.account.api.call(f"CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": config})
    assert (await add(store, name, f"{name}.s", block_to_send(headers), b"")).kind is Kind.ADDED
