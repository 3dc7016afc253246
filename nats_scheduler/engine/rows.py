"""The held schedules in rows, so that all of them can be visited a row at a time while they change.

A dictionary cannot be read in parts: a change ends its iteration, and a copy of a million entries takes too long
between two fires.

The rule: a schedule has one place until it is removed, whether it is near (an object) or far (`engine.far`). So a visit
of all rows, one after the other, finds each schedule that is held all the time exactly once; one that is added
meanwhile may be missed.

Cost: a fraction of a microsecond to add or to remove; some 100 bytes for each near schedule.
Limit: rows that became empty stay, and are filled again first.
"""

from __future__ import annotations

from collections.abc import Iterator

from nats_scheduler.engine.far import FarColumns, FarEntry, FarRow, Window
from nats_scheduler.engine.held import NO_PLACE, Held
from nats_scheduler.engine.kinds import Kinds

ROW_BITS = 8
ROW_LENGTH = 1 << ROW_BITS
"""Places in a row."""

_PLACE_IN_ROW = ROW_LENGTH - 1


class Row:
    """The places of one row."""

    __slots__ = ("far", "free", "near", "used")

    def __init__(self, kinds: Kinds, number: int) -> None:
        self.near: dict[int, Held] = {}
        """The near schedules by their places in the row."""
        self.far = FarRow(kinds, number << ROW_BITS)
        self.free: list[int] = []
        """Places that became free."""
        self.used = 0
        """How many places were ever used: the first ones."""

    @property
    def has_room(self) -> bool:
        """Whether a place is free."""
        return bool(self.free) or self.used < ROW_LENGTH

    def visit(self, first: int = 0, end: int = ROW_LENGTH, window: Window | None = None) -> list[Held]:
        """Return the schedules in some places of the row, to look at: those that are far are copies.

        With a window, without the far ones that it leaves out.
        """
        near, far = self.near, self.far
        found = []
        for place in range(first, min(end, self.used)):
            held = near.get(place)
            if held is not None:
                found.append(held)
            elif far.has(place) and not (window and far.is_left_out(place, window)):
                found.append(far.unpacked(place))
        return found

    def current(self, held: Held) -> Held | None:
        """Return a schedule that was visited, as it is now; None if it is not held any more."""
        place = held.place & _PLACE_IN_ROW
        near = self.near.get(place)
        if near is not None:
            return near if near.sequence == held.sequence else None
        return held if self.far.has(place) and self.far.sequences[place] == held.sequence else None


class Rows:
    """The rows of one stream's schedules."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._with_room: list[int] = []
        self._kinds = Kinds()
        self.far_count = 0
        """How many schedules are far."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Row:
        """Return the row with this number, from 0 on."""
        return self._rows[number]

    def add(self, held: Held) -> None:
        """Give a near schedule a place."""
        row, number, place = self._room()
        row.near[place] = held
        held.place = number << ROW_BITS | place

    @property
    def kinds(self) -> Kinds:
        """The kinds of the far schedules."""
        return self._kinds

    def fill(self, columns: FarColumns) -> int:
        """Put far schedules into a new row; returns the place of the first one, and the others follow."""
        number, count = len(self._rows), len(columns.sequences)
        row = Row(self._kinds, number)
        row.far.fill(columns)
        row.used = count
        self._rows.append(row)
        if row.has_room:
            self._with_room.append(number)
        self.far_count += count
        return number << ROW_BITS

    def add_far(self, entry: FarEntry) -> int | None:
        """Give a far schedule a place, and return it; None if it cannot be in the row that has room."""
        row, number, place = self._room()
        if not row.far.put(place, entry):
            self._take_back(row, number, place)
            return None
        self.far_count += 1
        if row.far.count == ROW_LENGTH:
            row.far.trim()
        return number << ROW_BITS | place

    def discard(self, place: int) -> None:
        """Take the place of a far schedule, which is not held any more."""
        number, within = place >> ROW_BITS, place & _PLACE_IN_ROW
        row = self._rows[number]
        row.far.remove(within)
        self._take_back(row, number, within)
        self.far_count -= 1

    def emptied(self) -> Iterator[None]:
        """Remove all schedules, and yield after each row."""
        while self._rows:
            self._rows.pop()
            yield
        self._with_room.clear()
        self.far_count = 0

    def replace(self, before: Held, held: Held) -> None:
        """Put a schedule where the version before it is, so that a visit sees one of the two."""
        place = before.place
        before.place, held.place = NO_PLACE, place
        self._rows[held.place >> ROW_BITS].near[held.place & _PLACE_IN_ROW] = held

    def remove(self, held: Held) -> None:
        """Take the place of a near schedule."""
        number, place = held.place >> ROW_BITS, held.place & _PLACE_IN_ROW
        row = self._rows[number]
        del row.near[place]
        self._take_back(row, number, place)
        held.place = NO_PLACE

    def _room(self) -> tuple[Row, int, int]:
        """Take a free place: its row, the number of that, and where it is there."""
        if not self._with_room:
            self._with_room.append(len(self._rows))
            self._rows.append(Row(self._kinds, len(self._rows)))
        number = self._with_room[-1]
        row = self._rows[number]
        if row.free:
            place = row.free.pop()
        else:
            place = row.used
            row.used += 1
        if not row.has_room:
            self._with_room.pop()
        return row, number, place

    def _take_back(self, row: Row, number: int, place: int) -> None:
        """Have a place free again."""
        if not row.has_room:
            self._with_room.append(number)
        row.free.append(place)

    # -- far schedules -------------------------------------------------------------------------------------------

    def pack(self, held: Held) -> bool:
        """Have a near schedule kept as a far one in its place; returns whether that was possible."""
        row, place = self._rows[held.place >> ROW_BITS], held.place & _PLACE_IN_ROW
        if not row.far.pack(place, held):
            return False
        del row.near[place]
        if not row.near:
            row.near = {}  # a dictionary that became empty keeps the room for all that were in it
            if row.far.count == ROW_LENGTH:
                row.far.trim()
        self.far_count += 1
        return True

    def unpack(self, place: int) -> Held:
        """Make the far schedule in a place a near one."""
        row, within = self._rows[place >> ROW_BITS], place & _PLACE_IN_ROW
        held = row.near[within] = row.far.unpacked(within)
        row.far.remove(within)
        self.far_count -= 1
        return held

    def copy(self, place: int) -> Held:
        """Return a copy of the far schedule in a place, to look at."""
        return self._rows[place >> ROW_BITS].far.unpacked(place & _PLACE_IN_ROW)

    def subject(self, place: int) -> bytes:
        """Return the subject of the far schedule in a place."""
        return self._rows[place >> ROW_BITS].far.subject(place & _PLACE_IN_ROW)

    def far_wake(self, place: int) -> int | None:
        """Return when (ns) the far schedule in a place is woken; None if none is there."""
        far, within = self._rows[place >> ROW_BITS].far, place & _PLACE_IN_ROW
        return far.wakes[within] if far.has(within) else None

    def far_wakes(self, first: int) -> list[tuple[int, int]]:
        """Return the places of the far schedules in a row, whose first place is given, and their wakes (ns)."""
        far = self._rows[first >> ROW_BITS].far
        return [(first | within, far.wakes[within]) for within in far.places()]
