"""A reader who follows a page on a machine of its own: saves its files, types its commands, compares what they print.

The rules: the commands of a page run in their order, in one folder, on one server; each has to succeed. A command that
runs until it is ended goes on beside the others, and has to end well at the end of the page.
Of what is printed, times, ages, lateness, names of instances, the sequences of fires and the width of columns may
differ from the page, and nothing else. It shows all of it, but a line that is only `…` stands for any lines.
"""

from __future__ import annotations

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
from typing import Any

import pytest

from tests.harness.nats_cli import nats_cli_binary
from tests.harness.processes import ChildProcess
from tests.harness.waiting import eventually
from tests.house.sources import place
from tests.site.blocks import IN_ANY_ORDER, Block, commands_of, pages_of, steps
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
from tests.site.scenes import part_of, scene_of

COMMAND_SECONDS = 120.0
SERVERS = re.compile(r"nats://(?:n1:4222,nats://n2:4222|n1:4222|old:4222|new:4222|127\.0\.0\.1:4222)")
"""The servers of the pages."""
PROGRAMS = re.compile(r"(?:^|[|(]\s*|&& )(nats|jq|curl|openssl|promtool)\s", re.M)
"""The programs that the pages use and a machine may lack."""
SHORTER = "--for 12s"
"""The time for which the demo runs instead: all that the page shows has fired by then."""
LATER = ("--after 20s", "--after 20m")
"""A time before which a reader has typed the next commands, however busy the machine is."""
ADDED = re.compile(r"^stream (\w+) created", re.M)
"""The line about a stream that was made; a person takes longer for the next command than the sidecars to divide it."""
YES = "y\n"
FAREWELL = {0, 130, -2}
"""Exit codes of a program that Ctrl-C ended; the nats CLI leaves the signal to the system."""

ANY = "…"
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?"
AGE = r"-?(?:\d+(?:\.\d+)? ?(?:ns|µs|ms|s|m|h|d))+(?!\w)"
VARIABLE = re.compile(
    "|".join(
        (
            rf"(?P<time>{TIME})",
            r"(?P<day>\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b(?=\s+\d{4}-))",
            r"(?P<sequence>(?<=sidecar  )\d+)",
            r"(?P<instance>\b[0-9a-f]{12}\b)",
            rf"(?P<age>(?<![\w@.:/-])(?<!every )(?<!last ){AGE})",
            r"(?P<blank>\s+)",
        )
    )
)
PATTERNS = {"time": TIME, "day": r"\w{3}", "sequence": r"\d+", "instance": r"[0-9a-f]{12}", "age": AGE, "blank": r"\s+"}


@dataclass
class Reader:
    """Follows one page, or one part of a page."""

    part: str
    steps: Sequence[tuple[Block, Block | None]]
    machine: Machine
    environment: Mapping[str, str]
    running: list[tuple[str, ChildProcess]] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    """The commands that only read, and were typed."""

    async def follow(self) -> None:
        """Do what the page says, from its first block to its last."""
        for block, printed in self.steps:
            if name := block.file:
                self._save(name, block.text)
            elif block.kind == "sh" and reason_not_to_run(place(block.page), block.text) is None:
                await self._type(block, printed)
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
        if shown is None:
            commands = [command for command in commands if command not in self.read]
        self.read |= {command for command in commands if READ.match(command)}
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
            await eventually(is_as_shown, describe=f"{block.where}: what it shows")
        else:
            await is_as_shown()
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

        return await eventually(printed, describe=block.where)

    async def _start(self, command: str, sign: str) -> ChildProcess:
        """Start a command that runs until it is ended, and wait until it is ready."""
        process = ChildProcess(
            ["/bin/bash", "-c", f'cd "$0" && exec {command}', str(self.machine.folder)],
            self.machine.folder / "running",
            name=f"command-{len(self.running)}",
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
        )
        self.running.append((command, process))
        await process.wait_for_line(sign)
        return process

    def _here(self, text: str) -> str:
        """Write the addresses of this machine into a text of the page."""
        text = SERVERS.sub(self.machine.url, INSTALLED_PROGRAMS.sub("", text))
        text = text.replace("--port 4222", f"--port {self.machine.port}")
        text = text.replace("--for 20s", SHORTER).replace(*LATER)
        text = text.replace("--web-address 0.0.0.0", "--web-address 127.0.0.1")
        return text.replace("127.0.0.1:9464", f"127.0.0.1:{self.machine.metrics_port}")


def pattern_of(line: str) -> re.Pattern[str]:
    """Return what a line of a page stands for."""
    parts, end = [], 0
    for match in VARIABLE.finditer(line):
        parts += [re.escape(line[end : match.start()]), PATTERNS[str(match.lastgroup)]]
        end = match.end()
    return re.compile("".join([*parts, re.escape(line[end:])]).rstrip())


def difference(shown: str, printed: str, *, in_any_order: bool = False) -> str | None:
    """Return the first line of a page that was not printed so, or what was printed and is not shown; None if none."""
    lines = [line.rstrip() for line in printed.splitlines()]
    wanted = [line.rstrip() for line in shown.splitlines()]
    if in_any_order:
        return next((line for line in wanted if not any(pattern_of(line).fullmatch(one) for one in lines)), None)
    return _in_order(wanted, lines)


def _in_order(wanted: list[str], lines: list[str]) -> str | None:
    position, may_skip = 0, False
    for line in wanted:
        if line == ANY:
            may_skip = True
            continue
        found = position
        while may_skip and found < len(lines) and not pattern_of(line).fullmatch(lines[found]):
            found += 1
        if found >= len(lines) or not pattern_of(line).fullmatch(lines[found]):
            return line or "(an empty line)"
        position, may_skip = found + 1, False
    return None if may_skip or position == len(lines) else f"(not shown) {lines[position]}"


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
            (programs / program).symlink_to(nats_cli_binary())  # NATS_CLI may name it where no path leads
        elif shutil.which(program) is None:
            pytest.skip(f"no {program}, which {place(page)} uses")


def following(group: tuple[str, ...]) -> Any:
    """Return the test that follows each page of a group; a file for each group, so that they run at the same time."""

    @pytest.mark.server
    @pytest.mark.parametrize("page", pages_of(group), ids=place)
    async def test_the_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
        await follow(page, tmp_path)

    return test_the_page_does_what_it_says


async def follow(page: Path, folder: Path) -> None:
    """Follow a page, part by part, each on a machine of its own."""
    programs = folder / "programs"
    programs.mkdir()
    require_programs(page, programs)
    parts: dict[str, list[tuple[Block, Block | None]]] = {}
    for step in steps(page):
        parts.setdefault(part_of(place(page), step[0].section), []).append(step)
    for number, (part, its_steps) in enumerate(parts.items()):
        async with machine_for(scene_of(part), folder / f"{number}") as machine:
            found = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
            reader = Reader(part, its_steps, machine, {**machine.environment, "PATH": ":".join(found)})
            try:
                await reader.follow()
            finally:
                for _, process in reader.running:
                    process.kill()
