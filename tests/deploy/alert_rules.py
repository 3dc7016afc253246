"""The alert rules of `deploy/prometheus/` as tests read them, and what an expression in PromQL names."""

import re
from dataclasses import dataclass
from functools import cache

import yaml

from tests.deploy.files import DEPLOY, ROOT

RULES = DEPLOY / "prometheus" / "alerts.yaml"
SCRAPES = DEPLOY / "prometheus" / "prometheus.yaml"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"

METRIC = re.compile(r"\b(?:nats_scheduler|process|python)_\w+")
SELECTOR = re.compile(r"\b((?:nats_scheduler|process|python)_\w+|up)\b(\{[^}]*\})?(\[[^\]:]*\])?")
"""A selector of series: metric, matchers, range; a range with a colon belongs to a subquery."""
HISTOGRAM_PARTS = re.compile(r"_(bucket|count|sum)$")


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expr: str
    wait: str
    """`for` of the rule: for how long the expression has to hold; 0s where nothing is said."""
    severity: str
    annotations: dict[str, str]


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


def metrics_of(expr: str) -> set[str]:
    """Return the metrics that an expression names, a histogram by its own name."""
    return {HISTOGRAM_PARTS.sub("", name) for name in METRIC.findall(expr)}


@cache
def reference() -> frozenset[str]:
    """Return every metric that the reference names; another test holds it to the code."""
    return frozenset(re.findall(r"^\| `(\w+)` \|", REFERENCE.read_text("utf-8"), re.M))
