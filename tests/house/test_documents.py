"""What pages say of themselves: links lead somewhere, and figures and versions are those that there are."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from nats_scheduler.version import VERSION
from tests.house.sources import ROOT, markdown_files, place

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)|!\[[^\]]*\]\(([^)\s]+)[^)]*\)|^\[[^\]]+\]:\s+(\S+)", re.M)
FENCE = re.compile(r"^( *)(```+|~~~+)([^\n]*)\n(.*?)^ *\2 *$", re.M | re.S)
IMAGE = re.compile(r"\bnats-scheduler:(\d+\.\d+\.\d+)")
README = (ROOT / "README.md").read_text("utf-8")


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


def test_a_link_inside_the_repository_leads_somewhere() -> None:
    lost = []
    for document in markdown_files():
        text = re.sub(r"`[^`\n]*`", "", prose(document))
        links = [next(filter(None, groups)) for groups in LINK.findall(text)]
        inside = [link for link in links if not re.match(r"[a-z]+:", link)]
        lost += [f"{place(document)}: {link}" for link in inside if not leads_somewhere(link, document)]
    assert lost == []


def shell_blocks(document: Path) -> list[str]:
    """List the fenced `sh` blocks of a document, in order."""
    return [code[3].strip() for code in FENCE.findall(document.read_text("utf-8")) if code[2].strip() == "sh"]


def row(page: str, first: str) -> list[str]:
    """Return the cells of the first row of a page that begins so."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    return [cell.strip() for cell in next(line for line in lines if line.startswith(first)).strip("|").split("|")]


def test_the_figures_of_the_readme_are_those_of_the_pages() -> None:
    lateness = re.search(r"p99 lateness ([\d.]+) ms, beside (\d+) ms", README)
    rounds = re.search(r"In (\d+) rounds with (\d+) faults none of ([\d,]+) fires was lost, and in (\d+) round", README)
    assert lateness is not None
    assert rounds is not None
    assert "(2,000 fires over 10 s, " in README
    measured = row("docs/operating/performance.md", "| spread-2000 | lateness p99 ")
    native, here = ([float(number) for number in re.findall(r"[\d.]+", cell)] for cell in measured[3:5])
    assert lateness.groups() == (f"{max(here):.1f}", f"{min(native):.0f}")
    _, *figures = row("docs/internals/nemesis.md", "| all |")
    number, faults, _, fires, complete, unique, *_ = figures
    assert (*rounds.groups(), complete) == (number, faults, fires, unique, "0")


def test_images_that_are_named_are_of_the_version_of_the_package() -> None:
    files = [path for folder in ("deploy", "docs") for path in (ROOT / folder).rglob("*") if path.is_file()]
    named = [(place(path), found) for path in files for found in IMAGE.findall(path.read_text("utf-8", "replace"))]
    assert named
    assert [one for one in named if one[1] != VERSION] == []
