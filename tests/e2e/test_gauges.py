"""The values in a scrape of a real sidecar are true at that moment, also while the server, or a permission, is away."""

import os
import signal

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.version import VERSION
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, far_hour, in_seconds, sidecar_on
from tests.harness.flagged import FLAG, FlaggedStream, served_on
from tests.harness.permissions import accounts, limited_to, url_of, without
from tests.harness.servers import V2_11, reload_config

KINDS = ("at", "every", "cron")


async def test_a_server_that_stands_still_shows_as_overdue_schedules(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        other, running = FlaggedStream(served.account, "T"), served.sidecar
        await served.account.create("T", **FLAG)
        await served.schedule("every", "@every 1s")
        await served.schedule("later", f"@at {in_seconds(3600)}")
        await served.schedule("daily", f"0 0 {far_hour('UTC')} * * *")
        await other.publish("paused", {"Nats-Schedule-X-Paused": "@daily", "Nats-Schedule-Target": "T.out"})
        await running.shows("fires_total", 1, stream="S")
        await running.shows("stream_owner", 1, 1, stream="T")
        held = {
            stream: [running.gauge("schedules_held", stream=stream, kind=kind) for kind in KINDS] for stream in "ST"
        }
        assert held == {"S": [1, 1, 1], "T": [0, 0, 0]}
        await running.shows("schedules_paused", 1, 1, stream="T")
        assert running.gauge("schedules_paused", stream="S") == 0
        assert running.gauge("stream_mode", stream="S", mode="emulated") == 1
        assert running.gauge("purges_pending", stream="S") == running.gauge("streams_unable") == 0
        assert CLOCK.now() / SECOND - 60 < (running.gauge("next_fire_timestamp_seconds", stream="S") or 0)
        assert running.gauge("next_fire_timestamp_seconds", stream="T") is None
        about = {"version": VERSION, "server_version": V2_11}
        [build] = [one for one in running.metrics.registry.collect() if one.name == "nats_scheduler_build_info"]
        assert about.items() <= build.samples[0].labels.items()
        assert running.metrics.registry.get_sample_value("process_resident_memory_bytes")
        await running.shows("schedules_overdue", 0, 0, stream="S")

        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await running.shows("schedules_overdue", 1, 1, stream="S")
            await running.shows("connected", 0, 0)
            await running.shows("oldest_overdue_age_seconds", 3, stream="S")
            assert [running.gauge("schedules_overdue", stream=stream) for stream in "ST"] == [1, 0]
            assert running.gauge("connected") == 0
            assert running.gauge("schedules_held", stream="S", kind="every") == 1
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await running.shows("schedules_overdue", 0, 0, stream="S")
        assert running.gauge("oldest_overdue_age_seconds", stream="S") == 0


async def test_refused_fires_are_overdue_until_the_server_takes_them(start_server: StartServer) -> None:
    """A repeating schedule is so since its first fire."""
    server = await start_server(V2_11)
    async with served_on(server.url, config={"max_msg_size": 200}) as served:  # enough for a schedule, not for its fire
        await served.schedule("every", "@every 1s")
        await served.schedule("at", f"@at {in_seconds(1)}")
        await served.sidecar.shows("oldest_overdue_age_seconds", 3, stream="S")
        await served.sidecar.shows("schedules_overdue", 2, 2, stream="S")
        assert served.sidecar.gauge("connected") == 1
        config = (await served.account.api.stream("S"))["config"]
        await served.call("STREAM.UPDATE", {**config, "max_msg_size": -1})
        await served.sidecar.shows("schedules_overdue", 0, 0, stream="S")


async def test_purges_that_are_denied_are_pending_until_they_are_allowed(start_server: StartServer) -> None:
    able = limited_to(V2_11, "S.>")
    server = await start_server(V2_11, config=accounts([without(able, "$JS.API.STREAM.PURGE.*")]))
    async with (
        account_on(url_of(server.url, "admin-0")) as account,
        sidecar_on(url_of(server.url, "sidecar-0")) as running,
    ):
        stream = FlaggedStream(account, "S")
        await account.create("S", storage="file", **FLAG)
        for number in range(20):
            await stream.schedule(f"s.{number}", f"@at {in_seconds(0.5)}")
        await running.shows("purges_pending", 20, 20, stream="S")
        await running.shows("streams_unable", 1, 1)
        assert running.gauge("schedules_overdue", stream="S") == 0
        reload_config(server, accounts([able]))
        await running.shows("purges_pending", 0, 0, stream="S")
        await running.shows("streams_unable", 0, 0)
