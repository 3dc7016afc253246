"""The messages of the load: schedules of each kind, and their sources.

The rule: a side differs from another in the spelling of the headers and in nothing else, and each schedule has a
subject and a target of its own, as a fleet of reminders has: `BENCH.s.7` fires to `BENCH.t.7`.
Bodies are 128 bytes unless the scenario says otherwise. Cost: 1 to 3 µs a frame.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.bench.publisher import REPLY

STREAM = "BENCH"
GROUP = "s"
"""The group of subjects whose schedules are measured; the name of each group begins so."""
PROBED = f"{STREAM}.probed"
"""Target of the schedule that shows whether a side is ready."""

BODY = b"x" * 128
SECOND = 1_000_000_000


class Extras(NamedTuple):
    """The parts of a schedule besides its pattern and its target."""

    source: str = ""
    time_zone: str = ""
    ttl: str = ""
    headers: bytes = b""
    """The publisher's own, each line with its end."""
    body: bytes = BODY


PLAIN = Extras()


def subject_of(number: int, group: str = GROUP, stream: str = STREAM) -> str:
    """Return the subject of a schedule."""
    return f"{stream}.{group}.{number}"


def source_of(number: int, group: str = GROUP, stream: str = STREAM) -> str:
    """Return the subject that a schedule samples, which no other one does."""
    return f"{stream}.u{group[1:]}.{number}"


def target_of(subject: str) -> str:
    """Return the target of the schedule with that subject: the same one, in the group's own group of targets."""
    stream, group, number = subject.split(".")
    return f"{stream}.t{group[1:]}.{number}"


def targets_of(group: str = GROUP, stream: str = STREAM) -> str:
    """Return the subjects of all targets of a group."""
    return f"{stream}.t{group[1:]}.>"


def schedules(patterns: Iterable[str], prefix: bytes, group: str = GROUP) -> Iterator[bytes]:
    """Yield the frame of one schedule for each pattern, numbered from 0 in `group`."""
    for number, pattern in enumerate(patterns):
        yield reminder(subject_of(number, group), pattern, prefix)


def reminder(subject: str, pattern: str, prefix: bytes, extras: Extras = PLAIN) -> bytes:
    """Return the publish of one schedule that fires to its own target."""
    return schedule(subject, pattern, prefix, target_of(subject), extras)


def schedule(subject: str, pattern: str, prefix: bytes, target: str, extras: Extras = PLAIN) -> bytes:
    """Return the publish of one schedule; `prefix` is empty, or `X-` for the portable headers.

    Without a `target` the publisher's own headers name one.
    """
    source, time_zone, ttl, headers, body = extras
    block = b"NATS/1.0\r\n%bNats-Schedule: %b\r\n" % (prefix, pattern.encode())
    if time_zone:
        block += b"%bNats-Schedule-Time-Zone: %b\r\n" % (prefix, time_zone.encode())
    if target:
        block += b"%bNats-Schedule-Target: %b\r\n" % (prefix, target.encode())
    if source:
        block += b"%bNats-Schedule-Source: %b\r\n" % (prefix, source.encode())
    if ttl:
        block += b"%bNats-Schedule-TTL: %b\r\n" % (prefix, ttl.encode())
    block += headers + b"\r\n"
    size = len(block)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), REPLY, size, size + len(body), block, body)


def message(subject: str, body: bytes = BODY) -> bytes:
    """Return the publish of a message that is no schedule."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), REPLY, len(body), body)


def at_pattern(due: int) -> str:
    """Return the pattern of one instant (ns)."""
    return f"@at {format_rfc3339(due)}"


def daily_pattern(due: int) -> str:
    """Return the pattern that fires at the second of an instant (ns), and at the same time of every later day."""
    instant = datetime.fromtimestamp(due // SECOND, UTC)
    return f"{instant.second} {instant.minute} {instant.hour} * * *"


def spread(draw: Random, begin: int, seconds: float, number: int) -> list[int]:
    """Return `number` instants (ns) in order, drawn from `begin` on over `seconds`: the gaps between them vary.

    Users' fires come like that; even gaps would just fit, or just miss, what waits for the next fire.
    """
    return sorted(begin + draw.randrange(int(seconds * SECOND)) for _ in range(number))
