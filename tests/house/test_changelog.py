"""The changelog is one of releases: what was released stays as it was, and what is new stands above it."""

import re

from nats_scheduler.version import VERSION
from tests.house.sources import ROOT, place

TEXT = (ROOT / "CHANGELOG.md").read_text("utf-8")
IMAGE = re.compile(r"\bnats-scheduler:(\d+\.\d+\.\d+)")


def test_the_newest_release_comes_first_and_each_has_its_date() -> None:
    unreleased, *released = re.findall(r"^## (.+)", TEXT, re.M)
    assert unreleased == "Unreleased"
    found = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - \d{4}-\d{2}-\d{2}", heading) for heading in released]
    versions = [tuple(map(int, one.groups())) for one in found if one is not None]
    assert len(versions) == len(released)
    assert versions == sorted(set(versions), reverse=True)
    text = TEXT.partition("## Unreleased")[2].partition("\n## ")[0].strip()
    assert text.startswith(f"This will be version {VERSION}.") if text else released[0].startswith(f"{VERSION} - ")


def test_images_that_are_named_are_of_the_version_of_the_package() -> None:
    files = [path for folder in ("deploy", "docs") for path in (ROOT / folder).rglob("*") if path.is_file()]
    named = [(place(path), found) for path in files for found in IMAGE.findall(path.read_text("utf-8", "replace"))]
    assert named
    assert [one for one in named if one[1] != VERSION] == []
