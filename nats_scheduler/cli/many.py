"""`nats-scheduler pause`, `resume` and `rm`: one change to many schedules; `fire` and `backfill`: fires of one.

Rule: what is done to a schedule is in `control.edits`, `control.pausing` and `control.fire_requests`. A wildcard is
resolved and counted first, and what was counted is what is changed: schedules that are added meanwhile are not. A
schedule that cannot be changed does not stop the others (`control.each`).
Cost: as many requests as a change takes, for some schedules at a time; a wildcard reads the stream before.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.arguments import check_stream, file_content, instant_of
from nats_scheduler.cli.changing import (
    ChangeAccess,
    How,
    Operation,
    change_one,
    change_options,
    error_about,
    in_store,
    one_options,
    print_change,
)
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import EXIT_FAILED, Command, CommandError, decorated, print_json
from nats_scheduler.cli.process import progress_bar
from nats_scheduler.control.changes import Change
from nats_scheduler.control.current import Current
from nats_scheduler.control.each import Done, change_each
from nats_scheduler.control.edits import remove
from nats_scheduler.control.fire_requests import DEFAULT_BACKFILL, MAX_BACKFILL, backfill, fire
from nats_scheduler.control.pausing import pause, resume
from nats_scheduler.control.store import ScheduleStore, matching
from nats_scheduler.message.subjects import is_literal_subject, is_valid_subject
from nats_scheduler.observe.documents import made_change_document
from nats_scheduler.observe.texts import printable
from nats_scheduler.settings.load import ResolvedSettings


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which schedules a command is about."""

    stream: str
    subjects: Sequence[str]
    is_confirmed: bool
    """True if wildcards need no confirmation."""

    @property
    def wildcards(self) -> list[str]:
        """The subjects that stand for any number of schedules."""
        return [subject for subject in self.subjects if not is_literal_subject(subject)]


@dataclass(frozen=True, slots=True)
class Task:
    """The change that is made to each of the chosen schedules."""

    verb: str
    """Such as `pause`, for the question."""
    state: str
    """Such as `paused`: what a schedule is to which it is not done."""
    concerns: Callable[[Current], bool]
    """The condition for a schedule that a wildcard found: True if the change is to be made to it."""
    operation: Operation


def many_options(command: Command) -> Command:
    """Give a command about many schedules its arguments and options: it gets them as `chosen` and `how`."""

    @wraps(command)
    def run(stream: str, subjects: tuple[str, ...], from_file: Path | None, yes: bool, **arguments: Any) -> Any:
        is_confirmed = yes or arguments["how"].dry_run
        return command(chosen=_chosen(stream, subjects, from_file, is_confirmed=is_confirmed), **arguments)

    return decorated(
        change_options(run),
        click.argument("stream", shell_complete=complete_stream),
        click.argument("subjects", metavar="SUBJECT…", nargs=-1, shell_complete=complete_subject),
        connection_options,
        click.option(
            "--from-file",
            metavar="FILE",
            type=click.Path(path_type=Path, allow_dash=True),
            help="Read the subjects from a file, one a line, or from -.",
        ),
        click.option("--yes", is_flag=True, help="Change what a wildcard matches without a question."),
    )


def change_many(resolved: ResolvedSettings, chosen: Chosen, how: How, task: Task) -> None:
    """Change the schedules that are chosen, and print what was done; end the command with 1 if one failed."""
    if chosen.wildcards and not chosen.is_confirmed:
        subjects = _confirmed(resolved, chosen, task)
        done = in_store(resolved, lambda access: _change(access, chosen.stream, subjects, task, how), quiet=True)
    else:
        done = in_store(resolved, lambda access: _find_and_change(access, chosen, task, how))
    if how.as_json:
        print_json(_document(done, how))
    else:
        _print(done, chosen.stream, how)
    if done.failures:
        raise click.exceptions.Exit(EXIT_FAILED)


# -- which ones ------------------------------------------------------------------------------------------------


def _chosen(stream: str, subjects: Sequence[str], from_file: Path | None, *, is_confirmed: bool) -> Chosen:
    check_stream(stream)
    if bool(subjects) == (from_file is not None):
        raise click.UsageError("expected SUBJECT…, or --from-file with a file of subjects")
    if from_file is not None:
        subjects = _lines(from_file)
    for subject in subjects:
        if not is_valid_subject(subject):
            raise click.UsageError(f"{subject!r}: expected a subject such as 'orders.daily', or 'orders.>'")
    return Chosen(stream, subjects, is_confirmed)


def _lines(file: Path) -> list[str]:
    """Return the lines of a file that hold something."""
    text = file_content(file).decode("utf-8", "surrogateescape")
    lines = [line.strip(" \t\r") for line in text.split("\n")]
    return [line for line in lines if line]


async def _find(store: ScheduleStore, chosen: Chosen, task: Task) -> list[str]:
    """Return the subjects, each once: those that were named, and those that wildcards match."""
    named = [subject for subject in chosen.subjects if is_literal_subject(subject)]
    if not chosen.wildcards:
        return list(dict.fromkeys(named))
    found = [one for subjects in chosen.wildcards for one in await matching(store, chosen.stream, subjects)]
    concerned = [one.subject for one in found if task.concerns(one)]
    if not named and not concerned:
        wanted = " ".join(chosen.wildcards)
        why = f"{len(found)} match, and each is {task.state} already" if found else "none matches"
        raise CommandError(printable(f"stream {chosen.stream} has no schedule on {wanted} to {task.verb}: {why}"))
    return list(dict.fromkeys([*named, *concerned]))


def _confirmed(resolved: ResolvedSettings, chosen: Chosen, task: Task) -> list[str]:
    """Return the subjects that a wildcard matches, once a person has agreed to their number."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        wildcards = " ".join(chosen.wildcards)
        raise click.UsageError(f"{wildcards!r} may match many schedules: --yes is needed where nobody can be asked")
    subjects = in_store(resolved, lambda access: _find(access.store, chosen, task))
    # The connection is closed while a person reads the question.
    number = len(subjects)
    of_them = f"{number:,} schedule{'' if number == 1 else 's'} of stream {chosen.stream}"
    click.confirm(f"{task.verb} {of_them}?", abort=True, err=True)
    return subjects


# -- what is done ----------------------------------------------------------------------------------------------


async def _find_and_change(access: ChangeAccess, chosen: Chosen, task: Task, how: How) -> Done:
    return await _change(access, chosen.stream, await _find(access.store, chosen, task), task, how)


async def _change(access: ChangeAccess, stream: str, subjects: Sequence[str], task: Task, how: How) -> Done:
    async with access.lasting() as store:

        async def change(subject: str) -> Change:
            return await task.operation(await store(), stream, subject, author=how.author, dry_run=how.dry_run)

        with progress_bar() as bar:
            return await change_each(subjects, change, lambda number: bar.show(stream, number, len(subjects)))


# -- what is printed -------------------------------------------------------------------------------------------


def _print(done: Done, stream: str, how: How) -> None:
    for change in done.changes.values():
        print_change(change, dry_run=how.dry_run)
    for subject, error in done.failures.items():
        CommandError(error_about(subject, error)).show()
    if len(done.changes) + len(done.failures) > 1:
        click.echo(f"stream {stream}: {counts_text(done, dry_run=how.dry_run)}")


def counts_text(done: Done, *, dry_run: bool = False) -> str:
    """Return how many schedules were changed in which way, and how many could not be: `2 paused, 1 failed`."""
    kinds = Counter(change.kind.value for change in done.changes.values())
    counts = [f"{number:,} {'would be ' if dry_run else ''}{kind}" for kind, number in kinds.items()]
    counts += [f"{len(done.failures):,} failed"] if done.failures else []
    return ", ".join(counts)


def error_documents(done: Done) -> list[dict[str, object]]:
    """Return why schedules could not be changed, as JSON objects."""
    return [
        {"subject": subject, "err_code": error.code, "message": str(error)} for subject, error in done.failures.items()
    ]


def _document(done: Done, how: How) -> dict[str, object]:
    changes = [*map(made_change_document, done.changes.values())]
    return {"dry_run": how.dry_run, "changes": changes, "errors": error_documents(done)}


# -- the commands ----------------------------------------------------------------------------------------------


@click.command("pause")
@many_options
def pause_command(resolved: ResolvedSettings, chosen: Chosen, how: How) -> None:
    """Pause schedules: they stay stored, and nothing fires them.

    Pauses the schedules on each SUBJECT of STREAM; wildcards are allowed, and are confirmed.
    Exit codes: 0 done, 1 one could not be paused, or the server refuses or is not reached, 2 wrong use or settings.
    """
    change_many(resolved, chosen, how, Task("pause", "paused", lambda found: not found.is_paused, pause))


@click.command("resume")
@many_options
@click.option("--drop", is_flag=True, help="Remove an @at whose time has passed, instead of firing it at once.")
def resume_command(resolved: ResolvedSettings, chosen: Chosen, how: How, drop: bool) -> None:
    """Resume schedules that are paused.

    Resumes the schedules on each SUBJECT of STREAM; wildcards are allowed, and are confirmed.
    Exit codes: 0 done, 1 one could not be resumed, or the server refuses or is not reached, 2 wrong use or settings.
    """
    change_many(
        resolved, chosen, how, Task("resume", "active", lambda found: found.is_paused, partial(resume, drop=drop))
    )


@click.command("rm")
@many_options
def rm_command(resolved: ResolvedSettings, chosen: Chosen, how: How) -> None:
    """Remove schedules.

    Removes the schedules on each SUBJECT of STREAM; wildcards are allowed, and are confirmed.
    Fires that are stored stay stored.
    Exit codes: 0 done, 1 one could not be removed, or the server refuses or is not reached, 2 wrong use or settings.
    """
    change_many(resolved, chosen, how, Task("remove", "removed", lambda _found: True, remove))


@click.command("fire")
@one_options
@change_options
def fire_command(resolved: ResolvedSettings, stream: str, subject: str, how: How) -> None:
    """Fire a schedule once, now.

    It is the schedule on SUBJECT, in STREAM. The fire has the current time as its fire time; the schedule goes on.
    Exit codes: 0 done, 1 there is none, or the server refuses or is not reached, 2 wrong use or settings.
    """
    change_one(resolved, stream, subject, how, fire)


@click.command("backfill")
@one_options
@click.option("--from", "since", metavar="TIME", required=True, help="The first fire time, RFC 3339 with an offset.")
@click.option("--to", "until", metavar="TIME", required=True, help="The last fire time, RFC 3339 with an offset.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, MAX_BACKFILL),
    default=DEFAULT_BACKFILL,
    help=f"Store nothing if more fires are missing: 1 to {MAX_BACKFILL:,}, {DEFAULT_BACKFILL} unless given.",
)
@change_options
def backfill_command(
    resolved: ResolvedSettings, stream: str, subject: str, since: str, until: str, limit: int, how: How
) -> None:
    """Store past fires of a schedule that are not stored.

    It is the schedule on SUBJECT, in STREAM; its fire times between --from and --to count, both included.
    Exit codes: 0 done, also if none is missing, 1 there is no schedule, or the server refuses or is not reached,
    2 wrong use or settings.
    """
    first, last = instant_of("--from", since), instant_of("--to", until)
    if first > last:
        raise click.UsageError(f"--from of {since!r} is later than --to of {until!r}")
    change_one(resolved, stream, subject, how, partial(backfill, since_ns=first, until_ns=last, limit=limit))
