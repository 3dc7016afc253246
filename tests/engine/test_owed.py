"""The fires that a schedule with `X-Missed: all` owes after a crash or a take-over, also if little is known of them."""

import pytest

from nats_scheduler.engine.events import FireRefused
from nats_scheduler.engine.inputs import (
    CaughtUp,
    CheckpointLoaded,
    MessagesRead,
    PublishConcluded,
    Refused,
    ShardsHeld,
    Stored,
)
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, shard_of
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire
from tests.engine.missed_builders import fired, policies, stored_in, world_of


def test_after_a_crash_in_a_backlog_the_rest_of_it_is_made_up() -> None:
    message = stored_in("@every 10s", policies("all"))
    desk = Desk(message).at(55)
    desk.found(message)
    first = desk.fire
    back = stored_fire(first, 2, desk.now)
    desk.concluded(first, Stored(2))
    assert desk.fire.fire_time == START + 20 * SECOND
    checkpoint = desk.engine.checkpoint(desk.now)
    assert checkpoint.through < START + 20 * SECOND, "what waits behind a fire in flight is not settled"
    after = Desk(live=False)
    after.now = START + 60 * SECOND
    after.step(checkpoint, MessagesRead([message, back]), CaughtUp())
    after.found(message)
    assert after.fire.fire_time == START + 20 * SECOND


def test_without_any_trace_of_earlier_fires_only_the_latest_is_made_up() -> None:
    """A first sidecar on an old stream, or one whose bucket and fires are gone: no backlog is invented."""
    world = world_of("@every 1m", policies("all"))
    world.advance("2m30s")
    world.purge(TARGET)
    world.restart("10m", with_checkpoint=False)
    assert fired(world) == [1, 2, 12]
    world.restart("3m")
    assert fired(world) == [1, 2, 12, 13, 14, 15]


@pytest.mark.parametrize("through", [START - SECOND, -1])
def test_a_schedule_that_no_holder_had_read_makes_up_each_fire(through: int) -> None:
    """It was stored while no sidecar ran: a checkpoint shows that, and without one nothing does."""
    message = stored_in("@every 10s", policies("all"), sequence=5)
    desk = Desk(live=False)
    desk.now = START + 35 * SECOND
    desk.step(CheckpointLoaded(through, 4 if through > 0 else 0), MessagesRead([message]), CaughtUp())
    desk.found(message)
    assert desk.fire.fire_time == START + (10 if through > 0 else 30) * SECOND


def test_what_consumers_removed_is_not_made_up_again_if_a_checkpoint_settles_it() -> None:
    world = world_of("@every 1m", policies("all"))
    world.advance("5m30s")
    world.purge(TARGET)
    world.restart("3m")
    assert fired(world) == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("reads_all", [True, False])
def test_a_refused_backlog_is_named_with_its_first_fire(reads_all: bool) -> None:
    """Its schedule is an exception of the checkpoint; without the fire time all since its storage would be owed."""
    message = stored_in("@every 10s", policies("all"))
    desk = Desk(message, reads_all=reads_all)
    for second in (10, 20):
        fire = desk.in_flight(message, second) if second == 10 else desk.at(second).fire
        desk.concluded(fire, Stored(second))
    desk.at(30)
    desk.concluded(desk.fire, Refused(503, 10077, "maximum messages exceeded"))
    assert desk.reported(FireRefused)
    desk.at(55)
    checkpoint = desk.engine.checkpoint(desk.now)
    assert (checkpoint.through, checkpoint.unsettled) == (desk.now, frozenset({1}))
    assert checkpoint.owed == {1: START + 30 * SECOND}
    after = Desk(live=False, reads_all=reads_all)
    after.now = START + 61 * SECOND
    after.step(checkpoint, MessagesRead([message]), CaughtUp())
    after.found(message)
    assert after.fire.fire_time == START + 30 * SECOND


def test_a_first_fire_that_is_none_of_the_schedule_is_not_believed() -> None:
    message = stored_in("@every 10s", policies("all"))
    desk = Desk(live=False)
    desk.now = START + 61 * SECOND
    forged = CheckpointLoaded(START + 55 * SECOND, 1, frozenset({1}), owed={1: START + 31 * SECOND})
    desk.step(forged, MessagesRead([message]), CaughtUp())
    desk.found(message)
    assert desk.fire.fire_time == START + 60 * SECOND


def test_of_a_schedule_that_was_an_exception_for_another_reason_no_backlog_is_owed() -> None:
    """It was rejected when the checkpoint was written: what came due then was not owed."""
    message = stored_in("@every 10s", policies("all"))
    desk = Desk(live=False)
    desk.now = START + 61 * SECOND
    desk.step(CheckpointLoaded(START + 55 * SECOND, 1, frozenset({1})), MessagesRead([message]), CaughtUp())
    desk.found(message)
    assert desk.fire.fire_time == START + 60 * SECOND


def test_a_take_over_without_a_checkpoint_owes_nothing_where_fires_are_consumed() -> None:
    """The fires of the earlier holder cannot be seen there."""
    message = stored_in("@every 10s", policies("all"))
    shard = shard_of(SCHEDULE)
    desk = Desk(message, reads_all=False)
    desk.step(ShardsHeld(ALL_SHARDS - {shard}))
    desk.at(35)
    desk.step(ShardsHeld(ALL_SHARDS))
    desk.found(message)
    assert desk.fire.fire_time == START + 30 * SECOND


def test_a_take_over_goes_on_behind_the_checkpoint_of_the_earlier_holder() -> None:
    message = stored_in("@every 10s", policies("all"))
    shard = shard_of(SCHEDULE)
    desk = Desk(message, reads_all=False)
    desk.step(ShardsHeld(ALL_SHARDS - {shard}))
    desk.at(65)
    desk.step(CheckpointLoaded(START + 45 * SECOND, 1), ShardsHeld(ALL_SHARDS))
    desk.found(message)
    assert desk.fire.fire_time == START + 50 * SECOND
    desk.concluded(desk.fire, Stored(2))
    assert desk.fire.fire_time == START + 60 * SECOND


def test_a_checkpoint_has_room_for_fewer_exceptions_that_name_their_first_fire() -> None:
    messages = [
        schedule("@every 10s", number, f"s.{number}", Nats_Schedule_X_Missed="all") for number in range(1, 3_001)
    ]
    desk = Desk(*messages).at(10)
    while desk.reads:
        reads = desk.reads
        desk.step()
        for subject, sequence in reads:
            desk.found(messages[sequence - 1])
            assert subject == messages[sequence - 1].subject
            for fire in desk.fires:
                desk.step(PublishConcluded(fire, Refused(503, 10077, "maximum messages exceeded")))
        desk.step()
    checkpoint = desk.engine.checkpoint(desk.now)
    assert 0 < len(checkpoint.owed) <= 32 * 64 // 3
    assert set(checkpoint.owed) == checkpoint.unsettled
    assert checkpoint.through == START + 10 * SECOND - 1, "what it has no room for bounds its instant"
