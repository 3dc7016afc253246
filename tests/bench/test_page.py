"""The figures of the page are those of the saved runs."""

import re

from tests.bench.page import PAGE, RUNS, derived_parts, page_with
from tests.bench.runs import read_runs


def test_the_page_has_what_the_saved_runs_found() -> None:
    runs = read_runs(RUNS)
    parts = derived_parts(runs)
    assert PAGE.read_text(encoding="utf-8") == page_with(parts), "python -m tests.bench.page"
    assert re.findall("derived: begin (\\w+)", PAGE.read_text(encoding="utf-8")) == [*parts]
