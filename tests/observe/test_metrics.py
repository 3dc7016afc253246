"""The series that Prometheus scrapes: their values are those that `prometheus_client` would show, and the page has all.

It tests `observe/metric_samples.py` too.

What is late for long is an overload; what the canary does not fire is missed.
"""

import re
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from nats_scheduler.engine.events import Event, FireConfirmed, StreamReady
from nats_scheduler.message.rejection import MESSAGE_CODES
from nats_scheduler.observe.canary_record import GRACE_NS, CanaryRecord
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS, FireCounts, FireMetrics
from nats_scheduler.observe.gauges import StreamFigures
from nats_scheduler.observe.metrics import REFUSAL_CODES, Metrics
from nats_scheduler.observe.overload import WINDOW_SAMPLES, Lateness, Overload
from nats_scheduler.observe.reporter import HANDLERS, Reporter
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.conftest import StartServer
from tests.engine.direct import Desk, schedule
from tests.harness.account import CLOCK, account_on, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[2]
READ_AT_A_SCRAPE = {
    *("stream_ready", "stream_mode", "schedules_held", "schedules_paused", "schedules_blocked", "schedules_overdue"),
    *("oldest_overdue_age_seconds", "oldest_blocked_age_seconds", "next_fire_timestamp_seconds", "fires_in_flight"),
    *("purges_pending", "schedules_catching_up"),
}
"""The readings of each stream that is served: `tests/e2e/test_gauges.py` compares them with real streams."""
BY_ACCOUNT = {
    *("instances_alive", "connected", "connections", "last_connect_timestamp_seconds", "overloaded", "build_info"),
    *("event_loop_lateness_seconds", "failures_not_kept", "streams_unable", "streams_unserved", "clock_offset_seconds"),
    *("requests_refused", "requests_dropped"),
}
LATE_SECONDS = (0.0, 0.0003, 0.0005, 0.00051, 0.0042, 0.25, 0.9, 1.0, 59.9, 60.0, 3600.0)


class OneStream:
    """A stream on which one fire is to come: what the gauges read."""

    def streams(self) -> list[StreamFigures]:
        desk = Desk(schedule("@every 1h"))
        return [StreamFigures("S", "emulated", True, desk.engine.figures(desk.now), desk.now)]

    def unable(self) -> int:
        return 0

    def clock_offset(self) -> int:
        return SECOND

    def server_version(self) -> str:
        return ""


def shown(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"nats_scheduler_{name}", labels)


def test_every_series_of_a_stream_exists_at_0_once_it_is_served() -> None:
    metrics = Metrics()
    reporter = Reporter(metrics)
    reporter.stream_served("S", "emulated", "", alarming=False)
    families = {metric.name.partition("nats_scheduler_")[2]: metric.samples for metric in metrics.registry.collect()}
    without = {name for name, found in families.items() if all(one.labels.get("stream") != "S" for one in found)}
    assert {name for name in without if not name.startswith("canary_")} - READ_AT_A_SCRAPE - BY_ACCOUNT == {""}
    for code in REFUSAL_CODES:
        assert shown(metrics, "fires_refused_total", stream="S", code=str(code)) == 0
    for code in MESSAGE_CODES:
        assert shown(metrics, "schedules_rejected_total", stream="S", code=str(code)) == 0
    assert shown(metrics, "schedules_ended_total", stream="S", reason="exhausted") == 0
    assert shown(metrics, "stream_served", stream="S") == 1
    reporter.stream_not_served("S", "the stream is gone")
    assert shown(metrics, "stream_served", stream="S") == 0


def test_all_codes_that_a_schedule_may_be_rejected_with_are_known() -> None:
    text = (ROOT / "nats_scheduler" / "message" / "rejection.py").read_text("utf-8")
    messages = text[text.index("# Messages: ") : text.index("# Stream configurations")]
    assert {int(code) for code in re.findall(r"ServerError\((\d+)", messages)} == set(MESSAGE_CODES)


def test_the_reference_has_every_metric_and_no_other() -> None:
    metrics = Metrics()
    Reporter(metrics).stream_served("S", "emulated", "", alarming=False)
    metrics.gauges.readings = OneStream()
    real = {}
    for metric in metrics.registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
        real[name] = (metric.type, labels)
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", page, re.M)
    assert {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == real
    assert len(rows) == len(real)


async def test_an_overdue_fire_is_counted_and_is_not_in_the_histogram() -> None:
    metrics = Metrics()
    reporter = Reporter(metrics)
    reporter.report("S", FireConfirmed("S.s", "S.out", 0, 0, 200_000_000 * SECOND, 7, overdue=True))
    reporter.report("S", FireConfirmed("S.s", "S.out", 0, 0, 3 * MILLISECOND, 8))
    assert shown(metrics, "fires_overdue_total", stream="S") == 1
    assert shown(metrics, "fire_lateness_seconds_count", stream="S") == 1
    assert shown(metrics, "fire_lateness_seconds_sum", stream="S") == pytest.approx(0.003)


def lines(registry: CollectorRegistry) -> set[str]:
    """Return the samples of a registry, without the time at which each series began."""
    return {line for line in generate_latest(registry).decode().splitlines() if "_created" not in line}


def test_counts_of_fires_look_as_the_client_library_has_them() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    fires = FireMetrics()
    ours.register(fires)
    texts = {metric.name: metric.documentation for metric in fires.collect()}
    counters = [
        Counter(name, texts[name], ["stream"], registry=theirs)
        for name in ("nats_scheduler_fires", "nats_scheduler_fires_duplicate", "nats_scheduler_fires_overdue")
    ]
    name = "nats_scheduler_fire_lateness_seconds"
    lateness = Histogram(name, texts[name], ["stream"], registry=theirs, buckets=LATENESS_BUCKETS_SECONDS)
    for stream, late in (("ORDERS", LATE_SECONDS), ('with "quotes"', LATE_SECONDS), ("QUIET", ())):
        counts = fires.by_stream[stream] = FireCounts()
        counts.stored, counts.duplicates, counts.overdue = amounts = (7, 2, 1) if late else (0, 0, 0)
        for counter, amount in zip(counters, amounts, strict=True):
            counter.labels(stream).inc(amount)
        lateness.labels(stream)
        for seconds in late:
            fires.read_back(stream, FireConfirmed("s", "t", 0, 0, 0, 1), seconds)
            lateness.labels(stream).observe(seconds)
    assert lines(ours) == lines(theirs)


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
        for _ in range(200):
            reporter.report("S", ready)
        reporter.report("S", "not an event at all")  # type: ignore[arg-type]
    assert received == [ready] * 200 + ["not an event at all"]
    assert 1 <= sum(line["event"] == "report_failed" for line in said) <= 100
    assert sum(line["event"] == "stream_ready" for line in said) == 200


async def test_the_connection_is_shown_as_it_comes_and_goes(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with sidecar_on(server.url) as running:

        async def shows(**wanted: float) -> None:
            def found() -> dict[str, float | None]:
                named = {name: {"stream": "S"} if name == "stream_ready" else {} for name in wanted}
                return {name: shown(running.metrics, name, **labels) for name, labels in named.items()}

            await eventually(lambda: found() == wanted, describe=lambda: f"{found()}")

        async with account_on(server.url) as account:
            await account.create("S")
            await running.ready("S")
        before = shown(running.metrics, "last_connect_timestamp_seconds") or 0
        assert before == pytest.approx(CLOCK.now() / SECOND, abs=3600)
        await shows(connected=1, stream_ready=1, connections_total=1)
        await server.kill()
        await shows(connected=0, stream_ready=0)
        await server.restart()
        await shows(connected=1, connections_total=2)
        assert (shown(running.metrics, "last_connect_timestamp_seconds") or 0) > before


class Canary:
    """A canary that was expected every 10 s from the instant 100 s on."""

    def __init__(self) -> None:
        self.now = 100 * SECOND
        self.record = CanaryRecord(10 * SECOND, lambda: self.now)

    def fired(self) -> None:
        """Let it fire now."""
        self.record.fired(self.now, self.now)


def test_the_canary_is_ready_while_its_last_fire_is_fresh() -> None:
    canary = Canary()
    assert canary.record.not_ready() == ["the canary has not fired yet"]
    canary.fired()
    canary.now += 10 * SECOND + GRACE_NS - 1
    assert canary.record.not_ready() == []
    canary.now += 1
    assert canary.record.not_ready() == ["the canary fired 15 s ago for the last time, and is due every 10s"]


def test_the_canary_is_missed_once_in_each_interval() -> None:
    canary, seen = Canary(), []
    for seconds in (0, 14, 15, 24, 25, 35, 35, 60):
        canary.now = (100 + seconds) * SECOND
        seen.append(canary.record.missed)
    canary.fired()
    for seconds in (60, 74, 75):
        canary.now = (100 + seconds) * SECOND
        seen.append(canary.record.missed)
    assert seen == [0, 0, 1, 1, 2, 3, 3, 5, 5, 5, 6]


def samples(overload: Overload, *late: float, fires: float = 0.0) -> list[Lateness]:
    """Take one sample for each number, after a fire that was `fires` seconds late; return what is reported."""
    reported = []
    for seconds in late:
        overload.record_fire(fires)
        found = overload.sample(seconds)
        reported += [] if found is None else [found]
    return reported


def test_one_standstill_or_a_burst_is_no_overload() -> None:
    on_time, overload = [0.001] * (WINDOW_SAMPLES - 1), Overload()
    assert samples(overload, *on_time, 30.0, *on_time, 30.0, *on_time) == []
    assert not overload.is_on
    assert samples(overload, 0.0, 0.0, fires=5.0) == []
    assert samples(overload, *[0.0] * WINDOW_SAMPLES) == []


def test_fires_that_wait_within_their_budget_are_no_overload() -> None:
    for budget, is_overloaded in ((0, 1.0), (250 * MILLISECOND, 0.0)):
        metrics = Metrics()
        reporter = Reporter(metrics)
        reporter.lateness_budget = budget
        for number in range(WINDOW_SAMPLES):
            reporter.report("S", FireConfirmed("S.s", "S.out", 0, 0, 300 * MILLISECOND, number + 1))
            reporter.loop_sampled(0.0)
        assert metrics.registry.get_sample_value("nats_scheduler_overloaded") == is_overloaded
