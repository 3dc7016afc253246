"""A real Prometheus scrapes two real sidecars: what rules and dashboard ask for is there, and nothing fires."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.conftest import StartServer
from tests.deploy.files import EVERY_ADDRESS, beside
from tests.deploy.monitoring import RULES, SCRAPES, SELECTOR, alerts, queries, substituted
from tests.harness.account import Account, account_on, in_seconds
from tests.harness.flagged import FLAGGED
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.prometheus import Prometheus, program, promtool
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

pytestmark = pytest.mark.server

DATA_SECONDS = 120.0
"""Longest wait for data; a rate needs two scrapes, of which there is one a second here."""
JOB = "nats-scheduler"


def example() -> dict[str, Any]:
    """Read the example configuration."""
    read: dict[str, Any] = yaml.safe_load(SCRAPES.read_text("utf-8"))
    return read


def job_of_example(name: str) -> dict[str, Any]:
    """Return one job of the example."""
    (job,) = [job for job in example()["scrape_configs"] if job["job_name"] == name]
    return dict(job)


def test_prometheus_reads_the_example(tmp_path: Path) -> None:
    """A Prometheus that is built without Kubernetes, as Debian's is, reads what is left."""
    config = example()
    config["rule_files"] = [str(SCRAPES.parent / name) for name in config["rule_files"]]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    code, said = promtool("check", "config", file)
    if "field kubernetes_sd_configs not found" in said:
        config["scrape_configs"] = [job_of_example(JOB)]
        file.write_text(yaml.safe_dump(config), "utf-8")
        code, said = promtool("check", "config", file)
    assert code == 0, said
    assert f"{len(alerts())} rules found" in said


def test_the_job_for_pods_finds_the_sidecar_of_the_example_and_nothing_else(tmp_path: Path) -> None:
    job = job_of_example("nats-scheduler-pods")
    (found,) = job.pop("kubernetes_sd_configs")
    assert found == {"role": "pod", "namespaces": {"names": ["nats"]}}
    server: dict[str, Any] = {"name": "nats", "ports": [{"name": "nats", "containerPort": 4222}]}
    targets = [
        (container["name"], port["name"], f"10.0.0.7:{port['containerPort']}", phase)
        for container in (server, beside())
        for port in container["ports"]
        for phase in ("Running", "Failed")
    ]
    labels = ("container_name", "container_port_name", "phase")
    job["static_configs"] = [
        {
            "targets": [address],
            "labels": {
                "__meta_kubernetes_namespace": "nats",
                "__meta_kubernetes_pod_name": "nats-0",
                **dict(zip((f"__meta_kubernetes_pod_{label}" for label in labels), (name, port, phase), strict=True)),
            },
        }
        for name, port, address, phase in targets
    ]
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump({"scrape_configs": [job]}), "utf-8")
    code, said = promtool("check", "service-discovery", "--timeout=2s", file, job["job_name"])
    assert code == 0, said
    kept = [one["labels"] for one in json.loads(said) if one["labels"]]
    shown = [{key: value for key, value in one.items() if not key.startswith("__s")} for one in kept]
    where = {"__address__": "10.0.0.7:9464", "__metrics_path__": "/metrics"}
    assert shown == [{**where, "job": "nats-scheduler-nats", "instance": "nats-0"}]


@dataclass
class Scraped:
    """Two sidecars, and a Prometheus that scrapes them with the example's job and our rules."""

    prometheus: Prometheus
    sidecars: list[ChildProcess]

    async def number(self, expr: str) -> float | None:
        """Return the first value of a query, None if there is none."""
        found = await self.prometheus.query(expr)
        return float(found[0]["value"][1]) if found else None

    async def shows(self, expr: str, wanted: float) -> None:
        """Wait until a query has this value."""

        async def holds() -> bool:
            return await self.number(expr) == wanted

        await eventually(holds, within_seconds=DATA_SECONDS, describe=f"{expr} is {wanted}")

    async def alerts_are(self, *wanted: str) -> None:
        """Wait until the expressions of these alerts hold, and of no others, whether or not for long enough."""
        last: set[str] = set()

        async def holds() -> bool:
            nonlocal last
            last = {found["metric"]["alertname"] for found in await self.prometheus.query("ALERTS")}
            return last == set(wanted)

        await eventually(holds, within_seconds=DATA_SECONDS, describe=lambda: f"{wanted}, not {last}")


@asynccontextmanager
async def scraped(url: str, folder: Path, *flags: str) -> AsyncIterator[Scraped]:
    """Run two sidecars, and the Prometheus that scrapes them once a second."""
    program("prometheus")  # first, so that nothing is started where the test is skipped
    async with AsyncExitStack() as stack:
        targets, processes = [], []
        for name in ("a", "b"):
            arguments = ("run", "-s", url, "--metrics-port", "0", *flags)
            process = stack.enter_context(sidecar(*arguments, folder=folder / name, name=name))
            address = re.search(r"http://[\w.:]+", await process.wait_for_line("metrics_served"))
            assert address is not None
            targets.append(urlsplit(address[0]).netloc)
            processes.append(process)
        job = job_of_example(JOB)
        job["static_configs"] = [{"targets": targets}]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [job],
        }
        prometheus = await stack.enter_async_context(Prometheus(folder / "prometheus", config))
        yield Scraped(prometheus, processes)


async def something_to_see(account: Account) -> None:
    """Create a stream with schedules of each kind, one of which fires each second."""
    await account.create("ORDERS", metadata=FLAGGED)
    patterns = {"often": "@every 1s", "daily": "0 30 9 * * *", "once": f"@at {in_seconds(86_400)}"}
    for name, pattern in patterns.items():
        schedule = {"Nats-Schedule": pattern, "Nats-Schedule-Target": "ORDERS.due"}
        await account.publish(f"ORDERS.schedules.{name}", schedule)


async def test_all_that_rules_and_dashboard_ask_for_is_there_and_nothing_fires(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with scraped(server.url, tmp_path, "--canary-interval", "1s") as seen, account_on(server.url) as account:
        await something_to_see(account)
        # One of two instances owns the stream, the other one stands by, and each holds all schedules.
        await seen.shows('count(nats_scheduler_stream_ready{stream="ORDERS"} == 1)', 2)
        await seen.shows('sum(nats_scheduler_stream_owner{stream="ORDERS"})', 1)
        await seen.shows('count(nats_scheduler_schedules_held{stream="ORDERS", kind="at"} == 1)', 2)
        await seen.shows('sum(max by (kind) (nats_scheduler_schedules_held{stream="ORDERS"}))', 3)

        # Without the filter that hides what is 0.
        empty = {name: substituted(expr).removesuffix(" > 0") for name, expr in queries()}

        async def all_have_data() -> bool:
            for name, expr in list(empty.items()):
                if await seen.prometheus.query(expr):
                    del empty[name]
            return not empty

        await eventually(all_have_data, within_seconds=DATA_SECONDS, describe=lambda: f"data for {empty}")

        missing = []
        for alert in alerts().values():
            for metric, matchers, _range in SELECTOR.findall(alert.expr):
                labels = re.findall(r"(\w+)\s*=", matchers)
                having = ",".join(f'{label}!=""' for label in labels)
                if await seen.number(f"count({metric}{{{having}}})") is None:
                    missing.append((alert.name, metric, labels))
        assert missing == []

        groups = (await seen.prometheus.get("/api/v1/rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == set(alerts())
        assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
        assert await seen.prometheus.query('ALERTS{alertstate="firing"}') == []


async def test_what_goes_wrong_makes_the_expression_of_its_alert_true_and_of_no_other(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with scraped(server.url, tmp_path) as seen:
        async with account_on(server.url) as account:
            await account.create("ORDERS", metadata=FLAGGED, max_msg_size=300, allow_msg_ttl=True)
            await seen.shows('sum(nats_scheduler_stream_owner{stream="ORDERS"})', 1)
            await seen.shows('max(nats_scheduler_stream_ready{stream="ORDERS"})', 1)
            await seen.alerts_are()

            await account.publish("ORDERS.schedules.wrong", {"Nats-Schedule": "@every soon"})
            await seen.alerts_are("NatsSchedulerSchedulesRejected")
            labels = (await seen.prometheus.query('ALERTS{alertstate="firing"}'))[0]["metric"]
            assert (labels["job"], labels["stream"], labels["code"]) == (JOB, "ORDERS", "10189")

            tomorrow = {"Nats-Schedule": f"@at {in_seconds(86_400)}", "Nats-Schedule-Target": "ORDERS.due"}
            await account.publish("ORDERS.schedules.brief", {**tomorrow, "Nats-TTL": "1h"})
            await seen.alerts_are("NatsSchedulerSchedulesRejected", "NatsSchedulerSchedulesEndEarly")

            # The schedule is small enough for the stream, and the headers of its fire make that too large.
            often = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "ORDERS.due"}
            await account.publish("ORDERS.schedules.large", often, b"x" * 150)
            known = {"NatsSchedulerSchedulesRejected", "NatsSchedulerSchedulesEndEarly"}
            await seen.alerts_are(*known, "NatsSchedulerFiresRefused")
            await seen.shows('sum(nats_scheduler_schedules_failing{stream="ORDERS"})', 1)

        texts = [
            text
            for one in (await seen.prometheus.get("/api/v1/alerts"))["alerts"]
            for text in one["annotations"].values()
        ]
        assert texts
        assert [text for text in texts if "{{" in text or "error expanding" in text] == []

        await server.kill()
        await seen.alerts_are(*known, "NatsSchedulerFiresRefused", "NatsSchedulerNotConnected")
        for process in seen.sidecars:
            process.kill()
        await seen.alerts_are("NatsSchedulerAbsent", *known)


def test_the_compose_file_and_the_pods_serve_the_port_of_the_example() -> None:
    (target,) = job_of_example(JOB)["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    given = {one["name"]: one.get("value") for one in beside()["env"]}
    assert given["NATS_SCHEDULER_METRICS_PORT"] == port
    assert (host, given["NATS_SCHEDULER_METRICS_ADDRESS"]) == ("127.0.0.1", EVERY_ADDRESS)
