"""The last stored fire of a schedule whose policies need it, however that became known."""

from collections.abc import Callable

import pytest

from nats_scheduler.engine.events import FireForged
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import (
    CaughtUp,
    CheckpointLoaded,
    DuplicateRead,
    FiresStored,
    Input,
    MessagesRead,
    PublishConcluded,
    Stored,
    Unknown,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire

SMALL_JITTER = "1ns"
"""A jitter that delays nothing: the schedule is one whose policies need the fire before."""


def treated(pattern: str = "@every 10s") -> StoredMessage:
    return schedule(pattern, Nats_Schedule_X_Jitter=SMALL_JITTER)


def kept(desk: Desk) -> Held:
    held = desk.held()
    assert held.has_history
    return held


def known(desk: Desk) -> tuple[int | None, int, int]:
    """Return what is known of the last stored fire; its times in seconds after the start."""
    held = kept(desk)
    previous = None if held.previous_fire is None else (held.previous_fire - START) // SECOND
    return previous, held.previous_sequence, held.previous_stored_at


def fires_of(message: StoredMessage, number: int) -> list[StoredMessage]:
    """Return the messages that the first fires of a schedule store, each a millisecond after its time."""
    desk = Desk(message)
    stored = []
    for count in range(1, number + 1):
        fire = desk.in_flight(message, 10) if count == 1 else desk.at(10 * count).fire  # its content is kept
        stored.append(stored_fire(fire, 10 + count, fire.fire_time + MILLISECOND))
        desk.concluded(fire, Stored(10 + count))
    return stored


def test_a_schedule_without_policies_keeps_nothing_of_its_fires() -> None:
    desk = Desk(schedule("@every 10s"))
    held = desk.engine.held.on(SCHEDULE)
    assert type(held) is Held


def test_nothing_is_known_before_the_first_fire() -> None:
    assert known(Desk(treated())) == (None, 0, 0)


@pytest.mark.parametrize(
    "answer",
    [lambda fire: PublishConcluded(fire, Stored(7)), lambda fire: FiresStored((fire,), (7,))],
    ids=["concluded", "stored together"],
)
def test_a_fire_that_is_acknowledged_is_known_with_the_time_of_that(answer: Callable[[Fire], Input]) -> None:
    desk = Desk(treated())
    fire = desk.in_flight(treated(), 10)
    assert known(desk)[0] is None
    desk.step(answer(fire))
    assert known(desk) == (10, 7, desk.now)


def test_a_fire_of_ours_that_is_read_back_is_known_with_the_time_of_the_server() -> None:
    desk = Desk(treated())
    fire = desk.in_flight(treated(), 10)
    back = stored_fire(fire, 7, desk.now + MILLISECOND)
    desk.concluded(fire, Stored(7))
    kept(desk).dropped = 3
    desk.read(back)
    assert known(desk) == (10, 7, desk.now + MILLISECOND)
    assert kept(desk).dropped == 3


def test_a_fire_that_is_read_back_before_its_acknowledgement_is_known() -> None:
    desk = Desk(treated())
    fire = desk.in_flight(treated(), 10)
    back = stored_fire(fire, 7, desk.now + MILLISECOND)
    desk.read(back)
    desk.concluded(fire, Stored(7))
    assert known(desk) == (10, 7, back.stored_at)


def test_a_fire_that_was_stored_before_is_known_by_what_the_server_says_of_it() -> None:
    desk = Desk(treated())
    fire = desk.in_flight(treated(), 10)
    back = stored_fire(fire, 7, desk.now)
    desk.concluded(fire, Unknown("timeout"))
    assert known(desk)[0] is None
    desk.at(11)
    desk.concluded(desk.fire, Stored(7, duplicate=True))
    desk.step(DuplicateRead(fire, 7, back, desk.now))
    assert known(desk) == (10, 7, desk.now)


def test_a_fire_of_another_instance_is_known_when_it_is_read_back() -> None:
    (stored,) = fires_of(treated(), 1)
    desk = Desk(treated()).at(10)
    desk.read(stored)
    assert known(desk) == (10, 11, stored.stored_at)


def test_the_next_fire_that_is_stored_resets_what_was_dropped() -> None:
    first, second = fires_of(treated(), 2)
    desk = Desk(treated()).at(20)
    desk.read(first)
    kept(desk).dropped = 2
    desk.read(second)
    assert (known(desk), kept(desk).dropped) == ((20, 12, second.stored_at), 0)


def test_an_older_fire_that_is_read_later_changes_nothing() -> None:
    first, second = fires_of(treated(), 2)
    desk = Desk(treated()).at(20)
    desk.read(second)
    desk.read(first._replace(sequence=13))
    assert known(desk) == (20, 12, second.stored_at)


@pytest.mark.parametrize("settled", [False, True])
def test_at_a_start_the_last_fire_that_the_stream_holds_is_known(settled: bool) -> None:
    """A checkpoint takes the schedule past the fire before that is read; it is known all the same."""
    message = treated()
    first, second = fires_of(message, 2)
    desk = Desk(live=False)
    desk.now = START + 25 * SECOND
    if settled:
        desk.step(CheckpointLoaded(START + 24 * SECOND, 12))
    desk.step(MessagesRead([message, first, second]), CaughtUp())
    assert known(desk) == (20, 12, second.stored_at)
    assert kept(desk).fire_time == START + 30 * SECOND


def test_a_message_that_claims_to_be_an_older_fire_is_not_believed() -> None:
    (first,) = fires_of(treated(), 1)
    desk = Desk(live=False)
    desk.now = START + 25 * SECOND
    desk.step(CheckpointLoaded(START + 24 * SECOND, 12), MessagesRead([treated()]), CaughtUp())
    desk.read(first._replace(subject=f"{TARGET}.else"))
    assert known(desk) == (None, 0, 0)
    assert desk.reported(FireForged)


def test_a_fire_that_counts_as_stored_because_nothing_is_acknowledged_is_known_without_its_sequence() -> None:
    desk = Desk(treated(), silent=True)
    fire = desk.in_flight(treated(), 10)
    second = 10.0
    while kept(desk).previous_fire is None and second < 20:
        desk.concluded(fire, Unknown("no answer"))
        second += 0.5
        desk.at(second)
    assert known(desk)[:2] == (10, 0)
