"""A cron schedule that has no fire within its horizon has ended."""

from tests.schedule.test_cron_fires import at, cron


def test_the_last_day_of_the_fifth_year_is_within_the_horizon_and_the_next_is_not() -> None:
    leap = cron("0 0 0 29 2 *")
    assert leap.next_fire(at("2096-02-28T23:59:59Z"), 0) == at("2096-02-29T00:00:00Z")
    assert leap.next_fire(at("2096-02-29T00:00:00Z"), 0) is None
    assert leap.next_fire(at("2098-12-31T23:59:58Z"), 0) is None
    assert leap.next_fire(at("2098-12-31T23:59:59Z"), 0) == at("2104-02-29T00:00:00Z")


def test_the_horizon_is_counted_in_local_years() -> None:
    leap = cron("0 0 0 29 2 *", "Asia/Tokyo")
    assert leap.next_fire(at("2098-12-31T14:59:58Z"), 0) is None
    assert leap.next_fire(at("2098-12-31T14:59:59Z"), 0) == at("2104-02-28T15:00:00Z")
    summer_time = cron("0 0 0 29 2 *", "Europe/Amsterdam")
    assert summer_time.next_fire(at("2098-12-31T22:59:58Z"), 0) is None
    assert summer_time.next_fire(at("2098-12-31T22:59:59Z"), 0) == at("2104-02-28T23:00:00Z")


def test_a_schedule_that_met_its_horizon_in_an_outage_has_ended_there() -> None:
    leap = cron("0 0 0 29 2 *")
    until = at("2200-01-01T00:00:00Z")
    assert leap.latest_fire(at("2080-01-01T00:00:00Z"), until, 0) == at("2096-02-29T00:00:00Z")
    assert leap.latest_fire(at("2096-02-29T00:00:00Z"), until, 0) is None
    assert leap.latest_fire(at("2099-01-01T00:00:00Z"), until, 0) == at("2196-02-29T00:00:00Z")
