"""Schedules that the server itself fires: the next fire is the one that the server announced."""

import pytest

from nats_scheduler.engine.views.figures import State
from nats_scheduler.engine.views.stored import StoredSchedules
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.native import fire_after
from nats_scheduler.schedule.patterns import Pattern, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import message_on, schedule

TENTH = SECOND // 10


def fire(of: str, sequence: int, following: int) -> StoredMessage:
    """Make a fire as the server stores it, which announces the next one."""
    return message_on("t.out", sequence, Nats_Scheduler=of, Nats_Schedule_Next=format_rfc3339(following))


def listed(*messages: StoredMessage, now: int, fired_by: FiredBy = FiredBy.SERVER) -> ListedSchedule:
    """Return the only schedule that is stored."""
    stored = StoredSchedules(StreamRules("S", ("s.>", "t.>")), (ADR51,), fired_by)
    for message in messages:
        stored.take([message], now)
    (one,) = stored.view.page(now).finish().schedules
    return one


def pattern_of(text: str) -> Pattern:
    read = parse_pattern(text, None)
    assert read is not None
    return read  # type: ignore[return-value]


def test_the_next_fire_is_the_one_that_the_last_fire_announced() -> None:
    """A server that was down counts an interval from its start, which the pattern alone does not show."""
    every = schedule("@every 1h", 1)
    announced = START + 5 * HOUR + 17 * SECOND
    messages = [every, fire(every.subject, 2, START + 4 * HOUR), fire(every.subject, 3, announced)]
    one = listed(*messages, now=START + 5 * HOUR)
    assert (one.next_fire, one.state) == (announced, State.WAITING)
    assert one.fire_after(announced) == announced + HOUR
    # Its own fires may be consumed, or replaced by a roll-up: the server continues all the same.
    assert listed(*messages, now=announced + 3 * HOUR).next_fire == announced + 4 * HOUR


def test_a_fire_of_the_version_before_counts_only_after_the_replacement() -> None:
    first, second = schedule("@every 1h", 1), schedule("@every 2h", 3)
    before, after = fire(first.subject, 2, START + 90 * SECOND), fire(first.subject, 4, START + 90 * SECOND)
    assert listed(first, before, second, now=START).next_fire == START + 2 * HOUR
    assert listed(first, second, after, now=START).next_fire == START + 90 * SECOND


def test_nobody_announces_fires_where_nobody_fires() -> None:
    every = schedule("@every 1h", 1)
    found = listed(every, fire(every.subject, 2, START + 5), now=START, fired_by=FiredBy.NONE)
    assert found.next_fire == START + HOUR


@pytest.mark.parametrize(
    ("pattern", "fires"),
    [
        ("@every 1.4s", [14, 24, 34, 44]),
        ("@every 1.5s", [15, 35, 55, 75]),
        ("@every 2.5s", [25, 55, 85, 115]),
        ("@every 3s", [30, 60, 90, 120]),
    ],
)
def test_an_interval_with_a_fraction_is_rounded_as_the_server_does(pattern: str, fires: list[int]) -> None:
    """As the server does: it rounds each fire time to the second before it adds the interval."""
    one = listed(schedule(pattern, 1), now=START)
    found: list[int | None] = [one.next_fire]
    while len(found) < len(fires):
        found.append(one.fire_after(found[-1] or 0))
    assert found == [START + tenths * TENTH for tenths in fires]
    read = pattern_of(pattern)
    first = START + fires[0] * TENTH
    assert [fire_after(read, START, first, START + tenths * TENTH) for tenths in fires[:-1]] == found[1:]
    assert [fire_after(read, START, first, START + tenths * TENTH - 1) for tenths in fires[1:]] == found[1:]


def test_a_cron_schedule_fires_at_its_next_match() -> None:
    one = listed(schedule("0 0 * * * *", 1), now=START + 10 * SECOND)
    assert one.next_fire is not None
    assert one.fire_after(one.next_fire) == one.next_fire + HOUR
