"""Fires over a bad network: what was not acknowledged is sent again under the same identity, and stored once."""

import itertools
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.events import FireRefused, FireStored, FireUnknown
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.burst import store_herd
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually

HERD = 400
SMALL = 1_000
"""Bytes of the largest message in a stream of small ones."""
FULL = 8_192
"""Bytes that an account may keep in memory."""
MESSAGE_TOO_LARGE = 10054
NO_RESOURCES = 10002
IDENTITY = re.compile(rb"Nats-Msg-Id: nats-scheduler:\d+:(\d+):")

both_versions = pytest.mark.parametrize("version", EMULATED_VERSIONS)


@dataclass
class Far:
    """A sidecar that reaches its server through a proxy, and a test that reaches it directly."""

    server: EmbeddedServer
    account: Account
    proxy: Proxy
    running: Running

    async def create(self, name: str, **config: Any) -> None:
        """Create a flagged stream and wait until it is served."""
        await self.account.create(name, storage="file", **config)
        await self.running.ready(name)

    async def herd(self, stream: str, seconds: float = 1.0) -> None:
        """Store schedules that are all due at the same time, in `seconds`."""
        await store_herd(self.account, stream, CLOCK.now() + int(seconds * SECOND), HERD)


@asynccontextmanager
async def far(server: EmbeddedServer, **settings: Any) -> AsyncIterator[Far]:
    async with (
        account_on(server.url) as account,
        proxy_to(server.url) as proxy,
        sidecar_on(proxy.url, **settings) as running,
    ):
        yield Far(server, account, proxy, running)


def is_acknowledgement(subject: bytes) -> bool:
    """Return whether a message acknowledges a fire, by the inbox that all streams of a connection share."""
    return b".a." in subject


def at_the(number: int, of: Callable[[bytes], bool], act: Callable[[], None]) -> Callable[[bytes], bool]:
    """Return a judge that loses nothing, and acts at the message with this number among those that count."""
    seen = itertools.count(1)

    def judge(subject: bytes) -> bool:
        if of(subject) and next(seen) == number:
            act()
        return False

    return judge


async def expect_each_once(account: Account, stream: str) -> None:
    """Show that each schedule of a herd has fired exactly once and is purged."""

    async def all_purged() -> bool:
        info = await account.api.call(f"STREAM.INFO.{stream}", {"subjects_filter": f"{stream}.s.*"})
        return not info["state"].get("subjects")

    await eventually(all_purged, within_seconds=2 * WAIT_SECONDS, describe="every schedule has fired and is purged")
    bodies = sorted(int(message.body or b"-1") for message in await account.messages(stream, f"{stream}.out"))
    assert bodies == list(range(HERD))


@both_versions
async def test_a_fire_whose_acknowledgements_are_lost_is_repeated_as_the_same_and_stored_once(
    start_server: StartServer, version: str
) -> None:
    """On a work queue stream, where only the acknowledgement shows it, since the fire itself is lost on the way."""
    server = await start_server(version)
    async with far(server, ack_timeout=SECOND // 5) as here:
        await here.create("JOBS", retention="workqueue")
        here.proxy.to_client.loses = lambda subject: is_acknowledgement(subject) or subject.startswith(b"JOBS.out")
        at = f"@at {in_seconds(0.3)}"
        await here.account.publish("JOBS.at", {"Nats-Schedule": at, "Nats-Schedule-Target": "JOBS.out.at"})
        await here.account.publish(
            "JOBS.every", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "JOBS.out.every"}
        )
        await eventually(
            lambda: len(here.running.of("JOBS", FireUnknown)) >= 8,
            within_seconds=WAIT_SECONDS,
            describe="fires are unsettled, and sent again",
        )
        waits = [event.retry_after for event in here.running.of("JOBS", FireUnknown)]
        assert len(await here.account.messages("JOBS", "JOBS.out.at")) == 1
        assert len(await here.account.messages("JOBS", "JOBS.out.every")) == 1, "the next fire waits for this one"
        here.proxy.heal()
        every = await here.account.wait_for("JOBS", "JOBS.out.every", 4)
        assert len(await here.account.messages("JOBS", "JOBS.out.at")) == 1
        assert {event.fire.target for event in here.running.of("JOBS", FireStored) if event.duplicate} == {
            "JOBS.out.at",
            "JOBS.out.every",
        }
    times = [int(found[1]) for message in every if (found := IDENTITY.search(message.block))]
    assert times == sorted(set(times))
    assert len(times) == len(every)
    assert max(waits) <= SECOND


@both_versions
async def test_where_the_stream_can_be_read_a_lost_acknowledgement_costs_nothing(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)
    async with far(server) as here:
        await here.create("S")
        here.proxy.to_client.loses = is_acknowledgement
        await here.herd("S")
        await expect_each_once(here.account, "S")
        assert here.proxy.to_client.lost >= HERD
        here.proxy.heal()


@both_versions
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_cut_in_the_middle_of_a_herd_each_is_stored_once(
    start_server: StartServer, version: str, retention: str
) -> None:
    server = await start_server(version)
    async with far(server) as here:
        await here.create("S", retention=retention)
        here.proxy.to_client.loses = at_the(HERD // 3, is_acknowledgement, here.proxy.cut)
        here.proxy.to_server.loses = at_the(HERD // 5, lambda subject: subject == b"S.out", here.proxy.cut)
        await here.herd("S")
        await expect_each_once(here.account, "S")
        assert here.proxy.links_made == 3


@both_versions
async def test_a_connection_that_is_open_and_carries_nothing_is_given_up(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)
    async with far(server) as here:
        await here.create("S")
        await here.account.publish("S.every", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.tock"})
        before = len(await here.account.wait_for("S", "S.tock"))
        here.proxy.strand()
        fired = await here.account.wait_for("S", "S.tock", before + 2)
        assert here.proxy.links_made == 2
    assert len({message.block for message in fired}) == len(fired)


async def test_fires_resume_before_the_registry_answers(start_server: StartServer) -> None:
    """In a cluster it may have no leader for a while, when the streams have theirs."""
    server = await start_server(V2_11)
    async with far(server) as here:
        await here.create("S")
        await here.account.publish("S.every", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.tock"})
        before = len(await here.account.wait_for("S", "S.tock", 2))
        here.proxy.to_server.loses = lambda subject: b"nats_scheduler" in subject
        here.proxy.cut()
        fired = await here.account.wait_for("S", "S.tock", before + 3)
        assert here.proxy.links_made == 2, "no connection was given up meanwhile"
        assert here.running.told("jetstream_unavailable") == []
        here.proxy.heal()
        await here.account.wait_for("S", "S.tock", len(fired) + 2)
    assert len({message.block for message in fired}) == len(fired)


async def test_a_partition_that_heals_is_served_on_and_a_slow_line_is_no_fault(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with far(server) as here:
        await here.create("S")
        here.proxy.freeze()
        await here.running.told_of("connection_lost")
        await here.herd("S", seconds=0)
        assert await here.account.messages("S", "S.out") == []
        here.proxy.to_client.delay = here.proxy.to_server.delay = 0.05
        here.proxy.to_client.bytes_per_second = 500_000
        here.proxy.to_server.release()
        here.proxy.to_client.release()
        await expect_each_once(here.account, "S")
        assert len(here.running.told("connection_lost")) == 1


@both_versions
async def test_a_server_killed_in_the_middle_of_a_herd_has_each_once_when_it_is_back(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)
    async with proxy_to(server.url) as proxy, sidecar_on(proxy.url) as running:
        async with account_on(server.url) as account:
            here = Far(server, account, proxy, running)
            await here.create("S")
            proxy.to_client.loses = at_the(HERD // 2, is_acknowledgement, lambda: kill(server))
            await here.herd("S", seconds=3)
            await eventually(lambda: server.pid is None, within_seconds=WAIT_SECONDS, describe="the server is dead")
        await server.restart()
        async with account_on(server.url) as account:
            await expect_each_once(account, "S")


async def is_refused(running: Running, stream: str, code: int) -> None:
    """Wait until a fire of a stream is reported as refused with this code."""
    await eventually(
        lambda: code in {event.code for event in running.of(stream, FireRefused)},
        within_seconds=WAIT_SECONDS,
        describe=lambda: f"{code} on {stream}: {running.events}",
    )


def kill(server: EmbeddedServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)


@both_versions
async def test_what_the_server_refuses_blocks_nobody(start_server: StartServer, version: str) -> None:
    """A fire is larger than its schedule may be, and an account that is full."""
    limits = f"{{ max_mem: {FULL}, max_file: 1G }}"
    config = f"accounts {{ A {{ jetstream: {limits}, users: [{{ user: u, password: p }}] }} }}\n"
    server = await start_server(version, config=config)
    url = server.url.replace("nats://", "nats://u:p@")
    async with account_on(url) as account, sidecar_on(url) as running:
        await account.create("SMALL", storage="file", max_msg_size=SMALL)
        await account.create("FULL", storage="memory")
        await account.create("FINE", storage="file")
        for name in ("SMALL", "FULL", "FINE"):
            await running.ready(name)
        at = f"@at {in_seconds(1)}"
        for name in ("SMALL", "FULL", "FINE"):
            await account.publish(f"{name}.s", {"Nats-Schedule": at, "Nats-Schedule-Target": f"{name}.out"}, b"x" * 500)
        at = f"@at {in_seconds(0.5)}"
        big = {"Nats-Schedule": at, "Nats-Schedule-Target": "SMALL.out"}
        await account.publish("SMALL.big", big, b"x" * (SMALL - 100))
        await account.publish("FULL.fill", body=b"x" * (FULL - 1_000))
        for name in ("SMALL", "FINE"):
            [fired] = await account.wait_for(name, f"{name}.out")
            assert fired.body == b"x" * 500
        for name, code in (("SMALL", MESSAGE_TOO_LARGE), ("FULL", NO_RESOURCES)):
            await is_refused(running, name, code)
        await account.api.call("STREAM.PURGE.FULL", {"filter": "FULL.fill"})
        assert len(await account.wait_for("FULL", "FULL.out")) == 1
