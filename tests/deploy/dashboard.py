"""The Grafana dashboard of `deploy/grafana/`, from which its JSON is written: `python -m tests.deploy.dashboard`.

The rule: the first row answers whether all is well, and the rows below it show why not: lateness, fires, schedules,
instances, processes. A test compares the file with what this module would write.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.deploy.dashboard_rows import (
    FIRES_ROW,
    INSTANCES_ROW,
    IS_ALL_WELL,
    LATENESS_ROW,
    PROCESS_ROW,
    SCHEDULES_ROW,
    STREAMS,
)
from tests.deploy.panels import DATASOURCE, Json, placed, row

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "nats-scheduler.json"

ROWS = [
    IS_ALL_WELL,
    [row("Lateness")],
    LATENESS_ROW,
    [row("Fires and failures")],
    FIRES_ROW,
    [row("Schedules, and what is due")],
    [STREAMS],
    SCHEDULES_ROW,
    [row("Instances and shards")],
    INSTANCES_ROW,
    [row("Processes")],
    PROCESS_ROW,
]


def variable(name: str, label: str, query: str) -> Json:
    """A choice of any number of the values of a label; all of them at first."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def dashboard() -> Json:
    """Return the dashboard as Grafana imports it, from a file or by hand."""
    source = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "refresh": 1}
    return {
        "uid": "nats-scheduler",
        "title": "NATS scheduler",
        "description": "Do the schedules fire, and how late: the sidecars of nats-scheduler.",
        "tags": ["nats", "nats-scheduler"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                source,
                variable("job", "Job", "label_values(nats_scheduler_connected, job)"),
                variable("stream", "Stream", 'label_values(nats_scheduler_stream_served{job=~"$job"}, stream)'),
            ]
        },
        "annotations": {"list": []},
        "links": [],
        "panels": placed(ROWS),
    }


@cache
def board() -> Json:
    """Read the dashboard."""
    found: Json = json.loads(DASHBOARD.read_text("utf-8"))
    return found


def panels() -> list[Json]:
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


def dashboard_text() -> str:
    """Return the text of the dashboard's file."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(dashboard_text(), encoding="utf-8")
