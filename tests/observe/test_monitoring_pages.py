"""The HTTP listener answers every request, whatever clients hold open, and no error in it reaches the event loop."""

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from nats_scheduler.observe.address import bound, is_loopback, url_of
from nats_scheduler.observe.listener import Limits, serve
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.monitoring_pages import MAX_CONNECTIONS, MonitoringPages, listening
from nats_scheduler.settings.problems import SettingsError
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.web.app import token_of
from nats_scheduler.web.pages import healthz
from tests.harness.log_lines import capture_logs
from tests.harness.waiting import PATIENCE_SECONDS

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
ANSWER_SECONDS = 20.0
"""Longest wait for a page, on a busy machine."""


@pytest.fixture(autouse=True)
def _patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the event loop of a test be later than a health check allows, but where that is what is tested."""
    if request.function is not test_an_event_loop_that_stands_still_is_unhealthy:
        monkeypatch.setattr("nats_scheduler.observe.monitoring_pages.LOOP_ANSWER_DEADLINE_SECONDS", ANSWER_SECONDS)


def pages(
    not_ready: Callable[[], Sequence[str]] = list, metrics: Metrics | None = None, **parts: Any
) -> MonitoringPages:
    return MonitoringPages((metrics or Metrics()).registry, asyncio.get_running_loop(), not_ready, **parts)


async def page(url: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the body of a page."""

    def ask() -> tuple[int, str]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, f"{parts.path}?{parts.query}")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def test_metrics_health_and_readiness_are_served_and_nothing_else() -> None:
    reasons: list[str] = []
    metrics = Metrics()
    with listening("127.0.0.1", 0, pages(lambda: reasons, metrics)) as url:
        metrics.serves("S")
        status, body = await page(f"{url}/metrics")
        assert (status, "# HELP nats_scheduler_fires_total" in body) == (200, True)
        status, body = await page(f"{url}/metrics?name[]=nats_scheduler_instances_alive")
        assert (status, "fires_total" in body, "instances_alive" in body) == (200, False, True)
        for name in ("fires_total", "fires_refused_total", "fire_lateness_seconds_count", "build_info"):
            status, body = await page(f"{url}/metrics?name[]=nats_scheduler_{name}")
            assert (status, body.count("# TYPE")) == (200, 1), name
        assert await page(f"{url}/healthz") == (200, "ok\n")
        assert await page(f"{url}/readyz") == (200, "ok\n")
        reasons += ["stream A is not read to its end", "stream B is not read to its end"]
        assert await page(f"{url}/readyz") == (503, "".join(f"{reason}\n" for reason in reasons))
        assert await page(f"{url}/healthz") == (200, "ok\n")
        assert (await page(f"{url}/"))[0] == 404
        assert await page(f"{url}/metrics", "HEAD") == (200, "")
        assert (await page(f"{url}/metrics", "POST"))[0] == 501


async def test_the_metrics_are_what_the_client_library_writes() -> None:
    metrics = Metrics()
    for number in range(3):
        metrics.serves(f'"{number}"')
        metrics.refused.labels(f'"{number}"', "10077").inc(7)
        metrics.fires.of(f'"{number}"').late(0.003)

    def steady(body: bytes) -> list[bytes]:
        """Return the lines that do not change from one moment to the next."""
        return [line for line in body.splitlines() if not line.startswith((b"process_", b"python_gc_"))]

    for accepts in ("", "text/plain", "application/openmetrics-text; version=1.0.0"):
        answer = pages(list, metrics).answer("/metrics", accepts)
        encode, content_type = choose_encoder(accepts)
        assert answer.content_type == content_type
        assert steady(b"".join(answer.body)) == steady(encode(metrics.registry))


async def test_where_it_cannot_listen_the_settings_are_named() -> None:
    before = set(threading.enumerate())
    for address in ("192.0.2.1", "no-such.invalid", "x" * 300, "::g", "a..b", "127.0.0.1:9090", "2001:db8::1"):
        named = f"metrics_address {address} with metrics_port 0: .*; expected an address"
        with pytest.raises(SettingsError, match=named), listening(address, 0, pages()):
            pass
    assert set(threading.enumerate()) <= before


async def test_loopback_is_not_reached_from_outside() -> None:
    with listening("127.0.0.1", 0, pages()) as url, pytest.raises(OSError, match="refused"):
        await page(f"http://127.0.0.2:{url.rpartition(':')[2]}/metrics")
    addresses = ("127.0.0.1", "127.3.2.1", "::1", "localhost", "::", "example.com")
    assert [is_loopback(address) for address in addresses] == [True, True, True, True, False, False]


def test_another_address_than_loopback_needs_a_token(tmp_path: Path) -> None:
    assert token_of(SidecarSettings()) is None
    with pytest.raises(SettingsError, match="expected web_token or web_token_file"):
        token_of(SidecarSettings(web_address="::"))
    file = tmp_path / "token"
    file.write_text("  0123456789abcdefghij\n")
    assert token_of(SidecarSettings(web_address="::", web_token_file=file)) == "0123456789abcdefghij"
    file.write_text("short\n")
    with pytest.raises(SettingsError, match="has 5 characters: expected at least 20"):
        token_of(SidecarSettings(web_token_file=file))
    with pytest.raises(SettingsError, match="expected a file with a token"):
        token_of(SidecarSettings(web_token_file=tmp_path / "none"))
    with pytest.raises(SettingsError, match="both set"):
        token_of(SidecarSettings.model_validate({"web_token": "x" * 20, "web_token_file": str(file)}))


@pytest.mark.slow
async def test_an_event_loop_that_stands_still_is_unhealthy() -> None:
    go_on = threading.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with listening("127.0.0.1", 0, MonitoringPages(Metrics().registry, loop, list)) as url:
            assert await page(f"{url}/healthz") == (200, "ok\n")
            loop.call_soon_threadsafe(go_on.wait)
            for path in ("healthz", "readyz"):
                assert await page(f"{url}/{path}") == (503, "the event loop has not answered for 2 s\n")
            assert (await page(f"{url}/metrics"))[0] == 200
            go_on.set()
            assert (await page(f"{url}/readyz"))[0] == 200
    finally:
        go_on.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def test_a_page_that_fails_is_an_answer_and_a_log_line() -> None:
    """An exception in a collector or in a check of the streams prints no traceback and ends no thread."""

    class Broken:
        def describe(self) -> Sequence[object]:
            return []

        def collect(self) -> Iterator[object]:
            raise LookupError("for the test")

    def breaks() -> Sequence[str]:
        raise LookupError("for the test")

    metrics = Metrics()
    metrics.registry.register(Broken())  # type: ignore[arg-type]
    with capture_logs() as said, listening("127.0.0.1", 0, pages(breaks, metrics)) as url:
        assert [(await page(f"{url}/{path}"))[0] for path in ("readyz", "metrics", "healthz")] == [500, 500, 200]
    assert [line["event"] for line in said] == ["page_failed", "page_failed"]


async def test_clients_that_are_slow_keep_nobody_from_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    with listening("127.0.0.1", 0, pages()) as url:
        port = int(url.rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) for _ in range(2 * MAX_CONNECTIONS)]
        for one in slow[::2]:
            with contextlib.suppress(OSError):  # it was closed to make room
                one.send(b"GET /metrics HTTP/1.1\r\nHo")
        for path in ("healthz", "readyz", "metrics"):
            assert (await page(f"{url}/{path}"))[0] == 200
        for one in slow:
            one.close()
    assert capfd.readouterr().err == ""


async def form(request: Request) -> PlainTextResponse:
    """Read a whole request."""
    return PlainTextResponse(str(len(await request.body())))


async def large(_request: Request) -> StreamingResponse:
    """Answer more than any socket buffers, in parts."""
    return StreamingResponse(repeat(bytes(100_000), 200))


APP = Starlette(routes=[Route("/healthz", healthz), Route("/form", form, methods=["POST"]), Route("/large", large)])


@asynccontextmanager
async def listener(limits: Limits | None = None) -> AsyncIterator[str]:
    """Serve pages on a free port, with limits of a test."""
    stop = asyncio.Event()
    with bound("127.0.0.1", 0, "web") as accepting:
        serving = asyncio.create_task(serve(APP, accepting, stop, limits))
        try:
            yield url_of(accepting)
        finally:
            stop.set()
            await serving


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(url: str, sent: bytes = b"") -> Connection:
    """Return a connection on which this has been sent."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    return reader, writer


async def are_closed(*connections: Connection) -> None:
    """Wait until the other side has closed connections."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for reader, writer in connections:
            with contextlib.suppress(ConnectionError):
                while await reader.read(65536):
                    pass
            writer.close()


async def is_served(url: str) -> None:
    """Ask for a page on a connection of its own."""
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        answer = await client.get(f"{url}/healthz", headers={"Connection": "close"})
        assert (answer.text, answer.headers.get("server")) == ("ok\n", None)


async def test_a_request_that_never_ends_is_cut_off() -> None:
    begun = (b"", b"GET /heal", b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1")
    async with listener(Limits(head_seconds=0.2, request_seconds=0.2)) as url:
        await are_closed(*[await connected(url, sent) for sent in begun])


async def test_the_connection_that_waits_longest_makes_room() -> None:
    async with listener(Limits(connections=3)) as url:
        for sent in (b"", HEAD[:-5]):
            held = [await connected(url, sent) for _ in range(3)]
            await is_served(url)
            await are_closed(held[0])
            for _, writer in held[1:]:
                writer.write(b"x")  # a byte now and then keeps no place
            await is_served(url)
            for _, writer in held:
                writer.transport.abort()


async def test_a_head_that_is_too_long_is_refused() -> None:
    async with listener() as url:
        reader, writer = await connected(url, HEAD + b"X: " + b"x" * 100_000)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()
