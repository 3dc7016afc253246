"""`nats-scheduler top`: whether all is well, at a glance, live in a terminal.

Rule: what is shown is what running sidecars answer, and the advisories that they publish (`cli.top_feed`); no stream is
read, and nothing is changed. The screen is drawn once in each interval, and when a key is pressed; only what changed is
written.
Cost: some requests a second, which no fire waits for. Limit: what only a server's own scheduler fires is not counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from contextlib import suppress

import click

from nats_scheduler.cli.arguments import check_stream
from nats_scheduler.cli.completion import complete_stream
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import EXIT_FAILED, CommandError, print_json, print_warning
from nats_scheduler.cli.process import run_until, stop_on_signals
from nats_scheduler.cli.top_document import view_document
from nats_scheduler.cli.top_feed import Feed
from nats_scheduler.cli.top_knowledge import Knowledge
from nats_scheduler.cli.top_layout import screen
from nats_scheduler.cli.top_lines import plain
from nats_scheduler.cli.top_terminal import STDOUT_FD, Terminal, TerminalGoneError, can_draw
from nats_scheduler.cli.top_view import SORTS
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.settings.load import ResolvedSettings

LEAST_INTERVAL_NS = 200 * MILLISECOND
NO_KEYS = "Ctrl-C quits"


def _interval(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    """Read a Go duration; return seconds."""
    parsed = parse_duration(text)
    if not isinstance(parsed, int) or parsed < LEAST_INTERVAL_NS:
        raise click.BadParameter(f"{text!r}: expected a duration of 200ms or more, such as '5s'")
    return parsed / SECOND


@click.command("top")
@click.argument("stream", required=False, shell_complete=complete_stream)
@connection_options
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
    Exit codes: 0 ended so, 1 the server is not reached, or with --once no sidecar answers, 2 wrong use or settings.
    """
    check_stream(stream)
    for warning in resolved.warnings:
        print_warning(warning)
    knowledge = Knowledge(stream, SystemClock())
    feed = Feed(resolved.settings.connection, knowledge, interval)
    try:
        if once or not (as_json or can_draw()):
            asyncio.run(_ask_once(feed))
            _print_once(knowledge, as_json=as_json)
        else:
            asyncio.run(_live(feed, knowledge, as_json=as_json))
    except JetStreamError as error:
        raise CommandError(str(error)) from None


async def _ask_once(feed: Feed) -> None:
    connection = await feed.connect()
    try:
        await feed.once(connection)
    finally:
        await connection.close()


def _print_once(knowledge: Knowledge, *, as_json: bool) -> None:
    view = knowledge.view()
    if as_json:
        print_json(view_document(view))
    else:
        width = None if not sys.stdout.isatty() else shutil.get_terminal_size().columns
        lines = [plain(line).rstrip() for line in screen(view, width, None)]
        encoding = sys.stdout.encoding or "utf-8"
        click.echo("\n".join(lines).encode(encoding, "replace").decode(encoding))
    if not view.answered or view.lost:
        raise click.exceptions.Exit(EXIT_FAILED)


async def _live(feed: Feed, knowledge: Knowledge, *, as_json: bool) -> None:
    """Show what is known until a key or a signal ends it, or the output is not read any more."""
    connection = await feed.connect()
    ended = asyncio.Event()
    stop_on_signals(ended.set)
    if as_json:
        await run_until(ended, feed.keep_asking(connection, lambda: _print_line(knowledge, ended)))
        return

    def draw() -> None:
        columns, rows = terminal.size
        keys = f"q quit   s order: {knowledge.order}" if terminal.has_keyboard else NO_KEYS
        try:
            terminal.draw(screen(knowledge.view(), columns, rows, keys))
        except TerminalGoneError:
            ended.set()

    def pressed(key: str) -> None:
        if key in "qQ":
            ended.set()
        elif key in "sS":
            orders = list(SORTS)
            knowledge.order = orders[(orders.index(knowledge.order) + 1) % len(orders)]
            draw()

    with suppress(TerminalGoneError), Terminal(pressed=pressed, redraw=draw) as terminal:
        draw()
        await run_until(ended, feed.keep_asking(connection, draw))


def _print_line(knowledge: Knowledge, ended: asyncio.Event) -> None:
    """Print a document as one line; if the reader of the output is gone, set `ended`."""
    try:
        sys.stdout.write(f"{json.dumps(view_document(knowledge.view()))}\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT_FD)  # buffered text must not fail again at the end
        ended.set()
