"""The messages of the load: schedules of each kind, their sources, and ordinary messages beside them.

The rule: a side differs from another in the spelling of the headers and in nothing else.
Bodies are 128 bytes. Cost: 1 to 3 µs a frame.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count

from bench.publisher import REPLY
from nats_scheduler.schedule.rfc3339 import format_rfc3339

STREAM = "BENCH"
OUT = f"{STREAM}.out"
"""Target of the measured schedules."""
PROBED = f"{STREAM}.probed"
"""Target of the schedule that shows whether a side is ready."""
SOURCES = 100
"""Subjects that are sampled."""

BODY = b"x" * 128
SECOND = 1_000_000_000


def schedules(patterns: Iterable[str], prefix: bytes, group: str = "s", source: bool = False) -> Iterator[bytes]:
    """Yield the frame of one schedule for each pattern, numbered from 0 below `group`."""
    for number, pattern in enumerate(patterns):
        sampled = f"{STREAM}.source.{number % SOURCES}" if source else ""
        yield schedule(f"{STREAM}.{group}.{number}", pattern, prefix, OUT, sampled)


def schedule(subject: str, pattern: str, prefix: bytes, target: str, source: str = "") -> bytes:
    """Return the publish of one schedule; `prefix` is empty, or `X-` for the portable headers."""
    block = b"NATS/1.0\r\n%bNats-Schedule: %b\r\n%bNats-Schedule-Target: %b\r\n" % (
        prefix,
        pattern.encode(),
        prefix,
        target.encode(),
    )
    if source:
        block += b"%bNats-Schedule-Source: %b\r\n" % (prefix, source.encode())
    block += b"\r\n"
    size = len(block)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), REPLY, size, size + len(BODY), block, BODY)


def ordinary(group: str, subjects: int) -> Iterator[bytes]:
    """Yield messages without a schedule, without end, on so many subjects in turn."""
    size = len(BODY)
    for number in count():
        yield b"PUB %b.%b.%d %b %d\r\n%b\r\n" % (STREAM.encode(), group.encode(), number % subjects, REPLY, size, BODY)


def at_pattern(due: int) -> str:
    """Return the pattern of one instant (ns)."""
    return f"@at {format_rfc3339(due)}"


def daily_pattern(due: int) -> str:
    """Return the pattern that fires at the second of an instant (ns), and at the same time of every later day."""
    instant = datetime.fromtimestamp(due // SECOND, UTC)
    return f"{instant.second} {instant.minute} {instant.hour} * * *"
