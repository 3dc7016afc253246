"""A schedule is reported as accepted once: by the owner, or by the next one if there was none."""

import pytest

from nats_scheduler.engine.events import ScheduleAccepted
from nats_scheduler.engine.inputs import Checkpoint, MessagesRead, OwnershipChanged
from nats_scheduler.engine.ownership import takeover
from nats_scheduler.engine.ownership.takeover import MAX_CHECKED_PER_STEP
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule, standing_by

EVERY = "@every 5s"


def reported_at_takeover(desk: Desk, checkpoint: Checkpoint | None = None) -> list[str]:
    """Have the engine take over, and return what it reports as accepted."""
    desk.step(OwnershipChanged(True, checkpoint))
    return [event.schedule for event in desk.reported(ScheduleAccepted)]


def test_what_was_stored_while_standing_by_is_told_at_the_takeover() -> None:
    desk = standing_by()
    desk.read(schedule(EVERY, 3))
    assert desk.reported(ScheduleAccepted) == []
    assert reported_at_takeover(desk) == [SCHEDULE]
    desk.step(OwnershipChanged(False))
    assert reported_at_takeover(desk) == []


def test_what_an_earlier_owner_had_read_was_told_by_it() -> None:
    desk = standing_by()
    desk.read(schedule(EVERY, 3, "s.reported"), schedule(EVERY, 4, "s.untold"))
    assert reported_at_takeover(desk, Checkpoint(START, 3)) == ["s.untold"]


def test_many_are_told_a_slice_at_a_time_and_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "MAX_UNREPORTED", 3 * MAX_CHECKED_PER_STEP)
    desk = standing_by()
    count = 3 * MAX_CHECKED_PER_STEP + 5
    desk.step(MessagesRead([schedule(EVERY, number, f"s.{number}") for number in range(1, count + 1)]))
    reported = reported_at_takeover(desk)
    assert len(reported) == MAX_CHECKED_PER_STEP
    for _ in range(4):
        desk.step()
        reported += [event.schedule for event in desk.reported(ScheduleAccepted)]
    assert reported == [f"s.{number}" for number in range(6, count + 1)]
