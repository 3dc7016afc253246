"""What `diff` and `apply` share: read the files, and end the command with all that is wrong with them.

Rule: nothing is planned from files with a problem, and a command that ends because of problems names all of them: those
that the files have by themselves, or else those that their streams have with them.
Cost: see `files.planning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.arguments import file_content
from nats_scheduler.cli.changing import Access
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError, printable
from nats_scheduler.control.declared import is_owner
from nats_scheduler.files.planning import StreamPlan, plan_files
from nats_scheduler.files.problems import Problem
from nats_scheduler.files.reading import StreamFile, read_files
from nats_scheduler.message.policies import MAX_TEXT_CHARS

SUFFIXES = (".yaml", ".yml", ".json")
"""The files that are read of a directory."""

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for: the files, and how they are compared."""

    files: Sequence[StreamFile]
    prune: bool
    takes_over: bool


def wanted_options(command: Command) -> Command:
    """Give a command its files and the options that say how they are compared: it gets them as `wanted`."""

    @wraps(command)
    def run(files: tuple[Path, ...], owner: str | None, prune: bool, take_over: bool, **arguments: Any) -> Any:
        read = _with_owner(_read(files), owner)
        if prune and any(one.owner is None for one in read):
            raise click.UsageError(
                "--prune removes what carries an owner's label: expected --owner, or owner in each file"
            )
        return command(wanted=Wanted(read, prune, take_over), **arguments)

    decorated: Command = connection_options(run)
    for option in (
        click.option("--take-over", is_flag=True, help="Change schedules that carry the label of another owner too."),
        click.option("--prune", is_flag=True, help="Remove schedules with the owner's label that are in no file."),
        click.option("--owner", metavar="NAME", help="The label, X-Owner, of all schedules in the files."),
        click.argument(
            "files",
            metavar="FILE…",
            nargs=-1,
            required=True,
            type=click.Path(path_type=Path, exists=True, allow_dash=True),
        ),
    ):
        decorated = option(decorated)
    return decorated


async def plan_all(access: Access, wanted: Wanted) -> list[StreamPlan]:
    """Plan what the files want of each stream; end the command with 1 if a stream would not accept it."""
    plans, problems = await plan_files(access.store, wanted.files, prune=wanted.prune, takes_over=wanted.takes_over)
    if problems:
        raise problems_error(problems, 1)
    return plans


def problems_error(problems: Iterable[Problem], exit_code: int) -> CommandError:
    """Return the error that ends a command because of its files: one line for each problem."""
    lines = []
    for one in problems:
        text = str(one)
        has_code = one.code is None or f"code {one.code}" in text
        lines.append(printable(text if has_code else f"{text} (server code {one.code})"))
    return CommandError("\n".join(lines), exit_code)


# -- files ----------------------------------------------------------------------------------------------------------


def _read(paths: Sequence[Path]) -> list[StreamFile]:
    """Read files, and those in directories; end the command with 2 and all problems if there are any."""
    texts = [(str(path), file_content(path)) for given in paths for path in _files_of(given)]
    files, problems = read_files(texts)
    if problems:
        raise problems_error(problems, EXIT_WRONG_USE)
    return files


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
    if not found:
        raise click.UsageError(f"{path}: expected files that end in {', '.join(SUFFIXES)}")
    return found


def _with_owner(files: list[StreamFile], owner: str | None) -> list[StreamFile]:
    if owner is None:
        return files
    if not is_owner(owner):
        raise click.UsageError(f"--owner of {owner!r}: expected a text of 1 to {MAX_TEXT_CHARS} characters")
    return [one.owned_by(owner) for one in files]
