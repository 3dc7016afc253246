"""Crashes, outages, drains: after each of them what came due is stored once, or made up once."""

from dataclasses import replace

from nats_scheduler.engine.events import FiresMissed, ScheduleAccepted, StreamReady
from nats_scheduler.engine.inputs import (
    CaughtUp,
    Checkpoint,
    ContactLost,
    DrainRequested,
    MessagesRead,
    OwnershipChanged,
    Stored,
    Unknown,
)
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, events, fire_times, message_on, schedule, world_holding

EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": "t.out"}
AT_10S = {"Nats-Schedule": "@at 2026-01-01T00:00:10Z", "Nats-Schedule-Target": "t.out"}
EVERY = schedule("@every 5s")


def test_missed_fires_are_made_up_by_the_latest_and_the_grid_goes_on() -> None:
    world = world_holding(EVERY_5S)
    world.advance("7s")
    world.restart("6s")
    assert fire_times(world) == [5, 10]
    assert events(world, FiresMissed) == [], "one that is merely late is not missed"
    world.restart("12s")
    world.advance("5s")
    assert fire_times(world) == [5, 10, 25, 30]
    [missed] = events(world, FiresMissed)
    assert (missed.first, missed.made_up) == (START + 15 * SECOND, START + 25 * SECOND)
    assert not missed.while_running, "no instance ran when they came due"


def test_a_delayed_message_fires_once_however_long_the_outage() -> None:
    world = world_holding(AT_10S)
    world.restart("8760h")
    world.restart("8760h", with_checkpoint=False)
    assert fire_times(world) == [10]


def test_what_a_native_server_generated_is_no_rejected_schedule() -> None:
    left_behind = message_on("t.out", 2, Nats_Scheduler="s.one", Nats_Schedule_Next="2026-01-01T00:00:10Z")
    desk = Desk(schedule("@every 5s"), left_behind)
    assert desk.engine.inactive.rejected == {}


class TestTheCheckpoint:
    """The checkpoint says what an earlier owner settled if the stream cannot: the messages were consumed."""

    def restarted(self, pattern: str, *, through: float, sequence: int = 1, now: float = 22) -> Desk:
        desk = Desk(live=False)
        desk.now = START + int(now * SECOND)
        loaded = Checkpoint(START + int(through * SECOND), sequence)
        desk.step(OwnershipChanged(True, loaded), MessagesRead([schedule(pattern)]), CaughtUp())
        return desk

    def test_what_it_settled_does_not_fire_again_and_what_came_later_does(self) -> None:
        desk = self.restarted("@every 5s", through=20)
        assert (desk.reads, desk.wake) == ([], 24)
        desk = self.restarted("@every 5s", through=19.9)
        desk.found(EVERY)
        assert desk.fire.fire_time == START + 20 * SECOND

    def test_of_delayed_messages_only_what_it_settled_is_purged(self) -> None:
        assert self.restarted("@at 2026-01-01T00:00:10Z", through=10).purges == [("s.one", 1)]
        assert self.restarted("@at 2026-01-01T00:00:10Z", through=20, sequence=0).reads == [("s.one", 1)]

    def test_it_does_not_settle_what_was_not_read(self) -> None:
        """Of a flood into a work queue the last messages are found first: what was due among the others is owed."""
        unread, later = schedule("@at 2026-01-01T00:00:05Z", 2, "s.two"), schedule("@every 5s", 9, "s.nine")
        desk = Desk(EVERY, live=False, reads_all=False)
        desk.step(CaughtUp(1))
        for caught_up, fires in ((CaughtUp(1, is_behind=True), True), (CaughtUp(9), False)):
            desk.step(MessagesRead([later]), caught_up)
            desk.now = START + 6 * SECOND
            settled = desk.engine.checkpoint(desk.now)
            after = Desk(live=False, reads_all=False)
            after.now = START + 60 * SECOND
            after.step(
                OwnershipChanged(True, replace(settled, through=desk.now)),
                MessagesRead([EVERY, unread, later]),
                CaughtUp(9),
            )
            assert (("s.two", 2) in after.reads, ("s.two", 2) in after.purges) == (fires, not fires)

    def test_it_never_passes_a_fire_that_waits_or_is_in_flight(self) -> None:
        desk = Desk(EVERY)
        fire = desk.in_flight(EVERY, 5)
        desk.at(7)
        assert desk.engine.checkpoint(desk.now).through == START + 5 * SECOND - 1
        desk.concluded(fire, Unknown("cut"))
        assert desk.engine.checkpoint(desk.now).through == START + 5 * SECOND - 1
        desk.concluded(fire, Stored(2))
        assert desk.engine.checkpoint(desk.now).through == desk.now
        waiting = Desk(EVERY, live=False)
        assert waiting.engine.checkpoint(START + 60 * SECOND).through < START + 5 * SECOND

    def test_a_schedule_that_was_invalid_then_is_not_settled_by_it(self) -> None:
        """Once the stream's configuration makes it valid, it fires; it is not purged unfired."""
        message = schedule("@at 2026-01-01T00:00:10Z", Nats_Schedule_TTL="5m")
        refusing = Desk(message, allow_msg_ttl=False).at(20)
        settled = refusing.engine.checkpoint(refusing.now)
        assert settled.unsettled == {1}
        desk = Desk(live=False)
        desk.now = refusing.now
        desk.step(OwnershipChanged(True, settled), MessagesRead([message]), CaughtUp())
        assert (desk.purges, desk.reads) == ([], [("s.one", 1)])


def test_lost_contact_holds_everything_until_the_stream_was_read_again() -> None:
    first, second = schedule("@every 5s"), schedule("@every 5s", 2, "s.two")
    desk = Desk(first, second).at(4)
    desk.found(first)
    desk.step(ContactLost("cut"))
    desk.found(second)
    assert desk.at(5).actions == []
    desk.step(CaughtUp())
    assert [fire.sequence for fire in desk.fires] == [1, 2]


def test_a_drain_begins_nothing_and_finishes_what_is_in_flight() -> None:
    first, second = schedule("@at 2026-01-01T00:00:05Z"), schedule("@every 5s", 2, "s.two")
    desk = Desk(first, second).at(5)
    desk.found(first)
    fire = desk.fire
    desk.step(DrainRequested())
    desk.found(second)
    assert (desk.fires, desk.engine.is_idle) == ([], False)
    desk.concluded(fire, Stored(3))
    assert (desk.purges, desk.engine.is_idle) == ([("s.one", 1)], False)
    desk.at(60)
    assert (desk.fires, desk.reads) == ([], [])
    desk.step(ContactLost("cut"), CaughtUp())
    assert (desk.at(120).fires, desk.reads) == ([], []), "a drain outlasts a reconnect"


def test_a_drained_owner_claims_nothing_that_came_due_since() -> None:
    for message in (schedule("@at 2026-01-01T00:00:05Z"), EVERY):
        for looked_at in (False, True):
            desk = Desk(message)
            if looked_at:
                desk.at(4.5)
                desk.found(message)
            desk.step(DrainRequested())
            desk.at(60)
            assert desk.engine.checkpoint(desk.now).through < START + 5 * SECOND, looked_at


def test_the_history_is_counted_once_and_not_announced_one_by_one() -> None:
    desk = Desk(schedule("@every 5s"), schedule("@every nonsense", 2, "s.two"))
    assert [(ready.schedules, ready.rejected) for ready in desk.reported(StreamReady)] == [(1, 1)]
    assert desk.reported(ScheduleAccepted) == []
