"""The terminal that `top` draws on: its second screen, its size and its keys.

Rule: whatever ends the program, the terminal is as it was before: Ctrl-Z leaves the screen too, and coming back draws
it again. Without a keyboard (standard input is no terminal) everything works but the keys.
While the terminal has not taken the bytes of a screen, the next one is left out, so that a slow line does not fall
behind.
Cost: what changed is written, and no more. Limit: the program stands still while the terminal takes one screen.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from nats_scheduler.cli.top_lines import Line
from nats_scheduler.cli.top_paint import ENTER, LEAVE, Painter

STDIN_FD, STDOUT_FD = 0, 1
USUAL_COLUMNS, USUAL_ROWS = 80, 24
"""The size of a terminal that does not say it, such as a serial line."""
MAX_KEYS_BYTES = 4_096
LFLAG = 3
"""The place of the local modes in what `tcgetattr` returns."""
ESCAPE_SEQUENCE = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)?", re.S)
"""What keys other than characters send: they must not be taken for letters."""


def can_draw() -> bool:
    """Return whether standard output is a terminal on which the cursor can be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


class TerminalGoneError(Exception):
    """The terminal was closed."""


class Terminal:
    """The terminal of this process, in a `with` block of a running event loop."""

    def __init__(self, *, pressed: Callable[[str], None], redraw: Callable[[], None]) -> None:
        """Call `pressed` with each key, and `redraw` when the size has changed."""
        self._pressed = pressed
        self._redraw = redraw
        self._painter = Painter(coloured=not os.environ.get("NO_COLOR"))
        self._encoding = sys.stdout.encoding or "utf-8"
        self._saved: list[Any] | None = None
        self.has_keyboard = sys.stdin is not None and sys.stdin.isatty()

    def __enter__(self) -> Self:
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGTSTP)
        with suppress(TerminalGoneError):
            self._end()

    @property
    def size(self) -> tuple[int, int]:
        """Return columns and rows, as they are now."""
        try:
            columns, rows = os.get_terminal_size(STDOUT_FD)
        except OSError:
            columns = rows = 0
        return columns or USUAL_COLUMNS, rows or USUAL_ROWS

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines, unless the terminal is still busy; raises `TerminalGoneError`."""
        if not select.select((), (STDOUT_FD,), (), 0)[1]:
            return
        changes = self._painter.changes(lines)
        if changes:
            self._write(changes)

    def _begin(self) -> None:
        if self.has_keyboard:
            with suppress(termios.error):
                self._saved = termios.tcgetattr(STDIN_FD)
                modes = termios.tcgetattr(STDIN_FD)
                modes[LFLAG] &= ~(termios.ICANON | termios.ECHO)
                termios.tcsetattr(STDIN_FD, termios.TCSANOW, modes)
                asyncio.get_running_loop().add_reader(STDIN_FD, self._read_keys)
        self._painter.clear()
        self._write(ENTER)

    def _end(self) -> None:
        if self._saved is not None:
            asyncio.get_running_loop().remove_reader(STDIN_FD)
            with suppress(termios.error):
                termios.tcsetattr(STDIN_FD, termios.TCSANOW, self._saved)
            self._saved = None
        self._write(LEAVE)

    def _suspend(self) -> None:
        with suppress(TerminalGoneError):
            self._end()
        os.kill(os.getpid(), signal.SIGSTOP)
        with suppress(TerminalGoneError):
            self._begin()
        self._redraw()

    def _resized(self) -> None:
        self._painter.clear()
        self._redraw()

    def _read_keys(self) -> None:
        try:
            read = os.read(STDIN_FD, MAX_KEYS_BYTES)
        except OSError:
            read = b""
        if not read:
            asyncio.get_running_loop().remove_reader(STDIN_FD)
        for char in ESCAPE_SEQUENCE.sub(b"", read).decode("utf-8", "replace"):
            self._pressed(char)

    def _write(self, text: str) -> None:
        left = text.encode(self._encoding, "replace")
        try:
            while left:
                left = left[os.write(STDOUT_FD, left) :]
        except OSError:
            raise TerminalGoneError from None
