"""Deliver what a connection receives in the turn of the event loop in which it is read.

nats-py reads through a stream and a task: what a read brought was processed one or two turns later. Before that the
fires that were due in the same turn were sent, and each turn costs a system call and more.
Here the bytes go from the socket to the parser, and so to the sinks, at once. Only the control lines that nats-py
processes (pings, information, errors) wait for a task.

The rule: bytes are processed in the order in which they came, and the end of the connection after all of them.
Limit: of much that came at once, one part is processed in each turn, so that what results from it is sent in between.
"""

import asyncio
from typing import Protocol

from nats.errors import ProtocolError, UnexpectedEOF

MAX_PART_BYTES = 32_768
"""So much is processed in one turn of the event loop."""


class Parser(Protocol):
    """What the bytes are given to."""

    @property
    def has_control_line(self) -> bool:
        """Whether a control line waits for `finish`."""

    def take(self, data: bytes) -> bool:
        """Process bytes; return False if a control line, and what is behind it, waits for `finish`."""

    async def finish(self) -> None:
        """Process the control line that waits, if there is one, and what is behind it."""


class DirectReader(asyncio.Protocol):
    """Takes the place of the protocol that a connection was made with, which still gets all other events."""

    def __init__(self, transport: asyncio.Transport, parser: Parser) -> None:
        """Read from a transport from now on."""
        self._transport = transport
        self._parser = parser
        self._before = transport.get_protocol()
        self._left = b""
        """What came, and is not parsed yet."""
        self._wanted = asyncio.Event()
        """Whether a control line waits for its task, or the connection has ended."""
        self._end: Exception | None = None
        transport.set_protocol(self)

    async def run(self, read_before: bytes) -> None:
        """Process what was read before and all that comes; raise the error that ends it."""
        self.data_received(read_before)
        while self._end is None or self._parser.has_control_line:
            await self._wanted.wait()
            self._wanted.clear()
            await self._parser.finish()
        raise self._end

    def data_received(self, data: bytes) -> None:
        """Process what was read."""
        if self._left or len(data) > MAX_PART_BYTES:
            self._take_in_parts(data)
        else:
            self._take(data)

    def eof_received(self) -> bool | None:
        """Note that the server sends nothing more."""
        keeps_open = self._before.eof_received() if isinstance(self._before, asyncio.Protocol) else None
        self._ended(UnexpectedEOF())
        return keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
        self._before.connection_lost(exc)
        self._ended(exc or UnexpectedEOF())

    def pause_writing(self) -> None:
        """Pass on that the socket takes no more."""
        self._before.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the socket takes more again."""
        self._before.resume_writing()

    def _take_in_parts(self, data: bytes) -> None:
        if not self._left:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._take_part)
        self._left += data

    def _take_part(self) -> None:
        part, self._left = self._left[:MAX_PART_BYTES], self._left[MAX_PART_BYTES:]
        self._take(part)
        if self._left:
            asyncio.get_running_loop().call_soon(self._take_part)
        else:
            self._transport.resume_reading()

    def _take(self, data: bytes) -> None:
        if self._end is not None:
            return
        try:
            is_done = self._parser.take(data)
        except ProtocolError as error:
            self._ended(error)
            return
        if not is_done:
            self._wanted.set()

    def _ended(self, error: Exception) -> None:
        if self._end is None:
            self._end = error
            self._wanted.set()
