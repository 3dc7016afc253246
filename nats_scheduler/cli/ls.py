"""`nats-scheduler ls`: the schedules that are stored, when each fires next, and what is wrong with the others.

Rule: the list is what the scheduler would hold if it started now (`runtime.stored_listing`), and of each schedule what
the running sidecars say of its fires (`runtime.shared`). So everything that is listed as valid fires, unless it is
listed as failing, and the command itself fires and removes nothing.
Columns without a value for any listed schedule are left out; JSON always has all of them.
A sidecar that serves the stream is asked for it (`service.client`); if none answers, the stream is read.
Cost: some requests, or the stream's headers are read once; 100,000 schedules take seconds.
Limit: streams are read one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from nats_scheduler.cli.arguments import check_filter, check_stream, zone_option
from nats_scheduler.cli.completion import complete_stream
from nats_scheduler.cli.listing import FailingSchedules, Listing, read_listing
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import json_option, print_folded, print_json, print_table, wide_option
from nats_scheduler.cli.session import ServedStream, in_session
from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import Counts, FiredBy, ListedSchedule, Order, Query
from nats_scheduler.message.findings import Code
from nats_scheduler.message.policies import policies_text
from nats_scheduler.message.schedule_form import FIELDS, form_document
from nats_scheduler.message.subjects import pattern_or_part
from nats_scheduler.observe.documents import (
    counts_document,
    misnamed_document,
    rejected_document,
    schedule_document,
)
from nats_scheduler.observe.texts import SERVER_ALONE, printable
from nats_scheduler.observe.times import moment_text, span_text, time_text
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.load import ResolvedSettings

# -- JSON ----------------------------------------------------------------------------------------------------------


def listing_document(listing: Listing, shown: Sequence[tuple[ServedStream, ListedSchedule]]) -> dict[str, object]:
    """Return the whole document, with the schedules in `shown`."""
    counts = {one.state.name: Counts() for one in listing.streams}
    for stream, listed in listing.schedules:
        counts[stream.state.name].add(listed.state, listed.kind)
    streams = [
        {
            **listing.sidecars.stream_document(one),
            "failing": listing.failing.count_on(one),
            "schedules": counts_document(counts[one.state.name]),
        }
        for one in listing.streams
    ]
    return {
        "at": format_rfc3339(listing.at),
        "streams": streams,
        "schedules": [schedule_document(one.state.name, one.mode, listed) for one, listed in shown],
        "total": len(listing.schedules),
        "failing": listing.failing.count,
        "failing_unlisted": listing.failing.unlisted,
        "invalid": [rejected_document(one.state.name, one.mode, rejected) for one, rejected in listing.rejected],
        "misnamed": [misnamed_document(one.state.name, noted) for one, noted in listing.misnamed],
        **listing.sidecars.document(),
    }


ALWAYS_SHOWN = frozenset({"stream", "subject", "pattern", "zone", "target", "next fire (UTC)", "sent (UTC)", "in"})
"""Columns that are shown without --wide."""

STATES = [state.value for state in State]
KINDS = [kind.value for kind in PatternKind]


@click.command("ls")
@click.argument("stream", required=False, shell_complete=complete_stream)
@connection_options
@zone_option
@click.option(
    "--filter",
    "subject",
    metavar="TEXT",
    help="List only subjects that contain this text, or that are as it says if it has wildcards, such as 'orders.>'.",
)
@click.option("--target", metavar="TEXT", help="List only schedules with such targets: a part, or wildcards.")
@click.option("--owner", metavar="NAME", help="List only schedules with this X-Owner.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="List only this state; repeatable.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="List only this kind; repeatable.")
@click.option("--invalid", is_flag=True, help="List only what is wrong.")
@click.option(
    "--count", metavar="N", type=click.IntRange(min=1), help="List at most N schedules: those that fire soonest."
)
@click.option(
    "--sort",
    "order",
    type=click.Choice([one.value for one in Order]),
    default=Order.NEXT_FIRE.value,
    show_default=True,
    help="The order of the list.",
)
@wide_option
@json_option
def command(
    resolved: ResolvedSettings,
    stream: str | None,
    subject: str | None,
    target: str | None,
    owner: str | None,
    states: tuple[str, ...],
    kinds: tuple[str, ...],
    invalid: bool,
    count: int | None,
    order: str,
    wide: bool,
    as_json: bool,
) -> None:
    """List schedules, their next fires, and what is wrong with them.

    Lists one STREAM, or all streams that carry schedules.
    A running sidecar is asked; if none answers, the streams are read.
    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    check_stream(stream)
    if invalid and count is not None:
        raise click.UsageError("--count counts schedules, and --invalid lists none")
    (subjects, part), (targets, target_part) = _searched("--filter", subject), _searched("--target", target)
    wanted_states, wanted_kinds = frozenset(map(State, states)) or None, frozenset(map(PatternKind, kinds)) or None
    query = Query(subjects, targets, wanted_states, wanted_kinds, part, target_part, owner)
    listing = in_session(resolved, lambda session: read_listing(session, resolved, stream, query))
    shown = listing.schedules if order == Order.NEXT_FIRE else sorted(listing.schedules, key=_place_by(Order(order)))
    shown = shown if count is None else shown[:count]
    if as_json:
        print_json(listing_document(listing, [] if invalid else shown))
        return
    listing.sidecars.print_warnings()
    if not listing.streams:
        click.echo("no stream carries schedules: `nats-scheduler stream add FILE` makes one")
        return
    _print(listing, shown, query, invalid=invalid, wide=wide)


def _searched(option: str, text: str | None) -> tuple[str | None, str | None]:
    """Return the text of an option as a subject with wildcards, or as a part of one; end with 2 for neither."""
    if text == "":
        raise click.UsageError(f"{option} of '': expected a part of a subject, or a subject such as 'orders.>'")
    subject, part = pattern_or_part(text)
    check_filter(option, subject)
    return subject, part


def _place_by(order: Order) -> Callable[[tuple[ServedStream, ListedSchedule]], tuple[int, bytes]]:
    """Return what says the place of a schedule in a list."""
    return lambda row: order.place(0, row[1].subject, row[1].terms.target)


def _nothing_text(listing: Listing, query: Query) -> str:
    """Return that nothing was found: that there is none, or none that was asked for."""
    names = _names(listing)
    return f"no schedules on {names}" if query == Query() else f"no schedule on {names} is as you ask"


def _print(
    listing: Listing,
    shown: Sequence[tuple[ServedStream, ListedSchedule]],
    query: Query,
    *,
    invalid: bool,
    wide: bool,
) -> None:
    if not invalid and shown:
        _print_schedules(listing, shown, wide=wide)
    if listing.failing.rows:
        _print_failing(listing, wide=wide)
    if listing.early:
        _print_early(listing, wide=wide)
    if listing.rejected:
        _print_rejected(listing, wide=wide)
    if listing.misnamed:
        _print_misnamed(listing, wide=wide)
    if invalid and not (listing.rejected or listing.misnamed or listing.early or listing.failing.count):
        click.echo(f"nothing is invalid on {_names(listing)}")
        return
    if not listing.schedules and not listing.rejected and not listing.misnamed:
        click.echo(_nothing_text(listing, query))
    else:
        click.echo(f"\n{_total(listing, len(shown) if not invalid else None)}")
    _print_problems(listing)


def _print_problems(listing: Listing) -> None:
    """Print what is found about schedules that are listed as valid, of each stream and code the first one."""
    for one in listing.streams:
        for finding, number in listing.findings(one, OWN_TABLES):
            more = f"; {number - 1:,} more like it" if number > 1 else ""
            print_folded(printable(f"{one.name}: {finding.sentence}{more}"))
        portable = sum(row[0] is one and row[1].fired_by is FiredBy.SIDECAR for row in listing.schedules)
        if problem := listing.sidecars.why_not_fired(one, portable):
            print_folded(problem.sentence)
    if not listing.sidecars.alive and any(one.mode is Mode.NATIVE for one in listing.streams):
        print_folded(SERVER_ALONE)


OWN_TABLES = frozenset({Code.SCHEDULE_ENDS_EARLY, Code.FIRE_REFUSED})
"""The findings whose schedules have a table of their own."""


def _total(listing: Listing, shown: int | None) -> str:
    number = len(listing.schedules)
    counts = [f"{number} schedule{'' if number == 1 else 's'}"]
    if shown is not None and shown < number:
        counts[0] += f", of which {shown} {'is' if shown == 1 else 'are'} shown"
    if listing.failing.count:
        counts.append(_failing_text(listing.failing))
    if listing.early:
        counts.append(f"{len(listing.early)} of them end before they fire")
    if unfinished := sum(one.state is State.UNFINISHED for _, one in listing.schedules):
        counts.append(f"{unfinished} of them {'is' if unfinished == 1 else 'are'} unfinished")
    if paused := sum(one.state is State.PAUSED for _, one in listing.schedules):
        counts.append(f"{paused} of them {'is' if paused == 1 else 'are'} paused")
    if listing.rejected:
        counts.append(f"{len(listing.rejected)} invalid")
    if listing.misnamed:
        counts.append(f"{len(listing.misnamed)} with misnamed headers")
    return "; ".join(counts)


def _print_schedules(listing: Listing, shown: Sequence[tuple[ServedStream, ListedSchedule]], *, wide: bool) -> None:
    columns: dict[str, Callable[[ServedStream, ListedSchedule], str]] = {
        "stream": lambda stream, _: stream.state.name,
        "subject": lambda _, listed: listed.subject,
        **{_COLUMNS.get(field.name, field.name): partial(_text_of, field.name) for field in FIELDS},
        "next fire (UTC)": lambda _, listed: "-" if listed.next_fire is None else time_text(listed.next_fire),
        "sent (UTC)": lambda _, listed: "" if listed.sent is None else time_text(listed.sent),
        "in": lambda _, listed: _time_left(listed, listing.at),
        "ends (UTC)": lambda _, listed: "" if listed.ends is None else moment_text(listed.ends),
        "policies": lambda _, listed: policies_text(listed.terms.policies),
        "owner": lambda _, listed: listed.terms.policies.owner or "",
        "note": lambda _, listed: listed.terms.policies.note or "",
        "sequence": lambda _, listed: str(listed.sequence),
        "stored": lambda _, listed: moment_text(listed.stored_at),
        "dialect": lambda _, listed: listed.terms.dialect.name,
        "mode": lambda stream, _: stream.mode,
    }
    wanted = [name for name in columns if wide or name in ALWAYS_SHOWN]
    filled = {name: [columns[name](*row) for row in shown] for name in wanted}
    if len(listing.streams) == 1:
        del filled["stream"]
    kept = {name: texts for name, texts in filled.items() if any(texts)}
    print_table(list(kept), list(zip(*kept.values(), strict=True)), optional=["target", "zone", "stream"], wide=wide)


_COLUMNS = {"time_zone": "zone"}
"""What the column of a field is called, if that is not its name."""


def _text_of(name: str, _stream: ServedStream, listed: ListedSchedule) -> str:
    fields: Mapping[str, Any] = form_document(listed.pattern, listed.terms)
    return fields[name] or ""


def _failing_text(failing: FailingSchedules) -> str:
    count, unlisted = failing.count, failing.unlisted
    text = f"{count} of them {'is' if count == 1 else 'are'} failing"
    return f"{text}, of which {unlisted} {'is' if unlisted == 1 else 'are'} not listed" if unlisted else text


def _print_failing(listing: Listing, *, wide: bool) -> None:
    click.echo(f"\n{len(listing.failing.rows)} failing, the server refuses their fires:")
    columns = ["stream", "subject", "code", "since (UTC)", "what the server says"]
    rows = [
        [stream.state.name, listed.subject, str(why.code), moment_text(why.since), why.description]
        for stream, listed in listing.failing.rows
        if (why := listed.failing) is not None
    ]
    print_table(columns, rows, optional=["stream"], wide=wide)


def _print_early(listing: Listing, *, wide: bool) -> None:
    click.echo(f"\n{len(listing.early)} end before their next fire:")
    columns = ["stream", "subject", "pattern", "ends (UTC)", "because of"]
    rows = [
        [
            stream.state.name,
            listed.subject,
            listed.pattern.text,
            "" if listed.ends is None else moment_text(listed.ends),
            "max_age" if listed.ended_by is Ending.MAX_AGE else "its TTL",
        ]
        for stream, listed in listing.early
    ]
    print_table(columns, rows, optional=["pattern", "stream"], wide=wide)


def _print_rejected(listing: Listing, *, wide: bool) -> None:
    click.echo(f"\n{len(listing.rejected)} invalid, stored but never fired:")
    rows = []
    for stream, listed in listing.rejected:
        why = listed.rejection.shortened()
        wrong = [why.header, why.value, why.reason] if wide else [f"{why.header} of {why.value!r} {why.reason}"]
        row = [listed.subject, str(why.code), *wrong]
        rows.append([stream.state.name, *row, str(listed.sequence), moment_text(listed.stored_at)] if wide else row)
    if wide:
        columns = ["stream", "subject", "code", "header", "value", "reason", "sequence", "stored"]
    else:
        columns = ["subject", "code", "what is wrong"]
    print_table(columns, rows, wide=wide)


def _print_misnamed(listing: Listing, *, wide: bool) -> None:
    click.echo(f"\n{len(listing.misnamed)} with headers that look like those of a schedule and are not:")
    rows = [
        [stream.state.name, noted.subject, str(noted.sequence), f"{header} {reason}"]
        for stream, noted in listing.misnamed
        for header, reason in noted.headers
    ]
    columns = ["stream", "subject", "sequence", "what is wrong"]
    print_table(columns, rows, optional=["sequence", "stream"], wide=wide)


def _names(listing: Listing) -> str:
    return ", ".join(one.state.name for one in listing.streams)


def _time_left(listed: ListedSchedule, at: int) -> str:
    """Return how long it takes until the next fire, or why there is none."""
    why = listed.failing
    if why is not None and listed.state is State.FAILING:
        return f"failing ({why.code}) for {span_text(max(at - why.since, 0))}"
    if listed.next_fire is None:
        return listed.state
    left = (listed.next_fire if listed.sent is None else listed.sent) - at
    if listed.state is State.OVERDUE:
        return f"overdue {span_text(-left)}"
    state = "" if listed.state is State.WAITING else f"{listed.state}, "
    return f"{state}{span_text(max(left, 0))}"
