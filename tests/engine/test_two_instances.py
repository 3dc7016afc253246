"""Two engines that do not divide the work, and a forger that takes identities: each fire is stored once.

Its rule: every message between an engine and the stream takes its own random time, much less than an identity is waited
for. All else is as in production: each engine is stepped with what it asked for and with what was stored.
"""

import heapq
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from nats_scheduler.engine.actions import Action, PublishFires, WakeAt
from nats_scheduler.engine.fire import (
    AwaitProposals,
    Fire,
    ReadContent,
    ReadDuplicate,
)
from nats_scheduler.engine.firing import sending as identities
from nats_scheduler.engine.inputs import (
    ContentRead,
    DuplicateRead,
    Input,
    MessagesRead,
    ProposalsApplied,
    PublishConcluded,
)
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule
from tests.harness.blocks import block_with
from tests.harness.replicated import ReplicatedStream

WINDOW = 7 * SECOND
EVERY = 3 * SECOND
END = START + 22 * SECOND
SLOWEST = 100 * MILLISECOND
LATEST = 2 * SECOND
"""No fire is stored later (ns) than this: the wait, and ten times the longest way."""
GENUINE = b"genuine"


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
        self._desks = [Desk(message, **limits, duplicate_window=self.window) for _ in range(2)]
        for desk in self._desks:
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
        fire_time = START + (self.now + ahead - START) // EVERY * EVERY
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
            elif isinstance(action, ReadContent):
                self._later(partial(self._content, desk, action))
            elif isinstance(action, ReadDuplicate):
                self._later(partial(self._duplicate, desk, action))
            elif isinstance(action, AwaitProposals):
                self._later(partial(self._asked, desk, action))

    def _asked(self, desk: Desk, question: AwaitProposals) -> None:
        self._answer(desk, ProposalsApplied(question.fire))

    def _arrives(self, desk: Desk, fire: Fire, block: bytes) -> None:
        self._answer(desk, PublishConcluded(fire, self.stream.publish(fire.target, block, GENUINE)))

    def _content(self, desk: Desk, read: ReadContent) -> None:
        self._answer(desk, ContentRead(read.schedule, read.sequence, self.stream.last(read.schedule), None))

    def _duplicate(self, desk: Desk, read: ReadDuplicate) -> None:
        message = self.stream.message(read.sequence)
        stored_at = None if message is None else message.stored_at
        self._answer(desk, DuplicateRead(read.fire, read.sequence, message, stored_at))

    def _answer(self, desk: Desk, answer: Input) -> None:
        self._later(partial(self._step, desk, answer))

    def _later(self, event: Callable[[], None]) -> None:
        self._at(self.now + self.random.randrange(SLOWEST), event)

    def _at(self, instant: int, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(instant, self.now), self._number, event))


DUE = list(range(START + EVERY, END - LATEST, EVERY))


def found_in(seed: int) -> list[int]:
    """Return the fire times (ns) that were stored in the world of a seed, and check that none is late."""
    stored = Meeting(seed).run()
    assert all(0 <= lateness < LATEST for _time, lateness in stored), f"seed {seed}"
    return sorted(time for time, _lateness in stored)


def test_each_fire_is_stored_once_and_in_time_whatever_identities_are_taken() -> None:
    for seed in range(150):
        assert found_in(seed)[: len(DUE)] == DUE, f"seed {seed}"


def test_it_would_be_stored_twice_if_another_identity_were_used_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "free_soon", lambda *_arguments: None)
    assert any(len(set(found)) < len(found) for found in map(found_in, range(150)))
