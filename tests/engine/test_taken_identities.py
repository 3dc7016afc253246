"""A fire whose identity a forged message has, and the end of that message's duplicate window.

Instances send a fire at the same time in the worst case, and what one of them has sent under the first identity may
arrive after the window of the forgery. If the fire was stored under another identity by then, it is stored twice.
"""

import pytest

from nats_scheduler.engine.events import FireForged, FireStored
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, DuplicateRead, Refused, Stored
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule
from tests.harness.blocks import block_with

WINDOW = 7 * SECOND
DUE = 20
GENUINE = b"genuine"

guards = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])


def second(number: float) -> int:
    return START + int(number * SECOND)


class Scene:
    """One engine and the stream that it fires into, with one schedule that fires at 20 s."""

    def __init__(self, *, guard: bool = True, window: int = WINDOW, blocks_refused: bool = False) -> None:
        config = {"name": "DESK", "subjects": [">"], "duplicate_window": window}
        self.message = schedule(f"@every {DUE}s", body=GENUINE)
        self.desk = Desk(self.message, guard=guard, blocks_refused=blocks_refused, duplicate_window=window)
        self.stream = MemoryStream(config, lambda: self.desk.now, guard=guard)
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
            self.desk.step(DuplicateRead(fire, outcome.sequence, message, message.stored_at))

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
    @guards
    @pytest.mark.parametrize("forged_at", [13.2, 13.7, 13.99], ids=["free when it is read", "free soon", "free later"])
    def test_a_copy_that_is_still_in_transit_is_a_duplicate(self, forged_at: float, *, guard: bool) -> None:
        scene = Scene(guard=guard)
        scene.forge(forged_at)
        in_transit = scene.in_flight()  # by another instance, say
        scene.answered(in_transit, read_at=20.3)
        assert scene.desk.fires == []
        [again] = scene.sent_at(20.4, forged_at + 7.001)
        scene.answered(again, read_at=0)
        assert [event.fire.fire_time for event in scene.desk.reported(FireStored)] == [second(DUE)]
        assert scene.arrives(in_transit) == Stored(3, duplicate=True)
        assert len(scene.stored) == 1

    def test_nothing_is_sent_before_it_is_free(self) -> None:
        scene = Scene()
        scene.forge(13.9)
        scene.answered(scene.in_flight(), read_at=20.2)
        assert scene.sent_at(20.25, 20.5, 20.899) == []
        assert len(scene.sent_at(20.9)) == 1

    def test_in_a_short_window_half_of_it_is_soon(self) -> None:
        for forged_at, is_waited_for in ((19.74, True), (19.76, False)):
            scene = Scene(window=SECOND // 2)
            scene.forge(forged_at)
            scene.answered(scene.in_flight(), read_at=20.0)
            assert (scene.desk.fires == []) is is_waited_for

    def test_three_quarters_of_a_second_are_soon(self) -> None:
        for forged_at, is_waited_for in ((13.849, True), (13.851, False)):
            scene = Scene()
            scene.forge(forged_at)
            scene.answered(scene.in_flight(), read_at=20.1)
            assert (scene.desk.fires == []) is is_waited_for

    def test_the_window_is_the_one_that_the_stream_has_now(self) -> None:
        scene = Scene()
        scene.forge(14.9)
        fire = scene.in_flight()
        shorter = StreamRules("DESK", (">",), duplicate_window=6 * SECOND)
        scene.desk.engine.lifetimes.limited(shorter)
        scene.answered(fire, read_at=20.2)
        assert scene.desk.fires == []

    def test_it_is_tried_a_few_times_if_the_server_keeps_it_longer_and_reported_once(self) -> None:
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
                scene.desk.step(DuplicateRead(fire, 2, forgery, second(13.1)))
                reports += len(scene.desk.reported(FireForged))
            if scene.desk.fires:
                break
            waiting = scene.sent_at(DUE + tick / 200)
        assert blocks == [first.block] * 5
        assert second(DUE) < scene.desk.now < second(DUE + 1)
        assert reports == 1
        assert scene.arrives(scene.desk.fire) == Stored(3)
        assert fire_identity(SCHEDULE, 1, second(DUE), 2).encode() in scene.stored[0].block

    def test_after_a_wait_the_first_identity_is_tried_before_the_second(self) -> None:
        """By then the window of the first one may be over too."""
        scene = Scene()
        scene.forge(13.9, taken=3)  # foreseen
        scene.forge(14.5)
        first = scene.in_flight()
        scene.answered(first, read_at=20.2)
        [second_one] = scene.desk.fires
        scene.answered(second_one, read_at=20.4)
        assert scene.desk.fires == []
        [again] = scene.sent_at(20.95)
        assert again.block == first.block

    def test_an_identity_that_a_refusal_has_blocked_is_not_tried_again(self) -> None:
        scene = Scene(blocks_refused=True)
        scene.forge(13.9, taken=1)  # foreseen
        blocked = scene.in_flight()
        scene.desk.concluded(blocked, Refused(400, 10071, "wrong last sequence: 9"))
        scene.desk.found(scene.message)
        [other] = scene.desk.fires
        assert other.block != blocked.block
        scene.answered(other, read_at=20.4)
        [again] = scene.sent_at(20.95)
        assert again.block == other.block


class TestAnIdentityThatIsTakenForLonger:
    def test_another_one_is_not_chosen_before_it_can_be_sent(self) -> None:
        """After the contact is regained, the first one may be free."""
        scene = Scene()
        scene.forge(14.9)
        first = scene.in_flight()
        scene.desk.concluded(first, scene.arrives(first))
        scene.desk.step(ContactLost("cut"), DuplicateRead(first, 2, scene.stream.message(2), second(14.9)))
        scene.desk.now = second(22)
        scene.desk.step(CaughtUp())
        scene.desk.found(scene.message)
        assert scene.desk.fire.block == first.block

    @guards
    def test_another_one_is_used_at_once(self, *, guard: bool) -> None:
        scene = Scene(guard=guard)
        scene.forge(14.3)
        fire = scene.in_flight()
        scene.answered(fire, read_at=20.2)
        scene.answered(scene.desk.fire, read_at=0)
        assert scene.arrives(fire).duplicate
        assert len(scene.stored) == 1

    def test_a_forged_message_of_which_only_the_following_is_known_counts_as_stored_with_that(self) -> None:
        for stored_by, is_waited_for in ((13.3, True), (14.3, False)):
            scene = Scene()
            fire = scene.in_flight()
            scene.desk.concluded(fire, Stored(2, duplicate=True))
            scene.desk.step(DuplicateRead(fire, 2, None, second(stored_by)))
            assert (scene.desk.fires == []) is is_waited_for
