"""Schedules that their stream removes: reported when accepted, re-checked when they end, and reported then."""

import pytest

from nats_scheduler.engine.events import Ending, ScheduleAccepted, ScheduleEndsByAge, ScheduleEndsEarly, ScheduleLost
from nats_scheduler.engine.holding.lifetimes import MAX_AGE_SLACK_NS, MAX_REQUESTS_NOTED, MAX_WIDE_REQUESTS_NOTED
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, RemovalRequested, Stored
from nats_scheduler.schedule.instants import DAY, HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, plain, schedule

WEEK = 7 * DAY
LATE = START + 30 * DAY
AT_LATE = f"@at {format_rfc3339(LATE)}"
ONE = schedule(AT_LATE)
AGE_CHECK = (WEEK + MAX_AGE_SLACK_NS) / SECOND
"""Seconds after the start at which a schedule that aged is re-checked."""


def lost(desk: Desk) -> list[tuple[str, int, int, Ending]]:
    return [(one.schedule, one.sequence, one.due, one.ending) for one in desk.reported(ScheduleLost)]


# -- at acceptance -------------------------------------------------------------------------------------------------


def test_that_a_schedule_ends_before_its_fire_is_told_at_once() -> None:
    for pattern, ttl, max_age, expected in (
        (AT_LATE, None, WEEK, (WEEK, Ending.MAX_AGE)),
        (AT_LATE, "1h", 0, (HOUR, Ending.EXPIRED)),
        (AT_LATE, "1h", WEEK, (HOUR, Ending.EXPIRED)),
        (AT_LATE, None, 60 * DAY, None),
        (AT_LATE, "never", WEEK, None),
        ("@every 1h", None, WEEK, None),
        ("@every 200h", None, WEEK, (WEEK, Ending.MAX_AGE)),
        (AT_LATE, None, 0, None),
    ):
        desk = Desk(max_age=max_age)
        desk.read(schedule(pattern) if ttl is None else schedule(pattern, Nats_TTL=ttl))
        (accepted,) = desk.reported(ScheduleAccepted)
        told = [(e.schedule, e.sequence, e.due, e.ends - START, e.ending) for e in desk.reported(ScheduleEndsEarly)]
        assert told == ([] if expected is None else [(SCHEDULE, 1, accepted.due, *expected)]), (pattern, ttl, max_age)
    desk = Desk(max_age=WEEK, removes_expired=True)
    desk.read(schedule(AT_LATE, Nats_TTL="never"))
    endings = [event.ending for event in desk.reported(ScheduleEndsEarly)]
    assert endings == [Ending.MAX_AGE], "where the server has no TTLs, `never` does not keep it"
    desk = Desk(ONE, max_age=WEEK, live=False)
    desk.step(CaughtUp())
    assert desk.reported(ScheduleEndsEarly) == [], "what was stored before the start is not told again at each start"


def test_that_an_age_ends_schedules_that_fire_is_told_of_the_first() -> None:
    desk = Desk(max_age=WEEK)
    for number in (1, 2):
        desk.read(schedule("@every 1h", number, f"s.{number}", stored_at=START + number))
        told = [ScheduleEndsByAge("s.1", 1, START + 1 + WEEK)] if number == 1 else []
        assert desk.reported(ScheduleEndsByAge) == told
    before = [schedule("@every 1h", number, f"s.{number}") for number in (1, 2)]
    desk = Desk(*before, max_age=WEEK, live=False)
    desk.step(CaughtUp())
    assert desk.reported(ScheduleEndsByAge) == [], "nor is this what was stored before the start"
    desk.read(schedule("@every 1h", 3, "s.3"))
    assert desk.reported(ScheduleEndsByAge) == [ScheduleEndsByAge("s.3", 3, START + WEEK)]


# -- when it ends --------------------------------------------------------------------------------------------------


def test_a_schedule_is_looked_at_when_its_max_age_is_over() -> None:
    desk = Desk(ONE, max_age=WEEK)
    assert desk.at(AGE_CHECK - 1).reads == []
    assert desk.at(AGE_CHECK).reads == [(SCHEDULE, 1)]
    desk.found(None, of=ONE)
    assert (desk.endings, lost(desk)) == ([Ending.MAX_AGE], [(SCHEDULE, 1, LATE, Ending.MAX_AGE)])
    assert not desk.is_held()


def test_a_schedule_that_outlives_its_max_age_waits_on_and_fires() -> None:
    desk = Desk(ONE, max_age=WEEK)
    checks = []
    seconds = AGE_CHECK
    while seconds < 30 * DAY / SECOND - 1:
        desk.at(seconds)
        if desk.reads:  # else it only became near
            checks.append(seconds)
            assert desk.reads == [(SCHEDULE, 1)]
            desk.found(ONE)
        assert desk.fires == []
        seconds = desk.wake
    assert 1 < len(checks) < 25, "the checks become less frequent"
    assert seconds == 30 * DAY / SECOND - 1, "the last check is the ONE before its fire"
    desk.at(seconds)
    desk.found(ONE)
    desk.at(30 * DAY / SECOND)
    assert desk.fire.fire_time == LATE


def test_a_ttl_that_ends_a_schedule_before_its_first_fire_is_told() -> None:
    never_fires, repeats = schedule(AT_LATE, Nats_TTL="1h"), schedule("@every 40m", 2, "s.two", Nats_TTL="1h")
    desk = Desk(never_fires, repeats)
    desk.step(CaughtUp())
    desk.concluded(desk.in_flight(repeats, 40 * 60), Stored(3))
    desk.at(3600)
    assert desk.endings == [Ending.EXPIRED, Ending.EXPIRED]
    assert lost(desk) == [(SCHEDULE, 1, LATE, Ending.EXPIRED)]


def test_a_marker_that_the_server_left_says_why_a_schedule_is_gone() -> None:
    for reason, expected in (("MaxAge", Ending.MAX_AGE), ("Purge", Ending.REMOVED), ("Remove", Ending.REMOVED)):
        desk = Desk(schedule(AT_LATE), max_age=WEEK)
        desk.read(message_on(SCHEDULE, 2, Nats_Marker_Reason=reason))
        assert desk.endings == [expected]
    desk = Desk(schedule(AT_LATE), max_age=WEEK)
    desk.read(plain(SCHEDULE, 2))
    assert (desk.endings, lost(desk)) == ([Ending.OVERWRITTEN], [])


# -- removals that were requested -----------------------------------------------------------------------------------


def test_what_was_removed_on_request_is_not_blamed_on_the_stream() -> None:
    for request, is_blamed in (
        (RemovalRequested(filter=SCHEDULE), False),
        (RemovalRequested(filter=SCHEDULE, below=2), False),
        (RemovalRequested(sequence=1), False),
        (RemovalRequested(filter="s.*"), False),
        (RemovalRequested(), False),
        (RemovalRequested(filter="s.other"), True),
        (RemovalRequested(filter=SCHEDULE, below=1), True),
        (RemovalRequested(sequence=7), True),
    ):
        desk = Desk(ONE, max_age=WEEK, evicts=True)
        desk.step(request)
        desk.at(AGE_CHECK)
        desk.found(None, of=ONE)
        assert desk.endings == [Ending.MAX_AGE if is_blamed else Ending.REMOVED], request
        assert len(lost(desk)) == is_blamed
    desk = Desk(plain("x", 1), max_age=WEEK)
    desk.now = START - 1
    desk.step(RemovalRequested(filter=">"))
    after = schedule(AT_LATE, 2)
    desk.read(after)
    desk.at(AGE_CHECK)
    desk.found(None, of=after)
    assert desk.endings == [Ending.MAX_AGE], "it was stored after the wide purge"


@pytest.mark.parametrize("is_wide", [False, True])
def test_a_flood_of_requests_never_turns_a_removal_into_a_loss(is_wide: bool) -> None:
    desk = Desk(ONE, max_age=WEEK)
    desk.step(RemovalRequested(filter="s.>" if is_wide else SCHEDULE))
    if is_wide:
        desk.step(*(RemovalRequested(filter=f"x{number}.>") for number in range(MAX_WIDE_REQUESTS_NOTED + 1)))
    else:
        desk.step(*(RemovalRequested(sequence=number) for number in range(2, MAX_REQUESTS_NOTED + 3)))
    desk.at(AGE_CHECK)
    desk.found(None, of=ONE)
    assert desk.endings == [Ending.REMOVED]


def test_what_went_without_a_request_was_evicted_by_limits() -> None:
    """Where consumers remove messages or contact was lost nothing is called evicted."""
    one = schedule("@every 1h")
    for evicts, reads_all, was_cut in (
        (True, True, False),
        (False, True, False),
        (True, False, False),
        (True, True, True),
    ):
        desk = Desk(one, evicts=evicts, reads_all=reads_all)
        if was_cut:
            desk.step(ContactLost("the server restarts"), CaughtUp())
        desk.at(3599)
        desk.found(None, of=one)
        is_evicted = evicts and reads_all and not was_cut
        assert desk.endings == [Ending.LIMITS if is_evicted else Ending.REMOVED], (evicts, reads_all, was_cut)
        assert len(lost(desk)) == is_evicted
