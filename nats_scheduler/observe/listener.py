"""The HTTP listener of the metrics and of the status page: one address, and limits on what clients can hold open.

uvicorn reads requests and writes answers. Added here are the deadlines that it does not have, and a limit on
connections under which honest clients are still answered.

The rules:

- The head of a request has a deadline of its own, from its first byte to its last: a deadline for each read would let
  a client hold a connection with one byte at a time.
- If there are too many connections, the oldest of those is closed that wait for their clients, to send the rest of a
  request or to read an answer, and not the newest. If none waits for its client, it is the oldest of all.

Cost: the memory of at most `Limits.connections` connections. Limit: no TLS; a proxy adds it.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on the connections and requests of clients."""

    connections: int = 128
    """Connections at the same time."""
    head_seconds: float = 5.0
    """Longest time for the head of a request, from the connection or the first byte to the last byte."""
    request_seconds: float = 30.0
    """Longest time for a request, from its first byte to the last byte of the answer."""


MAX_HEAD_BYTES = 64 * 1024
"""Longest head of a request."""

KEEP_ALIVE_SECONDS = 15
"""The time for which a connection stays open after an answer; less than a request may take."""

SHUTDOWN_SECONDS = 3
"""Longest wait at the end for answers that are being sent."""


class _Connection(H11Protocol):
    """A connection that is closed if a request on it takes too long, or to make room for another one."""

    limits = Limits()
    _begun = 0.0
    _has_begun = True
    """True if a request has begun; a new connection counts as one."""
    _is_unread = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; make room if there are too many connections."""
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._make_room()
        self._check()

    def data_received(self, data: bytes) -> None:
        """Note when the next request begins."""
        if self._awaits_head and not self._has_begun:
            self._has_begun, self._begun = True, self.loop.time()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._has_begun, self._begun = False, self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self._is_unread = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._is_unread = False
        super().resume_writing()

    @property
    def _awaits_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _awaits_client(self) -> bool:
        return self._awaits_head or self.cycle.more_body or self._is_unread

    def _make_room(self) -> None:
        """Close the oldest of the other connections that wait for their clients, or of all, if there are too many."""
        others = [one for one in self.connections if isinstance(one, _Connection) and one is not self]
        open_ones = [one for one in others if not one.transport.is_closing()]
        if len(open_ones) >= self.limits.connections:
            waiting = [one for one in open_ones if one._awaits_client]
            min(waiting or open_ones, key=lambda one: one._begun).transport.abort()

    def _check(self) -> None:
        """Close the connection if its time is over, and check that once more when it would be."""
        limits = self.limits
        allowed = limits.head_seconds if self._awaits_head and self._has_begun else limits.request_seconds
        now = self.loop.time()
        if self._begun + allowed <= now:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(min(self._begun + allowed - now, limits.head_seconds), self._check)


class _Server(uvicorn.Server):
    """A server that leaves signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def serve(app: Any, listening: socket.socket, stop: asyncio.Event, limits: Limits | None = None) -> None:
    """Serve pages until `stop` is set; `app` is an application of ASGI 3."""

    class Limited(_Connection):
        pass

    Limited.limits = limits or Limits()
    config = uvicorn.Config(
        app,
        http=Limited,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # any client can cause its warnings; a page that fails is logged by the application
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = _Server(config)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    ending = asyncio.create_task(end())
    try:
        await server.serve(sockets=[listening])
    finally:
        ending.cancel()
