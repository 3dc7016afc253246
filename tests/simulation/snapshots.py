"""The bucket of snapshots: modelled as the stream that it is, and how one process sees it.

Its rule: everything that was ever written is kept aside, so that a process may find an older snapshot, or one that is
damaged. What is wrong with what it finds is drawn once for each process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from nats_scheduler.engine.snapshots import snapshots
from nats_scheduler.jetstream.errors import NoJetStreamError
from nats_scheduler.message.foreign_json import Object, read_object
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.runtime import snapshots as kept_snapshots
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.simulation.bucket import BucketServer
from tests.simulation.link import Link
from tests.simulation.process import Point
from tests.simulation.timeline import Timeline

FOUND = ("latest", "latest", "latest", "older", "partial", "damaged", "foreign", "none")
"""The snapshots, of those that were written, that a process may find."""

HASTY = (
    (kept_snapshots, "FIRST_CHECK_SECONDS", 0.2),
    (kept_snapshots, "SNAPSHOT_CHECK_INTERVAL_SECONDS", 0.5),
    (kept_snapshots, "MIN_MESSAGES_AFTER", 1),
    (kept_snapshots, "MAX_SHARE_AFTER", 0.0),
    (kept_snapshots, "LOAD_CHECK_SECONDS", 0),
    (kept_snapshots, "MIN_PAUSE_NS", 2 * SECOND),
    (kept_snapshots, "PAUSE_FOR_EACH_NS", 0),
    (kept_snapshots, "PAUSE_FOR_EACH_OBJECT_NS", 0),
    (kept_snapshots, "WITNESS_INTERVAL_NS", 700 * MILLISECOND),
    (kept_snapshots, "UNIT_PAUSE_SECONDS", 0.1),
    (kept_snapshots, "QUIET_WAIT_SECONDS", 0.02),
    (snapshots, "PLACES_PER_UNIT", 2),
)
"""A snapshot after each few messages, taken while much happens."""


@contextmanager
def hasty() -> Iterator[None]:
    """Have snapshots taken often and slowly while the block runs."""
    usual = [(place, name, getattr(place, name)) for place, name, _changed in HASTY]
    try:
        for place, name, changed in HASTY:
            setattr(place, name, changed)
        yield
    finally:
        for place, name, original in usual:
            setattr(place, name, original)


class SnapshotServer(BucketServer):
    """The bucket as the server holds it; it shares the silence of the registry's bucket."""

    def __init__(self, timeline: Timeline, silent_until: Callable[[], int]) -> None:
        """`silent_until` returns the instant (ns) before which no request is answered."""
        super().__init__(timeline)
        self._silent_until = silent_until

    def listen(self) -> None:
        """Raise if no answer is given now."""
        self.leaderless_until = self._silent_until()
        self._listen()

    def put(self, key: str, body: bytes) -> int:
        """Write bytes; returns their sequence."""
        self.listen()
        sequence = self.write(key, body)
        assert sequence is not None, "no revision was named"
        return sequence

    def purge_below(self, keys: str, sequence: int) -> None:
        """Remove what is stored under matching keys below a sequence."""
        self.listen()
        if self.stream is None:
            raise NoJetStreamError(f"{keys}: no server answers")
        found = [one.sequence for one in self.stream.messages() if subject_matches(one.subject, keys)]
        for one in found:
            if one < sequence:
                self.stream.delete(one)


class SimulatedSnapshots:
    """The bucket through one connection of one process: a `runtime.port.SnapshotBucket`."""

    def __init__(self, server: SnapshotServer, link: Link, found: str, random: Random) -> None:
        """Find the `latest` snapshot, an `older` one, or one with which something is wrong."""
        self._server = server
        self._link = link
        self._found = found
        self._random = random

    async def open(self) -> bool:
        """Create the bucket if it does not exist."""

        def opened() -> bool:
            self._server.listen()
            is_new = self._server.look() is None
            self._server.create()
            return is_new

        return await self._link.ask_again(Point.WRITE_SNAPSHOT, opened)

    async def revised(self, key: str) -> tuple[Object | None, int]:
        """Return the last value, or another one, and its revision."""
        message = await self._link.ask_again(Point.READ_SNAPSHOT, lambda: self._last(key), then=Point.SNAPSHOT_READ)
        if message is None:
            return None, 0
        body, revision = message.body or b"", message.sequence
        if key.startswith("manifest") and self._found == "none":
            return None, revision
        if key.startswith("manifest") and self._found == "older":
            body = self._random.choice(self._server.versions[key])
        value = read_object(body)
        assert value is not None, "only sidecars write here"
        if key.startswith("manifest") and self._found == "foreign":
            value["basis"] = "another"
        return value, revision

    async def swap(self, key: str, value: Any, revision: int) -> int | None:
        """Write a value in place of another one."""

        def swapped() -> int | None:
            self._server.listen()
            return self._server.swap(key, value, revision)

        return await self._link.ask(Point.WRITE_SNAPSHOT, swapped, Point.SNAPSHOT_WRITTEN)

    async def chunk(self, key: str) -> bytes | None:
        """Return the bytes under a key, or others."""
        await self._link.ask_again(Point.READ_SNAPSHOT, lambda: self._last(key), then=Point.SNAPSHOT_READ)
        written = self._server.versions.get(key, [])
        if not written or (self._found == "partial" and self._random.random() < 0.5):
            return None
        chunk = written[-1]
        return chunk[:-1] + bytes([chunk[-1] ^ 1]) if self._found == "damaged" else chunk

    async def write_chunk(self, key: str, chunk: bytes) -> int:
        """Write bytes under a key."""
        return await self._link.ask(Point.WRITE_SNAPSHOT, lambda: self._server.put(key, chunk), Point.SNAPSHOT_WRITTEN)

    async def purge_below(self, keys: str, sequence: int) -> None:
        """Purge what is stored under matching keys below a sequence."""
        await self._link.ask(Point.WRITE_SNAPSHOT, lambda: self._server.purge_below(keys, sequence))

    def _last(self, key: str) -> Any:
        self._server.listen()
        return self._server.last(key)
