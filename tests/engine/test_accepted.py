"""A schedule is reported as accepted once: by the holder of its shard, or by the next holder if there was none."""

import pytest

from nats_scheduler.engine.events import ScheduleAccepted
from nats_scheduler.engine.inputs import CheckpointLoaded, MessagesRead, ShardsHeld
from nats_scheduler.engine.sharing import holdings
from nats_scheduler.engine.sharing.holdings import MAX_CHECKED_PER_STEP
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, plain, schedule

EVERY = "@every 5s"


def holding_nothing() -> Desk:
    """Have a live engine that holds no shard yet."""
    desk = Desk()
    desk.step(ShardsHeld(frozenset()))
    return desk


def reported_when_gained(desk: Desk, *checkpoints: CheckpointLoaded) -> list[str]:
    """Give the engine all shards, and return what it reports as accepted."""
    desk.step(*checkpoints, ShardsHeld(ALL_SHARDS))
    return [event.schedule for event in desk.reported(ScheduleAccepted)]


def test_what_was_stored_before_its_shard_was_held_is_told_when_it_is_and_once() -> None:
    desk = holding_nothing()
    desk.read(schedule(EVERY, 3))
    assert desk.reported(ScheduleAccepted) == []
    assert reported_when_gained(desk) == [SCHEDULE]
    desk.step(ShardsHeld(frozenset()))
    assert reported_when_gained(desk) == []


def test_what_an_earlier_holder_had_read_was_told_by_him() -> None:
    desk = holding_nothing()
    desk.read(schedule(EVERY, 3, "s.reported"), schedule(EVERY, 4, "s.untold"))
    assert reported_when_gained(desk, CheckpointLoaded(START, 3)) == ["s.untold"]


def test_what_is_replaced_or_gone_before_its_shard_is_held_is_not_told() -> None:
    desk = holding_nothing()
    desk.read(schedule(EVERY, 3, "s.gone"), schedule(EVERY, 4), plain("s.gone", 5), schedule("@every 7s", 6))
    desk.step(ShardsHeld(ALL_SHARDS))
    assert desk.reported(ScheduleAccepted) == [ScheduleAccepted(SCHEDULE, 6, START + 7 * SECOND)]


def test_what_is_held_is_told_at_once_but_not_what_was_stored_before_the_stream_was_read() -> None:
    desk = Desk(schedule(EVERY))
    assert desk.reported(ScheduleAccepted) == []
    desk.read(schedule(EVERY, 3, "s.two"))
    assert desk.reported(ScheduleAccepted) == [ScheduleAccepted("s.two", 3, START + 5 * SECOND)]
    desk.step(ShardsHeld(frozenset()))
    assert reported_when_gained(desk) == []


def test_many_are_told_a_slice_at_a_time_and_only_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MAX_UNREPORTED", 3 * MAX_CHECKED_PER_STEP)
    desk = holding_nothing()
    count = 3 * MAX_CHECKED_PER_STEP + 5
    desk.step(MessagesRead([schedule(EVERY, number, f"s.{number}") for number in range(1, count + 1)]))
    reported = reported_when_gained(desk)
    assert len(reported) == MAX_CHECKED_PER_STEP
    for _ in range(4):
        desk.step()
        reported += [event.schedule for event in desk.reported(ScheduleAccepted)]
    assert reported == [f"s.{number}" for number in range(6, count + 1)]
