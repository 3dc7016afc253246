"""Look through the file of schedules once, after a start that uses a file that was there.

Rows have checksums, and SQLite checks what it reads of pages. But no reader notices that an index has lost a row: its
schedule would not fire. `PRAGMA integrity_check` compares each index with the table.

The rules:

- It is done in a thread, through a connection of its own that only reads: the event loop waits for nothing.
- If it finds anything, the file is given up and removed, and all streams are read anew.

Cost: 2 to 4 µs for each schedule, once, beside the event loop. Limit: what fires in these seconds may be wrong, as far
as the checksums of rows allow it.
"""

import asyncio
import sqlite3

from nats_scheduler.engine.holding.table import DamagedTableError
from nats_scheduler.runtime.schedule_file import ScheduleFile

FINE = "ok"
"""The answer of SQLite if it finds nothing."""


async def check(file: ScheduleFile) -> None:
    """Give a file up if its tables and indexes do not fit together; a new file has nothing to be checked."""
    path = file.path
    if path is None or not file.is_known:
        return
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    except sqlite3.Error:
        return  # it can be read by what has it open, or that finds out
    checking = asyncio.ensure_future(asyncio.to_thread(fault_of, connection))
    try:
        await asyncio.wait((checking,))
    finally:
        connection.interrupt()
        await asyncio.wait((checking,))
        connection.close()
    fault = checking.result()
    if fault and file.path == path:
        file.lost(DamagedTableError(fault))


def fault_of(connection: sqlite3.Connection) -> str:
    """Return the first thing that does not fit; "" if there is none, or if that cannot be found out."""
    try:
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.OperationalError:
        return ""
    except sqlite3.Error as error:
        return str(error)
    return "" if found == FINE else " ".join(str(found).split())
