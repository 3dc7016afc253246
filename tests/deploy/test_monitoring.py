"""docs/operating/monitoring.md and the dashboard: a runbook for each alert, and whatever they name is there.

Grafana reads all that the dashboard says, its panels explain themselves, and its queries can be parsed.
"""

import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from nats_scheduler.message.findings import Code
from nats_scheduler.settings.fields import setting_fields
from tests.deploy.files import ROOT
from tests.deploy.monitoring import (
    PAGE,
    REFERENCE,
    alerts,
    board,
    metrics_of,
    page_with_alerts,
    panels,
    queries,
    reference,
    substituted,
)
from tests.deploy.test_deploy_files import understood
from tests.harness.prometheus import parse_faults
from tests.house.log_events import advisories, log_events
from tests.house.test_documents import anchors, shell_blocks

TEXT = PAGE.read_text("utf-8")
RUNBOOKS = dict(re.findall(r"^### (NatsScheduler\w+)\n\n(.*?)(?=^##)", TEXT, re.M | re.S))
PARTS = ("- **Users notice**: ", "- **Look at**: ", "- **Do**: ")
STREAMS_OF_OURS = {"nats_scheduler_failures", "nats_scheduler_canary"}
OF_OTHERS = {"allow_msg_schedules", "max_age", "deny_delete", "rule_files", "max_msgs", "max_bytes"}
"""Words of NATS and of Prometheus with an underscore."""
COLUMNS = 24
"""The width of a dashboard."""
MOST_PANELS = 24
"""More than this is not taken in at a glance."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")}


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


def test_every_word_of_ours_and_every_panel_that_the_page_names_exists() -> None:
    stems = {name.removeprefix("nats_scheduler_") for name in reference()}
    ours = {*log_events(), *advisories(), *setting_fields(), *(code.value for code in Code), *stems, *reference()}
    assert set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT)) - ours - OF_OTHERS - STREAMS_OF_OURS == set()
    named = {title for text in RUNBOOKS.values() for title in re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", text)}
    assert named
    assert named - {panel["title"] for panel in board()["panels"]} == set()


def test_a_command_of_the_page_is_one_of_the_program() -> None:
    inline = re.findall(r"`(nats-scheduler [a-z][^`]*)`", TEXT)
    typed = [line for block in shell_blocks(PAGE) for line in block.splitlines() if line.startswith("nats-scheduler ")]
    for command in {*typed, *inline}:
        try:
            understood(shlex.split(command)[1:])
        except click.MissingParameter:
            assert command in inline, "only a sentence may leave out what a command is about"


def lost(given: Any, read: Any, place: str = "") -> Iterator[str]:
    """Yield where what was read differs from what was given; what was read may have defaults beside it."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            yield from lost(value, read[key], f"{place}.{key}") if key in read else [f"{place}.{key}"]
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for number, pair in enumerate(zip(given, read, strict=True)):
            yield from lost(*pair, f"{place}[{number}]")
    elif given != read:
        yield f"{place}: {given!r} is read as {read!r}"


def lost_in_grafana(given: dict[str, Any]) -> list[str]:
    """Return what Grafana's own model of its schema does not have of a dashboard."""
    register_default_plugins()
    return list(lost(given, json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder))))


def test_grafana_reads_all_that_the_dashboard_says() -> None:
    assert lost_in_grafana(board()) == []
    wrong = json.loads(json.dumps(board()))
    panel = next(panel for panel in wrong["panels"] if panel["type"] == "timeseries")
    panel["options"]["legend"]["placment"] = "right"
    panel["fieldConfig"]["defaults"]["custom"]["drawStlye"] = "line"
    assert [place.rpartition(".")[2] for place in lost_in_grafana(wrong)] == ["drawStlye", "placment"]


def test_what_identifies_the_dashboard_does_not_belong_to_one_grafana() -> None:
    assert {"id", "__inputs"} & set(board()) == set()
    assert board()["uid"] == "nats-scheduler"
    assert {one["name"] for one in board()["templating"]["list"]} == {"datasource", "job", "stream"}


def test_panels_are_numbered_and_do_not_overlap_and_the_first_row_answers_whether_all_is_well() -> None:
    taken: Counter[tuple[int, int]] = Counter()
    for panel in board()["panels"]:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        assert 0 <= x < x + w <= COLUMNS, panel["title"]
        taken.update(itertools.product(range(x, x + w), range(y, y + h)))
    assert [cell for cell, count in taken.items() if count > 1] == []
    numbers, titles = [one["id"] for one in board()["panels"]], [one["title"] for one in panels()]
    assert (len(set(numbers)), len(set(titles))) == (len(numbers), len(titles))
    assert {panel["type"] for panel in board()["panels"] if panel["gridPos"]["y"] == 0} == {"stat"}
    assert len(titles) <= MOST_PANELS


def test_a_panel_says_what_it_shows_in_which_unit_and_asks_the_prometheus_that_is_selected() -> None:
    for panel in panels():
        overrides = [value for one in panel["fieldConfig"]["overrides"] for value in one["properties"]]
        shown = {panel["fieldConfig"]["defaults"]["unit"], *(one["value"] for one in overrides if one["id"] == "unit")}
        assert (panel["description"][-1:], shown - UNITS) == (".", set()), panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0, panel["title"]
        assert all(one["datasource"] == SOURCE for one in (panel, *panel["targets"])), panel["title"]


@pytest.mark.server
def test_each_query_is_limited_to_what_is_selected_and_prometheus_can_parse_it(tmp_path: Path) -> None:
    assert [name for name, expr in queries() if '{job=~"$job"' not in expr and "ALERTS{" not in expr] == []
    assert parse_faults([substituted(expr) for _name, expr in queries()], tmp_path) == ""
    assert parse_faults(["sum(rate("], tmp_path) != ""
