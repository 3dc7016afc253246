"""Random lives of a stream: exactly what a naive reference expects is stored."""

from random import Random

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import (
    Fire,
    ReadContent,
)
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.testing.network import DONE, Fate, Perfect
from nats_scheduler.testing.world import GeneratedMessage, ScheduleWorld
from tests.engine.random_life import RandomLife
from tests.engine.reference import Stored, expected
from tests.harness.tiers import sample
from tests.judge.patterns import SECOND

SEEDS = sample(range(25), fast=4)
ACTS = 60

CANCEL_TAKES = 5 * SECOND
"""Longest time (ns) until a cancel holds: the follower is up to 3 s late, and a fire in flight takes up to 2 s more."""


class LostAnswers(Perfect):
    """Everything arrives at once, but first answers get lost, and so do purges.

    The answer to a repeated fire arrives: a fire that was consumed cannot be read back, and would never be concluded.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(f"network {seed}")
        self._sent: set[tuple[int, int]] = set()

    def publish(self, fire: Fire) -> Fate:
        identity = (fire.sequence, fire.fire_time)
        repeated = identity in self._sent
        self._sent.add(identity)
        return Fate(answered=repeated or self._random.random() < 0.7)

    def purge(self, request: PurgeSchedule) -> Fate:
        return Fate(arrives=self._random.random() < 0.7, answered=self._random.random() < 0.7)


class Hostile(Perfect):
    """Everything is late, lost, or refused, until it heals."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"hostile {seed}")
        self.is_healed = False

    def publish(self, fire: Fire) -> Fate:
        return self._fate(Refused(503, 10077, "maximum messages exceeded"))

    def read(self, request: ReadContent) -> Fate:
        return self._fate(None)

    def purge(self, request: PurgeSchedule) -> Fate:
        return self._fate(None)

    def follow(self, message: StoredMessage) -> int:
        return 0 if self.is_healed else self._random.choice([0, 0, 0, 3 * SECOND])

    def _fate(self, refusal: Refused | None) -> Fate:
        chance = self._random.random
        if self.is_healed:
            return DONE
        return Fate(
            arrives=chance() < 0.8,
            answered=chance() < 0.8,
            refusal=refusal if chance() < 0.2 else None,
            request_takes=int(chance() * 2 * SECOND) if chance() < 0.3 else 0,
            answer_takes=int(chance() * 2 * SECOND) if chance() < 0.3 else 0,
        )


def stored_by(world: ScheduleWorld) -> list[Stored]:
    return sorted((m.schedule, m.schedule_sequence, m.fire_time, m.stored_at) for m in world.generated)


@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
@pytest.mark.parametrize("consumes", [False, True], ids=["kept", "consumed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_the_fires_that_came_due_are_stored(seed: int, consumes: bool, guard: bool) -> None:
    world = ScheduleWorld(network=LostAnswers(seed), guard=guard)
    life = RandomLife(seed, world, consumes=consumes)
    for _ in range(ACTS):
        life.act()
    life.end()
    wanted = sorted(fire for version in life.versions for fire in expected(version, life.served))
    assert stored_by(world) == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_hostile_network_nothing_is_doubled_stale_or_early_and_everything_resumes(seed: int) -> None:
    network = Hostile(seed)
    world = ScheduleWorld(network=network)
    life = RandomLife(seed, world)
    for _ in range(ACTS):
        life.act()
    network.is_healed = True
    healed_at = world.now
    world.advance("70s")
    _check_unique(world)
    _check_faithful_latest_and_gone(world, life)
    _check_live(world, life, healed_at)


def _check_unique(world: ScheduleWorld) -> None:
    identities = [(m.schedule_sequence, m.fire_time) for m in world.generated]
    assert len(identities) == len(set(identities))


def _check_faithful_latest_and_gone(world: ScheduleWorld, life: RandomLife) -> None:
    versions = {version.sequence: version for version in life.versions}
    for fire in world.generated:
        version = versions[fire.schedule_sequence]
        assert fire.fire_time in version.dues(world.now)
        assert fire.stored_at >= fire.fire_time
        assert version.stored_at <= fire.stored_at
        grace = CANCEL_TAKES if version.was_cancelled else 0
        assert version.ended_at is None or fire.stored_at <= version.ended_at + grace


def _check_live(world: ScheduleWorld, life: RandomLife, healed_at: int) -> None:
    fires: dict[int, list[GeneratedMessage]] = {}
    for fire in world.generated:
        fires.setdefault(fire.schedule_sequence, []).append(fire)
    quiet = healed_at + 35 * SECOND
    for version in life.active:
        stored = [fire.fire_time for fire in fires.get(version.sequence, [])]
        dues = version.dues(world.now)
        assert [due for due in dues if due > quiet] == [due for due in stored if due > quiet]
        assert not dues or max(stored, default=0) >= max(due for due in dues if due <= world.now)
