"""The needs of `jetstream.wire` and `jetstream.dial`: a nats-py without them fails here, not in production."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.control.errors import ConnectionLostError, NotConnectedError, RefusedError
from nats_scheduler.control.transport import request_json
from nats_scheduler.jetstream.connection import (
    MAX_OUTSTANDING_PINGS,
    MAX_OUTSTANDING_PINGS_OF_A_COMMAND,
    PING_INTERVAL_SECONDS,
    Connection,
)
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.wire import (
    FrameParser,
    WireClient,
)
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import SharedServer, StartServer
from tests.harness.account import account_on, flushed
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

NOTICED_SECONDS = 20.0
"""Longest time until a closed connection counts as lost."""

SILENCE_NOTICED_SECONDS = PING_INTERVAL_SECONDS * (MAX_OUTSTANDING_PINGS + 2) + NOTICED_SECONDS
"""Longest time until the connection to a silent server counts as lost."""

GREETING = b'INFO {"server_id":"X","version":"2.11.11","max_payload":1048576,"headers":true}\r\n'


async def connect(url: str, **settings: object) -> Connection:
    return await Dialer(ConnectionSettings.model_validate({"servers": (url,), **settings})).dial()


class Impostor:
    """A listener that sends INFO as a server does, answers pings, and keeps all that it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.was_left = False
        self.writer: asyncio.StreamWriter
        self.url = ""

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
    one = Impostor()
    server = await asyncio.start_server(one.serve, "127.0.0.1")
    host, port = server.sockets[0].getsockname()
    one.url = f"nats://{host}:{port}"
    async with server:
        yield one


async def is_lost(connection: Connection, within_seconds: float = NOTICED_SECONDS) -> str:
    """Wait until the connection is lost, and return why."""
    async with asyncio.timeout(within_seconds):
        return await asyncio.shield(connection.lost)


async def test_a_connection_has_a_reader_a_greeting_and_a_socket(shared_server: SharedServer) -> None:
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


# -- the end of a connection -----------------------------------------------------------------------------------------


async def test_a_killed_server_is_noticed_and_a_waiting_request_fails(start_server: StartServer) -> None:
    server = await start_server()
    connection = await connect(server.url)
    connection.subscribe("never.answered", lambda *_message: None)
    asked = asyncio.create_task(connection.request("never.answered", deadline=60))
    await flushed(connection)
    await server.kill()
    assert await is_lost(connection)
    with pytest.raises(ConnectionLostError):
        await asked
    with pytest.raises(ConnectionLostError):
        await connection.request("$JS.API.INFO")
    await connection.close()


async def test_a_frame_of_an_impossible_size_ends_the_connection() -> None:
    for line, reason in {
        b"MSG a 1 2147483647": "announces 2147483647 bytes: expected at most 67108864",
        b"HMSG a 1 12 67108865": "announces 67108865 bytes",
        b"MSG a 1 1_0": "impossible sizes",
        b"MSG a 1 +5": "impossible sizes",
        b"MSG a 1 -5": "impossible sizes",
        b"HMSG a 1 9 3": "impossible sizes",
        b"MSG a 1 many": "malformed control line",
        b"INFO [1]": "INFO is no JSON object",
        b"-ERR 'Maximum Payload Violation'": "the server ends the connection: Maximum Payload Violation",
    }.items():
        async with impostor() as server:
            connection = await connect(server.url)
            server.writer.write(line + b"\r\n")
            assert reason in await is_lost(connection), line
            await connection.close()


@pytest.mark.slow
async def test_bytes_without_an_answer_are_no_sign_of_life() -> None:
    """A sidecar ends such a connection after 2 s; a command waits longer."""
    assert PING_INTERVAL_SECONDS * (MAX_OUTSTANDING_PINGS + 1) <= 2, "early enough for what is promised of failovers"
    async with impostor() as server:
        connections, writers = list[Connection](), list[asyncio.StreamWriter]()
        for most in (MAX_OUTSTANDING_PINGS_OF_A_COMMAND, MAX_OUTSTANDING_PINGS):
            dialer = Dialer(ConnectionSettings(servers=(server.url,)), max_outstanding_pings=most)
            connections.append(await dialer.dial())
            writers.append(server.writer)
            server.writer.write(b"MSG a 1 1000000\r\n")  # a size that may be: its body comes drop by drop, and no end
        of_a_command, connection = connections

        def drips() -> bool:
            for writer in writers:
                writer.write(b"x" * 100)
            return connection.is_lost

        await eventually(drips, within_seconds=SILENCE_NOTICED_SECONDS, describe="it is noticed that nothing is said")
        assert await is_lost(connection) == "the server answers no pings"
        assert not of_a_command.is_lost
        for one in connections:
            await one.close()


async def test_what_a_server_announces_anew_is_taken() -> None:
    async with impostor() as server:
        connection = await connect(server.url)
        noticed: list[int] = []
        connection.when_limited(noticed.append)
        server.writer.write(b'INFO {"server_id":"X","max_payload":2000,"connect_urls":["127.0.0.1:1"]}\r\n')
        await eventually(lambda: noticed)
        assert (noticed, connection.server.max_payload, connection.server.version) == ([2_000], 2_000, "2.11.11")
        assert connection.known_addresses == ["127.0.0.1:1"]
        with pytest.raises(RefusedError, match="3,000 bytes with headers, and the server takes 2,000"):
            await connection.request("a", b"x" * 3_000)
        assert not connection.publish("a", b"x" * 3_000)
        server.writer.write(b'INFO {"server_id":"X","max_payload":"many"}\r\n')
        await eventually(lambda: len(noticed) == 2)
        assert await is_lost(connection) == "the server takes messages of 1048576 bytes now, and took 2000 before"
        await connection.close()


async def test_an_answer_counts_for_its_own_request_alone() -> None:
    async with impostor() as server:
        connection = await connect(server.url)

        async def asked(number: int) -> bytes:
            """Return the reply subject of a request, once it was received."""
            replies: list[bytes] = []

            def is_asked() -> bool:
                replies[:] = re.findall(rb"PUB asked (\S+) ", server.received)
                return len(replies) >= number

            await eventually(is_asked, describe=f"request {number}")
            return replies[number - 1]

        def answer(reply: bytes, body: bytes, block: bytes = b"") -> None:
            sid = re.search(rb"SUB \S+\.r\.\* (\d+)", server.received)
            assert sid is not None
            sizes = b"%d %d" % (len(block), len(block + body)) if block else b"%d" % len(body)
            kind = b"HMSG" if block else b"MSG"
            server.writer.write(b"%b %b %b %b\r\n%b%b\r\n" % (kind, reply, sid[1], sizes, block, body))

        first = asyncio.create_task(request_json(connection, "asked"))
        seen = await asked(1)
        answer(seen, b'{"n": 1}')
        assert await first == {"n": 1}
        second = asyncio.create_task(request_json(connection, "asked"))
        reply = await asked(2)
        stem, _dot, number = seen.rpartition(b".")
        assert reply.startswith(stem + b".")
        assert int(reply.rpartition(b".")[2]) - int(number) > 1 << 16, "it is not found by trying what is near"
        answer(seen, b'{"n": "an answer of before, once more"}')
        answer(b"%b.%d" % (stem, int(number) + 1), b'{"n": "somebody who counts on"}')
        answer(reply, b'{"n": "what a user stored"}', b"NATS/1.0\r\nNats-Stream: ANY\r\n\r\n")
        answer(reply, b'{"n": 2}')
        assert await second == {"n": 2}
        await connection.close()


async def test_a_connection_in_doubt_sends_nothing(
    shared_server: SharedServer,
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as doubtful, account_on(server.url) as other:
        one, arrived = doubtful.connection, list[bytes]()
        other.connection.subscribe("doubt.*", lambda subject, *_rest: arrived.append(subject))
        await flushed(other.connection)
        said = ""
        one.end_when(lambda: said)
        assert one.publish("doubt.before", b"")
        await eventually(lambda: arrived)
        assert one.publish("doubt.after", b"")
        said = "the process stood still"  # in the turn in which it was written, and not yet given to the socket
        assert await is_lost(one) == said
        await one.close()
        async with account_on(server.url) as third:
            assert third.connection.publish("doubt.last", b"")
            await eventually(lambda: b"doubt.last" in arrived)
    assert arrived == [b"doubt.before", b"doubt.last"]


async def test_no_secret_is_sent_to_a_server_without_tls() -> None:
    async with impostor() as server:
        url = server.url.replace("nats://", "tls://")
        with pytest.raises(NotConnectedError):
            await connect(url, user="user", password="swordfish")  # noqa: S106
        await eventually(lambda: server.was_left)
        assert b"swordfish" not in server.received
        assert b"CONNECT" not in server.received
