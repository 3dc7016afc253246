"""A client that may publish to the stream can forge a fire: a forgery prevents no fire and delays no schedule."""

from random import Random

import pytest

from nats_scheduler.engine.events import Ending, FireForged, FireReadBack, FireRefused, ScheduleEnded
from nats_scheduler.engine.fire import ReadDuplicate
from nats_scheduler.engine.firing.building import IDENTITY_HIDDEN
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    DuplicateRead,
    Refused,
    Stored,
    Unanswered,
)
from nats_scheduler.message.headers import with_header
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire
from tests.harness.blocks import block_to_send, block_with

YEAR_9000 = 221_845_392_000 * SECOND
EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": TARGET}
EVERY_10S = {"Nats-Schedule": "@every 10s", "Nats-Schedule-Target": TARGET}
AT_10S = {"Nats-Schedule": "@at 2026-01-01T00:00:10Z", "Nats-Schedule-Target": TARGET}
GENUINE = b"genuine"


def forged(fire_time: int, *, sequence: int = 1, following: str = "", taken: int = 0) -> dict[str, str]:
    """Return the headers of a message that claims to be a fire."""
    headers = {"Nats-Scheduler": SCHEDULE, "Nats-Msg-Id": fire_identity(SCHEDULE, sequence, fire_time, taken)}
    return {**headers, "Nats-Schedule-Next": following} if following else headers


def second(number: float) -> int:
    return START + int(number * SECOND)


def genuine(world: ScheduleWorld) -> list[float]:
    """Return the fire times of the fires that the sidecar stored, in seconds after the start."""
    return [(message.fire_time - START) / SECOND for message in world.generated if message.body == GENUINE]


def reported(world: ScheduleWorld) -> list[FireForged]:
    return [event for event in world.events if isinstance(event, FireForged)]


guards = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])


class TestAForgedFireOfTheYear9000:
    @guards
    @pytest.mark.parametrize("subject", [TARGET, "elsewhere"])
    def test_a_repeating_schedule_fires_on_across_restarts(self, subject: str, *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        world.publish(SCHEDULE, EVERY_5S, GENUINE)
        world.advance("7s")
        world.publish(subject, forged(YEAR_9000, following="9999-01-01T00:00:00Z"))
        world.advance("5s")
        world.restart(with_checkpoint=False)
        world.advance("5s")
        assert genuine(world) == [5, 10, 15]
        fault = "it was stored before its fire time" if subject == TARGET else "it is not on the schedule's target"
        claims = {(event.schedule, event.subject, event.fire_time, event.reason) for event in reported(world)}
        assert claims == {(SCHEDULE, subject, YEAR_9000, fault)}

    @guards
    def test_a_delayed_message_is_not_purged_unfired(self, *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        world.publish(SCHEDULE, AT_10S, GENUINE)
        world.publish("elsewhere", forged(YEAR_9000))
        world.advance("1s")
        world.restart(with_checkpoint=False)
        world.advance("20s")
        assert genuine(world) == [10]
        ended = [event.ending for event in world.events if isinstance(event, ScheduleEnded)]
        assert ended[-1] is Ending.FIRED

    def test_one_that_was_stored_while_nobody_looked_counts_no_more(self) -> None:
        world = ScheduleWorld()
        world.publish(SCHEDULE, EVERY_5S, GENUINE)
        world.lose_contact()
        world.publish(TARGET, forged(YEAR_9000, following="9999-01-01T00:00:00Z"))
        world.regain_contact()
        world.advance("12s")
        assert genuine(world) == [5, 10]


def test_what_claims_a_fire_that_is_past_changes_nothing_and_is_not_reported() -> None:
    message = schedule("@every 5s")
    desk = Desk(message)
    desk.concluded(desk.in_flight(message, 5), Stored(2))
    desk.read(StoredMessage("elsewhere", 3, second(6), block_to_send(forged(second(5))), b""))
    assert desk.reported(FireForged) == []
    assert desk.at(10).fire.fire_time == second(10)


class TestAnIdentityThatIsTakenBeforehand:
    @guards
    @pytest.mark.parametrize(
        ("subject", "following"),
        [("elsewhere", ""), (TARGET, ""), (TARGET, "2026-01-01T00:00:20Z"), (SCHEDULE + ".x", "2026-01-01T00:00:20Z")],
    )
    def test_the_fire_is_stored_all_the_same_and_once(self, subject: str, following: str, *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        world.publish(SCHEDULE, EVERY_10S, GENUINE)
        world.publish(subject, forged(second(10), following=following))
        world.advance("11s")
        world.restart(with_checkpoint=False)
        world.restart(with_checkpoint=False)
        world.advance("10s")
        assert genuine(world) == [10, 20]
        assert reported(world)

    @guards
    def test_a_delayed_message_is_stored_and_then_purged(self, *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        world.publish(SCHEDULE, AT_10S, GENUINE)
        world.stream.publish("elsewhere", block_with(Nats_Msg_Id=fire_identity(SCHEDULE, 1, second(10))))
        world.advance("11s")
        world.restart(with_checkpoint=False)
        assert genuine(world) == [10]
        assert world.stream.last(SCHEDULE) is None

    def test_a_forger_who_foresees_the_second_one_as_well_gains_nothing(self) -> None:
        world = ScheduleWorld()
        world.publish(SCHEDULE, EVERY_10S, GENUINE)
        for taken in (0, 2, 3, 4):
            world.publish("elsewhere", forged(second(10), taken=taken))
        world.advance("11s")
        assert genuine(world) == [10]

    def test_no_identity_of_a_publishers_own_takes_the_place_of_ours(self) -> None:
        """A header that is hidden from the server's search is kept, whatever its value."""
        world = ScheduleWorld()
        own = f"Nats-Msg-Id: {fire_identity(SCHEDULE, 1, second(10))}\r\n"
        lines = "".join(f"{name}: {value}\r\n" for name, value in EVERY_10S.items())
        block = f"NATS/1.0\r\nA: Nats-Msg-IdNats-Msg-Id\r\n{own}{lines}\r\n".encode()
        world.publish(SCHEDULE, block, GENUINE)
        world.publish("elsewhere", forged(second(10)))
        world.advance("11s")
        assert genuine(world) == [10]
        assert [message.block.count(own.encode()) for message in world.stream.messages(TARGET)] == [1]

    def test_two_instances_store_one(self) -> None:
        """Both instances read the same message under the identity, and so choose the same second identity."""
        world = ScheduleWorld()
        world.publish(SCHEDULE, EVERY_10S, GENUINE)
        world.publish("elsewhere", forged(second(10)))
        message = schedule("@every 10s", body=GENUINE)
        desk = Desk(message)
        first = desk.in_flight(message, 10)
        desk.concluded(first, Stored(2, duplicate=True))
        desk.step(DuplicateRead(first, 2, world.stream.message(2), START))
        (again,) = desk.fires
        world.advance("11s")
        assert genuine(world) == [10]
        assert world.stream.publish(again.target, again.block, again.body) == Stored(3, duplicate=True)

    def test_whatever_is_forged_each_fire_is_stored_once(self) -> None:
        for seed in range(20):
            random = Random(seed)
            world = ScheduleWorld(guard=random.random() < 0.5)
            world.publish(SCHEDULE, EVERY_10S, GENUINE)
            for turn in range(10):
                for _ in range(random.randint(0, 4)):
                    time = second(random.choice([10 * turn + 10, 10 * turn + 20, 10 * turn + 17, 9e6]))
                    following = random.choice(["", "2026-01-01T01:00:00Z", "x"])
                    block = block_with(
                        **{
                            name.replace("-", "_"): value
                            for name, value in forged(
                                time, following=following, taken=random.choice([0, 0, 2, 3])
                            ).items()
                        }
                    )
                    world.stream.publish(random.choice([TARGET, "elsewhere"]), block, b"forged")
                world.advance("10s" if random.random() < 0.7 else "8s")
                if random.random() < 0.3:
                    world.restart(with_checkpoint=random.random() < 0.5)
            missed = [number for number in genuine(world) if genuine(world).count(number) > 1]
            due = (world.now - START) // SECOND // 10 * 10
            assert (seed, missed, genuine(world)) == (seed, [], [float(n) for n in range(10, due + 1, 10)])


class TestADuplicate:
    """The server answers that it has the fire already, and under which sequence."""

    def counts_as_stored(self, message: StoredMessage | None, stored_by: int | None, source: str = "") -> bool:
        """Return whether the fire counts as stored."""
        schedule_message = schedule("@every 5s", body=GENUINE, Nats_Schedule_Source=source)
        desk = Desk(schedule_message)
        fire = desk.in_flight(schedule_message, 5)
        desk.concluded(fire, Stored(9, duplicate=True))
        desk.step(DuplicateRead(fire, 9, message, stored_by))
        return not desk.fires

    def other(self, **changes: object) -> StoredMessage:
        following = block_with(
            Nats_Scheduler=SCHEDULE,
            Nats_Schedule_Next="2026-01-01T00:00:10Z",
            Nats_Msg_Id=fire_identity(SCHEDULE, 1, second(5)),
        )
        message = StoredMessage(TARGET, 9, second(5), following, GENUINE)
        return message._replace(**changes)  # type: ignore[arg-type]

    def test_the_fire_of_another_instance_is_stored(self) -> None:
        assert self.counts_as_stored(self.other(), second(5))

    def test_clocks_of_nodes_may_differ(self) -> None:
        earlier = second(0.1)
        assert self.counts_as_stored(self.other(stored_at=earlier), earlier)

    def test_what_lies_there_since_before_its_time_is_not_it(self) -> None:
        earlier = second(-0.1)
        assert not self.counts_as_stored(self.other(stored_at=earlier), earlier)

    @pytest.mark.parametrize(
        "changes",
        [
            {"subject": "elsewhere"},
            {"body": b"forged"},
            {"block": block_with(Nats_Msg_Id=fire_identity(SCHEDULE, 1, START + 5 * SECOND))},
            {"block": b""},
        ],
    )
    def test_what_differs_from_it_is_not_it(self, changes: dict[str, object]) -> None:
        assert not self.counts_as_stored(self.other(**changes), second(5))

    def test_the_body_of_a_sample_may_be_another(self) -> None:
        assert self.counts_as_stored(self.other(body=b"later"), second(5), source="some.source")

    def test_what_is_gone_is_believed_unless_it_was_there_before_its_time(self) -> None:
        assert self.counts_as_stored(None, None)
        assert self.counts_as_stored(None, second(60))
        assert not self.counts_as_stored(None, second(-1))

    def test_where_the_account_maps_the_target_the_very_same_message_is_it(self) -> None:
        message = schedule("@every 5s", body=GENUINE)
        desk = Desk(message)
        fire = desk.in_flight(message, 5)
        desk.concluded(fire, Stored(9, duplicate=True))
        mapped = stored_fire(fire, 9, desk.now)._replace(subject="mapped")
        desk.step(DuplicateRead(fire, 9, mapped, desk.now))
        assert not desk.fires

    def test_what_cannot_be_looked_at_is_sent_again_as_it_was(self) -> None:
        message = schedule("@every 5s", body=GENUINE)
        desk = Desk(message)
        fire = desk.in_flight(message, 5)
        desk.concluded(fire, Stored(9, duplicate=True))
        desk.step(Unanswered(ReadDuplicate(fire, 1), "no answer"))
        assert desk.at(6).fires == [fire]

    def test_a_forgery_that_is_found_without_contact_is_answered_after_it(self) -> None:
        message = schedule("@every 5s", body=GENUINE)
        desk = Desk(message)
        fire = desk.in_flight(message, 5)
        desk.concluded(fire, Stored(9, duplicate=True))
        forgery = stored_fire(fire, 9, desk.now)._replace(subject="elsewhere", body=b"forged")
        desk.step(ContactLost("cut"), DuplicateRead(fire, 9, forgery, desk.now))
        assert desk.fires == []
        desk.step(CaughtUp())
        desk.at(6)
        desk.found(message)
        assert (desk.fire.fire_time, desk.fire.body) == (second(5), GENUINE)
        assert desk.fire is not fire

    def test_a_look_that_contact_ended_over_is_asked_again_behind_it(self) -> None:
        message = schedule("@every 5s", body=GENUINE)
        desk = Desk(message)
        fire = desk.in_flight(message, 5)
        desk.concluded(fire, Stored(9, duplicate=True))
        desk.step(ContactLost("cut"), Unanswered(ReadDuplicate(fire, 1), "cut"))
        assert desk.engine.is_idle


class TestAGeneratedMessage:
    """A message that is read from the stream counts only if it can be a fire."""

    def fired(self, pattern: str, message: StoredMessage) -> bool:
        desk = Desk(schedule(pattern), live=False)
        held = desk.engine.held.on(SCHEDULE)
        assert held is not None
        due = held.fire_time
        desk.read(message)
        return held.fire_time > due

    def message(self, fire_time: int, following: str, *, at: int | None = None, subject: str = TARGET) -> StoredMessage:
        headers = {name.replace("-", "_"): value for name, value in forged(fire_time, following=following).items()}
        return StoredMessage(subject, 2, fire_time if at is None else at, block_with(**headers), None)

    @pytest.mark.parametrize("pattern", ["@every 5s", "*/5 * * * * *"])
    def test_on_the_grid_on_the_target_and_in_time(self, pattern: str) -> None:
        for number in (5, 10, 5_000):
            following = format_rfc3339(second(number + 5))
            assert self.fired(pattern, self.message(second(number), following))
            assert not self.fired(pattern, self.message(second(number) + 1, following))
            assert not self.fired(pattern, self.message(second(number + 1), following))
            assert not self.fired(pattern, self.message(second(number), following, subject="elsewhere"))
            assert not self.fired(pattern, self.message(second(number), following, at=second(number - 6)))
            assert not self.fired(pattern, self.message(second(number), "soon"))
            assert not self.fired(pattern, self.message(second(number), ""))
            assert not self.fired(pattern, self.message(second(number), format_rfc3339(second(number))))

    def test_where_the_stream_moves_subjects_it_may_lie_elsewhere(self) -> None:
        message = self.message(second(5), "2026-01-01T00:00:10Z", subject="moved")
        for moves in (False, True):
            desk = Desk(schedule("@every 5s"), live=False, moves_subjects=moves)
            desk.read(message)
            held = desk.engine.held.on(SCHEDULE)
            assert held is not None
            assert held.fire_time == second(10 if moves else 5)

    def test_its_stamp_may_be_hidden_from_the_server(self) -> None:
        message = self.message(second(5), "2026-01-01T00:00:10Z")
        odd = b"NATS/1.0\r\nA: Nats-SchedulerNats-Scheduler Nats-Schedule-NextNats-Schedule-Next\r\n"
        assert self.fired("@every 5s", message._replace(block=odd + message.block[10:]))

    def test_a_sample_says_nothing_of_lateness_that_cannot_be(self) -> None:
        desk = Desk(schedule("@every 5s"))
        desk.read(
            StoredMessage(
                "elsewhere",
                2,
                START,
                block_with(Nats_Scheduler="s.unknown", Nats_Msg_Id=(fire_identity("s.unknown", 7, YEAR_9000))),
                None,
            )
        )
        assert desk.reported(FireReadBack) == []


def test_one_that_says_purge_is_the_cancel_that_it_is_for_a_native_server_and_is_told_as_such() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(
        StoredMessage(
            "elsewhere",
            2,
            START,
            block_with(
                Nats_Scheduler=SCHEDULE, Nats_Schedule_Next="purge", Nats_Msg_Id=fire_identity(SCHEDULE, 1, YEAR_9000)
            ),
            None,
        )
    )
    assert len(desk.reported(FireForged)) == 1
    assert desk.purges == [(SCHEDULE, 1)]


@pytest.mark.parametrize(
    ("subject", "headers", "refusal"),
    [
        ("s.Nats-Msg-Id.Nats-Expected-Last-Subject-Sequence-Subject", b"", IDENTITY_HIDDEN),
        (SCHEDULE, b"Nats-Trace-Dest: t\r\nNats-Trace-Only: True\r\n", None),
    ],
)
def test_what_the_server_would_not_know_again_is_refused_and_told(
    subject: str, headers: bytes, refusal: Refused | None
) -> None:
    message = schedule("@every 5s", subject=subject)
    message = message._replace(block=b"NATS/1.0\r\n" + headers + with_header(message.block, b"A", b"b")[10:])
    desk = Desk(message)
    desk.at(5)
    desk.found(message)
    reported = [(event.code, event.description) for event in desk.reported(FireRefused)]
    assert reported == ([] if refusal is None else [(refusal.code, refusal.description)])
    assert bool(desk.fires) is (refusal is None)


def test_a_fire_that_takes_another_identity_still_knows_when_its_schedule_was_stored() -> None:
    message = schedule("@at 2026-01-01T00:00:10Z")
    desk = Desk(message)
    fire = desk.in_flight(message, 10)
    desk.concluded(fire, Stored(7, duplicate=True))
    forgery = StoredMessage(TARGET, 7, START, block_with(Nats_Msg_Id=fire_identity(SCHEDULE, 1, START)), b"forged")
    desk.step(DuplicateRead(fire, 7, forgery, START + 10 * SECOND))
    assert desk.fire is not fire
    assert (desk.fire.schedule_stored_at, desk.fire.last) == (START, 1)
