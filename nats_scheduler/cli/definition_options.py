"""The options of `add` and `edit`: what they say of a schedule, and the headers that this means.

Rule: an option becomes one header, whose value is written as it was given; whether it is valid is decided by the code
that reads stored messages. Only what this command itself has to compute with, such as the time of `--at`, is read here.
Cost: none. Limit: a value is one line, as every header is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.arguments import duration_of, file_content, instant_of
from nats_scheduler.cli.check import one_line, split_header
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.policies import POLICY_NAMES, extension_prefix
from nats_scheduler.schedule.rfc3339 import format_rfc3339

Command = Callable[..., Any]
Header = tuple[bytes, bytes]

PATTERN_OPTIONS = "--at, --after, --every or --cron"


@dataclass(frozen=True, slots=True)
class Given:
    """What the options say of a schedule; None is what is not given."""

    pattern: str | None = None
    after: int | None = None
    """The time (ns) from now until the one fire."""
    tz: str | None = None
    target: str | None = None
    source: str | None = None
    ttl: str | None = None
    rollup: bool = False
    policies: Mapping[str, str] = field(default_factory=dict)
    """By their names without the prefix of the spelling, such as `X-Jitter`."""
    headers: tuple[Header, ...] = ()
    """Headers of the publisher."""
    body: bytes | None = None

    @property
    def has_pattern(self) -> bool:
        """Whether one of the options says when it fires."""
        return self.pattern is not None or self.after is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is given."""
        return self == Given()

    def written(self, dialect: Dialect, now: int) -> list[Header]:
        """Return the headers in a spelling; `now` (ns) is the time by the server's clock.

        Values that may contain anything come last, so that no header of the schedule is hidden by them.
        """
        pattern = self.pattern if self.after is None else f"@at {format_rfc3339(now + self.after)}"
        values = [
            (dialect.schedule, pattern),
            (dialect.time_zone, self.tz),
            (dialect.ttl, self.ttl),
            (dialect.rollup, "sub" if self.rollup else None),
            (dialect.target, self.target),
            (dialect.source, self.source),
            *((policy_header(dialect, name), value) for name, value in sorted(self.policies.items())),
        ]
        ours = [(name, _encoded(value)) for name, value in values if value is not None]
        return [*ours, *self.headers]


def policy_header(dialect: Dialect, name: str) -> bytes:
    """Return the header of a policy such as `X-Jitter`."""
    return dialect.schedule + b"-" + name.encode()


def definition_options(command: Command) -> Command:
    """Give a command the options that define a schedule, and its body: it gets them as `given` (`Given`)."""

    @wraps(command)
    def run(**arguments: Any) -> Any:
        values = {name: arguments.pop(name) for name in _NAMES}
        return command(given=_given(**values), **arguments)

    decorated: Command = run
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.argument("body", required=False),
    click.option("--body-file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True), help="Its body."),
    click.option("--at", metavar="TIME", help="Fire once at this time, RFC 3339 with an offset."),
    click.option("--after", metavar="DURATION", help="Fire once after this time, such as 90m."),
    click.option("--every", metavar="DURATION", help="Fire at this interval, such as 5m."),
    click.option("--cron", metavar="PATTERN", help="Fire by a cron pattern, such as '0 30 9 * * mon-fri' or @daily."),
    click.option("--tz", metavar="ZONE", help="Time zone of the cron pattern, as Europe/Berlin."),
    click.option("--target", metavar="SUBJECT", help="Where the fires go."),
    click.option("--source", metavar="SUBJECT", help="Fires copy the last message here instead of the body."),
    click.option("--ttl", metavar="DURATION", help="How long the stream keeps a fire, such as 5m, or never."),
    click.option("--rollup", is_flag=True, help="A fire replaces the messages on its target."),
    click.option("--policy", "policies", metavar="NAME=VALUE", multiple=True, help="A policy, such as Jitter=30s."),
    click.option("-H", "--header", "headers", metavar="NAME:VALUE", multiple=True, help="A header, as for `nats pub`."),
)
_NAMES = (
    *("body", "body_file", "at", "after", "every", "cron", "tz"),
    *("target", "source", "ttl", "rollup", "policies", "headers"),
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
    for value in (pattern, *values.values(), *policies):
        if isinstance(value, str):
            one_line(value)
    return Given(
        pattern=pattern,
        after=None if after is None else duration_of("--after", after),
        policies=dict(_policies(policies)),
        headers=tuple(map(_own_header, headers)),
        body=file_content(body_file) if body_file is not None else None if body is None else _encoded(body),
        **values,
    )


def _policies(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Read the values of `--policy`; a name may be written without `X-`, and in any case."""
    seen = set()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--policy of {text!r}: expected NAME=VALUE, such as Jitter=30s")
        policy = policy_name(name)
        if policy is None:
            raise click.UsageError(f"--policy of {text!r}: expected one of {', '.join(POLICY_NAMES)}")
        if policy in seen:
            raise click.UsageError(f"--policy of {text!r}: {policy} is given twice")
        seen.add(policy)
        yield policy, value


def policy_name(text: str) -> str | None:
    """Return the policy that a text such as `jitter` or `X-Jitter` names; None if there is none."""
    wanted = text.strip().lower()
    return next((name for name in POLICY_NAMES if wanted in (name.lower(), name.lower().removeprefix("x-"))), None)


def _own_header(text: str) -> Header:
    name, value = split_header(text)
    for dialect in DIALECTS:
        ours = (dialect.schedule, dialect.target, dialect.source, dialect.ttl, dialect.time_zone, dialect.rollup)
        if name in ours or name.startswith(extension_prefix(dialect)):
            raise click.UsageError(f"-H of {text!r}: the other options, such as --ttl and --policy, write this header")
    return name, value


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
