"""An engine that reads runs of messages does what one does that reads each message alone."""

import random

import pytest

from nats_scheduler.engine.events import ScheduleEnded
from nats_scheduler.engine.inputs import CaughtUp, MessagesRead
from nats_scheduler.message.stored import MessageRun, StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import Desk, schedule
from tests.harness.blocks import block_with
from tests.hostile.effort import EFFORT, seeded

SUBJECTS = ["s.one", "s.two", "s.three", "t.out", "o.1", "o.2"]
BLOCKS = [
    *[block_with(A="1")] * 6,
    block_with(Nats_Marker_Reason="MaxAge"),
    block_with(Nats_Schedule="@every 5s", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule="@at 2100-01-01T00:00:00Z", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule="soon", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule_X_Paused="@every 5s", Nats_Schedule_Target="t.out"),
    block_with(nats_schedule="@every 5s"),
    block_with(Nats_Scheduler="s.one", Nats_Schedule_Next="purge"),
]


def ordinary(subject: str, sequence: int) -> StoredMessage:
    return StoredMessage(subject, sequence, START, block_with(Nats_Msg_Size="0"), None)


def read(desk: Desk, *messages: StoredMessage) -> None:
    """Let the engine receive a run."""
    desk.step(MessagesRead(MessageRun.of([message._replace(body=None) for message in messages])))


def known(desk: Desk) -> tuple[object, ...]:
    """Return what an engine knows."""
    engine = desk.engine
    held = sorted((one.subject, one.sequence, one.fire_time) for one in engine.held)
    return held, engine.inactive.rejected, engine.inactive.paused, engine.inactive.misnamed, engine.last_message


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("removes_expired", [True, False])
def test_the_same_happens_whether_messages_are_read_alone_or_in_runs(live: bool, removes_expired: bool) -> None:
    rng = seeded()
    for _ in range(60 * EFFORT):
        alone, together = (Desk(live=live, removes_expired=removes_expired) for _ in range(2))
        sequence = 0
        while sequence < 60:
            run = [drawn(rng, sequence + number) for number in range(1, rng.randrange(2, 12))]
            sequence = run[-1].sequence
            alone.step(MessagesRead(run))
            read(together, *run)
            assert together.actions == alone.actions
            assert known(together) == known(alone)
        for desk in (alone, together):
            desk.step(CaughtUp())
        assert together.actions == alone.actions
        assert together.engine.checkpoint(START) == alone.engine.checkpoint(START)


def drawn(rng: random.Random, sequence: int) -> StoredMessage:
    is_known = rng.random() < 0.3
    subject = rng.choice(SUBJECTS) if is_known else f"o.{rng.randrange(3)}"
    block = rng.choice(BLOCKS if is_known else BLOCKS[:1])
    return StoredMessage(subject, sequence, START + sequence * SECOND, block, None)


def test_an_ordinary_message_in_a_run_ends_the_schedule_on_its_subject() -> None:
    desk = Desk(schedule("@every 5s", 1))
    read(desk, ordinary("o.1", 2), ordinary("s.one", 3), ordinary("o.2", 4))
    assert [ended.schedule for ended in desk.reported(ScheduleEnded)] == ["s.one"]
    assert desk.engine.last_message == ordinary("o.2", 4)
