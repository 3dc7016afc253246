"""Build the rows, the index and the agenda of an engine from the chunks of a snapshot, beside the engine.

The rule: the engine gets all of them at once, or, if any chunk is faulty, none of them.

Cost: half a microsecond for each schedule, in units of a row, a fraction of a millisecond.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from nats_scheduler.engine.far import FarColumns, Kind
from nats_scheduler.engine.far_agenda import FarAgenda
from nats_scheduler.engine.rows import Rows
from nats_scheduler.engine.snapshot_chunks import Block, DefinitionReader, SnapshotError, read_chunk
from nats_scheduler.engine.snapshot_rest import Rest
from nats_scheduler.engine.subject_index import SubjectIndex


class Restoring:
    """The schedules of a snapshot, as far as they were read."""

    def __init__(self, rest: Rest, count: int, read: DefinitionReader, far_bits: int, now: int) -> None:
        """Prepare for `count` schedules; those whose TTL has run out by `now` (ns) are left out."""
        self.rest = rest
        self.rows = Rows()
        self.index = SubjectIndex(self.rows.subject)
        self.index.make_room(count)
        self.agenda = FarAgenda(far_bits)
        self._expected = self._left = count
        self._read = read
        self._now = now

    def take(self, chunk: bytes) -> Iterator[None]:
        """Take the schedules of a chunk, and yield after each unit of work; raises `SnapshotError`."""
        kinds, blocks = read_chunk(chunk, self._read)
        yield
        numbers = [self._number_of(kind) for kind in kinds]
        for block in blocks:
            self._take_block(block, numbers)
            yield
        for number in numbers:
            self.rows.kinds.release(number)

    def finish(self) -> Iterator[None]:
        """Check that everything was taken, and yield after each unit of work; raises `SnapshotError`."""
        if self._left:
            raise SnapshotError(f"there are {self._expected - self._left} schedules, and not {self._expected}")
        for subject in self.index.twice():
            if subject is not None:
                raise SnapshotError(f"{subject.decode('utf-8', 'replace')[:80]} is there twice")
            yield

    def _number_of(self, kind: Kind) -> int:
        number = self.rows.kinds.take(kind)
        if number is None:
            raise SnapshotError("there are more kinds than an engine has")
        return number

    def _take_block(self, block: Block, numbers: list[int]) -> None:
        self._left -= len(block.sequences)
        if self._left < 0:
            raise SnapshotError(f"there are more than {self._expected} schedules")
        if max(block.sequences) > self.rest.through:
            raise SnapshotError("a schedule was stored after the sequence of the snapshot")
        kinds = array("H", [numbers[number] for number in block.kinds])
        first = self.rows.fill(
            FarColumns(
                kinds,
                block.sequences,
                block.stored,
                block.shards,
                block.fire_times,
                block.wakes,
                block.ends,
                block.expiries,
                block.texts,
            )
        )
        self.index.fill(block.hashes, first)
        self.agenda.fill(block.wakes, first)
        for place in [place for place, expires in block.expiries.items() if expires <= self._now]:
            self.index.pop(self.rows.subject(first | place))
            self.rows.discard(first | place)
