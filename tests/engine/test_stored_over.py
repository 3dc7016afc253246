"""A schedule lives on under what another schedule generated, or a cancel of another one; all else ends it."""

import pytest

from nats_scheduler.engine.events import Ending, FireConfirmed, FireRefused
from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.inputs import ContactLost, ContentFetched, FiresStored, PurgeConcluded, Refused, Stored
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, events, plain, schedule, stored_fire, world_holding
from tests.harness.blocks import block_with

OTHER = "s.other"
EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": TARGET}
AT_20S = {"Nats-Schedule": "@at 2026-01-01T00:00:20Z", "Nats-Schedule-Target": TARGET}
AT_40S = {"Nats-Schedule": "@at 2026-01-01T00:00:40Z", "Nats-Schedule-Target": TARGET}
ONTO_IT = {"Nats-Schedule": "@every 3s", "Nats-Schedule-Target": SCHEDULE}
ONCE_ONTO_IT = {"Nats-Schedule": "@at 2026-01-01T00:00:03Z", "Nats-Schedule-Target": SCHEDULE}
LATER_ONTO_IT = {"Nats-Schedule": "@at 2026-01-01T00:00:06Z", "Nats-Schedule-Target": SCHEDULE}
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

    @guards
    def test_a_delayed_message_fires_and_takes_what_is_over_it_with_it(self, *, guard: bool) -> None:
        world = world_holding(AT_20S, guard=guard)
        world.publish(OTHER, ONTO_IT)
        world.advance("19s")
        assert len(on_it(world)) == 1 + 6
        world.advance("1500ms")
        assert fires_of(world) == [20]
        assert on_it(world) == []
        world.advance("1s")
        assert len(on_it(world)) == 1  # what lands behind the fire stays

    @guards
    @pytest.mark.parametrize("with_checkpoint", [True, False])
    def test_it_is_found_again_after_a_restart_and_made_up_for_after_an_outage(
        self, *, guard: bool, with_checkpoint: bool
    ) -> None:
        world = world_holding(EVERY_5S, guard=guard)
        world.publish(OTHER, ONCE_ONTO_IT)
        world.advance("8s")
        assert world.stream.last(OTHER) is None  # nobody knows any more what it was
        world.restart(with_checkpoint=with_checkpoint)
        world.advance("13s")
        assert fires_of(world) == [5, 10, 15, 20]
        world.restart(after="11s", with_checkpoint=with_checkpoint)
        world.advance("4s")
        assert fires_of(world) == [5, 10, 15, 20, 30, 35]

    def test_a_sampled_fire_is_no_other(self) -> None:
        world = ScheduleWorld()
        world.publish("q", b"", b"sample")
        world.publish(SCHEDULE, {**EVERY_5S, "Nats-Schedule-Source": "q"})
        world.publish(OTHER, ONTO_IT)
        world.advance("11s")
        assert [message.body for message in world.generated if message.schedule == SCHEDULE] == [b"sample", b"sample"]

    def test_two_that_fire_onto_each_other_live_on(self) -> None:
        world = world_holding({**EVERY_5S, "Nats-Schedule-Target": OTHER})
        world.publish(OTHER, {**EVERY_5S, "Nats-Schedule-Target": SCHEDULE})
        world.advance("26s")
        assert fires_of(world) == fires_of(world, OTHER) == [5, 10, 15, 20, 25]

    @guards
    def test_a_cancel_of_another_one_leaves_it_alive(self, *, guard: bool) -> None:
        world = world_holding(AT_20S, guard=guard)
        world.publish(OTHER, AT_40S)
        world.publish(SCHEDULE, {"Nats-Scheduler": OTHER, "Nats-Schedule-Next": "purge"})
        world.advance("41s")
        assert fires_of(world) == [20]
        assert fires_of(world, OTHER) == []
        assert on_it(world) == []

    def test_a_cancel_of_itself_ends_it(self) -> None:
        world = world_holding(AT_20S)
        world.publish(OTHER, ONCE_ONTO_IT)
        world.advance("5s")
        world.publish("cancels", {"Nats-Scheduler": SCHEDULE, "Nats-Schedule-Next": "purge"})
        world.advance("20s")
        assert fires_of(world) == on_it(world) == []


class TestWhatEndsIt:
    @guards
    @pytest.mark.parametrize("way", ["plain", "replaced", "deleted", "purged", "its own deleted"])
    def test_what_ends_any_schedule_ends_one_that_is_covered(self, way: str, *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        own = world.publish(SCHEDULE, AT_20S)
        world.publish(OTHER, ONCE_ONTO_IT)
        world.advance("5s")
        if way == "plain":
            world.publish(SCHEDULE)
        elif way == "replaced":
            world.publish(SCHEDULE, AT_40S)
        elif way == "purged":
            world.purge(SCHEDULE)
        else:
            world.delete(own)
        world.publish(OTHER, LATER_ONTO_IT)
        world.advance("20s")
        assert fires_of(world) == []

    @guards
    def test_it_is_not_fired_where_only_itself_was_removed_shortly_before(self, *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        own = world.publish(SCHEDULE, AT_20S)
        world.publish(OTHER, ONCE_ONTO_IT)
        world.advance("19940ms")
        world.stream.delete(own)  # and nobody saw the request
        world.advance("5s")
        assert fires_of(world) == []
        assert len(on_it(world)) == 1

    @guards
    @pytest.mark.parametrize("how", ["pushed out", "rolled up"])
    def test_one_that_was_pushed_out_or_rolled_up_by_what_is_over_it_is_gone(self, how: str, *, guard: bool) -> None:
        limits = {"max_msgs_per_subject": 1} if how == "pushed out" else {}
        world = world_holding(EVERY_5S, config=limits, guard=guard)
        world.advance("1s")
        world.publish(OTHER, ONCE_ONTO_IT if limits else {**ONCE_ONTO_IT, "Nats-Schedule-Rollup": "sub"})
        world.advance("21s")
        assert fires_of(world) == []

    @guards
    def test_what_was_over_it_and_is_gone_counts_no_more(self, *, guard: bool) -> None:
        world = world_holding(AT_20S, guard=guard)
        world.publish(OTHER, ONCE_ONTO_IT)
        world.advance("5s")
        world.stream.delete(on_it(world)[-1])
        world.advance("16s")
        assert fires_of(world) == [20]
        assert events(world, FireRefused) == []

    def test_what_cannot_be_a_fire_of_another_one_ends_it(self) -> None:
        elsewhere = {"Nats-Scheduler": OTHER, "Nats-Msg-Id": fire_identity(OTHER, 1, START + 5 * SECOND, 7)}
        for headers in (
            {"Nats-Scheduler": OTHER, "Nats-Msg-Id": fire_identity(OTHER, 99, START), "Nats-Schedule-Next": "purge"},
            {"Nats-Scheduler": OTHER, "Nats-Msg-Id": fire_identity(OTHER, 1, START + 3600 * SECOND)},
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
    def test_the_guard_expects_what_is_over_it_and_it_is_looked_at_shortly_before_its_fire(self) -> None:
        desk = Desk(AT_10, generated(5))
        assert wanted(desk.at(9.9)) == []
        assert wanted(desk.at(9.96)) == [(2, None, False, 5)]
        desk.found(AT_10)
        fire = desk.at(10).fire
        assert b"Nats-Expected-Last-Subject-Sequence: 5\r\n" in fire.block
        assert (fire.sequence, fire.last) == (2, 5)

    def test_what_lands_while_it_is_ready_has_it_looked_at_again(self) -> None:
        desk = Desk(AT_10).at(9.5)
        desk.found(AT_10)
        desk.read(generated(5))
        assert desk.at(9.96).reads == [(SCHEDULE, 2)]
        desk.found(AT_10)
        assert b"Nats-Expected-Last-Subject-Sequence: 5\r\n" in desk.at(10).fire.block

    def test_what_was_stored_over_it_unseen_is_found_when_the_guard_refuses(self) -> None:
        desk = Desk(AT_10)
        fire = desk.in_flight(AT_10, 10)
        for landed in range(5, 20):
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
        assert desk.purges == [(SCHEDULE, 19)]

    def test_what_was_refused_takes_another_identity_where_its_own_is_blocked(self) -> None:
        desk = Desk(AT_10, blocks_refused=True)
        fire = desk.in_flight(AT_10, 10)
        assert b"Nats-Expected-Last-Subject-Sequence: 2\r\n" in fire.block
        desk.concluded(fire, Refused(400, 10071, "wrong last sequence: 5"))
        desk.read(generated(5))
        desk.found(AT_10)  # by a leader that is behind what was read
        assert fire_identity(SCHEDULE, 2, START + 10 * SECOND, 2).encode() in desk.fire.block
        assert b"Nats-Expected-Last-Subject-Sequence" not in desk.fire.block
        for blocks_refused, code in ((True, 10077), (False, 10071)):
            other = Desk(AT_10, blocks_refused=blocks_refused)
            other.concluded(other.in_flight(AT_10, 10), Refused(400, code, "refused"))
            other.read(generated(5))
            other.at(11)
            other.found(AT_10)
            assert fire_identity(SCHEDULE, 2, START + 10 * SECOND).encode() + b"\r\n" in other.fire.block, "it keeps it"

    @pytest.mark.parametrize("is_under", [True, False])
    def test_an_ordinary_message_that_is_found_ends_it_also_under_another_unseen_one(self, is_under: bool) -> None:
        desk = Desk(AT_10)
        desk.concluded(desk.in_flight(AT_10, 10), Refused(400, 10071, "wrong last sequence: 7"))
        if is_under:
            desk.found(generated(7), of=AT_10)
            desk.step(ContentFetched(SCHEDULE, 2, AT_10, None, plain(SCHEDULE, 6)))
        else:
            desk.found(plain(SCHEDULE, 7), of=AT_10)
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

    def test_a_fire_of_an_earlier_version_lies_there_only_if_the_stream_moves_it(self) -> None:
        headers = {"Nats_Scheduler": SCHEDULE, "Nats_Schedule_Next": "purge"}
        block = block_with(**headers, Nats_Msg_Id=fire_identity(SCHEDULE, 1, START))
        for moves_subjects in (True, False):
            desk = Desk(AT_10, moves_subjects=moves_subjects)
            desk.read(StoredMessage(SCHEDULE, 5, START, block, b""))
            assert desk.is_held() is moves_subjects

    def test_what_lands_behind_its_fire_stays(self) -> None:
        desk = Desk(AT_10, generated(5))
        fire = desk.in_flight(AT_10, 10)
        desk.read(generated(8))
        desk.concluded(fire, Stored(7))
        assert desk.purges == [(SCHEDULE, 5)]
        desk.read(generated(9))
        assert desk.is_held()

    def test_what_lands_before_its_fire_is_purged_besides_what_its_acknowledgement_had_purged(self) -> None:
        for landed, purges in ((6, [(SCHEDULE, 6)]), (8, [])):
            desk = Desk(AT_10, generated(5))
            fire = desk.in_flight(AT_10, 10)
            assert fire.purge_through == 5
            desk.read(generated(landed))
            desk.step(FiresStored([fire], [7]))
            assert desk.purges == purges
            desk.step(*(PurgeConcluded(SCHEDULE, through) for through in (5, *(one for _, one in purges))))
            assert (desk.endings, desk.engine.is_idle) == ([Ending.FIRED], True)

    def test_what_lands_behind_a_fire_that_is_not_the_last_is_expected_by_the_next_one(self) -> None:
        every = schedule("@every 10s", 2, Nats_Schedule_X_Limit="3")
        desk = Desk(every, generated(5))
        fire = desk.in_flight(every, 10)
        desk.read(generated(8))
        desk.concluded(fire, Stored(7))
        assert desk.due == 20
        assert wanted(desk.at(19.96)) == [(2, None, False, 8)]

    def test_what_is_acknowledged_lands_as_well(self) -> None:
        onto = schedule("@at 2026-01-01T00:00:05Z", 3, OTHER, Nats_Schedule_Target=SCHEDULE)
        desk = Desk(schedule("@at 2026-01-01T00:00:10Z", 2), onto)
        fire = desk.in_flight(onto, 5)
        desk.concluded(fire, Stored(7))
        desk.read(stored_fire(fire, 7, desk.now))
        assert desk.is_held()
        assert desk.at(9.9).reads == []

    def test_a_lost_contact_has_it_looked_at_again(self) -> None:
        desk = Desk(AT_10, generated(5)).at(9.96)
        desk.found(AT_10)
        desk.step(ContactLost("cut"))
        assert desk.at(9.97).reads == []
