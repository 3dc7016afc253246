"""Fires over a bad network: what was not acknowledged is sent again under the same identity, and stored once."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.events import FireRefused, FireStored, FireUnknown
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.burst import store_herd
from tests.harness.flagged import FlaggedStream, Served, fire_time_of
from tests.harness.proxy import Proxy, at_the, proxy_to
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually

HERD = 120
SMALL = 1_000
"""Bytes of the largest message in a stream of small ones."""
FULL = 8_192
"""Bytes that an account may keep in memory."""
MESSAGE_TOO_LARGE = 10054
NO_RESOURCES = 10002

both_versions = pytest.mark.parametrize("version", EMULATED_VERSIONS)


@dataclass
class Far(Served):
    """A stream that a sidecar serves through a proxy, and that a test reaches directly."""

    proxy: Proxy | None = None

    @property
    def network(self) -> Proxy:
        assert self.proxy is not None
        return self.proxy

    async def herd(self, seconds: float = 0.5) -> None:
        """Store schedules that are all due at the same time, in `seconds`."""
        await store_herd(self.account, self.name, CLOCK.now() + int(seconds * SECOND), HERD)

    async def ticking(self, count: int) -> int:
        """Store a schedule that fires each second; return how many fires there are once it is `count`."""
        await self.schedule("every", "@every 1s", target="tock")
        return len(await self.wait_for("tock", count))

    async def ticks_on(self, count: int) -> None:
        """Wait for `count` fires more, and show that no fire was stored twice."""
        fires = await self.wait_for("tock", len(await self.messages("tock")) + count)
        assert len({fire_time_of(fire) for fire in fires}) == len(fires)


@asynccontextmanager
async def far(server: EmbeddedServer, config: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Far]:
    async with (
        account_on(server.url) as account,
        proxy_to(server.url) as proxy,
        sidecar_on(proxy.url, **settings) as running,
    ):
        await account.create("S", storage="file", **(config or {}))
        await running.ready("S")
        yield Far(account, "S", running, server.url, server.version, proxy)


def is_acknowledgement(subject: bytes) -> bool:
    """Return whether a message acknowledges a fire, by the inbox that all streams of a connection share."""
    return b".a." in subject


@both_versions
async def test_a_fire_whose_acknowledgements_are_lost_is_repeated_as_the_same_and_stored_once(
    start_server: StartServer, version: str
) -> None:
    """On a work queue stream, where only the acknowledgement shows it, since the fire itself is lost on the way."""
    server = await start_server(version)
    async with far(server, {"retention": "workqueue"}, ack_timeout=SECOND // 5) as here:
        here.network.to_client.loses = lambda subject: is_acknowledgement(subject) or subject.startswith(b"S.out")
        await here.schedule("at", f"@at {in_seconds(0.3)}", target="out.at")
        await here.schedule("every", "@every 1s", target="out.every")
        waits = [event.retry_after for event in await here.reported(FireUnknown, 8)]
        assert len(await here.messages("out.at")) == 1
        assert len(await here.messages("out.every")) == 1, "the next fire waits for this one"
        here.network.heal()
        every = await here.wait_for("out.every", 4)
        assert len(await here.messages("out.at")) == 1
        repeated = {event.fire.target for event in here.of(FireStored) if event.duplicate}
        assert repeated == {"S.out.at", "S.out.every"}
    times = [fire_time_of(fire) for fire in every]
    assert times == sorted(set(times))
    assert max(waits) <= SECOND


@both_versions
async def test_where_the_stream_can_be_read_a_lost_acknowledgement_costs_nothing(
    start_server: StartServer, version: str
) -> None:
    async with far(await start_server(version)) as here:
        here.network.to_client.loses = is_acknowledgement
        await here.herd()
        await here.each_fired_once(HERD)
        assert here.network.to_client.lost >= HERD
        here.network.heal()


@pytest.mark.parametrize(
    ("version", "retention"), [(EMULATED_VERSIONS[0], "limits"), (V2_11, "limits"), (V2_11, "workqueue")]
)
async def test_cut_in_the_middle_of_a_herd_each_is_stored_once(
    start_server: StartServer, version: str, retention: str
) -> None:
    async with far(await start_server(version), {"retention": retention}) as here:
        here.network.to_client.loses = at_the(HERD // 3, is_acknowledgement, here.network.cut)
        here.network.to_server.loses = at_the(HERD // 5, lambda subject: subject == b"S.out", here.network.cut)
        await here.herd()
        await here.each_fired_once(HERD)
        assert here.network.links_made == 3


@both_versions
async def test_a_connection_that_is_open_and_carries_nothing_is_given_up(
    start_server: StartServer, version: str
) -> None:
    async with far(await start_server(version)) as here:
        await here.ticking(1)
        here.network.strand()
        await here.ticks_on(2)
        assert here.network.links_made == 2


async def test_fires_resume_before_the_registry_answers(start_server: StartServer) -> None:
    """In a cluster it may have no leader for a while, when the streams have theirs."""
    async with far(await start_server(V2_11)) as here:
        await here.ticking(2)
        here.network.to_server.loses = lambda subject: b"nats_scheduler" in subject
        here.network.cut()
        await here.ticks_on(3)
        assert here.network.links_made == 2, "no connection was given up meanwhile"
        assert here.sidecar.told("jetstream_unavailable") == []
        here.network.heal()
        await here.ticks_on(2)


async def test_a_partition_that_heals_is_served_on_and_a_slow_line_is_no_fault(start_server: StartServer) -> None:
    async with far(await start_server(V2_11)) as here:
        network = here.network
        network.freeze()
        await here.sidecar.told_of("connection_lost")
        await here.herd(seconds=0)
        assert await here.messages("out") == []
        network.to_client.delay = network.to_server.delay = 0.05
        network.to_client.bytes_per_second = network.to_server.bytes_per_second = 500_000
        network.to_server.release()
        network.to_client.release()
        await here.each_fired_once(HERD)
        assert len(here.sidecar.told("connection_lost")) == 1


@both_versions
async def test_a_server_killed_in_the_middle_of_a_herd_has_each_once_when_it_is_back(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)

    def kill() -> None:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)

    async with far(server) as here:
        here.network.to_client.loses = at_the(HERD // 2, is_acknowledgement, kill)
        await here.herd(seconds=2)
        await eventually(lambda: server.pid is None, describe="the server is dead")
        await server.restart()
        async with account_on(server.url) as account:
            await FlaggedStream(account, "S").each_fired_once(HERD)


@both_versions
async def test_what_the_server_refuses_blocks_nobody(start_server: StartServer, version: str) -> None:
    """A fire is larger than its schedule may be, and an account that is full."""
    limits = f"{{ max_mem: {FULL}, max_file: 1G }}"
    config = f"accounts {{ A {{ jetstream: {limits}, users: [{{ user: u, password: p }}] }} }}\n"
    server = await start_server(version, config=config)
    url = server.url.replace("nats://", "nats://u:p@")
    async with account_on(url) as account, sidecar_on(url) as running:
        small, full, fine = (Served(account, name, running) for name in ("SMALL", "FULL", "FINE"))
        await account.create("SMALL", storage="file", max_msg_size=SMALL)
        await account.create("FULL", storage="memory")
        await account.create("FINE", storage="file")
        for one in (small, full, fine):
            await running.ready(one.name)
        await full.publish("fill", body=b"x" * (FULL - 1_000))  # there is room for the schedule, and not for its fire
        for one in (small, full, fine):
            await one.schedule("s", f"@at {in_seconds(1)}", b"x" * 500)
        await small.schedule("big", f"@at {in_seconds(0.5)}", b"x" * (SMALL - 100))
        for one in (small, fine):
            assert [fired.body for fired in await one.wait_for("out")] == [b"x" * 500]
        for one, code in ((small, MESSAGE_TOO_LARGE), (full, NO_RESOURCES)):
            assert code in {event.code for event in await one.reported(FireRefused)}
        await full.call("STREAM.PURGE", {"filter": "FULL.fill"})
        assert len(await full.wait_for("out")) == 1
