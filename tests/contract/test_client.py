"""The needs of `jetstream.wire` and `jetstream.dial`: a nats-py without them fails here, not in production."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats.aio.client
import pytest

from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.dial import MAX_OUTSTANDING_PINGS, PING_INTERVAL_SECONDS, Dialer
from nats_scheduler.jetstream.errors import ConnectError, ConnectionLostError
from nats_scheduler.jetstream.wire import MAX_RECEIVED_CONTROL_LINE_BYTES, FrameParser, WireClient
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import SharedServer, StartServer
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

NOTICED_SECONDS = 20.0
"""Longest time until a closed connection counts as lost."""

SILENCE_NOTICED_SECONDS = PING_INTERVAL_SECONDS * (MAX_OUTSTANDING_PINGS + 2) + NOTICED_SECONDS
"""Longest time until the connection to a silent server counts as lost."""

GREETING = b'INFO {"server_id":"X","version":"2.11.11","max_payload":1048576,"headers":true}\r\n'
Message = tuple[bytes, bytes, bytes, bytes]


async def connect(url: str, **settings: object) -> Connection:
    return await Dialer(ConnectionSettings.model_validate({"servers": (url,), **settings})).dial()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await connect(url)
    try:
        yield connection
    finally:
        await connection.close()


class Impostor:
    """A listener that sends INFO as a server does, answers pings, and keeps all that it receives."""

    def __init__(self, server: asyncio.Server) -> None:
        self.received = b""
        self.was_left = False
        self.writer: asyncio.StreamWriter
        self._server = server

    @property
    def url(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"nats://{host}:{port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(GREETING)
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                self.received += chunk
                if b"PING\r\n" in chunk:
                    writer.write(b"PONG\r\n")
        writer.close()
        self.was_left = True


@asynccontextmanager
async def impostor() -> AsyncIterator[Impostor]:
    listeners: list[Impostor] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await listeners[0].serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1")
    listeners.append(Impostor(server))
    async with server:
        yield listeners[0]


async def is_lost(connection: Connection, within_seconds: float = NOTICED_SECONDS) -> str:
    """Wait until the connection is lost, and return why."""
    async with asyncio.timeout(within_seconds):
        return await asyncio.shield(connection.lost)


class TestThePrivateParts:
    @pytest.mark.parametrize(
        "name",
        [
            "_process_ping",
            "_process_pong",
            "_process_info",
            "_process_err",
            "_process_op_err",
            "_read_loop",
            "_connect_command",
        ],
    )
    def test_the_methods_that_we_call_or_replace_exist(self, name: str) -> None:
        assert callable(getattr(nats.aio.client.Client, name))

    @pytest.mark.parametrize("name", ["_ps", "_transport", "_reading_task", "_server_info", "_pings_outstanding"])
    def test_the_attributes_that_we_use_exist(self, name: str) -> None:
        assert name in vars(nats.aio.client.Client())

    async def test_a_connection_has_a_reader_a_greeting_and_a_socket(self, shared_server: SharedServer) -> None:
        server = await shared_server(V2_11)
        client = WireClient()
        await client.connect(server.url, allow_reconnect=False)
        try:
            assert isinstance(client.reading, asyncio.Task)
            assert client.server_info["version"] == server.version
            assert (client.is_encrypted, client.unsent_bytes()) == (False, 0)
            assert isinstance(client._ps, FrameParser)
            library: Any = client._transport
            assert isinstance(library._io_reader, asyncio.StreamReader)
            assert isinstance(library._io_writer, asyncio.StreamWriter)
        finally:
            await client.close()


class TestTheEndOfAConnection:
    async def test_a_killed_server_is_noticed_and_a_waiting_request_fails(self, start_server: StartServer) -> None:
        server = await start_server()
        connection = await connect(server.url)
        connection.subscribe("never.answered", lambda *_message: None)
        asked = asyncio.create_task(connection.request("never.answered", deadline=60))
        await connection.request("$JS.API.INFO")
        await server.kill()
        assert await is_lost(connection)
        with pytest.raises(ConnectionLostError):
            await asked
        with pytest.raises(ConnectionLostError):
            await connection.request("$JS.API.INFO")
        await connection.close()

    async def test_a_server_that_shuts_down_is_noticed(self, start_server: StartServer) -> None:
        server = await start_server()
        connection = await connect(server.url)
        await server.stop()
        assert await is_lost(connection)
        await connection.close()

    async def test_a_stopped_server_is_noticed(self, start_server: StartServer) -> None:
        server = await start_server()
        connection = await connect(server.url)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert await is_lost(connection, SILENCE_NOTICED_SECONDS)
        finally:
            os.kill(server.pid, signal.SIGCONT)
            await connection.close()

    async def test_an_error_from_the_server_ends_the_connection(self, shared_server: SharedServer) -> None:
        connection = await connect((await shared_server(V2_11)).url)
        connection.write(b"NONSENSE\r\n")
        assert await is_lost(connection)
        await connection.close()

    @pytest.mark.parametrize("said", [b"-ERR 'Stale Connection'\r\n", b"-ERR 'Authorization Violation'\r\n"])
    async def test_whatever_the_error_says(self, said: bytes) -> None:
        async with impostor() as server:
            connection = await connect(server.url)
            server.writer.write(said)
            assert await is_lost(connection)
            await connection.close()

    @pytest.mark.parametrize(
        "said", [b"MSG a b c d e\r\n", b"GIBBERISH\r\n", b"x" * (MAX_RECEIVED_CONTROL_LINE_BYTES + 1)]
    )
    async def test_bytes_that_are_not_the_protocol_end_the_connection(self, said: bytes) -> None:
        async with impostor() as server:
            connection = await connect(server.url)
            server.writer.write(said)
            assert await is_lost(connection)
            await connection.close()

    async def test_a_permission_violation_does_not(self, start_server: StartServer) -> None:
        config = 'authorization { users: [{user: u, password: p, permissions: {publish: ["ok", "_INBOX.>"]}}] }\n'
        server = await start_server(config=config)
        connection = await connect(server.url, user="u", password="p")  # noqa: S106
        connection.write(frame("forbidden", "", b"", b""))
        arrived: list[bytes] = []
        connection.subscribe("ok", lambda subject, *_rest: arrived.append(subject))
        connection.write(frame("ok", "", b"", b""))
        await eventually(lambda: arrived, within_seconds=NOTICED_SECONDS)
        assert not connection.is_lost
        await connection.close()

    def test_silence_is_noticed_early_enough_for_live(self) -> None:
        assert PING_INTERVAL_SECONDS * (MAX_OUTSTANDING_PINGS + 1) <= 2


class TestSecrets:
    async def test_tls_asked_of_a_plaintext_server_is_refused_before_any_secret_is_sent(self) -> None:
        async with impostor() as server:
            url = server.url.replace("nats://", "tls://")
            with pytest.raises(ConnectError):
                await connect(url, user="user", password="swordfish")  # noqa: S106
            await eventually(lambda: server.was_left, within_seconds=NOTICED_SECONDS)
            assert b"swordfish" not in server.received
            assert b"CONNECT" not in server.received

    async def test_a_wrong_password_is_said_and_not_shown(self, start_server: StartServer) -> None:
        server = await start_server(config="authorization { user: u, password: p }\n")
        with pytest.raises(ConnectError) as raised:
            await connect(server.url, user="u", password="swordfish")  # noqa: S106
        assert "swordfish" not in str(raised.value)
        assert "authorization" in str(raised.value).lower()


class TestFrames:
    """Frames are parsed as they were sent, in whatever pieces the bytes come."""

    async def received(self, deliver: Callable[[FrameParser], Awaitable[None]]) -> list[Message]:
        client, messages = WireClient(), list[Message]()
        client.sinks[7] = lambda *message: messages.append(message)
        await deliver(FrameParser(client))
        return messages

    MESSAGES: tuple[Message, ...] = (
        (b"a.b", b"", b"", b""),
        (b"a.b", b"reply.to", b"", b"hello\r\nMSG a 7 3\r\n"),
        (b"a.b", b"", b"NATS/1.0\r\nA: 1\r\n\r\n", b""),
        ("größe.ф".encode(), b"reply.to", b"NATS/1.0 503\r\n\r\n", b"\x00\xff" * 10),
        (b"big", b"", b"NATS/1.0\r\nA: 1\r\n\r\n", b"x" * 1_048_576),
        (b"last", b"r", b"", b"\r\n"),
    )

    def wire(self) -> bytes:
        frames = []
        for subject, reply, block, body in self.MESSAGES:
            middle = b" " + reply if reply else b""
            if block:
                sizes = b"%d %d" % (len(block), len(block) + len(body))
                frames.append(b"HMSG %b 7%b %b\r\n%b%b\r\n" % (subject, middle, sizes, block, body))
            else:
                frames.append(b"MSG %b 7%b %d\r\n%b\r\n" % (subject, middle, len(body), body))
        return b"".join(frames)

    @pytest.mark.parametrize("size", [1 << 30, 65_536, 4_096, 1_000])
    async def test_split_anywhere_they_are_the_same(self, size: int) -> None:
        wire = self.wire()

        async def deliver(parser: FrameParser) -> None:
            for start in range(0, len(wire), size):
                await parser.parse(wire[start : start + size])

        assert await self.received(deliver) == list(self.MESSAGES)

    async def test_byte_by_byte_they_are_the_same(self) -> None:
        wire = self.wire()
        short = wire[: wire.index(b"HMSG big")]

        async def deliver(parser: FrameParser) -> None:
            for byte in range(len(short)):
                await parser.parse(short[byte : byte + 1])

        assert await self.received(deliver) == list(self.MESSAGES[:4])

    async def test_many_in_one_chunk_come_in_order(self) -> None:
        wire = b"".join(b"MSG s.%d 7 1\r\n%d\r\n" % (number, number % 10) for number in range(10_000))
        messages = await self.received(lambda parser: parser.parse(wire))
        assert [subject for subject, *_rest in messages] == [b"s.%d" % number for number in range(10_000)]

    async def test_a_message_for_nobody_is_passed_over(self) -> None:
        wire = b"MSG a 8 1\r\nx\r\nMSG b 7 1\r\ny\r\n"
        assert await self.received(lambda parser: parser.parse(wire)) == [(b"b", b"", b"", b"y")]

    async def test_through_a_real_server_they_arrive_byte_for_byte(
        self, shared_server: SharedServer, stream_name: str
    ) -> None:
        async with connected((await shared_server(V2_11)).url) as connection:
            arrived: list[Message] = []
            connection.subscribe(f"{stream_name}.>", lambda *message: arrived.append(message))
            block = b"NATS/1.0\r\nX:\t\xff \r\nX: a\r\nX:a\r\n\r\n"
            sent = [(f"{stream_name}.größe.{number}", block, bytes([number]) * 1_000_000) for number in range(5)]
            sent += [(f"{stream_name}.{number}", b"", b"%d" % number) for number in range(2_000)]
            connection.write(b"".join(frame(subject, "", headers, body) for subject, headers, body in sent))
            await eventually(
                lambda: len(arrived) == len(sent), within_seconds=30, describe=lambda: f"{len(arrived)} heard"
            )
            assert arrived == [(subject.encode(), b"", headers, body) for subject, headers, body in sent]


async def test_a_connection_that_is_in_doubt_when_bytes_are_to_leave_sends_none_of_them(
    shared_server: SharedServer,
) -> None:
    server = await shared_server(V2_11)
    async with connected(server.url) as one, connected(server.url) as other:
        arrived: list[bytes] = []
        other.subscribe("doubt.*", lambda subject, *_rest: arrived.append(subject))
        await other.request("$JS.API.INFO")
        said = ""
        one.end_when(lambda: said)
        assert one.publish("doubt.before", b"")
        await eventually(lambda: arrived, within_seconds=NOTICED_SECONDS)
        assert one.publish("doubt.after", b"")
        said = "the process stood still"  # in the turn in which it was written, and not yet given to the socket
        async with asyncio.timeout(NOTICED_SECONDS):
            assert await one.lost == said
        await one.close()
        async with connected(server.url) as third:
            assert third.publish("doubt.last", b"")
            await eventually(lambda: b"doubt.last" in arrived, within_seconds=NOTICED_SECONDS)
    assert arrived == [b"doubt.before", b"doubt.last"]
