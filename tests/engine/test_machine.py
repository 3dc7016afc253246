"""The table of the machine is complete and enforced: what it does not have raises, and all that it has happens.

Drawn lives of an engine (`tests.engine.drawn_lives`) take most of its cells.
"""

from itertools import product

import pytest

from nats_scheduler.engine.firing import machine
from nats_scheduler.engine.firing.machine import TABLE, Act, Event, happen, may_happen, stage_of
from nats_scheduler.engine.holding.flight import Flight, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState
from tests.engine.direct import Desk, schedule
from tests.engine.drawn_lives import Life, small_limits
from tests.harness.seeds import seeds

TURNS = 100
"""The number of things that happen in a life."""


def test_what_the_table_does_not_have_raises_and_changes_nothing() -> None:
    desk = Desk(schedule("@every 1h"))
    state, held = desk.engine._state, desk.held()
    for stage, event in product(Stage, Event):
        flight = held.flight = None if stage is Stage.WAITING else Flight(stage)
        assert (stage_of(held), may_happen(held, event)) == (stage, (stage, event) in TABLE)
        if (stage, event) in TABLE:
            continue
        before = repr(flight), held.fire_time, held.wake, list(state.actions), list(state.active), list(state.later)
        with pytest.raises(AssertionError, match=f"{event.name} may not happen in {stage.name}"):
            happen(state, held, event)
        assert held.flight is flight
        after = repr(flight), held.fire_time, held.wake, list(state.actions), list(state.active), list(state.later)
        assert after == before


def test_a_stage_that_may_not_follow_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(schedule("@every 1h"))

    def kept(state: EngineState, held: Held, **_how: object) -> None:
        state.enter(held, Stage.KEPT)

    follow = TABLE[Stage.WAITING, Event.WOKEN][1]
    monkeypatch.setattr(machine, "TABLE", {**TABLE, (Stage.WAITING, Event.WOKEN): (kept, follow)})
    with pytest.raises(AssertionError, match="WOKEN led from WAITING to KEPT"):
        happen(desk.engine._state, desk.held(), Event.WOKEN)


def test_whatever_happens_no_event_is_illegal(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[Stage, Event]] = set()

    def noted(stage: Stage, event: Event, act: Act) -> Act:
        def acts(state: EngineState, held: Held, *given: object, **more: object) -> None:
            act(state, held, *given, **more)
            taken.add((stage, event))

        return acts

    table = {(stage, event): (noted(stage, event, act), follow) for (stage, event), (act, follow) in TABLE.items()}
    monkeypatch.setattr(machine, "TABLE", table)
    for number in seeds(24):
        small_limits(monkeypatch, burst=number % 3 == 1)
        life = Life(number)
        try:
            life.live(TURNS)
        except BaseException as error:
            error.add_note(f"in life {number}")
            raise
    assert len(taken) > len(TABLE) * 0.7, "these lives are too quiet to show anything"
