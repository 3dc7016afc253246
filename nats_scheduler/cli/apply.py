"""`nats-scheduler apply`, `diff` and `export`: make the schedules of streams those of files, and the other way round.

Rule: what will be done is shown before, and is confirmed; what was shown is what is done, and what `diff` shows is the
plan that `apply` carries out. Nothing is planned from files with a problem: the command names all that the files have
by themselves, or else all that their streams have with them. Of each schedule that is changed, each header is shown
before and after. A schedule that another client has changed since is left as it is and reported, and the others are
done; so an apply that failed or was killed is finished by running it again.
What is exported gives the same schedules, byte for byte, when it is applied; what cannot be applied is named.
Cost: see `files.planning` and `control.plan`; `control.each.MAX_AT_ONCE` schedules are changed at a time.
Limit: values are cut for people; the document has them whole, with bytes that are not UTF-8 as `\\udcXX`.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.arguments import check_filter, check_stream, file_content
from nats_scheduler.cli.changing import ChangeAccess, How, change_options, error_about, in_store
from nats_scheduler.cli.completion import complete_stream
from nats_scheduler.cli.many import counts_text, error_documents
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import (
    EXIT_FAILED,
    EXIT_WRONG_USE,
    Command,
    CommandError,
    decorated,
    json_option,
    print_json,
    print_warning,
)
from nats_scheduler.cli.process import progress_bar
from nats_scheduler.control.carrying_out import carry_out_all
from nats_scheduler.control.changes import Author, Change
from nats_scheduler.control.each import Done
from nats_scheduler.control.exported import exported
from nats_scheduler.control.plan import Action, Difference, Step
from nats_scheduler.files.document import Problem
from nats_scheduler.files.file_reading import StreamFile, read_files
from nats_scheduler.files.planning import StreamPlan, plan_files, with_owner
from nats_scheduler.files.writing import Format, stream_document, written_file
from nats_scheduler.message.findings import Severity
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.observe.documents import finding_document, made_change_document
from nats_scheduler.observe.texts import printable
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS
from nats_scheduler.settings.load import ResolvedSettings

# -- what is printed of a plan -----------------------------------------------------------------------------------

MARKS = {Action.ADD: "+", Action.REMOVE: "-"}
"""The first character of a line; all other changes have a `~`."""

_WORDS = {
    Action.ADD: "to add",
    Action.REPLACE: "to change",
    Action.PAUSE: "to pause",
    Action.RESUME: "to resume",
    Action.REMOVE: "to remove",
}


def print_plans(plans: Sequence[StreamPlan], most: int | None = None) -> None:
    """Print what would be done in each stream, at most `most` changes of each; notes go to standard error."""
    for one in plans:
        steps = one.plan.steps
        shown = steps if most is None else steps[:most]
        for step in shown:
            click.echo("\n".join(map(printable, _lines(step, one))))
        if len(shown) < len(steps):
            click.echo(f"and {len(steps) - len(shown):,} more in stream {one.plan.stream}: `diff` shows all of them")
        click.echo(printable(summary(one)))
        for step in shown:
            for text in _said(step):
                print_warning(printable(f"{step.subject}: {text}"))


def _said(of: Step | Change) -> list[str]:
    """Return what to know of a change that is made or was made; a finding that asks for nothing is in JSON only."""
    return [*of.notes, *(one.sentence for one in of.findings if one.severity is not Severity.NOTE)]


def summary(one: StreamPlan) -> str:
    """Return the numbers of one plan as one line."""
    plan = one.plan
    numbers = Counter(step.action for step in plan.steps)
    parts = [f"{numbers[action]:,} {words}" for action, words in _WORDS.items() if numbers[action]]
    parts.append(f"{plan.unchanged:,} unchanged")
    if plan.ended:
        parts.append(f"{len(plan.ended):,} not added, because their time has passed")
    if plan.unlisted:
        parts.append(f"{plan.unlisted:,} of {one.owner} in no file (--prune removes them)")
    return f"stream {plan.stream}: {', '.join(parts)}"


def plans_document(plans: Sequence[StreamPlan]) -> dict[str, Any]:
    """Describe plans."""
    return {
        "streams": [
            {
                "stream": one.plan.stream,
                "owner": one.owner,
                "unchanged": one.plan.unchanged,
                "ended": list(one.plan.ended),
                "unlisted": one.plan.unlisted,
            }
            for one in plans
        ],
        "steps": [_step_document(one.plan.stream, step) for one in plans for step in one.plan.steps],
    }


def _step_document(stream: str, step: Step) -> dict[str, Any]:
    """Describe a step; bytes that are not UTF-8 are shown as `\\udcXX`."""
    return {
        "stream": stream,
        "subject": step.subject,
        "action": step.action,
        "differences": [
            {"name": one.name, "old": list(map(decoded, one.old)), "new": list(map(decoded, one.new))}
            for one in step.differences
        ],
        "notes": list(step.notes),
        "findings": [*map(finding_document, step.findings)],
    }


def _lines(step: Step, one: StreamPlan) -> Iterator[str]:
    yield f"{MARKS.get(step.action, '~')} {one.plan.stream}  {step.subject}"
    if step.action is Action.ADD:
        yield f"    {_described(step)}"
    for difference in step.differences:
        yield f"    {difference.name}: {_value(difference, difference.old)} → {_value(difference, difference.new)}"


def _described(step: Step) -> str:
    """Return what a new schedule is, in one line: its pattern and its target."""
    names = (b"Nats-Schedule", b"X-Nats-Schedule", b"Nats-Schedule-X-Paused", b"X-Nats-Schedule-X-Paused")
    found = [(name, value) for name in names if (value := header_value(step.block, name)) is not None]
    targets = (b"Nats-Schedule-Target", b"X-Nats-Schedule-Target", b"X-Nats-Schedule-X-Target")
    target = next((value for name in targets if (value := header_value(step.block, name)) is not None), b"")
    name, pattern = found[0] if found else (b"", b"")
    paused = ", paused" if name.endswith(b"Paused") else ""
    return f"{decoded(pattern)} → {decoded(target)}{paused}"


def _value(difference: Difference, values: Sequence[bytes]) -> str:
    if not values:
        return "none"
    if difference.name == "paused":
        return decoded(values[0])
    return ", ".join(map(_shown, values))


def _shown(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes"
    return repr(text) if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]!r}… ({len(value):,} bytes)"


# -- what was asked for --------------------------------------------------------------------------------------------

SUFFIXES = (".yaml", ".yml", ".json")
"""The files that are read of a directory."""


@dataclass(frozen=True, slots=True)
class WantedFile:
    """The request of the user: the files, and how they are compared."""

    files: Sequence[StreamFile]
    prune: bool
    takes_over: bool


def wanted_options(command: Command) -> Command:
    """Give a command its files and the options that say how they are compared: it gets them as `wanted`."""

    @wraps(command)
    def run(files: tuple[Path, ...], owner: str | None, prune: bool, take_over: bool, **arguments: Any) -> Any:
        try:
            read = with_owner(_read(files), owner, prune=prune)
        except ValueError as error:
            raise click.UsageError(f"--{error}") from None
        return command(wanted=WantedFile(read, prune, take_over), **arguments)

    return decorated(
        run,
        click.argument(
            "files",
            metavar="FILE…",
            nargs=-1,
            required=True,
            type=click.Path(path_type=Path, exists=True, allow_dash=True),
        ),
        click.option("--owner", metavar="NAME", help="The label, X-Owner, of all schedules in the files."),
        click.option("--prune", is_flag=True, help="Remove schedules with the owner's label that are in no file."),
        click.option("--take-over", is_flag=True, help="Change schedules that carry the label of another owner too."),
        connection_options,
    )


async def plan_all(access: ChangeAccess, wanted: WantedFile) -> list[StreamPlan]:
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


# -- the commands --------------------------------------------------------------------------------------------------

MAX_STEPS_SHOWN = 200
"""The most changes of one stream that are shown for people."""


@click.command("apply")
@wanted_options
@click.option("--yes", is_flag=True, help="Do it without a question.")
@change_options
def apply_command(resolved: ResolvedSettings, wanted: WantedFile, yes: bool, how: How) -> None:
    """Make the schedules of streams those of files.

    FILE is a file of schedules, a directory of such files, or - for standard input.
    Schedules that are in no file stay, unless --prune is given and they carry the owner's label.
    Exit codes: 0 done, 1 a schedule could not be changed, a stream would not accept the files, or the server refuses
    or is not reached, 2 wrong use, settings, or files.
    """
    can_ask = sys.stdin.isatty() and sys.stderr.isatty()
    if not (yes or how.dry_run or can_ask):
        raise click.UsageError("--yes is needed where nobody can be asked; --dry-run shows what would be done")
    plans = in_store(resolved, lambda access: plan_all(access, wanted))
    if not how.as_json:
        print_plans(plans, MAX_STEPS_SHOWN)
    number = sum(len(one.plan.steps) for one in plans)
    done: list[Done] = []
    if number and not how.dry_run:
        if not yes:  # the connection is closed while a person reads the question
            click.confirm(f"make {number:,} change{'' if number == 1 else 's'}?", abort=True, err=True)
        done = in_store(resolved, lambda access: _carry_out(access, plans, how.author), quiet=True)
    if how.as_json:
        print_json({"dry_run": how.dry_run, **plans_document(plans), **_document(plans, done)})
    else:
        _print(plans, done)
    if any(one.failures for one in done):
        raise click.exceptions.Exit(EXIT_FAILED)


async def _carry_out(access: ChangeAccess, plans: Sequence[StreamPlan], author: Author) -> list[Done]:
    done = []
    async with access.lasting() as store:
        with progress_bar() as bar:
            for one in plans:
                stream, steps = one.plan.stream, one.plan.steps
                notify = partial(bar.show, stream, total=len(steps))
                done.append(await carry_out_all(store, one.served, steps, author, notify))
    return done


def _print(plans: Sequence[StreamPlan], done: Sequence[Done]) -> None:
    for plan, one in zip(plans, done, strict=False):
        planned = {step.subject: _said(step) for step in plan.plan.steps}
        for change in one.changes.values():
            for text in _said(change):
                if text not in planned[change.subject]:
                    print_warning(printable(f"{change.subject}: {text}"))
        for subject, error in one.failures.items():
            CommandError(f"stream {plan.plan.stream}: {error_about(subject, error)}").show()
        if counts := counts_text(one):
            click.echo(f"stream {plan.plan.stream}: {counts}")


def _document(plans: Sequence[StreamPlan], done: Sequence[Done]) -> dict[str, Any]:
    errors = [
        {"stream": plan.plan.stream, **error}
        for plan, one in zip(plans, done, strict=False)
        for error in error_documents(one)
    ]
    changes = [made_change_document(change) for one in done for change in one.changes.values()]
    return {"changes": changes, "errors": errors}


EXIT_DIFFERENT = 1
"""As of `diff(1)`."""


@click.command("diff")
@wanted_options
@json_option
def diff_command(resolved: ResolvedSettings, wanted: WantedFile, as_json: bool) -> None:
    """Show what `apply` would do with files of schedules.

    FILE is a file of schedules, a directory of such files, or - for standard input.
    Exit codes: 0 no difference, 1 differences, 2 wrong use, a file that is wrong or that a stream would not accept, or
    the server refuses or is not reached.
    """
    plans = _planned(resolved, wanted)
    differ = any(one.plan.steps for one in plans)
    if as_json:
        print_json({"differences": differ, **plans_document(plans)})
    else:
        print_plans(plans)
    raise click.exceptions.Exit(EXIT_DIFFERENT if differ else 0)


def _planned(resolved: ResolvedSettings, wanted: WantedFile) -> list[StreamPlan]:
    try:
        return in_store(resolved, lambda access: plan_all(access, wanted))
    except CommandError as error:
        raise CommandError(error.message, EXIT_WRONG_USE) from None


# -- export ---------------------------------------------------------------------------------------------------------

FORMATS: tuple[Format, ...] = ("yaml", "json")

Document = dict[str, Any]
"""The schedules of a stream, as a file has them."""


@click.command("export")
@click.argument("streams", metavar="STREAM…", nargs=-1, required=True, shell_complete=complete_stream)
@connection_options
@click.option("--filter", "subjects", metavar="SUBJECT", help="Only schedules on subjects that match, as 'orders.>'.")
@click.option("--owner", metavar="NAME", help="Only schedules with this label (X-Owner); the file names the owner.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Unless --output ends in .json: yaml.")
@click.option(
    "--output",
    metavar="FILE|DIR",
    type=click.Path(),
    help="Write into a file, or into a directory (DIR/), one file for each stream.",
)
def export_command(
    resolved: ResolvedSettings,
    streams: tuple[str, ...],
    subjects: str | None,
    owner: str | None,
    form: Format | None,
    output: str | None,
) -> None:
    """Write the schedules of streams as files for version control.

    Exit codes: 0 done, 1 a stream does not exist or is not served, or the server refuses or is not reached, 2 wrong use
    or settings.
    """
    for stream in streams:
        check_stream(stream)
    check_filter("--filter", subjects)
    names = list(dict.fromkeys(streams))

    async def read(access: ChangeAccess) -> list[Document]:
        return [await _exported(access, name, subjects or ">", owner) for name in names]

    _write(in_store(resolved, read), form, output)


async def _exported(access: ChangeAccess, stream: str, subjects: str, owner: str | None) -> Document:
    served, declared, left_out = await exported(access.store, stream, subjects, owner)
    for one in left_out:
        print_warning(printable(f"stream {stream}: {one.subject} is left out: {one.reason}"))
    return stream_document(stream, declared, owner=owner, spelling=served.dialects[0])


def _write(documents: Sequence[Document], form: Format | None, output: str | None) -> None:
    if output is None:
        click.echo(written_file(documents, form or "yaml"), nl=False)
        return
    path, is_folder = Path(output), output.endswith("/") or Path(output).is_dir()
    form = form or ("json" if path.suffix == ".json" and not is_folder else "yaml")
    files = {path / f"{one['stream']}.{form}": [one] for one in documents} if is_folder else {path: documents}
    try:
        if is_folder:
            path.mkdir(parents=True, exist_ok=True)
        for file, some in files.items():
            file.write_bytes(written_file(some, form).encode())
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    number = sum(len(one["schedules"]) for one in documents)
    click.echo(f"{number:,} schedule{'' if number == 1 else 's'} written to {output}", err=True)
