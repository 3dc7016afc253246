"""The store over a nats-py connection keeps the contract of all stores, on the oldest and the newest server."""

from collections.abc import AsyncIterator

import pytest

from nats_scheduler.client.client_wire import wire_of
from nats_scheduler.client.jetstream_requests import JetStreamRequests
from nats_scheduler.client.serving import Servings
from nats_scheduler.control.edits import remove
from nats_scheduler.control.store import ScheduleStore
from tests.client.conftest import Connect
from tests.conftest import SharedServer
from tests.control.contract import StoreContract
from tests.control.server_side import ServerSide, account_with
from tests.harness.account import sidecar_on
from tests.harness.servers import V2_10, V2_15


@pytest.fixture(params=[V2_10, V2_15])
async def side(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str, connect: Connect
) -> AsyncIterator[ServerSide]:
    server = await shared_server(request.param)
    async with (
        account_with(server.url, stream_name) as account,
        sidecar_on(server.url, portable_streams=[stream_name]) as sidecar,
    ):
        await sidecar.ready(stream_name)
        wire = wire_of(await connect(server.url))
        requests = JetStreamRequests(wire)
        store = ScheduleStore(requests, Servings(wire, requests))
        await store.served(stream_name)  # it knows the time of the server from then on
        yield ServerSide(account, store, stream_name)


class TestClientStore(StoreContract):
    """On a plain stream with portable headers, which every version has."""


async def test_the_message_before_a_deleted_one_is_found(side: ServerSide) -> None:
    """Servers up to 2.11 find it only once the messages on the subject were read."""
    for body in (b"1", b"2", b"3"):
        last = await side.publish(side.subject(), b"", body)
    await side.account.api.delete_message(side.stream, last)
    found = await side.store.last(side.stream, side.subject())
    assert found is not None
    assert found.body == b"2"


async def test_where_purges_are_denied_each_version_is_deleted(side: ServerSide) -> None:
    config = (await side.account.api.stream(side.stream))["config"]
    if config.get("allow_rollup_hdrs"):
        config["allow_rollup_hdrs"] = False
    await side.account.api.update_stream({**config, "deny_purge": True})
    for body in (b"1", b"2"):
        await side.publish(side.subject(), side.block(), body)
    kept = await side.publish(side.subject("kept"), side.block())
    await remove(side.store, side.stream, side.subject())
    assert await side.messages(side.subject()) == []
    assert [one.sequence for one in await side.messages(side.subject("kept"))] == [kept]
