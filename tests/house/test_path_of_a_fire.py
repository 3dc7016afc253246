"""The page of the architecture names the files of the engine that a fire enters, and every part of the engine once."""

import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from nats_scheduler.testing.world import ScheduleWorld

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nats_scheduler"
PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text()
ENGINE_FILE = re.compile(r"`(engine/[\w/]+\.py)\b")


def section(heading: str) -> str:
    """Return what stands on the page under a heading, up to the next one."""
    return re.split(r"^#+ ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def entered_by_a_fire() -> set[str]:
    """Return the files of the engine that an `@at` enters from its publication to its purge."""
    entered: set[str] = set()
    world = ScheduleWorld()

    def note(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        world.publish("s.one", {"Nats-Schedule": "@at 2026-01-01T00:30:00Z", "Nats-Schedule-Target": "t.out"})
        world.advance("31m")
    finally:
        sys.setprofile(before)
    assert len(world.generated) == 1
    paths = [Path(name) for name in entered if name.startswith(str(PACKAGE / "engine"))]
    return {path.relative_to(PACKAGE).as_posix() for path in paths}


def test_a_fire_enters_the_files_that_its_path_names() -> None:
    steps = "\n".join(re.findall(r"^(?:\d+\.|   ) .*$", section("The path of a fire"), re.MULTILINE))
    named = set(ENGINE_FILE.findall(steps))
    assert len(named) > 5
    assert sorted(named - entered_by_a_fire()) == []


def test_each_module_of_the_engine_has_one_row() -> None:
    first_cells = re.findall(r"^\| (`engine/[^|]*) \|", section("What each part of the engine owns"), re.MULTILINE)
    rows = Counter(ENGINE_FILE.findall(" ".join(first_cells)))
    modules = (path for path in (PACKAGE / "engine").rglob("*.py") if path.name != "__init__.py")
    assert rows == Counter(path.relative_to(PACKAGE).as_posix() for path in modules)
