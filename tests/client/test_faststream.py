"""The surprises for users of FastStream in `docs/clients.md` are true of the version that the tests install."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from faststream.nats import JStream, NatsBroker
from faststream.nats.schemas import Schedule

from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually

pytestmark = pytest.mark.deep

THEIRS = {"storage": "file", "max_msgs": 1000, "description": "of another team"}
NO_ZONE = datetime(2100, 1, 1) + timedelta(seconds=1)  # noqa: DTZ001


@pytest.fixture
async def native(start_server: StartServer) -> EmbeddedServer:
    """Start a server that fires by itself."""
    return await start_server(V2_15)


@pytest.fixture
async def broker(native: EmbeddedServer) -> AsyncIterator[NatsBroker]:
    """Connect FastStream to that server."""
    async with NatsBroker(native.url, logger=None) as connected:
        yield connected


def with_stream(broker: NatsBroker, *, declare: bool) -> None:
    """Have a broker receive from the stream ORDERS, and perhaps declare it."""
    stream = JStream("ORDERS", subjects=["ORDERS.>"], allow_msg_schedules=True, declare=declare)

    @broker.subscriber("ORDERS.due", stream=stream, durable="due", pull_sub=True)
    async def due(_body: str) -> None:
        """Take what fires."""


@pytest.mark.parametrize(("declare", "limit"), [(True, -1), (False, 1000)])
async def test_a_stream_with_another_configuration_is_replaced_unless_it_is_not_declared(
    broker: NatsBroker, native: EmbeddedServer, declare: bool, limit: int
) -> None:
    async with account_on(native.url) as account:
        await account.create("ORDERS", **THEIRS)
        with_stream(broker, declare=declare)
        await broker.start()
        assert (await account.api.stream("ORDERS"))["config"]["max_msgs"] == limit


async def test_a_time_without_a_zone_is_stored_and_rejected_by_the_sidecar(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("ORDERS")
        async with NatsBroker(server.url, logger=None) as broker:
            await broker.publish(
                "17", "ORDERS.s", schedule=Schedule(time=NO_ZONE, target="ORDERS.due"), stream="ORDERS"
            )
        [event] = await eventually(lambda: running.of("ORDERS", ScheduleRejected))
        assert (event.schedule, event.rejection.code) == ("ORDERS.s", 10189)
