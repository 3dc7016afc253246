"""The stages of a flight: each step obeys the table."""

from itertools import product

import pytest

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.firing.contents import ContentMemory, Contents
from nats_scheduler.engine.holding.flight import DONE, IN_PROGRESS, Flight, Stage, Turn
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifecycle import Lifecycle, Ownership
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.reading.landed import Landed
from nats_scheduler.engine.reading.progress import Progress
from nats_scheduler.message.stream_rules import StreamRules
from tests.engine.direct import SCHEDULE, Desk, schedule


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
    held = Desk(schedule("@every 5s")).engine.held.on(SCHEDULE)
    assert held is not None
    if stage is not Stage.WAITING:
        held.flight = Flight(stage)
    return lifecycle, held


def test_a_schedule_moves_along_the_table_and_no_other_way() -> None:
    for before, turn in product(Stage, Turn):
        lifecycle, held = lifecycle_with(before)
        if before in turn.stages:
            lifecycle.move(held, turn)
            assert (Stage.WAITING if held.flight is None else held.flight.stage) is turn.following, (before, turn)
        else:
            with pytest.raises(AssertionError, match=f"is {before.value}, and {turn.meaning}"):
                lifecycle.move(held, turn)
