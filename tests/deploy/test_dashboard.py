"""The Grafana dashboard: Grafana reads all that it says, its panels explain themselves, its queries can be parsed."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.dashboard import DASHBOARD, board, dashboard_text, panels, queries, substituted
from tests.deploy.panels import COLUMNS, Json
from tests.harness.prometheus import parse_faults

MOST_PANELS = 24
"""More than this is not taken in at a glance."""
UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")}
OF_PANELS = [pytest.param(panel, id=panel["title"]) for panel in panels()]


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


def read_by_grafana(given: Json) -> Any:
    """Return a dashboard as Grafana's own model of its schema has it, without what the model does not have."""
    register_default_plugins()
    return json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder))


def test_the_file_is_the_description() -> None:
    assert DASHBOARD.read_text("utf-8") == dashboard_text(), "python -m tests.deploy.dashboard"


def test_grafana_reads_all_that_the_file_says() -> None:
    assert list(lost(board(), read_by_grafana(board()))) == []


def test_what_grafana_does_not_read_would_be_seen() -> None:
    wrong = json.loads(json.dumps(board()))
    panel = next(panel for panel in wrong["panels"] if panel["type"] == "timeseries")
    panel["options"]["legend"]["placment"] = "right"
    panel["fieldConfig"]["defaults"]["custom"]["drawStlye"] = "line"
    found = list(lost(wrong, read_by_grafana(wrong)))
    assert [place.rpartition(".")[2] for place in found] == ["drawStlye", "placment"]


def test_panels_are_numbered_and_do_not_overlap() -> None:
    numbers = [panel["id"] for panel in board()["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: Counter[tuple[int, int]] = Counter()
    for panel in board()["panels"]:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        assert 0 <= x < x + w <= COLUMNS, panel["title"]
        taken.update(itertools.product(range(x, x + w), range(y, y + h)))
    assert [cell for cell, count in taken.items() if count > 1] == []


def test_the_first_row_answers_whether_all_is_well() -> None:
    first = [panel for panel in board()["panels"] if panel["gridPos"]["y"] == 0]
    assert {panel["type"] for panel in first} == {"stat"}
    assert len(panels()) <= MOST_PANELS
    assert len({panel["title"] for panel in panels()}) == len(panels())


@pytest.mark.parametrize("panel", OF_PANELS)
def test_a_panel_says_what_it_shows_and_in_which_unit(panel: Json) -> None:
    assert panel["description"].endswith(".")
    assert panel["targets"]
    overrides = [
        value["value"]
        for one in panel["fieldConfig"]["overrides"]
        for value in one["properties"]
        if value["id"] == "unit"
    ]
    assert {panel["fieldConfig"]["defaults"]["unit"], *overrides} <= UNITS


@pytest.mark.parametrize("panel", OF_PANELS)
def test_a_panel_asks_the_prometheus_that_is_selected(panel: Json) -> None:
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters)


def test_each_query_is_limited_to_what_is_selected() -> None:
    free = [name for name, expr in queries() if '{job=~"$job"' not in expr and "ALERTS{" not in expr]
    assert free == []
    assert {one["name"] for one in board()["templating"]["list"]} == {"datasource", "job", "stream"}


def test_what_identifies_the_dashboard_does_not_belong_to_one_grafana() -> None:
    assert "id" not in board()
    assert "__inputs" not in board()
    assert board()["uid"] == "nats-scheduler"


@pytest.mark.server
def test_prometheus_can_parse_every_query(tmp_path: Path) -> None:
    assert parse_faults([substituted(expr) for _name, expr in queries()], tmp_path) == ""
    assert parse_faults(["sum(rate("], tmp_path) != ""
