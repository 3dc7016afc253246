"""The reference pages are true: their Python examples run, and the code returns what their tables of examples say."""

import doctest
import re
from pathlib import Path

from nats_scheduler.schedule.patterns import Syntax
from tests.schedule.reading import read, shown_fires

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


def check_fires(row: list[list[str]], syntax: Syntax | None = None) -> None:
    """Fail unless the pattern of a row fires as it shows."""
    (text,), zone, (after,), shown = row
    assert shown_fires(read(text, zone[0] if zone else None, syntax), after, len(shown)) == shown, text


def test_the_examples_of_patterns_fire_as_shown() -> None:
    assert len(rows("Examples")) > 10
    for row in rows("Examples"):
        check_fires([spans(cell) for cell in row])
    table = PATTERNS.split("| `X-Syntax` | pattern | time zone |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        (syntax,), *usual = (spans(cell) for cell in line.strip("|").split("|"))
        check_fires(usual, Syntax(syntax))
