"""What the commands about the past share: `history`, `changes` and `failures`.

Rule: all list the newest first, and take `--since` and `--limit` in the same form.
Cost: none. Limit: a duration counts back from this machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from nats_scheduler.message.subjects import is_literal_subject
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

since_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--since", metavar="TIME", help="Only what was stored since then: RFC 3339, or a duration such as 2h."
)


def limit_option(default: int, most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--limit` with its default and its maximum."""
    chosen = click.IntRange(1, most)
    return click.option(
        "--limit",
        metavar="N",
        type=chosen,
        default=default,
        help=f"Rows to show: 1 to {most:,}, {default} unless given.",
    )


def instant_since(text: str | None) -> int | None:
    """Return the time of `--since` (ns), None if it is not given; end the command with 2 if it is neither form."""
    if text is None:
        return None
    span, instant = parse_duration(text), parse_rfc3339(text)
    if isinstance(span, int) and span >= 0:
        return SystemClock().now() - span
    if isinstance(instant, int):
        return instant
    raise click.UsageError(f"--since of {text!r}: expected a duration such as 2h, or a time as 2026-01-31T09:00:00Z")


def check_schedule(subject: str) -> None:
    """End the command with 2 if no schedule can be on this subject."""
    if not is_literal_subject(subject):
        raise click.UsageError(f"{subject!r}: expected the subject of a schedule, without wildcards")
