"""A command on a terminal of its own, as a person sees it: what it prints, with every escape sequence.

Its rule: the terminal has 80 columns unless a test changes that, and is read until the process ends, so that the
process never blocks on it.
"""

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nats_scheduler.runtime.embedded import tied_to_this_process
from tests.harness.processes import clean_environment
from tests.harness.waiting import eventually

COLUMNS, ROWS = 80, 24
TERMINAL_SECONDS = 45.0
"""Longest wait for what is expected on a terminal, and for the end of the process."""


class Terminal:
    """One process, whose output and input are a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, controller: int, side: int) -> None:
        self.process = process
        self.text = ""
        """The text that was printed so far."""
        self._controller = controller
        self._side = side
        asyncio.get_running_loop().add_reader(controller, self._read)

    def _read(self) -> None:
        try:
            read = os.read(self._controller, 65_536)
        except OSError:  # the process has closed its side
            read = b""
        if not read:
            asyncio.get_running_loop().remove_reader(self._controller)
        self.text += read.decode("utf-8", "replace")

    async def wait_for(self, wanted: str) -> None:
        """Wait until a text is printed."""
        await eventually(lambda: wanted in self.text, describe=lambda: f"{wanted!r} in {self.text!r}")

    def press(self, keys: str) -> None:
        """Send what keys send."""
        os.write(self._controller, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the process gets SIGWINCH."""
        set_size(self._side, columns, rows)

    def modes(self) -> list[object]:
        """Return how the terminal treats its input."""
        return termios.tcgetattr(self._side)

    async def end(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        async with asyncio.timeout(TERMINAL_SECONDS):
            return await self.process.wait()

    async def close(self) -> None:
        """End the process, if it still runs, and the terminal."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        asyncio.get_running_loop().remove_reader(self._controller)
        os.close(self._controller)
        os.close(self._side)


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Set the size of a terminal, by the number of its file."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def start_on_terminal(command: list[str], *, folder: Path, env: Mapping[str, str] | None = None) -> Terminal:
    """Start a command on a terminal that is its controlling one; to be closed by the caller."""
    controller, side = os.openpty()
    set_size(side, COLUMNS, ROWS)
    # The leader of a session gets the first terminal that it opens as its own.
    opened = ["/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&0', os.ttyname(side), *command]
    environment = {
        name: value for name, value in clean_environment(folder).items() if name not in ("NO_COLOR", "COLUMNS")
    }
    process = await asyncio.create_subprocess_exec(
        *tied_to_this_process(opened),
        env={**environment, "TERM": "xterm", **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    return Terminal(process, controller, side)
