"""Two engines that do not divide the work, replicas that agree slowly, and a client that blocks identities."""

from functools import partial

import pytest

from nats_scheduler.engine.fire import (
    AwaitProposals,
    Fire,
)
from nats_scheduler.engine.firing.sending import Firing
from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import PublishConcluded
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk
from tests.engine.test_two_instances import DUE, END, EVERY, GENUINE, LATEST, Meeting
from tests.harness.blocks import block_with

SLOWEST_AGREEMENT = 700 * MILLISECOND


class Replicas(Meeting):
    """A stream with replicas; what its leader accepts is applied later, in that order."""

    window = 120 * SECOND
    replicas = 3

    def __init__(self, seed: int) -> None:
        self._applied_at = START
        super().__init__(seed)

    def _forge(self) -> None:
        """Have the server refuse a message with one of the identities of a fire, often shortly before that is due."""
        fire_time = START + self.random.randrange(EVERY, END - START, EVERY)
        identity = fire_identity(SCHEDULE, 1, fire_time, self.random.choice([0, 0, 1]))
        self.stream.publish("x", block_with(Nats_Msg_Id=identity, Nats_Expected_Last_Subject_Sequence="999"))

    def _arrives(self, desk: Desk, fire: Fire, block: bytes) -> None:
        answer = self.stream.propose(block)
        if answer is not None:
            self._answer(desk, PublishConcluded(fire, answer))
            return
        self._applied_at = max(self._applied_at, self.now + self.random.randrange(SLOWEST_AGREEMENT))
        self._at(self._applied_at, partial(self._store, desk, fire, block))

    def _store(self, desk: Desk, fire: Fire, block: bytes) -> None:
        self._answer(desk, PublishConcluded(fire, self.stream.publish_proposed(fire.target, block, GENUINE)))

    def _asked(self, desk: Desk, question: AwaitProposals) -> None:
        self._at(self._applied_at, partial(super()._asked, desk, question))


def found_in(seed: int) -> list[int]:
    """Return the fire times (ns) that were stored in the world of a seed, and check that none is late."""
    stored = Replicas(seed).run()
    assert all(0 <= lateness < LATEST + SECOND for _time, lateness in stored), f"seed {seed}"
    return sorted(time for time, _lateness in stored)


def test_each_fire_is_stored_once_whatever_identities_are_blocked() -> None:
    for seed in range(60):
        assert found_in(seed)[: len(DUE)] == DUE, f"seed {seed}"


def test_it_would_be_stored_twice_if_nothing_were_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Firing.is_in_process

    def unproven(self: Firing, held: Held, flight: Flight, fire: Fire, now: int) -> bool:
        if flight.in_process is not None:
            flight.in_process.is_applied, flight.in_process.asked_at = True, now
        return original(self, held, flight, fire, now)

    monkeypatch.setattr(Firing, "is_in_process", unproven)
    assert any(len(set(found)) < len(found) for found in map(found_in, range(20)))
