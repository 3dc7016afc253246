"""Contents are taken in parts, in the order in which they came, and the work for that does not grow with what waits."""

import sys

from nats_scheduler.engine.inputs import CaughtUp, ContactLost, ContentRead, Input, RemovalRequested
from nats_scheduler.runtime.driver import MAX_CONTENTS_PER_STEP, WaitingInputs


def contents(count: int, first: int = 0) -> list[Input]:
    """Return `count` contents."""
    return [ContentRead("orders.s", number, None, None) for number in range(first, first + count)]


def waiting(*given: Input) -> WaitingInputs:
    """Return inputs that wait."""
    inputs = WaitingInputs()
    for one in given:
        inputs.add(one)
    return inputs


def test_no_step_gets_more_contents_than_it_can_build_fires_of_in_a_moment() -> None:
    given = contents(2 * MAX_CONTENTS_PER_STEP + 1)
    inputs = waiting(*given)
    parts = [inputs.take() for _ in range(3)]
    assert [len(part) for part in parts] == [MAX_CONTENTS_PER_STEP, MAX_CONTENTS_PER_STEP, 1]
    assert [one for part in parts for one in part] == given
    assert not inputs
    assert not inputs.take()


def test_what_came_between_two_contents_is_taken_between_them() -> None:
    removal = RemovalRequested(filter="orders.s")
    before, after = contents(MAX_CONTENTS_PER_STEP), contents(2, MAX_CONTENTS_PER_STEP)
    inputs = waiting(*before, removal, after[0], CaughtUp(), after[1])
    assert inputs.take() == [*before, removal], "what needs no fire to be built does not wait for contents"
    assert inputs.take() == [after[0], CaughtUp(), after[1]]


def test_nothing_is_left_behind_the_loss_of_the_contact() -> None:
    given = [*contents(3 * MAX_CONTENTS_PER_STEP), ContactLost("lost"), *contents(1)]
    inputs = waiting(*given)
    assert inputs.take() == given
    assert not inputs
    later = contents(MAX_CONTENTS_PER_STEP + 1)
    for one in later:
        inputs.add(one)
    assert inputs.take() == later[:-1], "of the next contact they are taken in parts again"


def test_to_take_a_part_costs_no_more_however_many_contents_wait() -> None:
    """A burst whose contents came faster than fires were built of them took three times the CPU."""

    def work(count: int) -> int:
        inputs, events = waiting(*contents(count)), 0

        def note(_frame: object, _event: str, _argument: object) -> None:
            nonlocal events
            events += 1

        sys.setprofile(note)
        try:
            inputs.take()
        finally:
            sys.setprofile(None)
        assert len(inputs) == count - MAX_CONTENTS_PER_STEP
        return events

    assert work(100 * MAX_CONTENTS_PER_STEP) == work(2 * MAX_CONTENTS_PER_STEP)
