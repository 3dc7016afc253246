"""`nats-scheduler dev` as a new user runs it: real processes, the real server, the real nats CLI.

What the server's process does without the command is in `runtime/test_embedded.py`.
It tests `cli/demo.py` too.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nats_scheduler.cli.fire_watch import fire_line
from nats_scheduler.message.fires import ScheduleKind, StoredFire
from nats_scheduler.schedule.instants import MILLISECOND
from tests.harness.nats_cli import NatsCli
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_10, V2_11, V2_12, server_binary

pytestmark = pytest.mark.server

FIRE = r"^\d{{4}}-\d\d-\d\dT[\d:.]+Z +-?\d+\.\d ms  {kind} +demo\.schedules\.{kind} -> demo\.\w+$"
KINDS = ("delayed", "interval", "cron", "sampling")


def url_of(dev: ChildProcess) -> str:
    """Return the URL that the command printed."""
    found = re.search(r"nats://\S+:\d+", dev.stdout)
    assert found, dev.stdout
    return found[0]


def is_listening(url: str) -> bool:
    """Return whether a process accepts connections there."""
    host, _, port = url.removeprefix("nats://").rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0


def servers_on(folder: Path) -> Iterator[int]:
    """Yield the nats-servers that have their store in a folder, if the system shows processes."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if {b"-sd", str(folder).encode()} <= set(arguments):
            yield int(process.name)


async def all_kinds(dev: ChildProcess) -> None:
    """Wait until a fire of each kind was printed."""
    await asyncio.gather(*(dev.wait_for_line(FIRE.format(kind=kind)) for kind in KINDS))


async def test_the_demo_shows_all_four_kinds_and_a_summary(tmp_path: Path) -> None:
    server_binary(V2_11)
    with sidecar("dev", "--demo", "--for", "10s", folder=tmp_path) as dev:
        await all_kinds(dev)
        assert await dev.wait_for_exit() == 0
    assert re.search(r"^ran for \d+\.\d s on nats-server 2\.11\.", dev.stdout, re.M)
    assert re.search(r"^fires     \d+: 1 delayed, \d+ interval, \d+ cron, \d+ sampling$", dev.stdout, re.M)
    assert re.search(r"^lateness  p50 [\d.]+ ms, p99 [\d.]+ ms, max [\d.]+ ms$", dev.stdout, re.M)
    assert re.search(r"^rejected  0\nmissed    0$", dev.stdout, re.M)
    assert "\x1b" not in dev.stdout, "no colours in a pipe"
    assert dev.stderr == ""


async def test_ctrl_c_ends_everything_that_was_started(tmp_path: Path) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    with sidecar("dev", "--demo", folder=tmp_path, env={"TMPDIR": str(temporary)}) as dev:
        await dev.wait_for_line(r" interval +demo\.")
        url, folder = url_of(dev), next(temporary.iterdir())
        assert is_listening(url)
        assert await dev.interrupt() == 0
    assert "ran for" in dev.stdout
    assert not is_listening(url)
    assert list(servers_on(folder)) == []
    assert list(temporary.iterdir()) == []


async def test_kept_data_goes_on_with_the_next_start_and_no_two_share_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sidecar("dev", "--demo", "--data", str(data), folder=tmp_path, name="first") as first:
        await first.wait_for_line(r" interval +demo\.")
        with sidecar("dev", "--data", str(data), folder=tmp_path, name="other") as other:
            assert await other.wait_for_exit() == 2
        assert "in use by another process" in other.stderr
        assert await first.terminate() == 0
    with sidecar("dev", "--data", str(data), folder=tmp_path, name="second") as second:
        await second.wait_for_line(r"^stream DEMO is emulated")
        await second.wait_for_line(r" interval +demo\.")
        await second.wait_for_line(r" cron +demo\.")
        assert await second.terminate() == 0
    assert (data / "jetstream").is_dir()
    assert "The demo published" not in second.stdout


async def test_the_printed_nats_lines_work_as_pasted(tmp_path: Path, nats_cli: NatsCli) -> None:
    async def paste(version: str) -> None:
        folder = tmp_path / f"a folder for {version}"
        flags = ("--data", str(folder / "data"), "--version", str(server_binary(version)))
        with sidecar("dev", *flags, folder=folder) as dev:
            await dev.wait_for_line("Ctrl-C ends this")
            lines = [shlex.split(line)[1:] for line in dev.stdout.splitlines() if line.startswith("nats -s")]
            add, sub, *pubs, purge = lines
            await nats_cli.run(*add)
            with nats_cli.start(*sub, name=f"sub-{version}") as subscriber:
                await subscriber.wait_for_line("Subscribing")
                for pub in pubs:
                    assert "Stored in Stream: ORDERS" in await nats_cli.run(*pub)
                await subscriber.wait_for_line("every five seconds")
            await dev.wait_for_line(r" interval +orders\.schedules\.interval -> orders\.due")
            await nats_cli.run(*purge)
            kept = await nats_cli.run("-s", url_of(dev), "stream", "subjects", "ORDERS", "--names")
            assert {"orders.schedules.once", "orders.schedules.cron"} <= set(kept.split())
            assert "orders.schedules.interval" not in kept
            assert await dev.terminate() == 0
        assert dev.stderr == ""

    await asyncio.gather(*map(paste, (V2_10, V2_12)))


@pytest.mark.skipif(sys.platform != "linux", reason="the server's process is found in /proc")
async def test_a_server_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sidecar("dev", "--data", str(data), folder=tmp_path) as dev:
        await dev.wait_for_line("Ctrl-C ends this")
        for server in servers_on(data):
            os.kill(server, 9)
        assert await dev.wait_for_exit() == 1
    assert "nats-scheduler: error: nats-server ended by itself:" in dev.stderr


def test_the_line_of_a_fire_cannot_command_the_terminal() -> None:
    hostile = StoredFire("S", "s.\x1b[2J", "s.b", ScheduleKind.CRON, 0, MILLISECOND, 0)
    assert r"s.\x1b[2J -> s.b" in fire_line(hostile, overdue=False)
