"""The HTTP listener answers every request, and no error in it reaches the event loop."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

from nats_scheduler.observe.address import ListenError
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.pages import MAX_CONNECTIONS, SAMPLES_PER_SLICE, Pages, listening
from nats_scheduler.runtime.embedded import free_port
from tests.harness.log_lines import capture_logs
from tests.observe.pages import ANSWER_SECONDS, page

WITHIN_SECONDS = 20.0


def pages(not_ready: Callable[[], Sequence[str]] = list, metrics: Metrics | None = None) -> Pages:
    return Pages((metrics or Metrics()).registry, asyncio.get_running_loop(), not_ready)


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


@pytest.mark.parametrize("accepts", ["", "text/plain", "application/openmetrics-text; version=1.0.0"])
async def test_the_metrics_are_what_the_client_library_writes(accepts: str) -> None:
    metrics = Metrics()
    for number in range(3):
        metrics.serves(f'"{number}"')
        metrics.refused.labels(f'"{number}"', "10077").inc(7)
        metrics.fires.of(f'"{number}"').late(0.003)
    answer = pages(list, metrics).answer("/metrics", accepts)
    encode, content_type = choose_encoder(accepts)
    assert answer.content_type == content_type
    assert steady(b"".join(answer.body)) == steady(encode(metrics.registry))


async def test_the_last_of_thousands_of_scrapes_is_as_the_first() -> None:
    """Some collectors of the client library return the same families each time."""
    served = pages()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        for _ in range(400):
            last = served.answer("/metrics")
    finally:
        sys.setrecursionlimit(limit)
    assert b"".join(last.body).count(b"python_info{") == 1


def steady(body: bytes) -> list[bytes]:
    """Return the lines that do not change from one moment to the next."""
    return [line for line in body.splitlines() if not line.startswith((b"process_", b"python_gc_"))]


async def test_a_scrape_makes_pauses_however_many_streams_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop, and with it every fire, waits for the interpreter while a scrape computes."""
    metrics, made, at_pauses = Metrics(), 0, [0]
    for number in range(200):
        metrics.serves(f"S{number}")

    def counted(*values: Any, **named: Any) -> Sample:
        nonlocal made
        made += 1
        return Sample(*values, **named)

    for module in ("fire_counts",):
        monkeypatch.setattr(f"nats_scheduler.observe.{module}.Sample", counted)
    monkeypatch.setattr("nats_scheduler.observe.pages.time.sleep", lambda _seconds: at_pauses.append(made))
    assert pages(list, metrics).answer("/metrics").status == 200
    assert made > 10_000
    at_pauses.append(made)
    assert max(after - before for before, after in pairwise(at_pauses)) <= SAMPLES_PER_SLICE


async def test_nothing_listens_any_more_once_it_is_closed() -> None:
    port = free_port()
    for _ in range(2):
        with listening("127.0.0.1", port, pages()) as url:
            assert url == f"http://127.0.0.1:{port}"
            assert (await page(f"{url}/healthz"))[0] == 200
        with pytest.raises(ConnectionRefusedError):
            await page(f"{url}/healthz")


@pytest.fixture
def taken() -> Iterator[int]:
    """Return a port of loopback on which another socket listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


async def test_a_port_in_use_is_one_sentence_that_names_the_settings(taken: int) -> None:
    with pytest.raises(ListenError) as error, listening("127.0.0.1", taken, pages()):
        pass
    assert str(error.value) == (
        f"cannot listen on metrics_address 127.0.0.1 with metrics_port {taken}: Address already in use; "
        "expected an address or host name of this machine, and a port that no other program uses"
    )


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "no-such-host.invalid", "x" * 300, "::g", "a..b", "127.0.0.1:9090", "2001:db8::1"]
)
async def test_an_address_that_is_not_ours_is_refused_in_the_same_way(address: str) -> None:
    with (
        pytest.raises(ListenError, match=f"metrics_address {address} with metrics_port 0: .*; expected an address"),
        listening(address, 0, pages()),
    ):
        pass


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
async def test_ipv6_is_served_and_all_addresses_are_both_families() -> None:
    with listening("::1", 0, pages()) as url:
        assert url.startswith("http://[::1]:")
        assert (await page(f"{url}/healthz"))[0] == 200
    with listening("::", 0, pages()) as url:
        port = url.rpartition(":")[2]
        assert (await page(f"http://[::1]:{port}/healthz"))[0] == 200
        assert (await page(f"http://127.0.0.1:{port}/healthz"))[0] == 200


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
async def test_a_port_in_use_is_an_error_on_ipv6_too() -> None:
    with listening("::1", 0, pages()) as url:
        port = int(url.rpartition(":")[2])
        for address in ("::1", "::"):
            with pytest.raises(ListenError, match=f"with metrics_port {port}: Address already in use"):
                listening(address, port, pages()).__enter__()


async def test_an_address_that_is_not_ours_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ListenError), listening("192.0.2.1", 1, pages()):
        pass
    assert set(threading.enumerate()) <= before


async def test_loopback_is_not_reached_from_outside() -> None:
    with listening("127.0.0.1", 0, pages()) as url, pytest.raises(OSError, match="refused"):
        await page(f"http://127.0.0.2:{url.rpartition(':')[2]}/metrics")


@pytest.mark.slow
async def test_an_event_loop_that_stands_still_is_unhealthy() -> None:
    go_on = threading.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with listening("127.0.0.1", 0, Pages(Metrics().registry, loop, list)) as url:
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

    def breaks() -> Sequence[str]:
        raise LookupError("for the test")

    class Broken:
        def collect(self) -> Iterator[object]:
            raise LookupError("for the test")

    metrics = Metrics()
    with capture_logs() as said, listening("127.0.0.1", 0, pages(breaks, metrics)) as url:
        assert (await page(f"{url}/readyz"))[0] == 500
        metrics.registry._collector_to_names[Broken()] = []  # type: ignore[index]  # `register` would call it
        assert (await page(f"{url}/metrics"))[0] == 500
        assert (await page(f"{url}/healthz"))[0] == 200
    assert [line["event"] for line in said] == ["page_failed", "page_failed"]


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHo"])
async def test_clients_that_are_slow_keep_nobody_from_an_answer(sent: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with listening("127.0.0.1", 0, pages()) as url:
        port = int(url.rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) for _ in range(2 * MAX_CONNECTIONS)]
        for one in slow:
            with contextlib.suppress(OSError):  # it was closed to make room
                one.send(sent)
        for path in ("healthz", "readyz", "metrics"):
            assert (await page(f"{url}/{path}"))[0] == 200
        for one in slow:
            one.close()
    assert capfd.readouterr().err == ""
