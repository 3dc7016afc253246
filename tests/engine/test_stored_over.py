"""A schedule lives on under what another schedule generated, or a cancel of another one; all else ends it."""

import pytest

from nats_scheduler.engine.events import Ending, FireConfirmed, FireRefused
from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.inputs import ContentFetched, Refused, Stored
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, events, plain, schedule, world_holding
from tests.harness.blocks import block_with

OTHER = "s.other"
EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": TARGET}
AT_20S = {"Nats-Schedule": "@at 2026-01-01T00:00:20Z", "Nats-Schedule-Target": TARGET}
ONTO_IT = {"Nats-Schedule": "@every 3s", "Nats-Schedule-Target": SCHEDULE}
ONCE_ONTO_IT = {"Nats-Schedule": "@at 2026-01-01T00:00:03Z", "Nats-Schedule-Target": SCHEDULE}
AT_10 = schedule("@at 2026-01-01T00:00:10Z", 2)

guards = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])


def fires_of(world: ScheduleWorld, subject: str = SCHEDULE) -> list[float]:
    """Return the fire times of a schedule's fires, in seconds after the start."""
    return [(message.fire_time - START) / SECOND for message in world.generated if message.schedule == subject]


def on_it(world: ScheduleWorld) -> list[int]:
    """Return the sequences of what lies on the schedule's subject."""
    return [message.sequence for message in world.stream.messages(SCHEDULE)]


class TestUnderAnotherMessage:
    @guards
    def test_a_repeating_schedule_fires_at_all_its_times(self, *, guard: bool) -> None:
        world = world_holding(EVERY_5S, b"own", guard=guard)
        world.publish(OTHER, ONTO_IT, b"landed")
        world.advance("31s")
        own = [message for message in world.generated if message.schedule == SCHEDULE]
        assert fires_of(world) == [5, 10, 15, 20, 25, 30]
        assert {message.body for message in own} == {b"own"}
        assert {message.stored_at - message.fire_time for message in own} == {0}
        assert events(world, FireRefused) == []
        seen = [(event.schedule, event.fire_time) for event in events(world, FireConfirmed)]
        assert len(seen) == len(set(seen)), "none is told twice"

    def test_a_delayed_message_fires_and_takes_what_is_over_it_with_it(self) -> None:
        world = world_holding(AT_20S)
        world.publish(OTHER, ONTO_IT)
        world.advance("19s")
        assert len(on_it(world)) == 1 + 6
        world.advance("1500ms")
        assert fires_of(world) == [20]
        assert on_it(world) == []
        world.advance("1s")
        assert len(on_it(world)) == 1  # what lands behind the fire stays

    @pytest.mark.parametrize("with_checkpoint", [True, False])
    def test_it_is_found_again_after_a_restart_and_an_outage(self, *, with_checkpoint: bool) -> None:
        world = world_holding(EVERY_5S)
        world.publish(OTHER, ONCE_ONTO_IT)
        world.advance("8s")
        assert world.stream.last(OTHER) is None  # nobody knows any more what it was
        world.restart(with_checkpoint=with_checkpoint)
        world.advance("13s")
        assert fires_of(world) == [5, 10, 15, 20]
        world.restart(after="11s", with_checkpoint=with_checkpoint)
        world.advance("4s")
        assert fires_of(world) == [5, 10, 15, 20, 30, 35]


class TestWhatEndsIt:
    @guards
    @pytest.mark.parametrize("how", ["pushed out", "rolled up"])
    def test_one_pushed_out_or_rolled_up_by_what_is_over_it_is_gone(self, how: str, *, guard: bool) -> None:
        limits = {"max_msgs_per_subject": 1} if how == "pushed out" else {}
        world = world_holding(EVERY_5S, config=limits, guard=guard)
        world.advance("1s")
        world.publish(OTHER, ONCE_ONTO_IT if limits else {**ONCE_ONTO_IT, "Nats-Schedule-Rollup": "sub"})
        world.advance("21s")
        assert fires_of(world) == []

    def test_what_cannot_be_a_fire_of_another_one_ends_it(self) -> None:
        elsewhere = {"Nats-Scheduler": OTHER, "Nats-Msg-Id": fire_identity(OTHER, 1, START + 5 * SECOND, 7)}
        for headers in (
            {"Nats-Scheduler": OTHER, "Nats-Msg-Id": fire_identity(OTHER, 99, START), "Nats-Schedule-Next": "purge"},
            {"Nats-Scheduler": SCHEDULE, "Nats-Msg-Id": fire_identity(SCHEDULE, 2, START - SECOND)},
            {"Nats-Msg-Id": fire_identity(OTHER, 1, START)},
            {"Nats-Scheduler": OTHER},
            {**elsewhere, "Nats-Schedule-Next": "2026-01-01T00:00:10Z"},
        ):
            world = ScheduleWorld()
            world.publish(OTHER, EVERY_5S)
            world.publish(SCHEDULE, AT_20S)
            world.advance("6s")
            world.publish(SCHEDULE, headers)
            world.advance("15s")
            assert 20 not in fires_of(world), headers


def generated(sequence: int, at: float = 0) -> StoredMessage:
    """Make the fire of another schedule, which is not held any more, on the schedule's subject."""
    headers = {"Nats_Scheduler": OTHER, "Nats_Schedule_Next": "purge", "Nats_Msg_Id": fire_identity(OTHER, 1, START)}
    return StoredMessage(SCHEDULE, sequence, START + int(at * SECOND), block_with(**headers), b"")


def wanted(desk: Desk) -> list[tuple[int, str | None, bool, int]]:
    """Return what the last step wants to read: sequence, source, whether the sequence will do, and above what."""
    return [(read.sequence, read.source, read.by_sequence, read.above) for read in desk.asked(FetchContent)]


class TestOneStepAtATime:
    def test_the_guard_of_its_fire_expects_what_is_over_it(self) -> None:
        desk = Desk(AT_10, generated(5))
        assert wanted(desk.at(9.9)) == []
        assert wanted(desk.at(9.96)) == [(2, None, False, 5)]
        desk.found(AT_10)
        fire = desk.at(10).fire
        assert b"Nats-Expected-Last-Subject-Sequence: 5\r\n" in fire.block
        assert (fire.sequence, fire.last) == (2, 5)

    def test_what_was_stored_over_it_unseen_is_found_when_the_guard_refuses(self) -> None:
        desk = Desk(AT_10)
        fire = desk.in_flight(AT_10, 10)
        for landed in (5, 6, 7):
            before = landed - 1 if landed > 5 else 2
            desk.concluded(fire, Refused(400, 10071, f"wrong last sequence: {landed}"))
            assert wanted(desk) == [(2, None, False, 0)]
            desk.found(generated(landed), of=AT_10)
            assert wanted(desk) == [(2, None, False, before)]
            desk.step(ContentFetched(SCHEDULE, 2, AT_10, None, generated(landed)))
            assert wanted(desk) == [(2, None, False, landed)]
            desk.found(AT_10)
            fire = desk.fire
            assert b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % landed in fire.block
            assert not desk.reported(FireRefused)
        desk.concluded(fire, Stored(30))
        assert desk.purges == [(SCHEDULE, 7)]

    def test_an_ordinary_message_ends_it_also_under_another_unseen_one(self) -> None:
        desk = Desk(AT_10)
        desk.concluded(desk.in_flight(AT_10, 10), Refused(400, 10071, "wrong last sequence: 7"))
        desk.found(generated(7), of=AT_10)
        desk.step(ContentFetched(SCHEDULE, 2, AT_10, None, plain(SCHEDULE, 6)))
        assert (desk.endings, desk.fires) == ([Ending.OVERWRITTEN], [])

    def test_a_replacement_that_was_not_received_yet_is_found_under_a_fire(self) -> None:
        message, newer = schedule("@at 2026-01-01T00:00:10Z", 2), schedule("@at 2026-01-01T00:00:30Z", 6)
        desk = Desk(message, generated(5), reads_all=False).at(9.96)
        assert wanted(desk) == [(2, None, False, 2)]
        desk.step(ContentFetched(SCHEDULE, 2, message, None, generated(5)))
        assert wanted(desk) == [(2, None, False, 5)]
        desk.read(generated(7))  # and not what lies under it
        desk.step(ContentFetched(SCHEDULE, 2, message, None, newer))
        assert desk.at(10).fires == []
        assert desk.held().sequence == 6
