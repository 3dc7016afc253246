"""Messages that are read many at once, as a list or as a run, mean what each of them means alone."""

from random import Random
from typing import Any

import pytest

from nats_scheduler.engine.holding.schedule_rows import row_of
from nats_scheduler.engine.inputs import CaughtUp, MessagesRead
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, schedule
from tests.harness.blocks import block_with
from tests.harness.seeds import generator, seeds

BLOCKS = [
    block_with(A="1"),
    block_with(Nats_Marker_Reason="MaxAge"),
    block_with(Nats_Schedule="@every 5s", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule="soon", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule_X_Paused="@every 5s", Nats_Schedule_Target="t.out"),
    block_with(nats_schedule="@every 5s"),
    block_with(Nats_Scheduler="s.1", Nats_Schedule_Next="purge"),
]


def ordinary(random: Random, sequence: int) -> StoredMessage:
    subject = random.choice(["s.1", *["o.1", "o.2"] * 10])
    return StoredMessage(subject, sequence, START, block_with(Nats_Msg_Size="0"), None)


def odd(random: Random, sequence: int) -> StoredMessage:
    return StoredMessage(f"s.{random.randrange(60)}", sequence, START, random.choice(BLOCKS), None)


def at_schedule(random: Random, sequence: int) -> StoredMessage:
    """Draw a schedule as programs store many; some have what most do not have."""
    due, target = START + random.choice([2, 3]) * DAY, f"t.{random.randrange(50)}"
    more, subject = {"Nats_Msg_Size": "5"}, f"s.{random.randrange(60)}"
    match random.randrange(60):
        case 0:
            more["Nats_TTL"] = "1h"
        case 1:
            more["Nats_Msg_Size"] = "900000"
        case 2:
            target = subject
        case 3:
            more["A"] = "x" * 600
        case 4:
            due = START + SECOND
    headers = {"Nats_Schedule": f"@at {format_rfc3339(due)}", "Nats_Schedule_Target": target, **more}
    return StoredMessage(subject, sequence, START + sequence, block_with(**headers), None)


def some(random: Random, sequence: int) -> StoredMessage:
    return random.choice([at_schedule, at_schedule, ordinary, odd])(random, sequence)


def known(desk: Desk) -> tuple[object, ...]:
    """Return what an engine knows."""
    engine = desk.engine
    rows = sorted(map(row_of, engine.held), key=repr)
    return rows, engine.inactive.rejected, engine.inactive.paused, engine.inactive.misnamed, engine.last_message


@pytest.mark.parametrize(
    ("live", "options"),
    [
        (True, {}),
        (False, {}),
        (False, {"max_age": 5 * DAY // 2}),
        (True, {"removes_expired": True}),
        (False, {"allow_msg_ttl": False}),
    ],
)
def test_many_messages_read_at_once_mean_what_each_means_alone(live: bool, options: dict[str, Any]) -> None:
    for seed in seeds(1):
        random = generator((seed, live, *options))
        alone, as_list, as_run = desks = [Desk(live=live, **options) for _ in range(3)]
        sequence = 0
        while sequence < 150:
            draw = random.choice([at_schedule, at_schedule, ordinary, some])
            messages = [draw(random, sequence + number) for number in range(1, random.randrange(2, 12))]
            sequence = messages[-1].sequence
            for message in messages:
                alone.read(message)
            as_list.read(*messages)
            as_run.step(MessagesRead(MessageRun.of(messages)))
            assert as_run.actions == as_list.actions
            if sequence % 4 == 0:  # this takes long
                assert known(as_run) == known(as_list)
        assert known(as_run) == known(as_list) == known(alone), f"seed {seed}"
        for desk in desks:
            desk.step(CaughtUp())
        assert as_run.actions == as_list.actions == alone.actions
        assert as_run.engine.checkpoint(START) == as_list.engine.checkpoint(START) == alone.engine.checkpoint(START)


def test_an_instant_of_long_ago_that_no_row_can_have_is_held_and_named() -> None:
    desk = Desk(schedule("@at 1600-01-01T00:00:00Z"))
    desk.engine.held.write_changed(9)
    assert desk.is_held()
    assert [*desk.engine.held.unwritten] == [1]
