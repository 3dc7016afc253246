"""A paused schedule is listed while it is stored: it is read again when it may have been removed, and seldom."""

import pytest

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.fire import ReadContent
from nats_scheduler.engine.holding.lifecycle import BURST_IN_FLIGHT
from nats_scheduler.engine.inputs import (
    ContentRead,
    ExpiryConcluded,
    RemovalRequested,
    Stored,
    Unanswered,
)
from nats_scheduler.engine.reading.inactive import REMOVAL_CHECK_DELAYS_NS
from nats_scheduler.engine.views.figures import State
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule
from tests.engine.paused_builders import listed, paused, shown

DELAYS = [delay / SECOND for delay in REMOVAL_CHECK_DELAYS_NS]


def test_a_request_that_may_have_removed_it_has_it_read_twice_and_it_stays_while_it_is_stored() -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(RemovalRequested(SCHEDULE))
    assert desk.reads == [], "the server has not done it yet"
    for _delay in DELAYS:
        desk.at(desk.wake)
        assert desk.reads == [(SCHEDULE, 1)]
        desk.found(message)
        assert listed(desk) == [(SCHEDULE, State.PAUSED)]
    assert desk.now == START + sum(REMOVAL_CHECK_DELAYS_NS)
    assert desk.at(10_000).reads == []


@pytest.mark.parametrize(
    "request_",
    [
        RemovalRequested(SCHEDULE),
        RemovalRequested(sequence=1),
        RemovalRequested(SCHEDULE, below=2),
    ],
)
def test_gone_after_a_request_it_is_listed_no_more(request_: RemovalRequested) -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(request_)
    desk.at(DELAYS[0])
    assert desk.reads == [(SCHEDULE, 1)]
    desk.found(None, of=message)
    assert listed(desk) == []
    assert desk.at(1_000).reads == []


@pytest.mark.parametrize(
    "request_",
    [
        RemovalRequested("s.two"),
        RemovalRequested("t.>"),
        RemovalRequested(sequence=2),
        RemovalRequested(SCHEDULE, below=1),
    ],
)
def test_a_request_that_cannot_concern_it_costs_nothing(request_: RemovalRequested) -> None:
    desk = Desk(paused("@every 5s"))
    desk.step(request_)
    assert desk.at(100).reads == []


def test_a_read_without_an_answer_leaves_it_listed_and_is_repeated() -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(RemovalRequested(SCHEDULE))
    desk.at(DELAYS[0])
    desk.step(Unanswered(ReadContent(SCHEDULE, 1, None), "no answer"))
    assert listed(desk) == [(SCHEDULE, State.PAUSED)]
    desk.at(sum(DELAYS))
    assert desk.reads == [(SCHEDULE, 1)]


def test_a_later_message_that_is_found_when_it_is_read_again_counts() -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(RemovalRequested(SCHEDULE))
    desk.at(DELAYS[0])
    desk.found(schedule("@every 9s", 5), of=message)
    assert listed(desk) == [(SCHEDULE, State.WAITING)]


def test_one_that_was_replaced_meanwhile_is_not_read_for_the_request() -> None:
    desk = Desk(paused("@every 5s"))
    desk.step(RemovalRequested(SCHEDULE))
    desk.read(paused("@every 5s", 2))
    assert desk.at(100).reads == []


def test_many_are_read_some_at_a_time() -> None:
    desk = Desk(*(paused("@every 5s", number, f"s.{number}") for number in range(1, 201)))
    desk.step(*(RemovalRequested(f"s.{number}") for number in range(1, 201)))
    read: list[tuple[str, int]] = []
    desk.at(DELAYS[0])
    while desk.reads:
        assert len(desk.reads) <= 64
        read += desk.reads
        desk.at(DELAYS[0])
    assert len(set(read)) == len(read) == 200


def test_requests_that_follow_each_other_cost_one_read_a_second() -> None:
    desk = Desk(paused("@every 5s"))
    reads = 0
    for tenth in range(100):
        desk.step(RemovalRequested(SCHEDULE))
        reads += len(desk.at(tenth / 10).reads)
    assert 5 <= reads <= 10
    assert len(desk.engine.inactive.checks) <= len(DELAYS)


def test_nothing_is_read_while_many_fires_are_in_flight() -> None:
    messages = [schedule("@every 5s", number, f"s.{number}") for number in range(2, 600)]
    desk = Desk(paused("@every 5s"), *messages)
    desk.at(4)
    while desk.asked(ReadContent):
        desk.step(
            *(ContentRead(m.subject, m.sequence, m, None) for m in messages if (m.subject, m.sequence) in desk.reads)
        )
        desk.at(4)
    desk.step(RemovalRequested(SCHEDULE))
    fires = desk.at(5).fires
    while more := desk.at(5).fires:
        fires += more
    assert len(fires) > BURST_IN_FLIGHT
    assert (SCHEDULE, 1) not in desk.at(6).reads
    while fires and (SCHEDULE, 1) not in desk.reads:
        desk.concluded(fire := fires.pop(), Stored(1_000 + fire.sequence))
        fires += desk.fires
    assert (SCHEDULE, 1) in desk.reads


def test_the_end_of_its_lifetime_is_shown_and_it_is_not_listed_afterwards() -> None:
    desk = Desk(paused("@every 5s", Nats_TTL="12s"))
    one = shown(desk)
    assert one is not None
    assert (one.ends, one.ended_by) == (START + 12 * SECOND, Ending.EXPIRED)
    desk.at(12)
    assert (shown(desk), listed(desk), desk.engine.view().counts(desk.now).finish().total) == (None, [], 0)
    desk.at(12 + DELAYS[0])
    assert desk.reads == [(SCHEDULE, 1)]
    desk.found(None, of=paused("@every 5s"))
    assert desk.engine.inactive.paused == {}


def test_the_age_limit_of_its_stream_ends_it_too_unless_it_never_expires() -> None:
    desk = Desk(paused("@every 5s", 1), paused("@every 5s", 2, "s.two", Nats_TTL="never"), max_age=HOUR)
    assert [one.ended_by for one in desk.engine.view().page(desk.now).finish().schedules] == [Ending.MAX_AGE, None]
    desk.at(3_600)
    assert listed(desk) == [("s.two", State.PAUSED)]


def test_where_the_server_does_not_act_on_its_ttl_it_is_removed() -> None:
    message = paused("@every 5s", Nats_TTL="12s")
    desk = Desk(message, removes_expired=True)
    assert desk.at(12).removals == [1]
    desk.step(ExpiryConcluded(1, SCHEDULE))
    assert desk.engine.inactive.paused == {}
