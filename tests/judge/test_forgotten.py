"""The losses of servers, in histories made by hand: what they excuse, and no more.

On a work queue that is a fire that a server forgot; and anywhere what was acknowledged, and is in the files of no node.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.judge.checkers import verdict
from tests.judge.forgotten import Losses
from tests.judge.history import (
    SECOND,
    Fault,
    FireAnswered,
    FireKey,
    History,
    Operation,
    ScheduleSeen,
    StoredRecord,
    StoreSeen,
    Verb,
)
from tests.judge.made_by_hand import at, fire, history
from tests.judge.patterns import Pattern


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


ONE = StoredRecord(at(2), "s.1", None, b"one")
NEXT = StoredRecord(at(7), "s.3", None, b"three")
FIRED = FireKey(1, at(8))


def stores(records: dict[int, StoredRecord], erased: frozenset[int] = frozenset()) -> list[StoreSeen]:
    return [StoreSeen(f"n{number}", dict(records), erased) for number in range(3)]


def lost_a_schedule() -> History:
    """A schedule for 6 s was acknowledged as 5, and never seen again: the next message got its sequence."""
    made = history()
    pattern = Pattern("at", at(6) // SECOND)
    made.operations.append(Operation(Verb.STORE, "s.2", at(3), at(3.1), 5, pattern=pattern, target="t.2", body=b"two"))
    made.schedules.append(ScheduleSeen("s.2", 5, at(3.1), b"two"))
    made.stores = stores({1: ONE, 5: NEXT})
    return made


def lost_a_fire() -> History:
    """The fire of 8 s was acknowledged as 18, and is not stored: every node ends before that."""
    made = history()
    made.fires = [one for one in made.fires if one.sequence != 18]
    made.answered = [FireAnswered(FIRED, 18, at(8.01))]
    made.stores = stores({1: ONE, 17: NEXT})
    return made


def lost_a_fire_to_another_message() -> History:
    made = lost_a_fire()
    made.stores = stores({1: ONE, 18: NEXT._replace(stored_at=at(8.5))})
    return made


@pytest.mark.parametrize(
    ("made", "evidence"),
    [
        (lost_a_schedule, "s.2, acknowledged as 5: n0 has s.3, n1 has s.3, n2 has s.3"),
        (lost_a_fire, f"the fire of 1 for {at(8)}, acknowledged as 18: n0 ends at 17, n1 ends at 17, n2 ends at 17"),
        (lost_a_fire_to_another_message, f"the fire of 1 for {at(8)}, acknowledged as 18: n0 has s.3, n1 has s.3, n2"),
    ],
)
def test_what_the_files_of_no_node_hold_is_lost_by_the_servers(made: Callable[[], History], evidence: str) -> None:
    lost = made()
    assert [str(violation) for violation in verdict(lost)] == []
    losses = Losses(lost)
    (found,) = [*losses.schedules.values(), *losses.fires.values()]
    assert found.startswith(evidence)


def had_a_node_that_holds_it(made: History) -> None:
    made.stores[1].records[5] = StoredRecord(at(3.05), "s.2", None, b"two")


def had_it_removed(made: History) -> None:
    """A message that is removed leaves a note of that in the files."""
    made.stores = stores({1: ONE, 6: NEXT}, frozenset({5}))


def had_files_that_begin_behind_it(made: History) -> None:
    made.stores = stores({6: NEXT})


def had_no_node_that_was_read(made: History) -> None:
    made.stores = []


def had_its_place_taken_before_it_was_acknowledged(made: History) -> None:
    made.stores = stores({1: ONE, 5: NEXT._replace(stored_at=at(3.05))})


@pytest.mark.parametrize(
    "change",
    [
        had_a_node_that_holds_it,
        had_it_removed,
        had_files_that_begin_behind_it,
        had_no_node_that_was_read,
        had_its_place_taken_before_it_was_acknowledged,
    ],
)
def test_any_other_schedule_that_is_gone_is_a_violation(change: Callable[[History], None]) -> None:
    made = lost_a_schedule()
    change(made)
    assert {violation.schedule: violation.promise for violation in verdict(made)} == {"s.2": "Complete"}


def was_never_answered(made: History) -> None:
    made.answered = []


def was_answered_for_another_fire(made: History) -> None:
    made.answered = [FireAnswered(FireKey(1, at(6)), 18, at(8.01))]


def was_answered_with_the_place_of_another_message(made: History) -> None:
    """The message there was stored before the answer, which therefore was not for this fire."""
    made.stores = stores({1: ONE, 18: NEXT})


def is_held_by_a_node(made: History) -> None:
    made.stores[2].records[18] = StoredRecord(at(8.005), "t.1", FIRED, b"one")


def was_removed(made: History) -> None:
    made.stores = stores({1: ONE, 19: NEXT}, frozenset({18}))


@pytest.mark.parametrize(
    "change",
    [
        was_never_answered,
        was_answered_for_another_fire,
        was_answered_with_the_place_of_another_message,
        is_held_by_a_node,
        was_removed,
    ],
)
def test_any_other_fire_that_is_missing_is_a_violation(change: Callable[[History], None]) -> None:
    made = lost_a_fire()
    change(made)
    assert [violation.promise for violation in verdict(made)] == ["Complete"]


def test_a_loss_excuses_nothing_but_what_was_lost() -> None:
    made = lost_a_schedule()
    made.fires = [one for one in made.fires if one.sequence != 18]
    assert [violation.schedule for violation in verdict(made)] == ["s.1"]
