"""Thousands of requests written at once, with every answer kept: what a race needs on the publisher's side.

Its rule: all frames are built before the first is written, so that they reach the server as close together as one
connection can bring them.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.account import Account
from tests.harness.blocks import block_to_send
from tests.harness.waiting import eventually

Asked = tuple[str, bytes, bytes]
"""Subject, header block and body."""


class Burst:
    """One burst on a test's own connection; answers are kept by the position of the request."""

    def __init__(self, account: Account, name: str, then: Callable[[int], Asked] | None = None) -> None:
        """Prepare a burst; with `then`, each answer is followed at once by a request of its own, answered apart."""
        self._connection = account.connection
        self._first = self._connection.inbox(f"burst.{name}.first")
        self._second = self._connection.inbox(f"burst.{name}.second")
        self._then = then
        self.answers: dict[int, dict[str, Any]] = {}
        self.followed: dict[int, dict[str, Any]] = {}
        self._numbers = [
            self._connection.subscribe(f"{self._first}.*", self._answered),
            self._connection.subscribe(f"{self._second}.*", self._was_followed),
        ]

    def frames(self, asked: Sequence[Asked], parts: int = 1) -> list[bytes]:
        """Build the frames of a burst in `parts` parts, the last request first."""
        numbered = list(enumerate(asked))[::-1]
        built = [frame(subject, f"{self._first}.{number}", block, body) for number, (subject, block, body) in numbered]
        size = -(-len(built) // parts)
        return [b"".join(built[start : start + size]) for start in range(0, len(built), size)]

    def write(self, frames: bytes) -> None:
        """Send a part."""
        self._connection.write(frames)

    async def answered(self, count: int) -> None:
        """Wait for all answers, and end the burst."""
        kept = self.answers if self._then is None else self.followed
        await eventually(lambda: len(kept) == count, describe=lambda: f"{count} answers, {len(kept)} so far")
        for number in self._numbers:
            self._connection.unsubscribe(number)

    def _answered(self, subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        number = int(subject.rpartition(b".")[2])
        self.answers[number] = json.loads(body or b"{}")
        if self._then is not None:
            following, block, said = self._then(number)
            self._connection.write(frame(following, f"{self._second}.{number}", block, said))

    def _was_followed(self, subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        self.followed[int(subject.rpartition(b".")[2])] = json.loads(body or b"{}")


async def store_herd(account: Account, stream: str, due: int, count: int) -> None:
    """Store schedules that are all due at one instant (ns), numbered by their subjects `s.*` and their bodies.

    They are sent in one breath, so that on a slow machine too all are stored before the first one fires.
    """
    headers = {"Nats-Schedule": f"@at {format_rfc3339(due)}", "Nats-Schedule-Target": f"{stream}.out"}
    block, herd = block_to_send(headers), Burst(account, "herd")
    [frames] = herd.frames([(f"{stream}.s.{number}", block, b"%d" % number) for number in range(count)])
    herd.write(frames)
    await herd.answered(count)
    refused = [answer for answer in herd.answers.values() if "error" in answer]
    assert not refused, refused[0]
