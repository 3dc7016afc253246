"""Instances in worlds made by hand, where nothing breaks by itself.

Its rule: only the test acts, and time passes only when the test says so.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from nats_scheduler.engine.inputs import Stored
from nats_scheduler.message.headers import with_headers
from tests.judge.history import SECOND, History
from tests.simulation.instance import Instance
from tests.simulation.scenario import drawn
from tests.simulation.server import ELSEWHERE, Server
from tests.simulation.sidecar import REAL, Parts
from tests.simulation.timeline import Timeline


class SimulatedFleet:
    """Instances on one server, where nothing breaks by itself."""

    def __init__(self, parts: Parts = REAL, **changes: Any) -> None:
        plain = replace(drawn(1), elects=True, kinds=(), reads_for=0, lags=False, disagrees=False, asks=True)
        scenario = replace(plain, **changes)
        self.timeline = Timeline()
        self.lines: list[str] = []
        """The trace."""
        self._parts = parts
        self.server = Server(scenario, self.timeline, History(scenario.terms, begin=0), self.lines.append)
        self.bucket = self.server.bucket
        self.instances: list[Instance] = []

    def __enter__(self) -> "SimulatedFleet":
        return self

    def __exit__(self, *_error: object) -> None:
        for instance in self.instances:
            instance.process.end()
        self.server.remove_machines()

    def boot(self, name: str) -> Instance:
        """Start an instance."""
        instance = Instance(name, self.server, Random(name), self.lines.append, self._parts)
        self.instances.append(instance)
        instance.boot("latest")
        return instance

    def fires_within(self, duration: int) -> Counter[str]:
        """Let time pass, and return how often each schedule fired meanwhile."""
        fires = self.server.history.fires
        before = len(fires)
        self.timeline.run(duration)
        return Counter(fire.schedule for fire in fires[before:])

    def owners(self) -> list[Instance]:
        """Return the instances that fire for the stream."""
        return [instance for instance in self.instances if instance.is_owner]

    def store(self, subject: str, pattern: str, *, reports: bool = False) -> None:
        """Store a schedule."""
        headers = [(b"Nats-Schedule", pattern.encode()), (b"Nats-Schedule-Target", b"t." + subject[2:].encode())]
        self._store(subject, headers + [(b"Nats-Schedule-X-Report", b"true")] * reports)

    def store_for_elsewhere(self, subject: str, pattern: str) -> None:
        """Store a schedule whose target is in the other stream."""
        target = f"{ELSEWHERE}0".encode()
        self._store(subject, [(b"X-Nats-Schedule", pattern.encode()), (b"X-Nats-Schedule-X-Target", target)])

    def _store(self, subject: str, headers: list[tuple[bytes, bytes]]) -> None:
        assert isinstance(self.server.stream.publish(subject, with_headers(b"", headers)), Stored)


@contextmanager
def two(**changes: Any) -> Iterator[tuple[SimulatedFleet, Instance, Instance]]:
    """Run two instances until one owns the stream, or both fire all."""
    with SimulatedFleet(**changes) as fleet:
        first, second = fleet.boot("i0"), fleet.boot("i1")
        fleet.timeline.run(3 * SECOND)
        assert len(fleet.owners()) == (1 if changes.get("elects", True) else 2)
        yield fleet, first, second
