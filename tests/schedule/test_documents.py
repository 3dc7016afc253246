"""The reference pages are true: their Python examples run, and the code returns what their tables of examples say."""

import doctest
import re
from pathlib import Path

import pytest

from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import ALIASES, Syntax, parse_pattern
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PATTERNS = (REFERENCE / "patterns.md").read_text("utf-8")
PYTHON_API = (REFERENCE / "python-api.md").read_text("utf-8")


def test_the_python_examples_give_what_they_show() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PYTHON_API, re.M | re.S)
    assert len(blocks) >= 7
    source = "\n".join(blocks)
    test = doctest.DocTestParser().get_doctest(source, {}, "python-api.md", "python-api.md", 0)
    said: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert outcome.failed == 0, "".join(said)
    assert outcome.attempted > 30


def rows(section: str) -> list[list[str]]:
    """Return the body of the first table of a section, each cell as its code spans."""
    text = PATTERNS.split(f"## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [line.strip("|").split("|") for line in lines]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("row", rows("Examples"), ids=lambda row: row[0].strip())
def test_the_examples_of_patterns_fire_as_shown(row: list[str]) -> None:
    check_fires([spans(cell) for cell in row])


def check_fires(row: list[list[str]], syntax: Syntax | None = None) -> None:
    """Fail unless the pattern of a row fires as it shows."""
    (text,), zone, (after,), shown = row
    pattern, stored_at = parse_pattern(text, zone[0] if zone else None, syntax), parse_rfc3339(after)
    assert pattern is not None
    assert not isinstance(pattern, Invalid)
    assert isinstance(stored_at, int)
    fire = pattern.first_fire(stored_at)
    printed: list[str] = []
    while fire is not None and len(printed) < len(shown):
        printed.append(pattern.format(fire))
        fire = pattern.next_fire(fire, stored_at)
    assert printed == shown


def syntax_rows() -> list[list[str]]:
    """Return the examples of other syntaxes."""
    table = PATTERNS.split("| `X-Syntax` | pattern | time zone |")[1].split("\n\n")[0]
    return [line.strip("|").split("|") for line in table.splitlines()[2:]]


@pytest.mark.parametrize("row", syntax_rows(), ids=lambda row: row[1].strip())
def test_the_examples_of_other_syntaxes_fire_as_shown(row: list[str]) -> None:
    (syntax,), *usual = (spans(cell) for cell in row)
    check_fires(usual, Syntax(syntax))


def test_the_aliases_are_listed_with_what_they_stand_for() -> None:
    listed = {alias: fields for row in rows("Aliases") for fields in spans(row[1]) for alias in spans(row[0])}
    assert listed == ALIASES
