"""How long a schedule may store nothing, or wait for a fire time that is not its next one."""

from nats_scheduler.message.silence import first_skipped, is_silent, restarted_for
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from tests.schedule.reading import read

HOURLY = Timetable(read("@every 1h"), START)


def test_three_periods_are_silence_and_no_less_than_five_minutes() -> None:
    for period, enough in ((SECOND, 5 * MINUTE), (100 * SECOND, 5 * MINUTE), (HOUR, 3 * HOUR)):
        assert [is_silent(enough + by, period) for by in (-1, 0)] == [False, True], period


def test_what_is_stored_again_and_again_is_silent_after_three_periods() -> None:
    for before, silent_for in ((3 * HOUR, 0), (DAY, 21 * HOUR), (2 * HOUR, -HOUR), (0, -1), (-HOUR, -1)):
        assert restarted_for(HOURLY, START - before) == silent_for
    assert restarted_for(Timetable(read("@at 2026-01-01T00:00:01Z"), START), START - DAY) == -1


def test_one_that_waits_for_a_later_fire_than_its_next_skips_that() -> None:
    for waits_for, now, skipped in (
        (HOUR, 0, None),
        (HOUR + 5 * MINUTE - 1, 0, None),
        (HOUR + 5 * MINUTE, 0, HOUR),
        (3 * HOUR, HOUR - MINUTE - 1, HOUR),
        (3 * HOUR, HOUR - MINUTE, 2 * HOUR),
        (DAY, -MINUTE, HOUR),
        (DAY, -MINUTE - SECOND, HOUR - SECOND),
        (HOUR, -DAY, MINUTE - 23 * HOUR),
    ):
        expected = None if skipped is None else START + skipped
        assert first_skipped(HOURLY, START + waits_for, START + now) == expected, (waits_for, now)
