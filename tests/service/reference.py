"""Write the parts of docs/reference/service.md and docs/reference/control.md that are derived from the endpoints.

`python -m tests.service.reference` does it.
A test compares the pages with what this module would write, so that they are always up to date.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nats_scheduler.service.endpoint import Endpoint
from nats_scheduler.service.endpoints import CONTROL_ENDPOINTS, ENDPOINTS, service_schema

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[Path, Sequence[Endpoint[Any]]] = {
    REFERENCE / "service.md": ENDPOINTS,
    REFERENCE / "control.md": CONTROL_ENDPOINTS,
}
BEGIN = "<!-- derived: begin (python -m tests.service.reference) -->"
END = "<!-- derived: end -->"


COMMON = 4
"""A key that at least this number of requests of a page have with the same meaning is described once."""
HEAD = ["| key of the request | form | default | meaning |", "|---|---|---|---|"]


def derived_part(endpoints: Sequence[Endpoint[Any]]) -> str:
    """Return the keys that several requests have, and one section for each endpoint."""
    schema = service_schema()
    rows = {one.name: _rows(schema, one.name) for one in endpoints}
    counted = Counter(row for of_endpoint in rows.values() for row in of_endpoint.values())
    often = [row for row, count in counted.items() if count >= COMMON]
    shared = [row for row in often if sum(_key(one) == _key(row) for one in often) == 1]
    lines = ["## Keys of several requests", "", *HEAD, *shared, ""]
    for one in endpoints:
        lines += _section(schema, one.name, rows[one.name], shared, is_alone=one.is_for_one)
    return "\n".join(lines)


def page_with(page: Path, part: str) -> str:
    """Return a page with its derived part replaced."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def _rows(schema: dict[str, Any], name: str) -> dict[str, str]:
    """Return the rows of the keys of a request."""
    request = _resolved(schema, schema["endpoints"][name]["request"])
    required = request.get("required", [])
    return {key: _row(schema, key, said, required) for key, said in request.get("properties", {}).items()}


def _section(
    schema: dict[str, Any], name: str, rows: Mapping[str, str], shared: Sequence[str], *, is_alone: bool
) -> list[str]:
    known = schema["endpoints"][name]
    answer = _resolved(schema, known["answer"])
    lines = [f"## `{name}`", "", known["description"], *(["Also `.<id>`."] if is_alone else []), ""]
    own = [row for row in rows.values() if row not in shared]
    if own:
        lines += [*HEAD, *own, ""]
    if len(own) < len(rows):
        named = ", ".join(f"`{key}`" for key, row in rows.items() if row in shared)
        lines.append(f"Keys of the request that several have: {named}.")
    named = ", ".join(f"`{key}`" for key in answer["properties"])
    return [*lines, f"Answer: {_lowered(answer['description'])}", f"Its keys: {named}.", ""]


def _row(schema: dict[str, Any], key: str, said: dict[str, Any], required: list[str]) -> str:
    default = "required" if key in required else f"`{_json(said.get('default'))}`"
    return f"| `{key}` | {_form(schema, said)} | {default} | {said.get('description', '')} |"


def _key(row: str) -> str:
    return row.split(" | ")[0]


def _json(value: object) -> str:
    return json.dumps(value) if value in (None, True, False, "") else str(value)


def _form(schema: dict[str, Any], said: dict[str, Any]) -> str:
    """Return the form of a value, without the alternative null."""
    choices = [one for one in said.get("anyOf", [said]) if one.get("type") != "null"]
    return " or ".join(_one_form(schema, _resolved(schema, one)) for one in choices)


def _one_form(schema: dict[str, Any], said: dict[str, Any]) -> str:
    if "enum" in said:
        return ", ".join(f"`{one}`" for one in said["enum"])
    if said["type"] == "array":
        return f"list of {_form(schema, said['items'])}"
    if said["type"] == "integer":
        return f"{said['minimum']} to {said['maximum']}"
    return {"string": "text", "object": "object", "boolean": "true or false"}[said["type"]]


def _resolved(schema: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][said["$ref"].removeprefix("#/$defs/")] if "$ref" in said else said
    return found


def _lowered(text: str) -> str:
    return text[0].lower() + text[1:]


if __name__ == "__main__":
    for derived, endpoints in PAGES.items():
        derived.write_text(page_with(derived, derived_part(endpoints)), encoding="utf-8")
