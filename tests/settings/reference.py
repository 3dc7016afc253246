"""Write the part of docs/reference/settings.md that is derived from the models: `python -m tests.settings.reference`.

A test compares the page with what this module would write, so that the page is always up to date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from nats_scheduler.settings.fields import SettingField, setting_fields, settings_schema

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
BEGIN = "<!-- derived: begin (python -m tests.settings.reference) -->"
END = "<!-- derived: end -->"

FORMS = {
    "text": "text",
    "path": "path",
    "secret": "secret",
    "duration": "duration",
    "integer": "whole number",
    "boolean": "true or false",
    "list": "list",
    "objects": "list of objects",
}
"""The page says in its own words what each form is."""


def derived_part() -> str:
    """Return one section per setting, one sentence per line."""
    return "\n".join(_section(field) for field in setting_fields().values())


def page_with(part: str) -> str:
    """Return the page with its derived part replaced."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def _section(field: SettingField) -> str:
    sentences = re.split(r"(?<=\.) (?=[A-Z])", field.description)
    default = "no default" if field.default is None else f"default `{json.dumps(field.default)}`"
    more = [f"`{name}`" for name in field.variables if name != own_variable(field.key)]
    variables = f"; also {', '.join(more)}" if more else ""
    flag = f"`{_flag(field)}`{variables}" if field.variables else "in the file only"
    return "\n".join(
        [f"### `{field.key}`", "", *sentences, "", *_keys(field), f"*{_form(field)}*; {default}; {flag}.", ""]
    )


def _keys(field: SettingField) -> list[str]:
    """Return the table of the keys of each object of a list."""
    if field.kind != "objects":
        return []
    schema = settings_schema()["$defs"][field.schema["items"]["$ref"].rpartition("/")[2]]
    rows = []
    for key, one in schema["properties"].items():
        default = "required" if key in schema["required"] else f"`{json.dumps(one['default'])}`"
        rows.append(f"| `{key}` | {default} | {one['description']} |")
    return ["| key | default | meaning |", "|---|---|---|", *rows, ""]


def own_variable(key: str) -> str:
    """Return the variable that each setting has, by the rule that the page states."""
    return "NATS_SCHEDULER_" + key.upper().replace(".", "_")


def _form(field: SettingField) -> str:
    if field.kind == "choice":
        return " or ".join(f'`"{choice}"`' for choice in field.schema["enum"])
    return FORMS[field.kind]


def _flag(field: SettingField) -> str:
    short = "`, `-s" if field.key == "connection.servers" else ""
    other = f"`, `--no-{field.flag[2:]}" if field.kind == "boolean" else ""
    return f"{field.flag}{short}{other}"


if __name__ == "__main__":
    PAGE.write_text(page_with(derived_part()), encoding="utf-8")
