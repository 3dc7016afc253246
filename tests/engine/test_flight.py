"""The stages of a flight: the table, its description, and that each step obeys it."""

import re
from pathlib import Path

import pytest

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.firing.contents import ContentMemory, Contents
from nats_scheduler.engine.holding import flight
from nats_scheduler.engine.holding.flight import DONE, IN_PROGRESS, Stage, Turn
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifecycle import Lifecycle, Ownership
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.reading.landed import Landed
from nats_scheduler.engine.reading.progress import Progress
from nats_scheduler.message.stream_rules import StreamRules
from tests.engine.direct import Desk, schedule

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "internals" / "architecture.md"
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \| `(\w+)` \|$", re.MULTILINE)


def test_the_page_shows_the_table_as_it_is() -> None:
    shown = [
        (name, meaning, re.findall(r"`(\w+)`", stages), following)
        for name, meaning, stages, following in ROW.findall(ARCHITECTURE.read_text())
    ]
    assert shown == [
        (turn.name, turn.meaning, [stage.name for stage in turn.stages], turn.following.name) for turn in Turn
    ]


def test_the_module_says_what_happens_in_each_stage() -> None:
    described = re.findall(r"^    ([A-Z_]+)  ", flight.__doc__ or "", re.MULTILINE)
    assert described == [stage.name for stage in Stage]


def test_each_stage_waits_is_in_progress_or_is_done() -> None:
    assert {Stage.WAITING, *IN_PROGRESS, *DONE} == set(Stage)
    assert set(IN_PROGRESS).isdisjoint(DONE)
    after_done = {turn.following for turn in Turn if set(turn.stages) & set(DONE)}
    assert after_done <= set(DONE), "what is done fires no more"


def lifecycle_with(stage: Stage) -> tuple[Lifecycle, Held]:
    actions: list[Action] = []
    roster = Roster()
    landed, contents = Landed(roster, (">",), moved=False), Contents(ContentMemory())
    unlimited = Lifetimes(StreamRules("", ()), removes_expired=True, keeps_all=False)
    shared = Ownership(reads_all=True), unlimited, landed, contents, Progress(reads_all=True)
    lifecycle = Lifecycle(roster, *shared, actions.append)
    desk = Desk(schedule("@every 5s"))
    held = desk.engine.held.on("s.one")
    assert held is not None
    if stage is not Stage.WAITING:
        held.flight = flight.Flight(stage)
    return lifecycle, held


@pytest.mark.parametrize("before", Stage)
@pytest.mark.parametrize("turn", Turn)
def test_a_schedule_moves_along_the_table_and_no_other_way(before: Stage, turn: Turn) -> None:
    lifecycle, held = lifecycle_with(before)
    if before in turn.stages:
        lifecycle.move(held, turn)
        assert (Stage.WAITING if held.flight is None else held.flight.stage) is turn.following
    else:
        with pytest.raises(AssertionError, match=f"is {before.value}, and {turn.meaning}"):
            lifecycle.move(held, turn)
