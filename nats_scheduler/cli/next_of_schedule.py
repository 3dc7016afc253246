"""`nats-scheduler next STREAM SUBJECT`: when a schedule fires next that is stored.

Rule: it is found as `ls` finds it: a running sidecar is asked, and if none answers the stream is read. Its fires are
those of its pattern until the stream removes it.
Cost: a request, or all of the stream, headers only. Limit: the next fire of a schedule of the server is that of its
pattern.
"""

from collections.abc import Mapping
from typing import Any

import click

from nats_scheduler.cli.arguments import check_schedule, check_stream
from nats_scheduler.cli.fire_table import ending_text, next_document, print_fires
from nats_scheduler.cli.listing import Listing, end_reason, not_stored_error, read_listing
from nats_scheduler.cli.options import resolve_connection
from nats_scheduler.cli.output import CommandError, print_json
from nats_scheduler.cli.session import in_session
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ListedSchedule, Query
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.explanations import excepted_document
from nats_scheduler.observe.texts import how_to_resume, printable
from nats_scheduler.observe.times import moment_text
from nats_scheduler.schedule.clock_changes import with_clock_changes
from nats_scheduler.service.pattern_endpoints import fires_of


def show_next_fires(
    connection: Mapping[str, Any], stream: str, subject: str, count: int, *, wide: bool, as_json: bool
) -> None:
    """Show the next fires of the schedule on a subject of a stream; `connection` has the flags of the connection.

    Ends the command with 1 if there is no schedule, or an invalid one.
    """
    check_stream(stream)
    check_schedule(subject)
    resolved = resolve_connection(connection)
    listing = in_session(resolved, lambda session: read_listing(session, resolved, stream, Query(subject=subject)))
    one = _schedule(listing, subject)
    timetable = one.timetable
    fires, ends = done(fires_of(one, count))
    zone = one.pattern.time_zone
    excepted = list(timetable.excepted_fires(listing.at, fires[-1])) if fires else []
    if (name := one.pattern.unknown_calendar) is not None:
        click.echo(f"the days of calendar {name} are not known here, and nothing fires on them", err=True)
    entries = with_clock_changes(one.pattern, min([listing.at, *fires[:1]]), fires)
    if as_json:
        shown = next_document(timetable, zone, listing.at, entries, ends=ends)
        rows = [excepted_document(row) for row in excepted]
        print_json({"stream": stream, "subject": subject, **shown, "excepted": rows})
        return
    listing.sidecars.print_warnings()
    if fires:
        print_fires(timetable, entries, listing.at, excepted, wide=wide)
        if ends:
            click.echo(f"then it ends: {_why_it_ends(one, timetable)}")
    elif one.state is State.PAUSED:
        how = how_to_resume(stream, subject, one.terms.dialect)
        click.echo(printable(f"{subject} is paused since {moment_text(one.stored_at)}; to resume it: {how}"))
    else:
        click.echo(printable(f"{subject} does not fire again: it is {one.state.value}"))


def _schedule(listing: Listing, subject: str) -> ListedSchedule:
    if listing.schedule is not None:
        return listing.schedule
    for _, rejected in listing.rejected:
        raise CommandError(printable(f"the schedule on {subject!r} never fires: {rejected.rejection.shortened()}"))
    raise not_stored_error(listing.streams[0].name, subject)


def _why_it_ends(one: ListedSchedule, timetable: Timetable) -> str:
    if not timetable.repeats or one.ends is None:
        return ending_text(timetable)
    return f"at {moment_text(one.ends)} it is removed by {end_reason(one)}"
