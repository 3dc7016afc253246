"""Tables on a terminal of 80 columns and of 120: no word is ever broken, and nothing is left out silently."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path

import pytest

from nats_scheduler.cli.output import fold
from nats_scheduler.observe.texts import span_text, time_text
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, SECOND
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import V2_11, V2_14

WIDTHS = (80, 120)
NEVER = "@at 2200-01-01T00:00:00Z"


async def on_a_terminal(columns: int, *arguments: str, home: Path) -> str:
    """Run one command on a terminal of `columns` columns, and return what it printed there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NATS", "COLUMNS", "LINES"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from nats_scheduler.cli.main import main; main()",
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=asyncio.subprocess.DEVNULL,
        env={**environ, "XDG_CONFIG_HOME": str(home), "TERM": "xterm"},
    )
    os.close(theirs)
    reading = asyncio.to_thread(_all_of, ours)
    text, _ = await asyncio.gather(reading, process.wait())
    return text


def _all_of(descriptor: int) -> str:
    """Read until the other end is closed."""
    read = b""
    try:
        while part := os.read(descriptor, 65_536):
            read += part
    except OSError:  # how a terminal reports its end
        pass
    os.close(descriptor)
    return read.decode().replace("\r\n", "\n")


def words(*texts: str) -> set[str]:
    return {word for text in texts for word in text.split()}


@pytest.mark.parametrize("columns", WIDTHS)
async def test_no_cell_of_a_list_is_broken_inside_a_word(
    start_server: StartServer, tmp_path: Path, columns: int
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("ORDERS", max_age=7 * DAY)
        await account.create("INVOICES")
        await running.ready("ORDERS")
        await running.ready("INVOICES")
        out = {"Nats-Schedule-Target": "ORDERS.reminders.payment.due"}
        zone = {"Nats-Schedule-Time-Zone": "America/Argentina/Buenos_Aires"}
        await account.publish("ORDERS.schedules.a7f3b2c1-55d0-4c0e-9a55", {"Nats-Schedule": NEVER, **out})
        await account.publish("ORDERS.weekly", {"Nats-Schedule": "0 30 9 * * mon-fri", **out, **zone})
        await account.publish("ORDERS.wrong", {"Nats-Schedule": "*/5 * * * *", **out})
        await account.publish("ORDERS.near", {"Nats-Schedul": "@daily", **out})
        address = ("--server", server.url)
        for command, expected in {
            ("ls", "ORDERS"): words(
                "ORDERS.schedules.a7f3b2c1-55d0-4c0e-9a55 ORDERS.weekly next fire (UTC) in expiring mon-fri",
                "ends before their next fire: max_age because of 10189 crontab; beginning what is wrong",
                "Nats-Schedul header 2 schedules; 1 of them invalid; 1 with misnamed headers",
            ),
            ("ls", "--invalid"): words("ORDERS.wrong 10189 what is wrong crontab; seconds: Nats-Schedule may be meant"),
            ("stream", "ls"): words("ORDERS INVOICES emulated sidecars who fires X-Nats-Schedule 2 in all:"),
            ("instances",): words("instance state heartbeat stream shards alive 64 of 64 1 in all:"),
            ("settings", "show"): words("connection.request_timeout default setting value source in all:"),
            ("next", "0 30 9 * * mon-fri", "--tz", "America/Argentina/Buenos_Aires"): words("UTC in 5 fires,"),
        }.items():
            where = () if command[0] in ("settings", "next") else address
            shown = await on_a_terminal(columns, *command, *where, home=tmp_path)
            assert expected - words(shown) == set(), (command, shown)
            assert max(map(len, shown.splitlines())) <= columns, shown
        wide = await on_a_terminal(columns, "ls", "ORDERS", "--wide", *address, home=tmp_path)
        assert words("sequence stored dialect mode rollup ends (UTC)") - words(wide) == {"rollup"}


@pytest.mark.parametrize("columns", WIDTHS)
async def test_what_graduate_finds_is_not_broken_inside_a_word(
    start_server: StartServer, tmp_path: Path, columns: int
) -> None:
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        marked = {"nats-scheduler.allow_msg_schedules": "true"}
        await account.create("ORDERS", allow_msg_schedules=False, metadata=marked)
        headers = {"X-Nats-Schedule": NEVER, "X-Nats-Schedule-Target": "ORDERS.out"}
        await account.publish("ORDERS.schedules.a7f3b2c1-55d0-4c0e-9a55-1f6a8a1e", headers)
    command = ("graduate", "ORDERS", "--dry-run", "--server", server.url)
    shown = await on_a_terminal(columns, *command, home=tmp_path)
    assert words("stream ORDERS the server would hold schedules") - words(shown) == set(), shown
    assert max(map(len, shown.splitlines())) <= columns, shown


async def test_a_table_that_fits_in_no_way_becomes_lines(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        marked = {"nats-scheduler.allow_msg_schedules": "true"}
        await account.create("ORDERS", allow_msg_schedules=False, metadata=marked)
        subject = "ORDERS." + "x" * 60
        await account.publish(subject, {"Nats-Schedule": NEVER, "Nats-Schedule-Target": "ORDERS.out"})
    shown = await on_a_terminal(80, "ls", "ORDERS", "--server", server.url, home=tmp_path)
    assert f"subject          {subject}\n" in shown
    assert "next fire (UTC)  2200-01-01T00:00:00Z\n" in shown


def test_text_is_folded_at_blanks_only() -> None:
    assert fold("the quick brown-fox jumps", 10) == ["the quick", "brown-fox", "jumps"]
    assert fold("extraordinarily long", 5) == ["extraordinarily", "long"]
    assert fold("日本 日本", 4) == ["日本", "日本"]
    assert fold("", 5) == [""]


def test_times_are_as_short_as_they_are_worth_reading() -> None:
    assert time_text(SECOND) == "1970-01-01T00:00:01Z"
    assert time_text(SECOND + 250 * MILLISECOND + 7) == "1970-01-01T00:00:01.25Z"
    assert time_text(SECOND + 7) == "1970-01-01T00:00:01Z"
    assert [span_text(span) for span in (90 * SECOND, 47 * HOUR, 49 * HOUR, 800 * DAY)] == [
        "1m30s",
        "47h0m0s",
        "2d1h",
        "2y70d",
    ]
