"""A server that fires by itself, and has other zone data: that is noticed, and its times are shown."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.message.findings import Code
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.schedule.zone_data import package_folder
from tests.cli.conftest import cli
from tests.cli.prompt import Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.doctor.examined import findings_on, of
from tests.harness.account import CLOCK, sidecar_on
from tests.harness.servers import V2_15

__all__ = ["cli"]

TOKYO = 9 * HOUR


@asynccontextmanager
async def with_tokyos_clock_in_berlin(
    cli: Cli, start_server: StartServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Prompt, EmbeddedServer]]:
    """Start a server whose zone data has the offset of Tokyo for Europe/Berlin, with a stream."""
    shutil.copytree(package_folder(), folder / "zones")
    shutil.copy(folder / "zones" / "Asia" / "Tokyo", folder / "zones" / "Europe" / "Berlin")
    monkeypatch.setenv("ZONEINFO", str(folder / "zones"))
    server = await start_server(V2_15)
    monkeypatch.delenv("ZONEINFO")
    async with prompt_on(cli, server.url) as prompt:
        await prompt.create()
        yield prompt, server


@pytest.mark.server
async def test_other_zone_data_of_the_server_is_reported(
    cli: Cli, start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_tokyos_clock_in_berlin(cli, start_server, tmp_path, monkeypatch) as (prompt, server):
        await prompt.schedule("ORDERS.daily", "0 30 9 * * *", "ORDERS.daily.out", Time_Zone="Europe/Berlin")
        before = await prompt.document("ls")
        assert before["warnings"] == [], "nothing is known before a fire"
        await prompt.schedule("ORDERS.each", "* * * * * *", "ORDERS.each.out", Time_Zone="Europe/Berlin")
        await prompt.account.wait_for("ORDERS", "ORDERS.each.out")

        async def shows_the_servers_times() -> None:
            document = await prompt.document("ls")
            (warning,) = document["warnings"]
            assert warning.startswith("time zone Europe/Berlin is +09:00 at ")
            assert "by the server's zone data, and +0" in warning
            (daily,) = (one for one in document["schedules"] if one["subject"] == "ORDERS.daily")
            fire = daily["next_fire"]["nanoseconds"]
            assert (fire + TOKYO) % (24 * HOUR) == 9 * HOUR + HOUR // 2, "9:30 by the server's clock"
            assert daily["next_fire"]["local"].endswith("T09:30:00+09:00")
            assert 0 < fire - CLOCK.now() <= 24 * HOUR
            said = await prompt.says("info ORDERS ORDERS.each")
            assert "time zone Europe/Berlin is +09:00" in said.stderr

        await shows_the_servers_times()
        (found,) = of(await findings_on(server), Code.ZONES_DISAGREE)
        assert found.what.startswith("time zone Europe/Berlin is +09:00 at ")
        assert found.what.endswith("which a fire of ORDERS.each shows")
        async with sidecar_on(server.url) as running:
            await running.ready("ORDERS")
            await shows_the_servers_times()
