"""The rows of a stream that have no objects, as they are at one moment, and questions about them in SQL.

The rules:

- A moment is the objects that there are, and the rows. The rows of schedules that have objects are left out by their
  ids, so each schedule is in one of the two.
- A connection that only reads has all of it in one transaction. On the connection of the engine, which changes rows
  meanwhile, a statement looks at some thousand rows; then each schedule that is held all the time is found once, and
  one that ends meanwhile may be missing.
- Rows are looked at in portions, by their ids or by their wakes: each answer is put together from those of portions.

Cost: 0.3 to 0.6 µs for each row that is looked at by its id, some more by its wake; 1 µs for each row that is left out.
"""

import json
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.schedule_rows import MAX_INSTANT, DefinitionReader, held_of
from nats_scheduler.engine.holding.table import WHOLE, Table, checked
from nats_scheduler.engine.views.conditions import Condition

BESIDE_THE_ENGINE = 2_048
"""Rows that one statement looks at on the connection of the engine, which waits for it: about a millisecond."""

IN_A_TRANSACTION = 131_072
"""The same on a connection that only reads: some hundredths of a second, in which SQLite needs no interpreter."""

MAX_ID = (1 << 63) - 1

OWN_PART = 4
"""If less than this part of the rows are of the stream, they are looked at by their wakes."""

SLOW_ROWS = 512
"""The same if the interpreter is needed for each row."""

READ_AT_ONCE = 16
"""Rows of which objects are made in one unit of work, some 10 µs each."""

LEFT_OUT_AT_ONCE = 1_000
"""Ids of rows that are left out and are written in one unit of work."""

_CREATE = "CREATE TEMP TABLE IF NOT EXISTS left_out (look INTEGER, id INTEGER, PRIMARY KEY (look, id)) WITHOUT ROWID"
_LEFT_OUT = "id NOT IN (SELECT id FROM temp.left_out WHERE look = :look)"
_LOOKS = count(1)


class Portion(NamedTuple):
    """Some rows: a condition, and the index that finds them."""

    text: str
    values: Mapping[str, object]
    source: str = "NOT INDEXED"
    wake: int | None = None
    """The wake of the last of them, None if no more follow."""
    last: int = MAX_ID
    """The id of that one."""


class Rows:
    """The rows that have no objects."""

    def __init__(
        self, table: Table, number: int, left_out: Sequence[int], first_wake: int, read: DefinitionReader
    ) -> None:
        """Leave out the rows with these ids; those that are woken before the first wake (ns) are among them.

        The table has a `number` of rows, and `read` reads their headers.
        """
        self._connection, stream = table.place
        self._number = number
        self._left_out = left_out
        self._first_wake = first_wake
        self._read = read
        self._condition = _LEFT_OUT if left_out else "1"
        self._values: dict[str, object] = {"stream": stream, "look": next(_LOOKS)}
        self._at_once = BESIDE_THE_ENGINE
        self._last_id = 0

    def through(self, connection: sqlite3.Connection) -> None:
        """Use a connection that only reads, and on which a transaction has begun, in place of that of the engine."""
        self._connection, self._at_once = connection, IN_A_TRANSACTION

    def begin(self) -> Generator[None, None, None]:
        """Note what is left out; yield after each unit of work."""
        (last,) = self._connection.execute("SELECT max(id) FROM schedules").fetchone()
        self._last_id = last or 0
        if self._left_out:
            self._connection.execute(_CREATE)
        for first in range(0, len(self._left_out), LEFT_OUT_AT_ONCE):
            ids = json.dumps(self._left_out[first : first + LEFT_OUT_AT_ONCE])
            statement = "INSERT INTO temp.left_out SELECT :look, value FROM json_each(:ids)"
            self._connection.execute(statement, {"look": self._values["look"], "ids": ids})
            yield

    def end(self) -> None:
        """Note nothing any more."""
        with suppress(sqlite3.Error):  # the connection may be closed
            self._connection.execute("DELETE FROM temp.left_out WHERE look = :look", {"look": self._values["look"]})

    # -- portions ------------------------------------------------------------------------------------------------

    def all(self, condition: Condition, at_once: int = MAX_ID) -> Iterator[Portion]:
        """Yield all rows for which a condition may be true, each in one portion."""
        at_once = min(at_once, self._at_once, SLOW_ROWS if condition.is_slow else MAX_ID)
        if self.are_few(condition, at_once):
            yield Portion(condition.subjects, {}, "INDEXED BY schedules_by_subject")
            return
        if self._at_once == IN_A_TRANSACTION and self._number < self._last_id // OWN_PART:
            yield from self.by_wake(NO_WAKE, MAX_INSTANT, at_once)  # most rows are of other streams
            return
        for after in range(0, self._last_id, at_once):
            yield Portion("id > :first_id AND id <= :last_id", {"first_id": after, "last_id": after + at_once})

    def are_few(self, condition: Condition, at_once: int = MAX_ID) -> bool:
        """Return whether an index of subjects finds so few rows that these are looked at in one portion."""
        most = min(at_once, self._at_once)
        if self._number < most:
            return True
        if condition.subjects == "1":
            return False
        where = f"stream = :stream AND {condition.subjects} LIMIT :most"
        some = f"SELECT 1 FROM schedules INDEXED BY schedules_by_subject WHERE {where}"  # noqa: S608
        values = {**self._values, **condition.values, "most": most}
        (found,) = self._connection.execute(f"SELECT count(*) FROM ({some})", values).fetchone()  # noqa: S608
        return int(found) < most

    def by_wake(self, after: int, through: int, at_once: int = MAX_ID, *, after_id: int = MAX_ID) -> Iterator[Portion]:
        """Yield the rows that are woken after an instant (ns) and up to another, in that order, and then by their ids.

        Of those that are woken at the first instant, the ones behind `after_id` are among them.
        """
        at_once = min(at_once, self._at_once)
        through = min(through, MAX_INSTANT)
        place: tuple[int, int] | None = max((after, after_id), (self._first_wake - 1, MAX_ID))
        where = "stream = :stream AND (wake, id) > (:wake, :id) AND wake <= :last"
        order = "ORDER BY wake, id LIMIT 1 OFFSET :skip"
        statement = f"SELECT wake, id FROM schedules INDEXED BY schedules_by_wake WHERE {where} {order}"  # noqa: S608
        while place is not None:
            values = {**self._values, "wake": place[0], "id": place[1], "last": through, "skip": at_once - 1}
            place = self._connection.execute(statement, values).fetchone()
            values |= {"last": through, "last_id": MAX_ID}
            if place is not None:
                values |= {"last": place[0], "last_id": place[1]}
            text = "(wake, id) > (:wake, :id) AND (wake, id) <= (:last, :last_id)"
            yield Portion(text, values, "INDEXED BY schedules_by_wake", *(place or ()))

    # -- questions -----------------------------------------------------------------------------------------------

    def select(self, what: str, portion: Portion, condition: Condition, behind: str = "") -> list[Any]:
        """Return what is selected of the rows of a portion for which a condition is true."""
        where = f"stream = :stream AND {portion.text} AND {condition.text} AND {self._condition} {behind}"
        statement = f"SELECT {what} FROM schedules {portion.source} WHERE {where}"  # noqa: S608
        return self._connection.execute(statement, {**self._values, **portion.values, **condition.values}).fetchall()

    def held(self, portion: Portion, condition: Condition) -> Iterator[list[Held]]:
        """Yield the schedules of the rows of a portion for which a condition is true, some at a time."""
        found = [number for (number,) in self.select("id", portion, condition)]
        return self.held_with(found)

    def held_with(self, numbers: Sequence[int]) -> Iterator[list[Held]]:
        """Yield the schedules of the rows with these ids that are still there, in their order, some at a time."""
        statement = f"SELECT {WHOLE} FROM schedules WHERE id = ?"  # noqa: S608
        for first in range(0, len(numbers), READ_AT_ONCE):
            part = numbers[first : first + READ_AT_ONCE]
            rows = [self._connection.execute(statement, (number,)).fetchone() for number in part]
            yield [held_of(*checked(row), self._read) for row in rows if row is not None]
