"""`nats-scheduler top` on a real terminal, beside real sidecars and servers: live, to the end, and in a pipe.

It tests `cli/top_asking.py` too.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

from nats_scheduler.cli.top_screen import ADVICE
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.cli.prompt import EACH_SECOND, WRONG, Prompt, at_a_terminal
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.servers import V2_11
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.deep]

NARROW = 40

SEQUENCE = re.compile(r"\x1b\[\??[0-9;]*([A-Za-z])")
"""A command to the terminal; one that moves the cursor (`H`) begins a line."""
ENTER, LEAVE, CLEAR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[2J"
USUAL = "\x1b[?7h\x1b[?25h"
"""Long lines are wrapped and the cursor is shown, as before."""


def written(terminal: Terminal) -> list[str]:
    """Return all lines that were written since the screen was cleared, without their colours."""
    since = terminal.text.rpartition(CLEAR)[2]
    lines = SEQUENCE.sub(lambda found: "\n" if found[1] == "H" else "", since).splitlines()
    return [one.rstrip() for one in lines]


async def until(terminal: Terminal, pattern: str) -> None:
    """Wait until a line of the screen matches."""
    await eventually(
        lambda: any(re.search(pattern, one) for one in written(terminal)),
        describe=lambda: f"{pattern} in {terminal.text[-3_000:]!r}",
    )


def top(server: EmbeddedServer, folder: Path, *words: str) -> AbstractAsyncContextManager[Terminal]:
    """Run `top` on a terminal."""
    return at_a_terminal("top", *words, "--server", server.url, folder=folder / "top")


@asynccontextmanager
async def firing(server: EmbeddedServer) -> AsyncIterator[Account]:
    """Have a sidecar in this process fire one schedule each second."""
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("ORDERS")
        await running.ready("ORDERS")
        await account.publish("ORDERS.s", EACH_SECOND)
        yield account


async def test_fires_and_failures_are_shown_as_they_come(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with firing(server) as account, top(server, tmp_path) as terminal:
        await until(terminal, r"^ALL IS WELL  1 sidecar alive$")
        await until(terminal, r"^ORDERS +emulated +1 +0 +0 +[1-9]\d* +[\d.]+ m?s +(now|in 1s)$")
        await until(terminal, r"^fires +[\d.]+/s, [1-9]\d* in 60 s +per minute .*[▂-█]$")
        await until(terminal, r"^lateness  p50 [\d.]+ m?s  p99 [\d.]+ m?s  max [\d.]+ m?s")
        await until(terminal, r"^(now|in 1s) +ORDERS +ORDERS\.s +@every 1s$")
        await until(terminal, r"^\d\d:\d\d:\d\d +[\d.]+ m?s +ORDERS +ORDERS\.s$")
        await account.publish("ORDERS.wrong", WRONG)
        await until(terminal, r"^\d\d:\d\d:\d\d +schedule_rejected +ORDERS +ORDERS\.wrong +")
        cleared = terminal.text.count(CLEAR)
        terminal.resize(NARROW, 10)
        await eventually(lambda: terminal.text.count(CLEAR) > cleared, describe="the screen is drawn anew")
        await until(terminal, "^ALL IS WELL  1 sidecar alive")
        assert max(map(cell_len, written(terminal))) <= NARROW


async def test_a_key_ends_it_and_the_terminal_is_as_before(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with top(server, tmp_path, "--interval", "1h") as terminal:
        before = terminal.modes()
        await until(terminal, r"^! Start `nats-scheduler run`, or see `nats-scheduler doctor`\.$")
        assert terminal.modes() != before
        os.kill(terminal.process.pid, signal.SIGTSTP)
        await terminal.wait_for(LEAVE)
        assert terminal.modes() == before
        os.kill(terminal.process.pid, signal.SIGCONT)
        await terminal.wait_for(LEAVE + ENTER)
        await until(terminal, "s order: trouble$")
        terminal.press("s")
        await until(terminal, "s order: name$")
        terminal.press("q")
        assert await terminal.end() == 0
        assert terminal.modes() == before
        await eventually(lambda: terminal.text.endswith(USUAL + LEAVE))
        assert terminal.text.startswith(ENTER)


async def test_once_prints_plain_text(prompt: Prompt) -> None:
    none = await prompt.says("top --once")
    assert none.exit_code == 1
    assert none.stdout.splitlines()[2] == f"! {ADVICE}"
    async with sidecar_on(prompt.url) as running:
        await prompt.create()
        await running.ready("ORDERS")
        await prompt.schedule("ORDERS.s", "@every 1s")

        async def shown() -> str | None:
            said = await prompt.says("top")  # a pipe gets one in any case
            has_fire = re.search(r"^\d\d:\d\d:\d\d +\S+ m?s  ORDERS  ORDERS\.s$", said.stdout, re.MULTILINE)
            return said.stdout if has_fire and said.exit_code == 0 else None

        text = await eventually(shown, describe="a fire is shown")
        assert re.search(r"^ORDERS +emulated +1 ", text, re.MULTILINE)
        assert "\x1b" not in text
