"""A survey lists the few schedules by which all that are held can be judged, and counts what is wrong."""

import pytest

from nats_scheduler.engine.holding.flight import Failing
from nats_scheduler.engine.views.figures import State
from nats_scheduler.engine.views.view import MAX_OF_A_KIND, MAX_TARGETS, Survey, survey
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR
from tests.engine.direct import Desk, schedule
from tests.engine.test_view import at


def surveyed(desk: Desk, *filters: str, failing: dict[int, Failing] | None = None) -> Survey:
    return survey(desk.engine.view(), desk.now, filters, failing or {}).finish()


def subjects(found: Survey) -> list[str]:
    return [one.subject for one in found.schedules]


def test_of_many_schedules_that_are_alike_the_oldest_is_listed() -> None:
    desk = Desk(*(at(HOUR, number) for number in (5, 3, 9, 7)))
    assert subjects(surveyed(desk)) == ["s.3", "s.5"], "the oldest, and the one that was visited first for the target"


def test_one_schedule_is_listed_for_each_target_zone_and_filter() -> None:
    cron = schedule("0 0 5 * * *", 4, "s.berlin", Nats_Schedule_Time_Zone="Europe/Berlin")
    desk = Desk(at(HOUR, 1), at(HOUR, 2), at(HOUR, 3, target="s.other"), cron, at(HOUR, 5, "s.deep.x"), at(HOUR, 6))
    assert subjects(surveyed(desk, "s.deep.*", "s.none.*")) == ["s.1", "s.3", "s.berlin", "s.deep.x"]


def test_what_ends_before_its_fire_and_what_fails_is_counted_and_the_first_are_listed() -> None:
    number = MAX_OF_A_KIND + 5
    expiring = [short(sequence) for sequence in range(1, number + 1)]
    healthy = [at(HOUR, number + sequence) for sequence in range(1, 31)]
    desk = Desk(*expiring, *healthy)
    failing = {number + sequence: Failing(10054, "too large", 1) for sequence in range(1, 13)}
    found = surveyed(desk, failing=failing)
    assert found.counts == {State.EXPIRING: number, State.FAILING: 12, State.NO_CALENDAR: 0}
    states = [one.state for one in found.schedules]
    assert states.count(State.EXPIRING) == states.count(State.FAILING) == MAX_OF_A_KIND


def short(sequence: int) -> StoredMessage:
    """Make a schedule whose TTL ends before its fire."""
    return schedule("@at 2026-01-02T00:00:00Z", sequence, f"s.{sequence}", Nats_TTL="60s")


@pytest.mark.parametrize(("count", "is_all"), [(MAX_TARGETS, True), (MAX_TARGETS + 1, False)])
def test_it_says_whether_all_targets_are_listed(count: int, is_all: bool) -> None:
    desk = Desk(*(at(HOUR, number, target=f"s.t.{number}") for number in range(1, count + 1)))
    found = surveyed(desk)
    assert (len(found.schedules), found.names_all_targets) == (MAX_TARGETS, is_all)


def test_nothing_is_held() -> None:
    found = surveyed(Desk(), ">")
    assert (subjects(found), found.counts[State.EXPIRING]) == ([], 0)
