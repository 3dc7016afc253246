"""`nats-scheduler top`: whether all is well, at a glance, live in a terminal.

Rule: what is shown is what running sidecars answer, and the advisories that they publish (`cli.top_asking`); nothing is
changed. Only where none runs, the streams on which the server itself fires are read.
The screen is drawn once in each interval, and when a key is pressed; only the lines that changed are written.
Whatever ends the program, the terminal is as it was before: Ctrl-Z leaves the screen too, and coming back draws it
again. Without a keyboard (standard input is no terminal) everything works but the keys. While the terminal has not
taken the bytes of a screen, the next one is left out, so that a slow line does not fall behind.
Cost: some requests a second, which no fire waits for, and 10 ms for a screen of 80 x 24.
Limit: of what the server itself fires, what could not be stored is not known.
"""

import asyncio
import io
import json
import os
import re
import select
import shutil
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console, ConsoleDimensions
from rich.segment import Segment

from nats_scheduler.cli.arguments import check_stream, zone_option
from nats_scheduler.cli.completion import complete_stream
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import (
    EXIT_FAILED,
    STDOUT_FD,
    CommandError,
    Printer,
    print_json,
    print_warning,
    silence_output,
)
from nats_scheduler.cli.process import run_until, stop_on_signals
from nats_scheduler.cli.top_asking import Feed
from nats_scheduler.cli.top_knowledge import Knowledge
from nats_scheduler.cli.top_screen import screen, text_of
from nats_scheduler.cli.top_view import SORTS, view_document
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.settings.load import ResolvedSettings

LEAST_INTERVAL_NS = 200 * MILLISECOND
NO_KEYS = "Ctrl-C quits"
STDIN_FD = 0
USUAL_COLUMNS, USUAL_ROWS = 80, 24
"""The size of a terminal that does not say it, such as a serial line."""
MAX_KEYS_BYTES = 4_096
LFLAG = 3
"""The place of the local modes in what `tcgetattr` returns."""
ESCAPE_SEQUENCE = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)?", re.S)
"""The sequences that keys other than characters send: they must not be taken for letters."""
WRAPPING_OFF, WRAPPING_ON = "\x1b[?7l", "\x1b[?7h"
"""A terminal may see some characters wider than rich does: such a line is cut, and does not move the others."""


def _interval(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    """Read a Go duration; return seconds."""
    parsed = parse_duration(text)
    if not isinstance(parsed, int) or parsed < LEAST_INTERVAL_NS:
        raise click.BadParameter(f"{text!r}: expected a duration of 200ms or more, such as '5s'")
    return parsed / SECOND


@click.command("top")
@click.argument("stream", required=False, shell_complete=complete_stream)
@connection_options
@zone_option
@click.option(
    "--interval",
    default="1s",
    show_default=True,
    metavar="DURATION",
    callback=_interval,
    help="How often sidecars are asked, and the screen is drawn.",
)
@click.option("--once", is_flag=True, help="Print one screen as plain text, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a document a line, or one with --once.")
def command(resolved: ResolvedSettings, stream: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Show live whether all is well: rates, lateness, failures.

    Of all streams, or of one STREAM. Keys: q quits, s changes the order of the streams.
    Where standard output is no terminal, one screen is printed, as with --once.
    Where no sidecar runs, what a server of 2.12 or later fires by itself is shown.
    Exit codes: 0 ended so, 1 the server is not reached, or with --once nothing is answered, 2 wrong use or settings.
    """
    check_stream(stream)
    for warning in resolved.warnings:
        print_warning(warning)
    if isinstance(sys.stdout, io.TextIOWrapper):
        with suppress(OSError):  # where a file became a pipe; a terminal can always be asked to replace
            sys.stdout.reconfigure(errors="replace")
    feed = Feed(resolved.settings, stream, interval)
    try:
        if once or not (as_json or _can_draw()):
            asyncio.run(feed.once())
            _print_once(feed.knowledge, as_json=as_json)
        else:
            asyncio.run(_live(feed, feed.knowledge, as_json=as_json))
    except SchedulerError as error:
        raise CommandError(str(error)) from None


def _can_draw() -> bool:
    """Return whether standard output is a terminal on which the cursor can be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _print_once(knowledge: Knowledge, *, as_json: bool) -> None:
    view = knowledge.view()
    if as_json:
        print_json(view_document(view))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo("\n".join(text_of(screen(view, width, None), width)))
    if not view.answered or view.lost:
        raise click.exceptions.Exit(EXIT_FAILED)


async def _live(feed: Feed, knowledge: Knowledge, *, as_json: bool) -> None:
    """Show what is known until a key or a signal ends it, or the output is not read any more."""
    connection = await feed.connect()
    ended = asyncio.Event()
    stop_on_signals(ended.set)
    if as_json:
        printer = Printer(gone=ended.set)
        work = feed.keep_asking(connection, lambda: printer.lines(json.dumps(view_document(knowledge.view()))))
        await run_until(ended, work)
        return
    with LiveScreen(knowledge, ended) as shown:
        await run_until(ended, feed.keep_asking(connection, shown.draw))


class LiveScreen:
    """The second screen of the terminal and its keys, in a `with` block of a running event loop."""

    def __init__(self, knowledge: Knowledge, ended: asyncio.Event) -> None:
        """Show what is known; `ended` is set by the key that quits, and if the terminal is closed."""
        self._knowledge = knowledge
        self._ended = ended
        self._console = Console(force_terminal=True, force_interactive=True, no_color=bool(os.environ.get("NO_COLOR")))
        self._shown: list[list[Segment]] = []
        """The lines that are on the screen; none if that is not known."""
        self._modes: list[Any] | None = None
        """The modes in which the terminal treated its input before; None if they were not changed."""
        self._has_keyboard = sys.stdin is not None and sys.stdin.isatty()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._draw_all)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGTSTP)
        self._end()

    def draw(self) -> None:
        """Show what is known now, unless the terminal is still busy, or closed."""
        if self._ended.is_set() or not select.select((), (STDOUT_FD,), (), 0)[1]:
            return
        keys = f"q quit   s order: {self._knowledge.order}" if self._has_keyboard else NO_KEYS
        self._console.size = size = _size()
        lines = self._console.render_lines(screen(self._knowledge.view(), size.width, size.height, keys))
        before, self._shown = self._shown, Segment.set_shape(lines, *size)
        is_known = len(before) == len(self._shown)
        with self._writing(), self._console:
            if not is_known:
                self._console.clear()
            for row, line in enumerate(self._shown):
                if not is_known or line != before[row]:
                    self._console.update_screen_lines([line], 0, row)

    def _draw_all(self) -> None:
        self._shown = []
        self.draw()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """End the program if the terminal is closed."""
        try:
            yield
        except OSError:
            silence_output()
            self._ended.set()

    def _begin(self) -> None:
        if self._has_keyboard:
            with suppress(termios.error):
                self._modes = termios.tcgetattr(STDIN_FD)
                modes = termios.tcgetattr(STDIN_FD)
                modes[LFLAG] &= ~(termios.ICANON | termios.ECHO)
                termios.tcsetattr(STDIN_FD, termios.TCSANOW, modes)
                asyncio.get_running_loop().add_reader(STDIN_FD, self._read_keys)
        with self._writing():
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)
            self._console.file.write(WRAPPING_OFF)
        self._draw_all()

    def _end(self) -> None:
        if self._modes is not None:
            asyncio.get_running_loop().remove_reader(STDIN_FD)
            with suppress(termios.error):
                termios.tcsetattr(STDIN_FD, termios.TCSANOW, self._modes)
            self._modes = None
        with self._writing():
            self._console.file.write(WRAPPING_ON)
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)

    def _suspend(self) -> None:
        self._end()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()

    def _read_keys(self) -> None:
        try:
            read = os.read(STDIN_FD, MAX_KEYS_BYTES)
        except OSError:
            read = b""
        if not read:
            asyncio.get_running_loop().remove_reader(STDIN_FD)
        for key in ESCAPE_SEQUENCE.sub(b"", read).decode("utf-8", "replace"):
            if key in "qQ":
                self._ended.set()
            elif key in "sS":
                orders = list(SORTS)
                self._knowledge.order = orders[(orders.index(self._knowledge.order) + 1) % len(orders)]
                self.draw()


def _size() -> ConsoleDimensions:
    """Return columns and rows of the terminal, as they are now."""
    try:
        columns, rows = os.get_terminal_size(STDOUT_FD)
    except OSError:
        columns = rows = 0
    return ConsoleDimensions(columns or USUAL_COLUMNS, rows or USUAL_ROWS)
