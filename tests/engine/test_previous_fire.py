"""The last stored fire of a schedule whose policies need it, however that became known."""

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import (
    CaughtUp,
    Checkpoint,
    FiresStored,
    MessagesRead,
    OwnershipChanged,
    PublishConcluded,
    Stored,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, schedule, stored_fire

TREATED = schedule("@every 10s", Nats_Schedule_X_Jitter="1ns")
"""A jitter that delays nothing: the schedule is one whose policies need the fire before."""
NOTHING = (None, 0, 0)


def known(desk: Desk) -> tuple[int | None, int, int]:
    """Return what is known of the last stored fire; its times in seconds after the start."""
    held = desk.held()
    assert held.has_history
    previous = None if held.previous_fire is None else (held.previous_fire - START) // SECOND
    return previous, held.previous_sequence, held.previous_stored_at


def in_flight() -> tuple[Desk, Fire]:
    desk = Desk(TREATED)
    assert known(desk) == NOTHING
    fire = desk.in_flight(TREATED, 10)
    assert known(desk) == NOTHING
    return desk, fire


def two_fires() -> list[StoredMessage]:
    """Return the messages that the first two fires store, each a millisecond after its time."""
    desk, fire = in_flight()
    first = stored_fire(fire, 11, fire.fire_time + MILLISECOND)
    desk.concluded(fire, Stored(11))
    fire = desk.at(20).fire  # its content is kept
    return [first, stored_fire(fire, 12, fire.fire_time + MILLISECOND)]


def test_a_fire_that_is_acknowledged_is_known_with_the_time_of_that() -> None:
    for together in (True, False):
        desk, fire = in_flight()
        desk.step(FiresStored((fire,), (7,)) if together else PublishConcluded(fire, Stored(7)))
        assert known(desk) == (10, 7, desk.now)


def test_a_fire_of_ours_that_is_read_back_is_known_with_the_time_of_the_server() -> None:
    for is_acknowledged_first in (True, False):
        desk, fire = in_flight()
        back = stored_fire(fire, 7, desk.now + MILLISECOND)
        if is_acknowledged_first:
            desk.concluded(fire, Stored(7))
            desk.held().dropped = 3
        desk.read(back)
        if not is_acknowledged_first:
            desk.concluded(fire, Stored(7))
        assert known(desk) == (10, 7, back.stored_at)
        assert desk.held().dropped == (3 if is_acknowledged_first else 0)


def test_the_fires_of_another_instance_are_known_when_they_are_read_back_and_reset_what_was_dropped() -> None:
    first, second = two_fires()
    desk = Desk(TREATED).at(20)
    desk.read(first)
    assert known(desk) == (10, 11, first.stored_at)
    desk.held().dropped = 2
    desk.read(second)
    assert (known(desk), desk.held().dropped) == ((20, 12, second.stored_at), 0)
    desk.read(first._replace(sequence=13))
    assert known(desk) == (20, 12, second.stored_at), "an older one that is read later changes nothing"


def test_at_a_start_the_last_fire_that_the_stream_holds_is_known() -> None:
    """A checkpoint takes the schedule past the fire before that is read; it is known all the same."""
    first, second = two_fires()
    for checkpoint in (None, SETTLED):
        desk = Desk(live=False)
        desk.now = START + 25 * SECOND
        desk.step(OwnershipChanged(True, checkpoint), MessagesRead([TREATED, first, second]), CaughtUp())
        assert (known(desk), desk.due) == ((20, 12, second.stored_at), 30)


SETTLED = Checkpoint(START + 24 * SECOND, 12)
