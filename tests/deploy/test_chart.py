"""The chart's values: each is described, checked and documented, and no setting of the program is missing."""

import copy
from typing import Any

import jsonschema
import yaml

from nats_scheduler.version import VERSION
from tests.deploy.chart import PAGE, SCHEMA, derived_schema, derived_table, example, page_with, schema, values
from tests.deploy.files import CHART
from tests.deploy.rendering import SETS, Values

CHECK = jsonschema.Draft7Validator(schema())


def merged(base: Any, over: Any) -> Any:
    """Lay values over others, as helm does: null removes one."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    whole = {key: merged(base.get(key), value) for key, value in over.items() if value is not None}
    return {**{key: value for key, value in base.items() if key not in over}, **whole}


def faults(over: Values) -> list[str]:
    """Return what the schema has against values, each with its place."""
    found = CHECK.iter_errors(merged(copy.deepcopy(values()), over))
    return [f"{'.'.join(map(str, one.absolute_path))}: {one.message}" for one in found]


def test_the_schema_and_the_table_of_the_page_are_up_to_date() -> None:
    assert SCHEMA.read_text("utf-8") == derived_schema(), "python -m tests.deploy.chart"
    assert PAGE.read_text("utf-8") == page_with(derived_table()), "python -m tests.deploy.chart"


def test_values_that_make_sense_are_taken() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    assert {name: found for name, given in SETS.items() if (found := faults(given))} == {}
    assert faults(example()) == [], "the example of the page"


def test_values_that_make_none_are_refused_by_name() -> None:
    wrong: list[tuple[str, Values]] = [
        ("", {"replica": 3}),
        ("nats.servers", {"nats": {"servers": []}}),
        ("nats.servers.0", {"nats": {"servers": ["nats://user:password@nats:4222"]}}),
        ("auth.method", {"auth": {"method": "password"}}),
        ("auth", {"auth": {"password": "pa55"}}),
        ("settings", {"settings": {"windw": 8}}),
        ("settings", {"settings": {"metrics_port": 9464}}),
        ("settings.connection", {"settings": {"connection": {"password": "pa55"}}}),
        ("streams.ORDERS", {"streams": {"ORDERS": {"retention": "limits"}}}),
        ("", {"streams": {"ORDERS": {"subjects": ["o"]}}, "existingStreamsConfigMap": "mine"}),
        ("calendars.days", {"calendars": {"days": {"company days": "2026-12-24"}}}),
        ("settings", {"settings": {"data": "/somewhere"}}),
        ("runAsUser", {"runAsUser": 0}),
    ]
    for place, over in wrong:
        assert [one for one in faults(over) if one.startswith(f"{place}: ")], (over, faults(over))


def test_every_object_of_the_schema_refuses_what_it_does_not_name() -> None:
    open_ones, pending = [], [schema()]
    while pending:
        node: Any = pending.pop()
        pending += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        if isinstance(node, dict) and node.get("type") == "object" and "properties" in node:
            open_ones += [] if node.get("additionalProperties") is False else [node]
    assert open_ones == []


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
