"""The page of the architecture: the files that a fire enters, and the table of the machine; and what a folder has."""

import re
import sys
from pathlib import Path
from types import FrameType

from nats_scheduler.engine.firing import machine
from nats_scheduler.engine.firing.machine import TABLE, Event
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.testing.world import ScheduleWorld
from tests.house.sources import PACKAGE, ROOT, modules, source

PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text()
FILE = re.compile(r"`((?:[a-z]+/)+\w+\.py)\b")
SHORT_FORMS = ("PASSED", "ADVANCED", "SENT", "FIRED")
"""Sets of stages that have a name in the machine, and in the table of the page."""

Cells = dict[tuple[Stage, Event], tuple[str, frozenset[Stage]]]


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
    named = {name for name in FILE.findall(section("The path of a fire")) if name.startswith("engine/")}
    assert len(named) > 5
    assert sorted(named - entered_by_a_fire()) == []


def stages_in(cell: str) -> frozenset[Stage]:
    """Return the stages that a cell of the page's table names, one by one or by a short form."""
    found: set[Stage] = set()
    for name in re.findall(r"`(\w+)`", cell):
        found |= getattr(machine, name) if name in SHORT_FORMS else {Stage[name]}
    return frozenset(found)


def table_of_the_page() -> Cells:
    """Return the table of the page, one entry for each stage and event."""
    found: Cells = {}
    for event, stages, act, following in re.findall(
        r"^\| `(\w+)` [^|]*\| ([^|]*) \| `([\w.]+)` \| ([^|]*) \|$", section("The table"), re.MULTILINE
    ):
        for stage in stages_in(stages):
            assert (stage, Event[event]) not in found, f"{stage.name} and {event} are in two rows"
            found[stage, Event[event]] = act, stages_in(following)
    return found


def test_the_table_of_the_page_is_that_of_the_machine() -> None:
    acts = {cell: (f"{act.__module__.rpartition('.')[2]}.{act.__name__}", to) for cell, (act, to) in TABLE.items()}
    assert table_of_the_page() == acts


def test_the_short_forms_of_the_page_are_those_of_the_machine() -> None:
    told = dict(re.findall(r"^- `(\w+)`: (.*)\.$", section("The table"), re.MULTILINE))
    assert {name: stages_in(told[name]) for name in SHORT_FORMS} == {
        name: getattr(machine, name) for name in SHORT_FORMS
    }


def test_each_folder_of_the_engine_says_what_is_in_it() -> None:
    folders = [
        PACKAGE / "engine",
        *(path for path in (PACKAGE / "engine").iterdir() if (path / "__init__.py").exists()),
    ]
    assert len(folders) > 5
    for folder in folders:
        told = re.findall(r"^- `([\w.]+/?)`: \S", source(folder / "__init__.py"), re.MULTILINE)
        there = [path.name for path in modules(folder) if path.parent == folder and path.name != "__init__.py"]
        there += [f"{path.name}/" for path in folder.iterdir() if path in folders]
        assert sorted(told) == sorted(there), folder.name
