"""The snapshots of one served stream: its engine begins with one, if one fits, and keeps the next.

The rule: an engine begins with a snapshot at its first contact or never; what happens then is as without one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nats_scheduler.engine.snapshot_chunks import SnapshotError
from nats_scheduler.jetstream.errors import JetStreamError, NotPermittedError
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.port import SnapshotBucket, StreamContents
from nats_scheduler.runtime.snapshot_keeping import SnapshotKeeper, SnapshotReports, may_have_snapshot
from nats_scheduler.runtime.snapshot_reading import ChunkGoneError, Snapshot, read_snapshot


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    """Where the snapshots of an account are kept, through one connection."""

    bucket: SnapshotBucket
    reports: SnapshotReports
    are_used: bool = True
    """Whether an engine may begin with one; new ones are kept in any case."""


class StreamSnapshots:
    """The snapshots of one stream."""

    def __init__(
        self,
        driver: StreamDriver,
        stream: str,
        mode: str,
        basis: Callable[[], str],
        clock: Clock,
        shards: Callable[[], frozenset[int]],
    ) -> None:
        """Use none yet; `basis` returns the digest of what the engine depends on, `shards` those that are ours."""
        self._driver = driver
        self._stream, self._mode = stream, mode
        self._basis = basis
        self._clock = clock
        self._is_first = True
        self._keeper = SnapshotKeeper(driver.engine, stream, mode, basis, clock, shards, lambda: driver.has_spare_time)

    async def begin_with(self, kept: KeptSnapshots | None, api: StreamContents, last_sequence: int) -> bool:
        """Have the engine begin with a snapshot, if it has read nothing and one fits; returns whether it does.

        `last_sequence` is that of the stream: of a thousand streams most are too short to have one.
        """
        if not may_have_snapshot(last_sequence):
            return False
        engine, is_first, self._is_first = self._driver.engine, self._is_first, False
        if kept is None or not kept.are_used or not is_first or engine.last_read or not engine.snapshots.is_possible:
            return False
        try:
            found = await self._read(kept.bucket, api)
        except NotPermittedError:
            return False  # the missing permission is reported, and the bucket may not even exist
        except (SnapshotError, JetStreamError, TimeoutError) as error:
            kept.reports.snapshot_ignored(self._stream, str(error) or "it is not answered for")
            return False
        if found is None:
            return False
        for given in found.inputs:
            self._driver.receive(given)
        self._driver.witness = found.witness
        self._driver.step_if_due()
        through = found.restoring.rest.through
        self._keeper.begun_with(found.generation, through)
        kept.reports.snapshot_used(self._stream, len(engine.held), through)
        return True

    async def _read(self, bucket: SnapshotBucket, api: StreamContents) -> Snapshot | None:
        """Read a snapshot, and once more if another instance may have replaced it meanwhile."""
        engine, basis = self._driver.engine, self._basis()
        try:
            return await read_snapshot(bucket, api, engine, self._stream, self._mode, basis, self._clock.now())
        except ChunkGoneError:
            return await read_snapshot(bucket, api, engine, self._stream, self._mode, basis, self._clock.now())

    async def keep(self, kept: KeptSnapshots | None, api: StreamContents) -> None:
        """Keep a snapshot, until cancelled."""
        if kept is not None:
            await self._keeper.keep(kept.bucket, api, kept.reports)
