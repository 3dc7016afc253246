"""The examples of the reference page run without changes."""

import re

import pytest

from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_as_it_stands(number: int) -> None:
    exec(compile(EXAMPLES[number], f"{PAGE.name}, example {number + 1}", "exec"), {})  # noqa: S102


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
