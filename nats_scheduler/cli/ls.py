"""`nats-scheduler ls`: the schedules that are stored, when each fires next, and what is wrong with the others.

Rule: the list is what the scheduler would hold if it started now (`runtime.snapshot`), so that nothing listed
as valid fails to fire, and nothing is fired or removed by looking.
Columns that no listed schedule has a value for are left out; JSON always has all of them.
Cost: the stream's headers are read once; 100,000 schedules take seconds. Limit: each stream is read at its own
moment, and a schedule of the server's own is listed with the fire of its pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import print_json, print_table, rejection_document
from nats_scheduler.cli.session import ServedStream, Session, in_session
from nats_scheduler.jetstream.server_time import server_time
from nats_scheduler.runtime.checkpoints import read_checkpoint
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import EXPLANATIONS
from nats_scheduler.runtime.snapshot import ListedRejection, ListedSchedule, Standing, take_snapshot
from nats_scheduler.runtime.stream_service import removes_expired
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import DAY, HOUR, round_to_second
from nats_scheduler.schedule.patterns import Cron
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.stream_files import FORBIDDEN_IN_NAMES

DAYS_FROM = 2 * DAY
"""A fire further away than this is shown in days."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is shown, with the moment (ns since the Unix epoch) that `in` counts from."""

    at: int
    streams: Sequence[ServedStream]
    schedules: Sequence[tuple[ServedStream, ListedSchedule]]
    rejected: Sequence[tuple[ServedStream, ListedRejection]]


@click.command("ls")
@click.argument("stream", required=False)
@connection_options
@click.option("--invalid", is_flag=True, help="List only what is wrong.")
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="At most N schedules, those that fire soonest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(resolved: ResolvedSettings, stream: str | None, invalid: bool, count: int | None, as_json: bool) -> None:
    """List schedules, their next fires, and what is wrong with them.

    Lists one STREAM, or all streams that carry schedules.
    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    if stream is not None and (not stream or any(letter in FORBIDDEN_IN_NAMES for letter in stream)):
        raise click.UsageError(f"{stream!r}: expected the name of a stream")
    if invalid and count is not None:
        raise click.UsageError("--count counts schedules, and --invalid lists none")
    listing = in_session(resolved, lambda session: _read(session, stream))
    shown = listing.schedules if count is None else listing.schedules[:count]
    if as_json:
        print_json(_document(listing, [] if invalid else shown))
        return
    if not listing.streams:
        click.echo("no stream carries schedules: `nats-scheduler stream add FILE` makes one")
        return
    if not invalid:
        _print_schedules(listing, shown)
    if listing.rejected:
        _print_rejected(listing)
    elif invalid:
        click.echo(f"nothing is invalid on {_names(listing)}")


async def _read(session: Session, stream: str | None) -> Listing:
    served = await session.served_streams() if stream is None else [await session.served_stream(stream)]
    clock = SystemClock()
    schedules: list[tuple[ServedStream, ListedSchedule]] = []
    rejected: list[tuple[ServedStream, ListedRejection]] = []
    for one in served:
        # By the server's clock, as the sidecars write them: ours may be wrong.
        at = server_time(await session.api.stream(one.state.name)) or clock.now()
        checkpoints = await read_checkpoint(session.registry, session.api, one.state.name, one.mode, at)
        read = await take_snapshot(
            session.connection,
            session.api,
            one.state,
            one.mode,
            checkpoints or (),
            clock.now,
            restrictions=session.settings.restrictions_on(one.state.name),
            removes_expired=removes_expired(one.state, session.server),
        )
        schedules.extend((one, schedule) for schedule in read.schedules)
        rejected.extend((one, rejection) for rejection in read.rejected)
    if len(served) > 1:
        schedules.sort(key=lambda listed: (listed[1].next_fire is None, listed[1].next_fire or 0))
    return Listing(clock.now(), served, schedules, rejected)


# -- tables ----------------------------------------------------------------------------------------------------


def _print_schedules(listing: Listing, shown: Sequence[tuple[ServedStream, ListedSchedule]]) -> None:
    if not shown:
        click.echo(f"no schedules on {_names(listing)}")
        return
    columns: dict[str, Callable[[ServedStream, ListedSchedule], str]] = {
        "stream": lambda stream, _: stream.state.name,
        "subject": lambda _, listed: listed.subject,
        "pattern": lambda _, listed: listed.pattern.text,
        "zone": lambda _, listed: _zone(listed) or "",
        "target": lambda _, listed: listed.terms.target,
        "source": lambda _, listed: listed.terms.source or "",
        "ttl": lambda _, listed: listed.terms.ttl,
        "rollup": lambda _, listed: _rollup(listed) or "",
        "next fire (UTC)": lambda _, listed: "-" if listed.next_fire is None else format_rfc3339(listed.next_fire),
        "in": lambda _, listed: _away(listed, listing.at),
        "sequence": lambda _, listed: str(listed.sequence),
        "stored": lambda _, listed: format_rfc3339(listed.stored_at),
        "dialect": lambda _, listed: listed.terms.dialect.name,
        "mode": lambda stream, _: stream.mode,
    }
    filled = {name: [text(*row) for row in shown] for name, text in columns.items()}
    if len(listing.streams) == 1:
        del filled["stream"]
    kept = {name: texts for name, texts in filled.items() if any(texts)}
    print_table(list(kept), zip(*kept.values(), strict=True))
    if len(shown) < len(listing.schedules):
        click.echo(f"and {len(listing.schedules) - len(shown)} more")


def _print_rejected(listing: Listing) -> None:
    click.echo(f"\n{len(listing.rejected)} invalid, stored but never fired:")
    rows = [
        [
            stream.state.name,
            listed.subject,
            listed.rejection.header,
            listed.rejection.value,
            listed.rejection.reason,
            str(listed.rejection.code),
            str(listed.sequence),
            format_rfc3339(listed.stored_at),
        ]
        for stream, listed in listing.rejected
    ]
    print_table(["stream", "subject", "header", "value", "reason", "code", "sequence", "stored"], rows)


def _names(listing: Listing) -> str:
    return ", ".join(one.state.name for one in listing.streams)


def _away(listed: ListedSchedule, at: int) -> str:
    """Say how far away the next fire is, or why there is none."""
    if listed.next_fire is None:
        return listed.standing
    away = round_to_second(listed.next_fire - at)
    if listed.standing is Standing.OVERDUE:
        return f"overdue {_span(-away)}"
    return _span(max(away, 0))


def _span(nanoseconds: int) -> str:
    if nanoseconds < DAYS_FROM:
        return format_duration(nanoseconds)
    return f"{nanoseconds // DAY}d{nanoseconds % DAY // HOUR}h"


# -- JSON ------------------------------------------------------------------------------------------------------


def _document(listing: Listing, shown: Sequence[tuple[ServedStream, ListedSchedule]]) -> dict[str, object]:
    streams = [
        {"stream": one.state.name, "mode": one.mode, "served": EXPLANATIONS[one.mode]} for one in listing.streams
    ]
    return {
        "at": format_rfc3339(listing.at),
        "streams": streams,
        "schedules": [_schedule(stream, listed) for stream, listed in shown],
        "total": len(listing.schedules),
        "invalid": [_rejected(stream, listed) for stream, listed in listing.rejected],
    }


def _schedule(stream: ServedStream, listed: ListedSchedule) -> dict[str, object]:
    terms = listed.terms
    return {
        "stream": stream.state.name,
        "subject": listed.subject,
        "pattern": listed.pattern.text,
        "time_zone": _zone(listed),
        "target": terms.target,
        "source": terms.source,
        "ttl": terms.ttl or None,
        "rollup": _rollup(listed),
        "next_fire": _next_fire(listed),
        "standing": listed.standing,
        "sequence": listed.sequence,
        "stored": format_rfc3339(listed.stored_at),
        "dialect": terms.dialect.name,
        "mode": stream.mode,
        "fired_by": listed.fired_by,
    }


def _next_fire(listed: ListedSchedule) -> dict[str, object] | None:
    fire = listed.next_fire
    if fire is None:
        return None
    return {"utc": format_rfc3339(fire), "local": listed.pattern.format(fire), "nanoseconds": fire}


def _rejected(stream: ServedStream, listed: ListedRejection) -> dict[str, object]:
    return {
        "stream": stream.state.name,
        "subject": listed.subject,
        "pattern": listed.pattern or None,
        "target": listed.target or None,
        "sequence": listed.sequence,
        "stored": format_rfc3339(listed.stored_at),
        "dialect": listed.dialect.name,
        "mode": stream.mode,
        "error": rejection_document(listed.rejection),
    }


def _zone(listed: ListedSchedule) -> str | None:
    """Return the name of a pattern's time zone, None where it has none of its own."""
    pattern = listed.pattern
    return pattern.zone.name if isinstance(pattern, Cron) and pattern.zone is not None else None


def _rollup(listed: ListedSchedule) -> str | None:
    return "sub" if listed.terms.rollup else None
