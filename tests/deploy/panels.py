"""The kinds of panels of the Grafana dashboard, as the JSON of dashboard schema 39 (Grafana 10.4 and later).

The rule: a panel is a value without a place; `placed` gives the panels of a row their numbers and places, from left
to right. Only what differs from Grafana's defaults is written, apart from units and thresholds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
"""The width of a dashboard; that of each panel is a part of it."""

GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"


@dataclass(frozen=True)
class Query:
    """A query in PromQL, and what its series are called."""

    expr: str
    legend: str = ""


def stat(title: str, description: str, expr: str, unit: str, steps: Mapping[float, str], nothing: str = "") -> Json:
    """One number, coloured by its thresholds; `nothing` is shown where there is none."""
    defaults: Json = {"unit": unit, "color": {"mode": "thresholds"}, "thresholds": thresholds(steps)}
    if nothing:
        text = {"text": nothing, "color": GREEN, "index": 0}
        defaults["mappings"] = [{"type": "special", "options": {"match": "null+nan", "result": text}}]
    options = {
        "colorMode": "background_solid",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value",
    }
    return _panel("stat", title, description, [_target(Query(expr), 0, instant=True)], defaults, options, (3, 4))


def series(
    title: str,
    description: str,
    queries: Sequence[Query],
    unit: str,
    width: int,
    *,
    stacked: bool = False,
    bars: bool = False,
    logarithmic: bool = False,
    most: float | None = None,
) -> Json:
    """Lines over time, or stacked areas, or bars."""
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        "lineWidth": 1,
        "fillOpacity": 60 if bars else 25 if stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "axisSoftMin": 0,
    }
    if stacked or bars:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    if logarithmic:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
        del custom["axisSoftMin"]
    defaults: Json = {"unit": unit, "color": {"mode": "palette-classic"}, "custom": custom}
    if most is not None:
        custom["thresholdsStyle"] = {"mode": "dashed"}
        defaults["thresholds"] = thresholds({0: GREEN, most: RED})
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    targets = [_target(query, number) for number, query in enumerate(queries)]
    return _panel("timeseries", title, description, targets, defaults, options, (width, 8))


def heatmap(title: str, description: str, expr: str, unit: str, width: int) -> Json:
    """The buckets of a histogram over time; the darker, the more."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "exponent": 0.5,
            "fill": "dark-orange",
            "steps": 64,
            "reverse": False,
        },
        "filterValues": {"le": 1e-9},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
        "cellValues": {"unit": "short"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
    }
    target = {**_target(Query(expr, "{{le}}"), 0), "format": "heatmap"}
    return _panel("heatmap", title, description, [target], {"unit": unit}, options, (width, 8))


@dataclass(frozen=True)
class Column:
    """A column of a table: its query, of which each series is a row, its unit, and when it is coloured.

    Without a title it is not shown, and only the labels of its series are.
    """

    title: str
    expr: str
    unit: str = "none"
    steps: Mapping[float, str] | None = None


def table(
    title: str, description: str, labels: Mapping[str, str], columns: Sequence[Column], width: int, height: int
) -> Json:
    """A row for each set of `labels`, which are shown under the titles given there, and a column for each query."""
    values = {f"Value #{_reference(number)}": column.title for number, column in enumerate(columns)}
    shown = {**labels, **{name: title for name, title in values.items() if title}}
    organize = {
        "excludeByName": dict.fromkeys(["Time", *(name for name, title in values.items() if not title)], True),
        "renameByName": shown,
        "indexByName": {name: number for number, name in enumerate(shown)},
    }
    targets = [
        {**_target(Query(column.expr), number, instant=True), "format": "table"}
        for number, column in enumerate(columns)
    ]
    options = {"showHeader": True, "cellHeight": "sm", "sortBy": []}
    defaults = {"unit": "none", "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True}}
    panel = _panel("table", title, description, targets, defaults, options, (width, height))
    panel["fieldConfig"]["overrides"] = [_override(column) for column in columns if column.title]
    panel["transformations"] = [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]
    return panel


def row(title: str) -> Json:
    """A heading over the panels that follow."""
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def thresholds(steps: Mapping[float, str]) -> Json:
    """The colours from each value on; the first one also holds below."""
    values: Iterable[float | None] = [None, *list(steps)[1:]]
    return {
        "mode": "absolute",
        "steps": [{"value": v, "color": c} for v, c in zip(values, steps.values(), strict=True)],
    }


def placed(rows: Sequence[Sequence[Json]]) -> list[Json]:
    """Return all panels with their numbers and places, each row below the one before."""
    found: list[Json] = []
    top = 0
    for panels in rows:
        left = 0
        for panel in panels:
            size = panel.get("gridPos", {"w": COLUMNS, "h": 1})
            found.append({**panel, "id": len(found) + 1, "gridPos": {**size, "x": left, "y": top}})
            left += size["w"]
        assert left == COLUMNS, f"the row with {panels[0]['title']} is {left} wide"
        top += max(panel["gridPos"]["h"] for panel in found[-len(panels) :])
    return found


def _panel(
    kind: str,
    title: str,
    description: str,
    targets: list[Json],
    defaults: Json,
    options: Json,
    size: tuple[int, int],
) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "gridPos": {"w": size[0], "h": size[1]},
    }


def _target(query: Query, number: int, *, instant: bool = False) -> Json:
    found: Json = {"refId": _reference(number), "datasource": DATASOURCE, "expr": query.expr, "editorMode": "code"}
    found |= {"instant": True, "range": False} if instant else {"range": True}
    return found | ({"legendFormat": query.legend} if query.legend else {})


def _reference(number: int) -> str:
    return chr(ord("A") + number)


def _override(column: Column) -> Json:
    properties: list[Json] = [{"id": "unit", "value": column.unit}]
    if column.steps is not None:
        properties.append({"id": "thresholds", "value": thresholds(column.steps)})
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
