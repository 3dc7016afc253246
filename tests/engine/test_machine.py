"""The table of the machine is complete and enforced: what it does not have raises, and all that it has happens.

Drawn lives of an engine (`tests.engine.drawn_lives`) take each cell and each stage that may follow.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from types import FrameType

import pytest

from nats_scheduler.engine.firing import machine
from nats_scheduler.engine.firing.machine import TABLE, Act, Event, happen, may_happen, stage_of
from nats_scheduler.engine.holding.flight import Flight, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import FiresStored
from nats_scheduler.schedule.instants import MILLISECOND
from tests.engine.direct import Desk, schedule
from tests.engine.drawn_lives import Life, small_limits
from tests.harness.seeds import draws, seeds

Taken = tuple[Stage, Event, Stage]
"""A stage, an event, and the stage that followed."""

ILLEGAL = [pair for pair in product(Stage, Event) if pair not in TABLE]
MOST_CALLS = 40
"""The most functions of the package that a step calls in which one acknowledgement arrives and nothing is due."""
TURNS = 100
"""The number of things that happen in a life."""
MOST_LIVES = 20_000
"""Some 2,000 show all; if some are not shown by these, the draws have changed, or what they say may not happen."""
SHOWN_ALONE = {(Stage.IN_FLIGHT, Event.FORGED, Stage.ENDED)}
"""What no life comes to; `test_owed.py` has it happen."""


def refused(stage: Stage, event: Event) -> bool:
    """Return whether an event raises in a stage, and leaves the schedule and its stream as they were."""
    desk = Desk(schedule("@every 1h"))
    state, held = desk.engine._state, desk.held()
    flight = held.flight = None if stage is Stage.WAITING else Flight(stage)
    before = repr(flight), held.fire_time, held.wake, list(state.actions), list(state.active), list(state.later)
    try:
        happen(state, held, event)
    except AssertionError as error:
        after = repr(flight), held.fire_time, held.wake, list(state.actions), list(state.active), list(state.later)
        return (
            str(error) == f"{event.name} may not happen in {stage.name}" and held.flight is flight and before == after
        )
    return False


def all_refused() -> bool:
    """Return whether the table has an entry for what may happen, and all else is refused."""
    return bool(ILLEGAL) and all(refused(stage, event) for stage, event in ILLEGAL)


@pytest.mark.parametrize(("stage", "event"), ILLEGAL, ids=[f"{event.name}-{stage.name}" for stage, event in ILLEGAL])
def test_what_the_table_does_not_have_raises_and_changes_nothing(stage: Stage, event: Event) -> None:
    assert refused(stage, event)


@pytest.mark.slow
def test_it_raises_without_assertions_too() -> None:
    """The process has the exit code 7 only if assertions are off."""
    program = (
        "import sys; from tests.engine.test_machine import all_refused; "
        "sys.exit(7 if not __debug__ and all_refused() else 1)"
    )
    assert subprocess.run([sys.executable, "-O", "-c", program], check=False).returncode == 7


def test_what_the_table_has_may_happen_and_nothing_else() -> None:
    desk = Desk(schedule("@every 1h"))
    held = desk.held()
    for stage, event in product(Stage, Event):
        held.flight = None if stage is Stage.WAITING else Flight(stage)
        assert stage_of(held) is stage
        assert may_happen(held, event) is ((stage, event) in TABLE)


def test_a_stage_that_may_not_follow_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(schedule("@every 1h"))

    def kept(state: EngineState, held: Held, **_how: object) -> None:
        state.enter(held, Stage.KEPT)

    follow = TABLE[Stage.WAITING, Event.WOKEN][1]
    monkeypatch.setattr(machine, "TABLE", {**TABLE, (Stage.WAITING, Event.WOKEN): (kept, follow)})
    with pytest.raises(AssertionError, match="WOKEN led from WAITING to KEPT"):
        happen(desk.engine._state, desk.held(), Event.WOKEN)


# -- drawn lives -------------------------------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[Taken]:
    """Note what happens from now on, by stage, event, and the stage that follows."""
    counted: Counter[Taken] = Counter()

    def noted(stage: Stage, event: Event, act: Act) -> Act:
        def acts(state: EngineState, held: Held, *given: object, **more: object) -> None:
            act(state, held, *given, **more)
            counted[stage, event, stage_of(held)] += 1

        return acts

    table = {(stage, event): (noted(stage, event, act), follow) for (stage, event), (act, follow) in TABLE.items()}
    monkeypatch.setattr(machine, "TABLE", table)
    return counted


def lived(some: Iterator[int] | range) -> Iterator[int]:
    """Have lives lived, and yield the number of each: whatever happens in them, no schedule fails."""
    for number in some:
        with pytest.MonkeyPatch.context() as patch:
            small_limits(patch, burst=number % 3 == 1)
            life = Life(number)
            try:
                life.live(TURNS)
            except BaseException as error:
                error.add_note(f"in life {number}")
                raise
        yield number


def test_whatever_happens_no_event_is_illegal(taken: Counter[Taken]) -> None:
    for _number in lived(seeds(60)):
        pass
    cells = {(stage, event) for stage, event, _after in taken}
    assert len(cells) > len(TABLE) * 0.8, "these lives are too quiet to show anything"


@pytest.mark.slow
def test_each_event_happens_and_each_stage_follows_that_may(taken: Counter[Taken]) -> None:
    missing = {(stage, event, after) for (stage, event), (_act, follow) in TABLE.items() for after in follow}
    missing -= SHOWN_ALONE
    for number in lived(range(MOST_LIVES)):
        missing -= taken.keys()
        if not missing and number >= draws(500):
            break
    assert {(stage.name, event.name, after.name) for stage, event, after in missing} == set()


# -- what a step costs -------------------------------------------------------------------------------------------------


def test_a_step_with_one_acknowledgement_calls_few_functions() -> None:
    """Nothing is due in it, and it is not the step in a minute that reads rows."""
    message = schedule("@every 50s")
    desk = Desk(message)
    fire = desk.in_flight(message, 50)
    called: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and "/nats_scheduler/" in frame.f_code.co_filename:
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        desk.engine.step(desk.now + 5 * MILLISECOND, [FiresStored([fire], [50])])
    finally:
        sys.setprofile(None)
    assert desk.due == 100
    assert len(called) <= MOST_CALLS, called
