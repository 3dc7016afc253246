"""How long a schedule may store nothing, or wait for a fire time that is not its next one."""

import pytest

from nats_scheduler.message.silence import first_skipped, is_silent, restarted_for
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from tests.schedule.reading import read

HOURLY = Timetable(read("@every 1h"), START)


def test_three_periods_are_silence_and_no_less_than_five_minutes() -> None:
    for period, enough in ((SECOND, 5 * MINUTE), (100 * SECOND, 5 * MINUTE), (HOUR, 3 * HOUR)):
        assert [is_silent(enough + by, period) for by in (-1, 0)] == [False, True], period


@pytest.mark.parametrize(
    ("pattern", "since", "silent_for"),
    [
        ("@every 1h", START - 3 * HOUR, 0),
        ("@every 1h", START - DAY, 21 * HOUR),
        ("@every 1h", START - 2 * HOUR, -HOUR),
        ("@every 1h", START, -1),
        ("@every 1h", START + HOUR, -1),
        ("@at 2026-01-01T00:00:01Z", START - DAY, -1),
    ],
)
def test_what_is_stored_again_and_again_is_silent_after_three_periods(
    pattern: str, since: int, silent_for: int
) -> None:
    assert restarted_for(Timetable(read(pattern), START), since) == silent_for


@pytest.mark.parametrize(
    ("waits_for", "now", "skipped"),
    [
        (START + HOUR, START, None),
        (START + HOUR + 5 * MINUTE - 1, START, None),
        (START + HOUR + 5 * MINUTE, START, START + HOUR),
        (START + 3 * HOUR, START + HOUR - MINUTE - 1, START + HOUR),
        (START + 3 * HOUR, START + HOUR - MINUTE, START + 2 * HOUR),
        (START + DAY, START - MINUTE, START + HOUR),
        (START + DAY, START - MINUTE - SECOND, START + HOUR - SECOND),
        (START + HOUR, START - DAY, START - 23 * HOUR + MINUTE),
    ],
)
def test_one_that_waits_for_a_later_fire_than_its_next_skips_that(
    waits_for: int, now: int, skipped: int | None
) -> None:
    assert first_skipped(HOURLY, waits_for, now) == skipped
