"""What `add` and `edit` report: the change, when the schedule fires next, and what may be meant otherwise.

Rule: the next fire is that of the message as it is stored, by the code of the sidecar; after a dry run, that of the
message as it would be stored now.
Cost: a request for the message, and those for the mode of the stream.
Limit: the days of calendars are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from nats_scheduler.cli.changed import print_change
from nats_scheduler.cli.changing import Access, How
from nats_scheduler.cli.output import print_json, print_warning, printable
from nats_scheduler.cli.tables import span_text, time_text
from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.control.current import Current, current
from nats_scheduler.control.errors import ScheduleError
from nats_scheduler.control.port import Served
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.reading import Reading
from nats_scheduler.observe.change_documents import change_document
from nats_scheduler.observe.documents import next_fire_document
from nats_scheduler.observe.message_warnings import warnings_about


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A change, and the schedule after it."""

    change: Change
    schedule: Current | None
    """None if it is not stored any more, as an `@at` that has fired at once."""
    now: int
    """The time (ns) by the server's clock."""
    warnings: list[str]

    @property
    def next_fire(self) -> int | None:
        """Its next fire time (ns), which is past if it fires at once; None while it is paused, or has ended."""
        one = self.schedule
        if one is None or one.is_paused or one.definition is None:
            return None
        timetable = one.timetable()
        return timetable.next_fire(max(self.now, timetable.stored_at)) if timetable.repeats else timetable.first_fire()


async def stored_schedule(access: Access, served: Served, change: Change, wanted: Current | None) -> StoredSchedule:
    """Read the schedule after a change; `wanted` is what a dry run would have stored."""
    now = access.store.now()
    found = wanted if wanted is not None else await _stored(access, served, change)
    warnings = [] if found is None else [*_warnings(found, served, now), *await _not_fired(access, served, found)]
    return StoredSchedule(change, found, now, warnings)


async def _stored(access: Access, served: Served, change: Change) -> Current | None:
    try:
        found = await current(access.store, served, change.subject)
    except ScheduleError:
        return None
    return found if found.sequence == change.after else None


def _warnings(found: Current, served: Served, now: int) -> list[str]:
    reading = Reading(definition=found.definition)
    return warnings_about(found.active_block, reading, served.rules_for(found.dialect), now)


async def _not_fired(access: Access, served: Served, found: Current) -> list[str]:
    """Return why nothing fires the schedule at the moment."""
    if served.is_fired_by_server(found.dialect):
        return []
    stream = await access.session.served_stream(served.name)
    problem = access.sidecars.why_not_served(stream)
    return [f"{served.name}: {problem}"] if problem else []


def print_stored(stored: StoredSchedule, how: How) -> None:
    """Print the change, the next fire, and warnings."""
    if how.as_json:
        print_json(_document(stored, how))
        return
    print_change(stored.change, dry_run=how.dry_run)
    click.echo(f"  {printable(_next_fire_text(stored))}")
    for warning in stored.warnings:
        print_warning(warning)


def _next_fire_text(stored: StoredSchedule) -> str:
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


def _document(stored: StoredSchedule, how: How) -> dict[str, object]:
    one = stored.schedule
    definition = None if one is None else one.definition
    fire = stored.next_fire
    return {
        "dry_run": how.dry_run,
        **change_document(stored.change, dry_run=how.dry_run),
        "dialect": None if one is None else one.dialect.name,
        "paused": one is not None and one.is_paused,
        "next_fire": None if definition is None else next_fire_document(definition.pattern, fire),
        "warnings": stored.warnings,
    }
