"""The common part of the commands that change schedules: who changes them and why, the store, and what is printed.

Rule: an operation is done by the room `control`, as for the micro service and the Python client; a command parses,
calls it, and prints a line for each change, of a dry run the same lines with `would be`. The settings of the running
sidecars apply, so that what a sidecar would reject is refused here.
Cost: the connection, and some requests for the settings of the sidecars.
"""

import asyncio
import getpass
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Protocol, TypeVar

import click

from nats_scheduler.cli.arguments import check_schedule, check_stream
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import Command, decorated, json_option, print_json, print_warning
from nats_scheduler.cli.session import Session, Sidecars, error_text, in_session, with_sidecars
from nats_scheduler.control.changes import MAX_AUTHOR_CHARS, Author, Change, Kind
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import dial_for_a_command
from nats_scheduler.observe.documents import made_change_document
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import time_text
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.schedule_store import connection_store
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.settings.load import ResolvedSettings

MAX_FIRES_SHOWN = 20
"""The most fire times of one change that are printed for people; JSON has all."""


def print_change(change: Change, *, dry_run: bool) -> None:
    """Print a change, one line, and below it the fire times that were stored, and what to know of it.

    What is found about the schedule is printed as warnings.
    """
    click.echo(printable(change_text(change, dry_run=dry_run)))
    for fire in change.fires[:MAX_FIRES_SHOWN] if change.kind is Kind.BACKFILLED else ():
        click.echo(f"  {time_text(fire)}")
    if change.kind is Kind.BACKFILLED and len(change.fires) > MAX_FIRES_SHOWN:
        click.echo(f"  and {len(change.fires) - MAX_FIRES_SHOWN:,} more")
    for note in change.notes:
        click.echo(f"  {printable(note)}")
    for finding in change.findings:
        print_warning(printable(f"{change.subject}: {finding.sentence}"))


def change_text(change: Change, *, dry_run: bool) -> str:
    """Return what was done, or would be done, as one line."""
    done, would_be_done = _WORDS[change.kind]
    number = len(change.fires)
    words = (would_be_done if dry_run else done).format(
        before=change.before,
        after=change.after,
        times=", ".join(map(time_text, change.fires[:1])),
        fires=f"{number:,} fire{'' if number == 1 else 's'}",
    )
    return f"{change.subject} {words}"


_WORDS: Mapping[Kind, tuple[str, str]] = {
    Kind.ADDED: ("added: sequence {after}", "would be added"),
    Kind.UNCHANGED: ("unchanged: sequence {before}", "unchanged: sequence {before}"),
    Kind.EDITED: ("edited: sequence {after} in place of {before}", "would be edited"),
    Kind.PAUSED: ("paused: sequence {after} in place of {before}", "would be paused"),
    Kind.RESUMED: ("resumed: sequence {after} in place of {before}", "would be resumed"),
    Kind.REMOVED: ("removed: it was sequence {before}", "would be removed: it is sequence {before}"),
    Kind.FIRED: (
        "fired once, beside its schedule, with the fire time {times}",
        "would be fired once, beside its schedule, with the fire time {times}",
    ),
    Kind.BACKFILLED: ("backfilled: {fires}", "would be backfilled: {fires}"),
}
"""The text that is printed for each kind of change: after it, and in a dry run."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class How:
    """The author of a change, and the way in which it is made and reported."""

    author: Author
    dry_run: bool
    as_json: bool


class Operation(Protocol):
    """Changes the schedule on one subject of a stream; raises `SchedulerError`."""

    def __call__(
        self, store: ScheduleStore, stream: str, subject: str, /, *, author: Author, dry_run: bool
    ) -> Awaitable[Change]:
        """Change it, or for a dry run say what would be changed."""
        ...


@dataclass(frozen=True, slots=True)
class ChangeAccess:
    """Where a command changes schedules."""

    store: ScheduleStore
    session: Session
    sidecars: Sidecars

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[Callable[[], Awaitable[ScheduleStore]]]:
        """Give what returns the store, on another connection once one is lost; it raises `NoAnswerError`.

        A connection ends with its server, and a change of many goes on with another one.
        """
        session, again = self.session, asyncio.Lock()
        store, connection, made = self.store, self.session.connection, list[Connection]()

        async def current() -> ScheduleStore:
            nonlocal store, connection
            async with again:
                if connection.is_lost:
                    connection = await dial_for_a_command(session.settings.connection)
                    made.append(connection)
                    access = replace(Access.through(connection, session.settings), server=session.server)
                    store = connection_store(access, ServerClock(SystemClock()))
                return store

        try:
            yield current
        finally:
            for one in made:
                await one.close()


def change_options(command: Command) -> Command:
    """Give a command the options of a change: it gets them as `how` (`How`)."""

    @wraps(command)
    def run(author: str | None, reason: str, dry_run: bool, as_json: bool, **arguments: Any) -> Any:
        by = default_author() if author is None else author
        _check_length("--by", by)
        _check_length("--reason", reason)
        return command(how=How(Author(by, reason), dry_run, as_json), **arguments)

    return decorated(run, *_OPTIONS)


def one_options(command: Command) -> Command:
    """Give a command about one schedule its arguments `stream` and `subject`, checked, and those of the connection."""

    @wraps(command)
    def run(stream: str, subject: str, **arguments: Any) -> Any:
        check_stream(stream)
        check_schedule(subject)
        return command(stream=stream, subject=subject, **arguments)

    return decorated(
        run,
        click.argument("stream", shell_complete=complete_stream),
        click.argument("subject", shell_complete=complete_subject),
        connection_options,
    )


def change_one(resolved: ResolvedSettings, stream: str, subject: str, how: How, operation: Operation) -> None:
    """Change one schedule, and print what was done."""
    change = in_store(
        resolved,
        lambda access: operation(access.store, stream, subject, author=how.author, dry_run=how.dry_run),
    )
    if how.as_json:
        print_json({"dry_run": how.dry_run, **made_change_document(change, dry_run=how.dry_run)})
    else:
        print_change(change, dry_run=how.dry_run)


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option("--reason", metavar="TEXT", default="", help="Why; it is kept with the change."),
    click.option("--by", "author", metavar="NAME", help="Who; the user of this machine unless given."),
    click.option("--dry-run", is_flag=True, help="Only say what would be done."),
    json_option,
)


def default_author() -> str:
    """Return who runs the command: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no entry for its user
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:MAX_AUTHOR_CHARS]


def in_store(resolved: ResolvedSettings, work: Callable[[ChangeAccess], Awaitable[T]], *, quiet: bool = False) -> T:
    """Connect, run a command's work and return its result; end the command with 1 and one sentence if that fails.

    `quiet` if the warnings about settings are printed already.
    """

    async def begin(session: Session) -> T:
        session, sidecars = await with_sidecars(session, resolved)
        if not quiet:
            sidecars.print_warnings()
        return await work(ChangeAccess(session.store, session, sidecars))

    return in_session(resolved, begin)


def error_about(subject: str, error: SchedulerError) -> str:
    """Return why the schedule on this subject was not changed: a line that names the subject once, at its beginning."""
    text = error_text(error)
    return text if str(error).startswith((f"{subject}: ", f"{subject} ")) else f"{printable(subject)}: {text}"


def _check_length(option: str, text: str) -> None:
    if len(text) > MAX_AUTHOR_CHARS:
        raise click.UsageError(f"{option} has {len(text):,} characters: expected at most {MAX_AUTHOR_CHARS}")
