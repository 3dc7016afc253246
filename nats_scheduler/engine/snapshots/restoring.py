"""Build the roster of an engine from the chunks of a snapshot, beside the engine.

The rule: the engine gets all of it at once, or, if any chunk is faulty, nothing.

Cost: a microsecond for each schedule, 10 with policies that need a history, in units of a fraction of a millisecond.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from nats_scheduler.engine.holding.far import FarColumns, Kind, read_text
from nats_scheduler.engine.holding.held import NO_EXPIRY, HeldElsewhere, HeldWithPolicies
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.snapshots.chunks import (
    Block,
    Chunk,
    DefinitionReader,
    Rest,
    SnapshotError,
    give_back,
    read_chunk,
)
from nats_scheduler.message.definition import Definition, Terms

OBJECTS_PER_UNIT = 64
"""Schedules with policies that are made in one unit of work."""

KINDS_PER_UNIT = 16
"""Kinds whose headers are read in one unit of work."""


class Restoring:
    """The schedules of a snapshot, as far as they were read."""

    def __init__(self, rest: Rest, count: int, read: DefinitionReader, now: int) -> None:
        """Prepare for `count` schedules; those whose TTL has run out by `now` (ns) are left out."""
        self.rest = rest
        self.roster = Roster()
        """Those that were taken."""
        self.roster.make_room(count)
        self.objects = 0
        """How many of them are objects."""
        self._expected = self._left = count
        self._read = read
        self._now = now

    def take(self, chunk: bytes) -> Iterator[None]:
        """Take the schedules of a chunk, and yield after each unit of work; raises `SnapshotError`."""
        found = read_chunk(chunk, self._read)
        yield
        kinds: list[Kind] = []
        for kind in found.kinds:
            kinds.append(kind)
            if len(kinds) % KINDS_PER_UNIT == 0:
                yield
        yield from (self._take_with_histories if found.has_histories else self._take_far)(found, kinds)

    def finish(self) -> Iterator[None]:
        """Check that everything was taken, and yield after each unit of work; raises `SnapshotError`."""
        if self._left:
            raise SnapshotError(f"there are {self._expected - self._left} schedules, and not {self._expected}")
        for subject in self.roster.twice():
            if subject is not None:
                raise SnapshotError(f"{subject.decode('utf-8', 'replace')[:80]} is there twice")
            yield

    def _take_far(self, chunk: Chunk, kinds: Sequence[Kind]) -> Iterator[None]:
        known = self.roster.rows.kinds
        numbers = [number for kind in kinds if (number := known.take(kind)) is not None]
        if len(numbers) < len(kinds):
            raise SnapshotError("there are more kinds than an engine has")
        for block in chunk.blocks:
            self._take_block(block, numbers)
            yield
        for number in numbers:
            known.release(number)

    def _take_block(self, block: Block, numbers: Sequence[int]) -> None:
        self._count(block)
        columns = FarColumns(
            array("H", [numbers[number] for number in block.kinds]),
            block.sequences,
            block.stored,
            block.shards,
            block.fire_times,
            block.wakes,
            block.ends,
            block.expiries,
            block.texts,
        )
        self.roster.fill(columns, block.hashes, self._now)

    def _take_with_histories(self, chunk: Chunk, kinds: Sequence[Kind]) -> Iterator[None]:
        shared: dict[tuple[int, str, str | None], Terms] = {}
        for block in chunk.blocks:
            self._count(block)
            for place in range(len(block.sequences)):
                if block.expiries.get(place, NO_EXPIRY) > self._now:
                    self._hold(block, place, kinds, shared)
                if place % OBJECTS_PER_UNIT == 0:
                    yield

    def _count(self, block: Block) -> None:
        self._left -= len(block.sequences)
        if self._left < 0:
            raise SnapshotError(f"there are more than {self._expected} schedules")
        if max(block.sequences) > self.rest.through:
            raise SnapshotError("a schedule was stored after the sequence of the snapshot")

    def _hold(
        self, block: Block, place: int, kinds: Sequence[Kind], shared: dict[tuple[int, str, str | None], Terms]
    ) -> None:
        """Hold a schedule whose policies need more than its definition; equal terms are `shared`."""
        number, fire_time = block.kinds[place], block.fire_times[place]
        text = block.texts[block.ends[place - 1] if place else 0 : block.ends[place]]
        try:
            subject, pattern, terms = read_text(kinds[number], text, fire_time)
        except ValueError:
            raise SnapshotError("a schedule has other texts than a subject, a target and a source") from None
        elsewhere = terms.policies.target_elsewhere
        if elsewhere not in (None, terms.target):
            raise SnapshotError(f"{subject[:80]} has two targets")
        terms = shared.setdefault((number, terms.target, terms.source), terms)
        held_as = HeldWithPolicies if elsewhere is None else HeldElsewhere
        held = held_as.from_snapshot(
            subject, block.sequences[place], Definition(pattern, terms), block.stored[place], fire_time
        )
        held.expires = block.expiries.get(place, NO_EXPIRY)
        give_back(held, block.histories[place])
        if not self.roster.put(held, block.wakes[place]):
            raise SnapshotError(f"{subject[:80]} is there twice")
        self.objects += 1
