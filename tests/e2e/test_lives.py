"""The lives of a sidecar: it starts on what is there, drains, is killed, comes back; so does its server."""

import asyncio
import itertools
import re
from pathlib import Path

import pytest

from nats_scheduler.message.headers import header_value
from nats_scheduler.runtime.wakes import CONTACT_STANDSTILL_LIMIT_NS
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.burst import store_herd
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11
from tests.harness.waiting import eventually, instant_reached

BURST = 2_000


async def count(account: Account, stream: str, subject: str) -> int:
    info = await account.api.call(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
    return sum((info["state"].get("subjects") or {}).values())


def kill_at(account: Account, subject: str, number: int, process: ChildProcess) -> asyncio.Event:
    """Kill the process the moment that its fire of this number is seen on the wire."""
    seen = itertools.count(1)
    killed = asyncio.Event()

    def sink(_subject: bytes, _reply: bytes, _block: bytes, _body: bytes) -> None:
        if next(seen) == number:
            process.kill()
            killed.set()

    account.connection.subscribe(subject, sink)
    return killed


async def expect_each_once(account: Account, stream: str, expected: int = BURST) -> None:
    """Show that each schedule of a burst has fired exactly once and is purged."""

    async def all_purged() -> bool:
        return await count(account, stream, f"{stream}.s.*") == 0

    await eventually(all_purged, within_seconds=30, describe="every schedule has fired and is purged")
    bodies = sorted(int(message.body or b"-1") for message in await account.messages(stream, f"{stream}.out"))
    assert bodies == list(range(expected))


async def marked_stream(account: Account, name: str, **config: object) -> None:
    """Create a stream that carries the flag in its metadata, as one has that was served before."""
    metadata = {"nats-scheduler.allow_msg_schedules": "true"}
    await account.create(name, storage="file", metadata=metadata, **config)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
@pytest.mark.parametrize("fires_before_the_kill", [1, 700, 1999])
async def test_killed_in_the_middle_of_a_burst_nothing_is_lost_or_doubled(
    start_server: StartServer, tmp_path: Path, version: str, fires_before_the_kill: int
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        await marked_stream(account, "S")
        with sidecar("run", "-s", server.url, "--window", "100", folder=tmp_path, name="first") as first:
            killed = kill_at(account, "S.out", fires_before_the_kill, first)
            await store_herd(account, "S", CLOCK.now() + 3 * SECOND, BURST)
            async with asyncio.timeout(30):
                await killed.wait()
        assert await count(account, "S", "S.s.*") > 0, "everything was over before the kill"
        with sidecar("run", "-s", server.url, folder=tmp_path, name="second"):
            await expect_each_once(account, "S")


async def test_told_to_end_in_the_middle_of_a_burst_it_drains_and_the_next_one_goes_on(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await marked_stream(account, "S")
        with sidecar("run", "-s", server.url, folder=tmp_path, name="first") as first:
            await store_herd(account, "S", CLOCK.now() + 3 * SECOND, BURST)

            async def begun() -> bool:
                return await count(account, "S", "S.out") > 0

            await eventually(begun, within_seconds=30, describe="the burst has begun")
            assert await first.terminate() == 0
        with sidecar("run", "-s", server.url, folder=tmp_path, name="second"):
            await expect_each_once(account, "S")


@pytest.mark.parametrize("signal", ["terminate", "interrupt"])
async def test_a_signal_ends_it_with_exit_code_0(start_server: StartServer, tmp_path: Path, signal: str) -> None:
    server = await start_server(V2_11)
    with sidecar("run", "-s", server.url, folder=tmp_path) as process:
        await process.wait_for_line("connected")
        assert await getattr(process, signal)() == 0


async def test_a_signal_ends_it_while_no_server_is_there(tmp_path: Path) -> None:
    with sidecar("run", "-s", "nats://127.0.0.1:1", folder=tmp_path) as process:
        await process.wait_for_line("connect_failed")
        assert await process.terminate() == 0


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "Pacific/Apia"])
async def test_times_are_utc_whatever_the_zone_of_the_machine(
    start_server: StartServer, tmp_path: Path, zone: str
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await marked_stream(account, "S")
        with sidecar("run", "-s", server.url, folder=tmp_path, env={"TZ": zone}) as process:
            await process.wait_for_line("stream_ready")
            due = CLOCK.now() + SECOND
            headers = {"Nats-Schedule": f"@at {format_rfc3339(due)}", "Nats-Schedule-Target": "S.out"}
            await account.publish("S.s", headers)
            await account.publish("S.c", {"Nats-Schedule": "* * * * * *", "Nats-Schedule-Target": "S.cron"})
            [fired] = await account.wait_for("S", "S.out")
            [cron, *_] = await account.wait_for("S", "S.cron")
    assert 0 <= fired.stored_at - due < SECOND
    assert re.search(rb"Nats-Schedule-Next: \S+Z\r\n", cron.block)


async def test_schedules_stored_before_the_start_are_picked_up(start_server: StartServer) -> None:
    server = await start_server(V2_10)
    async with account_on(server.url) as account:
        await marked_stream(account, "S")
        due = CLOCK.now() + 2 * SECOND
        await store_herd(account, "S", due, 20)
        async with sidecar_on(server.url):
            await expect_each_once(account, "S", 20)


async def test_overdue_fires_of_a_repeating_schedule_are_made_up_once(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await marked_stream(account, "S")
        await account.publish("S.s", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.out"})
        stored_at = (await account.messages("S", "S.s"))[0].stored_at

        async def three_seconds_later() -> bool:
            return CLOCK.now() > stored_at + 4 * SECOND

        await eventually(three_seconds_later, within_seconds=30)
        started_at = CLOCK.now()
        async with sidecar_on(server.url):
            fired = await account.wait_for("S", "S.out", 3)
    overdue = [message for message in fired if message.stored_at // SECOND * SECOND <= started_at]
    assert len(overdue) <= 2  # the make-up fire, and the next one where it came within the same second
    assert len({message.block for message in fired}) == len(fired)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_server_that_went_away_and_came_back_is_served_on(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await running.sidecar.serving.wait()
        await account.create("S", storage="file")
        await running.ready("S")
        await account.publish("S.every", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.tock"})
        at = in_seconds(2)
        await account.publish("S.s", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "S.out"})
        await server.kill()
        await server.restart()
        await running.ready("S", times=2)
        async with account_on(server.url) as again:
            fired = await again.wait_for("S", "S.out")
            await again.wait_for("S", "S.tock", 2)
    assert len(fired) == 1


async def test_a_connection_that_the_server_closes_for_good_is_made_anew(start_server: StartServer) -> None:
    """An `-ERR` such as a control line that is too long closes nats-py's client for good, reconnecting or not."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S")
        await running.ready("S")
        assert running.sidecar.connection is not None
        running.sidecar.connection.write(b"PUB " + b"x" * 5000 + b" 0\r\n\r\n")
        await running.ready("S", times=2)
        await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.3)}", "Nats-Schedule-Target": "S.out"})
        await account.wait_for("S", "S.out")


async def test_a_sidecar_that_stood_still_follows_anew_and_makes_up_one_fire(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await marked_stream(account, "S")
        with sidecar("run", "-s", server.url, folder=tmp_path) as process:
            await account.publish("S.s", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.out"})
            before = len(await account.wait_for("S", "S.out", 2))
            process.pause()
            await instant_reached(CLOCK.now() + CONTACT_STANDSTILL_LIMIT_NS + 2 * SECOND, CLOCK.now)
            process.resume()
            await process.wait_for_line("stood still")
            await account.wait_for("S", "S.out", before + 4)
        fires = await account.messages("S", "S.out")
        identities = {header_value(fire.block, b"Nats-Msg-Id") for fire in fires}
        seconds = [fire.stored_at // SECOND for fire in fires]
        gaps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
        assert sum(gap > CONTACT_STANDSTILL_LIMIT_NS // SECOND for gap in gaps) == 1
        assert len(fires) == len(identities)
