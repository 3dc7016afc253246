"""Read back what was generated, from the stream: which schedule each message came from, and when it was stored.

The rule: the time is the stored message's own; when we read it does not matter.
Cost: some 10 µs a message.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from bench.load import STREAM
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame

BATCH = 5_000
STREAMS_AT_ONCE = 64
READ_SECONDS = 60.0
"""Longest wait for one batch."""

_SCHEDULE_NUMBER = re.compile(rb"Nats-Scheduler: [^\r\n]*\.(\d+)\r\n")


class Fire(NamedTuple):
    """One generated message."""

    number: int
    """Of its schedule."""
    stored_at: int
    """Nanoseconds since the Unix epoch."""


class WrongFiresError(Exception):
    """What was generated is not one message for each schedule, at its time or later."""


async def read_fires(connection: Connection, api: JetStreamApi, stream: str = STREAM) -> list[Fire]:
    """Return every generated message of a stream, in its order."""
    name = f"bench-{uuid.uuid4().hex}"
    config = {"filter_subject": f"{stream}.out", "ack_policy": "none", "headers_only": True, "mem_storage": True}
    expected: int = (await api.create_consumer(stream, name, config))["num_pending"]
    found: list[Fire] = []
    came = asyncio.Event()

    def sink(_subject: bytes, reply: bytes, block: bytes, _body: bytes) -> None:
        number = _SCHEDULE_NUMBER.search(block)
        if number is not None:
            found.append(Fire(int(number[1]), int(reply.split(b".")[-2])))
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
    return found


async def read_fires_of(connection: Connection, api: JetStreamApi, streams: Sequence[str]) -> list[Fire]:
    """Return every generated message of some streams, in the order of each."""
    found: list[Fire] = []
    for begin in range(0, len(streams), STREAMS_AT_ONCE):
        some = streams[begin : begin + STREAMS_AT_ONCE]
        for fires in await asyncio.gather(*(read_fires(connection, api, name) for name in some)):
            found += fires
    return found


def lateness(fires: Sequence[Fire], dues: Sequence[int]) -> list[float]:
    """Return how late each schedule fired, in ms, sorted; raises `WrongFiresError` unless each fired once."""
    numbers = sorted(fire.number for fire in fires)
    if numbers != list(range(len(dues))):
        raise WrongFiresError(f"{len(fires)} fires of {len(dues)} schedules, {len(set(numbers))} distinct")
    late = sorted((fire.stored_at - dues[fire.number]) / 1_000_000 for fire in fires)
    if late and late[0] < 0:
        raise WrongFiresError(f"a fire was {-late[0]:.3f} ms early")
    return late
