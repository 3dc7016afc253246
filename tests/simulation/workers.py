"""Workers: each target has a consumer, whose worker finishes every message after a while, not always in order.

Its rule: all that is random comes from the seed, by generators of its own; what is finished is recorded for the judge.
"""

from random import Random

from nats_scheduler.message.stored import StoredMessage
from tests.judge.history import SECOND
from tests.simulation.server import Server

WORK_SECONDS = (0.01, 0.05, 0.3, 0.8, 2, 5, 12, 24)
"""The times (s) that the work on one message takes."""

TARGETS = 12


def worker_of(target: str) -> str:
    """Return the name of the consumer of a target."""
    return f"worker-{target.removeprefix('t.')}"


class Workers:
    """All workers of a world."""

    def __init__(self, server: Server, seed: int) -> None:
        """Begin to work on what is stored on the targets of schedules."""
        self._server = server
        self._random = Random(f"work {seed}")
        self._open: dict[str, list[int]] = {}
        self._done: set[int] = set()
        for number in range(TARGETS):
            target = f"t.{number}"
            server.stream.add_consumer(worker_of(target), target)
        server.stream.listen(self._stored)

    def _stored(self, message: StoredMessage) -> None:
        if not message.subject.startswith("t."):
            return
        self._open.setdefault(message.subject, []).append(message.sequence)
        takes = round(self._random.choice(WORK_SECONDS) * SECOND)
        self._server.timeline.after(takes, lambda: self._finished(message.subject, message.sequence))

    def _finished(self, target: str, sequence: int) -> None:
        self._server.stream.consumers[worker_of(target)].acknowledge(sequence)
        self._done.add(sequence)
        self._server.history.acknowledged[sequence] = self._server.timeline.now
        left = self._open[target]
        while left and left[0] in self._done:
            self._server.history.finished[left.pop(0)] = self._server.timeline.now
