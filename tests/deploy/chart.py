"""The Helm chart's values: their schema, and the table of them in docs/operating/kubernetes.md.

Its rule: `python -m tests.deploy.chart` writes what is derived, and a test compares it. The value `settings` is derived
from the settings of the program, so that what the program takes is what the chart takes, and the table from the schema.
Limit: a setting that the chart sets itself, from another value or from a Secret, is none of `settings`.
"""

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from nats_scheduler.settings.fields import settings_schema
from tests.deploy.files import CHART, ROOT

PAGE = ROOT / "docs" / "operating" / "kubernetes.md"
SCHEMA = CHART / "values.schema.json"

BEGIN = "<!-- derived: begin (python -m tests.deploy.chart) -->"
END = "<!-- derived: end -->"

OWN = {
    *("$schema", "connection", "streams_folder", "data", "drain_timeout", "metrics_port", "metrics_address"),
    *("web_port", "web_address", "web_token", "web_token_file", "web_hosts"),
    *("web_control_token", "web_control_token_file", "web_control_rule", "web_user_header", "web_trusted_proxies"),
    "web_path_prefix",
}
"""Settings that come from other values of the chart."""
OWN_OF_CONNECTION = {
    *("servers", "creds", "user", "password", "token", "nkey", "user_jwt", "user_seed", "inbox_prefix"),
    *("tls_cert", "tls_key", "tls_ca", "tls_first"),
}
"""The same, of the connection."""

ANNOTATIONS = ("title", "default", "examples")
"""The keys that the schema of the program has for a setting and Helm does not need."""


@cache
def values() -> dict[str, Any]:
    """Read the defaults."""
    read: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return read


@cache
def schema() -> dict[str, Any]:
    """Read the schema as it is stored."""
    read: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    return read


def derived_schema() -> str:
    """Return the schema with the settings of the program in their place."""
    whole = copy.deepcopy(schema())
    whole["properties"]["settings"] = _settings()
    return json.dumps(whole, indent=2) + "\n"


def _settings() -> dict[str, Any]:
    program = settings_schema()
    connection = program["$defs"]["ConnectionSettings"]["properties"]
    described = "[Settings](../reference/settings.md) of the program that have no value of their own here."
    return {
        "description": described,
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "connection": {
                "description": "Settings of the connection.",
                "type": "object",
                "additionalProperties": False,
                "properties": _kept(connection, OWN_OF_CONNECTION),
            },
            **_kept(program["properties"], OWN),
        },
    }


def _kept(properties: dict[str, Any], without: set[str]) -> dict[str, Any]:
    assert without <= set(properties), "each is a setting"
    return {
        name: {key: _inlined(value) for key, value in one.items() if key not in ANNOTATIONS}
        for name, one in properties.items()
        if name not in without
    }


def _inlined(value: Any) -> Any:
    """Return the schema of the objects of a list in the place of its name."""
    if not isinstance(value, dict) or "$ref" not in value:
        return value
    whole: dict[str, Any] = settings_schema()["$defs"][value["$ref"].rpartition("/")[2]]
    return {
        "type": "object",
        "additionalProperties": False,
        "required": whole["required"],
        "properties": _kept(whole["properties"], set()),
    }


def rows() -> Iterator[tuple[str, str, str]]:
    """Give each value with its default as JSON and its description; those of `settings` are on a page of their own."""
    for name, node in schema()["properties"].items():
        if name != "global":
            yield from _below(name, node, values().get(name))


def _below(path: str, node: dict[str, Any], default: Any) -> Iterator[tuple[str, str, str]]:
    """Give a value and those below it; of a form that is listed already, only those with a default of their own."""
    form = node.get("$ref", "").rpartition("/")[2]
    children = schema()["definitions"][form].get("properties", {}) if form else node.get("properties", {})
    if path == "settings":
        children = {}
    yield path, "" if children or default is None else json.dumps(default), node["description"]
    for name, child in children.items():
        own = (default or {}).get(name)
        if form != path.rpartition(".")[2] or "." not in path or (own and own != values()[form].get(name)):
            yield from _below(f"{path}.{name}", child, own)


def derived_table() -> str:
    """Return the table of all values."""
    lines = [
        f"| `{path}` | {f'`{default}`' if default else ''} | {text} |".replace("|  |", "| |")
        for path, default, text in rows()
    ]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *lines])


def page_with(table: str) -> str:
    """Return the page with its table replaced."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    SCHEMA.write_text(derived_schema(), "utf-8")
    schema.cache_clear()
    PAGE.write_text(page_with(derived_table()), "utf-8")
