"""Leases: after any order of events each shard gets one holder, and each instance its part.

The instances of the random histories receive each other's heartbeats through a model of a key-value bucket, each at its
own pace.
"""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.engine.sharing.leases import Leases, Record, wanted_holders
from nats_scheduler.engine.sharing.shards import SHARDS
from tests.engine.lease_builders import BEAT, KEY


@dataclass
class Bucket:
    """The record and the heartbeats, and what each instance has yet to receive of them."""

    record: Record = field(default_factory=Record)
    undelivered: dict[str, list[tuple[str, Record | None]]] = field(default_factory=dict)

    def send(self, name: str, record: Record | None = None) -> None:
        """Store a heartbeat of an instance, or the record."""
        for queue in self.undelivered.values():
            queue.append((name, record))


@dataclass
class ModelFleet:
    """Instances that start, leave, die and stall."""

    bucket: Bucket = field(default_factory=Bucket)
    alive: dict[str, Leases] = field(default_factory=dict)
    asleep: set[str] = field(default_factory=set)
    now: int = 0
    names: int = 0

    def join(self) -> None:
        self.names += 1
        name = f"i{self.names}"
        self.alive[name] = Leases(name, frozenset({KEY}))
        self.bucket.undelivered[name] = [("", self.bucket.record)]

    def kill(self, name: str) -> None:
        del self.alive[name], self.bucket.undelivered[name]
        self.asleep.discard(name)

    def receive(self, name: str, most: int) -> None:
        queue, leases = self.bucket.undelivered[name], self.alive[name]
        for told, record in queue[:most]:
            if record is not None:
                leases.recorded(KEY, record)
            else:
                leases.received(told, {KEY}, self.now, self.now)
        del queue[:most]

    def act(self, name: str) -> None:
        leases = self.alive[name]
        leases.discard_gone(self.now)
        holders = leases.change(KEY, self.now)
        if holders is not None and leases.record(KEY).revision == self.bucket.record.revision:
            self.bucket.record = Record(holders, self.bucket.record.revision + 1)
            self.bucket.send(name, self.bucket.record)
            leases.recorded(KEY, self.bucket.record)

    def beat(self, rng: random.Random, *, whole: bool) -> None:
        """Let half a second pass: those that are not stalled send a heartbeat, receive something, and act."""
        self.now += BEAT
        awake = [name for name in self.alive if name not in self.asleep]
        rng.shuffle(awake)
        for name in awake:
            self.bucket.send(name)
        for name in awake:
            self.receive(name, 1_000_000 if whole else rng.randrange(8))
            self.act(name)


@pytest.mark.slow
@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 32))
def test_from_any_history_every_shard_comes_to_have_one_wanted_holder(seed: int) -> None:
    rng, fleet = random.Random(seed), ModelFleet()
    for _ in range(rng.randrange(1, 40)):
        names = list(fleet.alive)
        what = rng.choice(["join", "beat", "beat", "beat", "kill", "sleep", "wake"])
        if what == "join" and len(names) < 6:
            fleet.join()
        elif what == "kill" and names:
            fleet.kill(rng.choice(names))
        elif what == "sleep" and names:
            fleet.asleep.add(rng.choice(names))
        elif what == "wake":
            fleet.asleep.clear()
        else:
            fleet.beat(rng, whole=rng.random() < 0.5)
    fleet.asleep.clear()
    fleet.join()
    for _ in range(12):
        fleet.beat(rng, whole=True)
    wanted = wanted_holders(KEY, fleet.alive)
    assert fleet.bucket.record.holders == wanted
    held = [leases.held(KEY) for leases in fleet.alive.values()]
    assert sorted(shard for shards in held for shard in shards) == list(range(SHARDS))
