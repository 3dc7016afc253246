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

from nats_scheduler.cli.top_screen import ADVICE
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.cli.prompt import EACH_SECOND, WRONG, Prompt, at_a_terminal
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.permissions import Permission, shared_account, url_of
from tests.harness.processes import sidecar
from tests.harness.screen import Screen
from tests.harness.servers import V2_11
from tests.harness.terminal import COLUMNS, ROWS, Terminal
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.deep]

TO_ASK = [
    Permission("publish", "nats_scheduler.v1.>", ()),
    Permission("subscribe", "_INBOX.>", ()),
]
ADVISORIES = Permission("subscribe", "nats_scheduler.advisory.>", ())
UNFINISHED = re.compile(r"\x1b[^A-Za-z]*$")
ENTER, LEAVE, CLEAR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[2J"


def seen(terminal: Terminal, columns: int = COLUMNS, rows: int = ROWS) -> list[str]:
    """Return what is on the screen: all that was written since it was cleared, but for a command that is not whole."""
    screen = Screen(columns, rows)
    screen.write(UNFINISHED.sub("", terminal.text[terminal.text.rindex(CLEAR) :]))
    return screen.lines()


async def until(terminal: Terminal, pattern: str, columns: int = COLUMNS, rows: int = ROWS) -> str:
    """Wait until a line of the screen matches, and return it."""

    def line() -> str | None:
        if CLEAR not in terminal.text:
            return None
        return next((one for one in seen(terminal, columns, rows) if re.search(pattern, one)), None)

    return await eventually(line, describe=lambda: f"{pattern} in {terminal.text[-3_000:]!r}")


async def until_drawn(terminal: Terminal, columns: int, rows: int) -> None:
    """Wait until the screen is drawn for a size: its last line has the keys."""

    def last_line() -> bool:
        return seen(terminal, columns, rows)[-1:] == ["q quit   s order: trouble"]

    await eventually(last_line, describe=f"a screen of {columns} x {rows}")


def top(server: EmbeddedServer, folder: Path, *words: str, url: str = "") -> AbstractAsyncContextManager[Terminal]:
    """Run `top` on a terminal."""
    return at_a_terminal("top", *words, "--server", url or server.url, folder=folder / "top")


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
        for columns, rows in ((40, 10), (200, 60), (80, 24)):
            terminal.resize(columns, rows)
            await until_drawn(terminal, columns, rows)
            await until(terminal, "^ALL IS WELL  1 sidecar alive", columns, rows)
            await until(terminal, r"^ORDERS .*(now|in 1s)( +[0-9a-f]{12})?( +\d+)?$", columns, rows)


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
async def test_a_key_ends_it_and_the_terminal_is_as_before(start_server: StartServer, tmp_path: Path, key: str) -> None:
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
        for keys in ("s", "sssss"):  # the order changes at once, and there are five of them
            terminal.press(keys)
            await until(terminal, "s order: name$")
        terminal.press(f"\x1b[1;5Q\x1bOQ{key}")  # function keys are not letters
        assert await terminal.end() == 0
        assert terminal.modes() == before
        await eventually(lambda: terminal.text.endswith(LEAVE))
        assert terminal.text.startswith(ENTER)
        screen = Screen(COLUMNS, ROWS)
        screen.write(terminal.text)
        assert screen.modes == {"1049": False, "25": True, "7": True}


async def test_a_lost_connection_and_ended_sidecars_are_shown(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with top(server, tmp_path) as terminal:
        await until(terminal, "^NOT WORKING  No sidecar answers")
        await server.kill()
        await until(terminal, "^NOT WORKING .*The connection to NATS is lost: ")
        await server.restart()
        await until(terminal, "^NOT WORKING  No sidecar answers")
        async with account_on(server.url) as account:
            with sidecar("run", "--server", server.url, folder=tmp_path / "first") as running:
                await until(terminal, "^ALL IS WELL  1 sidecar alive$")
                await account.create("ORDERS")
                await account.publish("ORDERS.s", EACH_SECOND)
                await until(terminal, r"^\d\d:\d\d:\d\d .* ORDERS\.s$")
                running.kill()
                await until(terminal, "^NOT WORKING  No sidecar answers")
            with sidecar("run", "--server", server.url, folder=tmp_path / "second"):
                await until(terminal, r"^(ALL IS WELL|NEEDS ATTENTION)  1 (of 2 sidecars|sidecar) alive")
                await until(terminal, r"^\d\d:\d\d:\d\d .* ORDERS\.s$")
        terminal.press("q")
        assert await terminal.end() == 0
        assert "Traceback" not in terminal.text


async def test_few_permissions_are_enough(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11, config=shared_account([[*TO_ASK, ADVISORIES], TO_ASK, [TO_ASK[1]]]))
    admin = url_of(server.url, "admin-0")
    async with account_on(admin) as account, sidecar_on(admin) as running:
        await account.create("ORDERS")
        await running.ready("ORDERS")
        async with top(server, tmp_path / "0", url=url_of(server.url, "sidecar-0")) as terminal:
            await until(terminal, "^ALL IS WELL  1 sidecar alive$")
            await account.publish("ORDERS.wrong", WRONG)
            await until(terminal, r"schedule_rejected +ORDERS +ORDERS\.wrong")
            assert "may not" not in "\n".join(seen(terminal))
        async with top(server, tmp_path / "1", url=url_of(server.url, "sidecar-1")) as terminal:
            await until(terminal, r"^! this user may not subscribe to nats_scheduler\.advisory\.>")
            await until(terminal, r"schedule_rejected +ORDERS +ORDERS\.wrong")
        async with top(server, tmp_path / "2", url=url_of(server.url, "sidecar-2")) as terminal:
            await until(terminal, "^NOT WORKING  No sidecar answers: this user may not publish to nats_sched")


# -- pipes -------------------------------------------------------------------------------------------------------


async def test_once_prints_plain_text(prompt: Prompt) -> None:
    none = await prompt.says("top --once")
    assert none.exit_code == 1
    status, advice = none.stdout.splitlines()[1:3]
    assert status.startswith("NOT WORKING  No sidecar answers: ")
    assert advice == f"! {ADVICE}"
    async with sidecar_on(prompt.url) as running:
        await prompt.create()
        await running.ready("ORDERS")
        await prompt.schedule("ORDERS.s", "@every 1s")
        await prompt.account.wait_for("ORDERS", "ORDERS.out")
        for words in ("top", "top ORDERS --once"):  # a pipe gets one in any case
            shown = await prompt.shows(words)
            lines = shown.splitlines()
            assert lines[0].startswith(f"nats-scheduler top  {prompt.url} (")
            assert lines[1] == "ALL IS WELL  1 sidecar alive"
            assert any(re.match(r"ORDERS +emulated +1 +0 +0 ", line) for line in lines)
            assert any(re.match(r"\d\d:\d\d:\d\d +\S+ m?s  ORDERS  ORDERS\.s$", line) for line in lines)
            assert "\x1b" not in shown
        lines = (await prompt.shows("top NONE --once")).splitlines()
        assert lines[1] == "NOT WORKING  1 sidecar alive: Stream NONE is not served."
