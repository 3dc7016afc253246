"""A real bash completes commands, options and names of streams, and offers nothing where no server answers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nats_scheduler.cli.completion import COMPLETE_VARIABLE, SHELLS
from nats_scheduler.cli.main import COMMANDS
from tests.cli.changing_site import FAR, site_on
from tests.cli.conftest import Cli
from tests.cli.test_main import DEAR
from tests.conftest import SharedServer
from tests.harness.account import WAIT_SECONDS, account_on
from tests.harness.processes import clean_environment, sidecar_command
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

ASK = """
eval "$(nats-scheduler completion bash)"
COMP_WORDS=({words}) COMP_CWORD={position}
_nats_scheduler_completion nats-scheduler
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
BASH = shutil.which("bash")
NOWHERE = "nats://127.0.0.1:1"


async def completed(folder: Path, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    assert BASH is not None
    quoted = " ".join(f"'{word}'" for word in ("nats-scheduler", *words))
    path = f"{Path(sidecar_command()[0]).parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *(BASH, "--norc", "-c", ASK.format(words=quoted, position=len(words))),
        env={**clean_environment(folder), "PATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert errors.decode() == ""
    return said.decode().split()


@pytest.mark.server
@pytest.mark.skipif(BASH is None, reason="there is no bash on this machine")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), [*COMMANDS]),
        (("ex",), ["export", "explain"]),
        (("stream", ""), ["add", "ls"]),
        (("explain", "--cou"), ["--count"]),
        (("completion", ""), [*SHELLS]),
        (("ls", "-s", NOWHERE, ""), []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
async def test_bash_completes_what_there_is(tmp_path: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert await completed(tmp_path, *words) == offered


@pytest.mark.skipif(BASH is None, reason="there is no bash on this machine")
async def test_bash_completes_names_of_streams(shared_server: SharedServer, tmp_path: Path) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        for name in ("COMPLETE_B", "COMPLETE_A", "OTHER_COMPLETE"):
            await account.create(name)
        assert await completed(tmp_path, "ls", "-s", server.url, "COMP") == ["COMPLETE_A", "COMPLETE_B"]
        for name in ("COMPLETE_B", "COMPLETE_A", "OTHER_COMPLETE"):
            await account.api.call(f"STREAM.DELETE.{name}")


@pytest.mark.skipif(BASH is None, reason="there is no bash on this machine")
async def test_bash_completes_subjects_of_schedules_and_of_nothing_else(
    cli: Cli, shared_server: SharedServer, stream_name: str, tmp_path: Path
) -> None:
    server = await shared_server(V2_11)
    async with site_on(cli, server.url, V2_11, stream_name) as site:
        for rest in ("a.one", "a.two", "b"):
            await site.publish(rest, f"@at {FAR}")
        await site.account.publish(site.subject("a.three"), body=b"no schedule")
        await site.done("pause", site.subject("a.two"))
        one, two, three = (site.subject(rest) for rest in ("a.one", "a.two", "b"))
        for words, offered in (
            (("pause", site.stream, ""), [one, two, three]),
            (("pause", site.stream, f"{site.stream}.a.o"), [one]),
            (("rm", site.stream, one, f"{site.stream}.a."), [two]),
            (("edit", site.stream, f"{site.stream}.a."), [one, two]),
            (("info", site.stream, f"{site.stream}.b"), [three]),
            (("pause", "NONE_SUCH", ""), []),
        ):
            asked = (words[0], "-s", server.url, *words[1:])

            async def are_offered(asked: tuple[str, ...] = asked, offered: list[str] = offered) -> bool:
                # A machine that is busy may not read them within the deadline.
                return await completed(tmp_path, *asked) == offered

            await eventually(are_offered, within_seconds=WAIT_SECONDS, describe=f"{offered} for {words}")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_asks_this_program(cli: Cli, shell: str) -> None:
    shown = cli("completion", shell)
    assert shown.exit_code == 0
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in shown.stdout
    assert "nats-scheduler" in shown.stdout


@pytest.mark.server
def test_the_list_of_commands_is_completed_without_importing_them() -> None:
    program = (
        "import sys\n"
        "import click\n"
        "from nats_scheduler.cli.main import main\n"
        "offered = main.shell_complete(click.Context(main), '')\n"
        f"print(len(offered), [name for name in {DEAR!r} if name in sys.modules and name != 'asyncio'])\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split()[1:] == ["[]"]
