"""The snapshots of an engine: what it gives into one of itself, and how another engine begins with it.

A snapshot says what the engine knows of everything up to one sequence. Its schedules are visited some at a time while
the engine goes on, so that some are newer than that sequence: reading the messages after it again changes nothing
(`engine.reading.intake`). So an engine that begins with a snapshot is as one that lost contact at that sequence.

The rules:

- A snapshot begins when nothing that was read or acknowledged is left to be taken. So each fire up to its sequence
  shows in its schedule, or its schedule is done.
- It is over when each fire that was acknowledged meanwhile has been read back. The stream must then have all messages
  up to the last one that was read, or what schedules say of their fires may not be true.
- A schedule that was stored after the sequence is left out: it is read again. So is one that was stored before the
  first message that its stream still has: `max_age` removes from the beginning, and the others wait as they did.
- What policies need of earlier fires (`engine.snapshots.chunks`) belongs to their schedules. That some of it is newer
  than the sequence is harmless too: to read back a fire again changes nothing.
- What would have to be known of calendars, of places, or of the messages that expire, is in no snapshot: then there is
  none.
- An engine that begins gets all of a snapshot at once, or, if any chunk is faulty, nothing (`Restoring`).

Cost of beginning: a microsecond for each schedule, 10 with policies that need a history, in units of a fraction of a
millisecond.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from nats_scheduler.engine.firing.done import Deadlines
from nats_scheduler.engine.firing.outcomes import Outcomes
from nats_scheduler.engine.holding.far import NO_FIRE_TIME, FarEntry, FarKind, kind_and_text, read_text
from nats_scheduler.engine.holding.flight import DONE
from nats_scheduler.engine.holding.held import NO_EXPIRY, NO_WAKE, Held
from nats_scheduler.engine.holding.lifecycle import Lifecycle, Part
from nats_scheduler.engine.holding.roster import ROW_LENGTH, Roster, Row
from nats_scheduler.engine.inputs import Version
from nats_scheduler.engine.ownership.takeover import Takeover
from nats_scheduler.engine.reading.inactive import Inactive
from nats_scheduler.engine.removing.purges import Purges
from nats_scheduler.engine.snapshots.chunks import (
    MAX_EXCEPTIONS,
    Block,
    Chunk,
    ChunkWriter,
    DefinitionReader,
    Done,
    LastRead,
    OldVersion,
    Rest,
    SnapshotError,
    UnkeepableError,
    give_back,
    history_of,
    read_chunk,
)
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules

OBJECTS_PER_UNIT = 64
"""Schedules with policies that are made in one unit of work."""

KINDS_PER_UNIT = 16
"""Kinds whose headers are read in one unit of work."""


class Restoring:
    """The schedules of a snapshot, as far as they were read."""

    def __init__(self, rest: Rest, count: int, read: DefinitionReader, now: int, first: int) -> None:
        """Prepare for `count` schedules.

        Those whose TTL has run out by `now` (ns), or with a sequence below `first`, are left out.
        """
        self.rest = rest
        self.roster = Roster()
        """Those that were taken."""
        self.objects = 0
        """The number of them that are objects."""
        self._expected = self._left = count
        self._read = read
        self._now = now
        self._first = first

    def take(self, chunk: bytes) -> Iterator[None]:
        """Take the schedules of a chunk, and yield after each unit of work; raises `SnapshotError`."""
        found = read_chunk(chunk, self._read)
        yield
        kinds: list[FarKind] = []
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

    def _take_far(self, chunk: Chunk, kinds: Sequence[FarKind]) -> Iterator[None]:
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
        columns = block.columns._replace(kinds=array("H", [numbers[number] for number in block.columns.kinds]))
        may_be_gone = columns.expiries or min(columns.sequences) < self._first
        gone = [place for place in range(len(columns.sequences)) if self._is_gone(block, place)] if may_be_gone else []
        self.roster.fill(columns, gone)

    def _is_gone(self, block: Block, place: int) -> bool:
        rows = block.columns
        return rows.sequences[place] < self._first or rows.expiries.get(place, NO_EXPIRY) <= self._now

    def _take_with_histories(self, chunk: Chunk, kinds: Sequence[FarKind]) -> Iterator[None]:
        shared: dict[tuple[int, str, str | None], Terms] = {}
        for block in chunk.blocks:
            self._count(block)
            for place in range(len(block.columns.sequences)):
                if not self._is_gone(block, place):
                    self._hold(block, place, kinds, shared)
                if place % OBJECTS_PER_UNIT == 0:
                    yield

    def _count(self, block: Block) -> None:
        self._left -= len(block.columns.sequences)
        if self._left < 0:
            raise SnapshotError(f"there are more than {self._expected} schedules")
        if max(block.columns.sequences) > self.rest.through:
            raise SnapshotError("a schedule was stored after the sequence of the snapshot")

    def _hold(
        self, block: Block, place: int, kinds: Sequence[FarKind], shared: dict[tuple[int, str, str | None], Terms]
    ) -> None:
        """Hold a schedule whose policies need more than its definition; equal terms are `shared`."""
        rows = block.columns
        number, fire_time = rows.kinds[place], rows.fire_times[place]
        text = rows.texts[rows.ends[place - 1] if place else 0 : rows.ends[place]]
        try:
            subject, pattern, terms = read_text(kinds[number], text, fire_time)
        except ValueError:
            raise SnapshotError("a schedule has other texts than a subject, a target and a source") from None
        elsewhere = terms.policies.target_elsewhere
        if elsewhere not in (None, terms.target):
            raise SnapshotError(f"{subject[:80]} has two targets")
        terms = shared.setdefault((number, terms.target, terms.source), terms)
        held = Held(subject, rows.sequences[place], Definition(pattern, terms), rows.stored[place], fire_time)
        held.expires = rows.expiries.get(place, NO_EXPIRY)
        give_back(held, block.histories[place])
        if not self.roster.put(held, rows.wakes[place]):
            raise SnapshotError(f"{subject[:80]} is there twice")
        self.objects += 1


PLACES_PER_UNIT = 64
"""Places that are visited in one unit of work, which takes some 0.2 ms."""

MAX_KINDS_PER_UNIT = 8
"""A row with more kinds of schedules is not added at once: the headers of each have to be written."""


class Snapshots(Part):
    """The snapshots that one stream's engine gives and takes."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        outcomes: Outcomes,
        purges: Purges,
        takeover: Takeover,
        inactive: Inactive,
        deadlines: Deadlines,
        rules: StreamRules,
        dialects: Sequence[Dialect],
        *,
        removes_expired: bool,
    ) -> None:
        """Take the parts of an engine that a snapshot concerns."""
        super().__init__(lifecycle)
        self._outcomes = outcomes
        self._purges = purges
        self._takeover = takeover
        self._inactive = inactive
        self._deadlines = deadlines
        self._rules, self._dialects = rules, dialects
        is_limited = rules.restrictions.max_schedules is not None
        reads_all = lifecycle.ownership.reads_all
        self._can_be = reads_all and not (removes_expired or rules.moves_subjects or is_limited)

    @property
    def is_possible(self) -> bool:
        """True if there can be a snapshot of the stream, as far as no schedule prevents it."""
        return self._can_be and not self._progress.is_behind

    def begin_restoring(self, rest: Rest, count: int, now: int, first: int) -> Restoring:
        """Begin to read a snapshot of `count` schedules at `now` (ns), for `begin_with`; `first` is stored first."""
        return Restoring(rest, count, self._read, now, first)

    def _read(self, block: bytes, subject: str, stored_at: int) -> Definition | None:
        reading = read_message(block, subject, stored_at, self._rules, self._dialects)
        return None if reading is None else reading.definition

    @property
    def may_begin(self) -> bool:
        """True if nothing is left to be taken of what was read and acknowledged."""
        progress = self._progress
        is_idle = not (self._in_flight.count or self._purges.outstanding) and self._outcomes.is_idle
        return progress.is_live and progress.last_message is not None and is_idle and not progress.matched

    @property
    def may_end(self) -> bool:
        """True if all fires that were acknowledged have been read back."""
        return self.may_begin and not self._progress.expected

    def begin(self) -> Taking:
        """Begin with a snapshot; only while `may_begin`."""
        assert self.may_begin, "what was read is not taken yet"
        return Taking(self)

    def begin_with(self, restoring: Restoring, now: int) -> None:
        """Hold what a snapshot has at `now` (ns), in an engine that has read nothing, before its next step."""
        lifecycle, progress, rest = self._lifecycle, self._progress, restoring.rest
        assert not progress.last_read, "the engine has read nothing"
        self._roster.adopt(restoring.roster)
        self._roster.comes_to(now)
        for roll_up in rest.roll_ups:
            self._purges.roll_up(*roll_up)
        progress.last_read = rest.through
        progress.last_message = StoredMessage(*rest.last, block=b"", body=None)
        lifecycle.lifetimes.requests_missed(rest.through)
        lifecycle.ownership.last_fired = rest.last_fired
        lifecycle.landed.restore(rest.landed)
        for subject, through, sequence, stored_at in rest.old_versions:
            self._takeover.superseded(subject, through, Version(sequence, stored_at), None)
        for subject, sequence, ending in rest.done:
            if (held := self._roster.exactly(subject, sequence)) is not None:
                self._purges.purge(held, ending)


class Taking(Part):
    """One snapshot, as far as it was taken."""

    def __init__(self, parts: Snapshots) -> None:
        """Begin at what was read last."""
        super().__init__(parts._lifecycle)
        self._parts = parts
        self.through = self._progress.last_read
        """Messages after this sequence are to be read again."""
        last = self._progress.last_message
        assert last is not None, "something was read"
        self._last = LastRead(last.subject, last.sequence, last.stored_at)
        self.count = 0
        """The number of schedules that it has so far."""
        self._done: list[Done] = []
        self._rows = ChunkWriter()
        """Those of whole rows."""
        self._with_histories = ChunkWriter()
        self._full: list[bytes] = []
        """Chunks of rows, and of schedules with histories, that are full."""

    def chunks(self) -> Iterator[bytes | None]:
        """Yield the chunks of all schedules, and None after each unit of work. Raises `UnkeepableError`."""
        writer, number = ChunkWriter(), 0
        while number < len(self._roster.rows):
            if self._add_row(self._roster.rows[number]):
                yield from self._full_chunks()
                number += 1
                continue
            for first in range(0, ROW_LENGTH, PLACES_PER_UNIT):
                if first >= self._roster.rows[number].used:
                    break
                for entry in self._entries(number, first):
                    if entry.sequence <= self.through:
                        self.count += 1
                        if (full := writer.add(entry)) is not None:
                            yield full
                yield from self._full_chunks()
            number += 1
        for last in (self._rows.finish(), writer.finish(), self._with_histories.finish()):
            if last is not None:
                yield last

    def rest(self) -> Rest:
        """Return what belongs to the schedules, once all were visited. Raises `UnkeepableError`."""
        parts, through = self._parts, self.through
        inactive, noted = parts._inactive, parts._inactive.misnamed
        to_read = {one.sequence for one in inactive.rejected.values()}
        to_read |= {one.sequence for one in inactive.paused.values()} | {one.sequence for one in noted.values()}
        to_read.update(parts._deadlines.sequences)
        rest = Rest(
            through,
            self._last,
            self._ownership.last_fired,
            tuple(parts._purges.roll_ups()),
            self._landed.known(),
            tuple(_old_versions(parts._purges, parts._takeover).values()),
            tuple(self._done),
            tuple(sorted(sequence for sequence in to_read if sequence <= through)),
        )
        if rest.exceptions > MAX_EXCEPTIONS:
            raise UnkeepableError(f"more than {MAX_EXCEPTIONS:,} messages would have to be named")
        return rest

    def _full_chunks(self) -> Iterator[bytes | None]:
        """Yield what became full in a unit of work, and None."""
        while self._full:
            yield self._full.pop()
        yield None

    def _add_row(self, row: Row) -> bool:
        """Add all schedules of a row at once; returns whether that was possible, as it is for most of a million."""
        columns = row.far.columns() if row.far.count == row.used else None
        if columns is None or max(columns.sequences) > self.through or len(set(columns.kinds)) > MAX_KINDS_PER_UNIT:
            return False
        self.count += len(columns.sequences)
        if (full := self._rows.add_row(columns, self._roster.rows.kinds.__getitem__)) is not None:
            self._full.append(full)
        return True

    def _entries(self, number: int, first: int) -> Iterator[FarEntry]:
        row = self._roster.rows[number]
        for place in range(first, min(first + PLACES_PER_UNIT, row.used)):
            held = row.near.get(place)
            if held is not None and held.has_history:
                self._add_with_history(held)
            elif held is not None:
                yield self._near_entry(held)
            elif row.far.has(place):
                yield row.far.entry(place)

    def _add_with_history(self, held: Held) -> None:
        entry = self._near_entry(held)
        if held.calendars:
            raise UnkeepableError(f"{held.subject} cannot be kept because it names a calendar")
        if held.sequence <= self.through:
            self.count += 1
            if (full := self._with_histories.add(entry, history_of(held))) is not None:
                self._full.append(full)

    def _near_entry(self, held: Held) -> FarEntry:
        """Return a near schedule as one that waits: what is in progress for it begins anew."""
        packed = kind_and_text(held.subject, held.pattern, held.terms, held.fire_time)
        if packed is None:
            raise UnkeepableError(f"{held.subject} cannot be kept because of its fire time, or of its texts")
        if held.flight is not None and held.flight.stage in DONE and held.sequence <= self.through:
            self._done.append(Done(held.subject, held.sequence, held.flight.ending))
        fire_time = _first_due(held)
        # One that is looked at later than its fire is due would not bound checkpoints (`engine.ownership.takeover`).
        due = min(held.send_time_of(fire_time), NO_FIRE_TIME - 1)
        wake = due if held.wake == NO_WAKE else min(held.wake, due)
        numbers = held.sequence, held.stored_at, fire_time, max(wake, 0), held.expires
        return FarEntry(*packed, *numbers)


def _first_due(held: Held) -> int:
    """Return the fire time (ns) with which a schedule begins anew.

    A make-up fire that is not stored stands for earlier ones: what becomes of them is decided again, and reported.
    But a schedule that sends each of them begins with the first that it owes.
    """
    flight = held.flight
    if flight is None or flight.missed_since is None or held.terms.policies.missed.kept is Kept.ALL:
        return held.fire_time
    return flight.missed_since


def _old_versions(purges: Purges, takeover: Takeover) -> dict[str, OldVersion]:
    """Return old versions that may still be stored, by subject."""
    found: dict[str, OldVersion] = {}

    def note(subject: str, through: int, known: Version) -> None:
        before = found.get(subject)
        if before is None or before.through < through:
            found[subject] = OldVersion(subject, through, known.sequence, known.stored_at)

    for subject, (through, known) in takeover.noted().items():
        note(subject, through, known)
    for subject, version, through in purges.may_be_stored():
        note(subject, through, version)
    return found
