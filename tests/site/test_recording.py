"""The pictures of terminals can be made anew, and show what was printed when it was printed."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.site.recording import FOLDER, demo, moving, still, top

TEXT = "{http://www.w3.org/2000/svg}text"
SECONDS = 9
KINDS = {"delayed", "interval", "cron", "sampling"}
"""The kinds of schedules that the demo fires."""


def texts(picture: str) -> list[str]:
    """Return the lines that a picture shows."""
    return ["".join(one.itertext()) for one in ElementTree.fromstring(picture).iter(TEXT)]  # noqa: S314 - it is ours


@pytest.mark.server
async def test_the_pictures_of_the_page_can_be_made_again(tmp_path: Path) -> None:
    for name, shown in (("demo.svg", "demo.schedules.interval"), ("top.svg", "SENSORS")):
        assert any(shown in line for line in texts((FOLDER / name).read_text("utf-8")))
    lines = await demo(SECONDS, tmp_path / "demo")
    drawn = texts(moving(lines, "demo"))
    assert {kind for kind in KINDS if any(f" {kind} " in line for line in drawn)} == KINDS
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert lines[-1].at > SECONDS - 5
    drawn = texts(still(await top(tmp_path / "top"), "top"))
    assert any(line.startswith("ORDERS ") for line in drawn)
    assert any("ALL IS WELL" in line for line in drawn)
