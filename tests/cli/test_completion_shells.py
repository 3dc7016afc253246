"""Real zsh and fish load the script without an error, and complete commands and names of streams at a prompt."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.conftest import SharedServer
from tests.harness.account import WAIT_SECONDS, account_on
from tests.harness.processes import clean_environment, sidecar_command
from tests.harness.servers import V2_11
from tests.harness.terminal import TERMINAL_SECONDS, Terminal, start_on_terminal
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.deep]

ZSH, FISH = shutil.which("zsh"), shutil.which("fish")
needs_zsh = pytest.mark.skipif(ZSH is None, reason="there is no zsh on this machine")
needs_fish = pytest.mark.skipif(FISH is None, reason="there is no fish on this machine")

ZSHRC = """
PS1='' RPS1=''
autoload -Uz compinit && compinit -u -D
eval "$(nats-scheduler completion zsh)"
show() { print -r -- "<<$BUFFER>>" }
zle -N show
bindkey '^X' show
print "<<loaded: $?>>"
"""
SHOW, ERASE = "\x18", "\x15"
"""The keys that show what the line holds, and erase it."""
SHOWN = re.compile(r"<<(.*?)>>")

STREAMS = ("SHELL_ALPHA", "SHELL_B,C", "OTHER_SHELL")

Complete = Callable[[str], Awaitable[list[str]]]
"""Returns what the line is completed to, or what is offered for it."""


def path_with_the_program() -> dict[str, str]:
    return {"PATH": f"{Path(sidecar_command()[0]).parent}:{os.environ['PATH']}"}


@asynccontextmanager
async def zsh(folder: Path) -> AsyncIterator[Complete]:
    """Run zsh at a terminal; what is completed is the line after the key was pressed."""
    assert ZSH is not None
    (folder / ".zshrc").write_text(ZSHRC)
    env = {**path_with_the_program(), "ZDOTDIR": str(folder)}
    terminal = await start_on_terminal([ZSH, "-d", "-i"], folder=folder, env=env)
    try:
        await terminal.wait_for(">>")
        assert terminal.text.startswith("<<loaded: 0>>"), terminal.text
        yield lambda line: typed(terminal, line)
    finally:
        await terminal.close()


async def typed(terminal: Terminal, line: str) -> list[str]:
    """Type a line and the key that completes it, and return what it is then."""
    before = len(SHOWN.findall(terminal.text))
    terminal.press(f"{ERASE}{line}\t{SHOW}")
    await eventually(
        lambda: len(SHOWN.findall(terminal.text)) > before,
        within_seconds=TERMINAL_SECONDS,
        describe=lambda: f"the line is shown in {terminal.text!r}",
    )
    return [SHOWN.findall(terminal.text)[-1].strip()]


@asynccontextmanager
async def fish(folder: Path) -> AsyncIterator[Complete]:
    """Let fish complete lines, by its own command for that; the rest of the line is before each of them."""
    assert FISH is not None
    source = "nats-scheduler completion fish | source"
    assert await said_by(FISH, folder, source) == ""

    async def complete(line: str) -> list[str]:
        offered = await said_by(str(FISH), folder, f"{source}; complete -C '{line}'")
        before = line[: line.rfind(" ") + 1]
        return [f"{before}{one.partition(chr(9))[0]}" for one in offered.splitlines()]

    yield complete


async def said_by(shell: str, folder: Path, program: str) -> str:
    """Run a program in a shell, and return what it prints; on standard error it has to print nothing."""
    process = await asyncio.create_subprocess_exec(
        *(shell, "--no-config", "-c", program),
        env={**clean_environment(folder), **path_with_the_program()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert errors.decode() == ""
    return said.decode()


@pytest.mark.parametrize("shell", [pytest.param(zsh, marks=needs_zsh), pytest.param(fish, marks=needs_fish)])
async def test_it_completes_commands_and_names_of_streams(
    shared_server: SharedServer, tmp_path: Path, shell: Callable[[Path], AbstractAsyncContextManager[Complete]]
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account, shell(tmp_path) as complete:
        for name in STREAMS:
            await account.create(name)
        assert await complete("nats-scheduler l") == ["nats-scheduler ls"]
        assert await complete("nats-scheduler stream a") == ["nats-scheduler stream add"]
        ask = f"nats-scheduler ls -s {server.url}"
        for typed_so_far, name in (("SHELL_A", "SHELL_ALPHA"), ("SHELL_B", "SHELL_B,C")):

            async def is_completed(part: str = typed_so_far, whole: str = name) -> bool:
                found = await complete(f"{ask} {part}")  # a server that is slower than a second offers none
                return [one.replace("\\", "") for one in found] == [f"{ask} {whole}"]

            await eventually(is_completed, within_seconds=WAIT_SECONDS, describe=f"{name} is completed")
        for name in STREAMS:
            await account.api.call(f"STREAM.DELETE.{name}")


@needs_fish
async def test_fish_shows_what_commands_do_to_the_end_of_the_line(tmp_path: Path) -> None:
    """click cuts each text at its first comma."""
    source = "nats-scheduler completion fish | source"
    offered = await said_by(str(FISH), tmp_path, f"{source}; complete -C 'nats-scheduler ls --tlscert'")
    assert "file with the client's certificate; needs tls_key" in offered.lower()
    help_of_server = await said_by(str(FISH), tmp_path, f"{source}; complete -C 'nats-scheduler ls --server'")
    assert "," in help_of_server
