"""A fire whose identity another message has, or that may be in flight at the leader: it is stored once.

Instances send a fire at the same time in the worst case, and what one of them has sent under the first identity may
arrive after the duplicate window of a forgery. If the fire was stored under another identity by then, it is stored
twice.
It tests `engine/holding/proposals.py` too.
"""

import heapq
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from nats_scheduler.engine.actions import Action, PublishFires, WakeAt
from nats_scheduler.engine.events import FireForged, FireStored
from nats_scheduler.engine.fire import AwaitProposals, FetchContent, FetchDuplicate, Fire
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    ContentFetched,
    DuplicateFetched,
    Input,
    MessagesRead,
    OwnershipChanged,
    ProposalsApplied,
    PublishConcluded,
    Refused,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire
from tests.harness.blocks import block_with
from tests.harness.replicated import ReplicatedStream
from tests.harness.seeds import seeds

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

    @pytest.mark.parametrize(
        ("window", "read_at", "free_soon", "free_later"),
        [(WINDOW, 20.1, 13.849, 13.851), (SECOND // 2, 20.0, 19.74, 19.76)],
    )
    def test_three_quarters_of_a_second_are_soon_or_half_of_a_short_window(
        self, window: int, read_at: float, free_soon: float, free_later: float
    ) -> None:
        for forged_at in (free_soon, free_later):
            scene = Scene(window=window)
            scene.forge(forged_at)
            scene.answered(scene.in_flight(), read_at=read_at)
            assert (scene.desk.fires == []) is (forged_at == free_soon)

    def test_the_window_is_the_one_that_the_stream_has_now(self) -> None:
        scene = Scene()
        scene.forge(14.9)
        fire = scene.in_flight()
        scene.desk.engine.lifetimes.limited(StreamRules("DESK", (">",), duplicate_window=6 * SECOND))
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
        scene.desk.step(ContactLost("cut"), DuplicateFetched(first, 2, scene.stream.message(2), second(14.9)))
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
            scene.desk.step(DuplicateFetched(fire, 2, None, second(stored_by)))
            assert (scene.desk.fires == []) is is_waited_for


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


@pytest.mark.parametrize("guard", [True, False])
def test_after_an_unknown_outcome_the_leader_is_asked_before_it_is_sent_again(guard: bool) -> None:
    for outcome in (SILENCE, Unknown("in process", in_process=True)):
        desk = sent(guard=guard)
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


def test_what_is_in_process_after_all_was_applied_goes_on_under_another_one_unless_that_was_long_ago() -> None:
    for instant, taken in ((20.6, 1), (23.1, 1), (23.101, 0)):
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


def test_a_question_that_was_asked_before_the_outcome_proves_nothing() -> None:
    other = schedule("@every 20s", 2, "s.other")
    desk = Desk(EVERY, other, replicated=True).at(20)
    desk.found(EVERY)
    first = desk.fire
    desk.found(other)
    second = desk.fire
    desk.concluded(first, SILENCE)
    desk.at(20.1)
    [question] = desk.asked(AwaitProposals)
    desk.concluded(second, SILENCE)
    desk.at(20.2)
    desk.step(ProposalsApplied(question.fire))
    assert [fire.schedule for fire in desk.fires] == [SCHEDULE]
    assert desk.asked(AwaitProposals) == [AwaitProposals(second)]


def test_without_an_answer_it_is_asked_again_soon() -> None:
    desk = sent()
    question = AwaitProposals(desk.fire)
    desk.concluded(desk.fire, SILENCE)
    for tenth in range(1, 100, 5):
        desk.at(20 + tenth / 10)
        assert found_and_sent(desk) == []
        assert desk.asked(AwaitProposals) == [question]
        desk.step(Unanswered(question, "no answer"))


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


@pytest.mark.parametrize("before", ["the contact", "the takeover"])
def test_what_was_due_before_may_be_in_flight_from_an_earlier_life_or_owner(before: str) -> None:
    desk = Desk(EVERY, replicated=True, live=before != "the contact")
    desk.step(*([] if before == "the contact" else [OwnershipChanged(False)]))
    desk.at(25 if before == "the contact" else 21)
    desk.step(CaughtUp() if before == "the contact" else OwnershipChanged(True))
    assert found_and_sent(desk) == []
    [question] = desk.asked(AwaitProposals)
    if before == "the contact":
        desk.step(ProposalsApplied(question.fire))
        assert found_and_sent(desk) == [20]
        desk.concluded(desk.fire, Stored(5))
        assert found_and_sent(desk.at(40)) == [40]
    else:
        desk.at(61)
        desk.step(ProposalsApplied(question.fire))
        assert found_and_sent(desk) == [60], "what came due meanwhile is one fire"


def test_the_end_of_the_contact_leaves_nothing_waiting() -> None:
    desk = sent()
    fire = desk.fire
    desk.concluded(fire, SILENCE)
    desk.at(20.1)
    desk.step(ContactLost("cut"), Unanswered(AwaitProposals(fire), "cut"))
    desk.at(22)
    desk.step(CaughtUp())
    assert found_and_sent(desk) == []
    assert desk.asked(AwaitProposals) == [AwaitProposals(fire)]
    desk.step(ProposalsApplied(fire))
    assert found_and_sent(desk) == [20]
    desk.step(PublishConcluded(desk.fire, Stored(5)))


INTERVAL = 3 * SECOND
END = START + 22 * SECOND
SLOWEST = 100 * MILLISECOND
LATEST = 2 * SECOND
"""No fire is stored later (ns) than this: the wait, and ten times the longest way."""


class Meeting:
    """One stream, two engines, and the events that are to come."""

    window = WINDOW
    replicas = 1

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = START
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        config = {"name": "DESK", "subjects": [">"], "duplicate_window": self.window, "num_replicas": self.replicas}
        self.stream = ReplicatedStream(config, lambda: self.now, guard=self.random.random() < 0.5)
        message = schedule("@every 3s", body=GENUINE)
        self.stream.publish(SCHEDULE, message.block, GENUINE)
        limits = {"guard": self.stream.guard, "blocks_refused": self.replicas > 1}
        for _ in range(2):
            desk = Desk(message, **limits, duplicate_window=self.window)
            self._carry_out(desk, desk.actions)
            self.stream.listen(partial(self._follow, desk))

    def run(self) -> list[tuple[int, int]]:
        """Let everything happen, and return the fire time and the lateness (ns) of each fire that was stored."""
        for _ in range(40):
            self._at(START + self.random.randrange(END - START), self._forge)
        while self._events and self._events[0][0] <= END:
            self.now, _number, event = heapq.heappop(self._events)
            event()
        stored = [message for message in self.stream.messages(TARGET) if message.body == GENUINE]
        times = [int(message.block.split(b":%b\r\n" % SCHEDULE.encode())[0].rsplit(b":", 1)[1]) for message in stored]
        return [(time, message.stored_at - time) for time, message in zip(times, stored, strict=True)]

    def _forge(self) -> None:
        """Take the first identity of a fire, most often shortly before it should be free again at the fire."""
        ahead = self.random.choice([WINDOW, WINDOW, self.random.randrange(1, WINDOW)])
        fire_time = START + (self.now + ahead - START) // INTERVAL * INTERVAL
        if fire_time > self.now:
            identity = fire_identity(SCHEDULE, 1, fire_time)
            self.stream.publish("elsewhere", block_with(Nats_Msg_Id=identity), b"forged")

    def _follow(self, desk: Desk, stored: StoredMessage) -> None:
        self._later(partial(self._step, desk, MessagesRead((stored,))))

    def _step(self, desk: Desk, *inputs: Input) -> None:
        desk.now = self.now
        self._carry_out(desk, desk.step(*inputs))

    def _carry_out(self, desk: Desk, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, WakeAt):
                self._at(action.instant, partial(self._step, desk))
            elif isinstance(action, PublishFires):
                for fire in action.fires:
                    self._later(partial(self._arrives, desk, fire, fire.block))
            elif isinstance(action, FetchContent):
                self._later(partial(self._content, desk, action))
            elif isinstance(action, FetchDuplicate):
                self._later(partial(self._duplicate, desk, action))
            elif isinstance(action, AwaitProposals):
                self._later(partial(self._asked, desk, action))

    def _asked(self, desk: Desk, question: AwaitProposals) -> None:
        self._answer(desk, ProposalsApplied(question.fire))

    def _arrives(self, desk: Desk, fire: Fire, block: bytes) -> None:
        self._answer(desk, PublishConcluded(fire, self.stream.publish(fire.target, block, GENUINE)))

    def _content(self, desk: Desk, read: FetchContent) -> None:
        self._answer(desk, ContentFetched(read.schedule, read.sequence, self.stream.last(read.schedule), None))

    def _duplicate(self, desk: Desk, read: FetchDuplicate) -> None:
        message = self.stream.message(read.sequence)
        stored_at = None if message is None else message.stored_at
        self._answer(desk, DuplicateFetched(read.fire, read.sequence, message, stored_at))

    def _answer(self, desk: Desk, answer: Input) -> None:
        self._later(partial(self._step, desk, answer))

    def _later(self, event: Callable[[], None]) -> None:
        self._at(self.now + self.random.randrange(SLOWEST), event)

    def _at(self, instant: int, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(instant, self.now), self._number, event))


DUE_TIMES = list(range(START + INTERVAL, END - LATEST, INTERVAL))


def found_in(seed: int) -> list[int]:
    """Return the fire times (ns) that were stored in the world of a seed, and check that none is late."""
    stored = Meeting(seed).run()
    assert all(0 <= lateness < LATEST for _time, lateness in stored), f"seed {seed}"
    return sorted(time for time, _lateness in stored)


def test_each_fire_is_stored_once_and_in_time_whatever_identities_are_taken() -> None:
    for seed in seeds(20):
        assert found_in(seed)[: len(DUE_TIMES)] == DUE_TIMES, f"seed {seed}"
