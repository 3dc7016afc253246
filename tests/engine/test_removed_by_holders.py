"""Removals by another holder: what it purged, or deleted by its sequence, is over; other deletions change nothing."""

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import RemovalRequested, ShardsHeld
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule, stored_fire

BY_HOLDER = [RemovalRequested(SCHEDULE, below=2), RemovalRequested(sequence=1)]
OF_SOMETHING_ELSE = [
    RemovalRequested("s.other", below=2),
    RemovalRequested(SCHEDULE, below=1),
    RemovalRequested(sequence=3),
]


def fired_by_another() -> Desk:
    """Return an engine without shards that has read the fire of an `@at`."""
    message = schedule("@at 2026-01-01T00:00:10Z")
    theirs = Desk(message).in_flight(message, 10)
    desk = Desk(message)
    desk.step(ShardsHeld(frozenset()))
    desk.now = START + 10 * SECOND
    desk.read(stored_fire(theirs, 2, desk.now))
    return desk


@pytest.mark.parametrize("request_", BY_HOLDER)
def test_a_schedule_that_fired_is_over_when_its_holder_removes_it(request_: RemovalRequested) -> None:
    desk = fired_by_another()
    desk.step(request_)
    assert desk.engine.held.on(SCHEDULE) is None
    desk.step(ShardsHeld(ALL_SHARDS))
    assert desk.asked(PurgeSchedule), "the request may have been lost with its sender"


@pytest.mark.parametrize("request_", OF_SOMETHING_ELSE)
def test_a_schedule_that_fired_waits_for_its_holder(request_: RemovalRequested) -> None:
    desk = fired_by_another()
    desk.step(request_)
    assert desk.engine.held.on(SCHEDULE) is not None


def replaced() -> Desk:
    desk = Desk(schedule("@every 1h"))
    desk.step(ShardsHeld(frozenset()))
    desk.read(schedule("@every 2h", sequence=2))
    return desk


@pytest.mark.parametrize("request_", BY_HOLDER)
def test_an_old_version_that_its_holder_removed_is_not_purged_after_a_takeover(request_: RemovalRequested) -> None:
    desk = replaced()
    desk.step(request_)
    desk.step(ShardsHeld(ALL_SHARDS))
    assert desk.asked(PurgeSchedule) == []


@pytest.mark.parametrize("request_", [RemovalRequested("s.other"), RemovalRequested(sequence=2)])
def test_an_old_version_that_nobody_removed_is_purged_after_a_takeover(request_: RemovalRequested) -> None:
    desk = replaced()
    desk.step(request_)
    desk.step(ShardsHeld(ALL_SHARDS))
    assert [purge.through for purge in desk.asked(PurgeSchedule)] == [1]
