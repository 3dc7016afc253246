"""A bad network on demand: a TCP proxy between a client and a nats-server.

    proxy.cut()                         every link breaks now, as by a reset; new ones work
    proxy.strand()                      every link stays open and carries nothing any more; new ones work
    proxy.refuse() / proxy.accept()     new links are turned away
    proxy.to_client.hold() / release()  nothing passes in this direction, and nothing is lost
    proxy.to_client.delay = 0.2         everything arrives so much later (seconds), in order
    proxy.to_client.bytes_per_second    a thin line; None is unlimited
    proxy.to_client.loses = judge       messages whose subject `judge` says True of never arrive
    proxy.to_client.rewrite = change    each frame arrives as what `change` returns for it

Both directions, `to_server` and `to_client`, have the same controls; they hold for all links, those to come too.
`judge` is called once for each message in the order of arrival, and may itself act: cut at the 700th acknowledgement,
for instance.

Its rule: nothing happens by chance or by time that the test did not ask for.
What is lost is lost in whole frames, so what arrives is the protocol.
Limit: the protocol in clear; TLS cannot be cut into frames.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.harness.waiting import time_reached

HOST = "127.0.0.1"
CHUNK = 65_536
PIECES_UNDER_WAY = 256
"""Pieces that wait in one direction of one link; then its sender is not read any more, as on a real line."""

WITH_PAYLOAD = (b"MSG", b"HMSG", b"PUB", b"HPUB")

Judge = Callable[[bytes], bool]


def _loses_nothing(_subject: bytes) -> bool:
    return False


def at_the(number: int, of: Judge, act: Callable[[], None]) -> Judge:
    """Return a judge that loses nothing, and acts at the message with this number among those that count.

    It acts before that message passes, and what came in the same piece.
    """
    seen = itertools.count(1)

    def judge(subject: bytes) -> bool:
        if of(subject) and next(seen) == number:
            act()
        return False

    return judge


class Lane:
    """One direction of all links."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.bytes_per_second: float | None = None
        self.loses: Judge = _loses_nothing
        self.rewrite: Callable[[bytes], bytes] = bytes  # each frame as it is
        self.lost = 0
        """Messages that never arrived."""
        self._is_open = asyncio.Event()
        self._is_open.set()

    def hold(self) -> None:
        """Let nothing pass until `release`."""
        self._is_open.clear()

    def release(self) -> None:
        """Let pass what was held, in order, and what comes."""
        self._is_open.set()

    def heal(self) -> None:
        """Be a good line again; what is lost stays lost."""
        self.delay, self.bytes_per_second, self.loses = 0.0, None, _loses_nothing
        self.release()

    def sift(self, frames: list[tuple[bytes, bytes]]) -> bytes:
        """Return the frames that are not lost, as they are to arrive, joined."""
        kept = []
        for subject, frame in frames:
            if subject and self.loses(subject):
                self.lost += 1
            else:
                kept.append(self.rewrite(frame))
        return b"".join(kept)

    async def wait_for_passage(self, arrived: float, size: int) -> None:
        """Wait until a piece that arrived at a time of the loop's clock may pass."""
        now = asyncio.get_running_loop().time
        if self.delay:
            await time_reached(arrived + self.delay)
        if self.bytes_per_second is not None:
            await time_reached(now() + size / self.bytes_per_second)
        await self._is_open.wait()


class Frames:
    """Cuts the protocol, of either side, into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the frames that are complete now, each with its subject, `b""` where it is no message."""
        buffer, position, frames = self._rest + data, 0, []
        while (end := buffer.find(b"\r\n", position)) >= 0:
            subject, size = _message(buffer[position:end])
            after = end + 2 + size
            if len(buffer) < after:
                break
            frames.append((subject, buffer[position:after]))
            position = after
        self._rest = buffer[position:]
        return frames


def _message(line: bytes) -> tuple[bytes, int]:
    """Return the subject of a message and what follows its line (bytes); `b""` and 0 for any other line."""
    fields = line[: line.find(b" ")].upper() in WITH_PAYLOAD and line.split()
    return (fields[1], int(fields[-1]) + 2) if fields else (b"", 0)


class Link:
    """One client's connection, and the one to the server that stands for it."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._writers = (near, far)
        self.is_stranded = asyncio.Event()

    def cut(self) -> None:
        """Break both connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, lane: Lane, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one direction until either end is over; then both are."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_UNDER_WAY)
        taking = asyncio.create_task(self._take(lane, reader, pieces))
        try:
            while (piece := await pieces.get())[1]:
                await lane.wait_for_passage(piece[0], len(piece[1]))
                if not self.is_stranded.is_set():
                    writer.write(piece[1])
                    await writer.drain()
        except ConnectionError:
            pass  # the end of one direction ends the other one below
        finally:
            taking.cancel()
            for each in self._writers:
                each.close()

    async def _take(self, lane: Lane, reader: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
        frames, now = Frames(), asyncio.get_running_loop().time
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if kept := lane.sift(frames.take(data)):
                    await pieces.put((now(), kept))
        await pieces.put((now(), b""))


class Proxy:
    """Listens on `url` and passes everything on to one server, as well or as badly as the test says."""

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._host, self._port = address.hostname or HOST, address.port or 4222
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refuses = False
        self._listener: asyncio.Server | None = None
        self.to_server = Lane()
        self.to_client = Lane()
        self.links_made = 0

    @property
    def url(self) -> str:
        """Where a client connects."""
        assert self._listener is not None, "the proxy listens inside `proxy_to`"
        return f"nats://{HOST}:{self._listener.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Break every link."""
        for link in list(self._links):
            link.cut()

    def strand(self) -> None:
        """Let the links of this moment carry nothing any more, without their ends noticing."""
        for link in self._links:
            link.is_stranded.set()

    def freeze(self) -> None:
        """Let nothing pass in either direction, on new links neither: a partition."""
        self.to_server.hold()
        self.to_client.hold()

    def refuse(self) -> None:
        """Turn new links away."""
        self._refuses = True

    def accept(self) -> None:
        """Take new links again."""
        self._refuses = False

    def heal(self) -> None:
        """Be a good network again; links that were cut or stranded stay so."""
        self.accept()
        self.to_server.heal()
        self.to_client.heal()

    async def listen(self) -> None:
        """Take links from now on."""
        self._listener = await asyncio.start_server(self._taken, HOST)

    async def close(self) -> None:
        """End everything."""
        assert self._listener is not None
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self._refuses:
                await self._pass_on(reader, writer)
        finally:  # also if it is cancelled before there is a link
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:  # the server is away: so are we
            return
        link = Link(writer, far_writer)
        self._links.add(link)
        self.links_made += 1
        try:
            async with asyncio.TaskGroup() as lanes:
                lanes.create_task(link.carry(self.to_server, reader, far_writer))
                lanes.create_task(link.carry(self.to_client, far_reader, writer))
        finally:
            self._links.discard(link)
            link.cut()


@asynccontextmanager
async def proxy_to(server: str) -> AsyncIterator[Proxy]:
    """Run a proxy to the server with this URL for the length of a `with` block."""
    proxy = Proxy(server)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
