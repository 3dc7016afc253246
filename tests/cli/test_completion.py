"""Names are completed at the prompt of a shell, and what a shell would not read as one word is not."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from pathlib import Path

import pytest

from nats_scheduler.cli.completion import is_offered
from tests.cli.prompt import NEVER, Cli, Prompt
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.processes import clean_environment, sidecar_command
from tests.harness.servers import V2_11
from tests.harness.terminal import start_on_terminal
from tests.harness.waiting import eventually


def completed(cli: Cli, line: str) -> list[str]:
    """Return what is offered for the last word of a line."""
    words = ["nats-scheduler", *line.split(" ")]
    # click derives the name of the variable from that of the program, which is the function here
    asking = {"_MAIN_COMPLETE": "bash_complete", "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    return [offered.partition(",")[2] for offered in cli(env=asking).stdout.split()]


async def test_names_of_streams_and_subjects_of_schedules_are_completed(prompt: Prompt) -> None:
    for name in ("A,B", "A", "OTHER_A"):
        await prompt.create(name, subjects=[f"{name}.>"])
    for rest in ("a.one", "a.two", "b"):
        await prompt.schedule(f"A.{rest}", NEVER)
    await prompt.account.publish("A.a.three", body=b"no schedule")
    await prompt.shows("pause A A.a.two")
    for line, offered in (
        ("ls {} A", ["A", "A,B"]),
        ("pause {} A ", ["A.a.one", "A.a.two", "A.b"]),
        ("pause {} A A.a.o", ["A.a.one"]),
        ("rm {} A A.a.one A.a.", ["A.a.two"]),
        ("edit {} A A.a.", ["A.a.one", "A.a.two"]),
        ("info {} A A.b", ["A.b"]),
        ("pause {} NONE_SUCH ", []),
    ):

        async def are_offered(asked: str = line.format(f"-s {prompt.url}"), offered: list[str] = offered) -> bool:
            # A machine that is busy may not read them within the deadline.
            return await asyncio.to_thread(completed, prompt.cli, asked) == offered

        await eventually(are_offered, describe=f"{offered} for {line}")


def test_only_what_each_shell_reads_as_one_word_is_offered() -> None:
    words = ["a.b", "A_1-2", "注文.7", "B,C", "a@b.c", "/x/y", "a:b=c%d+e"]
    others = [
        *MORE_THAN_A_WORD,
        "-rf",
        "~root",
        "=ls",
        "%1",
        "a b",
        "a\u202eb",
        "a\x1b[2J",
        "a!b",
        "a?",
        "a*",
        "<a",
        "$a",
        "",
    ]
    assert [one for one in (*words, *others) if is_offered(one)] == words


# -- shells ----------------------------------------------------------------------------------------------------


MORE_THAN_A_WORD = (
    "odd.zz$(touch${IFS}pwned)",
    "odd.z`id`",
    "odd.z;id",
    "odd.z&id",
    "odd.z|id",
    "odd.z\\",
    "odd.z'",
    'odd.z"',
    "odd.z#!id",
    "odd.z{a,b}",
    "odd.z~",
    "odd.z(id)",
    "odd.z[a]",
    "odd.z^",
)
"""Subjects that are more than a word to one of the shells."""


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the program is found."""
    return {**clean_environment(folder), "PATH": f"{Path(sidecar_command()[0]).parent}:{os.environ['PATH']}"}


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")


@needs_bash
async def test_bash_runs_nothing_that_a_publisher_chose(shared_server: SharedServer, tmp_path: Path) -> None:
    server = await shared_server(V2_11)
    env = {**environment(tmp_path), "PS1": "", "NATS_URL": server.url}
    pwn = f"touch${{IFS}}{tmp_path}/pwned"
    async with account_on(server.url) as account:
        await account.create("PASTED", subjects=["pasted.>"])
        for rest in (f"za$({pwn})", f"zb`{pwn}`", f"zc;{pwn};"):
            await account.publish(f"pasted.{rest}", {"Nats-Schedule": NEVER, "Nats-Schedule-Target": "pasted.out"})
        terminal = await start_on_terminal(["bash", "--norc", "-i"], folder=tmp_path, env=env)
        try:
            terminal.press('eval "$(nats-scheduler completion bash)"; echo load""ed\r')
            await terminal.wait_for("loaded")
            for number, typed in enumerate(("za", "zb", "zc"), start=1):
                terminal.press(f"nats-scheduler info PASTED pasted.{typed}\t\r")

                def is_refused(times: int = number) -> bool:
                    return terminal.text.count("nats-scheduler: error: ") == times

                await eventually(is_refused, describe=lambda: terminal.text)
            terminal.press("exit\r")
            await terminal.end()
        finally:
            await terminal.close()
        assert not (tmp_path / "pwned").exists()
        await account.api.call("STREAM.DELETE.PASTED")
