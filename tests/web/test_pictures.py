"""The picture of the page that controls can be made anew."""

from pathlib import Path

import pytest

from tests.harness.browser import browser_programs
from tests.web.pictures import IMAGES, WIDTH, picture

pytestmark = [pytest.mark.server, pytest.mark.deep]


def size_of(png: bytes) -> tuple[int, int]:
    """Return width and height of a picture, as the head of a PNG file has them."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


async def test_the_picture_has_the_size_of_the_stored_one(tmp_path: Path) -> None:
    browser_programs()
    stored = size_of((IMAGES / "control.png").read_bytes())
    made = size_of(await picture(tmp_path))
    assert made[0] == stored[0] == WIDTH
    assert abs(made[1] - stored[1]) < 100, "the page has changed: python -m tests.web.pictures"
