"""The changelog is one of releases: what was released stays as it was, and what is new stands above it."""

import re

from nats_scheduler.version import VERSION
from tests.house.sources import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text("utf-8")
IMAGE = re.compile(r"\bnats-scheduler:(\d+\.\d+\.\d+)")


def sections() -> dict[str, str]:
    """Return the sections by their headings, the newest first."""
    parts = re.split(r"^## (.+)\n", TEXT, flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def number(version: str) -> tuple[int, ...]:
    """Return a version as numbers."""
    return tuple(map(int, version.split(".")))


def test_the_newest_changes_come_first_and_each_release_has_its_date() -> None:
    unreleased, *released = sections()
    assert unreleased == "Unreleased"
    found = [re.fullmatch(r"(\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}", heading) for heading in released]
    assert all(found), released
    versions = [number(one[1]) for one in found if one is not None]
    assert versions == sorted(set(versions), reverse=True)


def test_what_is_unreleased_is_of_the_version_of_the_package() -> None:
    newest = next((heading.partition(" ")[0] for heading in list(sections())[1:]), "0.0.0")
    text = sections()["Unreleased"].strip()
    if text:
        assert number(VERSION) > number(newest)
        assert text.startswith(f"This will be version {VERSION}.")
    else:
        assert newest == VERSION


def test_images_that_are_named_are_of_the_version_of_the_package() -> None:
    files = [path for folder in ("deploy", "docs") for path in (ROOT / folder).rglob("*") if path.is_file()]
    named = {
        (path.relative_to(ROOT).as_posix(), version)
        for path in [*files, ROOT / "README.md"]
        for version in IMAGE.findall(path.read_text("utf-8", "replace"))
    }
    assert named
    assert {one for one in named if one[1] != VERSION} == set()
