"""Questions about the schedules in the file, answered in a thread through a second connection, which only reads.

The rules:

- A question is about one moment. What was written is committed, the objects are noted, and nothing more is committed
  until the thread has begun its transaction: so each schedule is in the rows or among the objects, and in one of them.
  The event loop waits for none of that.
- One question is answered at a time, each in a transaction of its own: while one lasts, the journal only grows.
- SQLite needs no interpreter while it looks at rows. Between two units of work the thread rests, so that the event loop
  gets the interpreter when it wants it.
- While a new file is filled, nobody else can read it: then `reads` is False.

Cost: one to three milliseconds of the event loop for each question, with a commit if anything was written since the
last one; 4 MB for SQLite's pages.
"""

import asyncio
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from nats_scheduler.engine.holding.table import DamagedTableError, Table, prepare
from nats_scheduler.engine.views.seen import Part, Seen, Work, done
from nats_scheduler.service.turns import unreadable

T = TypeVar("T")

CACHE_KIB = 4 * 1024
"""The most that SQLite keeps of the file for this connection (KiB)."""

NICENESS = 10
"""The thread waits for the processor while the event loop, and with it a fire, wants it."""

REST_SECONDS = 0.0001
"""The rest of the thread after each unit of work: about as long as a unit of Python takes."""

OF_FILE = (sqlite3.Error, DamagedTableError, OSError)
"""What is raised if a file cannot be used."""


class ReadFile(Protocol):
    """The file; see `runtime.schedule_file`."""

    @property
    def readable(self) -> Path | None:
        """Where the file is, None if it cannot be read by others now, or if there is none."""
        ...

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of the engines."""
        ...

    def commit(self) -> None:
        """Commit what was written."""
        ...

    def hold_commits(self, *, are_held: bool) -> None:
        """Commit nothing, or commit again."""
        ...

    def lost(self, error: Exception) -> None:
        """Give the file up."""
        ...


class FileViews:
    """The thread, and its connection."""

    def __init__(self, file: ReadFile) -> None:
        """Read nothing yet."""
        self._file = file
        self._executor: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._turn = asyncio.Lock()
        self._is_wanted = True
        self._is_closed = False

    def reads(self, table: Table) -> bool:
        """Return whether the rows of a table are in the file, and can be read."""
        return self._file.readable is not None and table.place[0] is self._file.connection

    async def answer(self, part: Part[T]) -> T:
        """Answer a part of a question about this moment; raises `ServiceError`."""
        async with self._turn:
            path = self._file.readable
            if path is None:
                raise unreadable("the file of the schedules was given up")
            seen = part.see()
            self._commit()
            with self._held_commits():
                await self._in_thread(path, partial(self._begin, path, seen))
            return await self._in_thread(path, partial(self._finish, part.of(seen)))

    def close(self) -> None:
        """End the thread, and its connection: a question that is not answered fails."""
        self._is_closed = True
        executor, self._executor = self._executor, None
        if executor is not None:
            self._end_work()
            executor.shutdown()
        self._disconnect()

    # -- on the event loop ---------------------------------------------------------------------------------------

    def _commit(self) -> None:
        try:
            self._file.commit()
        except OF_FILE as error:
            self._file.lost(error)
            raise unreadable(str(error)) from None

    @contextmanager
    def _held_commits(self) -> Iterator[None]:
        self._file.hold_commits(are_held=True)
        try:
            yield
        finally:
            self._file.hold_commits(are_held=False)

    async def _in_thread(self, path: Path, work: Callable[[], T]) -> T:
        """Return what the thread returns, or raise `ServiceError`; if nobody waits any more, it ends soon."""
        if self._is_closed:
            raise unreadable("the file of the schedules was closed")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "views", _yield_to_others)
        self._is_wanted = True
        doing = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(doing)
        except OF_FILE as error:
            self._disconnect()
            if _is_certainly_damaged(error) and self._file.readable == path:
                self._file.lost(error)
            raise unreadable(str(error)) from None
        except asyncio.CancelledError:
            self._end_work()
            await asyncio.wait((doing,))
            doing.exception()
            self._disconnect()
            raise

    def _end_work(self) -> None:
        """End what the thread does: between two units of work, or in a statement."""
        self._is_wanted = False
        if self._connection is not None:
            self._connection.interrupt()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- in the thread -------------------------------------------------------------------------------------------

    def _begin(self, path: Path, seen: Seen) -> None:
        """Begin a transaction: what is committed later is not seen."""
        if self._connection is None:
            uri = f"{path.absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            prepare(self._connection)
            for setting in (f"cache_size = -{CACHE_KIB}", "temp_store = MEMORY", "trusted_schema = OFF"):
                self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT commits FROM file").fetchone()
        seen.rows.through(self._connection)

    def _finish(self, work: Work[T]) -> T:
        """Do all of the work, and end the transaction."""
        assert self._connection is not None, "a transaction has begun"
        try:
            return done(work, self._rest)
        finally:
            work.close()
            if self._connection.in_transaction:  # an error may have ended it
                self._connection.execute("COMMIT")

    def _rest(self) -> None:
        """Let others have the interpreter, or end."""
        if not self._is_wanted:
            raise unreadable("the file of the schedules was closed")
        time.sleep(REST_SECONDS)


def _yield_to_others() -> None:
    if sys.platform == "linux":  # there a thread has a priority of its own
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def _is_certainly_damaged(error: Exception) -> bool:
    """Return whether an error shows that the file is not what was written: what may be passing does not."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, DamagedTableError) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
