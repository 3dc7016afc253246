"""The code keeps to the words of `docs/internals/glossary.md`: what stands in its column "not" is not written.

The rule: comments and docstrings of the package are read. A word with a remark in brackets is judged by people, and so
are those that have an ordinary meaning beside the one that is meant.
"""

import re

from tests.house.references import comments
from tests.house.sources import PACKAGE, ROOT, modules, place, source

GLOSSARY = ROOT / "docs" / "internals" / "glossary.md"
ORDINARY = frozenset(
    {"timer", "fact", "order", "word", "remove", "rest", "drop", "see", "owner", "dead", "leave", "fit", "who", "words"}
) | {"job", "doubt", "move on", "forget", "marked", "stuck", "sight", "he", "on its way"}
"""Words with an ordinary meaning too ("in this order"): no test can distinguish them."""
MORE = frozenset({"lets go", "letting go", "in the way", "whoever", "somebody", "everybody"})
"""Forms of what the glossary avoids, a phrase that belongs to them, and pronouns that do not name who acts."""


def avoided() -> set[str]:
    """Return the words of the column "not" that can be searched for."""
    rows = [
        line.strip("|\n ").split(" | ") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")
    ]
    cells = [row[2].strip(" |") for row in rows if len(row) == 3]
    words = {word.strip() for cell in cells for word in cell.split(",") if "(" not in word}
    return (words | MORE) - ORDINARY - {"", "not"}


def uses(text: str, words: set[str]) -> list[str]:
    """List the words that a text uses, in any case, where a word begins and ends."""
    return re.findall(rf"\b(?:{'|'.join(sorted(map(re.escape, words)))})s?\b", text, re.I)


def test_the_glossary_has_words_to_avoid() -> None:
    assert {"herd", "deaf", "let go", "flying"} <= avoided()
    assert uses("A herd that is deaf lets the others be.", avoided()) == ["herd", "deaf"]


def test_comments_and_docstrings_keep_to_the_glossary() -> None:
    words = avoided()
    found: dict[str, list[str]] = {}
    for module in modules(PACKAGE):
        for line, text in comments(module) if uses(source(module), words) else ():
            for word in uses(text, words):
                found.setdefault(place(module), []).append(f"line {line}: {word}")
    assert found == {}, "say it with the word of docs/internals/glossary.md"
