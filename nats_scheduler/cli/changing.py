"""What the commands that change schedules share: who changes them and why, the store, and the form of errors.

Rule: an operation is done by the room `control`, as for the micro service and the Python client; a command parses,
calls it, and prints. The settings of the running sidecars apply, so that what a sidecar would reject is refused here.
Cost: the connection, and some requests for the settings of the sidecars.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from nats_scheduler.cli.arguments import check_stream
from nats_scheduler.cli.changed import print_change
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import CommandError, print_json, printable
from nats_scheduler.cli.past import check_schedule
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.cli.sidecars import Sidecars, with_sidecars
from nats_scheduler.control.changes import MAX_AUTHOR_CHARS, Author, Change
from nats_scheduler.control.errors import ScheduleError
from nats_scheduler.control.port import ScheduleStore
from nats_scheduler.observe.change_documents import change_document
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.schedule_store import ConnectionStore
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.settings.load import ResolvedSettings

T = TypeVar("T")
Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class How:
    """How a change is made and reported."""

    author: Author
    dry_run: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Access:
    """Where a command changes schedules."""

    store: ScheduleStore
    session: Session
    sidecars: Sidecars


def change_options(command: Command) -> Command:
    """Give a command the options of a change: it gets them as `how` (`How`)."""

    @wraps(command)
    def run(author: str | None, reason: str, dry_run: bool, as_json: bool, **arguments: Any) -> Any:
        by = default_author() if author is None else author
        _check_length("--by", by)
        _check_length("--reason", reason)
        return command(how=How(Author(by, reason), dry_run, as_json), **arguments)

    decorated: Command = run
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def one_options(command: Command) -> Command:
    """Give a command about one schedule its arguments `stream` and `subject`, checked, and those of the connection."""

    @wraps(command)
    def run(stream: str, subject: str, **arguments: Any) -> Any:
        check_stream(stream)
        check_schedule(subject)
        return command(stream=stream, subject=subject, **arguments)

    decorated: Command = connection_options(run)
    decorated = click.argument("subject", shell_complete=complete_subject)(decorated)
    return click.argument("stream", shell_complete=complete_stream)(decorated)


def change_one(resolved: ResolvedSettings, how: How, operation: Callable[[Access], Awaitable[Change]]) -> None:
    """Change one schedule, and print what was done."""
    change = in_store(resolved, operation)
    if how.as_json:
        print_json({"dry_run": how.dry_run, **change_document(change, dry_run=how.dry_run)})
    else:
        print_change(change, dry_run=how.dry_run)


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option("--reason", metavar="TEXT", default="", help="Why; it is kept with the change."),
    click.option("--by", "author", metavar="NAME", help="Who; the user of this machine unless given."),
    click.option("--dry-run", is_flag=True, help="Only say what would be done."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)


def default_author() -> str:
    """Return who runs the command: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no entry for its user
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:MAX_AUTHOR_CHARS]


def in_store(resolved: ResolvedSettings, work: Callable[[Access], Awaitable[T]], *, quiet: bool = False) -> T:
    """Connect, run a command's work and return its result; end the command with 1 and one sentence if that fails.

    `quiet` if the warnings about settings are printed already.
    """

    async def begin(session: Session) -> T:
        session, sidecars = await with_sidecars(session, resolved)
        if not quiet:
            sidecars.print_warnings()
        return await work(Access(store_of(session), session, sidecars))

    try:
        return in_session(resolved, begin)
    except ScheduleError as error:
        raise CommandError(_error_text(error)) from None


def store_of(session: Session) -> ScheduleStore:
    """Return the schedules of the account of a session."""
    clock = ServerClock(SystemClock())
    return ConnectionStore(session.connection, session.carrying, clock, session.settings.restrictions_on)


def error_about(subject: str, error: ScheduleError) -> str:
    """Return why the schedule on this subject was not changed: a line that names the subject once, at its beginning."""
    text = _error_text(error)
    return text if str(error).startswith((f"{subject}: ", f"{subject} ")) else f"{printable(subject)}: {text}"


def _error_text(error: ScheduleError) -> str:
    """Return why a schedule was not changed, with the server's code if there is one."""
    text = printable(str(error))
    return text if not error.code or f"code {error.code}" in text else f"{text} (server code {error.code})"


def _check_length(option: str, text: str) -> None:
    if len(text) > MAX_AUTHOR_CHARS:
        raise click.UsageError(f"{option} has {len(text):,} characters: expected at most {MAX_AUTHOR_CHARS}")
