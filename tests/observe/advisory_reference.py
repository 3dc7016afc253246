"""Write the part of docs/reference/advisories.md that is derived from the table.

`python -m tests.observe.advisory_reference` does it.
A test compares the page with what this module would write, so that the page is always up to date.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from nats_scheduler.observe.advisories import KINDS, STREAM

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "advisories.md"
BEGIN = "<!-- derived: begin (python -m tests.observe.advisory_reference) -->"
END = "<!-- derived: end -->"
NAMES = {"integer": "number", "string": "text", "object": "object"}
COMMON = 3
"""A key that at least this number of kinds have with the same meaning is described once."""


def derived_part() -> str:
    """Return the keys that several kinds have, and one section for each kind."""
    rows = {
        kind: {key: _row(key, said) for key, said in {"stream": STREAM, **about.keys}.items()}
        for kind, about in KINDS.items()
    }
    counted = Counter(row for of_kind in rows.values() for row in of_kind.values())
    shared = [row for row, count in counted.items() if count >= COMMON]
    lines = ["## Keys of several kinds", "", *_table(shared)]
    for kind, of_kind in rows.items():
        named = ", ".join(f"`{key}`" for key, row in of_kind.items() if row in shared)
        several = [f"Keys that several kinds have: {named}."] if named else []
        own = [row for row in of_kind.values() if row not in shared]
        lines += [f"## `{kind}`", "", KINDS[kind].meaning, *several, "", *(_table(own) if own else [])]
    return "\n".join(lines)


def page_with(part: str) -> str:
    """Return the page with its derived part replaced."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def _row(key: str, said: dict[str, Any]) -> str:
    return f"| `{key}` | {_form(said)} | {said['description']} |"


def _table(rows: list[str]) -> list[str]:
    return ["| key | form | value |", "|---|---|---|", *rows, ""]


def _form(said: dict[str, Any]) -> str:
    if said["type"] == "array":
        return f"list of {_form(said['items'])}s"
    return "time" if said.get("format") == "date-time" else NAMES[said["type"]]


if __name__ == "__main__":
    PAGE.write_text(page_with(derived_part()), encoding="utf-8")
