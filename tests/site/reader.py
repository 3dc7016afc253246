"""A reader who follows a page on a machine of its own: saves its files, types its commands, compares what they print.

The rules: the commands of a page run in their order, in one folder, on one server; each has to succeed. A command that
runs until it is ended goes on beside the others, and has to end well at the end of the page.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

import nats
import pytest

from nats_scheduler.client import Schedules, cron
from tests.harness.nats_cli import nats_cli_binary
from tests.harness.processes import ChildProcess, sidecar_command
from tests.harness.waiting import eventually
from tests.house.sources import place
from tests.site.blocks import IN_ANY_ORDER, Block, commands_of, steps
from tests.site.exceptions import (
    ASKS,
    EXIT_CODES,
    INSTALLED_PROGRAMS,
    READ,
    WAITED_FOR,
    reason_not_to_run,
    sign_of_running,
    without_installing,
)
from tests.site.machine import Machine, machine_for
from tests.site.printed import difference
from tests.site.scenes import part_of, scene_of

COMMAND_SECONDS = 120.0
PRINTED_SECONDS = 90.0
"""The longest time in which a command that runs on prints what the page shows."""
SERVERS = re.compile(r"nats://(?:n1:4222,nats://n2:4222|n1:4222|old:4222|new:4222|127\.0\.0\.1:4222)")
"""The servers of the pages."""
PROGRAMS = re.compile(r"(?:^|[|(]\s*|&& )(nats|jq|curl|openssl|promtool)\s", re.M)
"""The programs that the pages use and a machine may lack."""
SHORTER = "--for 12s"
"""The time for which the demo runs instead: all that the page shows has fired by then."""
ADDED = re.compile(r"^stream (\w+) created", re.M)
"""The line about a stream that was made; a person takes longer for the next command than the sidecars to divide it."""
YES = "y\n"
FAREWELL = {0, 130, -2}
"""Exit codes of a program that Ctrl-C ended; the nats CLI leaves the signal to the system."""


@dataclass
class Reader:
    """Follows one page, or one part of a page."""

    part: str
    steps: Sequence[tuple[Block, Block | None]]
    machine: Machine
    environment: Mapping[str, str]
    running: list[tuple[str, ChildProcess]] = field(default_factory=list)
    compared: int = 0
    """The number of blocks of what is printed that were compared."""

    async def follow(self) -> None:
        """Do what the page says, from its first block to its last."""
        for block, printed in self.steps:
            if name := block.file:
                self._save(name, block.text)
            elif block.kind == "sh" and reason_not_to_run(place(block.page), block.text) is None:
                await self._type(block, printed)
            elif block.kind == "python" and self.part == "README.md":
                await self._run_python(block)
        for command, process in self.running:
            assert process.exit_code is None, f"it ended before the page: {command}\n{process.stdout}{process.stderr}"
            assert await process.interrupt() in FAREWELL, f"{command}\n{process.stdout}{process.stderr}"

    def _save(self, name: str, text: str) -> None:
        path = self.machine.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(text))

    async def _type(self, block: Block, shown: Block | None) -> None:
        """Type the commands of a block; what they print together is compared with the block that shows it."""
        commands = commands_of(self._here(without_installing(block.text)))
        printed: list[str] = []
        started = None
        for command in commands:
            if sign := sign_of_running(command):
                started = await self._start(command, sign)
            elif WAITED_FOR.match(command):
                printed.append(await self._repeat(command, block))
            else:
                printed.append(await self._run(command, block))

        reads = started is None and bool(commands) and READ.match(commands[-1]) is not None

        async def is_as_shown() -> bool:
            if reads:
                printed[-1] = await self._run(commands[-1], block)
            if shown is not None:
                self._compare(shown, started.stdout if started else "".join(printed))
            return True

        if started or reads:
            await eventually(is_as_shown, within_seconds=PRINTED_SECONDS, describe=f"{block.where}: what it shows")
        else:
            await is_as_shown()
        self.compared += shown is not None
        for stream in ADDED.findall("".join(printed)):
            await self.machine.serves(stream)

    def _compare(self, shown: Block, printed: str) -> None:
        lacking = difference(self._here(shown.text), printed, in_any_order=shown.before == IN_ANY_ORDER)
        assert lacking is None, f"{shown.where}: {lacking!r}, and this was printed:\n{printed}"

    async def _run(self, command: str, block: Block) -> str:
        """Run a command to its end, and return what it printed."""
        with keyboard(YES if ASKS.match(command) else "") as typed:
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", command),
                cwd=self.machine.folder,
                env=dict(self.environment),
                stdin=typed,
                stdout=asyncio.subprocess.PIPE,
                stderr=subprocess.STDOUT if typed == subprocess.DEVNULL else typed,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(COMMAND_SECONDS):
                    said, _ = await process.communicate()
            finally:
                with suppress(ProcessLookupError):  # what it started ends with it, also after the deadline
                    os.killpg(process.pid, signal.SIGKILL)
        printed = said.decode("utf-8", "replace")
        allowed = next((codes for pattern, codes, _ in EXIT_CODES if pattern.match(command)), {0})
        assert process.returncode in allowed, f"{block.where}: {command}\nended with {process.returncode}:\n{printed}"
        return printed

    async def _repeat(self, command: str, block: Block) -> str:
        """Run a command until it succeeds: it reads what a fire stores."""

        async def printed() -> str:
            return await self._run(command, block) or " "

        return await eventually(printed, within_seconds=PRINTED_SECONDS, describe=block.where)

    async def _start(self, command: str, sign: str) -> ChildProcess:
        """Start a command that runs until it is ended, and wait until it is ready."""
        programs = f"{Path(sidecar_command()[0]).parent}:{self.environment['PATH']}"
        process = ChildProcess(
            ["/bin/bash", "-c", f'cd "$0" && exec {command}', str(self.machine.folder)],
            self.machine.folder / "running",
            name=f"command-{len(self.running)}",
            env={**self.environment, "PATH": programs, "PYTHONUNBUFFERED": "1"},
        )
        self.running.append((command, process))
        await process.wait_for_line(sign)
        return process

    async def _run_python(self, block: Block) -> None:
        """Run a block as `python -m asyncio` would, with what the sentence before it takes for granted."""
        client = await nats.connect(self.machine.url)
        known = {"nc": client, "Schedules": Schedules, "cron": cron, "ZoneInfo": ZoneInfo}
        code = compile(self._here(block.text), block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        try:
            await eval(code, known)  # noqa: S307
        finally:
            await client.close()

    def _here(self, text: str) -> str:
        """Write the addresses of this machine into a text of the page."""
        text = SERVERS.sub(self.machine.url, INSTALLED_PROGRAMS.sub("", text))
        text = text.replace("--port 4222", f"--port {self.machine.port}")
        text = text.replace("--for 20s", SHORTER)
        text = text.replace("--web-address 0.0.0.0", "--web-address 127.0.0.1")
        return text.replace("127.0.0.1:9464", f"127.0.0.1:{self.machine.metrics_port}")


@contextmanager
def keyboard(typed: str) -> Iterator[int]:
    """Give a terminal to read from, on which something was typed; nothing to read if that is empty."""
    if not typed:
        yield subprocess.DEVNULL
        return
    controller, side = os.openpty()
    try:
        os.write(controller, typed.encode())
        yield side
    finally:
        os.close(side)
        os.close(controller)


def require_programs(page: Path, programs: Path) -> None:
    """Skip the test if the machine lacks a program that the page uses; the `nats` CLI is then among the `programs`."""
    typed = "\n".join(
        block.text for block, _ in steps(page) if block.kind == "sh" and not reason_not_to_run(place(page), block.text)
    )
    for program in sorted(set(PROGRAMS.findall(typed))):
        if program == "nats":
            link, found = programs / program, nats_cli_binary()
            if not link.exists():
                link.symlink_to(found)  # the variable NATS_CLI may name it where no path leads
        elif shutil.which(program) is None:
            pytest.skip(f"no {program}, which {place(page)} uses")


async def follow(page: Path, folder: Path, programs: Path) -> int:
    """Follow a page, part by part, each on a machine of its own; return how often what was printed was compared."""
    require_programs(page, programs)
    parts: dict[str, list[tuple[Block, Block | None]]] = {}
    for step in steps(page):
        parts.setdefault(part_of(place(page), step[0].section), []).append(step)
    compared = 0
    for number, (part, its_steps) in enumerate(parts.items()):
        async with machine_for(scene_of(part), folder / f"{number}") as machine:
            found = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
            reader = Reader(part, its_steps, machine, {**machine.environment, "PATH": ":".join(found)})
            try:
                await reader.follow()
            finally:
                for _, process in reader.running:
                    process.kill()
            compared += reader.compared
    return compared
