"""The judge of calendars, on histories made by hand: what their edits excuse, and what they do not."""

from dataclasses import replace

import pytest

from tests.judge.checkers import verdict
from tests.judge.history import CalendarSeen, History, Leaves
from tests.judge.made_by_hand import EVERY_2S, at, fire, history
from tests.judge.patterns import Policies

NAMED = replace(EVERY_2S, policies=Policies(calendar="work"))


def with_edits(*edits: tuple[float, Leaves]) -> History:
    """Make a history of a schedule that names a calendar with these edits."""
    made = history()
    made.terms = replace(made.terms, resumes_within=10**8)
    made.operations[0].pattern = NAMED
    made.calendars = [CalendarSeen("work", at(seconds), leaves) for seconds, leaves in edits]
    return made


def broken(made: History) -> set[str]:
    return {violation.promise for violation in verdict(made)}


def without(made: History, *numbers: int) -> History:
    """Leave out fires by their place."""
    made.fires = [one for number, one in enumerate(made.fires) if number not in numbers]
    return made


def test_a_calendar_that_leaves_everything_changes_nothing() -> None:
    assert broken(with_edits((0, Leaves.ALL))) == set()
    assert broken(without(with_edits((0, Leaves.ALL)), 1)) == {"Complete"}


@pytest.mark.parametrize("leaves", [Leaves.NOTHING, Leaves.GONE])
def test_a_fire_that_the_calendar_does_not_leave_is_one_too_many(leaves: Leaves) -> None:
    assert broken(with_edits((0, Leaves.ALL), (4.1, leaves))) == {"Unique"}
    kept = without(with_edits((0, Leaves.ALL), (4.1, leaves)), 1, 2, 3, 4)
    assert broken(kept) == set()


def test_a_fire_that_was_sent_just_before_the_edit_is_none() -> None:
    assert broken(without(with_edits((0, Leaves.ALL), (3.9, Leaves.NOTHING)), 1, 2, 3, 4)) == set()


def test_what_came_due_while_the_calendar_was_gone_is_owed_when_it_is_back() -> None:
    back = with_edits((0, Leaves.ALL), (4.1, Leaves.GONE), (6.1, Leaves.ALL))
    assert "Complete" in broken(without(back, 1, 2))
    late = with_edits((0, Leaves.ALL), (4.1, Leaves.GONE), (7.5, Leaves.ALL))
    late.fires[1] = fire(6, 16, late=1.6)
    assert broken(late) == set()


def test_what_came_due_on_an_excepted_day_is_not_owed_afterwards() -> None:
    back = with_edits((0, Leaves.ALL), (4.1, Leaves.NOTHING), (6.1, Leaves.ALL))
    assert broken(without(back, 1)) == set()


def test_while_an_edit_is_on_its_way_what_was_before_and_what_it_says_may_both_count() -> None:
    """The edit of 4.1 s is acknowledged at 8 s, and the fire of 10 s comes too late for it."""
    for fires_gone in ((), (1, 2), (1, 2, 3)):
        made = without(with_edits((0, Leaves.ALL), (4.1, Leaves.NOTHING)), *fires_gone, 4)
        made.calendars[1] = replace(made.calendars[1], certain_from=at(8))
        assert broken(made) == (set() if 3 in fires_gone else {"Unique"}), fires_gone


def test_an_instance_that_is_ready_owes_only_what_an_acknowledged_edit_leaves() -> None:
    """The calendar is back at 6.1 s, by an edit that is acknowledged at 6.2 or 8.5 s."""
    for acknowledged, expected in ((6.2, {"Complete", "Live"}), (8.5, set[str]())):
        made = without(with_edits((0, Leaves.ALL), (4.1, Leaves.GONE), (6.1, Leaves.ALL)), 1, 2)
        made.end, made.fires = at(9.5), made.fires[:1]
        made.lives = [replace(made.lives[0], end=made.end)]
        made.calendars[2] = replace(made.calendars[2], certain_from=at(acknowledged))
        assert broken(made) == expected
