"""The network of one instance: a little slow at all times, and in a spell of bad weather lossy, slow, or cut.

Its rule: it decides the outcome of a request when it begins, as `nats_scheduler.testing.network` asks for.
What is doubled arrives twice at the server and is answered twice.
"""

from random import Random

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import (
    Fire,
    ReadContent,
)
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.testing.network import Fate, Perfect
from tests.simulation.scenario import MILLISECOND, SLOWEST
from tests.simulation.timeline import Timeline

FULL = Refused(503, 10077, "maximum messages exceeded")

USUAL = 2 * MILLISECOND
"""Longest transit (ns) of anything in good weather."""

LOST = 0.4
"""The share of messages lost in each direction while it is lossy."""


class Weather(Perfect):
    """The state of the network between one instance and the server."""

    def __init__(self, random: Random, timeline: Timeline) -> None:
        self._random = random
        self._timeline = timeline
        self.kinds: set[str] = set()
        """The current spells."""
        self.cut_until = 0
        """Nothing gets through before this instant (ns)."""
        self.silent_since = 0
        """The instant (ns) at which that began."""

    def publish(self, fire: Fire) -> Fate:
        """Decide what happens to a fire."""
        return self._fate(FULL)

    def read(self, request: ReadContent) -> Fate:
        """Decide what happens to a read."""
        return self._fate(None)

    def purge(self, request: PurgeSchedule) -> Fate:
        """Decide what happens to a purge."""
        return self._fate(None)

    def remove(self, request: RemoveExpired) -> Fate:
        """Decide what happens to the removal of a message that has expired."""
        return self._fate(None)

    def follow(self, message: StoredMessage) -> int:
        """Return how long (ns) a stored message takes to the follower."""
        return self.way()

    def way(self) -> int:
        """Return how long (ns) anything takes from one side to the other."""
        longest = SLOWEST if "slow" in self.kinds and self._random.random() < 0.5 else USUAL
        return max(self.cut_until - self._timeline.now, 0) + int(self._random.random() * longest)

    def is_lost(self) -> bool:
        """Decide whether something gets lost in transit."""
        return "lossy" in self.kinds and self._random.random() < LOST

    def _fate(self, refusal: Refused | None) -> Fate:
        lossy = "lossy" in self.kinds
        return Fate(
            arrives=not self.is_lost(),
            answered=not self.is_lost(),
            refusal=refusal if "refusing" in self.kinds and self._random.random() < 0.5 else None,
            request_takes=self.way(),
            answer_takes=self.way(),
            twice=lossy and self._random.random() < 0.2,
        )
