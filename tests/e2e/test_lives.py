"""The lives of a sidecar: it starts on what is there, drains, is killed, comes back; so does its server."""

import shutil
from pathlib import Path

import pytest

from nats_scheduler.engine.events import Ending, FireStored, ScheduleEnded
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.burst import store_herd
from tests.harness.flagged import FLAG, FlaggedStream, served_on
from tests.harness.processes import sidecar
from tests.harness.proxy import at_the, proxy_to
from tests.harness.servers import V2_10, V2_11, server_binary
from tests.harness.waiting import eventually

BURST = 400
STORED = {"storage": "file", **FLAG}


def is_fire(subject: bytes) -> bool:
    """Return whether a message is a fire of the herd."""
    return subject == b"S.out"


@pytest.mark.parametrize(("version", "fires_before_the_kill"), [(V2_10, BURST // 3), (V2_11, BURST // 2)])
async def test_killed_in_a_burst_it_loses_and_doubles_nothing(
    start_server: StartServer, tmp_path: Path, version: str, fires_before_the_kill: int
) -> None:
    """It is killed as it sends a fire, so that it has no outcome of that one, however fast it is."""
    server = await start_server(version)
    async with account_on(server.url) as account, proxy_to(server.url) as network:
        stream = FlaggedStream(account, "S")
        await account.create("S", **STORED)
        with sidecar("run", "-s", network.url, "--window", "50", folder=tmp_path, name="first") as first:
            network.to_server.loses = at_the(fires_before_the_kill + 1, is_fire, first.kill)
            await first.wait_for_line("stream_ready")
            await store_herd(account, "S", CLOCK.now() + SECOND, BURST)
            await eventually(lambda: first.exit_code is not None, describe="it is killed")
        assert await stream.stored_on("s.*") >= BURST - fires_before_the_kill, "the others cannot be purged"
        async with sidecar_on(server.url):
            await stream.each_fired_once(BURST)


async def test_a_signal_ends_it_with_exit_code_0(start_server: StartServer, tmp_path: Path) -> None:
    """Also while no server is there."""
    server = await start_server(V2_11)
    with (
        sidecar("run", "-s", server.url, folder=tmp_path, name="one") as one,
        sidecar("run", "-s", "nats://127.0.0.1:1", folder=tmp_path, name="other") as other,
    ):
        await one.wait_for_line("connected")
        assert await one.terminate() == 0
        await other.wait_for_line("connect_failed")
        assert await other.interrupt() == 0


CATCH_UP_RATE = 20
MISSED_FOR_NS = 11 * SECOND


async def test_missed_fires_come_so_many_a_second_each_once(start_server: StartServer) -> None:
    server, missed = await start_server(V2_11), 3 * CATCH_UP_RATE
    async with account_on(server.url) as account:
        stream = FlaggedStream(account, "S")
        await account.create("S", **STORED)
        due = in_seconds(0.1)
        for number in range(missed):
            await stream.schedule(f"s.{number}", f"@at {due}", target=f"out.{number}")
        stored_at = CLOCK.now()
        await eventually(lambda: CLOCK.now() > stored_at + MISSED_FOR_NS)
        for fires in (CATCH_UP_RATE // 2, missed):
            async with sidecar_on(server.url, catch_up_rate=[str(CATCH_UP_RATE)]):
                found = await stream.wait_for("out.*", fires)
        assert len({one.subject for one in found}) == len(found) == missed
        assert await stream.stored_on("s.*") == 0
    # Less than the 3 s of the rate: there are groups, one of which each sidecar sends at once.
    assert found[-1].stored_at - found[0].stored_at > 3 * SECOND // 2


async def test_a_server_that_went_away_and_came_back_is_served_on(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config={"storage": "file"}) as served:
        await served.schedule("every", "@every 1s", target="tock")
        await served.schedule("s", f"@at {in_seconds(2)}")
        await server.kill()
        await server.restart()
        await served.sidecar.ready("S", times=2)
        async with account_on(server.url) as account:
            again = FlaggedStream(account, "S")
            assert len(await again.wait_for("out")) == 1
            await again.wait_for("tock", 2)


COMES_BACK = 50


async def schedules_in(url: str) -> int:
    """Return how many schedules a server holds."""
    async with account_on(url) as account:
        return await FlaggedStream(account, "S").stored_on("s.*")


async def test_what_a_killed_server_brings_back_is_removed_again(start_server: StartServer, tmp_path: Path) -> None:
    """A 2.10 brings messages back at the front of a stream."""
    server = await start_server(V2_10)
    async with sidecar_on(server.url) as running:
        async with account_on(server.url) as account:
            await account.create("S", storage="file")
            await running.ready("S")
            await store_herd(account, "S", CLOCK.now() + SECOND, COMES_BACK)
            ended = await running.reported("S", ScheduleEnded, COMES_BACK)
            assert [event.ending for event in ended] == [Ending.FIRED] * COMES_BACK
            await FlaggedStream(account, "S").gone("s.*")
        await server.kill()
        shutil.copytree(server.store_dir, tmp_path / "copy")
        copy = EmbeddedServer(server_binary(V2_10), tmp_path / "copy", name=server.name)
        await copy.start()
        try:
            assert await schedules_in(copy.url), "nothing came back: this test proves nothing"
        finally:
            await copy.stop()
        await server.start()
        await running.ready("S", 2)
        async with account_on(server.url) as account:
            await FlaggedStream(account, "S").gone("s.*")
        assert len([event for event in running.of("S", FireStored) if not event.duplicate]) == COMES_BACK
