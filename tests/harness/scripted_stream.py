"""A NATS server of one stream, in this process, whose consumers do whatever a test says: stay silent, skip, end, lag.

No real server can be made to do all of that, and what it sends arrives here as bytes on a socket, as from a real one.

The rule: what it says of itself is true of what it has stored; it only says it late, not at all, or not to all.
Limit: one connection, one stream, and the requests that a follower sends; it stores no bodies and no headers of value.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from nats_scheduler.control.requests import MESSAGE_NOT_FOUND
from nats_scheduler.jetstream.api import CONSUMER_LIMIT_REACHED, CONSUMER_NOT_FOUND
from nats_scheduler.message.subjects import subject_matches
from tests.harness.waiting import time_reached

STREAM = "S"
STORED_AT = 1_764_000_000_000_000_000
BLOCK = b"NATS/1.0\r\nA: value\r\n\r\n"
HEARTBEAT_SECONDS = 0.005


class ScriptedConsumer:
    """One consumer: what it was asked for, and how far it has come."""

    def __init__(self, name: str, first: int) -> None:
        self.name = name
        self.next = first
        self.order = 0
        self.wanted = 0
        self.inbox = ""

    def count_next(self) -> None:
        """Note that its next message was sent."""
        self.next, self.order, self.wanted = self.next + 1, self.order + 1, self.wanted - 1


class ScriptedStream:
    """The stream, its consumers, and what is wrong with them at the moment."""

    def __init__(self) -> None:
        self.last = 0
        """The sequence of the last message; all from 1 on are stored."""
        self.heal()
        self.consumers: dict[str, ScriptedConsumer] = {}
        self.pulls: list[int] = []
        """How many messages each pull asked for."""
        self._patterns: dict[int, str] = {}
        self._writer: asyncio.StreamWriter | None = None

    def heal(self) -> None:
        """Let everything work from now on."""
        self.creates = True
        """It answers those who ask for a consumer."""
        self.is_limited = False
        """It refuses them."""
        self.answers = True
        """It answers questions about the stream."""
        self.lag = 0
        """The messages that consumers do not know of yet."""
        self.is_mute = False
        """Consumers send nothing."""

    def store(self, count: int) -> list[int]:
        """Store messages, and return their sequences."""
        first, self.last = self.last + 1, self.last + count
        self.deliver()
        return list(range(first, self.last + 1))

    def skip(self) -> None:
        """Lose the next message of each consumer on its way."""
        for consumer in self.consumers.values():
            if consumer.next <= self.last and consumer.wanted:
                consumer.count_next()

    def forget(self) -> None:
        """Lose all consumers without a word."""
        self.consumers.clear()

    def say(self, line: str) -> None:
        """Have all consumers send a status."""
        for consumer in self.consumers.values():
            if line.startswith("408"):
                self._end_pull(consumer, line)
            else:
                self._send(consumer.inbox, f"NATS/1.0 {line}\r\n\r\n".encode())

    def _end_pull(self, consumer: ScriptedConsumer, line: str) -> None:
        left, consumer.wanted = consumer.wanted, 0
        self._send(consumer.inbox, f"NATS/1.0 {line}\r\nNats-Pending-Messages: {left}\r\n\r\n".encode())

    def deliver(self) -> None:
        """Have consumers deliver what is stored and they were asked for."""
        last = self.last - self.lag
        for consumer in () if self.is_mute else self.consumers.values():
            frames = []
            while consumer.wanted > 0 and consumer.next <= last:
                numbers = f"{consumer.next}.{consumer.order + 1}.{STORED_AT}.{last - consumer.next}"
                reply = f"$JS.ACK.{STREAM}.{consumer.name}.1.{numbers}"
                frames.append(self._frame(consumer.inbox, BLOCK, reply, subject=f"s.{consumer.next}"))
                consumer.count_next()
            self._write(b"".join(frames))

    # -- the protocol --------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        self._writer = writer
        info = {"server_id": "N", "version": "2.11.11", "headers": True, "max_payload": 1 << 20, "jetstream": True}
        writer.write(b"INFO %b\r\n" % json.dumps({**info, "proto": 1, "cluster": "C", "server_name": "n1"}).encode())
        beating = asyncio.create_task(self._beat())
        try:
            with suppress(ConnectionError):
                while line := await reader.readline():
                    await self._obey(line.split(), reader)
        finally:
            beating.cancel()
            writer.close()

    async def _beat(self) -> None:
        while True:
            await time_reached(asyncio.get_running_loop().time() + HEARTBEAT_SECONDS)
            if not self.is_mute:
                self.say("100 Idle Heartbeat")

    async def _obey(self, words: list[bytes], reader: asyncio.StreamReader) -> None:
        match words:
            case [b"PING"]:
                self._write(b"PONG\r\n")
            case [b"SUB", subject, sid]:
                self._patterns[int(sid)] = subject.decode()
            case [b"UNSUB", sid]:
                self._patterns.pop(int(sid), None)
            case [b"PUB", subject, *reply, size]:
                body = (await reader.readexactly(int(size) + 2))[:-2]
                self._asked(subject.decode(), reply[0].decode() if reply else "", json.loads(body or b"{}"))

    def _asked(self, subject: str, reply: str, body: Any) -> None:
        kind, _, name = subject.removeprefix("$JS.API.").rpartition(f".{STREAM}.")
        if not kind:
            kind = subject.removeprefix("$JS.API.").removesuffix(f".{STREAM}")
        if kind == "CONSUMER.MSG.NEXT":
            self._pulled(name, reply, body)
            return
        answer = self._answer(kind, name, body)
        if answer is not None and reply:
            self._send(reply, b"", json.dumps(answer).encode())

    def _answer(self, kind: str, name: str, body: Any) -> dict[str, Any] | None:
        if kind == "CONSUMER.CREATE":
            return self._create(name, body["config"]["opt_start_seq"])
        if kind == "CONSUMER.DELETE":
            self.consumers.pop(name, None)
            return {"success": True} if self.answers else None
        if not self.answers:
            return None
        if kind == "CONSUMER.INFO":
            consumer = self.consumers.get(name)
            if consumer is None:
                return _refusal(404, CONSUMER_NOT_FOUND)
            left = self.last - self.lag + 1 - consumer.next
            return {"num_pending": max(left, 0), "delivered": {"consumer_seq": consumer.order}}
        if kind == "STREAM.INFO":
            return {"config": {"name": STREAM}, "state": {"last_seq": self.last}}
        assert kind == "STREAM.MSG.GET", kind
        sequence = body["seq"]
        if sequence > self.last:
            return _refusal(404, MESSAGE_NOT_FOUND)
        return {"message": {"subject": f"s.{sequence}", "seq": sequence, "time": "2026-01-01T00:00:00Z"}}

    def _create(self, name: str, first: int) -> dict[str, Any] | None:
        if self.is_limited:
            return _refusal(400, CONSUMER_LIMIT_REACHED)
        if not self.creates:
            return None
        self.consumers.setdefault(name, ScriptedConsumer(name, first))
        return {"config": {}, "num_pending": max(self.last - self.lag + 1 - first, 0)}

    def _pulled(self, name: str, reply: str, body: Any) -> None:
        consumer = self.consumers.get(name)
        self.pulls.append(body["batch"])
        if consumer is None:
            self._send(reply, b"NATS/1.0 503\r\n\r\n")
        elif body.get("no_wait") and consumer.next > self.last - self.lag:
            self._send(reply, b"NATS/1.0 404 No Messages\r\n\r\n")
        else:
            is_only_pull, consumer.inbox = not consumer.wanted, reply
            consumer.wanted += body["batch"]
            self.deliver()
            if is_only_pull and body.get("no_wait") and consumer.wanted and not self.is_mute:
                self._end_pull(consumer, "408 Request Timeout")

    def _send(self, to: str, block: bytes, body: bytes = b"") -> None:
        self._write(self._frame(to, block, body=body))

    def _frame(self, to: str, block: bytes, reply: str = "", subject: str = "", body: bytes = b"") -> bytes:
        """Return the frame of a message; what nobody subscribes to has none."""
        sid = next((sid for sid, pattern in self._patterns.items() if subject_matches(to, pattern)), None)
        if sid is None:
            return b""
        words = f"{subject or to} {sid} {reply}".rstrip()
        if block:
            return f"HMSG {words} {len(block)} {len(block) + len(body)}\r\n".encode() + block + body + b"\r\n"
        return f"MSG {words} {len(body)}\r\n".encode() + body + b"\r\n"

    def _write(self, frames: bytes) -> None:
        if frames and self._writer is not None:
            self._writer.write(frames)


def _refusal(status: int, code: int) -> dict[str, Any]:
    return {"error": {"code": status, "err_code": code, "description": "refused"}}


@asynccontextmanager
async def scripted_stream() -> AsyncIterator[tuple[ScriptedStream, str]]:
    """Run a stream, and yield it with its address."""
    stream = ScriptedStream()
    server = await asyncio.start_server(stream.serve, "127.0.0.1", 0)
    try:
        yield stream, f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
