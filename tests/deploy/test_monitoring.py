"""The alerts and the dashboard: rules that fire when they have to, metrics that exist, and a runbook for each alert."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alert_cases import CASES, STEP_SECONDS, Case
from tests.deploy.files import DEPLOY, ROOT
from tests.harness.prometheus import promtool

SCRAPES = DEPLOY / "prometheus" / "prometheus.yaml"
PAGE = ROOT / "docs" / "operating" / "monitoring.md"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
TEXT = PAGE.read_text("utf-8")
GROUPS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))["groups"]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
BOARD = json.loads((DEPLOY / "grafana" / "nats-scheduler.json").read_text("utf-8"))
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
LONGEST_MINUTES = 7 * 60
STREAMS_OF_OURS = {"nats_scheduler_failures", "nats_scheduler_canary"}


def test_each_alert_has_a_case_a_row_of_the_page_and_a_runbook() -> None:
    """The runbook stands where the alert says, and says what users notice, what to look at and what to do."""
    assert sorted(case.alert for case in CASES) == sorted(ALERTS)
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \| (.+?) \| ", TEXT, re.M)
    runbooks = dict(re.findall(r"^### (NatsScheduler\w+)\n\n(.*?)(?=^##)", TEXT, re.M | re.S))
    assert [name for name, *_ in rows] == list(ALERTS) == list(runbooks)
    for name, anchor, severity, after in rows:
        rule = ALERTS[name]
        wait = re.sub(r"(\d+)m", r"\1 min", rule.get("for", "at once")).replace("6h", "6 h")
        assert (severity, after) == (rule["labels"]["severity"], wait)
        assert rule["annotations"]["runbook"] == f"docs/operating/monitoring.md#{anchor}"
        assert all(f"- **{part}**: " in runbooks[name] for part in ("Users notice", "Look at", "Do")), name


def metrics_of(text: str) -> set[str]:
    """Return the metrics that a text names, a histogram by its own name."""
    named = re.findall(r"\b(?:nats_scheduler|process|python)_\w+", text)
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in named}


def test_every_metric_that_is_named_exists() -> None:
    """In the reference, which another test holds to the code."""
    known = set(re.findall(r"^\| `(\w+)` \|", REFERENCE.read_text("utf-8"), re.M)) | STREAMS_OF_OURS
    texts = [*(rule["expr"] for rule in ALERTS.values()), *QUERIES, str(BOARD["templating"]["list"]), TEXT]
    assert {name for text in texts for name in metrics_of(text)} - known == set()


@pytest.mark.server
def test_prometheus_can_parse_each_query_of_the_dashboard(tmp_path: Path) -> None:
    """As Grafana sends it while everything is selected."""
    assert [expr for expr in QUERIES if '{job=~"$job"' not in expr and "ALERTS{" not in expr] == []
    sent = [re.sub(r"\$(job|stream)", ".+", expr).replace("$__rate_interval", "1m") for expr in QUERIES]
    rules = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(sent)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), "utf-8")
    code, said = promtool("check", "rules", file)
    assert code == 0, said


@pytest.mark.server
def test_prometheus_reads_the_rules_and_its_configuration(tmp_path: Path) -> None:
    """Without the job for pods: a Prometheus may be built without Kubernetes, as Debian's is."""
    config = yaml.safe_load(SCRAPES.read_text("utf-8"))
    config["rule_files"] = [str(SCRAPES.parent / name) for name in config["rule_files"]]
    config["scrape_configs"] = [job for job in config["scrape_configs"] if "kubernetes_sd_configs" not in job]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    code, said = promtool("check", "config", file)
    assert (code, f"{len(ALERTS)} rules found" in said) == (0, True), said


@pytest.mark.server
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_has_to_and_at_no_other_time(case: Case, tmp_path: Path) -> None:
    """Of the rules only this one is there: a run takes a tenth of the time."""
    rule = ALERTS[case.alert]
    (tmp_path / "rule.yaml").write_text(yaml.safe_dump({"groups": [{"name": "alert", "rules": [rule]}]}), "utf-8")
    firing = f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}'
    labels = f'{firing[:-1]}, {case.labels}, severity="{rule["labels"]["severity"]}"}}'
    expected = [(case.fires, firing, [{"labels": labels, "value": 1}], case.at_minutes)]
    for name, series in case.quiet.items():
        ever = f"count_over_time({firing}[{LONGEST_MINUTES}m])  # {name}"
        expected.append((series, ever, [], LONGEST_MINUTES if case.at_minutes > 60 else 59))
    tests: list[dict[str, Any]] = [
        {
            "interval": f"{STEP_SECONDS}s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": query, "eval_time": f"{minutes}m", "exp_samples": samples}],
        }
        for series, query, samples, minutes in expected
    ]
    file = tmp_path / "alerts.test.yaml"
    rules = {"rule_files": ["rule.yaml"], "evaluation_interval": f"{STEP_SECONDS}s"}
    file.write_text(yaml.safe_dump({**rules, "tests": tests}), "utf-8")
    code, said = promtool("test", "rules", file)
    assert code == 0, said
