"""The far agenda hands out every place in time, and keeps few entries that are stale."""

from array import array
from random import Random

import pytest

from nats_scheduler.engine.holding.far import MIN_ORDER_LENGTH, FarAgenda

BITS = 10
SPAN = 1 << BITS


def taken(agenda: FarAgenda, now: int) -> list[int]:
    agenda.comes_to(now)
    found: list[int] = []
    while part := agenda.take(3):
        found += part
    return found


def test_what_is_in_the_next_span_or_this_one_is_near() -> None:
    agenda = FarAgenda(BITS)
    agenda.comes_to(7 * SPAN + 5)
    assert [agenda.is_far(instant) for instant in (7 * SPAN, 9 * SPAN - 1, 9 * SPAN)] == [False, False, True]


def test_places_become_near_when_the_span_before_theirs_begins() -> None:
    agenda = FarAgenda(BITS)
    agenda.comes_to(0)
    agenda.add(4, 9 * SPAN + 3)
    agenda.add(5, 12 * SPAN)
    assert agenda.next_unpacking() == agenda.unpacking_of(9 * SPAN + 3) == 8 * SPAN
    assert (taken(agenda, 8 * SPAN - 1), taken(agenda, 8 * SPAN)) == ([], [4])
    assert agenda.next_unpacking() == 11 * SPAN
    assert (taken(agenda, 11 * SPAN), agenda.next_unpacking()) == ([5], None)


def test_a_row_becomes_near_as_a_whole_with_its_earliest_wake() -> None:
    agenda = FarAgenda(BITS)
    agenda.comes_to(0)
    agenda.add_row(256, array("q", [20 * SPAN, 9 * SPAN + 3, 12 * SPAN]))
    agenda.add_row(512, array("q", [9 * SPAN]))
    agenda.add(4, 9 * SPAN + 7)
    agenda.became_stale(20 * SPAN, {256: 20 * SPAN}.get)
    assert agenda.next_unpacking() == 8 * SPAN
    assert (taken(agenda, 8 * SPAN - 1), agenda.take_row()) == ([], None)
    assert agenda.near_through(9 * SPAN) == 9 * SPAN - 1
    assert taken(agenda, 8 * SPAN) == [4]
    assert agenda.near_through(9 * SPAN) == 9 * SPAN - 1, "rows are left"
    assert {agenda.take_row(), agenda.take_row()} == {256, 512}
    assert (agenda.take_row(), agenda.near_through(9 * SPAN), agenda.next_unpacking()) == (None, 9 * SPAN, None)


def test_nothing_counts_as_near_while_a_part_of_an_earlier_span_is_left() -> None:
    agenda = FarAgenda(BITS)
    agenda.comes_to(0)
    for place in range(5):
        agenda.add(place, 9 * SPAN)
    agenda.comes_to(20 * SPAN)
    assert len(agenda.take(3)) == 3
    assert agenda.near_through(20 * SPAN) == 9 * SPAN - 1
    assert len(agenda.take(3)) == 2
    assert agenda.near_through(20 * SPAN) == 20 * SPAN


def test_a_clock_that_is_set_back_makes_nothing_far_again() -> None:
    agenda = FarAgenda(BITS)
    agenda.comes_to(9 * SPAN)
    agenda.comes_to(0)
    assert not agenda.is_far(10 * SPAN)


@pytest.mark.parametrize("seed", range(5))
def test_stale_entries_are_few_and_no_valid_one_is_lost(seed: int) -> None:
    random, agenda, wakes = Random(seed), FarAgenda(BITS), dict[int, int]()
    agenda.comes_to(0)
    entries = 0
    for step in range(20_000):
        place = random.randrange(2_000)
        before = wakes.get(place)
        wakes[place] = (5 + random.randrange(4)) * SPAN + random.randrange(SPAN)
        agenda.add(place, wakes[place])
        if before is not None:
            agenda.became_stale(before, wakes.get)
        entries = sum(map(len, agenda.spans.values()))
        assert entries <= 2 * len(wakes) + 10, f"step {step}"
    assert entries >= len(wakes)
    found = taken(agenda, 20 * SPAN)
    assert set(found) == set(wakes)


def test_spans_that_begin_and_end_again_and_again_leave_little_behind() -> None:
    agenda = FarAgenda(BITS)
    agenda.comes_to(0)
    agenda.add_row(256, array("q", [30 * SPAN]))
    agenda.add(1, 40 * SPAN)
    for _ in range(5 * MIN_ORDER_LENGTH):
        agenda.add(2, 20 * SPAN)
        agenda.became_stale(20 * SPAN, {2: 50 * SPAN}.get)
        assert len(agenda.order) <= MIN_ORDER_LENGTH + 2 * 3
    assert agenda.next_unpacking() == 29 * SPAN
    agenda.comes_to(40 * SPAN)
    assert (agenda.take_row(), list(agenda.take(3)), agenda.next_unpacking()) == (256, [1], None)


def test_a_span_of_which_all_became_stale_is_gone() -> None:
    agenda = FarAgenda(BITS)
    agenda.comes_to(0)
    agenda.add(1, 9 * SPAN)
    agenda.became_stale(9 * SPAN, {1: 30 * SPAN}.get)
    assert agenda.next_unpacking() is None
    agenda.became_stale(9 * SPAN, {1: 30 * SPAN}.get)
