"""Bugs of snapshots, planted on purpose, to be found in worlds whose instances keep snapshots.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from nats_scheduler.engine.holding.far import FarEntry, SubjectIndex
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.roster import Rows
from nats_scheduler.engine.reading.admission import Admission, Found
from nats_scheduler.engine.snapshots import snapshots
from nats_scheduler.engine.snapshots.snapshots import Restoring, Snapshots, Taking
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import Removed
from nats_scheduler.runtime import continuity
from nats_scheduler.runtime import snapshots as kept_snapshots
from nats_scheduler.runtime.port import StreamContents
from nats_scheduler.runtime.removals import Removals
from nats_scheduler.runtime.snapshots import Manifest, snapshot_key
from tests.simulation.planted_division import Changes


def tail_begins_too_late() -> Changes:
    """Leave out the first messages that are stored after the sequence of the snapshot."""
    original = Snapshots.begin_with
    late: set[int] = set()

    def begin_with(self: Snapshots, found: Restoring, now: int) -> None:
        original(self, found, now)
        late.add(id(self))

    def followed_through(self: StreamEngine) -> int:
        is_late = id(self.snapshots) in late
        late.discard(id(self.snapshots))
        return self.last_read + 2 * is_late

    yield Snapshots, "begin_with", begin_with
    yield StreamEngine, "followed_through", property(followed_through)


def replaced_schedule_survives() -> Changes:
    """Find none of the schedules of a snapshot by its subject."""
    original = SubjectIndex.fill

    def fill(self: SubjectIndex, hashes: array[int], first: int) -> None:
        original(self, array("I", [hashed ^ 1 for hashed in hashes]), first)

    yield SubjectIndex, "fill", fill


def fire_taken_for_stored() -> Changes:
    """Have a schedule begin with the fire after its next one."""
    original = Taking._near_entry

    def near_entry(self: Taking, held: Held) -> FarEntry:
        following = held.next_fire(held.fire_time)
        return original(self, held)._replace(fire_time=held.fire_time if following is None else following)

    yield Taking, "_near_entry", near_entry


def living_schedule_removed() -> Changes:
    """End whatever waits when something was removed, and believe the server whatever it says."""

    def find(self: Admission, *_gone: Any) -> Iterator[Found]:
        yield [(held.subject, held.sequence) for held in self._roster]

    async def end(self: Removals, _api: StreamContents, removed: Removed) -> int:
        for found in self._engine.admission.find_gone(*removed):
            await self._pass(found)
        return 1

    yield Admission, "find_gone", find
    yield Removals, "_end", end


def stream_trusted() -> Changes:
    """Take any stream that is long enough for the one that a snapshot is of."""

    async def unchecked(_bucket: object, api: StreamContents, stream: str, _mode: str, manifest: Manifest) -> object:
        return await api.message(stream, seq=manifest.witness.sequence)

    async def unnoticed(*_args: object) -> str:
        return ""

    yield kept_snapshots, "_witness", unchecked
    yield continuity, "step_back", unnoticed
    yield kept_snapshots, "read_snapshot", _for_any_basis(kept_snapshots.read_snapshot)


def _for_any_basis(original: Any) -> Any:
    async def read(bucket: Any, api: Any, engine: Any, stream: str, mode: str, _basis: str, now: int) -> Any:
        document, _revision = await bucket.revised(snapshot_key("manifest", stream, mode))
        return await original(bucket, api, engine, stream, mode, (document or {}).get("basis", ""), now)

    return read


def rows_not_entered() -> Changes:
    """Enter none of the schedules of a row when its earliest one becomes near."""
    yield Rows, "far_wakes", lambda _self, _first: []


def history_forgotten() -> Changes:
    """Know nothing of the fire before of a schedule with policies."""
    yield snapshots, "give_back", lambda _held, _history: None


def target_taken_for_one_of_the_stream() -> Changes:
    """Expect to read back the fires of a schedule whose target is in another stream."""

    class HeldHere(Held):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.is_elsewhere = False

    yield snapshots, "Held", HeldHere


OF_SNAPSHOTS = (
    tail_begins_too_late,
    replaced_schedule_survives,
    fire_taken_for_stored,
    living_schedule_removed,
    rows_not_entered,
    history_forgotten,
    target_taken_for_one_of_the_stream,
)
"""Those that a start with a snapshot shows, in a world made by hand; few seeds show them."""
