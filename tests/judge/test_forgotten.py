"""What the end of a server excuses on a work queue, in histories made by hand: a fire that it forgot, and no more."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.judge.checkers import verdict
from tests.judge.history import Fault, History
from tests.judge.made_by_hand import at, fire, history


def was_forgotten(made: History) -> None:
    """The fire of 8 s is stored as the server is killed, and sent again to the next one."""
    made.terms = replace(made.terms, consumed=True)
    made.faults = [Fault("server-kill", None, at(8.03), at(9.2))]
    made.fires.append(fire(8, 99, late=1.3))


def was_kept(made: History) -> None:
    was_forgotten(made)
    made.terms = replace(made.terms, consumed=False)


def was_acknowledged_long_before(made: History) -> None:
    was_forgotten(made)
    made.faults = [Fault("server-kill", None, at(8.2), at(9.2))]


def was_stored_by_the_next_server(made: History) -> None:
    was_forgotten(made)
    made.faults = [Fault("server-kill", None, at(7.4), at(9.2))]


def was_repeated_before_the_end(made: History) -> None:
    was_forgotten(made)
    made.fires[-1] = fire(8, 99, late=0.01)


def was_forgotten_in_another_fault(made: History) -> None:
    was_forgotten(made)
    made.faults = [replace(made.faults[0], kind="cut")]


def test_a_fire_that_a_killed_server_forgot_may_be_stored_again() -> None:
    made = history()
    was_forgotten(made)
    assert [str(violation) for violation in verdict(made)] == []


@pytest.mark.parametrize(
    "change",
    [
        was_kept,
        was_acknowledged_long_before,
        was_stored_by_the_next_server,
        was_repeated_before_the_end,
        was_forgotten_in_another_fault,
    ],
)
def test_any_other_repetition_is_a_violation(change: Callable[[History], None]) -> None:
    made = history()
    change(made)
    assert [violation.promise for violation in verdict(made)] == ["Unique"]
