"""The message path on the wire: frames parsed from the socket's bytes, frames written to it.

nats-py connects, authenticates, upgrades to TLS and answers pings. Its code between the socket and a callback is
replaced here, for three reasons.
It merges duplicate headers and strips their values, and the sidecar promises them byte for byte.
It spends an object, a queue slot and a task switch on each message, and the sidecar has to read 100,000 a second.
Its subscriptions silently drop messages at their pending limit, and a scheduler that misses a message misses a fire.

The rule: a sink is called synchronously, in the order of arrival, and must not raise.
Cost: linear in the bytes, however small the pieces in which they come, and the same for one subscription as for
thousands: a frame goes to its subscription by number, and after a read only the listeners that asked for it are called.
Limit: a frame is no larger than what a server lets wait for one client; one that announces more ends the connection.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import nats.aio.client
from nats.errors import ProtocolError, UnexpectedEOF

from nats_scheduler.control.errors import NotConnectedError
from nats_scheduler.jetstream.denials import Denial, read_denial
from nats_scheduler.message.capabilities import DEFAULT_MAX_PAYLOAD
from nats_scheduler.message.foreign_json import Object, integer, read_object


class FrameError(ProtocolError):
    """What a server sends is not the protocol, or not what it announced; the connection cannot be read any further."""

    def __str__(self) -> str:
        return str(self.args[0])


class DirectReader(asyncio.Protocol):
    """Takes the place of the protocol that a connection was made with, which still gets all other events.

    nats-py reads through a stream and a task, one or two turns of the event loop later, and each turn costs a system
    call and more. Here the bytes go from the socket to the parser, and so to the sinks, in the turn in which they are
    read: 256 KiB at most. Only the control lines that nats-py processes (pings, information, errors) wait for a task.
    Bytes are processed in the order in which they came, and the end of the connection after all of them.
    """

    def __init__(self, transport: asyncio.Transport, parser: "FrameParser") -> None:
        """Read from a transport from now on."""
        self._parser = parser
        self._before = transport.get_protocol()
        self._wanted = asyncio.Event()
        """An event that is set if a control line waits for its task, or the connection has ended."""
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
        if self._end is not None:
            return
        try:
            is_done = self._parser.take(data)
        except ProtocolError as error:
            self._ended(error)
            return
        if not is_done:
            self._wanted.set()

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

    def _ended(self, error: Exception) -> None:
        if self._end is None:
            self._end = error
            self._wanted.set()


Sink = Callable[[bytes, bytes, bytes, bytes], None]
"""Receives subject, reply subject (`b""` without one), header block (`b""` without one) and body of one message."""

RunReader = Callable[[bytes, int], int]
"""Reads the messages that it can parse from a buffer, from a position on; returns where it stopped.

It handles each one as its subscription's sink would, or stops before it.
"""

MIN_RUN_BYTES = 1_024
"""With fewer bytes in a buffer, runs are not tried: they would cost more than they save."""

MAX_RECEIVED_CONTROL_LINE_BYTES = 64 * 1024
"""Longest control line that is accepted: far above the server's own default of 4 KiB."""

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""What a server lets wait for one client (`max_pending`) unless its operator says otherwise: no frame is larger.

A frame may be larger than the server's `max_payload`: answers of JetStream are, such as lists of subjects, and so are
messages that were stored before it was lowered.
"""

ANSWER_FACTOR = 2
"""An answer that holds a stored message is at most so many times as large as `max_payload`: it is written in base64."""

MIN_PROGRESS_BYTES = 32 * 1024
"""If the line carries so much between two pings, the answer to the first one may still be behind it: 64 KiB/s."""

ANNOUNCED_ANEW = frozenset(("max_payload",))
"""What is taken of an announcement to another connection: the rest is of that connection, or does not change."""

ANNOUNCEMENT_LIMIT_SECONDS = 1.0
"""Longest wait for what a server announces to a new connection."""

_CRLF = b"\r\n"
_MESSAGES = b"MmHh"
_MESSAGES_WITH_HEADERS = b"Hh"
_ERR = re.compile(rb"-ERR\s+'?([^'\r\n]*)'?", re.IGNORECASE)


class FrameParser:
    """Parse frames from what was read, and pass messages to their sinks.

    It takes the place of nats-py's parser, which calls `parse` and, on a new connection, `reset`.
    """

    def __init__(self, client: "WireClient") -> None:
        self._client = client
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = 0
        self._line: bytes | None = None
        """A control line that waits until nats-py has processed it, and all that came behind it."""

    def reset(self) -> None:
        """Discard an incomplete frame: its rest was lost with the connection."""
        self._line = None
        self._keep(b"")

    async def parse(self, data: bytes = b"") -> None:
        """Process the bytes that were just read; raise `ProtocolError` if they are not the NATS protocol."""
        if not self.take(data):
            await self.finish()

    @property
    def has_control_line(self) -> bool:
        """True if a control line waits for `finish`."""
        return self._line is not None

    def take(self, data: bytes) -> bool:
        """Process the bytes that were just read; raises as `parse` does.

        Returns False if a control line, and what came behind it, waits for `finish`.
        """
        self._client.received_bytes += len(data)
        self._pieces.append(data)
        self._held += len(data)
        if self._line is None and self._is_worth_a_look(data):
            self._read()
        return self._line is None

    async def finish(self) -> None:
        """Process the control line that waits, if there is one, and what came behind it."""
        while self._line is not None:
            await self._control(self._line)
            self._line = None
            self._read()

    def _read(self) -> None:
        """Process the bytes that are held, up to the first control line that has to wait."""
        buffer = b"".join(self._pieces)
        self._wanted = 0
        position = self._deliver(buffer, 0)
        while not self._wanted and (end := buffer.find(_CRLF, position)) >= 0:
            line = buffer[position:end]
            if line[:3].upper() != b"+OK":
                self._line = line
                self._keep(buffer[end + 2 :])
                return
            position = self._deliver(buffer, end + 2)
        self._keep(buffer[position:] if position else buffer)
        self._client.chunk_ended()

    def _is_worth_a_look(self, data: bytes) -> bool:
        """Return whether the first frame may be complete: to join the pieces costs time for all their bytes."""
        if self._wanted:
            return self._held >= self._wanted
        if b"\n" in data:
            return True
        if self._held > MAX_RECEIVED_CONTROL_LINE_BYTES:
            raise FrameError(f"a control line of more than {MAX_RECEIVED_CONTROL_LINE_BYTES} bytes")
        return False

    def _keep(self, rest: bytes) -> None:
        self._pieces = [rest] if rest else []
        self._held = len(rest)
        if not rest:
            self._wanted = 0

    def _deliver(self, buffer: bytes, position: int) -> int:
        """Deliver the messages from `position` on; return where the first other, or incomplete, frame starts.

        Runs are used if possible; for the rest there is one loop that calls nothing but the sinks.
        """
        sinks, find, held = self._client.sinks, buffer.find, len(buffer)
        runs = self._client.runs if held - position >= MIN_RUN_BYTES else self._client.short_runs
        most = self._client.max_frame
        while (end := find(_CRLF, position)) >= 0 and (kind := buffer[position]) in _MESSAGES:
            fields = buffer[position:end].split()
            has_headers = kind in _MESSAGES_WITH_HEADERS
            try:
                size = int(fields[-1])
                header_size = int(fields[-2]) if has_headers else 0
                sid = int(fields[2])
            except (ValueError, IndexError):
                raise FrameError(f"malformed control line {buffer[position:end][:MAX_SHOWN_BYTES]!r}") from None
            if not (0 <= header_size <= size <= most and fields[-1].isdigit()):
                raise _impossible(buffer[position:end], size, most)
            if (run := runs.get(sid)) is not None and (through := run(buffer, position)) > position:
                position = through
                continue
            split = end + 2 + header_size
            after = end + 2 + size
            if held < after + 2:
                self._wanted = after + 2 - position
                break
            if (sink := sinks.get(sid)) is not None:
                reply = fields[3] if len(fields) == (6 if has_headers else 5) else b""
                sink(fields[1], reply, buffer[end + 2 : split], buffer[split:after])
            position = after + 2
        return position

    async def _control(self, line: bytes) -> None:
        operation = line[:4].upper()
        if operation == b"PING":
            await self._client._process_ping()
        elif operation == b"PONG":
            self._client.answered()
            await self._client._process_pong()
        elif operation == b"INFO":
            info = read_object(line[4:])
            if info is None:
                raise FrameError(f"INFO is no JSON object: {line[:MAX_SHOWN_BYTES]!r}")
            await self._client._process_info(info)
        elif operation == b"-ERR":
            await self._error(line)
        else:
            raise FrameError(f"unknown protocol line {line[:MAX_SHOWN_BYTES]!r}")

    async def _error(self, line: bytes) -> None:
        denial = read_denial(line)
        if denial is not None:
            self._client.denied(denial)
            return
        match = _ERR.match(line)
        text = match[1].decode(errors="replace") if match else ""
        self._client.fault = f"the server ends the connection: {text[:MAX_SHOWN_BYTES]}"
        await self._client._process_err(text.lower())


MAX_SHOWN_BYTES = 80
"""Most bytes of a faulty line that a message contains."""


def _impossible(line: bytes, size: int, most: int) -> FrameError:
    """Return what is wrong with the sizes that a control line names."""
    shown = f"{line[:MAX_SHOWN_BYTES]!r}"
    return FrameError(
        f"{shown} announces {size} bytes: expected at most {most}" if size > most else f"impossible sizes in {shown}"
    )


class WireClient(nats.aio.client.Client):
    """A nats-py client with the message path of this module."""

    def __init__(self) -> None:
        super().__init__()
        self._ps: Any = FrameParser(self)
        self._next_sid = 0
        self.sinks: dict[int, Sink] = {}
        self.after_chunk: list[Callable[[], None]] = []
        """Called once each, when all messages of one read were delivered."""
        self.runs: dict[int, RunReader] = {}
        """By the number of the subscription: called first; what they leave goes to the sinks."""
        self.short_runs: dict[int, RunReader] = {}
        """Those of them that are called for few bytes too."""
        self.when_denied: list[Callable[[Denial], None]] = []
        self._outgoing: list[bytes] = []
        self.may_write: Callable[[], bool] = lambda: True
        """Called right before anything is given to the socket; on False it is discarded."""
        self.received_bytes = 0
        """Bytes that came since the last ping."""
        self._unanswered = self._silent = 0
        """Pings since the last answer, and those among them, in a row, before which the line carried nothing."""
        self.fault = ""
        """Why the connection ended, if the server or its protocol is the reason."""
        self.when_informed: list[Callable[[], None]] = []
        """Called when the server sent its information again, or it was read again."""
        self.max_frame = MAX_WAITING_BYTES
        """Bytes of the largest frame that is read."""
        self.must_encrypt = False
        """Refuse to log in without TLS, so that no secret is sent in clear text."""

    def answered(self) -> None:
        """Note that the server answered a ping."""
        self._unanswered = self._silent = 0

    def ping(self) -> tuple[int, int]:
        """Ping the server, unless it has just answered; return the calls since then: those in silence, and all.

        Bytes are no answer: those of a frame without an end come for ever. But on a slow line the answer itself may be
        behind megabytes, so while the line carries something there is no silence.
        """
        is_moving, self.received_bytes = self.received_bytes >= MIN_PROGRESS_BYTES, 0
        self._unanswered += 1
        self._silent = 0 if is_moving else self._silent + 1
        if self._unanswered > 1:
            self.write(b"PING\r\n")
        return self._silent, self._unanswered

    def chunk_ended(self) -> None:
        """Call the listeners for the end of a read: all its messages were delivered."""
        if self.after_chunk:
            listeners, self.after_chunk = self.after_chunk, []
            for listener in listeners:
                listener()

    def denied(self, denial: Denial) -> None:
        """Notify the listeners of a permission that the user lacks."""
        for listener in list(self.when_denied):
            listener(denial)

    def add_sink(self, subject: str, sink: Sink, queue_group: str = "") -> int:
        """Subscribe `sink` to a subject, in a queue group if one is named; return the subscription's number."""
        self._next_sid += 1
        self.sinks[self._next_sid] = sink
        group = f"{queue_group} " if queue_group else ""
        self.write(f"SUB {subject} {group}{self._next_sid}\r\n".encode())
        return self._next_sid

    def remove_sink(self, sid: int) -> None:
        """Unsubscribe; twice is harmless, and messages that still arrive are not delivered."""
        self.runs.pop(sid, None)
        self.short_runs.pop(sid, None)
        if self.sinks.pop(sid, None) is not None:
            self.write(f"UNSUB {sid}\r\n".encode())

    def write(self, frames: bytes) -> None:
        """Send whole frames, in order, after this turn of the event loop.

        What is written in one turn leaves in one system call: a thousand small requests cost one.
        On a lost connection they are discarded.
        """
        self._outgoing.append(frames)
        if len(self._outgoing) == 1:
            asyncio.get_running_loop().call_soon(self.flush_frames)

    def flush_frames(self) -> None:
        """Pass what was written to the socket now."""
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self.may_write() and self.is_connected and self._transport is not None:
            self._transport.write(b"".join(outgoing))

    async def _read_loop(self) -> None:
        """Read until the connection ends; nats-py starts this as a task once it is logged in."""
        try:
            library: Any = self._transport
            stream: asyncio.StreamReader = library._io_reader
            reader = DirectReader(library._io_writer.transport, self._ps)
            stream.feed_eof()  # nothing more comes to it: what it has can be read without waiting
            await reader.run(await stream.read())
        except asyncio.CancelledError:
            return
        except Exception as error:
            if isinstance(error, FrameError):
                self.fault = f"the server does not keep to the protocol: {error}"
            await self._process_op_err(error)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(info, initial_connection)
        self.informed(info)

    def informed(self, info: Object) -> None:
        """Take what the server announces of itself from now on."""
        self._server_info = {**self._server_info, **info}
        self.max_frame = max(MAX_WAITING_BYTES, ANSWER_FACTOR * self.max_payload)
        for listener in self.when_informed:
            listener()

    async def look_again(self) -> None:
        """Take what the same server announces to a connection of its own, which does not log in.

        A server that reloads its configuration announces nothing to those that are connected.
        """
        writer: Any = getattr(self._transport, "_io_writer", None)
        address = None if writer is None else writer.get_extra_info("peername")
        if address is None:
            return
        options: dict[str, Any] = {"limit": MAX_RECEIVED_CONTROL_LINE_BYTES}
        if self.options.get("tls_handshake_first") and self.connected_url is not None:
            options |= {"ssl": self.options["tls"], "server_hostname": self.connected_url.hostname}
        line = b""
        try:
            async with asyncio.timeout(ANNOUNCEMENT_LIMIT_SECONDS):
                reader, own = await asyncio.open_connection(*address[:2], **options)
                try:
                    line = await reader.readline()
                finally:
                    own.close()
        except (OSError, ValueError, TimeoutError):  # it is asked again
            return
        info = read_object(line[4:]) if line[:5].upper() == b"INFO " else None
        if info is not None and info.get("server_id") == self._server_info.get("server_id"):
            self.informed({name: info[name] for name in ANNOUNCED_ANEW & info.keys()})

    def _connect_command(self) -> Any:
        if self.must_encrypt and not self.is_encrypted:
            raise NotConnectedError("TLS was asked for, and the server does not offer it")
        return super()._connect_command()

    @property
    def reading(self) -> Any:
        """The task that reads the socket: when it ends, the connection is lost, whatever state nats-py reports."""
        return self._reading_task

    @property
    def server_info(self) -> dict[str, Any]:
        """The server's last INFO."""
        return dict(self._server_info)

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body together that the server takes, by its last INFO."""
        most = integer(self._server_info.get("max_payload"))
        return most if most > 0 else DEFAULT_MAX_PAYLOAD

    @property
    def is_encrypted(self) -> bool:
        """True if the socket in use is TLS."""
        writer = getattr(self._transport, "_io_writer", None)
        return writer is not None and writer.get_extra_info("ssl_object") is not None

    def unsent_bytes(self) -> int:
        """Return how many bytes wait in this process for the socket to take them."""
        writer = getattr(self._transport, "_io_writer", None)
        return 0 if writer is None else int(writer.transport.get_write_buffer_size())
