"""The table of schedules: a row for each, in SQLite, found by its subject and by when it is looked at next.

The table is in a file that outlives the process (`runtime.schedule_file`), or in memory: for that this module is given
a connection. What it writes is in the transaction that is open; who opened the file commits it.

The rules:

- A row is equal to what was written, or `DamagedTableError` is raised: each has a checksum. What SQLite itself finds
  raises `sqlite3.DatabaseError`.
- Nothing is kept of a row here. An object exists while something is in progress for a schedule
  (`engine.holding.scheduled`).

Cost: 5 to 8 µs to insert a row, 10 if it is at a random place of an index on disk; about 5 to find one or to change
one; 0.5 to find out that none is on a subject. 200 bytes on disk; in memory the pages that are used.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from importlib.resources import files
from itertools import pairwise
from marshal import dumps
from typing import Any, NamedTuple
from zlib import crc32

from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.subjects import is_covered

SCHEMA = "schedules.sql"

SUBJECTS_AT_ONCE = 250
"""Subjects of one question."""

ROWS_SCANNED = 2_048
"""Rows of one portion of which only few are wanted."""

MAX_NAMED = 512
"""The most sequences that are named in a question."""

COVERED = "covered"
"""The function for SQL by which Python says whether a subject covers a literal one, both as BLOBs."""

OWNED = "owned"
"""The function for SQL by which Python says whether headers name an owner (`X-Owner`), both as BLOBs."""

_LAST_ID = (1 << 63) - 1

_OWNER_HEADERS = [policy_header("X-Owner", dialect) for dialect in DIALECTS]

ROWS_AT_ONCE = 64
"""Rows that are read in one portion."""

_MARSHAL_VERSION = 2
"""Equal values are equal bytes: later versions write references to objects."""


class DamagedTableError(Exception):
    """The table is not what was written."""


class Row(NamedTuple):
    """A schedule as it is written; instants are in ns, and None is NULL."""

    subject: str
    sequence: int
    stored_at: int
    kind: str
    target: str
    zone: str | None
    headers: bytes
    fire_time: int
    wake: int
    expires: int | None
    mark: int
    ending: str | None = None
    history: str | None = None
    unfired_since: int | None = None


row_with = partial(tuple.__new__, Row)
"""Makes a row from a tuple of its fields, in half the time of a call of `Row`."""

_COLUMNS = ", ".join(Row._fields)
_PLACES = ", ".join("CAST(? AS TEXT)" if name in ("subject", "target") else "?" for name in Row._fields)
_INSERT = f"INSERT INTO schedules (stream, {_COLUMNS}, checksum) VALUES (?, {_PLACES}, ?)"  # noqa: S608
_INSERT_NEW = f"{_INSERT} ON CONFLICT DO NOTHING"
_SETTINGS = ", ".join(f"{name} = {place}" for name, place in zip(Row._fields, _PLACES.split(", "), strict=True))
_UPDATE = f"UPDATE schedules SET {_SETTINGS}, checksum = ? WHERE id = ?"  # noqa: S608
WHOLE = f"id, {_COLUMNS}, checksum"
"""What to select to have whole rows, which `checked` returns."""

_SELECT = f"SELECT {WHOLE} FROM schedules"  # noqa: S608

Found = tuple[int, Row]
"""The id of a row, and the row."""


class SharedConnection(sqlite3.Connection):
    """A connection that several parts have, and that closes when none has it: Python 3.13 warns of an open one."""

    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # what could not be opened cannot be closed
            self.close()


def prepare(connection: sqlite3.Connection) -> None:
    """Have a connection return texts as this module needs them: a subject may have bytes that are no UTF-8."""
    connection.text_factory = _text
    connection.create_function(COVERED, 2, _covered, deterministic=True)
    connection.create_function(OWNED, 2, _owned, deterministic=True)


def create(connection: sqlite3.Connection) -> None:
    """Make the tables."""
    for statement in files(__package__).joinpath(SCHEMA).read_text(encoding="utf-8").split(";\n"):
        connection.execute(statement)


def in_memory() -> sqlite3.Connection:
    """Return a connection to tables that nobody else sees, and that end with it."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, factory=SharedConnection, cached_statements=64
    )
    prepare(connection)
    connection.execute("PRAGMA journal_mode = OFF")
    create(connection)
    connection.execute("BEGIN")  # never committed: else each statement would be a transaction
    return connection


class Table:
    """The rows of one stream."""

    def __init__(
        self,
        connection: sqlite3.Connection | None = None,
        stream: int = 0,
        notify: Callable[[int], object] = lambda _rows: None,
    ) -> None:
        """Take the rows of the stream with this number; without a connection the table is in memory, and empty.

        `notify` is called with the number of rows that were `inserted` at once.
        """
        self._connection = in_memory() if connection is None else connection
        self._stream = stream
        self._notify = notify
        self._execute = self._connection.execute

    # -- changes -------------------------------------------------------------------------------------------------

    def insert_new(self, rows: Sequence[Row]) -> set[str]:
        """Add rows of different subjects, but where one is already; returns the subjects of those."""
        stream = self._stream
        bound = [(stream, *_bound(row)) for row in rows]
        (last,) = self._execute("SELECT max(id) FROM schedules").fetchone()
        inserted = self._connection.executemany(_INSERT_NEW, bound).rowcount
        return set() if inserted == len(bound) else self.known([row.subject for row in rows], last)

    def inserted(self, rows: int) -> None:
        """Note that the numbers of rows that the schedules are known by have so many more: they may be committed."""
        self._notify(rows)

    def insert_one(self, row: Row) -> int:
        """Add a row, and return its id."""
        number = self._execute(_INSERT, (self._stream, *_bound(row))).lastrowid
        assert number is not None, "a row that was inserted has an id"
        return number

    def update(self, rows: Iterable[Found]) -> None:
        """Change rows."""
        self._connection.executemany(_UPDATE, [(*_bound(row), number) for number, row in rows])

    def delete(self, numbers: Iterable[int]) -> None:
        """Remove the rows with these ids."""
        self._connection.executemany("DELETE FROM schedules WHERE id = ?", [(number,) for number in numbers])

    def renumber(self, stream: int) -> None:
        """Take the rows of the stream with another number: before any is read or written."""
        self._stream = stream

    # -- questions -----------------------------------------------------------------------------------------------

    def find(self, subject: str) -> Found | None:
        """Return the row on a subject."""
        where = "stream = ? AND subject = CAST(? AS TEXT)"
        found = self._execute(f"{_SELECT} WHERE {where}", (self._stream, text_of(subject))).fetchone()
        if found is None:
            return None
        number, row = checked(found)
        if row.subject != subject:
            raise DamagedTableError(f"an index has row {number} under another subject")
        return number, row

    def known(self, subjects: Sequence[str], last: int = _LAST_ID) -> set[str]:
        """Return those of the subjects that have a row with an id up to `last`."""
        found: set[str] = set()
        for first in range(0, len(subjects), SUBJECTS_AT_ONCE):
            part = [text_of(subject) for subject in subjects[first : first + SUBJECTS_AT_ONCE]]
            places = ", ".join(["CAST(? AS TEXT)"] * len(part))
            where = f"stream = ? AND subject IN ({places}) AND id <= ?"
            some = self._execute(f"SELECT subject FROM schedules WHERE {where}", (self._stream, *part, last))  # noqa: S608
            found.update(subject for (subject,) in some)
        return found

    def woken(self, after: tuple[int, int], through: int, most: int) -> list[Found]:
        """Return the next rows in the order of their wakes (ns) and ids, behind `after` and up to a wake `through`."""
        where = "stream = ? AND (wake, id) > (?, ?) AND wake <= ? ORDER BY wake, id LIMIT ?"
        some = self._execute(f"{_SELECT} WHERE {where}", (self._stream, *after, through, most))
        found = [checked(one) for one in some.fetchall()]
        wakes = [after, *((row.wake, number) for number, row in found)]
        if any(before >= wake for before, wake in pairwise(wakes)):
            raise DamagedTableError("an index has rows under other wakes")
        return found

    def first_wake(self, after: int) -> int | None:
        """Return the first wake (ns) later than `after`."""
        where = "stream = ? AND wake > ? ORDER BY wake LIMIT 1"
        found = self._execute(f"SELECT wake FROM schedules WHERE {where}", (self._stream, after)).fetchone()  # noqa: S608
        return None if found is None else int(found[0])

    def due(self, after: int, through: int, max_age: int, besides: Collection[int]) -> tuple[int, int | None]:
        """Return how many rows are woken after an instant (ns) and up to another, and when the first was to fire.

        Those that end before they fire, where messages are removed after `max_age` (ns; 0: never), and those with the
        ids `besides` do not count.
        """
        what = "count(*), min(max(fire_time, stored_at))"
        fires = (
            "(expires IS NULL OR expires > fire_time) AND (:age = 0 OR stored_at + :age > fire_time) OR expires = -1"
        )
        others = "id NOT IN (SELECT value FROM json_each(:besides))"
        span = "stream = :stream AND wake > :after AND wake <= :through AND fire_time <= :through"
        statement = f"SELECT {what} FROM schedules WHERE {span} AND ({fires}) AND {others}"  # noqa: S608
        named = {
            "stream": self._stream,
            "after": after,
            "through": through,
            "age": max_age,
            "besides": json.dumps([*besides]),
        }
        count, since = self._execute(statement, named).fetchone()
        return count, since

    def next_rows(self, after: int, now: int, most: int) -> list[tuple[int, int | None, int]]:
        """Return the fire time, the end of the TTL as it is written, and the storage time (ns) of the next rows.

        They are woken after an instant (ns), and fire after `now`.
        """
        where = "stream = ? AND wake > ? AND fire_time > ? ORDER BY wake LIMIT ?"
        statement = f"SELECT fire_time, expires, stored_at FROM schedules WHERE {where}"  # noqa: S608
        return self._execute(statement, (self._stream, after, now, most)).fetchall()

    def rows(self) -> Iterator[list[Found]]:
        """Yield all rows by subject, `ROWS_AT_ONCE` at a time.

        The table may change between two portions: what is there all the time is yielded once, as it is then.
        """
        above, before = ">=", text_of("")
        while True:
            where = f"stream = ? AND subject {above} CAST(? AS TEXT) ORDER BY subject LIMIT {ROWS_AT_ONCE}"
            some = self._execute(f"{_SELECT} WHERE {where}", (self._stream, before)).fetchall()
            if not some:
                return
            found = [checked(one) for one in some]
            yield found
            last = text_of(found[-1][1].subject)
            if above == ">" and _bytes_of(last) <= _bytes_of(before):
                raise DamagedTableError("an index has rows in another order")
            above, before = ">", last

    def stored_before(self, sequence: int, among: Set[int]) -> Iterator[list[tuple[str, int]]]:
        """Yield the subjects and sequences of the rows with a sequence below one, or among others.

        Some thousand rows are looked at at a time, and the table may change between two portions.
        """
        last, numbers = -1, ""
        if len(among) <= MAX_NAMED:
            numbers = f" AND (sequence < {sequence:d} OR sequence IN ({', '.join(f'{one:d}' for one in among)}))"
        some = "SELECT id, stream, subject, sequence FROM schedules WHERE id > ? ORDER BY id LIMIT ?"
        ends = f"SELECT max(id) FROM ({some})"  # noqa: S608
        statement = f"SELECT subject, sequence FROM ({some}) WHERE stream = ?{numbers}"  # noqa: S608
        while True:
            (end,) = self._execute(ends, (last, ROWS_SCANNED)).fetchone()
            if end is None:
                return
            found = self._execute(statement, (last, ROWS_SCANNED, self._stream)).fetchall()
            yield found if numbers else [one for one in found if one[1] < sequence or one[1] in among]
            last = end

    def with_history(self) -> list[Found]:
        """Return the rows that have a history."""
        where = "stream = ? AND history IS NOT NULL"
        return [checked(one) for one in self._execute(f"{_SELECT} WHERE {where}", (self._stream,))]

    def done(self) -> list[Found]:
        """Return the rows of the schedules that are done."""
        where = "stream = ? AND ending IS NOT NULL"
        return [checked(one) for one in self._execute(f"{_SELECT} WHERE {where}", (self._stream,))]

    @property
    def place(self) -> tuple[sqlite3.Connection, int]:
        """The connection, and the number of the stream among all that it has rows of."""
        return self._connection, self._stream

    def close(self) -> None:
        """Free the memory of a table that has no file; nothing may be asked any more."""
        self._connection.close()  # else only the collector would find it: a connection refers to itself

    @property
    def bytes(self) -> int:
        """The size of the tables of all streams of the connection."""
        pages, size = (self._execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages) * int(size)


def text_of(text: str) -> str | bytes:
    """Return a text as it is bound: SQLite takes no text that is not UTF-8 as a string."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape")


def checksum(*values: Any) -> int:
    """Return the checksum of values that SQLite can have."""
    return crc32(dumps(values, _MARSHAL_VERSION))


def checked(found: Sequence[Any]) -> Found:
    """Return the id and the row of what was selected; raises `DamagedTableError`."""
    row = row_with(found[1:-1])
    if checksum(*row) != found[-1]:
        raise DamagedTableError(f"row {found[0]} is not what was written")
    return found[0], row


def _bound(row: Row) -> tuple[object, ...]:
    """Return a row as it is bound, and its checksum."""
    known = checksum(*row)
    if row.subject.isascii() and row.target.isascii():
        return (*row, known)
    columns = row._asdict() | {"subject": text_of(row.subject), "target": text_of(row.target)}
    return (*columns.values(), known)


def _bytes_of(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("ascii")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _covered(subject: bytes, pattern: bytes) -> bool:
    return is_covered(_text(subject), (_text(pattern),))


def _owned(headers: bytes, owner: bytes) -> bool:
    return any(header_value(headers, name) == owner for name in _OWNER_HEADERS)
