"""One of several sidecars is cut off from the server: its schedules fire elsewhere, and it comes back harmless.

How long that takes is read off the time stamps of what is stored, so that a slow test is no slow sidecar.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on
from tests.harness.fleet import RESUME_SECONDS, SCHEDULES, STREAM, ProcessFleet
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.servers import V2_10, V2_11
from tests.harness.waiting import instant_reached

INTERVAL_SECONDS = 1
"""Between two fires of a schedule while nothing is wrong."""

FAR_SECONDS = 4.0
"""The delay at which no answer comes before the connection is given up, while all that was sent still arrives."""

LATE_SECONDS = 8
"""The time after which everything that was sent before the connection was given up has arrived."""


class Parted(ProcessFleet):
    """Three sidecars, of which the last one reaches its server through a proxy."""

    proxy: Proxy


@pytest.fixture
async def parted(version: str, start_server: StartServer, tmp_path: Path) -> AsyncIterator[Parted]:
    """Serve one stream by three sidecars, with schedules that fire each second."""
    server = await start_server(version)
    async with account_on(server.url) as account, proxy_to(server.url) as proxy:
        await account.create(STREAM, metadata={"nats-scheduler.allow_msg_schedules": "true"})
        fleet = Parted(account, server.url, tmp_path)
        fleet.proxy = proxy
        try:
            for url in (server.url, server.url, proxy.url):
                await fleet.add(url)
            for number in range(SCHEDULES):
                await fleet.stream.schedule(f"s.{number}", f"@every {INTERVAL_SECONDS}s")
            await fleet.all_fire(CLOCK.now())
            yield fleet
        finally:
            for process in fleet.sidecars:
                process.kill()


def nothing_passes(proxy: Proxy) -> None:
    """Hold everything, in both directions; what was sent arrives when it heals."""
    proxy.freeze()


def nothing_is_heard(proxy: Proxy) -> None:
    """Hold what the server sends: what the one that is cut off sends still arrives, and it fires without an answer."""
    proxy.to_client.hold()


def all_is_late(proxy: Proxy) -> None:
    """Delay everything, so that what was sent arrives after others have taken over."""
    proxy.to_client.delay = proxy.to_server.delay = FAR_SECONDS


@pytest.mark.parametrize(
    ("version", "fault"), [(V2_10, nothing_passes), (V2_11, nothing_is_heard), (V2_11, all_is_late)]
)
async def test_what_is_cut_off_fires_elsewhere_and_does_no_harm_when_it_is_back(
    parted: Parted, fault: Callable[[Proxy], None]
) -> None:
    holders, cut_at = await parted.holders(), CLOCK.now()
    fault(parted.proxy)
    await parted.divided(2)
    others = await parted.parts()
    well = {shard for shard, name in enumerate(holders) if name in others}
    await parted.all_fire(CLOCK.now())
    await parted.sidecars[2].wait_for_line("connection_lost")
    if parted.proxy.to_server.delay:
        await instant_reached(cut_at + LATE_SECONDS * SECOND, CLOCK.now)
    silence = await parted.longest_silence(cut_at)
    # What was silent although its holder was well is the machine's fault.
    slowness = max(0, await parted.longest_silence(cut_at, well) - 2 * INTERVAL_SECONDS)
    assert slowness < RESUME_SECONDS
    print(f"{fault.__name__}: no schedule was silent for longer than {silence:.2f} s")
    parted.proxy.heal()
    await parted.divided(3)
    await parted.all_fire(CLOCK.now())
    await parted.expect_no_fire_twice()
    assert await parted.longest_silence(cut_at) <= RESUME_SECONDS + INTERVAL_SECONDS + slowness
