"""`docs/reference/compatibility.md` and the suite say the same."""

import pytest

from tests.house.clauses import VERDICTS, allowances, clauses, marks, notes


def test_each_cell_is_one_of_the_words_that_the_document_explains() -> None:
    odd = {name: clause.verdicts for name, clause in clauses().items() if not set(clause.verdicts.values()) <= VERDICTS}
    assert odd == {}
    assert all(clause.meaning for clause in clauses().values())


def test_what_is_not_the_same_is_explained_and_nothing_else_is() -> None:
    different = [name for name, clause in clauses().items() if not clause.is_the_same_everywhere]
    assert sorted(notes()) == sorted(different)


@pytest.mark.slow
def test_each_clause_is_shown_by_a_test() -> None:
    assert sorted(set(clauses()) - set(marks())) == []


def test_each_mark_names_a_clause_of_the_document() -> None:
    assert {name: places for name, places in marks().items() if name not in clauses()} == {}


def test_a_difference_that_a_comparison_passes_over_is_one_that_the_document_names() -> None:
    unnamed = [
        f"{where}: {clause} is said to be the same {column}"
        for clause, column, where in allowances()
        if clause not in clauses() or clauses()[clause].verdicts[column] in ("same", "–")
    ]
    assert unnamed == []


def test_what_is_better_or_differs_is_shown_beside_a_real_server() -> None:
    beside = ("tests/differential/", "tests/e2e/", "tests/hostile/", "tests/cli/")
    unshown = [
        name
        for name, clause in clauses().items()
        if {clause.verdicts[column] for column in ("on 2.11", "on 2.10", "portable")} & {"better", "differs"}
        and not any(where.startswith(beside) for where in marks().get(name, []))
    ]
    assert unshown == []
