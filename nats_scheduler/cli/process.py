"""The common part of commands that run for a while: the signals that end them, and a progress bar.

Rule: each signal with which an operator, a terminal or a service manager ends a program makes the sidecar drain.
The bar is on standard error, and only if both outputs are terminals; nothing of it is left when the work is done. It is
drawn without colours and with ASCII alone, and not at all if the first part of the work was all of it.
Cost: at most ten lines a second.
Limit: SIGKILL ends everything at once, and the next start repeats what was in flight; a bar that is behind another
program's output is not drawn again.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from nats_scheduler.observe.log import configure_logging, logger
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.settings.load import ResolvedSettings


def log_as_set(resolved: ResolvedSettings, level: str | None = None) -> None:
    """Write log lines as the settings say, or from another level on, and begin with the warnings about the settings."""
    configure_logging(resolved.settings.log_format, level or resolved.settings.log_level)
    for warning in resolved.warnings:
        logger().warning("settings_warning", reason=warning)


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, SIGINT and a closed terminal (SIGHUP); under `nohup` a closed terminal is ignored."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def run_until(ended: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do work until it is done, or until `ended` is set, which cancels it; raises its error."""
    working, ending = asyncio.create_task(work), asyncio.create_task(ended.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


DRAW_INTERVAL_NS = 100 * MILLISECOND
"""The shortest time between two states that are drawn."""
BAR_CHARS = 20
MAX_NAME_CHARS = 24
ERASE_LINE = "\r\x1b[K"


class ProgressBar:
    """One line that shows how far some work is; `file` is None if there is no terminal."""

    def __init__(self, file: TextIO | None, monotonic: Callable[[], int]) -> None:
        self._file = file
        self._monotonic = monotonic
        self._drawn_at: int | None = None

    @property
    def is_on_terminal(self) -> bool:
        """True if there is a terminal to draw on."""
        return self._file is not None

    def show(self, name: str, done: int, total: int | None) -> None:
        """Show that `done` of `total` messages of a stream are read; None if it is not known how many there are."""
        if self._file is None or (total is not None and done >= total):
            return
        now = self._monotonic()
        if self._drawn_at is not None and now - self._drawn_at < DRAW_INTERVAL_NS:
            return
        self._drawn_at = now
        self._write(f"{ERASE_LINE}{progress_text(name, done, total)}\r")

    def clear(self) -> None:
        """Remove the line."""
        if self._drawn_at is not None:
            self._write(ERASE_LINE)
            self._drawn_at = None

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(text)
            self._file.flush()
        except OSError:  # the terminal was closed
            self._file = None


def progress_text(name: str, done: int, total: int | None) -> str:
    """Return the line: `ORDERS  [#####...............]  25 %  2,500 of 10,000 messages`."""
    shown = name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…"
    if total is None:
        return f"{shown}  {done:,} messages read"
    share = min(max(done, 0), total) / total if total else 1
    filled = int(share * BAR_CHARS)
    bar = "#" * filled + "." * (BAR_CHARS - filled)
    return f"{shown}  [{bar}]  {int(share * 100)} %  {done:,} of {total:,}"


@contextmanager
def progress_bar() -> Iterator[ProgressBar]:
    """Provide a bar while the block runs."""
    on_terminal = sys.stderr.isatty() and sys.stdout.isatty()
    bar = ProgressBar(sys.stderr if on_terminal else None, SystemClock().monotonic)
    try:
        yield bar
    finally:
        bar.clear()
