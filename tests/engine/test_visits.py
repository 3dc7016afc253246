"""A visit sees each schedule that is held all the time once, while others come, go, become near and become far."""

from collections import Counter
from random import Random

import pytest

from nats_scheduler.engine.holding.far import Window
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.views.view import PLACES_PER_UNIT, visit
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import At

NOW = 1_790_000_000 * SECOND
FAR = NOW + 3_600 * SECOND
TERMS = Terms(ADR51, "t", None, "", False)


def put(roster: Roster, number: int, sequence: int, fire_time: int = FAR) -> Held:
    held = Held(f"s.{number}", sequence, Definition(At(None, fire_time), TERMS), NOW)
    roster.hold(held)
    roster.wake(held, fire_time)
    return held


def filled(count: int) -> Roster:
    roster = Roster()
    roster.comes_to(NOW)
    for number in range(count):
        put(roster, number, number + 1, FAR if number % 3 else NOW + 5 * SECOND)
    roster.settle(())
    assert 0 < roster.rows.far_count < count
    return roster


@pytest.mark.parametrize("seed", range(5))
def test_each_that_stays_is_visited_once(seed: int) -> None:
    random, roster, count = Random(seed), filled(2_000), 2_000
    staying, visited, sequence = set(range(0, count, 2)), Counter[str](), count
    for held in visit(roster.rows, NOW):
        if held is not None:
            visited[held.subject] += 1
            assert roster.peek(held.subject) is not None
            continue
        for _ in range(20):
            number, act, sequence = random.randrange(count), random.random(), sequence + 1
            one = roster.on(f"s.{number}")  # what was far is near until the end of the step
            if one is not None and act < 0.3:
                roster.wake(one, random.choice((FAR, NOW + 5 * SECOND)))
            elif act < 0.6 and number not in staying:
                roster.remove(f"s.{number}")
            elif act < 0.8:
                put(roster, number, sequence)
        roster.settle(())
    assert {visited[f"s.{number}"] for number in staying} == {1}


def test_what_was_replaced_or_removed_while_the_visit_rested_is_not_shown() -> None:
    roster = filled(2 * PLACES_PER_UNIT)
    seen = visit(roster.rows, NOW)
    first = next(seen)
    assert first is not None
    for number in range(1, 10):
        roster.remove(f"s.{number}")
    put(roster, 10, 5_000)
    roster.settle(())
    rest = [held for held in seen if held is not None]
    assert not {held.subject for held in rest} & {f"s.{number}" for number in range(1, 10)}
    assert [held.sequence for held in rest if held.subject == "s.10"] in ([], [5_000])


def test_a_window_leaves_out_far_schedules_only() -> None:
    roster = filled(100)
    shown = [held for held in visit(roster.rows, NOW, Window(NOW, FAR + 1)) if held is not None]
    assert len(shown) == len(roster) - roster.rows.far_count
    assert len([held for held in visit(roster.rows, NOW, Window(NOW, FAR)) if held is not None]) == 100
