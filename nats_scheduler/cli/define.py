"""`nats-scheduler add` and `edit`: store a schedule, or change parts of one.

Rule: an option is a field of a form (`message.schedule_form`), whose value is written as it was given; whether it is
valid is decided by the code that reads stored messages, and what that would reject is not stored (`control.edits`).
The spelling of the headers is decided as for Python programs (`control.spelling`). `edit` changes only what is named,
byte for byte; an edit of another client in between is kept, or refuses this one if the operator expects a version.
The next fire that is reported is that of the message as it is stored, by the code of the sidecar; after a dry run, that
of the message as it would be stored now.
Cost: some requests. Limit: a value is one line, as every header is; the days of calendars are not known here.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.arguments import duration_of, file_content, instant_of
from nats_scheduler.cli.changing import ChangeAccess, How, change_options, in_store, one_options, print_change
from nats_scheduler.cli.check import one_line, split_header
from nats_scheduler.cli.output import EXIT_WRONG_USE, Command, CommandError, decorated, print_json, print_warning
from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.edits import add, edit_latest
from nats_scheduler.control.errors import RejectedError, SchedulerError
from nats_scheduler.control.spelling import spelling_of
from nats_scheduler.control.standing import current
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.control.words import edited, named_header
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE
from nats_scheduler.message.headers import decoded, encoded, header_value
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.policies import extension_prefix, named_policies
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.schedule_form import BESIDE_PATTERN, Edit, Field, ScheduleForm, diff, names_of_form
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.documents import made_change_document, next_fire_document
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import span_text, time_text
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.load import ResolvedSettings

PATTERN_OPTIONS = "--at, --after, --every or --cron"


NOTHING = ScheduleForm()


@dataclass(frozen=True, slots=True)
class Given:
    """A schedule as the options describe it: what is not given is None, or empty, in its form."""

    form: ScheduleForm = NOTHING
    after: int | None = None
    """The time (ns) from now until the one fire, in place of a pattern."""

    @property
    def has_pattern(self) -> bool:
        """True if one of the options says when it fires."""
        return self.form.pattern is not None or self.after is not None

    @property
    def has_target(self) -> bool:
        """True if one of the options says where the fires go."""
        return self.form.target is not None or "X-Target" in dict(self.form.policies)

    def at(self, now: int) -> ScheduleForm:
        """Return the form at a time (ns) by the server's clock."""
        if self.after is None:
            return self.form
        return replace_fields(self.form, pattern=f"@at {format_rfc3339(now + self.after)}")


def definition_options(command: Command) -> Command:
    """Give a command the options that define a schedule, and its body: it gets them as `given` (`Given`)."""

    @wraps(command)
    def run(**arguments: Any) -> Any:
        values = {name: arguments.pop(name) for name in _NAMES}
        return command(given=_given(**values), **arguments)

    return decorated(run, *_OPTIONS)


def _option(field: Field) -> Callable[[Command], Command]:
    """Return the option of a field of the form."""
    name = f"--{field.typed.replace('_', '-')}"
    if field.on:
        return click.option(name, field.name, is_flag=True, help=field.words)
    return click.option(name, field.name, metavar=field.kind.upper(), help=field.words)


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.argument("body", required=False),
    click.option("--body-file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True), help="Its body."),
    click.option("--at", metavar="TIME", help="Fire once at this time, RFC 3339 with an offset."),
    click.option("--after", metavar="DURATION", help="Fire once after this time, such as 90m."),
    click.option("--every", metavar="DURATION", help="Fire at this interval, such as 5m."),
    click.option("--cron", metavar="PATTERN", help="Fire by a cron pattern, such as '0 30 9 * * mon-fri' or @daily."),
    *map(_option, BESIDE_PATTERN),
    click.option("--policy", "policies", metavar="NAME=VALUE", multiple=True, help="A policy, such as Jitter=30s."),
    click.option("-H", "--header", "headers", metavar="NAME:VALUE", multiple=True, help="A header, as for `nats pub`."),
)
_NAMES = (
    *("body", "body_file", "at", "after", "every", "cron", "policies", "headers"),
    *(field.name for field in BESIDE_PATTERN),
)


def _given(
    *,
    body: str | None,
    body_file: Path | None,
    at: str | None,
    after: str | None,
    every: str | None,
    cron: str | None,
    policies: Sequence[str],
    headers: Sequence[str],
    **values: Any,
) -> Given:
    if sum(one is not None for one in (at, after, every, cron)) > 1:
        raise click.UsageError(f"expected only one of {PATTERN_OPTIONS}")
    if at is not None:
        instant_of("--at", at)
    pattern = f"@at {at}" if at is not None else f"@every {every}" if every is not None else cron
    if body is not None and body_file is not None:
        raise click.UsageError("expected a BODY or --body-file, not both")
    form = ScheduleForm(
        _line(pattern),
        policies=tuple(sorted(_policies(policies))),
        headers=tuple(map(_own_header, headers)),
        body=file_content(body_file) if body_file is not None else None if body is None else encoded(body),
    )
    fields: dict[str, Any] = {field.name: _line(field.text(values[field.name])) for field in BESIDE_PATTERN}
    return Given(replace_fields(form, **fields), None if after is None else duration_of("--after", after))


def _line(text: str | None) -> str | None:
    return None if text is None else decoded(one_line(text.strip(" \t")))


def _policies(texts: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Read the values of `--policy`."""
    if wrong := [text for text in texts if "=" not in text]:
        raise click.UsageError(f"--policy of {wrong[0]!r}: expected NAME=VALUE, such as Jitter=30s")
    pairs = [text.split("=", 1) for text in texts]
    found = named_policies((name, _line(value) or "") for name, value in pairs)
    if isinstance(found, Rejection):
        raise click.UsageError(f"--policy: {found}")
    return found


def _own_header(text: str) -> tuple[str, str]:
    name, value = split_header(text)
    for dialect in DIALECTS:
        if name in names_of_form(dialect) or name.startswith(extension_prefix(dialect)):
            raise click.UsageError(f"-H of {text!r}: the other options, such as --ttl and --policy, write this header")
    return decoded(name), decoded(value)


# -- what is reported ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DefinedSchedule:
    """A change, and the schedule after it."""

    change: Change
    schedule: Current | None
    """None if it is not stored any more, as an `@at` that has fired at once."""
    now: int
    """The time (ns) by the server's clock."""

    @property
    def next_fire(self) -> int | None:
        """Its next fire time (ns), which is past if it fires at once; None while it is paused, or has ended."""
        one = self.schedule
        if one is None or one.is_paused or one.definition is None:
            return None
        timetable = one.timetable()
        return timetable.next_fire(max(self.now, timetable.stored_at)) if timetable.repeats else timetable.first_fire()


async def stored_schedule(
    access: ChangeAccess, served: Served, change: Change, wanted: Current | None
) -> DefinedSchedule:
    """Read the schedule after a change; `wanted` is what a dry run would have stored."""
    now = access.store.now()
    found = wanted if wanted is not None else await _stored(access, served, change)
    if found is not None and not served.is_fired_by_server(found.dialect):
        problem = access.sidecars.why_not_served(await access.session.served_stream(served.name))
        change = replace_fields(change, findings=(*change.findings, *([problem] if problem else [])))
    return DefinedSchedule(change, found, now)


async def _stored(access: ChangeAccess, served: Served, change: Change) -> Current | None:
    try:
        found = await current(access.store, served, change.subject)
    except SchedulerError:
        return None
    return found if found.sequence == change.after else None


def print_stored(stored: DefinedSchedule, how: How) -> None:
    """Print the change, the next fire, and warnings."""
    if how.as_json:
        print_json(_document(stored, how))
        return
    print_change(stored.change, dry_run=how.dry_run)
    click.echo(f"  {printable(_next_fire_text(stored))}")


def _next_fire_text(stored: DefinedSchedule) -> str:
    fire, one = stored.next_fire, stored.schedule
    word = "first fire" if stored.change.kind is Kind.ADDED else "next fire"
    if one is None:
        return "it is not stored any more: it has fired, or another client removed it"
    if one.is_paused:
        return "it is paused: nothing fires it"
    if fire is None:
        return "it does not fire again"
    sent = one.timetable().send_time_of(fire)
    delayed = "" if sent == fire else f", sent at {time_text(sent)}"
    when = f"in {span_text(sent - stored.now)}" if sent > stored.now else "at once, since its time has passed"
    spelling = ", with portable headers" if one.dialect is PORTABLE else ""
    return f"{word} at {time_text(fire)}{delayed}, {when}{spelling}"


def _document(stored: DefinedSchedule, how: How) -> dict[str, object]:
    one = stored.schedule
    definition = None if one is None else one.definition
    fire = stored.next_fire
    return {
        "dry_run": how.dry_run,
        **made_change_document(stored.change, dry_run=how.dry_run),
        "dialect": None if one is None else one.dialect.name,
        "paused": one is not None and one.is_paused,
        "next_fire": None if definition is None else next_fire_document(definition.pattern, fire),
    }


# -- the commands --------------------------------------------------------------------------------------------------


@click.command("add")
@one_options
@definition_options
@click.option("--replace", is_flag=True, help="Replace another schedule on SUBJECT.")
@click.option("--portable", is_flag=True, help="Write portable headers (X-Nats-Schedule), which the sidecar fires.")
@change_options
def add_command(
    resolved: ResolvedSettings, stream: str, subject: str, given: Given, replace: bool, portable: bool, how: How
) -> None:
    """Store a schedule, if it is valid.

    It is stored on SUBJECT, in STREAM, with BODY; if the same is stored there already, nothing is done.
    Exit codes: 0 done, also if it was there, 1 it is invalid, another schedule is there, or the server refuses or is
    not reached, 2 wrong use or settings.
    """
    if not given.has_pattern:
        raise click.UsageError(f"expected one of {PATTERN_OPTIONS}")
    if not given.has_target:
        raise click.UsageError("expected --target with the subject where the fires go")
    stored = in_store(
        resolved, lambda access: _add(access, stream, subject, given, how, replace=replace, portable=portable)
    )
    print_stored(stored, how)


async def _add(
    access: ChangeAccess, stream: str, subject: str, given: Given, how: How, *, replace: bool, portable: bool
) -> DefinedSchedule:
    served = await access.store.served(stream)
    now = access.store.now()
    # Where the server fires nothing, it does not matter whether a sidecar serves the stream at the moment.
    has_sidecar = not served.is_native or bool(access.sidecars.serving(await access.session.served_stream(served.name)))
    form = given.at(now)
    dialect = spelling_of(served, form.items(ADR51), now, portable=portable, has_sidecar=has_sidecar)
    block, body = form.to_block(dialect), form.body or b""
    if isinstance(block, Rejection):
        raise RejectedError(block)
    change = await add(
        access.store, stream, subject, block, body, replace=replace, author=how.author, dry_run=how.dry_run
    )
    wanted = None
    if how.dry_run:
        wanted = read_current(StoredMessage(subject, 1, access.store.now(), block, body), served)
    return await stored_schedule(access, served, change, wanted)


@click.command("edit")
@one_options
@definition_options
@click.option(
    "--unset",
    metavar="NAME",
    multiple=True,
    help=f"Remove {', '.join(one.typed for one in BESIDE_PATTERN)}, a policy like X-Jitter, or a header; repeatable.",
)
@click.option("--expect", metavar="SEQ", type=click.IntRange(1), help="Change it only if this is its sequence.")
@change_options
def edit_command(
    resolved: ResolvedSettings,
    stream: str,
    subject: str,
    given: Given,
    unset: tuple[str, ...],
    expect: int | None,
    how: How,
) -> None:
    """Change parts of a stored schedule.

    It is the schedule on SUBJECT, in STREAM; what is not named stays as it is, also that it is paused.
    Exit codes: 0 done, 1 there is none, it would be invalid, another client changed it, or the server refuses or is
    not reached, 2 wrong use or settings.
    """
    if given == Given() and not unset:
        raise click.UsageError("nothing is to be changed: expected an option such as --every, --unset or a BODY")
    stored = in_store(resolved, lambda access: _edit(access, stream, subject, given, unset, expect, how))
    print_stored(stored, how)


async def _edit(
    access: ChangeAccess, stream: str, subject: str, given: Given, unset: Sequence[str], expect: int | None, how: How
) -> DefinedSchedule:
    served = await access.store.served(stream)
    change, left = await edited_schedule(access.store, served, subject, given, unset, expect, how)
    return await stored_schedule(access, served, change, left if how.dry_run else None)


async def edited_schedule(
    store: ScheduleStore,
    served: Served,
    subject: str,
    given: Given,
    unset: Sequence[str],
    expect: int | None,
    how: How,
) -> tuple[Change, Current | None]:
    """Edit a schedule, again if another client has changed it meanwhile; return the schedule as it is left, too."""
    left: Current | None = None

    def wanted(found: Current) -> Edit:
        nonlocal left
        one = _wanted_edit(found, given, unset, store.now())
        left = _edited(served, found, one, store.now())
        return one

    change = await edit_latest(
        store, served.name, subject, wanted, expected=expect, author=how.author, dry_run=how.dry_run
    )
    return change, left


def _wanted_edit(found: Current, given: Given, unset: Sequence[str], now: int) -> Edit:
    """Return the edit of the schedule as it is stored; warn of names to remove that it does not have."""
    names = [named_header(found.dialect, one_line(name).decode("utf-8", "surrogateescape")) for name in unset]
    for name in names:
        if header_value(found.active_block, name) is None:
            print_warning(printable(f"{found.subject} has no {decoded(name)}: there is nothing to remove"))
    edit = diff(NOTHING, given.at(now), found.dialect)
    _check_repeated([*names, *(name for name, _value in edit.set)])
    return replace_fields(edit, unset=names)


def _check_repeated(names: Sequence[bytes]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise CommandError(f"{decoded(name)} is to be changed twice: expected one change", EXIT_WRONG_USE)


def _edited(served: Served, found: Current, wanted: Edit, now: int) -> Current | None:
    """Return the schedule as an edit would leave it: it keeps its stored time if it keeps its pattern."""
    message, block = found.message, edited(found.active_block, wanted)
    stored_at = now if found.dialect.schedule in dict(wanted.set) else message.stored_at
    block = paused_block(block, found.dialect) if found.is_paused else block
    return read_current(message._replace(block=block, stored_at=stored_at), served)
