"""The calendar is that of `datetime.date` in the years that it covers, and repeats every 400 years in all others."""

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.schedule.instants import (
    DAY,
    SECOND,
    ZERO_TIME_NS,
    civil_from_days,
    days_from_civil,
    days_in_month,
    floor_to_second,
    is_leap,
    round_to_second,
    weekday_of,
)

EPOCH = date(1970, 1, 1).toordinal()


@given(st.dates())
def test_days_and_weekdays_are_those_of_the_standard_library(day: date) -> None:
    days = day.toordinal() - EPOCH
    assert days_from_civil(day.year, day.month, day.day) == days
    assert civil_from_days(days) == (day.year, day.month, day.day)
    assert weekday_of(days) == day.isoweekday() % 7


@given(st.integers(-(10**9), 10**9))
def test_a_date_of_any_size_comes_back_from_its_days(days: int) -> None:
    year, month, day = civil_from_days(days)
    assert days_from_civil(year, month, day) == days
    assert 1 <= month <= 12
    assert 1 <= day <= days_in_month(year, month)
    assert civil_from_days(days + 146_097) == (year + 400, month, day)


def test_years_have_the_leap_days_of_the_gregorian_calendar() -> None:
    assert [year for year in (1900, 2000, 2023, 2024, 2100, 2400) if is_leap(year)] == [2000, 2024, 2400]
    assert days_in_month(2024, 2) == 29
    assert days_in_month(2100, 2) == 28


def test_the_zero_time_is_the_first_instant_of_the_year_one() -> None:
    assert days_from_civil(1, 1, 1) * DAY == ZERO_TIME_NS


def test_half_a_second_is_rounded_up_and_a_fraction_cut_towards_the_past() -> None:
    assert [round_to_second(at) // SECOND for at in (499_999_999, 500_000_000, -500_000_000, -500_000_001)] == [
        0,
        1,
        0,
        -1,
    ]
    assert [floor_to_second(at) // SECOND for at in (999_999_999, SECOND, -1)] == [0, 1, -1]
