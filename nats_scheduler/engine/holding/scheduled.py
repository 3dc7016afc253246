"""The schedules that are held, and when each of them has to be woken next.

Every schedule is a row of the table (`engine.holding.table`), or becomes one at the end of the step. An object exists
while something is in progress for it, while it is woken soon, and while its policies need to know of its earlier fires;
then its row may be older than it is.

The rules:

- A row whose wake is at most `objects_through` has an object. So rows are read in the order of their wakes, some at a
  time, some minutes before they are due; a burst is read long before it is due.
- `release`, at the end of a step, writes the objects for which nothing is in progress and which are woken later, and
  discards them. So code that keeps a schedule from one step to the next keeps one in progress, or left for later.
- A schedule has at most one valid entry in the queue, the one whose instant equals its `wake`. Entries are never
  searched for: a stale one is skipped when its time comes, and if more than half of them are, they are discarded.
- What changed since the rows were last written (`write_changed`) is known, so that they can be made true for a start
  that continues from them (`engine.restart`).

Cost: a look-up for each message that may concern a schedule: nothing in a stream with few schedules, else 5 µs, or
half a microsecond for each of many; 6 µs to make an object of a row, 15 to change its row when it waits again.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from operator import attrgetter

from nats_scheduler.engine.holding.held import NO_ROW, NO_WAKE, Held
from nats_scheduler.engine.holding.schedule_rows import (
    MAX_INSTANT,
    DefinitionReader,
    held_of,
    read_expiry,
    row_of,
)
from nats_scheduler.engine.holding.table import Row, Table
from nats_scheduler.engine.holding.wake_queue import WakeQueue
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import PatternKind

OBJECTS_AHEAD_NS = 120 * SECOND
"""Rows that are woken within this time (ns) become objects, and stay objects."""

MIN_AHEAD_NS = 60 * SECOND
"""Rows are looked for again when less than this time (ns) is left of that."""

MAX_READ_PER_CALL = 64
"""Rows that become objects in one call of `pop_woken`: half a millisecond of work."""

MAX_KNOWN_SUBJECTS = 10_000
"""With at most this number of schedules all their subjects are known: a message that is on none costs nothing."""

MIN_QUEUE_ENTRIES = 1_024
"""The queue is not cleared of stale entries while it has no more than this."""

NEXT_ROWS = 64
"""Rows that are looked at to find the next one that is due: some end before."""

_row_subject, _row_kind, _row_zone, _row_wake = map(attrgetter, ("subject", "kind", "zone", "wake"))


class Schedules:
    """The schedules of one stream, and their wakes."""

    def __init__(self, read: DefinitionReader, table: Table | None = None) -> None:
        """Hold nothing; the table is in memory if none is given, and `read` reads the headers of rows."""
        self._table = Table() if table is None else table
        self._read = read
        self._objects: dict[str, Held] = {}
        self._count = 0
        """The number of all schedules."""
        self.kinds: Counter[PatternKind] = Counter()
        """The number of schedules of each kind."""
        self.written: Counter[PatternKind] = Counter()
        """The number of rows of each kind."""
        self._kinds_of_rows: dict[int, PatternKind] = {}
        """The kinds of the rows, by their ids, of which the schedules were replaced by ones of other kinds."""
        self._subjects: set[str] | None = set()
        """The subjects of all rows; None if there were too many."""
        self._queue = WakeQueue()
        self._to_release: list[Held] = []
        """Objects that may become rows at the end of the step."""
        self._zones: set[str] = set()
        """The time zones of rows that were written."""
        self._changed: dict[Held, None] = {}
        """Objects whose rows are older than they are, or may be."""
        self._deleted: list[int] = []
        """The ids of rows of which nothing is held any more."""
        self._read_through = NO_WAKE, NO_ROW
        """The wake and the id of the last row that was read because of its wake: each up to it has an object."""
        self.objects_through = NO_WAKE
        """Rows that are woken up to this instant (ns) have objects, or are read next."""
        self._is_read = True
        """True if none of those is left to be read."""
        self._first_row: int | None = None
        """The first wake of a row later than that; None if there is none."""
        self._owed: dict[str, dict[int, Held]] = {}
        """By subject and sequence, versions that were replaced and of which a fire is owed: they have no rows."""
        self.owed_count = 0
        """The number of these."""
        self.unwritten: dict[int, str] = {}
        """Schedules that no row can be, by sequence, and why."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Held]:
        """Yield all schedules, to look at: those that have no objects are copies.

        The schedules may change meanwhile: each that is held all the time is yielded once.
        """
        seen: set[str] = set()
        for held in list(self._objects.values()):
            if self._objects.get(held.subject) is held:
                seen.add(held.subject)
                yield held
        for part in self._table.rows():
            for _number, row in part:
                if row.subject not in seen and (found := self.peek(row.subject)) is not None:
                    yield found

    # -- by subject ----------------------------------------------------------------------------------------------

    def on(self, subject: str) -> Held | None:
        """Return the schedule held on a subject, which has an object at least until the end of the step."""
        held = self._objects.get(subject)
        if held is not None:
            if held.has_history:
                self._changed[held] = None
            return held
        if (held := self._copy(subject)) is None:
            return None
        self._objects[subject] = held
        self._enter(held)
        return held

    def peek(self, subject: str) -> Held | None:
        """Return the schedule held on a subject, to look at: one that has no object is a copy, and gets none."""
        held = self._objects.get(subject)
        return self._copy(subject) if held is None else held

    def exactly(self, subject: str, sequence: int) -> Held | None:
        """Return the schedule held on a subject if it is still the one with this sequence, or owes a fire."""
        held = self.on(subject)
        if held is not None and held.sequence == sequence:
            return held
        return self._owed.get(subject, {}).get(sequence) if self._owed else None

    def owed_on(self, subject: str) -> list[Held]:
        """Return the versions on a subject that were replaced and of which a fire is owed, oldest first."""
        return list(self._owed.get(subject, {}).values()) if self._owed else []

    def is_held(self, held: Held) -> bool:
        """Return whether a schedule is still held, if only for what is owed of it."""
        if held.replaced_at is None:
            return self.on(held.subject) is held
        return self._owed.get(held.subject, {}).get(held.sequence) is held

    def all_owed(self) -> list[Held]:
        """Return all versions that were replaced and of which a fire is owed."""
        return [held for versions in self._owed.values() for held in versions.values()]

    def known(self, subjects: Sequence[str]) -> set[str]:
        """Return those of the subjects on which a schedule is held."""
        if self._subjects is not None:
            return {one for one in subjects if one in self._subjects or one in self._objects}
        if self._deleted:
            self._delete()
        found = self._table.known(subjects)
        return found.union(one for one in subjects if one in self._objects)

    def _copy(self, subject: str) -> Held | None:
        """Return the schedule of the row on a subject that has no object."""
        if len(self._objects) == self._count or (self._subjects is not None and subject not in self._subjects):
            return None
        if self._deleted:
            self._delete()
        found = self._table.find(subject)
        return None if found is None else held_of(*found, self._read)

    # -- what is held --------------------------------------------------------------------------------------------

    def hold(self, held: Held) -> None:
        """Hold a schedule; it replaces the one that was held on its subject, which stays if a fire of it is owed."""
        before = self.on(held.subject)
        self.kinds[held.kind] += 1
        if before is None:
            self._count += 1
        else:
            self.kinds[before.kind] -= 1
            if before.row != NO_ROW and before.kind is not held.kind:
                self._kinds_of_rows.setdefault(before.row, before.kind)
            if before.replaced_at is None:
                self.cancel_wake(before)
            else:
                self.keep_owed(before)
            held.row, before.row = before.row, NO_ROW
            self._changed.pop(before, None)
            self.unwritten.pop(before.sequence, None)
        self._objects[held.subject] = held
        self._changed[held] = None

    def keep_owed(self, held: Held) -> None:
        """Hold a version that was replaced for the fires that are owed of it."""
        self._owed.setdefault(held.subject, {})[held.sequence] = held
        self.owed_count += 1
        if held.wake != NO_WAKE:
            self._queue.add(held, held.wake)  # it may wait for the end of the step, when only objects are looked at

    def insert(self, rows: Sequence[Row]) -> set[str]:
        """Hold new schedules as rows, which are woken after `objects_through`; none of them has an object.

        Returns the subjects on which one is held already: these are left as they are.
        """
        if self._deleted:
            self._delete()
        held = self._table.insert_new(rows)
        if held:
            rows = [row for row in rows if row.subject not in held]
        if not rows:
            return held
        self._count += len(rows)
        for kind, count in Counter(map(_row_kind, rows)).items():
            self.kinds[PatternKind(kind)] += count
            self.written[PatternKind(kind)] += count
        self._table.inserted(len(rows))
        self._zones.update(filter(None, map(_row_zone, rows)))
        self._note_subjects(map(_row_subject, rows))
        first = min(map(_row_wake, rows))
        if self._first_row is None or first < self._first_row:
            self._first_row = first
        return held

    def remove_owed(self, held: Held) -> None:
        """Hold a version that was replaced no longer."""
        versions = self._owed.get(held.subject, {})
        if versions.pop(held.sequence, None) is not None:
            self.owed_count -= 1
            self.cancel_wake(held)
            self._changed.pop(held, None)
        if not versions:
            self._owed.pop(held.subject, None)

    def remove(self, subject: str) -> Held | None:
        """Hold no schedule on a subject any more; returns the one that was held."""
        held = self.on(subject)
        if held is None:
            return None
        del self._objects[subject]
        self._count -= 1
        self.kinds[held.kind] -= 1
        self.cancel_wake(held)
        self._changed.pop(held, None)
        self.unwritten.pop(held.sequence, None)
        if held.row != NO_ROW:
            self._deleted.append(held.row)
            self.written[self._kinds_of_rows.pop(held.row, held.kind)] -= 1
            held.row = NO_ROW
            if self._subjects is not None:
                self._subjects.discard(subject)
        return held

    def begin(self, kinds: Mapping[PatternKind, int]) -> list[tuple[Held, str | None]]:
        """Hold what the table has, in a schedules that never held any; return those that have objects from now on.

        They are those whose policies need to know of earlier fires, and those that are done, which are not woken, with
        their endings. `kinds` are the numbers of all.
        """
        self.kinds.update(kinds)
        self.written.update(kinds)
        self._count = self.kinds.total()
        self._subjects = None
        if self._count <= MAX_KNOWN_SUBJECTS:
            self._subjects = {row.subject for part in self._table.rows() for _number, row in part}
        self._is_read = False
        found = dict((*self._table.with_history(), *self._table.done()))
        begun = []
        for number, row in found.items():
            held = self._objects[row.subject] = held_of(number, row, self._read)
            if row.ending is not None:
                held.wake = NO_WAKE
            else:
                self._queue.add(held, held.wake)
            begun.append((held, row.ending))
        return begun

    def stored_before(self, sequence: int, among: Set[int]) -> Iterator[list[tuple[str, int]]]:
        """Yield subjects and sequences of the rows with a sequence below one, or among others, some at a time.

        An object may be newer than its row.
        """
        return self._table.stored_before(sequence, among)

    def has_object(self, subject: str) -> bool:
        """Return whether a schedule on a subject has an object."""
        return subject in self._objects

    def have_no_object(self, subjects: Iterable[str]) -> bool:
        """Return whether no schedule on one of these subjects has an object."""
        return self._objects.keys().isdisjoint(subjects)

    def take_zones(self) -> set[str]:
        """Return the time zones of the rows that were written since this was called last."""
        zones, self._zones = self._zones, set()
        return zones

    def changed(self, held: Held) -> None:
        """Note that a schedule is not what its row says; to set its wake notes that as well."""
        if self._objects.get(held.subject) is held:
            self._changed[held] = None

    def objects(self) -> list[Held]:
        """Return the schedules that have objects."""
        return list(self._objects.values())

    def at_this_moment(self) -> tuple[list[Held], list[int], int]:
        """Return the objects, the ids of their rows, and a wake (ns): each row that is woken earlier has an object.

        All other rows of the table are the schedules without objects. Cost: 60 ns for each object.
        """
        if self._deleted:
            self._delete()
        objects = list(self._objects.values())
        return objects, [held.row for held in objects if held.row != NO_ROW], self._read_through[0]

    def unread_due(self, through: int, max_age: int) -> tuple[int, int | None]:
        """Return how many schedules without objects were to fire up to an instant (ns), and since when one is due.

        None, unless nothing was woken for a while. Messages are removed after `max_age` (ns; 0: never).
        """
        after = self._read_through[0]
        if len(self._objects) == self._count or after >= through:
            return 0, None
        rows = {held.row for held in self.objects()}  # they are counted as objects
        return self._table.due(after, through, max_age, rows.union(self._deleted))

    def next_rows(self, now: int) -> list[tuple[int, int, int]]:
        """Return the fire time, the end of the TTL and the storage time (ns) of the next rows without objects."""
        if len(self._objects) == self._count:
            return []
        found = self._table.next_rows(self._read_through[0], now, NEXT_ROWS)
        return [(fire_time, read_expiry(expires), stored_at) for fire_time, expires, stored_at in found]

    @property
    def table(self) -> Table:
        """The rows, for questions about many of them: those that have objects may be older than these."""
        return self._table

    # -- wakes ---------------------------------------------------------------------------------------------------

    def comes_to(self, now: int) -> None:
        """Note the time (ns), which decides which rows become objects: to be called at the beginning of each step."""
        if now + MIN_AHEAD_NS > self.objects_through:
            self.objects_through = now + OBJECTS_AHEAD_NS
            self._is_read = False

    def wake(self, held: Held, instant: int) -> None:
        """Wake the schedule when `instant` (ns) comes, instead of any time set before."""
        if held.wake != NO_WAKE:
            self.cancel_wake(held)
        held.wake = instant
        self._changed[held] = None
        if instant > self.objects_through and not held.has_history and held.replaced_at is None:
            self._to_release.append(held)  # it is known at the end of the step whether it stays an object
        else:
            self._queue.add(held, instant)

    def cancel_wake(self, held: Held) -> None:
        """Remove the wake of a schedule, until another one is set."""
        instant, held.wake = held.wake, NO_WAKE
        if instant == NO_WAKE:
            return
        self._changed[held] = None
        if len(self._queue) >= 2 * len(self._objects) + MIN_QUEUE_ENTRIES:
            self._queue.discard_stale()

    def next_wake(self) -> int | None:
        """Return the earliest instant of an entry, or an earlier one at which rows are to be read.

        It may be of an entry that is stale.
        """
        first, row = self._queue.first(), self._first_row
        if not self._is_read and self._count > len(self._objects):
            row = self._table.first_wake(self._read_through[0] - 1)
        for held in self._to_release:
            if held.wake == NO_WAKE:
                continue
            if held.flight is not None:
                first = held.wake if first is None else min(first, held.wake)
            elif row is None or held.wake < row:
                row = held.wake
        if row is None:
            return first
        return row - MIN_AHEAD_NS if first is None else min(first, row - MIN_AHEAD_NS)

    def pop_woken(self, now: int, most: int) -> list[Held]:
        """Take the next schedules whose time has come, at most `most`, by time and then by sequence.

        Fewer if there are no more, or if more rows have to be read first: then `next_wake` has come already.
        """
        if not self._is_read:
            now = min(now, self._read_some())
        return self._queue.pop(now, most)

    def _read_some(self) -> int:
        """Make objects of the next rows; returns the instant (ns) up to which no row is left without one."""
        if self._deleted:
            self._delete()
        found = self._table.woken(self._read_through, self.objects_through, MAX_READ_PER_CALL)
        for number, row in found:
            if row.subject not in self._objects:
                held = self._objects[row.subject] = held_of(number, row, self._read)
                self._enter(held)
        if len(found) < MAX_READ_PER_CALL:
            self._is_read = True
            self._read_through = self.objects_through, MAX_INSTANT
            self._first_row = self._table.first_wake(self.objects_through)
            return self.objects_through
        number, row = found[-1]
        self._read_through = row.wake, number
        return row.wake

    def _enter(self, held: Held) -> None:
        """Enter the wake of an object; if it is late enough, once it is known whether it stays one."""
        if held.wake > self.objects_through and not held.has_history:
            self._to_release.append(held)
        else:
            self._queue.add(held, held.wake)

    # -- rows ----------------------------------------------------------------------------------------------------

    def release(self, besides: Container[int]) -> None:
        """Discard the objects that are woken later and for which nothing is in progress, once their rows are written.

        Those with the sequences in `besides` stay. To be called at the end of each step: no code may use a schedule
        after that unless it is in progress.
        """
        if self._to_release:
            self._release(besides)
        if self._deleted:
            self._delete()

    def _release(self, besides: Container[int]) -> None:
        written: list[Held] = []
        objects_through = self.objects_through
        for held in dict.fromkeys(self._to_release):
            if held.wake == NO_WAKE or self._objects.get(held.subject) is not held:
                continue
            is_awaited = held.flight is None and held.sequence not in besides and held.wake <= held.send_time
            if held.wake <= objects_through or not is_awaited:
                self._queue.add(held, held.wake)
            elif held in self._changed:
                written.append(held)
            else:
                self._discard(held)
        self._to_release.clear()
        self._write(written)
        for held in written:
            if held.sequence in self.unwritten:
                self._queue.add(held, held.wake)
            else:
                self._discard(held)

    def _discard(self, held: Held) -> None:
        """Keep the row of a schedule only; a stale entry may still have the object."""
        if self._first_row is None or held.wake < self._first_row:
            self._first_row = held.wake
        held.wake = NO_WAKE
        self._objects.pop(held.subject, None)

    @property
    def unwritten_count(self) -> int:
        """The number of objects whose rows are older than they are, or may be."""
        return len(self._changed)

    def write_changed(self, most: int) -> None:
        """Write the rows of some of those, which stay objects."""
        some = list(islice(self._changed, most))
        for held in some:
            del self._changed[held]
        self._write([held for held in some if self._objects.get(held.subject) is held])

    def _write(self, some: Iterable[Held]) -> None:
        """Write the rows of objects, and note of which that is not possible."""
        changed, new = [], []
        for held in some:
            try:
                row = row_of(held)
            except ValueError as error:
                self.unwritten[held.sequence] = str(error)
                continue
            self.unwritten.pop(held.sequence, None)
            if row.zone is not None:
                self._zones.add(row.zone)
            if held.row != NO_ROW:
                changed.append((held.row, row))
                if (before := self._kinds_of_rows.pop(held.row, None)) is not None:
                    self.written[before] -= 1
                    self.written[held.kind] += 1
            else:
                new.append((held, row))
            self._changed.pop(held, None)
        if self._deleted:
            self._delete()
        if changed:
            self._table.update(changed)
        for held, row in new:
            held.row = self._table.insert_one(row)
            self.written[PatternKind(row.kind)] += 1
        self._note_subjects(row.subject for _held, row in new)

    def _note_subjects(self, subjects: Iterable[str]) -> None:
        if self._subjects is not None:
            self._subjects.update(subjects)
            if len(self._subjects) > MAX_KNOWN_SUBJECTS:
                self._subjects = None

    def _delete(self) -> None:
        self._table.delete(self._deleted)
        self._deleted.clear()
