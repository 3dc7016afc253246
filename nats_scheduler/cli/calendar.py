"""`nats-scheduler calendar`: edit the calendars of days on which schedules do not fire.

Rule: an edit names the revision that it replaces. If another client wrote meanwhile, `add` and `rm` are done again on
what it wrote, and `set` and `delete` end with an error, so that no edit is lost.
Comments in a calendar stay where days are added or removed.
Cost: two or three requests. Limit: what is no calendar can only be replaced or deleted.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import click

from nats_scheduler.cli.arguments import file_content
from nats_scheduler.cli.completion import complete_calendar
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import CommandError, json_option, print_json, print_table, wide_option
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket, CalendarText
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import moment_text
from nats_scheduler.schedule.calendars import (
    MAX_CALENDAR_BYTES,
    NAME_GRAMMAR,
    Calendar,
    is_calendar_name,
    read_calendar,
    with_days,
    without_days,
)
from nats_scheduler.schedule.days import Days, days_text, read_days
from nats_scheduler.schedule.invalid import FaultError
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.load import ResolvedSettings

MAX_EDIT_ATTEMPTS = 8
"""The most attempts at an edit while others edit the same calendar."""

MAX_SHOWN_RANGES = 6
"""The most days and ranges of one calendar in the table of all calendars."""

Change = Callable[[str], str]


Edited = tuple[str, Sequence[Days]]
"""The outcome of an edit of a calendar (`created`, `changed`, `unchanged` or `deleted`), and the calendar's days."""

name_argument = click.argument("name", shell_complete=complete_calendar)
days_argument = click.argument("days", metavar="DAY…", nargs=-1)
file_option = click.option(
    "--file", type=click.Path(path_type=Path, allow_dash=True), help="Read the days from a file, or from -."
)


@click.group("calendar")
def command() -> None:
    """Edit the calendars of days on which schedules do not fire."""


@command.command("ls")
@connection_options
@wide_option
@json_option
def ls(resolved: ResolvedSettings, wide: bool, as_json: bool) -> None:
    """List the calendars.

    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """

    async def read(session: Session) -> list[CalendarText]:
        return [one async for one in session.calendars.texts()]

    found = in_session(resolved, read)
    if as_json:
        print_json({"calendars": [_document(one) for one in found]})
        return
    if not found:
        click.echo("there is no calendar: `nats-scheduler calendar set NAME DAY…` makes one")
        return
    rows = [[one.name, *_cells(one), moment_text(one.stored_at)] for one in found]
    print_table(["calendar", "days", "which", "edited (UTC)"], rows, wide=wide)


@command.command("show")
@name_argument
@connection_options
@json_option
def show(resolved: ResolvedSettings, name: str, as_json: bool) -> None:
    """Show the days of a calendar, as its text.

    Exit codes: 0 shown, 1 there is none, it is invalid, or the server is not reached, 2 wrong use or settings.
    """
    _check_name(name)
    found = in_session(resolved, lambda session: _existing(session.calendars, name))
    read = found.read()
    if as_json:
        print_json(_document(found))
    else:
        for line in found.text.decode("utf-8", "backslashreplace").splitlines():
            click.echo(printable(line))
    if not isinstance(read, Calendar):
        raise CommandError(f"calendar {name} is invalid, so schedules that name it wait: {printable(read.reason)}")


@command.command("set")
@name_argument
@days_argument
@file_option
@connection_options
@json_option
def set_days(resolved: ResolvedSettings, name: str, days: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Make a calendar of these days, or replace all days of one.

    DAY is a day such as 2026-12-25, or a range such as 2026-12-27..2027-01-01.
    Exit codes: 0 done, 1 the server refuses or is not reached, or another client wrote meanwhile, 2 wrong use, or a
    file that is no calendar.
    """
    text = _given(name, days, file)
    _finish(resolved, name, lambda bucket: _replaced(bucket, name, text), as_json=as_json)


@command.command("add")
@name_argument
@days_argument
@file_option
@connection_options
@json_option
def add(resolved: ResolvedSettings, name: str, days: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Add days to a calendar.

    Exit codes: 0 done, 1 there is no such calendar, or the server refuses or is not reached, 2 wrong use, or a file
    that is no calendar.
    """
    added = _days_of(_given(name, days, file))
    _finish(resolved, name, lambda bucket: _edited(bucket, name, lambda text: with_days(text, added)), as_json=as_json)


@command.command("rm")
@name_argument
@days_argument
@file_option
@connection_options
@json_option
def rm(resolved: ResolvedSettings, name: str, days: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Remove days from a calendar.

    Exit codes: as for add.
    """
    gone = _days_of(_given(name, days, file))
    _finish(resolved, name, lambda bucket: _edited(bucket, name, lambda t: without_days(t, gone)), as_json=as_json)


@command.command("delete")
@name_argument
@connection_options
@json_option
def delete(resolved: ResolvedSettings, name: str, as_json: bool) -> None:
    """Delete a calendar; schedules that name it wait until it exists again.

    Exit codes: 0 deleted, 1 there is no such calendar, or the server refuses or is not reached, 2 wrong use or
    settings.
    """
    _check_name(name)
    _finish(resolved, name, lambda bucket: _deleted(bucket, name), as_json=as_json)


# -- what was given -------------------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if not is_calendar_name(name):
        raise click.UsageError(f"{name!r}: expected the name of a calendar, {NAME_GRAMMAR}")


def _given(name: str, days: Sequence[str], file: Path | None) -> str:
    """Return the text of the days that were given; end the command with 2 if they cannot be read."""
    _check_name(name)
    if bool(days) == (file is not None):
        raise click.UsageError("expected days, or --file with a file of days")
    try:
        for day in days:
            read_days(day)
    except FaultError as fault:
        raise click.UsageError(f"DAY {fault}") from None
    text = "".join(f"{day}\n" for day in days).encode() if file is None else file_content(file, MAX_CALENDAR_BYTES)
    read = read_calendar(name, text)
    if not isinstance(read, Calendar):
        raise click.UsageError(f"{'the days' if file is None else str(file)}: {read.reason}")
    return text.decode()


def _days_of(text: str) -> Sequence[Days]:
    read = read_calendar("given", text.encode())
    assert isinstance(read, Calendar), "it was checked before"
    return read.days or ()


# -- edits ----------------------------------------------------------------------------------------------------------


def _finish(
    resolved: ResolvedSettings, name: str, edit: Callable[[CalendarBucket], Awaitable[Edited]], *, as_json: bool
) -> None:
    outcome, days = in_session(resolved, lambda session: edit(session.calendars))
    if as_json:
        print_json({"calendar": name, "outcome": outcome, **_days_document(days)})
        return
    number = _number(days)
    of_days = "" if outcome == "deleted" else f", {number:,} day{'' if number == 1 else 's'}"
    click.echo(f"calendar {name} {outcome}{of_days}")


async def _existing(bucket: CalendarBucket, name: str) -> CalendarText:
    found = await bucket.text(name)
    if found is None:
        raise CommandError(f"there is no calendar {name}: `nats-scheduler calendar set {name} DAY…` makes one")
    return found


async def _replaced(bucket: CalendarBucket, name: str, text: str) -> Edited:
    await bucket.open()
    found, revision = await bucket.revised_text(name)
    if found is not None and found.text == text.encode():
        return "unchanged", _days_of(text)
    if not await bucket.write(name, text.encode(), revision):
        raise _written_meanwhile(name)
    return "created" if found is None else "changed", _days_of(text)


async def _edited(bucket: CalendarBucket, name: str, change: Change) -> Edited:
    for _ in range(MAX_EDIT_ATTEMPTS):
        found = await _existing(bucket, name)
        read = found.read()
        if not isinstance(read, Calendar):
            reason = f"{printable(read.reason)}; `nats-scheduler calendar set` replaces it"
            raise CommandError(f"calendar {name} is invalid: {reason}")
        before = found.text.decode()
        after = change(before)
        days = read_calendar(name, after.encode())
        if not isinstance(days, Calendar):
            raise CommandError(f"calendar {name} would be invalid: {days.reason}")
        if days == read:
            return "unchanged", days.days or ()
        if await bucket.write(name, after.encode(), found.revision):
            return "changed", days.days or ()
    raise _written_meanwhile(name)


async def _deleted(bucket: CalendarBucket, name: str) -> Edited:
    found = await _existing(bucket, name)
    if not await bucket.write(name, None, found.revision):
        raise _written_meanwhile(name)
    return "deleted", ()


def _written_meanwhile(name: str) -> CommandError:
    return CommandError(f"another client wrote calendar {name} meanwhile: look at it, and repeat the command")


# -- what is shown --------------------------------------------------------------------------------------------------


def _document(found: CalendarText) -> dict[str, object]:
    read = found.read()
    days = read.days if isinstance(read, Calendar) else None
    return {
        "calendar": found.name,
        "revision": found.revision,
        "edited": format_rfc3339(found.stored_at),
        "error": None if isinstance(read, Calendar) else read.reason,
        **_days_document(days or ()),
    }


def _days_document(days: Sequence[Days]) -> dict[str, object]:
    return {"days": _number(days), "ranges": [days_text(one) for one in days]}


def _cells(found: CalendarText) -> tuple[str, str]:
    read = found.read()
    if not isinstance(read, Calendar):
        return "invalid", printable(read.reason)
    days = read.days or ()
    more = len(days) - MAX_SHOWN_RANGES
    shown = ", ".join(days_text(one) for one in days[:MAX_SHOWN_RANGES])
    return f"{_number(days):,}", shown + (f" and {more:,} more" if more > 0 else "")


def _number(days: Sequence[Days]) -> int:
    return sum(one.last - one.first + 1 for one in days)
