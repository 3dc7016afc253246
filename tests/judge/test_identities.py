"""The excuses of a taken identity, in histories made by hand: a wait, and a fire that nothing showed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.judge.checkers import verdict
from tests.judge.history import SECOND, FireKey, FireSent, History, IdentityTaken
from tests.judge.made_by_hand import at, fire, history

FORGED = 5
"""The sequence of the forged message."""

EIGHT = FireKey(1, at(8))
"""The fire that is due at 8 s."""


def sent(seconds: float, *, taken: int = 0, instance: str = "i0", clock: float | None = None) -> FireSent:
    """Record that an instance sends the fire of 8 s."""
    return FireSent(instance, EIGHT, taken, at(seconds), at(seconds if clock is None else clock))


def taken(made: History, *, free: float) -> None:
    """Let a forger take the identity of the fire of 8 s, which is free again at an instant."""
    made.terms = replace(made.terms, duplicate_window=7 * SECOND, window=3 * SECOND // 2)
    made.taken = [IdentityTaken(EIGHT, FORGED, at(free - 7))]


def waited(made: History) -> None:
    taken(made, free=8.9)
    made.fires[2] = fire(8, 18, late=0.95)


def arrived_after_the_other(made: History) -> None:
    """The fire is stored under another identity at 8.2 s, and a request with its own one arrives at 9.6 s."""
    taken(made, free=9.5)
    made.sent = [sent(8), sent(8.1, taken=FORGED), sent(8.15, instance="i1")]
    made.fires[2] = replace(fire(8, 18, late=0.2), taken=FORGED)
    made.fires.append(fire(8, 19, late=1.6))


def arrived_after_its_own(made: History) -> None:
    """The request with another identity arrives last."""
    taken(made, free=9.2)
    made.sent = [sent(8.05), sent(8.4, taken=FORGED)]
    made.fires[2] = fire(8, 18, late=1.21)
    made.fires.append(replace(fire(8, 19, late=1.6), taken=FORGED))


def was_consumed(made: History) -> None:
    """The fire is gone when it is sent again, and its own window would not be over."""
    arrived_after_the_other(made)
    made.terms = replace(made.terms, consumed=True)
    made.sent[2] = sent(9.75, instance="i1")
    made.fires[-1] = fire(8, 19, late=1.8)


def was_chosen_by_a_slow_clock(made: History) -> None:
    arrived_after_the_other(made)
    made.sent[1] = sent(9, taken=FORGED, clock=8.7)


def was_chosen_once_it_was_kept_longer(made: History) -> None:
    """The identity should have been free at 7.6 s, and is taken at 8.1 s."""
    arrived_after_the_other(made)
    made.taken = [IdentityTaken(EIGHT, FORGED, at(0.6))]


@pytest.mark.parametrize(
    "change",
    [
        waited,
        arrived_after_the_other,
        arrived_after_its_own,
        was_consumed,
        was_chosen_by_a_slow_clock,
        was_chosen_once_it_was_kept_longer,
    ],
)
def test_what_a_taken_identity_excuses_is_no_violation(change: Callable[[History], None]) -> None:
    made = history()
    change(made)
    assert [str(violation) for violation in verdict(made)] == []


def waited_for_nothing(made: History) -> None:
    waited(made)
    made.taken = []


def waited_for_an_identity_that_is_free_much_later(made: History) -> None:
    taken(made, free=9.9)
    made.fires[2] = fire(8, 18, late=0.85)


def waited_longer(made: History) -> None:
    taken(made, free=8.2)
    made.fires[2] = fire(8, 18, late=0.85)


def did_not_wait(made: History) -> None:
    """The other identity is chosen when the first one is free in 0.7 s."""
    arrived_after_the_other(made)
    made.sent[1] = sent(8.8, taken=FORGED)


def did_not_wait_in_one_instance(made: History) -> None:
    arrived_after_the_other(made)
    made.sent.append(sent(8.8, taken=FORGED, instance="i1"))


def was_chosen_after_it_was_free(made: History) -> None:
    arrived_after_the_other(made)
    made.taken = [IdentityTaken(EIGHT, FORGED, at(0.9))]


def was_sent_by_one_that_had_received_it(made: History) -> None:
    arrived_after_the_other(made)
    made.sent[2] = sent(9.75, instance="i1")
    made.fires[-1] = fire(8, 19, late=1.8)


def was_in_transit_for_too_long(made: History) -> None:
    arrived_after_the_other(made)
    made.fires[-1] = fire(8, 19, late=1.7)


def arrived_before_the_identity_was_free(made: History) -> None:
    arrived_after_the_other(made)
    made.taken = [IdentityTaken(EIGHT, FORGED, at(2.7))]


def was_taken_for_another_fire(made: History) -> None:
    arrived_after_the_other(made)
    made.taken = [replace(made.taken[0], fire=FireKey(1, at(10)))]


def has_its_own_identity_twice(made: History) -> None:
    arrived_after_the_other(made)
    made.fires[2] = replace(made.fires[2], taken=0)


def has_another_identity_twice(made: History) -> None:
    arrived_after_the_other(made)
    made.fires[-1] = replace(made.fires[-1], taken=FORGED)


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (waited_for_nothing, "Live"),
        (waited_for_an_identity_that_is_free_much_later, "Live"),
        (waited_longer, "Live"),
        (did_not_wait, "Unique"),
        (did_not_wait_in_one_instance, "Unique"),
        (was_chosen_after_it_was_free, "Unique"),
        (was_sent_by_one_that_had_received_it, "Unique"),
        (was_in_transit_for_too_long, "Unique"),
        (arrived_before_the_identity_was_free, "Unique"),
        (was_taken_for_another_fire, "Unique"),
        (has_its_own_identity_twice, "Unique"),
        (has_another_identity_twice, "Unique"),
    ],
)
def test_what_it_does_not_excuse_is_called_by_its_name(change: Callable[[History], None], promise: str) -> None:
    made = history()
    change(made)
    assert {violation.promise for violation in verdict(made)} == {promise}
