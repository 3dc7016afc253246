"""Write the part of docs/reference/settings.md that is derived from the models: `python -m tests.settings.reference`.

A test compares the page with what this module would write, so that the page is always up to date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from nats_scheduler.settings.fields import SettingField, setting_fields

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
BEGIN = "<!-- derived: begin (python -m tests.settings.reference) -->"
END = "<!-- derived: end -->"

FORMS = {
    "text": "string",
    "path": "path, a string; a leading `~` and `$NAME` are filled in",
    "secret": "string, never printed",
    "duration": "string with a unit, such as `5s`, `250ms` or `1m30s`",
    "integer": "whole number",
    "boolean": "`true` or `false`",
    "list": "list of strings; separated by commas in a flag or a variable",
}


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
    lines = [f"### `{field.key}`", "", *sentences, "", f"- Form: {_form(field)}."]
    lines.append("- Default: none." if field.default is None else f"- Default: `{json.dumps(field.default)}`.")
    lines.append(f"- Flag: `{_flag(field)}`.")
    lines.append(f"- Variable: {', else '.join(f'`{name}`' for name in field.variables)}.")
    return "\n".join([*lines, ""])


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
