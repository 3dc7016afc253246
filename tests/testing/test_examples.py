"""The examples of the reference page run without changes."""

import re

from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "testing.md"


def test_an_example_runs_as_it_stands() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(examples) >= 5
    for number, example in enumerate(examples, 1):
        exec(compile(example, f"{PAGE.name}, example {number}", "exec"), {})  # noqa: S102
