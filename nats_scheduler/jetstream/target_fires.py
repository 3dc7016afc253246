"""The fires among the messages on one target in another stream, read once for all schedules that look for theirs.

The rule: everything on the target that was stored since an instant is read, from the newest message back; a later
look reads only what was stored since, or what is older than what was read. What was read within the last second is
not read again: while fires of thousands of schedules land on one target, each look would read those of the others.
It is no `SingleFlight`, because looks want different parts, and each reading adds to what was read.

Cost: 10 µs for each message on the target where a consumer is harmless, else one request for each; a few hundred
bytes for each fire among them.
"""

import asyncio
from collections.abc import Sequence

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.reading import read_generated
from nats_scheduler.message.stored import StoredMessage

FRESH_SECONDS = 1.0
"""For this time what was read counts as all that is stored; the duplicate window protects what is stored meanwhile."""

MAX_FIRES_KEPT = 16
"""Fires of one schedule that are kept, those for the latest fire times: the last one matters, others may be forged."""


class TargetFires:
    """The fires on one target, as far as they were read."""

    def __init__(self, connection: Connection, api: JetStreamApi, target: str) -> None:
        self._connection = connection
        self._api = api
        self._target = target
        self._fires: dict[tuple[str, int], list[tuple[int, StoredMessage]]] = {}
        """Of each version of a schedule, by subject and sequence, its fires and their fire times."""
        self._since: int | None = None
        """From which instant (ns) on everything is known that is stored up to sequence `_through`; None: nothing."""
        self._from = 0
        """The lowest sequence that was read."""
        self._through = 0
        self._read_at = -FRESH_SECONDS
        """The time (by the loop's clock) at which the last read began that was finished."""
        self._loop = asyncio.get_running_loop()
        self._reading = asyncio.Lock()

    def knows(self, since: int, not_before: float) -> bool:
        """Return whether everything that was stored from `since` (ns) on until about now was read.

        What was read before an instant of the loop's clock does not count.
        """
        is_fresh = self._read_at >= max(not_before, self._loop.time() - FRESH_SECONDS)
        return is_fresh and self._since is not None and self._since <= since

    def of(self, schedule: str, sequence: int) -> Sequence[StoredMessage]:
        """Return the fires of a version of a schedule that were read."""
        return [message for _fire_time, message in self._fires.get((schedule, sequence), ())]

    async def read_since(self, stream: StreamState, since: int, last: int, not_before: float) -> None:
        """Read what was stored from `since` (ns) on, up to sequence `last`, the last message on the target just now.

        What was read before `not_before`, by the loop's clock, does not count.

        Raises `SchedulerError` if not everything could be read.
        """
        async with self._reading:
            if self.knows(since, not_before):
                return  # another look has read it meanwhile
            began = self._loop.time()
            if self._since is None:
                self._from = last + 1
                await self._read(stream, since, stream.first_sequence, last)
                self._since, self._through = since, last
            if last > self._through:
                await self._read(stream, None, self._through + 1, last)
                self._through = last
            if since < self._since:
                await self._read(stream, since, stream.first_sequence, self._from - 1)
                self._since = since
            self._read_at = began

    async def _read(self, stream: StreamState, since: int | None, first: int, last: int) -> None:
        """Read between two sequences, and no further back than what was stored before `since` (ns)."""
        reader = StretchReader(self._connection, self._api, stream.config, self._target)
        async for chunk in reader.backwards(max(first, 1), last):
            for message in chunk:
                self._keep(message)
            if since is not None and chunk:
                self._from = min(self._from, chunk[-1].sequence)
                if chunk[-1].stored_at < since:
                    return

    def _keep(self, message: StoredMessage) -> None:
        generated = read_generated(message.block)
        if generated is None:
            return
        fires = self._fires.setdefault((generated.schedule, generated.sequence), [])
        fires.append((generated.fire_time, message))
        if len(fires) > MAX_FIRES_KEPT:
            fires.remove(min(fires, key=lambda fire: fire[0]))
