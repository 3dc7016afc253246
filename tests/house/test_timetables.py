"""The fire times of a schedule are asked of its timetable: nothing outside `schedule/` asks a pattern.

Its rule: a question to a pattern is recognised by its arguments, because only patterns need the stored time with it.
"""

import ast
from pathlib import Path

import pytest

from tests.house.sources import PACKAGE, called_names, modules, place, syntax_tree

TIMETABLE = PACKAGE / "message" / "timetable.py"
LANGUAGE = PACKAGE / "schedule"
MOST_ARGUMENTS = {"first_fire": 0, "next_fire": 1, "is_fire": 1, "latest_fire": 0}
"""With more arguments than these a question goes to a pattern; a timetable has no `latest_fire`."""


def questions_to_patterns(module: Path) -> list[str]:
    """List the places where a module asks a pattern when a schedule fires, or whether it repeats."""
    tree = syntax_tree(module)
    asked: list[ast.AST] = [
        node
        for name, node in called_names(tree)
        if len(node.args) + len(node.keywords) > MOST_ARGUMENTS.get(name.rpartition(".")[2], 99)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "repeats":
            owner = node.value
            if "pattern" in (getattr(owner, "attr", ""), getattr(owner, "id", "")):
                asked.append(node)
    return [place(module, node) for node in asked]


def test_no_code_outside_the_language_asks_a_pattern_when_a_schedule_fires() -> None:
    asked = [
        found
        for module in modules(PACKAGE)
        if module != TIMETABLE and LANGUAGE not in module.parents
        for found in questions_to_patterns(module)
    ]
    assert asked == [], "ask the timetable: Definition.timetable(stored_at), or the held schedule"


def test_the_rule_about_timetables_sees_each_way_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "sample.py"
    to_patterns = [
        "held.pattern.first_fire(held.stored_at)",
        "anything.next_fire(now, stored_at=0)",
        "one.latest_fire(after, until, 0)",
        "definition.pattern.is_fire(now, 0)",
        "pattern.repeats",
        "held.pattern.repeats",
    ]
    to_timetables = ["held.first_fire()", "held.next_fire(now)", "held.is_fire(now)", "held.repeats", "fire.next_fire"]
    module.write_text("\n".join([*to_patterns, *to_timetables]))
    monkeypatch.setattr("tests.house.sources.ROOT", tmp_path)
    assert sorted(questions_to_patterns(module)) == [f"sample.py:{line}" for line in range(1, 7)]
    monkeypatch.undo()
    assert questions_to_patterns(TIMETABLE) != [], "the one place that may"
