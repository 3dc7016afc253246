"""The alert rules and the dashboard of `deploy/`, read, and the list of alerts in docs/operating/monitoring.md.

The list is written by `python -m tests.deploy.monitoring`; a test compares the page with what this module would write.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.deploy.files import DEPLOY, ROOT

RULES = DEPLOY / "prometheus" / "alerts.yaml"
SCRAPES = DEPLOY / "prometheus" / "prometheus.yaml"
DASHBOARD = DEPLOY / "grafana" / "nats-scheduler.json"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
PAGE = ROOT / "docs" / "operating" / "monitoring.md"

METRIC = re.compile(r"\b(?:nats_scheduler|process|python)_\w+")
SELECTOR = re.compile(r"\b((?:nats_scheduler|process|python)_\w+|up)\b(\{[^}]*\})?(\[[^\]:]*\])?")
"""A selector of series: metric, matchers, range; a range with a colon belongs to a subquery."""
HISTOGRAM_PARTS = re.compile(r"_(bucket|count|sum)$")
BEGIN = "<!-- derived: begin alerts (python -m tests.deploy.monitoring) -->"
END = "<!-- derived: end alerts -->"


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expr: str
    wait: str
    """`for` of the rule: for how long the expression has to hold; 0s where nothing is said."""
    severity: str
    annotations: dict[str, str]

    @property
    def row(self) -> str:
        """Its row in the list of the page."""
        after = "at once" if self.wait == "0s" else re.sub(r"(?<=\d)(?=[a-z])", " ", self.wait).replace(" m", " min")
        # What a template fills in is left out.
        text = re.sub(r"\{\{ with \$labels\.job \}\}.*?\{\{ end \}\}", "the job", self.annotations["summary"])
        text = text.replace(" of {{ $labels.job }}", "").replace("{{ $labels.job }}", "the job")
        text = text.replace(" {{ $labels.stream }}", "").replace(" {{ $labels.instance }}", "")
        text = re.sub(r"\{\{ \$value \}\}", "several", text).strip()
        return f"| [{self.name}](#{self.name.lower()}) | {self.severity} | {after} | {text} |"


@cache
def alerts() -> dict[str, Alert]:
    """Read the rules, by name."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    found = [
        Alert(rule["alert"], rule["expr"], rule.get("for", "0s"), rule["labels"]["severity"], rule["annotations"])
        for group in groups
        for rule in group["rules"]
    ]
    assert len({alert.name for alert in found}) == len(found), "an alert stands twice"
    return {alert.name: alert for alert in found}


def page_with_alerts() -> str:
    """Return the page with its list of alerts replaced."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    rows = ["| alert | severity | after | what it reports |", "|---|---|---|---|", *(a.row for a in alerts().values())]
    return "\n".join([f"{before}{BEGIN}\n", *rows, f"\n{END}{rest.partition(END)[2]}"])


def metrics_of(expr: str) -> set[str]:
    """Return the metrics that an expression names, a histogram by its own name."""
    return {HISTOGRAM_PARTS.sub("", name) for name in METRIC.findall(expr)}


@cache
def reference() -> frozenset[str]:
    """Return every metric that the reference names; another test holds it to the code."""
    return frozenset(re.findall(r"^\| `(\w+)` \|", REFERENCE.read_text("utf-8"), re.M))


@cache
def board() -> dict[str, Any]:
    """Read the dashboard."""
    return dict(json.loads(DASHBOARD.read_text("utf-8")))


def panels() -> list[dict[str, Any]]:
    """List the panels that show something."""
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Yield each query of the dashboard with its panel and letter."""
    for panel in panels():
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]


def substituted(expr: str) -> str:
    """Return a query as Grafana sends it while everything is selected."""
    return expr.replace("$job", ".+").replace("$stream", ".+").replace("$__rate_interval", "1m")


if __name__ == "__main__":
    PAGE.write_text(page_with_alerts(), encoding="utf-8")
