"""The series that Prometheus scrapes: each from the moment that its stream is served, and its values."""

import re
from pathlib import Path
from typing import get_args

import pytest

from nats_scheduler.engine.events import Event, FireReadBack, StreamReady
from nats_scheduler.message.rejection import MESSAGE_CODES
from nats_scheduler.observe.gauges import StreamReading
from nats_scheduler.observe.metrics import REFUSAL_CODES, Metrics
from nats_scheduler.observe.reporter import HANDLERS, Reporter
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import StartServer
from tests.engine.direct import Desk, schedule
from tests.harness.account import CLOCK, Account, Running, account_on, in_seconds, sidecar_on, started_sidecar
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

WITHIN_SECONDS = 30.0

READ_AT_A_SCRAPE = {
    "stream_ready",
    "stream_mode",
    "schedules_held",
    "schedules_paused",
    "schedules_held_back",
    "schedules_overdue",
    "oldest_overdue_age_seconds",
    "oldest_held_back_age_seconds",
    "next_fire_timestamp_seconds",
    "fires_in_flight",
    "purges_pending",
}
"""The readings of each stream that is served: `tests/e2e/test_gauges.py` compares them with real streams."""


class OneStream:
    """A stream on which one fire is to come."""

    def streams(self) -> list[StreamReading]:
        """Return it."""
        desk = Desk(schedule("@every 1h"))
        return [StreamReading("S", "emulated", True, desk.engine.figures(desk.now), desk.now)]

    def unable(self) -> int:
        """Return how many streams cannot be served."""
        return 0

    def clock_offset(self) -> int:
        """Return the offset of the server's clock."""
        return SECOND

    def server_version(self) -> str:
        """Return no version."""
        return ""


def shown(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"nats_scheduler_{name}", labels)


async def shows(metrics: Metrics, name: str, value: float | None, **labels: str) -> None:
    await eventually(
        lambda: shown(metrics, name, **labels) == value,
        within_seconds=WITHIN_SECONDS,
        describe=lambda: f"{name}{labels} is {value}, not {shown(metrics, name, **labels)}",
    )


def test_every_series_of_a_stream_exists_at_0_once_it_is_served() -> None:
    metrics = Metrics()
    reporter = Reporter(metrics)
    reporter.stream_served("S", "emulated", "", alarming=False)
    for metric in metrics.registry.collect():
        streams = [sample for sample in metric.samples if sample.labels.get("stream") == "S"]
        by_account = (
            "instances_alive",
            "connected",
            "connections",
            "last_connect_timestamp_seconds",
            "overloaded",
            "event_loop_lateness_seconds",
            "failures_not_kept",
            "streams_unable",
            "streams_unserved",
            "clock_offset_seconds",
            "build_info",
        )
        name = metric.name.removeprefix("nats_scheduler_")
        read = name in READ_AT_A_SCRAPE or name.startswith("canary_") or not metric.name.startswith("nats_scheduler_")
        assert streams or read or name in by_account, metric.name
    for code in REFUSAL_CODES:
        assert shown(metrics, "fires_refused_total", stream="S", code=str(code)) == 0
    for code in MESSAGE_CODES:
        assert shown(metrics, "schedules_rejected_total", stream="S", code=str(code)) == 0
    assert shown(metrics, "schedules_ended_total", stream="S", reason="exhausted") == 0
    assert shown(metrics, "stream_served", stream="S") == 1
    reporter.stream_not_served("S", "the stream is gone")
    assert shown(metrics, "stream_served", stream="S") == 0


def test_all_codes_that_a_schedule_may_be_rejected_with_are_known() -> None:
    text = (Path(__file__).parents[2] / "nats_scheduler" / "message" / "rejection.py").read_text("utf-8")
    messages = text[text.index("# Messages: ") : text.index("# Stream configurations")]
    assert {int(code) for code in re.findall(r"ServerError\((\d+)", messages)} == set(MESSAGE_CODES)


async def test_an_overdue_fire_is_counted_and_is_not_in_the_histogram() -> None:
    metrics = Metrics()
    reporter = Reporter(metrics)
    reporter.report("S", FireReadBack("S.s", "S.out", 0, 0, 200_000_000 * SECOND, 7, overdue=True))
    reporter.report("S", FireReadBack("S.s", "S.out", 0, 0, 3 * MILLISECOND, 8))
    assert shown(metrics, "fires_overdue_total", stream="S") == 1
    assert shown(metrics, "fire_lateness_seconds_count", stream="S") == 1
    assert shown(metrics, "fire_lateness_seconds_sum", stream="S") == pytest.approx(0.003)


def test_every_event_has_a_report() -> None:
    assert set(HANDLERS) == set(get_args(Event))


async def test_an_exception_in_a_report_does_not_reach_the_caller() -> None:
    """The engine reports: an exception in a listener, an advisory or a counter must not end it."""
    received: list[Event] = []
    reporter = Reporter(Metrics())
    ready = StreamReady(1, 0)

    def breaks(_stream: str, _event: Event) -> None:
        raise LookupError("for the test")

    reporter.listen(breaks)
    reporter.listen(lambda _stream, event: received.append(event))
    with capture_logs() as said:
        for _ in range(1_000):
            reporter.report("S", ready)
        reporter.report("S", "not an event at all")  # type: ignore[arg-type]
    assert received == [ready] * 1_000 + ["not an event at all"]
    assert 1 <= sum(line["event"] == "report_failed" for line in said) <= 100
    assert sum(line["event"] == "stream_ready" for line in said) == 1_000


async def served(account: Account, running: Running, name: str) -> None:
    await account.create(name)
    await running.ready(name)


async def test_the_connection_is_shown_as_it_comes_and_goes(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running:
        metrics = running.metrics
        async with account_on(server.url) as account:
            await served(account, running, "S")
        before = shown(metrics, "last_connect_timestamp_seconds")
        assert before == pytest.approx(CLOCK.now() / SECOND, abs=WITHIN_SECONDS)
        await shows(metrics, "connected", 1)
        await shows(metrics, "stream_ready", 1, stream="S")
        assert shown(metrics, "connections_total") == 1
        await server.kill()
        await shows(metrics, "connected", 0)
        await shows(metrics, "stream_ready", 0, stream="S")
        await server.restart()
        await shows(metrics, "connected", 1)
        await shows(metrics, "connections_total", 2)
        assert before is not None
        assert (shown(metrics, "last_connect_timestamp_seconds") or 0) > before


async def test_an_instant_of_2020_does_not_spoil_the_lateness(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await served(account, running, "S")
        await account.publish("S.old", {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "S.out"})
        await account.publish("S.new", {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"})
        await shows(running.metrics, "fires_overdue_total", 1, stream="S")
        await shows(running.metrics, "fire_lateness_seconds_count", 1, stream="S")
        assert (shown(running.metrics, "fire_lateness_seconds_sum", stream="S") or 0) < WITHIN_SECONDS


async def test_an_advisory_goes_through_no_connection_that_is_gone() -> None:
    published: list[str] = []
    reporter = Reporter(Metrics())
    reporter.advise = lambda message: published.append(message.subject)
    reporter.instance_not_firing("S", "one", 0)
    assert len(published) == 1
    reporter.disconnected()
    reporter.instance_not_firing("S", "another", 0)
    assert len(published) == 1


async def test_a_sidecar_without_a_server_or_at_its_end_shows_it(tmp_path: Path) -> None:
    async with started_sidecar(ConnectionSettings(servers=("nats://127.0.0.1:1",))) as running:
        await running.told_of("connect_failed")
        assert shown(running.metrics, "connected") == 0
        assert shown(running.metrics, "connections_total") == 0
        assert running.sidecar.not_ready() == ["there is no connection to a server"]
        running.sidecar.stop()
        assert running.sidecar.not_ready() == ["the sidecar is ending: it starts no fires any more"]


def test_the_reference_names_every_metric_with_its_kind_and_labels_and_no_other() -> None:
    metrics = Metrics()
    Reporter(metrics).stream_served("S", "emulated", "", alarming=False)
    metrics.gauges.readings = OneStream()
    real = {}
    for metric in metrics.registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
        real[name] = (metric.type, labels)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", page, re.M)
    assert {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == real
    assert len(rows) == len(real)
