"""Files of schedules for programs: what a stream has, as text, and the changes that a text asks for.

The rules are those of `nats-scheduler export`, `diff` and `apply`, by the same code: nothing is done because of a text
with a problem, all problems are named, and each change is made only if nothing else was stored since it was planned.

The libraries that read and write files, pydantic and PyYAML, are imported when a program first uses this; the extra
`run` installs them.
Cost: a text of 10,000 schedules is read in about 1 s, in which the loop does nothing else; see `files.planning`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from nats_scheduler.client.values import Change, change_of
from nats_scheduler.control.carrying_out import carry_out_all
from nats_scheduler.control.changes import Author
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.control.exported import LeftOut, exported
from nats_scheduler.control.plan import Plan
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.extras import installation, missing

if TYPE_CHECKING:
    from nats_scheduler.files.document import Problem
    from nats_scheduler.files.file_reading import StreamFile


@dataclass(frozen=True, slots=True)
class Exported:
    """The schedules of a stream as the text of a file."""

    text: str
    left_out: tuple[LeftOut, ...]
    """Those that no file can have: rejected ones, and subjects that are not UTF-8; each with its `reason`."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes that were made because of a text."""

    diff: Plan
    """The plan that was made."""
    changes: tuple[Change, ...]
    """The changes that were made, by subject; empty after a dry run."""


class FileProblem(NamedTuple):
    """One thing that is wrong with a text."""

    line: int | None
    """From 1; None if it is not known."""
    subject: str
    """Of the schedule; "" if it is none."""
    text: str
    code: int | None
    """The server's code, if it has one for this."""

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}"
        return ": ".join(filter(None, (place, self.subject, self.text)))


class InvalidFileError(SchedulerError):
    """A text is no file of schedules, or the stream would not accept what it says: nothing was changed."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        """All that is wrong, in the order of the text."""


class PartlyAppliedError(SchedulerError):
    """Some schedules could not be changed; all others were. Applying the text again does the rest."""

    def __init__(self, applied: Applied, errors: Mapping[str, SchedulerError]) -> None:
        lines = (f"{subject}: {str(error).removeprefix(f'{subject}: ')}" for subject, error in errors.items())
        super().__init__("\n".join(lines))
        self.applied = applied
        self.errors = errors
        """Why not, by subject; of these, `ConflictError` and `NotFoundError` say that it was changed meanwhile."""


async def export_text(
    store: ScheduleStore, stream: str, subjects: str, owner: str | None, form: Literal["yaml", "json"]
) -> Exported:
    """Return the schedules of a stream as text; with an owner, only those with this label."""
    check_libraries()
    from nats_scheduler.files.writing import stream_document, written_file

    if form not in ("yaml", "json"):
        raise ValueError(f"form of {form!r}: expected 'yaml' or 'json'")
    served, declared, left_out = await exported(store, stream, subjects, owner)
    document = stream_document(stream, declared, owner=owner, spelling=served.dialects[0])
    return Exported(written_file([document], form), tuple(left_out))


async def planned(
    store: ScheduleStore, stream: str, text: str, owner: str | None, *, prune: bool, takes_over: bool
) -> tuple[Served, Plan]:
    """Return how a stream is served, and what a text would change in it.

    Raises `InvalidFileError`, and `ValueError` or `TypeError` for wrong use.
    """
    check_libraries()
    from nats_scheduler.files.planning import plan_files

    files = _read(stream, text, owner, prune=prune)
    await store.served(stream)  # raises what every operation raises; in a plan it would be a problem of the text
    plans, problems = await plan_files(store, files, prune=prune, takes_over=takes_over)
    if problems:
        raise InvalidFileError(list(map(_problem, problems)))
    found = [one.plan for one in plans]
    steps = sorted((step for plan in found for step in plan.steps), key=lambda step: step.subject)
    ended = sorted(subject for plan in found for subject in plan.ended)
    unchanged, unlisted = sum(plan.unchanged for plan in found), sum(plan.unlisted for plan in found)
    return plans[0].served, Plan(stream, tuple(steps), (), unchanged, tuple(ended), unlisted)


async def apply_plan(store: ScheduleStore, served: Served, diff: Plan, author: Author) -> Applied:
    """Make the changes of a plan, some at a time; raises `PartlyAppliedError`."""

    async def same() -> ScheduleStore:
        return store  # the connection is the program's, and it makes it again

    done = await carry_out_all(same, served, diff.steps, author)
    applied = Applied(diff, tuple(change_of(one) for one in done.changes.values()))
    if done.failures:
        raise PartlyAppliedError(applied, done.failures)
    return applied


def check_libraries() -> None:
    """Raise `ImportError` that says what to install, if files can be neither read nor written."""
    if lacking := {"pydantic", "yaml"}.intersection(missing("run")):
        raise ImportError(f"files of schedules need {', '.join(sorted(lacking))}: {installation('run')}")


def _read(stream: str, text: str, owner: str | None, *, prune: bool) -> "list[StreamFile]":
    """Return the documents of a text, with the owner that was given."""
    from nats_scheduler.files.document import Problem
    from nats_scheduler.files.file_reading import read_files
    from nats_scheduler.files.planning import with_owner

    if not isinstance(text, str):
        raise TypeError(f"a text of {text!r:.80}: the content of a file is expected, such as path.read_text()")
    files, problems = read_files([("", text.encode("utf-8", "surrogatepass"))])
    for one in files:
        if one.stream != stream:
            reason = f"stream of {one.stream!r}: expected {stream!r}, the stream of these schedules"
            problems.append(Problem(one.place_of_stream(), one.stream, "", reason))
    if problems:
        raise InvalidFileError(list(map(_problem, problems)))
    return with_owner(files, owner, prune=prune)


def _problem(problem: "Problem") -> FileProblem:
    return FileProblem(problem.place.line, problem.subject, problem.text, problem.code)
