"""The values in a scrape of a real sidecar are true at that moment, also while the server, or a permission, is away."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.version import VERSION
from tests.conftest import StartServer
from tests.e2e.test_denials import limited_to
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_with
from tests.harness.permissions import accounts, url_of
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import EMULATED_VERSIONS, V2_11, reload_config
from tests.observe.scrapes import address_of, scrape, shows

FLAG = {"metadata": {"nats-scheduler.allow_msg_schedules": "true"}}


@asynccontextmanager
async def shown(url: str, folder: Path) -> AsyncIterator[tuple[str, ChildProcess]]:
    """Run a sidecar that serves its pages, and yield their address."""
    with sidecar("run", "-s", url, "--metrics-port", "0", folder=folder) as process:
        yield await address_of(process), process


async def schedule(account: Account, subject: str, pattern: str, target: str = "") -> None:
    """Store a schedule in the stream that its subject begins with."""
    wanted = target or f"{subject.partition('.')[0]}.out"
    await account.publish(subject, {"Nats-Schedule": pattern, "Nats-Schedule-Target": wanted})


async def test_a_server_that_stands_still_shows_as_schedules_that_are_overdue(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, shown(server.url, tmp_path) as (url, _process):
        await account.create("S", **FLAG)
        await account.create("T", **FLAG)
        await schedule(account, "S.every", "@every 1s")
        await schedule(account, "S.later", f"@at {in_seconds(3600)}")
        await schedule(account, "S.daily", "@daily")
        await account.publish("T.paused", {"Nats-Schedule-X-Paused": "@daily", "Nats-Schedule-Target": "T.out"})
        await shows(url, "fires_total", 1, stream="S")
        found = await shows(url, "shards_held", 64, 64, stream="T")
        assert [found.value("schedules_held", stream="S", kind=kind) for kind in ("at", "every", "cron")] == [1, 1, 1]
        assert [found.value("schedules_held", stream="T", kind=kind) for kind in ("at", "every", "cron")] == [0, 0, 0]
        await shows(url, "schedules_paused", 1, 1, stream="T")
        assert found.value("schedules_paused", stream="S") == 0
        assert found.value("stream_mode", stream="S", mode="emulated") == 1
        assert found.value("purges_pending", stream="S") == found.value("streams_unable") == 0
        assert CLOCK.now() / SECOND - 60 < (found.value("next_fire_timestamp_seconds", stream="S") or 0)
        assert found.value("next_fire_timestamp_seconds", stream="T") is None
        (about,) = found.labels("build_info")
        assert (about["version"], about["server_version"]) == (VERSION, V2_11)
        assert found.samples["process_resident_memory_bytes"]
        await shows(url, "schedules_overdue", 0, 0, stream="S")

        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await shows(url, "schedules_overdue", 1, 1, stream="S")
            await shows(url, "connected", 0, 0)
            found = await shows(url, "oldest_overdue_age_seconds", 5, stream="S")
            assert (found.value("schedules_overdue", stream="S"), found.value("connected")) == (1, 0)
            assert found.value("schedules_overdue", stream="T") == 0
            assert found.value("schedules_held", stream="S", kind="every") == 1
            assert found.value("build_info", **about) == 1
        finally:
            os.kill(server.pid, signal.SIGCONT)
        found = await shows(url, "schedules_overdue", 0, 0, stream="S")
        assert found.value("oldest_overdue_age_seconds", stream="S") == 0


async def test_refused_fires_are_overdue_until_the_server_takes_them(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, shown(server.url, tmp_path) as (url, _process):
        config = {"name": "S", "subjects": ["S.>"], "storage": "memory", **FLAG}
        await account.create("S", max_msg_size=200, **FLAG)  # enough for a schedule, and not for its fire
        await schedule(account, "S.every", "@every 1s")
        await schedule(account, "S.at", f"@at {in_seconds(1)}")
        found = await shows(url, "oldest_overdue_age_seconds", 2.5, stream="S")
        assert (found.value("schedules_overdue", stream="S"), found.value("connected")) == (2, 1)
        await account.api.call("STREAM.UPDATE.S", {**config, "max_msg_size": -1})
        await shows(url, "schedules_overdue", 0, 0, stream="S")


async def test_a_repeating_schedule_that_is_refused_is_overdue_since_its_first_fire(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, shown(server.url, tmp_path) as (url, _process):
        await account.create("S", max_msg_size=200, **FLAG)
        await schedule(account, "S.every", "@every 1s")
        found = await shows(url, "oldest_overdue_age_seconds", 4, stream="S")
        assert found.value("schedules_overdue", stream="S") == 1


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_purges_that_are_denied_are_pending_until_they_are_allowed(
    start_server: StartServer, tmp_path: Path, version: str
) -> None:
    able = limited_to(version, "S.>")
    unable = [each for each in able if each.subject != "$JS.API.STREAM.PURGE.*" or each.act != "publish"]
    server = await start_server(version, config=accounts([unable]))
    limited = url_of(server.url, "sidecar-0")
    async with account_on(url_of(server.url, "admin-0")) as account, shown(limited, tmp_path) as (url, _process):
        await account.create("S", storage="file", **FLAG)
        for number in range(20):
            await schedule(account, f"S.{number}", f"@at {in_seconds(0.5)}")
        found = await shows(url, "purges_pending", 20, 20, stream="S")
        await shows(url, "streams_unable", 1, 1)
        assert found.value("schedules_overdue", stream="S") == 0
        reload_config(server, accounts([able]))
        await shows(url, "purges_pending", 0, 0, stream="S")
        await shows(url, "streams_unable", 0, 0)


class SetClock(SystemClock):
    """The clock of a machine that is set wrong."""

    def now(self) -> int:
        """Return the wall clock, 90 s slow."""
        return super().now() - 90 * SECOND


async def test_the_clock_of_this_machine_is_compared_with_the_servers(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,)))
    async with sidecar_with(settings, SetClock()) as running:
        value = running.metrics.registry.get_sample_value
        assert value("nats_scheduler_clock_offset_seconds") == pytest.approx(90, abs=5)


async def test_a_sidecar_that_has_never_been_connected_shows_no_clock_and_no_server(tmp_path: Path) -> None:
    async with shown("nats://127.0.0.1:1", tmp_path) as (url, _process):
        found = await scrape(url)
    assert found.value("clock_offset_seconds") is None
    assert [about["server_version"] for about in found.labels("build_info")] == [""]
    assert found.value("connected") == 0
