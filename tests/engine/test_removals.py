"""Removals without a notice or by the owner: what is removed is not held, listed or noted any more."""

import pytest

from nats_scheduler.engine.events import Ending, ScheduleEnded
from nats_scheduler.engine.holding import table
from nats_scheduler.engine.inputs import OwnershipChanged, RemovalRequested, SchedulesGone
from nats_scheduler.engine.receiving import admission
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, schedule, stored_fire
from tests.engine.paused_builders import paused


def found(desk: Desk, first: int = 1, gone: frozenset[int] = frozenset()) -> list[tuple[str, int]]:
    return [one for unit in desk.engine.admission.find_gone(first, gone) for one in unit]


def follow(desk: Desk, first: int = 1, gone: frozenset[int] = frozenset()) -> None:
    desk.step(SchedulesGone(found(desk, first, gone)))


def ended(desk: Desk) -> list[tuple[str, Ending]]:
    assert all(event.schedule.endswith(f".{event.sequence}") for event in desk.reported(ScheduleEnded))
    return [(event.schedule, event.ending) for event in desk.reported(ScheduleEnded)]


@pytest.mark.parametrize("pattern", ["@every 5s", "@every 3h"], ids=["near", "far"])
def test_a_schedule_that_is_gone_is_held_no_more(pattern: str) -> None:
    desk = Desk(*(schedule(pattern, number, f"s.{number}") for number in range(1, 6)))
    follow(desk, 3, frozenset({4, 99}))
    assert {held.subject for held in desk.engine.held} == {"s.3", "s.5"}
    assert sorted(ended(desk)) == [(f"s.{number}", Ending.REMOVED) for number in (1, 2, 4)]
    assert desk.reads == []
    assert found(desk, 3, frozenset({4, 99})) == []


def test_of_many_none_is_left_and_none_is_ended_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROWS_SCANNED", 20)
    desk = Desk(*(schedule("@every 3h", number, f"s.{number}") for number in range(1, 62)))
    gone = frozenset(range(20, 61, 3))
    units = list(desk.engine.admission.find_gone(15, gone))
    assert len(units) > 3
    assert max(map(len, units)) <= 20
    desk.step(SchedulesGone([one for unit in units for one in unit]))
    assert {held.sequence for held in desk.engine.held} == set(range(15, 62)) - gone


def test_rejected_paused_and_misnamed_messages_take_no_memory_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "OTHERS_PER_UNIT", 10)
    count = 20
    desk = Desk(*(schedule("every day", number, f"s.{number}") for number in range(1, count + 1)))
    desk.read(paused("@every 5s", count + 1, "p.1"), message_on("m.1", count + 2, Nats_Schedul="@daily"))
    inactive, noted = desk.engine.inactive, desk.engine.inactive.misnamed
    assert (len(inactive.rejected), len(inactive.paused), len(noted)) == (count, 1, 1)
    follow(desk, 8, frozenset({count}))
    assert set(inactive.rejected) == {f"s.{number}" for number in range(8, count)}
    follow(desk, count + 3)
    assert (len(inactive.rejected), len(inactive.paused), len(noted)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("request_", "is_over"),
    [
        (RemovalRequested(SCHEDULE), True),
        (RemovalRequested(SCHEDULE, below=2), True),
        (RemovalRequested(sequence=1), True),
        (RemovalRequested(SCHEDULE, below=1), False),
        (RemovalRequested(sequence=3), False),
    ],
)
def test_a_schedule_that_fired_is_over_when_the_owner_removes_it(request_: RemovalRequested, is_over: bool) -> None:
    message = schedule("@at 2026-01-01T00:00:10Z")
    theirs = Desk(message).in_flight(message, 10)
    desk = Desk(message)
    desk.step(OwnershipChanged(False))
    desk.now = START + 10 * SECOND
    desk.read(stored_fire(theirs, 2, desk.now))
    assert (desk.is_held(), desk.purges) == (True, [])
    desk.step(request_)
    assert desk.is_held() is not is_over
    desk.step(OwnershipChanged(True))
    assert desk.purges == [(SCHEDULE, 1)], "the request may have been lost with its sender"
    desk.step(OwnershipChanged(False), OwnershipChanged(True))
    assert desk.purges == []


@pytest.mark.parametrize(
    ("request_", "purged"),
    [
        (RemovalRequested(SCHEDULE, below=2), []),
        (RemovalRequested(sequence=2), [(SCHEDULE, 1)]),
    ],
)
def test_an_old_version_that_was_removed_is_not_purged_after_a_takeover(
    request_: RemovalRequested, purged: list[tuple[str, int]]
) -> None:
    desk = Desk(schedule("@every 1h"))
    desk.step(OwnershipChanged(False))
    desk.read(schedule("@every 2h", sequence=2))
    assert desk.purges == []
    desk.step(request_)
    desk.step(OwnershipChanged(True))
    assert desk.purges == purged
