"""The Markdown files: links lead somewhere, one sentence per line, and the README's commands are CI's."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.house.sources import ROOT, markdown_files, place

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)|!\[[^\]]*\]\(([^)\s]+)[^)]*\)|^\[[^\]]+\]:\s+(\S+)", re.M)
FENCE = re.compile(r"^( *)(```+|~~~+)([^\n]*)\n(.*?)^ *\2 *$", re.M | re.S)
SECOND_SENTENCE = re.compile(r"[a-z0-9`)*\"'][.!?] +(?=[A-Z`*\[])")
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|No|approx)\.")


@cache
def prose(document: Path) -> str:
    """Read a document without its fenced code, each line kept in its place."""
    return FENCE.sub(lambda code: "\n" * code[0].count("\n"), document.read_text("utf-8"))


@cache
def anchors(document: Path) -> set[str]:
    """List the anchors of a document's headings, named as GitHub names them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(document), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def leads_somewhere(link: str, document: Path) -> bool:
    """Return whether a relative link names a file of the repository, and a heading of it where it names one."""
    path, _, fragment = unquote(link).partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.exists() or ROOT not in (target, *target.parents):
        return False
    return not fragment or target.suffix != ".md" or fragment in anchors(target)


@pytest.mark.parametrize("document", markdown_files(), ids=place)
def test_a_link_inside_the_repository_leads_somewhere(document: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(document))
    links = [next(filter(None, groups)) for groups in LINK.findall(text)]
    inside = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in inside if not leads_somewhere(link, document)] == []


@pytest.mark.parametrize("document", markdown_files(), ids=place)
def test_each_sentence_has_its_own_line(document: Path) -> None:
    crowded = []
    for number, line in enumerate(prose(document).splitlines(), 1):
        if line.lstrip().startswith(("|", "#", ">")):
            continue
        line = re.sub(r"^\s*\d+\. ", "", line)
        text = ABBREVIATIONS.sub(lambda short: short[1], re.sub(r"`[^`]*`", "code", line))
        if SECOND_SENTENCE.search(text):
            crowded.append(f"{place(document)}:{number}: {line.strip()}")
    assert crowded == []


def shell_blocks(document: Path) -> list[str]:
    """List the fenced `sh` blocks of a document, in order."""
    return [code[3].strip() for code in FENCE.findall(document.read_text("utf-8")) if code[2].strip() == "sh"]


def test_the_readme_begins_with_the_two_commands() -> None:
    demo, tests = shell_blocks(ROOT / "README.md")[:2]
    assert len(demo.splitlines()) == len(tests.splitlines()) == 1
    assert "nats-scheduler dev --demo" in demo.split("&&")[-1]
    assert tests.split("&&")[-1].strip().endswith("pytest")
