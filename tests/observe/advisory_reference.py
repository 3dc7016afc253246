"""Write the part of docs/reference/advisories.md that is derived from the table.

`python -m tests.observe.advisory_reference` does it.
A test compares the page with what this module would write, so that the page is always up to date.
"""

from pathlib import Path
from typing import Any

from nats_scheduler.observe.advisories import KINDS, STREAM

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "advisories.md"
BEGIN = "<!-- derived: begin (python -m tests.observe.advisory_reference) -->"
END = "<!-- derived: end -->"


def derived_part() -> str:
    """Return one section for each kind."""
    return "\n".join(_section(kind) for kind in KINDS)


def page_with(part: str) -> str:
    """Return the page with its derived part replaced."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def _section(kind: str) -> str:
    about = KINDS[kind]
    keys = {"stream": STREAM, **about.keys}
    rows = [f"| `{key}` | {_form(said)} | {said['description']} |" for key, said in keys.items()]
    return "\n".join([f"## `{kind}`", "", about.meaning, "", "| key | form | value |", "|---|---|---|", *rows, ""])


def _form(said: dict[str, Any]) -> str:
    if said["type"] == "array":
        return f"list of {_form(said['items'])}s"
    return "time" if said.get("format") == "date-time" else {"integer": "number", "string": "text"}[said["type"]]


if __name__ == "__main__":
    PAGE.write_text(page_with(derived_part()), encoding="utf-8")
