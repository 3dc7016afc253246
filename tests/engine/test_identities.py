"""A fire whose identity the server keeps in process goes on under the next one, and is stored once."""

import pytest

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.engine.events import FireStored, FireUnknown
from nats_scheduler.engine.fire import AwaitProposals
from nats_scheduler.engine.firing import identities
from nats_scheduler.engine.inputs import (
    DuplicateFetched,
    Input,
    Outcome,
    ProposalsApplied,
    Refused,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule
from tests.harness.blocks import block_with

DUE_SECONDS = 20


GENUINE = b"genuine"
IN_PROCESS = Unknown("in process", in_process=True)


def blocked_world(*numbers: int) -> ScheduleWorld:
    """Begin a world on a stream with replicas, and block identities of its fire, as any client can that may publish.

    A refusal keeps the identity for two minutes.
    """
    world = ScheduleWorld(config=REPLICATED)
    world.publish(SCHEDULE, {"Nats-Schedule": f"@every {DUE_SECONDS}s", "Nats-Schedule-Target": TARGET}, GENUINE)
    for taken in numbers:
        guard = {"Nats-Expected-Last-Subject-Sequence": "999"}
        with pytest.raises(RefusedError, match="wrong last sequence"):
            world.publish("elsewhere", {"Nats-Msg-Id": fire_identity(SCHEDULE, 1, second(DUE_SECONDS), taken), **guard})
    world.advance_to(second(DUE_SECONDS + 1))
    return world


def test_who_blocks_identities_delays_a_fire_by_less_than_a_second() -> None:
    for blocked in (1, 2, 6):
        assert [generated.body for generated in blocked_world(*range(blocked)).generated] == [GENUINE], blocked


def test_what_was_stored_under_another_identity_is_not_stored_again() -> None:
    world = blocked_world(0)
    world.stream.take(TARGET)
    world.restart(with_checkpoint=False)
    world.advance_to(second(2 * DUE_SECONDS - 1))
    assert len(world.generated) == 1
    assert world.next_fire(SCHEDULE) == second(2 * DUE_SECONDS)


WRONG_LAST = Refused(400, 10071, "wrong last sequence: 9")
REPLICATED = {"num_replicas": 3}


def second(number: float) -> int:
    return START + round(number * SECOND)


def identity(taken: int = 0, fire_time: float = DUE_SECONDS, sequence: int = 1) -> bytes:
    return fire_identity(SCHEDULE, sequence, second(fire_time), taken).encode() + b"\r\n"


class Scene:
    """One engine with one schedule that fires at 20 s, and its attempts."""

    def __init__(self, pattern: str = f"@every {DUE_SECONDS}s", **more: bool) -> None:
        self.message = schedule(pattern, body=GENUINE)
        self.desk = Desk(self.message, **{"blocks_refused": True, **more})
        self.fire = self.desk.in_flight(self.message, DUE_SECONDS)

    def fails(self, outcome: Outcome = IN_PROCESS) -> list[AwaitProposals]:
        """Answer the attempt; return what the leader is asked."""
        self.desk.concluded(self.fire, outcome)
        return self.desk.asked(AwaitProposals)

    def sends(self, seconds: float) -> bytes:
        """Step at an instant, and return the header block of what is sent; b"" if that is nothing."""
        self.desk.at(seconds)
        return self._sent()

    def given(self, *given: Input) -> bytes:
        """Give inputs, and return the header block of what is sent then."""
        self.desk.step(*given)
        return self._sent()

    def _sent(self) -> bytes:
        if self.desk.reads:
            self.desk.found(self.message)
        if not self.desk.fires:
            return b""
        self.fire = self.desk.fire
        return self.fire.block

    def asks(self) -> AwaitProposals:
        """Have the first identity answered as in process until the leader is asked."""
        assert self.fails() == []
        for instant in (20.05, 20.15):
            assert identity() in self.sends(instant)
            assert self.fails() == []
        assert identity() in self.sends(20.35)
        [question] = self.fails()
        return question


class TestAnIdentityInProcess:
    def test_without_an_answer_of_the_leader_it_is_tried_again(self) -> None:
        scene = Scene()
        scene.asks()
        for instant in (20.8, 21.6, 22.6):
            assert identity() in scene.sends(instant)
            assert scene.fails() == []  # one question at a time
        scene.given(Unanswered(AwaitProposals(scene.fire), "no answer"))
        assert identity() in scene.sends(24)
        assert scene.fails() == [AwaitProposals(scene.fire)]

    def test_an_answer_after_the_next_attempt_was_sent_proves_nothing(self) -> None:
        """That attempt may have been answered before."""
        scene = Scene()
        scene.asks()
        assert identity() in scene.sends(20.8)
        assert scene.given(ProposalsApplied(scene.fire)) == b""
        assert scene.fails() == [AwaitProposals(scene.fire)]
        assert identity() in scene.given(ProposalsApplied(scene.fire))
        scene.fails()
        assert identity(1) in scene.desk.fire.block

    def test_it_is_given_up_if_it_is_in_process_after_all_is_applied(self) -> None:
        scene, meanwhile = Scene(), Scene()
        for one in (scene, meanwhile):
            question = one.asks()
            assert question.fire is one.fire
            assert identity() in one.given(ProposalsApplied(one.fire))
        assert scene.fails() == []
        assert scene.desk.reported(FireUnknown) == [FireUnknown(scene.fire, IN_PROCESS.reason, 0)]
        scene.fire = scene.desk.fire
        assert identity(1) in scene.fire.block
        scene.desk.concluded(scene.fire, Stored(5))
        assert [event.fire.fire_time for event in scene.desk.reported(FireStored)] == [second(DUE_SECONDS)]
        meanwhile.desk.concluded(meanwhile.fire, Stored(5, duplicate=True))
        stored = StoredMessage(TARGET, 5, meanwhile.desk.now, meanwhile.fire.block, GENUINE)
        meanwhile.given(DuplicateFetched(meanwhile.fire, 5, stored, meanwhile.desk.now))
        assert [event.duplicate for event in meanwhile.desk.reported(FireStored)] == [True], "stored under the first"

    def test_many_blocked_in_a_row_are_asked_about_later(self) -> None:
        """Each costs its forger one message, and the sidecar three requests."""
        scene = Scene()
        scene.asks()
        for number in range(1, identities.MAX_GIVEN_UP_AT_ONCE + 2):
            scene.given(ProposalsApplied(scene.fire))
            scene.fails()
            scene.fire = scene.desk.fire
            assert identity(number) in scene.fire.block
            at_once = number <= identities.MAX_GIVEN_UP_AT_ONCE
            assert scene.fails() == ([AwaitProposals(scene.fire)] if at_once else [])


class TestAnIdentityThatTheGuardBlocked:
    def test_the_next_one_is_the_same_on_every_instance_whatever_lands(self) -> None:
        assert {self.after_a_refusal(landed) for landed in (5, 9)} == {identity(1)}

    @staticmethod
    def after_a_refusal(landed: int) -> bytes:
        scene = Scene()
        scene.fails(WRONG_LAST)
        headers = {"Nats_Scheduler": "s.other", "Nats_Schedule_Next": "purge"}
        block = block_with(**headers, Nats_Msg_Id=fire_identity("s.other", 3, START))
        scene.desk.read(StoredMessage(SCHEDULE, landed, START, block, b""))
        scene.desk.found(scene.message)
        return (header_value(scene.desk.fire.block, b"Nats-Msg-Id") or b"") + b"\r\n"

    def test_a_later_fire_has_its_first_one_again(self) -> None:
        scene = Scene()
        scene.fails(WRONG_LAST)
        scene.desk.now = second(2 * DUE_SECONDS)
        assert identity(fire_time=2 * DUE_SECONDS) in scene._sent()
