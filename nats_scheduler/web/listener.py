"""The HTTP listener of the status page: one address, and limits on what a client can hold open.

The rule: it listens on loopback, or else with a token. There is no TLS: a proxy adds it.
Cost: the memory of at most `Limits.connections` connections.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

LISTEN_EXPECTATION = "expected an address or host name of this machine, and a port that no other program uses"


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may hold open."""

    connections: int = 128
    """Connections at the same time; a further one is closed at once."""
    request_seconds: float = 30.0
    """Longest time for a request, from its first byte to the last byte of the answer."""


BACKLOG = 128
"""Connections that wait to be accepted."""

MAX_HEAD_BYTES = 64 * 1024
"""Longest head of a request."""

KEEP_ALIVE_SECONDS = 15
"""How long a connection without a request stays open; less than a request may take."""

SHUTDOWN_SECONDS = 3
"""Longest wait at the end for answers that are being sent."""


class WebListenError(Exception):
    """It is impossible to listen on the configured address and port; the operator has to change them."""


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def bound(address: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `WebListenError`."""
    try:
        family, *_, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _listen_error(address, port, error) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(where)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise _listen_error(address, port, error) from None
    return found


def _listen_error(address: str, port: int, error: Exception) -> WebListenError:
    reason = getattr(error, "strerror", None) or str(error)
    return WebListenError(
        f"cannot listen on web_address {address} with web_port {port}: {reason}; {LISTEN_EXPECTATION}"
    )


def url_of(listening: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Connection(H11Protocol):
    """A connection that is closed if it is one too many, or if a request on it takes too long."""

    limits = Limits()
    _begun = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._begun = self.loop.time()
        self._check()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._begun = self.loop.time()
        super().on_response_complete()

    def _check(self) -> None:
        left = self._begun + self.limits.request_seconds - self.loop.time()
        if left <= 0:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(left, self._check)


class _Server(uvicorn.Server):
    """A server that leaves signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def serve(app: ASGIApp, listening: socket.socket, stop: asyncio.Event, limits: Limits | None = None) -> None:
    """Serve pages until `stop` is set."""

    class Limited(_Connection):
        pass

    Limited.limits = limits or Limits()
    config = uvicorn.Config(
        app,
        http=Limited,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # any client can cause its warnings; a page that fails is logged by `guard`
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
