"""The first screen of the README: a picture, two commands, and figures that are those of the pages that it links to."""

import re
import xml.etree.ElementTree as ET

from tests.house.sources import ROOT
from tests.house.test_documents import FENCE

README = (ROOT / "README.md").read_text("utf-8")
FIRST_LINES = 40
FIRST_SCREEN = "".join(README.splitlines(keepends=True)[:FIRST_LINES])
PICTURE = re.compile(r"!\[(.+)\]\((docs/images/[\w-]+\.svg)\)")
FEWEST_WORDS = 20
"""Words of a text that has to replace the picture."""


def row(page: str, first: str) -> list[str]:
    """Return the cells of the first row of a page that begins so."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    return [cell.strip() for cell in next(line for line in lines if line.startswith(first)).strip("|").split("|")]


def test_the_first_screen_has_both_commands_and_a_picture() -> None:
    commands = [code[3] for code in FENCE.findall(FIRST_SCREEN)]
    assert len(commands) == 2
    match = PICTURE.search(FIRST_SCREEN)
    assert match is not None
    assert len(match[1].split()) >= FEWEST_WORDS
    assert "**For whom**" in FIRST_SCREEN


def test_the_picture_can_be_read_in_light_and_dark_and_aloud() -> None:
    match = PICTURE.search(FIRST_SCREEN)
    assert match is not None
    picture = (ROOT / match[2]).read_text("utf-8")
    parsed = ET.fromstring(picture)  # noqa: S314
    names = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in parsed}
    assert names["title"]
    assert len(names["desc"].split()) >= FEWEST_WORDS
    light, dark = names["style"].split("@media (prefers-color-scheme: dark)")
    classes = re.compile(r"^\s*(\.?[\w., ]+?) \{[^}]*#", re.M)
    with_colour = {name.strip(" .") for group in classes.findall(light) for name in group.split(",")}
    in_the_dark = {name.strip(" .") for group in classes.findall(dark) for name in group.split(",")}
    assert with_colour
    assert in_the_dark == with_colour


def test_the_lateness_is_that_of_the_page() -> None:
    ours, native = re.search(r"p99 lateness ([\d.]+) ms, beside (\d+) ms", FIRST_SCREEN).groups()  # type: ignore[union-attr]
    assert "(2,000 fires over 10 s, " in FIRST_SCREEN
    measured = row("docs/operating/performance.md", "| spread-2000 | lateness p99 ")
    assert (ours, native) == (f"{float(measured[4]):.1f}", f"{float(measured[3]):.0f}")


def test_the_rounds_with_faults_are_those_of_the_page() -> None:
    said = re.search(
        r"In (\d+) rounds with (\d+) faults none of ([\d,]+) fires was lost, and in (\d+) round", FIRST_SCREEN
    )
    assert said is not None
    _, rounds, faults, _, fires, complete, unique, *_ = row("docs/internals/nemesis.md", "| all |")
    assert said.groups() == (rounds, faults, fires, unique)
    assert complete == "0"
