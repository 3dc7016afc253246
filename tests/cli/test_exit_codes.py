"""Each exit code that the reference promises of a command, by a run that ends with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from nats_scheduler.cli.main import COMMANDS, main
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.cli.command_reference import promised_exit_codes
from tests.cli.test_dev import servers_on
from tests.conftest import SharedServer, StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, account_on, in_seconds
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11, V2_14, server_binary
from tests.harness.waiting import eventually

pytestmark = pytest.mark.deep

NOWHERE = ("--server", "nats://127.0.0.1:1")
RANGE = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z")
FIRES, FIRES_APART_SECONDS = 100, 0.02
STREAM_FILE = '{"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "allow_msg_schedules": true}'
FILES: Mapping[str, str] = {
    "orders.json": STREAM_FILE,
    "none.json": '{"stream": "ORDERS", "schedules": []}',
    "schedules.json": '{"stream": "ORDERS",'
    ' "schedules": [{"subject": "ORDERS.a", "every": "1h", "target": "ORDERS.b"}]}',
}
WITHOUT_A_SERVER: Mapping[tuple[str, int], tuple[str, ...]] = {
    ("run", 2): ("run", "--window", "0"),
    ("dev", 2): ("dev", "--server-path", "/nonexistent"),
    ("stream add", 1): ("stream", "add", "orders.json", *NOWHERE),
    ("stream add", 2): ("stream", "add", "missing.json", *NOWHERE),
    ("stream ls", 1): ("stream", "ls", *NOWHERE),
    ("stream ls", 2): ("stream", "ls", "--window", "0"),
    ("export", 1): ("export", "ORDERS", *NOWHERE),
    ("export", 2): ("export", "a.b"),
    ("diff", 2): ("diff", "missing.yaml"),
    ("apply", 1): ("apply", "schedules.json", "--yes", *NOWHERE),
    ("apply", 2): ("apply", "schedules.json"),
    ("files", 0): ("files", "schema"),
    ("files", 2): ("files", "schema", "--window", "0"),
    ("calendar", 1): ("calendar", "show", "work", *NOWHERE),
    ("calendar", 2): ("calendar", "set", "work", "tomorrow", *NOWHERE),
    ("calendar ls", 1): ("calendar", "ls", *NOWHERE),
    ("calendar ls", 2): ("calendar", "ls", "--window", "0"),
    ("graduate", 1): ("graduate", "ORDERS", *NOWHERE),
    ("graduate", 2): ("graduate",),
    ("ls", 1): ("ls", *NOWHERE),
    ("ls", 2): ("ls", "--count", "0"),
    ("doctor", 1): ("doctor", *NOWHERE),
    ("doctor", 2): ("doctor", "a.b"),
    ("info", 1): ("info", "ORDERS", "orders.daily", *NOWHERE),
    ("info", 2): ("info", "ORDERS", "orders.*", *NOWHERE),
    ("add", 1): ("add", "S", "S.s", "--every", "5m", "--target", "S.out", *NOWHERE),
    ("add", 2): ("add", "S", "S.s", "--every", "5m", *NOWHERE),
    ("edit", 1): ("edit", "S", "S.s", "--every", "5m", *NOWHERE),
    ("edit", 2): ("edit", "S", "S.s", *NOWHERE),
    ("pause", 1): ("pause", "S", "S.s", *NOWHERE),
    ("pause", 2): ("pause", "S", "S.>", *NOWHERE),
    ("resume", 1): ("resume", "S", "S.s", *NOWHERE),
    ("resume", 2): ("resume", "S", *NOWHERE),
    ("rm", 1): ("rm", "S", "S.s", *NOWHERE),
    ("rm", 2): ("rm", "S", "S..s", *NOWHERE),
    ("fire", 1): ("fire", "S", "S.s", *NOWHERE),
    ("fire", 2): ("fire", "S", "S.*", *NOWHERE),
    ("backfill", 1): ("backfill", "S", "S.s", *RANGE, *NOWHERE),
    ("backfill", 2): ("backfill", "S", "S.s", *NOWHERE),
    ("changes", 1): ("changes", *NOWHERE),
    ("changes", 2): ("changes", "S.S", *NOWHERE),
    ("watch", 1): ("watch", *NOWHERE),
    ("watch", 2): ("watch", "--filter", "a..b", *NOWHERE),
    ("top", 1): ("top", *NOWHERE),
    ("top", 2): ("top", "--interval", "soon", *NOWHERE),
    ("failures", 1): ("failures", *NOWHERE),
    ("failures", 2): ("failures", "S.S", *NOWHERE),
    ("history", 1): ("history", "S", "S.s", *NOWHERE),
    ("history", 2): ("history", "S", "S.*", *NOWHERE),
    ("instances", 1): ("instances", *NOWHERE),
    ("instances", 2): ("instances", "--creds", "/nonexistent", *NOWHERE),
    ("web", 2): ("web", "--web-address", "::"),
    ("next", 0): ("next", "@daily"),
    ("next", 1): ("next", "@often"),
    ("next", 2): ("next", "@daily", "--count", "0"),
    ("explain", 0): ("explain", "@daily"),
    ("explain", 1): ("explain", "@often"),
    ("explain", 2): ("explain", "@daily", "--count", "0"),
    ("check", 0): ("check", "@daily"),
    ("check", 1): ("check", "-H", "Some: header"),
    ("check", 2): ("check",),
    ("settings", 0): ("settings", "show"),
    ("settings", 2): ("settings", "show", "--window", "0"),
    ("completion", 0): ("completion", "bash"),
    ("completion", 2): ("completion", "tcsh"),
    ("service", 0): ("service", "schema"),
    ("service", 2): ("service", "schema", "--window", "0"),
    ("advisories", 0): ("advisories", "schema"),
    ("advisories", 2): ("advisories", "schema", "--window", "0"),
}
ON_A_SERVER: Mapping[tuple[str, int], tuple[str, ...]] = {
    ("stream add", 0): ("stream", "add", "orders.json"),
    ("stream ls", 0): ("stream", "ls"),
    ("calendar", 0): ("calendar", "set", "work", "2026-12-25"),
    ("calendar ls", 0): ("calendar", "ls"),
    ("ls", 0): ("ls",),
    ("instances", 0): ("instances",),
}


Story = Callable[[Path, StartServer], Awaitable[int]]


async def run_ends_clean(folder: Path, start_server: StartServer) -> int:
    server = await start_server(V2_11)
    with sidecar("run", "--server", server.url, folder=folder) as process:
        await process.wait_for_line("instances_alive")
        return await process.terminate()


async def run_leaves_a_fire_in_flight(folder: Path, start_server: StartServer) -> int:
    """The server is paused while fires come due, and the sidecar gets SIGTERM before it gives up the connection."""
    server = await start_server(V2_11)
    assert server.pid is not None
    with sidecar("run", "--server", server.url, "--drain-timeout", "100ms", folder=folder) as process:
        await process.wait_for_line("instances_alive")
        async with account_on(server.url) as account:
            await account.create("S")
            await process.wait_for_line("shards_changed")
            for number in range(FIRES):
                at = in_seconds(1.5 + number * FIRES_APART_SECONDS)
                await account.publish(f"S.s.{number}", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "S.out"})
            await account.wait_for("S", "S.out")
            os.kill(server.pid, signal.SIGSTOP)
            stopped_at = CLOCK.now()
            try:
                await eventually(lambda: CLOCK.now() > stopped_at + SECOND // 2, within_seconds=WAIT_SECONDS)
                return await process.terminate()
            finally:
                os.kill(server.pid, signal.SIGCONT)


async def dev_ends_by_itself(folder: Path, _start_server: StartServer) -> int:
    with sidecar("dev", "--server-path", str(server_binary(V2_11)), "--for", "1s", folder=folder) as process:
        return await process.wait_for_exit()


async def dev_loses_its_server(folder: Path, _start_server: StartServer) -> int:
    flags = ("--server-path", str(server_binary(V2_11)), "--data", str(folder / "data"))
    with sidecar("dev", *flags, folder=folder) as process:
        await process.wait_for_line("nats://")
        pids = await eventually(lambda: list(servers_on(folder / "data")), within_seconds=WAIT_SECONDS)
        os.kill(pids[0], signal.SIGKILL)
        return await process.wait_for_exit()


def with_a_schedule(*words: str, is_paused: bool = False) -> Story:
    """Return the story of a command about the schedule ORDERS.s, which is stored."""

    async def story(folder: Path, start_server: StartServer) -> int:
        server = await start_server(V2_11)
        async with account_on(server.url) as account:
            await account.create("ORDERS", metadata={"nats-scheduler.allow_msg_schedules": "true"})
            name = "Nats-Schedule-X-Paused" if is_paused else "Nats-Schedule"
            await account.publish("ORDERS.s", {name: "@daily", "Nats-Schedule-Target": "ORDERS.out"})
        with sidecar(words[0], "ORDERS", "ORDERS.s", *words[1:], "--server", server.url, folder=folder) as process:
            return await process.wait_for_exit()

    return story


async def watch_is_interrupted(folder: Path, start_server: StartServer) -> int:
    server = await start_server(V2_11)
    with sidecar("watch", "--server", server.url, folder=folder) as process:
        await process.wait_for_line("no stream carries schedules yet")
        return await process.interrupt()


async def graduate_finds_it_native(folder: Path, start_server: StartServer) -> int:
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        await account.create("ORDERS")
    with sidecar("graduate", "ORDERS", "--server", server.url, folder=folder) as process:
        return await process.wait_for_exit()


async def doctor_ends(folder: Path, server: EmbeddedServer) -> int:
    with sidecar("doctor", "--server", server.url, folder=folder) as process:
        return await process.wait_for_exit()


async def doctor_finds_nothing(folder: Path, start_server: StartServer) -> int:
    return await doctor_ends(folder, await start_server(V2_11))


async def doctor_finds_a_warning(folder: Path, start_server: StartServer) -> int:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("ORDERS", allow_msg_schedules=False)
        await account.publish("ORDERS.s", {"Nats-Schedule": "@hourly", "Nats-Schedule-Target": "ORDERS.out"})
    return await doctor_ends(folder, server)


async def history_of_a_schedule_that_never_fired(folder: Path, start_server: StartServer) -> int:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("ORDERS")
    with sidecar("history", "ORDERS", "ORDERS.s", "--server", server.url, folder=folder) as process:
        return await process.wait_for_exit()


async def top_is_interrupted(folder: Path, start_server: StartServer) -> int:
    server = await start_server(V2_11)
    with sidecar("top", "--json", "--server", server.url, folder=folder) as process:
        await process.wait_for_line('"answered": false')
        return await process.interrupt()


def when_nothing_is_kept(command: str) -> Story:
    """Return the story of a command about advisories, of which there are none."""

    async def story(folder: Path, start_server: StartServer) -> int:
        return await nothing_is_kept(command, folder, start_server)

    return story


async def nothing_is_kept(command: str, folder: Path, start_server: StartServer) -> int:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create(
            "nats_scheduler_failures", subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None
        )
    with sidecar(command, "--server", server.url, folder=folder) as process:
        return await process.wait_for_exit()


async def web_is_interrupted(folder: Path, _start_server: StartServer) -> int:
    with sidecar("web", "--web-port", "0", *NOWHERE, folder=folder) as process:
        await process.wait_for_line("connect_failed")
        return await process.interrupt()


async def on_a_stream(folder: Path, start_server: StartServer, *arguments: str) -> int:
    """Run a command about schedules on a stream with one of them."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("ORDERS", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        await account.publish("ORDERS.s", {"Nats-Schedule": "@daily", "Nats-Schedule-Target": "ORDERS.out"})
    return await ends_with(folder, *arguments, "--server", server.url)


async def export_ends(folder: Path, start_server: StartServer) -> int:
    return await on_a_stream(folder, start_server, "export", "ORDERS")


async def apply_adds_a_schedule(folder: Path, start_server: StartServer) -> int:
    return await on_a_stream(folder, start_server, "apply", "schedules.json", "--yes")


async def diff_finds_nothing(folder: Path, start_server: StartServer) -> int:
    return await on_a_stream(folder, start_server, "diff", "none.json")


async def diff_finds_a_difference(folder: Path, start_server: StartServer) -> int:
    return await on_a_stream(folder, start_server, "diff", "schedules.json")


STORIES: Mapping[tuple[str, int], Story] = {
    ("run", 0): run_ends_clean,
    ("run", 1): run_leaves_a_fire_in_flight,
    ("dev", 0): dev_ends_by_itself,
    ("dev", 1): dev_loses_its_server,
    ("graduate", 0): graduate_finds_it_native,
    ("export", 0): export_ends,
    ("diff", 0): diff_finds_nothing,
    ("diff", 1): diff_finds_a_difference,
    ("apply", 0): apply_adds_a_schedule,
    ("doctor", 0): doctor_finds_nothing,
    ("doctor", 3): doctor_finds_a_warning,
    ("info", 0): with_a_schedule("info"),
    ("add", 0): with_a_schedule("add", "--every", "5m", "--target", "ORDERS.out", "--replace"),
    ("edit", 0): with_a_schedule("edit", "--every", "5m"),
    ("pause", 0): with_a_schedule("pause"),
    ("resume", 0): with_a_schedule("resume", is_paused=True),
    ("rm", 0): with_a_schedule("rm"),
    ("fire", 0): with_a_schedule("fire"),
    ("backfill", 0): with_a_schedule("backfill", *RANGE),
    ("changes", 0): when_nothing_is_kept("changes"),
    ("watch", 0): watch_is_interrupted,
    ("top", 0): top_is_interrupted,
    ("web", 0): web_is_interrupted,
    ("failures", 0): when_nothing_is_kept("failures"),
    ("history", 0): history_of_a_schedule_that_never_fired,
}


def name_of(case: Any) -> str:
    return "-".join(map(str, case)).replace(" ", "-") if isinstance(case, tuple) else ""


def test_every_exit_code_that_the_reference_promises_is_shown_here_and_no_other() -> None:
    shown = [*WITHOUT_A_SERVER, *ON_A_SERVER, *STORIES]
    assert sorted(shown) == sorted(promised_exit_codes())


def test_the_reference_promises_exit_codes_of_every_command() -> None:
    promised = {command.split()[0] for command, _code in promised_exit_codes()}
    assert promised == set(COMMANDS)
    group = main.get_command(click.Context(main), "stream")
    assert isinstance(group, click.Group)
    assert {f"stream {name}" for name in group.commands} <= {command for command, _code in promised_exit_codes()}


async def ends_with(folder: Path, *arguments: str) -> int:
    """Run a command in a process of its own, with files in its folder, and return its exit code."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    words = [str(folder / word) if word in FILES else word for word in arguments]
    with sidecar(*words, folder=folder) as process:
        return await process.wait_for_exit()


@pytest.mark.server
@pytest.mark.parametrize("case", WITHOUT_A_SERVER, ids=name_of)
async def test_a_command_ends_with_the_code_that_is_promised(tmp_path: Path, case: tuple[str, int]) -> None:
    assert await ends_with(tmp_path, *WITHOUT_A_SERVER[case]) == case[1]


@pytest.mark.parametrize("case", ON_A_SERVER, ids=name_of)
async def test_a_command_on_a_server_ends_with_the_code_that_is_promised(
    tmp_path: Path, shared_server: SharedServer, case: tuple[str, int]
) -> None:
    server: EmbeddedServer = await shared_server(V2_11)
    assert await ends_with(tmp_path, *ON_A_SERVER[case], "--server", server.url) == case[1]


@pytest.mark.parametrize("case", STORIES, ids=name_of)
async def test_a_process_ends_with_the_code_that_is_promised(
    tmp_path: Path, start_server: StartServer, case: tuple[str, int]
) -> None:
    assert await STORIES[case](tmp_path, start_server) == case[1]
