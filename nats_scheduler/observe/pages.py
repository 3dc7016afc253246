"""The HTTP listener: `/metrics` for Prometheus, `/healthz` and `/readyz` for the supervisor of the process.

The rule: no request can delay the event loop and its fires; each request has a thread and a deadline, and makes pauses.
This is the only place that listens. It binds one address, loopback by default, because the pages name streams and have
no login.
Cost: a thread for each open connection, at most `MAX_CONNECTIONS`. Limit: no TLS and no login; a proxy can add them.
"""

import asyncio
import contextlib
import copy
import http.server
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from nats_scheduler.observe.families import with_samples
from nats_scheduler.observe.log import logger

LOOP_ANSWER_DEADLINE_SECONDS = 2.0
"""Longest wait for an answer of the event loop; shorter than the timeout of a health check."""

CLIENT_DEADLINE_SECONDS = 10.0
"""Longest wait for a client to send its request, and to receive the answer."""

MAX_CONNECTIONS = 32
"""Connections that may be open at the same time; further ones are closed immediately."""

SAMPLES_PER_SLICE = 32
"""After so many samples, which take about 0.4 ms, a scrape makes a pause."""

REST_SECONDS = 0.0005
"""How long the pause is."""

END_OF_OPEN_METRICS = b"# EOF\n"
"""What the text of OpenMetrics ends with."""

LISTEN_EXPECTATION = "expected an address or host name of this machine, and a port that no other program uses"

PLAIN_TEXT = "text/plain; charset=utf-8"


class ListenError(Exception):
    """It is impossible to listen on the configured address and port; the operator has to change them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: HTTPStatus
    body: Sequence[bytes]
    """In parts, since to put megabytes together holds up the event loop."""
    content_type: str = PLAIN_TEXT


class Pages:
    """The pages, computed for each request, in the thread of the request."""

    def __init__(
        self,
        registry: CollectorRegistry,
        loop: asyncio.AbstractEventLoop,
        not_ready: Callable[[], Sequence[str]],
        notes: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Answer from `registry`; `not_ready` is called on `loop` and returns why the process is not ready.

        `notes`, also called there, returns what an operator should know although it is ready.
        """
        self._registry = registry
        self._loop = loop
        self._not_ready = not_ready
        self._notes = notes

    def answer(self, target: str, accepts: str = "") -> Answer:
        """Return the answer to a GET of a path with its query."""
        url = urlsplit(target)
        if url.path == "/metrics":
            return self._metrics(accepts, parse_qs(url.query).get("name[]", []))
        if url.path not in ("/healthz", "/readyz"):
            return Answer(HTTPStatus.NOT_FOUND, (b"the pages are /metrics, /healthz and /readyz\n",))
        reasons = self._on_loop(self._not_ready if url.path == "/readyz" else tuple)
        if reasons is None:
            reasons = [f"the event loop has not answered for {LOOP_ANSWER_DEADLINE_SECONDS:.0f} s"]
        if not reasons:
            notes = self._on_loop(self._notes) or () if url.path == "/readyz" else ()
            return Answer(HTTPStatus.OK, ("".join(f"{line}\n" for line in ("ok", *notes)).encode(),))
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, ("".join(f"{reason}\n" for reason in reasons).encode(),))

    def _metrics(self, accepts: str, names: Sequence[str]) -> Answer:
        encode, content_type = choose_encoder(accepts)
        registry: Any = self._registry.restricted_registry(names) if names else self._registry
        return Answer(HTTPStatus.OK, _encoded(registry, encode), content_type)

    def _on_loop(self, check: Callable[[], Sequence[str]]) -> Sequence[str] | None:
        """Call `check` on the event loop and return its result; None if the loop does not call it in time."""
        found = Future[Sequence[str]]()

        def call() -> None:
            try:
                found.set_result(check())
            except Exception as error:
                found.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(call)
            return found.result(LOOP_ANSWER_DEADLINE_SECONDS)
        except (TimeoutError, RuntimeError):  # RuntimeError: the loop is closed
            return None


def _encoded(registry: Collector, encode: Callable[[Any], bytes]) -> list[bytes]:
    """Return the text of all metrics, encoded one after the other, with pauses: the event loop waits meanwhile."""
    parts, rested = list[bytes](), _Rests()
    for family in registry.collect():
        # A copy, because some collectors return the same family at each scrape.
        samples, family = family.samples, copy.copy(family)
        family = with_samples(family, partial(rested.between, samples))
        parts.append(encode(_One(family)).removesuffix(END_OF_OPEN_METRICS))
    is_open_metrics = encode(_NONE).endswith(END_OF_OPEN_METRICS)
    return [*parts, END_OF_OPEN_METRICS] if is_open_metrics else parts


class _Rests:
    """The pauses of one scrape."""

    def __init__(self) -> None:
        self._made = 0

    def between(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield samples, with a pause after each `SAMPLES_PER_SLICE` of the scrape."""
        for sample in samples:
            self._made += 1
            if self._made % SAMPLES_PER_SLICE == 0:
                time.sleep(REST_SECONDS)
            yield sample


class _One(Collector):
    """A registry of some metrics."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        """Return them."""
        return self._families


_NONE = _One()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Accepts connections; `HTTPServer` is not used, because it looks up the name of the host in the DNS."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, family: socket.AddressFamily, where: Any, pages: Pages) -> None:
        self.address_family = family
        self.pages = pages
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(where, _Handler)

    def server_bind(self) -> None:
        """Bind the address; `::` includes IPv4, whatever the machine's default is."""
        if self.address_family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread; close the connection if there are too many."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection, and free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client may close its connection at any time, and the handler logs pages that fail."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: _Server
    timeout = CLIENT_DEADLINE_SECONDS
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
            logger().error("page_failed", exc_info=error, path=self.path[:80])
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, (b"internal error; see the log\n",))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(sum(map(len, answer.body))))
        self.end_headers()
        for part in answer.body if with_body else ():
            self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a scrape is no event."""


@contextlib.contextmanager
def listening(address: str, port: int, pages: Pages) -> Iterator[str]:
    """Serve pages at an address while the block runs, and return the URL without a path.

    Raises `ListenError` if that is impossible: the port is in use, or the address is not one of this machine.
    """
    try:
        family, *_, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
        server = _Server(family, where, pages)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ListenError(
            f"cannot listen on metrics_address {address} with metrics_port {port}: {reason}; {LISTEN_EXPECTATION}"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="pages", kwargs={"poll_interval": 0.5}, daemon=True)
    thread.start()
    host, bound = map(str, server.server_address[:2])
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    finally:
        server.shutdown()
        server.server_close()
