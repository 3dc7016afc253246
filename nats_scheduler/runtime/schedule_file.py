"""The file of the schedules of a process: rows, and what a start needs to continue from them.

One file has the tables of all streams of the process (`engine/holding/schedules.sql`), with one writer. Other programs
may read it at any time: `sqlite3 schedules.db`.

The rules:

- What is committed is true of a stream up to the sequence in its document, at least (`engine.restart`). With each
  commit, `ends` says what the stream must have for that. So rows are committed a few at a time, and a document when
  nothing is left to be written.
- The process may be killed at any time. A machine that crashes may lose what was committed, and keep what was written
  later: so a file that was not closed, of another boot of the machine, is removed. So is one that is damaged, one whose
  last commits are missing, one of another format, and one that was never complete. Only whether the file is closed is
  written to the disk at once: before anything else when it is opened, and behind everything else when it is closed.
- A new file is filled without a journal, and is complete once the first streams are read; nobody reads it before.
- A file that cannot be written or read any more is given up: then the tables are in memory, and the streams are read
  anew. Nothing that a file is needed for is lost. It stays for the next start, unless what it has may be wrong.
- What has no service any more is removed, a few rows at a time.

Cost: for each row that changed some 15 µs, half of it for the commit, at most a twentieth of the time; nothing while
nothing happens. 10 MB for SQLite's pages, 30 while a new file is filled.
"""

import asyncio
import ctypes
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

from nats_scheduler.engine.holding.table import (
    DamagedTableError,
    SharedConnection,
    Table,
    checksum,
    create,
    in_memory,
    prepare,
)
from nats_scheduler.engine.restart import RestartDocument
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.data_folder import open_file
from nats_scheduler.runtime.file_views import OF_FILE, FileViews
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import PatternKind

FILE_NAME = "schedules.db"
COMMITS_NAME = "schedules.commits"
"""The file that knows the number of commits: a file without the last ones, as without its journal, is not used."""

FORMAT = 1
"""The `user_version` of a file that is complete."""

FILLING = -1
"""The `user_version` of one that is not."""

CACHE_KIB = 10 * 1024
"""The most that SQLite keeps of the file (KiB)."""

FILLING_CACHE_KIB = 32 * 1024
"""The same while a new file is filled: its indexes are written at random places."""

COMMIT_INTERVAL_SECONDS = 5.0
"""A schedule that fires each second changes as often, and a start reads what was stored since in a moment."""

FILLING_CHECK_SECONDS = 1.0
"""The interval at which it is checked whether a new file is filled."""

MAX_SHARE = 20
"""The writing takes at most this part of the time."""

ROWS_PER_UNIT = 64
"""Rows of objects that are written, or rows that are removed, before others get a turn."""

MAX_LEFT = 64
"""While more objects than this are to be written, no document is made."""

MAX_ROUNDS = 200
"""So many times some of them are written, in one passage."""

MAX_UNREAD_CHECKS = 5
"""So many times in a row that nothing of a stream was read, a new file waits for it."""

REMOVALS = 16
"""So many times some rows of streams that have no service are removed, in one passage."""

UNUSED_LIMIT_NS = 600 * SECOND
"""A stream of the file has no service any more if none began within this time (ns) since the file was opened."""

MAX_UNCOMMITTED = 1_024
"""With more rows than this, what was inserted is committed at once: a commit of many takes long."""

LOCK_WAIT_SECONDS = 0.1
"""The longest wait for another program that has the database locked: nothing fires meanwhile."""

PASSING = frozenset(
    (
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
        *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM),
    )
)
"""The errors of SQLite that say nothing about what was committed: the next start may continue from it."""


_DOCUMENTS = TypeAdapter(RestartDocument)


class StreamRows:
    """The rows of one stream, and what its engine may continue from."""

    def __init__(self, file: "ScheduleFile", name: str, mode: str, basis: str) -> None:
        """Find what is known of a stream with an engine of this basis; what is of another basis is discarded."""
        self._file = file
        self.name = name
        self._mode = mode
        self._basis = basis
        self.document: RestartDocument | None = None
        """What the engine may continue from."""
        self.kinds: Mapping[PatternKind, int] = {}
        """The numbers of the rows of each kind."""
        self.ends = 0
        """The stream has to have everything up to this sequence."""
        self.ignored = ""
        """Why the rows that were there are not used; "" if they may be, or if there are none."""
        self.number = 0
        self._text: str | None = None
        self._written: tuple[object, ...] | None = None
        """What was written last."""
        self._seen_steps = 0
        self._is_lost = False
        self.engine: StreamEngine | None = None
        """The engine whose rows these are, once it is attached."""
        self._fail: Callable[[Exception], object] = lambda _error: None
        self._unread_checks = self._seen_read = 0
        if file.path is None:
            self.table = Table()
        else:
            self.table = Table(file.connection, notify=file.inserted)
            self._find()

    def _find(self) -> None:
        found = self._file.known(self.name, self._mode)
        if found is None:
            self._take(self._file.next_number())
            return
        number, basis, text, self.ends, kinds = found
        self._take(number)
        if basis != self._basis:
            self.give_up("it is of another creation of the stream, other settings, another server or another version")
        elif text is not None:
            self.document = read_document(text)
            if self.document is None:
                self.give_up("what belongs to its rows cannot be read")
            elif zone := self.document.changed_zone:
                self.give_up(f"the data of the time zone {zone} is not what it was")
            else:
                self._text = text
                self.kinds = {PatternKind(kind): count for kind, count in json.loads(kinds).items()}
        else:
            self.give_up("")

    def give_up(self, reason: str) -> None:
        """Do not continue from the rows that are there, and begin without any."""
        self.ignored, self.document, self._text, self._written = reason, None, None, None
        if self._file.path is not None:
            self._file.discard(self.number)
            self._take(self._file.next_number())

    def _take(self, number: int) -> None:
        """Take the rows of the stream with a number."""
        self.number = number
        self.table.renumber(number)

    def attach(self, engine: StreamEngine, fail: Callable[[Exception], object]) -> None:
        """Write what this engine knows, and have `fail` called if the file is given up."""
        self.engine, self._fail = engine, fail

    def forget(self) -> None:
        """Have no start continue from these rows."""
        self._file.forget(self)

    def given_up(self, error: Exception) -> None:
        """Take that the file is not used any more: the engine is of no use."""
        self._is_lost = True
        self._fail(error)

    def lost(self, error: Exception) -> bool:
        """Give the file up if an error of the engine is its; returns whether it is."""
        is_of_file = self._file.path is not None and isinstance(error, OF_FILE)
        if is_of_file:
            self._file.lost(error)
        return is_of_file or self._is_lost

    # -- writing -------------------------------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        """True if the engine made a step since it was looked at last."""
        return self.engine is not None and self.engine.steps != self._seen_steps

    def is_loading(self) -> bool:
        """Return whether the engine has still to read what is stored, and did so at one of the last checks."""
        engine = self.engine
        if engine is None or engine.is_live:
            return False
        self._unread_checks = self._unread_checks + 1 if engine.last_read == self._seen_read else 0
        self._seen_read = engine.last_read
        return self._unread_checks < MAX_UNREAD_CHECKS

    async def write(self) -> None:
        """Write what changed, and a document if nothing is left."""
        engine = self.engine
        assert engine is not None, "it is attached"
        self._seen_steps = engine.steps
        rounds = 0
        while engine.held.unwritten_count > MAX_LEFT and rounds < MAX_ROUNDS:
            engine.held.write_changed(ROWS_PER_UNIT)
            self._file.commit()
            rounds += 1
            await asyncio.sleep(0)
        if self.engine is engine:
            self.write_now()

    def write_now(self) -> None:
        """Write all that changed, and a document if one may be made."""
        engine = self.engine
        if engine is None or not engine.restart.may_write or engine.held.unwritten_count > MAX_LEFT:
            return
        engine.held.write_changed(MAX_LEFT)
        document = engine.restart.document()
        if document is not None:
            self._text = written_document(document)

    def write_ends(self, connection: sqlite3.Connection) -> None:
        """Have the file say what is true of the rows as they are."""
        engine = self.engine
        if engine is None or (self._text is not None and not engine.last_read):
            return  # what is written is true until the engine begins with it
        kinds = json.dumps({kind.value: count for kind, count in engine.held.written.items()})
        ends = max(engine.restart.ends, self.ends)
        values = self.name, self._mode, self._basis, self._text, ends, kinds
        if values == self._written:
            return
        self._written = values
        statement = "INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        connection.execute(statement, (self.number, *values, checksum(self.number, *values)))


class ScheduleFile:
    """The tables of one process, in a file or in memory."""

    def __init__(self, clock: Clock, report_lost: Callable[[str], object] = lambda _reason: None) -> None:
        """Begin without one; `report_lost` is called with the reason if a file is given up."""
        self._clock = clock
        self._report_lost = report_lost
        self.connection = in_memory()
        self.path: Path | None = None
        """Where the file is, None in memory."""
        self.is_known = False
        """True if the file was there when it was opened, and is used."""
        self._noted: BinaryIO = BytesIO()
        """The file that knows the number of commits."""
        self._commits = self._uncommitted = self._numbers = self._opened_at = 0
        self._committed_changes = 0
        """The changes of rows by the connection up to the last commit."""
        self._is_filling = self._is_swept = self._are_commits_held = False
        self.views = FileViews(self)
        """Reads the file beside the event loop."""
        self._streams: list[StreamRows] = []
        self._discarded: list[int] = []
        """The numbers of streams whose rows are to be removed."""

    # -- opening and closing -------------------------------------------------------------------------------------

    def open(self, folder: Path, boot: str) -> str:
        """Use the file in a folder, which nobody else uses, on a machine that was booted as `boot`.

        Returns why what was there was removed; "" if it is used, or if nothing was there. Raises `OSError` or
        `sqlite3.Error` if there can be no file.
        """
        assert not self._streams, "it is opened before it is used"
        path = folder / FILE_NAME
        self._noted = open(open_file(folder / COMMITS_NAME), "r+b", buffering=0)  # noqa: SIM115 - it stays open
        reason = ""
        try:
            if path.is_symlink():
                reason = "it is a link"
            elif path.exists() and path.stat().st_size:
                try:
                    reason = self._open_known(path, boot)
                except (sqlite3.Error, DamagedTableError, UnicodeDecodeError) as error:  # the last: of a damaged schema
                    reason = f"it {'is damaged' if _is_damage(error) else 'cannot be used'}: {error}"
            if self.path is None:
                self._open_new(path, boot)
        except BaseException:
            self._noted.close()
            raise
        return reason

    def _open_known(self, path: Path, boot: str) -> str:
        """Use the file that is there; return why it is not used, "" if it is."""
        with ExitStack() as unless_used:
            connection = _connect(path)
            unless_used.callback(connection.close)
            if reason := self._unfit(connection, boot):
                return reason
            _have_a_journal(connection)
            *_, commits = _what_is_known(connection)
            self._use(connection, path, commits, boot)
            unless_used.pop_all()
        self.is_known = True
        return ""

    def _unfit(self, connection: sqlite3.Connection, boot: str) -> str:
        """Return why a file cannot be continued, "" if it can."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            return "it was not complete" if version == FILLING else "it has another format"
        if _schema(connection) != _schema(self.connection):
            return "it has another format"
        known, is_closed, commits = _what_is_known(connection)
        if not is_closed and (known != boot or not boot):
            return "the machine ended before it was closed"
        self._noted.seek(0)
        noted = self._noted.read(32).strip()
        return "" if noted.isdigit() and commits - int(noted) in (0, 1) else "its last changes are missing"

    def _open_new(self, path: Path, boot: str) -> None:
        remove_file(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(descriptor)
        connection = _connect(path)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # a reader would keep us from committing
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute(f"PRAGMA cache_size = -{FILLING_CACHE_KIB}")
            connection.execute("PRAGMA cache_spill = ON")  # all of it is one transaction
            connection.execute(f"PRAGMA user_version = {FILLING}")
            create(connection)
            connection.execute("INSERT INTO file VALUES ('', 0, 0)")
            self._use(connection, path, 0, boot)
        except BaseException:
            connection.close()
            remove_file(path)
            raise
        self._is_filling = True

    def _use(self, connection: sqlite3.Connection, path: Path, commits: int, boot: str) -> None:
        numbers, named = _numbers_of_rows(connection), _numbers_of_streams(connection)
        # Nothing may reach the disk before it is noted there that the file is not closed.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN")
        statement = "UPDATE file SET boot = ?, is_closed = 0, commits = ?"
        connection.execute(statement, (boot, commits + 1))
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA synchronous = OFF")
        self._note(commits + 1)
        connection.execute("BEGIN")
        self._numbers = max((0, *numbers, *named))
        self._discarded = [number for number in numbers if number not in named]
        self.connection, self.path, self._commits = connection, path, commits + 1
        self._opened_at = self._clock.monotonic()

    def _note(self, commits: int) -> None:
        """Write the number of commits into the file beside this one."""
        self._noted.seek(0)
        self._noted.write(b"%20d\n" % commits)

    def write_all(self) -> None:
        """Write all that is known, at the end: while there is contact with a stream, with a document.

        So the next start reads what was stored since, and nothing else.
        """
        if self.path is None:
            return
        try:
            self._write_all()
        except OF_FILE as error:
            self.lost(error)

    def _write_all(self) -> None:
        for rows in self._streams:
            while rows.engine is not None and rows.engine.held.unwritten_count > MAX_LEFT:
                rows.engine.held.write_changed(ROWS_PER_UNIT)
            rows.write_now()
        self._end_filling()
        self.commit()

    def close(self) -> None:
        """Write what is not written, and close the file; the tables are in memory then, and empty."""
        if self.path is None:
            return
        path = self.path
        self.views.close()  # the locks of its connection would be lost, and the journal would stay
        try:
            self._write_all()
            self.connection.close()
            self._note_the_end(path)
        except OF_FILE as error:
            self.lost(error)
            return
        self._in_memory()

    def _note_the_end(self, path: Path) -> None:
        """Note that the file is closed, once all of it is on the disk."""
        descriptor = os.open(path, os.O_RDWR)  # no connection is open: its locks would be lost
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        connection = _connect(path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("UPDATE file SET is_closed = 1, commits = ?", (self._commits + 1,))
        connection.close()
        self._note(self._commits + 1)

    def _in_memory(self) -> None:
        self.connection, self.path, self._is_filling = in_memory(), None, False
        self._streams, self._discarded = [], []
        self._noted.close()

    def lost(self, error: Exception) -> None:
        """Give the file up because of an error: the tables are in memory from now on, and each stream is read anew."""
        if self.path is None:
            return
        path, streams, is_useless = self.path, self._streams, self._is_filling or _is_damage(error)
        self._in_memory()  # what has the connection may still look at it
        self.views.close()
        if is_useless:
            remove_file(path)
        self._report_lost(str(error))
        for rows in streams:
            rows.given_up(error)

    # -- streams -------------------------------------------------------------------------------------------------

    def stream(self, name: str, mode: str, basis: str) -> StreamRows:
        """Return the rows of a stream, for an engine that was built on this basis and has read nothing."""
        self._streams = [rows for rows in self._streams if rows.name != name]
        try:
            rows = StreamRows(self, name, mode, basis)
        except OF_FILE as error:
            if self.path is None:
                raise
            self.lost(error)
            rows = StreamRows(self, name, mode, basis)
        self._streams.append(rows)
        return rows

    def known(self, name: str, mode: str) -> tuple[int, str, str | None, int, str] | None:
        """Return number, basis, document, ends and kinds of a stream. Raises `DamagedTableError`."""
        what = "number, basis, document, ends, kinds, checksum"
        statement = f"SELECT {what} FROM streams WHERE name = ? AND mode = ?"  # noqa: S608
        found = self.connection.execute(statement, (name, mode)).fetchone()
        if found is None:
            return None
        number, *values, noted = found
        if checksum(number, name, mode, *values) != noted:
            raise DamagedTableError(f"what is written of the stream {name} is not what was written")
        return (number, *values)

    def next_number(self) -> int:
        """Return a number that no stream has had."""
        self._numbers += 1
        return self._numbers

    def discard(self, number: int) -> None:
        """Have the rows of the stream with a number removed."""
        self.connection.execute("DELETE FROM streams WHERE number = ?", (number,))
        self._discarded.append(number)

    def forget(self, rows: StreamRows) -> None:
        """Discard the rows of a stream, unless the file was closed or given up before."""
        if rows in self._streams:
            self._streams.remove(rows)
            rows.engine = None
            try:
                self.discard(rows.number)
            except OF_FILE as error:
                self.lost(error)

    # -- writing -------------------------------------------------------------------------------------------------

    def inserted(self, rows: int) -> None:
        """Note that rows were inserted: many are committed at once."""
        self._uncommitted += rows
        if self._uncommitted > MAX_UNCOMMITTED and not self._is_filling:
            self.commit()

    @property
    def readable(self) -> Path | None:
        """Where the file is if others can read it, else None."""
        return None if self._is_filling else self.path

    def hold_commits(self, *, are_held: bool) -> None:
        """Commit nothing while commits are held: a reader begins, and what it sees fits to objects that were noted."""
        self._are_commits_held = are_held

    def commit(self) -> None:
        """Commit what was written, if anything was. Raises `sqlite3.Error` or `OSError`."""
        if self._are_commits_held:
            return
        self._uncommitted = 0
        if self.path is None:
            return
        for rows in self._streams:
            rows.write_ends(self.connection)
        if self.connection.total_changes != self._committed_changes:
            self._commit_now()

    def _commit_now(self) -> None:
        self._commits += 1
        self.connection.execute("UPDATE file SET commits = ?", (self._commits,))
        self.connection.execute("COMMIT")
        self._note(self._commits)
        self.connection.execute("BEGIN")
        self._committed_changes = self.connection.total_changes

    async def keep_writing(self) -> None:
        """Write what changes, until cancelled."""
        pause = COMMIT_INTERVAL_SECONDS
        while True:
            await asyncio.sleep(min(pause, FILLING_CHECK_SECONDS) if self._is_filling else pause)
            if self.path is None:
                return
            began = self._clock.monotonic()
            try:
                await self._write()
            except OF_FILE as error:
                self.lost(error)
                return
            took = (self._clock.monotonic() - began) / SECOND
            pause = max(COMMIT_INTERVAL_SECONDS, MAX_SHARE * took)

    async def _write(self) -> None:
        loading = [rows for rows in self._streams if rows.is_loading()]  # each of them notes what it has read
        if self._is_filling and loading:
            return
        self._end_filling()
        for rows in [rows for rows in self._streams if rows.is_changed]:
            if rows in self._streams:
                await rows.write()
        if not self._is_swept and self._opened_at + UNUSED_LIMIT_NS < self._clock.monotonic():
            self._discard_unused()
        for _ in range(REMOVALS if self._discarded else 1):
            if self.path is None:
                return
            self._remove_some()
            self.commit()
            await asyncio.sleep(0)

    def _discard_unused(self) -> None:
        """Discard the streams that have no service, once."""
        self._is_swept = True
        used = {rows.number for rows in self._streams}
        for number in _numbers_of_streams(self.connection) - used:
            self.discard(number)

    def _end_filling(self) -> None:
        """Have the file complete, and kept by a journal from now on."""
        if not self._is_filling:
            return
        self.commit()
        self.connection.execute("COMMIT")
        self.connection.execute("PRAGMA locking_mode = NORMAL")
        self.connection.execute("SELECT boot FROM file").fetchone()  # this unlocks it
        _have_a_journal(self.connection)
        self.connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self.connection.execute("PRAGMA cache_spill = OFF")
        self.connection.execute("PRAGMA shrink_memory")
        self.connection.execute("BEGIN")
        self.connection.execute(f"PRAGMA user_version = {FORMAT}")
        self._commit_now()
        self.connection.execute("COMMIT")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.execute("BEGIN")
        self._is_filling = False
        _give_memory_back()

    def _remove_some(self) -> None:
        """Remove some rows of streams that are discarded."""
        if not self._discarded:
            return
        some = "SELECT id FROM schedules WHERE stream = ? LIMIT ?"
        statement = f"DELETE FROM schedules WHERE id IN ({some})"  # noqa: S608
        removed = self.connection.execute(statement, (self._discarded[-1], ROWS_PER_UNIT)).rowcount
        if removed < ROWS_PER_UNIT:
            self._discarded.pop()


def _give_memory_back() -> None:
    """Give back to the system what was allocated to read many messages: glibc keeps tens of MB otherwise."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=LOCK_WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        factory=SharedConnection,
        cached_statements=64,
    )
    prepare(connection)
    for setting in (f"cache_size = -{CACHE_KIB}", "cache_spill = OFF", "synchronous = OFF", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _have_a_journal(connection: sqlite3.Connection) -> None:
    """Have a journal beside the file that others can read during a commit; raises `sqlite3.OperationalError`."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("there can be no journal beside it")


def _schema(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Return what tables and indexes there are, and where."""
    return connection.execute("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema ORDER BY rowid").fetchall()


def _what_is_known(connection: sqlite3.Connection) -> tuple[object, bool, int]:
    """Return the boot of the file, whether it is closed, and its commits. Raises `DamagedTableError`."""
    found = connection.execute("SELECT boot, is_closed, commits FROM file").fetchall()
    if len(found) != 1:
        raise DamagedTableError(f"{len(found)} rows say what the file is")
    boot, is_closed, commits = found[0]
    return boot, is_closed == 1, _number(commits)


def _number(value: object) -> int:
    """Return a number that was written. Raises `DamagedTableError`."""
    if not isinstance(value, int):
        raise DamagedTableError("something else is in the place of a number")
    return value


def _numbers_of_streams(connection: sqlite3.Connection) -> set[int]:
    """Return the numbers of the streams that are known. Raises `DamagedTableError`."""
    return {_number(number) for (number,) in connection.execute("SELECT number FROM streams")}


def _numbers_of_rows(connection: sqlite3.Connection) -> list[int]:
    """Return the numbers of the streams that have rows, in order. Raises `DamagedTableError`."""
    found: list[int] = []
    after = -1
    while True:
        statement = "SELECT min(stream) FROM schedules WHERE stream > ?"
        (number,) = connection.execute(statement, (after,)).fetchone()
        if number is None:
            return found
        if _number(number) <= after:
            raise DamagedTableError("the numbers of streams are in no order")
        found.append(number)
        after = number


def _is_damage(error: Exception) -> bool:
    """Return whether an error says that a file is not what was written, or may not be."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return not isinstance(error, OSError) and code & 0xFF not in PASSING


def written_document(document: RestartDocument) -> str:
    """Return a document as JSON, in which subjects may have bytes that are no UTF-8."""
    return json.dumps({one.name: getattr(document, one.name) for one in fields(document)})


def read_document(text: str) -> RestartDocument | None:
    """Return a document that was written, None if it is none."""
    try:
        return _DOCUMENTS.validate_python(json.loads(text))
    except ValueError:
        return None


def remove_file(path: Path) -> None:
    """Remove a file of schedules, and its journal, if they are there."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
