"""The input of a connection is processed in the turn in which it is read, in order, and its end comes after it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from nats.errors import ProtocolError, UnexpectedEOF

from nats_scheduler.jetstream.wire import DirectReader, FrameParser
from tests.harness.waiting import eventually

SHORT_SECONDS = 15.0
LINE = b"a line that waits for its task"


class Notes:
    """Takes the place of the parser: one line is a control line, and another one is an error."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.finished: list[bytes] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._waiting: list[bytes] = []

    @property
    def has_control_line(self) -> bool:
        return bool(self._waiting)

    def take(self, data: bytes) -> bool:
        if data == b"gibberish":
            raise ProtocolError
        if data == LINE or self._waiting:
            self._waiting.append(data)
            return False
        if data:
            self.taken.append(data)
        return True

    async def finish(self) -> None:
        while self._waiting:
            await self.go_on.wait()
            self.finished.append(self._waiting.pop(0))

    @property
    def all_taken(self) -> bytes:
        return b"".join(self.taken)


class Server:
    """The other end of the connection."""

    def __init__(self) -> None:
        self.writer: asyncio.StreamWriter
        self.is_connected = asyncio.Event()

    async def serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.is_connected.set()


@asynccontextmanager
async def reading(notes: Notes, before: bytes = b"") -> AsyncIterator[tuple[Server, asyncio.Task[None]]]:
    """Connect through a stream, as the library does, and read directly from then on."""
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1")
    async with listener:
        stream, writer = await asyncio.open_connection(*listener.sockets[0].getsockname()[:2])
        await server.is_connected.wait()
        transport = writer.transport
        assert isinstance(transport, asyncio.Transport)
        reader = DirectReader(transport, cast(FrameParser, notes))
        stream.feed_data(before)
        stream.feed_eof()
        task = asyncio.create_task(reader.run(await stream.read()))
        try:
            yield server, task
        finally:
            task.cancel()
            await asyncio.wait((task,))
            for one in (writer, server.writer):
                one.close()


async def test_what_was_read_before_comes_first() -> None:
    notes = Notes()
    async with reading(notes, b"before ") as (server, _task):
        server.writer.write(b"and after")
        await eventually(lambda: notes.all_taken == b"before and after", within_seconds=SHORT_SECONDS)


async def test_what_comes_behind_a_control_line_waits_for_it() -> None:
    notes = Notes()
    notes.go_on.clear()
    async with reading(notes) as (server, _task):
        server.writer.write(LINE)
        await eventually(lambda: notes.has_control_line, within_seconds=SHORT_SECONDS)
        server.writer.write(b"behind it")
        notes.go_on.set()
        await eventually(lambda: notes.finished + notes.taken == [LINE, b"behind it"], within_seconds=SHORT_SECONDS)


async def test_the_end_of_the_connection_comes_after_the_control_line_before_it() -> None:
    notes = Notes()
    notes.go_on.clear()
    async with reading(notes) as (server, task):
        server.writer.write(LINE)
        await eventually(lambda: notes.has_control_line, within_seconds=SHORT_SECONDS)
        server.writer.close()
        notes.go_on.set()
        with pytest.raises(UnexpectedEOF):
            await asyncio.wait_for(task, SHORT_SECONDS)
        assert notes.finished == [LINE]


async def test_bytes_that_are_not_the_protocol_end_it() -> None:
    notes = Notes()
    async with reading(notes) as (server, task):
        server.writer.write(b"gibberish")
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(task, SHORT_SECONDS)


async def test_a_connection_that_is_reset_ends_it() -> None:
    notes = Notes()
    async with reading(notes) as (server, task):
        server.writer.transport.abort()
        with pytest.raises((ConnectionError, UnexpectedEOF)):
            await asyncio.wait_for(task, SHORT_SECONDS)
