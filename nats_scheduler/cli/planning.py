"""What `diff` and `apply` share: read the files, read what is stored, and plan what has to be done.

Rule: nothing is planned from files with a problem, and a command that ends because of problems names all of them: those
that the files have by themselves, or else those that their streams have with them.
Cost: all schedules of a stream are read if its files have an owner, or more than `MAX_SUBJECTS_READ_ALONE` subjects;
otherwise, and for each subject that has no schedule yet, one request for each subject.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.changing import Access
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError, printable
from nats_scheduler.control.declared import Declared
from nats_scheduler.control.errors import NotServedError, StreamNotFoundError
from nats_scheduler.control.plan import Fault, Plan, plan_stream
from nats_scheduler.control.port import ScheduleStore, Served
from nats_scheduler.files.reading import Problem, StreamFile, read_files
from nats_scheduler.message.policies import MAX_TEXT_CHARS
from nats_scheduler.message.stored import StoredMessage

MAX_SUBJECTS_READ_ALONE = 64
"""Up to so many subjects of a stream are asked for one by one."""

MAX_READS_AT_ONCE = 64

SUFFIXES = (".yaml", ".yml", ".json")
"""The files that are read of a directory."""

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for: the files, and how they are compared."""

    files: Sequence[StreamFile]
    prune: bool
    takes_over: bool


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The plan for the schedules of one owner in one stream."""

    served: Served
    owner: str | None
    plan: Plan


@dataclass(frozen=True, slots=True)
class _Group:
    """The documents of one stream and one owner."""

    stream: str
    owner: str | None
    files: list[StreamFile]

    @property
    def declared(self) -> list[Declared]:
        return [one for file in self.files for one in file.declared]

    def problems(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield faults with their places in the files."""
        where = {one.subject: (file, index) for file in self.files for index, one in enumerate(file.declared)}
        for fault in faults:
            file, index = where[fault.subject]
            yield Problem(file.place(index, fault.header), self.stream, fault.subject, fault.text, fault.code)


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
    groups = _grouped(wanted.files)
    plans: list[StreamPlan] = []
    problems: list[Problem] = []
    for group in groups:
        try:
            served = await access.store.served(group.stream)
        except (StreamNotFoundError, NotServedError) as error:
            place = group.files[0].place_of_stream()
            problems.append(Problem(place, group.stream, "", str(error), error.code))
            continue
        plan = await _plan(access.store, served, group, groups, wanted)
        problems += group.problems(plan.faults)
        plans.append(StreamPlan(served, group.owner, plan))
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
    texts = [(str(path), _content(path)) for given in paths for path in _files_of(given)]
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


def _content(path: Path) -> bytes:
    try:
        with click.open_file(str(path), "rb") as opened:
            return bytes(opened.read())
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None


def _with_owner(files: list[StreamFile], owner: str | None) -> list[StreamFile]:
    if owner is None:
        return files
    if not owner.strip() or len(owner) > MAX_TEXT_CHARS or not owner.isprintable():
        raise click.UsageError(f"--owner of {owner!r}: expected a text of 1 to {MAX_TEXT_CHARS} characters")
    return [one.owned_by(owner) for one in files]


# -- plans ----------------------------------------------------------------------------------------------------------


def _grouped(files: Sequence[StreamFile]) -> list[_Group]:
    groups: dict[tuple[str, str | None], _Group] = {}
    for one in files:
        groups.setdefault((one.stream, one.owner), _Group(one.stream, one.owner, [])).files.append(one)
    return list(groups.values())


async def _plan(store: ScheduleStore, served: Served, group: _Group, groups: Sequence[_Group], wanted: Wanted) -> Plan:
    declared = group.declared
    others = [other for other in groups if other.stream == group.stream and other is not group]
    stored = await _stored(store, group, [one.subject for one in declared])
    return plan_stream(
        declared,
        stored,
        served,
        now=store.now(),
        owner=group.owner,
        prune=wanted.prune,
        takes_over=wanted.takes_over,
        kept=frozenset(one.subject for other in others for one in other.declared),
    )


async def _stored(store: ScheduleStore, group: _Group, subjects: Sequence[str]) -> dict[str, StoredMessage]:
    """Return the last message on each of these subjects, and with an owner all schedules of the stream."""
    stored: dict[str, StoredMessage] = {}
    if group.owner is not None or len(subjects) > MAX_SUBJECTS_READ_ALONE:
        stored = {message.subject: message async for message in store.schedules(group.stream, ">")}
    missing = [subject for subject in subjects if subject not in stored]
    for start in range(0, len(missing), MAX_READS_AT_ONCE):
        part = missing[start : start + MAX_READS_AT_ONCE]
        found = await asyncio.gather(*(store.last(group.stream, subject) for subject in part))
        stored |= {message.subject: message for message in found if message is not None}
    return stored
