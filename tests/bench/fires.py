"""Read back what was generated, from the stream: which schedule each message came from, and when it was stored.

The rule: the time is the stored message's own; when we read it does not matter. Every target is read, and a fire counts
only on the target of its own schedule.
Cost: some 15 µs a message.
"""

import asyncio
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame
from tests.bench.load import GROUP, SECOND, STREAM, target_of, targets_of

BATCH = 5_000
STREAMS_AT_ONCE = 64
READ_SECONDS = 60.0
"""Longest wait for one batch."""
LATEST_MS = 950.0
"""Of a fire whose second is known by its time of storage only."""

_SCHEDULE = re.compile(rb"\r\n(?:X-)?Nats-Scheduler: ([^\r\n]*)\r\n")

Message = tuple[bytes, bytes, bytes]
"""A message as a consumer delivers it: the subject, the reply with the sequence and the time, and the headers."""


class Fire(NamedTuple):
    """One generated message."""

    number: int
    """Of its schedule."""
    stored_at: int
    """Nanoseconds since the Unix epoch."""


class WrongFiresError(Exception):
    """The generated messages are not one for each schedule, on its target, at its time or later."""


def fire_in(message: Message) -> Fire:
    """Return the fire that a message is; raises `WrongFiresError` if it is none, or not on its schedule's target."""
    subject, reply, block = message
    target, named = subject.decode(), _SCHEDULE.search(block)
    if named is None:
        raise WrongFiresError(f"a message on the target {target} names no schedule")
    schedule = named[1].decode()
    if target != target_of(schedule):
        raise WrongFiresError(f"a fire of {schedule} was stored on {target}, expected {target_of(schedule)}")
    return Fire(int(schedule.rpartition(".")[2]), int(reply.split(b".")[-2]))


async def read_fires(
    connection: Connection,
    api: JetStreamApi,
    stream: str = STREAM,
    group: str = GROUP,
) -> list[Fire]:
    """Return every generated message on the targets of a group, in the order of the stream."""
    name = f"bench-{uuid.uuid4().hex}"
    config = {
        "filter_subject": targets_of(group, stream),
        "ack_policy": "none",
        "headers_only": True,
        "mem_storage": True,
    }
    expected: int = (await api.create_consumer(stream, name, config))["num_pending"]
    found: list[Message] = []
    came = asyncio.Event()

    def sink(subject: bytes, reply: bytes, block: bytes, _body: bytes) -> None:
        if reply:  # the server's statuses have none
            found.append((subject, reply, block))
            came.set()

    inbox = connection.inbox(name)
    number = connection.subscribe(inbox, sink)
    try:
        for begin in range(0, expected, BATCH):
            pull = json.dumps({"batch": BATCH, "no_wait": True}).encode()
            connection.write(frame(f"{api.prefix}.CONSUMER.MSG.NEXT.{stream}.{name}", inbox, b"", pull))
            async with asyncio.timeout(READ_SECONDS):
                while len(found) < min(begin + BATCH, expected):
                    came.clear()
                    await came.wait()
    finally:
        connection.unsubscribe(number)
        await api.delete_consumer(stream, name)
    return [fire_in(message) for message in found]


async def read_fires_of(
    connection: Connection, api: JetStreamApi, streams: Sequence[str], group: str = GROUP
) -> list[Fire]:
    """Return every generated message on the targets of a group in some streams, in the order of each."""
    found: list[Fire] = []
    for begin in range(0, len(streams), STREAMS_AT_ONCE):
        some = streams[begin : begin + STREAMS_AT_ONCE]
        for fires in await asyncio.gather(*(read_fires(connection, api, name, group) for name in some)):
            found += fires
    return found


def lateness(fires: Sequence[Fire], dues: Sequence[int]) -> list[float]:
    """Return how late each schedule fired (ms), sorted; raises `WrongFiresError` unless each fired once."""
    times, expected = Counter(fire.number for fire in fires), Counter(range(len(dues)))
    if times != expected:
        lost, more = expected - times, times - expected
        raise WrongFiresError(f"{len(fires):,} fires of {len(dues):,} schedules: {len(lost)} lost, {len(more)} more")
    late = sorted((fire.stored_at - dues[fire.number]) / 1_000_000 for fire in fires)
    if late and late[0] < 0:
        raise WrongFiresError(f"a fire was {-late[0]:.3f} ms early")
    return late


def lateness_of_repeating(fires: Iterable[Fire], intervals: Sequence[int], begin: int, end: int) -> list[float]:
    """Return how late (ms, sorted) schedules fired that repeat at full seconds, one each `intervals[number]` seconds.

    `begin` and `end` are seconds since the Unix epoch; fires due at others are left out. Raises `WrongFiresError`
    unless each schedule fired at each of its times, counted from its first one, and a second late at most.
    Limit: a fire that is early cannot be distinguished from one that is nearly a second late; both raise.
    """
    late: list[float] = []
    seen: list[list[int]] = [[] for _ in intervals]
    for number, stored_at in fires:
        due = stored_at // SECOND
        if number < len(intervals) and begin <= due < end:
            seen[number].append(due)
            late.append((stored_at - due * SECOND) / 1_000_000)
    for number, (found, interval) in enumerate(zip(seen, intervals, strict=True)):
        found.sort()
        first = found[0] if found else begin
        if first >= begin + interval or found != list(range(first, end, interval)):
            shown = [due - begin for due in found]
            raise WrongFiresError(f"schedule {number}, each {interval} s, fired at the seconds {shown} of the window")
    if late and max(late) > LATEST_MS:
        raise WrongFiresError(f"a fire was early, or {max(late):.0f} ms late")
    return sorted(late)
