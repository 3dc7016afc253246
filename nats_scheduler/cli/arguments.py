"""The checks of arguments before a command connects: names of streams, filters, times, zones, durations and files.

Rule: an argument that no server could accept ends the command with 2, and the error shows the value, or the file that
cannot be read. `history`, `changes` and `failures` search in the same way (`range_options`), and all that
show times take `--tz`.
Cost: none. Limit: a duration of `--since` or `--until` counts back from this machine's clock.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypedDict

import click

from nats_scheduler.cli.output import decorated
from nats_scheduler.control.past import DEFAULT_ROWS, MAX_ROWS
from nats_scheduler.message.subjects import is_literal_subject, is_valid_subject
from nats_scheduler.observe.times import times_in
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.invalid import InvalidTimeZone
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.schedule.zones import load_zone
from nats_scheduler.settings.json_files import is_stream_name

MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""The maximum size of a file that a command reads: schedules, subjects, or a body. No server stores a larger body."""


def check_stream(name: str | None) -> None:
    """End the command with 2 if no stream can have this name; None is none that was given."""
    if name is not None and not is_stream_name(name):
        raise click.UsageError(f"{name!r}: expected the name of a stream")


def check_filter(option: str, subject: str | None) -> None:
    """End the command with 2 if the value of an option is no subject, with wildcards or without; None is not given."""
    if subject is not None and not is_valid_subject(subject):
        raise click.UsageError(f"{option} of {subject!r}: expected a subject such as 'orders.>'")


def instant_of(option: str, text: str) -> int:
    """Return the time of an option (ns); end the command with 2 if it is not RFC 3339 with an offset."""
    instant = parse_rfc3339(text)
    if not isinstance(instant, int):
        raise click.UsageError(f"{option} of {text!r}: expected a time with its offset, such as 2026-01-31T09:00:00Z")
    return instant


def duration_of(option: str, text: str) -> int:
    """Return the duration of an option (ns); end the command with 2 if it is none, or not more than zero."""
    duration = parse_duration(text)
    if not isinstance(duration, int) or duration <= 0:
        raise click.UsageError(f"{option} of {text!r}: expected a duration above zero, such as 20s or 1h30m")
    return duration


def file_content(file: Path, most: int = MAX_CONTENT_BYTES) -> bytes:
    """Return what a file holds, standard input if it is `-`.

    Ends the command with 2 if it cannot be read, or has more than `most` bytes.
    """
    try:
        with click.open_file(str(file), "rb") as opened:
            content = bytes(opened.read(most + 1))
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
    if len(content) > most:
        raise click.UsageError(f"{file} has more than {most:,} bytes")
    return content


class Range(TypedDict):
    """What is searched of a stream, from the newest on; times are in ns."""

    since: int | None
    until: int | None
    before: int | None
    limit: int


def range_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a search of what is stored: it gets them as `within`."""

    @wraps(command)
    def run(since: str | None, until: str | None, before: int | None, limit: int, **arguments: Any) -> Any:
        times = _instant_of("--since", since), _instant_of("--until", until)
        return command(within=Range(since=times[0], until=times[1], before=before, limit=limit), **arguments)

    time = "RFC 3339, or a duration such as 2h"
    return decorated(
        run,
        click.option("--since", metavar="TIME", help=f"Only what was stored since then: {time}."),
        click.option("--until", metavar="TIME", help=f"Only what was stored before that: {time}."),
        click.option(
            "--before",
            metavar="SEQUENCE",
            type=click.IntRange(min=1),
            help="Only what has a smaller sequence, to go on behind the last row.",
        ),
        click.option(
            "--limit",
            metavar="N",
            type=click.IntRange(1, MAX_ROWS),
            default=DEFAULT_ROWS,
            help=f"Rows to show: 1 to {MAX_ROWS:,}, {DEFAULT_ROWS} unless given.",
        ),
    )


def _show_in(context: click.Context, _option: click.Parameter, name: str | None) -> None:
    """Have the command print times in a zone."""
    if name is None:
        return
    zone = load_zone(name)
    if isinstance(zone, InvalidTimeZone):
        raise click.UsageError(f"--tz of {name!r}: {zone.reason}")
    context.with_resource(times_in(zone))


zone_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--tz",
    metavar="ZONE",
    expose_value=False,
    callback=_show_in,
    help="Show times in this time zone, such as Europe/Berlin, and not in UTC; those of --json stay in UTC.",
)


def _instant_of(option: str, text: str | None) -> int | None:
    """Return the time of an option (ns), None if it is not given; end the command with 2 if it is neither form."""
    if text is None:
        return None
    span, instant = parse_duration(text), parse_rfc3339(text)
    if isinstance(span, int) and span >= 0:
        return SystemClock().now() - span
    if isinstance(instant, int):
        return instant
    raise click.UsageError(f"{option} of {text!r}: expected a duration such as 2h, or a time as 2026-01-31T09:00:00Z")


def check_schedule(subject: str) -> None:
    """End the command with 2 if no schedule can be on this subject."""
    if not is_literal_subject(subject):
        raise click.UsageError(f"{subject!r}: expected the subject of a schedule, without wildcards")
