"""A fire whose identity another message has, or that may be in flight at the leader: it is stored once.

It tests `engine/holding/proposals.py` too.
"""

import pytest

from nats_scheduler.engine.events import FireForged, FireStored
from nats_scheduler.engine.fire import AwaitProposals, Fire
from nats_scheduler.engine.inputs import (
    DuplicateFetched,
    OwnershipChanged,
    ProposalsApplied,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire
from tests.harness.blocks import block_with

WINDOW = 7 * SECOND
DUE = 20
GENUINE = b"genuine"


def second(number: float) -> int:
    return START + int(number * SECOND)


class Scene:
    """One engine and the stream that it fires into, with one schedule that fires at 20 s."""

    def __init__(self, *, blocks_refused: bool = False) -> None:
        config = {"name": "DESK", "subjects": [">"], "duplicate_window": WINDOW}
        self.message = schedule(f"@every {DUE}s", body=GENUINE)
        self.desk = Desk(self.message, blocks_refused=blocks_refused, duplicate_window=WINDOW)
        self.stream = MemoryStream(config, lambda: self.desk.now)
        self.stream.publish(SCHEDULE, self.message.block, GENUINE)

    def forge(self, seconds: float, taken: int = 0) -> None:
        """Store a message with an identity of the fire, at an instant before the fire."""
        self.desk.now = second(seconds)
        identity = fire_identity(SCHEDULE, 1, second(DUE), taken)
        assert self.stream.publish("elsewhere", block_with(Nats_Msg_Id=identity), b"forged").__class__ is Stored

    def in_flight(self) -> Fire:
        """Bring the fire into flight at its time."""
        return self.desk.in_flight(self.message, DUE)

    def arrives(self, fire: Fire) -> Stored:
        """Let a fire arrive at the server."""
        outcome = self.stream.publish(fire.target, fire.block, fire.body)
        assert isinstance(outcome, Stored)
        return outcome

    def answered(self, fire: Fire, *, read_at: float) -> None:
        """Let a fire arrive now, and the engine read at an instant what the server has in its place."""
        outcome = self.arrives(fire)
        self.desk.concluded(fire, outcome)
        if outcome.duplicate:
            message = self.stream.message(outcome.sequence)
            assert message is not None
            self.desk.now = second(read_at)
            self.desk.step(DuplicateFetched(fire, outcome.sequence, message, message.stored_at))

    def sent_at(self, *instants: float) -> list[Fire]:
        """Step at each instant, answer reads of the schedule, and return what is sent."""
        sent = []
        for seconds in instants:
            self.desk.at(seconds)
            sent += self.desk.fires
            if self.desk.reads:
                self.desk.found(self.message)
                sent += self.desk.fires
        return sent

    @property
    def stored(self) -> list[StoredMessage]:
        """The fires in the stream that are the engine's."""
        return [message for message in self.stream.messages(TARGET) if message.body == GENUINE]


class TestAnIdentityThatIsFreeSoon:
    @pytest.mark.parametrize("forged_at", [13.2, 13.99], ids=["free when it is read", "free later"])
    def test_a_copy_that_is_still_in_transit_is_a_duplicate(self, forged_at: float) -> None:
        scene = Scene()
        scene.forge(forged_at)
        in_transit = scene.in_flight()  # by another instance, say
        scene.answered(in_transit, read_at=20.3)
        assert scene.desk.fires == []
        [again] = scene.sent_at(20.4, forged_at + 7.001)
        scene.answered(again, read_at=0)
        assert [event.fire.fire_time for event in scene.desk.reported(FireStored)] == [second(DUE)]
        assert scene.arrives(in_transit) == Stored(3, duplicate=True)
        assert len(scene.stored) == 1

    def test_it_is_tried_a_few_times_if_the_server_keeps_it_longer(self) -> None:
        """A restarted server keeps identities for another window, and clocks differ."""
        scene = Scene()
        scene.forge(13.1)
        forgery = scene.stream.message(2)
        first = scene.in_flight()
        blocks, reports, waiting = [], 0, [first]
        for tick in range(20, 200):
            for fire in waiting:
                blocks.append(fire.block)
                scene.desk.concluded(fire, Stored(2, duplicate=True))
                scene.desk.step(DuplicateFetched(fire, 2, forgery, second(13.1)))
                reports += len(scene.desk.reported(FireForged))
            if scene.desk.fires:
                break
            waiting = scene.sent_at(DUE + tick / 200)
        assert blocks == [first.block] * 5
        assert second(DUE) < scene.desk.now < second(DUE + 1)
        assert reports == 1
        assert scene.arrives(scene.desk.fire) == Stored(3)
        assert fire_identity(SCHEDULE, 1, second(DUE), 2).encode() in scene.stored[0].block


class TestAnIdentityThatIsTakenForLonger:
    def test_another_one_is_used_at_once(self) -> None:
        scene = Scene()
        scene.forge(14.3)
        fire = scene.in_flight()
        scene.answered(fire, read_at=20.2)
        scene.answered(scene.desk.fire, read_at=0)
        assert scene.arrives(fire).duplicate
        assert len(scene.stored) == 1


SILENCE = Unknown("no acknowledgement")
EVERY = schedule("@every 20s")


def sent(**more: bool) -> Desk:
    """Return a desk with the fire of 20 s in flight."""
    desk = Desk(EVERY, **{"replicated": True, **more})
    desk.in_flight(EVERY, 20)
    return desk


def found_and_sent(desk: Desk) -> list[int]:
    """Answer reads of the schedule, and return the fire times (s) of what is sent then."""
    while desk.reads:
        desk.found(EVERY)
    return [(fire.fire_time - EVERY.stored_at) // 1_000_000_000 for fire in desk.fires]


def test_after_an_unknown_outcome_the_leader_is_asked_first() -> None:
    for outcome in (SILENCE, Unknown("in process", in_process=True)):
        desk = sent()
        first = desk.fire
        desk.concluded(first, outcome)
        assert found_and_sent(desk.at(20.1)) == []
        assert desk.asked(AwaitProposals) == [AwaitProposals(first)]
        assert found_and_sent(desk.at(24)) == []
        desk.step(ProposalsApplied(first))
        assert found_and_sent(desk) == [20]
        again = desk.fire
        assert again.block == first.block
        desk.concluded(again, Stored(5, duplicate=True))
        desk.step(DuplicateFetched(again, 5, stored_fire(again, 5, desk.now), desk.now))
        assert found_and_sent(desk.at(40)) == [40]


def test_what_is_in_process_after_all_was_applied_gets_another_identity() -> None:
    for instant, taken in ((23.1, 1), (23.101, 0)):
        desk = sent()
        desk.concluded(desk.fire, Unknown("in process", in_process=True))
        [question] = desk.at(20.1).asked(AwaitProposals)
        desk.step(ProposalsApplied(question.fire))
        desk.now = second(instant)
        desk.concluded(desk.fire, Unknown("in process", in_process=True))
        [question] = desk.asked(AwaitProposals)
        desk.at(instant + 0.5).step(ProposalsApplied(question.fire))
        assert found_and_sent(desk) == [20]
        assert desk.fire.taken == taken, instant


def test_a_leader_that_cannot_be_asked_keeps_no_fire_waiting() -> None:
    desk = sent()
    desk.concluded(desk.fire, SILENCE)
    [question] = desk.at(20.1).asked(AwaitProposals)
    desk.step(Unanswered(AwaitProposals(question.fire), "purge not permitted", denied=True))
    assert found_and_sent(desk.at(20.2)) == [20]


def test_nothing_is_asked_about_what_cannot_be_in_flight() -> None:
    for outcome, replicated in ((Unknown("no leader", may_be_stored=False), True), (SILENCE, False)):
        desk = sent(replicated=replicated)
        desk.concluded(desk.fire, outcome)
        assert found_and_sent(desk.at(20.1)) == [20]
        assert desk.asked(AwaitProposals) == []


def test_what_was_due_before_a_takeover_may_still_be_in_flight() -> None:
    desk = Desk(EVERY, replicated=True)
    desk.step(OwnershipChanged(False))
    desk.at(21).step(OwnershipChanged(True))
    assert found_and_sent(desk) == []
    [question] = desk.asked(AwaitProposals)
    desk.at(61).step(ProposalsApplied(question.fire))
    assert found_and_sent(desk) == [60], "what came due meanwhile is one fire"
