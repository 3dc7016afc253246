"""Publish prepared frames as fast as a server acknowledges them, or each at its own time.

A connection of its own, without a client library: acknowledgements are counted in the bytes that arrive and not parsed,
so that the generator of the load costs little beside what is measured on the same machine.
The rule: what counts as published was acknowledged, and a refusal ends the run.
Cost: about 1 µs a message beyond the building of its frame.
Limit: plain TCP on loopback, no authorization.
"""

import asyncio
import time
from collections.abc import Iterable
from itertools import islice

WINDOW = 4_096
"""Messages without an acknowledgement; the server drops messages past 10,000 without an error."""
CHUNK = 256
"""Frames that are written at once."""
ANSWER_SECONDS = 60.0
"""Longest wait for acknowledgements: past it, messages were dropped."""

PACE_SECONDS = 0.002
"""Pause between two writes of frames that are published at their times."""

_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1,"lang":"bench","version":"1"}\r\n'
REPLY = b"_BENCH.ack"


class RefusedError(Exception):
    """The server refused what was published, or closed the connection."""


class LateLoadError(Exception):
    """Frames could not be published at their times: this program, or the server, is too slow for the load."""


class Publisher(asyncio.Protocol):
    """One connection that publishes with acknowledgements."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self._transport: asyncio.Transport | None = None
        self._tail = b""
        self._wake = asyncio.Event()
        self._failure = ""

    @classmethod
    async def connect(cls, host: str, port: int) -> "Publisher":
        """Connect, and subscribe to the acknowledgements."""
        loop = asyncio.get_running_loop()
        _transport, publisher = await loop.create_connection(cls, host, port)
        return publisher

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    async def publish(self, frames: Iterable[bytes]) -> int:
        """Publish frames, a window of acknowledgements at a time, and return how many, all acknowledged."""
        before = self.sent
        source = iter(frames)
        while chunk := list(islice(source, CHUNK)):
            self._write(chunk)
            await self._until_unanswered(WINDOW - CHUNK)
        await self._until_unanswered(0)
        return self.sent - before

    async def publish_on_time(self, frames: Iterable[tuple[int, bytes]], at_most_late_ns: int) -> None:
        """Publish each frame at its instant (ns, in order) or some ms later, until all are acknowledged.

        Raises `LateLoadError` if one is written, or all are acknowledged, later than that.
        """
        source, planned = iter(frames), 0
        following = next(source, None)
        while following is not None:
            now = time.time_ns()
            chunk: list[bytes] = []
            while following is not None and following[0] <= now and len(chunk) < CHUNK:
                planned = following[0]
                refuse_if_later(now - planned, at_most_late_ns)
                chunk.append(following[1])
                following = next(source, None)
            if chunk:
                self._write(chunk)
                await self._until_unanswered(WINDOW - CHUNK)
            await asyncio.sleep(PACE_SECONDS if len(chunk) < CHUNK else 0)
        await self._until_unanswered(0)
        refuse_if_later(time.time_ns() - planned, at_most_late_ns)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the CONNECT of the protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_CONNECT + b"SUB %b 1\r\n" % REPLY)

    def data_received(self, data: bytes) -> None:
        """Count the acknowledgements in the bytes that came."""
        data = self._tail + data
        self._tail = b""
        whole = data.rfind(b"\n") + 1
        data, self._tail = data[:whole], data[whole:]
        self.acknowledged += data.count(b'"seq":')
        if b'"error"' in data or b"-ERR" in data:
            self._failure = data[:400].decode(errors="replace")
        if b"PING\r\n" in data and self._transport is not None:
            self._transport.write(b"PONG\r\n")
        self._wake.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the waiting call."""
        self._failure = self._failure or f"the server hung up ({exc})"
        self._wake.set()

    def _write(self, frames: list[bytes]) -> None:
        assert self._transport is not None
        self.sent += len(frames)
        self._transport.write(b"".join(frames))

    async def _until_unanswered(self, limit: int) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            while self.sent - self.acknowledged > limit:
                self._wake.clear()
                await self._wake.wait()
                if self._failure:
                    raise RefusedError(self._failure)


def refuse_if_later(late_ns: int, at_most_ns: int) -> None:
    """Raise if a load that is published while schedules fire lags too far behind its times."""
    if late_ns > at_most_ns:
        raise LateLoadError(f"the load is {late_ns / 1_000_000_000:.2f} s late: too slow, or too busy a machine")
