"""The HTTP listener: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever starts and watches the process.

The rule: whatever asks here, and however, the event loop and its fires go on; each request has a thread and a deadline.
This is the only place that listens. It binds one address, loopback unless the settings say otherwise, because the pages
name streams and answer everybody.
Cost: a thread for each open connection, at most `MOST_AT_ONCE`. Limit: no TLS and no login; a proxy adds them.
"""

import asyncio
import contextlib
import http.server
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from nats_scheduler.observe.log import logger

LOOP_ANSWERS_SECONDS = 2.0
"""Longest wait for the event loop to answer; below the time that a health check has."""

REQUEST_SECONDS = 10.0
"""Longest wait for a client to send its request, and to take the answer."""

MOST_AT_ONCE = 32
"""Connections that are open at once; further ones are closed at once."""

PLAIN_TEXT = "text/plain; charset=utf-8"


class ListenError(Exception):
    """Nothing can listen where the settings say; the operator has to change them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN_TEXT


class Pages:
    """What is answered to whoever asks, computed when it is asked, in the thread of the request."""

    def __init__(
        self, registry: CollectorRegistry, loop: asyncio.AbstractEventLoop, not_ready: Callable[[], Sequence[str]]
    ) -> None:
        """Answer from `registry`; `not_ready` is called on `loop` and gives the reasons why we are not ready."""
        self._registry = registry
        self._loop = loop
        self._not_ready = not_ready

    def answer(self, target: str, accepts: str = "") -> Answer:
        """Return the answer to a GET of a path with its query."""
        url = urlsplit(target)
        if url.path == "/metrics":
            return self._metrics(accepts, parse_qs(url.query).get("name[]", []))
        if url.path not in ("/healthz", "/readyz"):
            return Answer(HTTPStatus.NOT_FOUND, b"here are /metrics, /healthz and /readyz\n")
        reasons = self._on_loop(self._not_ready if url.path == "/readyz" else tuple)
        if reasons is None:
            reasons = [f"the event loop has not answered for {LOOP_ANSWERS_SECONDS:.0f} s"]
        if not reasons:
            return Answer(HTTPStatus.OK, b"ok\n")
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{reason}\n" for reason in reasons).encode())

    def _metrics(self, accepts: str, names: Sequence[str]) -> Answer:
        encode, content_type = choose_encoder(accepts)
        registry: Any = self._registry.restricted_registry(names) if names else self._registry
        return Answer(HTTPStatus.OK, encode(registry), content_type)

    def _on_loop(self, look: Callable[[], Sequence[str]]) -> Sequence[str] | None:
        """Return what `look` gives when the event loop calls it; None if the loop does not come to that."""
        found = Future[Sequence[str]]()

        def call() -> None:
            try:
                found.set_result(look())
            except Exception as error:
                found.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(call)
            return found.result(LOOP_ANSWERS_SECONDS)
        except (TimeoutError, RuntimeError):  # the latter: the loop is closed
            return None


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Accepts connections; `HTTPServer` is not used, because it asks the DNS for the name of the host."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = MOST_AT_ONCE

    def __init__(self, family: socket.AddressFamily, where: Any, pages: Pages) -> None:
        self.address_family = family
        self.pages = pages
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(where, _Handler)

    def server_bind(self) -> None:
        """Bind; `::` stands for IPv4 too, whatever the machine's default is."""
        if self.address_family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread where there is room for one."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection, and make room again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is its own business, and pages that fail are told by the handler."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: _Server
    timeout = REQUEST_SECONDS
    server_version = "nats-scheduler"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with a page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer with the headers of a page."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        try:
            answer = self.server.pages.answer(self.path, self.headers.get("Accept") or "")
        except Exception as error:
            logger().error("page_broken", exc_info=error, path=self.path[:80])
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"an error inside; the log says which\n")
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: a scrape is no event."""


@contextlib.contextmanager
def listening(address: str, port: int, pages: Pages) -> Iterator[str]:
    """Serve pages at an address while the block runs, and give the URL in front of their paths.

    Raises `ListenError` where that is impossible: the port is in use, or the address is not one of this machine.
    """
    try:
        family, *_, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
        server = _Server(family, where, pages)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        said = f"cannot listen on metrics_address {address} with metrics_port {port}: {reason}"
        raise ListenError(said) from None
    thread = threading.Thread(target=server.serve_forever, name="pages", kwargs={"poll_interval": 0.5}, daemon=True)
    thread.start()
    host, bound = map(str, server.server_address[:2])
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    finally:
        server.shutdown()
        server.server_close()
