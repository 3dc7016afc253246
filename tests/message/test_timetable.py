"""A timetable answers for one schedule what its pattern answers for all that have it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.timetable import Timetable, never_fires
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import parse_pattern

STORED_AT = 1_768_564_800 * SECOND + 300_000_000
"""2026-01-16T12:00:00.3Z."""

NOON = STORED_AT - 300_000_000
PATTERNS = ["@at 2026-01-16T12:00:10Z", "@at 2020-01-01T00:00:00Z", "@every 7s", "@every 1.4s", "*/5 * * * * *"]
moments = st.integers(STORED_AT, STORED_AT + 60 * SECOND)

MARCH_2096 = 3_981_830_400 * SECOND
"""2096-03-06T00:00:00Z: the next leap year is 2104, since 2100 is none."""


def timetable(text: str, stored_at: int = STORED_AT) -> Timetable:
    pattern = parse_pattern(text)
    assert pattern is not None
    assert not isinstance(pattern, Invalid)
    return Definition(pattern, Terms(ADR51, "t", None, "", False)).timetable(stored_at)


def seconds(fires: list[int]) -> list[float]:
    """Return fire times in seconds after noon."""
    return [(fire - NOON) / SECOND for fire in fires]


@pytest.mark.parametrize(
    ("text", "first_three"),
    [("@at 2026-01-16T12:00:10Z", [10]), ("@every 7s", [7, 14, 21]), ("*/5 * * * * *", [5, 10, 15])],
)
def test_the_fire_times_of_a_schedule_begin_with_its_first_and_end_with_it(text: str, first_three: list[int]) -> None:
    asked = timetable(text)
    assert seconds(asked.fires(3)) == first_three
    assert asked.fires(0) == []
    assert asked.repeats is (len(first_three) > 1)


def test_a_schedule_that_never_fires_has_no_fire_times() -> None:
    never = timetable("0 0 0 29 2 *", MARCH_2096)
    assert never_fires(never.pattern, never.stored_at)
    assert (never.first_fire(), never.next_fire(MARCH_2096), never.fires(3)) == (None, None, [])
    past = timetable("@at 2020-01-01T00:00:00Z")
    assert not never_fires(past.pattern, past.stored_at), "it fires at once"


def test_equal_definitions_that_were_stored_at_other_times_fire_at_other_times() -> None:
    early, late = timetable("@every 7s"), timetable("@every 7s", STORED_AT + 2 * SECOND)
    assert early.pattern is late.pattern
    assert seconds(early.fires(2)) == [7, 14]
    assert seconds(late.fires(2)) == [9, 16]
    assert early.is_fire(NOON + 14 * SECOND)
    assert not late.is_fire(NOON + 14 * SECOND)


@given(st.sampled_from(PATTERNS), moments, moments)
def test_all_questions_have_answers_that_agree(text: str, after: int, until: int) -> None:
    """The fire times in a list, the next one, the latest one and the question about one are the same times."""
    asked = timetable(text)
    fires = asked.fires(120)
    assert fires == sorted(set(fires))
    assert all(map(asked.is_fire, fires))
    assert asked.is_fire(until) is (until in fires)
    assert asked.next_fire(fires[0]) == (fires[1] if asked.repeats else None)
    if asked.repeats:
        assert asked.next_fire(after) == next(fire for fire in fires if fire > after)
    between = [fire for fire in fires if after < fire and asked.send_time_of(fire) <= until]
    assert asked.latest_due(after, until) == (between[-1] if between else None)


@given(st.sampled_from(PATTERNS))
def test_no_fire_is_sent_before_its_time(text: str) -> None:
    asked = timetable(text)
    assert all(asked.send_time_of(fire) >= fire for fire in asked.fires(20))
