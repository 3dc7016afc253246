"""The table of the machine on the page of the architecture is that of `engine/firing/machine.py`."""

import re

from nats_scheduler.engine.firing import machine
from nats_scheduler.engine.firing.machine import TABLE, Event
from nats_scheduler.engine.holding.flight import Stage
from tests.house.sources import ROOT

PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text()
SHORT_FORMS = ("PASSED", "ADVANCED", "SENT", "FIRED")
"""Sets of stages that have a name in the machine, and in the table of the page."""

Cells = dict[tuple[Stage, Event], tuple[str, frozenset[Stage]]]


def section(heading: str) -> str:
    """Return what stands on the page under a heading, up to the next one."""
    return re.split(r"^#+ ", PAGE.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


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
