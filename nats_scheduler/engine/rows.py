"""The held schedules in rows, so that all of them can be visited a row at a time while they change.

A dictionary cannot be read in parts: a change ends its iteration, and a copy of a million entries takes too long
between two fires.

The rule: a schedule stays in the row into which it was put until it is removed. So a visit of
all rows, one after the other, finds each schedule that is held all the time exactly once; one that is added meanwhile
may be missed.

Cost: a fraction of a microsecond to add or to remove, 24 bytes for each schedule.
Limit: rows that became empty stay, and are filled again first.
"""

from collections.abc import Iterator

from nats_scheduler.engine.held import NO_ROW, Held

ROW_LENGTH = 256
"""Schedules in a row. Places up to 256 are integers that Python keeps anyway, so that they take no memory."""


class Rows:
    """The rows of one stream's schedules."""

    def __init__(self) -> None:
        self._rows: list[list[Held]] = []
        self._with_room: list[list[Held]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> list[Held]:
        """Return the row with this number, from 0 on; it is not to be changed, and is valid until the next change."""
        return self._rows[number]

    def add(self, held: Held) -> None:
        """Put a schedule into a row with room."""
        if not self._with_room:
            row: list[Held] = []
            self._rows.append(row)
            self._with_room.append(row)
        row = self._with_room[-1]
        held.row, held.place = row, len(row)
        row.append(held)
        if len(row) == ROW_LENGTH:
            self._with_room.pop()

    def emptied(self) -> Iterator[None]:
        """Remove all schedules, and yield after each row."""
        for row in self._rows:
            for held in row:
                held.row = NO_ROW
            row.clear()
            yield

    def replace(self, before: Held, held: Held) -> None:
        """Put a schedule where the version before it is, so that a visit sees one of the two."""
        row, place = before.row, before.place
        before.row = NO_ROW
        held.row, held.place = row, place
        row[place] = held

    def remove(self, held: Held) -> None:
        """Remove a schedule; the last one of its row takes its place."""
        row = held.row
        if len(row) == ROW_LENGTH:
            self._with_room.append(row)
        last = row.pop()
        if last is not held:
            row[held.place] = last
            last.place = held.place
        held.row = NO_ROW
