"""docs/operating/monitoring.md and the dashboard: a runbook for each alert, metrics that exist, queries that parse."""

import re
from pathlib import Path

import pytest

from tests.deploy.files import ROOT
from tests.deploy.monitoring import (
    PAGE,
    REFERENCE,
    alerts,
    board,
    metrics_of,
    page_with_alerts,
    queries,
    reference,
    substituted,
)
from tests.harness.prometheus import parse_faults
from tests.house.test_documents import anchors

TEXT = PAGE.read_text("utf-8")
RUNBOOKS = dict(re.findall(r"^### (NatsScheduler\w+)\n\n(.*?)(?=^##)", TEXT, re.M | re.S))
PARTS = ("- **Users notice**: ", "- **Look at**: ", "- **Do**: ")
STREAMS_OF_OURS = {"nats_scheduler_failures", "nats_scheduler_canary"}


def test_the_alerts_of_the_page_are_those_of_the_rules() -> None:
    assert page_with_alerts() == TEXT, "python -m tests.deploy.monitoring"


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    """It stands where the alert says, and says what users notice, what to look at and what to do."""
    assert list(RUNBOOKS) == list(alerts())
    for name, runbook in RUNBOOKS.items():
        path, _, anchor = alerts()[name].annotations["runbook"].partition("#")
        assert (ROOT / path, anchor) == (PAGE, name.lower())
        assert anchor in anchors(PAGE)
        begins = [runbook.find(part) for part in PARTS]
        assert 0 < begins[0] < begins[1] < begins[2], name
        assert "`" in runbook[begins[1] :], f"{name}: what to type, or the name of a line or a panel"


def test_every_metric_that_is_named_exists() -> None:
    named = {alert.name: metrics_of(alert.expr) for alert in alerts().values()}
    named |= {name: metrics_of(expr) for name, expr in queries()}
    named |= {variable["name"]: metrics_of(str(variable["query"])) for variable in board()["templating"]["list"]}
    named["page"] = metrics_of(TEXT) - STREAMS_OF_OURS
    assert {name: metrics - reference() for name, metrics in named.items() if metrics - reference()} == {}


def test_every_label_that_a_rule_or_a_query_groups_by_is_one_of_the_reference() -> None:
    known = {"job", "instance", "le"}
    for labels in re.findall(r"^\| `\w+` \| \w+ \| ([^|]*)\|", REFERENCE.read_text("utf-8"), re.M):
        known |= set(re.findall(r"`(\w+)`", labels))
    used = set()
    for expr in [*(alert.expr for alert in alerts().values()), *(expr for _name, expr in queries())]:
        for labels in re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expr):
            used |= {label.strip() for label in labels.split(",")}
        used |= set(re.findall(r'(\w+)=~?"', expr)) - {"alertname", "alertstate"}
    assert used <= known


@pytest.mark.server
def test_each_query_is_limited_to_what_is_selected_and_prometheus_can_parse_it(tmp_path: Path) -> None:
    assert [name for name, expr in queries() if '{job=~"$job"' not in expr and "ALERTS{" not in expr] == []
    assert parse_faults([substituted(expr) for _name, expr in queries()], tmp_path) == ""
    assert parse_faults(["sum(rate("], tmp_path) != ""
