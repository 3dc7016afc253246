"""The names in backticks in a comment, a docstring or a page are there; `test_documents.py` holds the links."""

from pathlib import Path

import pytest

from tests.house.references import comments, faults
from tests.house.sources import PACKAGE, ROOT, TESTS, markdown_files, modules, place
from tests.house.test_documents import prose

HISTORY = {ROOT / "CHANGELOG.md"}
"""It names what was there when a release was made."""
SOURCES = [module for folder in (PACKAGE, TESTS) for module in modules(folder)]


@pytest.mark.slow
def test_what_a_comment_or_a_docstring_names_is_there() -> None:
    lost = [
        f"{place(module)}:{line}: {fault}"
        for module in SOURCES
        for line, text in comments(module)
        for fault in faults(text, module)
    ]
    assert lost == []


@pytest.mark.parametrize("document", [page for page in markdown_files() if page not in HISTORY], ids=place)
def test_what_a_page_names_is_there(document: Path) -> None:
    lines = enumerate(prose(document).splitlines(), 1)
    assert [f"{place(document)}:{line}: {fault}" for line, text in lines for fault in faults(text, document)] == []


@pytest.mark.parametrize(
    "text",
    [
        "`engine/no_such_file.py`",
        "`engine/stream.py: StreamEngine.no_such_method`",
        "`house/test_references.py::test_that_is_not_there`",
        "`runtime.no_such_module`",
        "`web.auth.noSuchValue`",
        "`no_such_folder.md`",
        "`engine/no_such_folder/`",
        "`test_that_is_not_there`",
        "as in behaviour 6.4",  # the list is not part of the repository
        "as check 99 of the page",
    ],
)
def test_the_rule_sees_each_way_to_name_what_is_not_there(text: str) -> None:
    assert len(faults(text, Path(__file__))) == 1
    there = "`engine/stream.py: StreamEngine.step`, `runtime.account`, `tests/house/`, `Nats-Schedule`, checks 1 to 16"
    assert faults(there, Path(__file__)) == []
