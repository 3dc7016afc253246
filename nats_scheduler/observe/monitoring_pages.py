"""The HTTP listener: `/metrics` for Prometheus, `/healthz` and `/readyz` for the supervisor of the process.

Why a process is not ready is no finding about an account (it starts, its connection is lost, a stream is not read
yet), and is said in words of its own. What an operator should know although it is ready is one, with sentence and code.

The rule: no request can delay the event loop and its fires; each request has a thread and a deadline, and makes pauses.
They are served from an event loop of their own (`observe.listener`), at one address, loopback by default, because they
name streams and have no login.
Cost: the listener's thread, and one for each page that is being computed. Limit: no TLS and no login; a proxy can add
them.
"""

import asyncio
import contextlib
import copy
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from nats_scheduler.observe.address import bound, url_of
from nats_scheduler.observe.log import logger
from nats_scheduler.observe.metric_samples import with_samples

LOOP_ANSWER_DEADLINE_SECONDS = 2.0
"""Longest wait for an answer of the event loop; shorter than the timeout of a health check."""

MAX_CONNECTIONS = 64
"""Connections that may be open at the same time; for a further one the one that waits longest is closed."""

MAX_SCRAPES = 4
"""Scrapes at the same time; a further one waits."""

MAX_CHECKS = 8
"""Checks of health at the same time: each waits for the event loop of the fires."""

METRICS = "/metrics"

SAMPLES_PER_SLICE = 32
"""After this many samples, which take about 0.4 ms, a scrape makes a pause."""

REST_SECONDS = 0.0005
"""The length of the pause."""

END_OF_OPEN_METRICS = b"# EOF\n"
"""The end of the text of OpenMetrics."""

PLAIN_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request."""

    status: HTTPStatus
    body: Sequence[bytes]
    """In parts, since to put megabytes together holds up the event loop."""
    content_type: str = PLAIN_TEXT


class MonitoringPages:
    """The pages as an application of ASGI: GET and HEAD, each computed in a thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        loop: asyncio.AbstractEventLoop,
        not_ready: Callable[[], Sequence[str]],
        notes: Callable[[], Sequence[str]] = tuple,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        """Answer from `registry`; `not_ready` is called on `loop` and returns why the process is not ready.

        `notes`, also called there, returns what an operator should know although it is ready.
        `rest` makes the pauses of a scrape, each of so many seconds.
        """
        self._registry = registry
        self._loop = loop
        self._not_ready = not_ready
        self._notes = notes
        self._rest = rest
        self._scrapes = ThreadPoolExecutor(MAX_SCRAPES, "scrape")
        self._checks = ThreadPoolExecutor(MAX_CHECKS, "check")

    def close(self) -> None:
        """Wait for no thread; what it computes is not asked for any more."""
        for threads in (self._scrapes, self._checks):
            threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        """Answer one request."""
        answer = await self._answer(scope)
        size = sum(map(len, answer.body))
        headers = [(b"content-type", answer.content_type.encode()), (b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": int(answer.status), "headers": headers})
        for part in answer.body if scope["method"] != "HEAD" else ():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def _answer(self, scope: Any) -> HttpAnswer:
        if scope["method"] not in ("GET", "HEAD"):
            return HttpAnswer(HTTPStatus.NOT_IMPLEMENTED, (b"pages are only read\n",))
        target = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
        accepts = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
        threads = self._scrapes if scope["path"] == METRICS else self._checks
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, self.answer, target, accepts)
        except Exception as error:
            logger().error("page_failed", exc_info=error, path=target[:80])
            return HttpAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, (b"internal error; see the log\n",))

    def answer(self, target: str, accepts: str = "") -> HttpAnswer:
        """Return the answer to a GET of a path with its query."""
        url = urlsplit(target)
        if url.path == METRICS:
            return self._metrics(accepts, parse_qs(url.query).get("name[]", []))
        if url.path not in ("/healthz", "/readyz"):
            return HttpAnswer(HTTPStatus.NOT_FOUND, (b"the pages are /metrics, /healthz and /readyz\n",))
        reasons = self._on_loop(self._not_ready if url.path == "/readyz" else tuple)
        if reasons is None:
            reasons = [f"the event loop has not answered for {LOOP_ANSWER_DEADLINE_SECONDS:.0f} s"]
        if not reasons:
            notes = self._on_loop(self._notes) or () if url.path == "/readyz" else ()
            return HttpAnswer(HTTPStatus.OK, ("".join(f"{line}\n" for line in ("ok", *notes)).encode(),))
        return HttpAnswer(HTTPStatus.SERVICE_UNAVAILABLE, ("".join(f"{reason}\n" for reason in reasons).encode(),))

    def _metrics(self, accepts: str, names: Sequence[str]) -> HttpAnswer:
        encode, content_type = choose_encoder(accepts)
        registry: Any = self._registry.restricted_registry(names) if names else self._registry
        return HttpAnswer(HTTPStatus.OK, _encoded(self._rest, registry, encode), content_type)

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


def _encoded(rest: Callable[[float], None], registry: Collector, encode: Callable[[Any], bytes]) -> list[bytes]:
    """Return the text of all metrics, encoded one after the other, with pauses: the event loop waits meanwhile."""
    parts, made = list[bytes](), count(1)

    def rested(samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield samples, with a pause after each `SAMPLES_PER_SLICE` of the scrape."""
        for sample in samples:
            if next(made) % SAMPLES_PER_SLICE == 0:
                rest(REST_SECONDS)
            yield sample

    for family in registry.collect():
        # A copy, because some collectors return the same family at each scrape.
        samples, family = family.samples, copy.copy(family)
        parts.append(encode(_One(with_samples(family, rested(samples)))).removesuffix(END_OF_OPEN_METRICS))
    is_open_metrics = encode(_One()).endswith(END_OF_OPEN_METRICS)
    return [*parts, END_OF_OPEN_METRICS] if is_open_metrics else parts


class _One(Collector):
    """A registry of some metrics."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        """Return them."""
        return self._families


@contextlib.contextmanager
def listening(address: str, port: int, pages: MonitoringPages) -> Iterator[str]:
    """Serve pages at an address while the block runs, and return the URL without a path.

    Raises `SettingsError` if that is impossible: the port is in use, or the address is not one of this machine.
    """
    from nats_scheduler.observe.listener import Limits, serve  # a sidecar without pages needs no uvicorn

    with bound(address, port, "metrics") as accepting:
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        serving = serve(pages, accepting, stop, Limits(connections=MAX_CONNECTIONS))
        thread = threading.Thread(target=_run, args=(loop, serving), name="pages", daemon=True)
        thread.start()
        try:
            yield url_of(accepting)
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            pages.close()


def _run(loop: asyncio.AbstractEventLoop, serving: Coroutine[Any, Any, None]) -> None:
    """Run the loop of the listener, which is not that of the fires."""
    try:
        loop.run_until_complete(serving)
    finally:
        loop.close()
