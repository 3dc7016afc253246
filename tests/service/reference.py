"""Write the parts of docs/reference/service.md and docs/reference/control.md that are derived from the endpoints.

`python -m tests.service.reference` does it.
A test compares the pages with what this module would write, so that they are always up to date.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nats_scheduler.service.endpoint import Endpoint
from nats_scheduler.service.endpoints import CONTROL_ENDPOINTS, ENDPOINTS
from nats_scheduler.service.service import service_schema

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[Path, Sequence[Endpoint[Any]]] = {
    REFERENCE / "service.md": ENDPOINTS,
    REFERENCE / "control.md": CONTROL_ENDPOINTS,
}
BEGIN = "<!-- derived: begin (python -m tests.service.reference) -->"
END = "<!-- derived: end -->"


def derived_part(endpoints: Sequence[Endpoint[Any]]) -> str:
    """Return one section for each endpoint."""
    schema = service_schema()
    return "\n".join(_section(schema, one.name, is_alone=one.handle_alone is not None) for one in endpoints)


def page_with(page: Path, part: str) -> str:
    """Return a page with its derived part replaced."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def _section(schema: dict[str, Any], name: str, *, is_alone: bool) -> str:
    known = schema["endpoints"][name]
    request, answer = (_resolved(schema, known[kind]) for kind in ("request", "answer"))
    lines = [f"## `{name}`", "", f"{known['description']}" + (" Also `.<id>`." if is_alone else ""), ""]
    keys = request.get("properties", {})
    if keys:
        lines += ["| key of the request | form | default | meaning |", "|---|---|---|---|"]
        lines += [_row(schema, key, said, request.get("required", [])) for key, said in keys.items()]
        lines.append("")
    named = ", ".join(f"`{key}`" for key in answer["properties"])
    lines += [f"Answer: {_lowered(answer['description'])}", f"Its keys: {named}.", ""]
    return "\n".join(line for line in lines).replace(" Also", "\nAlso")


def _row(schema: dict[str, Any], key: str, said: dict[str, Any], required: list[str]) -> str:
    default = "required" if key in required else f"`{_json(said.get('default'))}`"
    return f"| `{key}` | {_form(schema, said)} | {default} | {said.get('description', '')} |"


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
