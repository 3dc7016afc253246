"""Lives of a process that has a file of schedules: real files, real engines, and a stream that is a list of messages.

Its rules:

- A stream says what it stores once: each life reads it, from its beginning or from where it continues.
- A life that is killed leaves the files as they are on the disk at that moment (`left_by`): the copy is what the next
  process of the same boot finds.
"""

import asyncio
import shutil
from collections.abc import Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats_scheduler.engine.inputs import CaughtUp, MessagesRead, OwnershipChanged, ServerLimits
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime import schedule_file
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.schedule_file import COMMITS_NAME, FILE_NAME, ScheduleFile, StreamRows
from nats_scheduler.schedule.instants import DAY, HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import schedule
from tests.harness.waiting import eventually

BOOT = "the boot"
BASIS = "the basis"
MODE = "emulated"
FILES = (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-journal", COMMITS_NAME)
"""All that a process leaves of its schedules; what SQLite shares between processes is made anew."""

Known = dict[str, tuple[int, str, int]]
"""Of each subject the sequence of its schedule, its pattern, and when it fires next (ns)."""


def far(sequence: int, subject: str = "", **more: Any) -> StoredMessage:
    """Make a schedule of each kind in turn that fires in days, and has no object therefore."""
    pattern = (f"@at {format_rfc3339(START + 2 * DAY + sequence * SECOND)}", "@every 48h", "0 30 9 1 1 *")[sequence % 3]
    return schedule(pattern, sequence, subject or f"s.{sequence}", stored_at=START + sequence, **more)


def far_ones(number: int, first: int = 1) -> list[StoredMessage]:
    """Make many."""
    return [far(sequence) for sequence in range(first, first + number)]


@dataclass
class Stream:
    """A stream of one life: its rows, and the engine that reads it."""

    rows: StreamRows
    engine: StreamEngine
    failures: list[Exception] = field(default_factory=list)
    now: int = START + HOUR

    def begin(self) -> bool:
        """Continue from the rows if that is possible; returns whether it is."""
        document, rows = self.rows.document, self.rows
        if document is None:
            return False
        rows.document = None
        self.engine.restart.begin_with(document, rows.kinds)
        return True

    def read(self, messages: Iterable[StoredMessage], *, is_all: bool = True) -> "Stream":
        """Read what of these is not read yet, and find that it is all that is stored."""
        after = self.engine.last_read
        facts = [MessagesRead([one for one in messages if one.sequence > after])]
        self.engine.step(self.now, [OwnershipChanged(False), *facts, *([CaughtUp()] if is_all else [])])
        return self

    @property
    def known(self) -> Known:
        """What the engine holds."""
        listed = self.engine.view().page(self.now, limit=None).answer().schedules
        return {one.subject: (one.sequence, one.pattern.text, one.next_fire or 0) for one in listed}

    @property
    def is_consistent(self) -> bool:
        """True if the numbers that the engine goes by are those of what it holds."""
        held = self.engine.held
        return len(held) == len(self.known) == held.kinds.total() and min((0, *held.kinds.values())) == 0


class Life:
    """A process that has the file in a folder."""

    def __init__(self, folder: Path, boot: str = BOOT, of: type[ScheduleFile] = ScheduleFile) -> None:
        """Open the file."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.lost: list[str] = []
        """The reasons for which the file was given up."""
        self.file = of(SystemClock(), self.lost.append)
        self.removed = self.file.open(folder, boot)

    def stream(self, name: str = "S", basis: str = BASIS) -> Stream:
        """Return a stream with an engine that has read nothing."""
        rows = self.file.stream(name, MODE, basis)
        limits = ServerLimits(guard=True, look_ahead=SECOND)
        of_stream = StreamRules(name, (">",), allow_msg_ttl=True)
        stream = Stream(rows, StreamEngine(of_stream, DIALECTS, limits, table=rows.table))
        rows.attach(stream.engine, stream.failures.append)
        return stream

    def close(self) -> None:
        """End as a process that was asked to."""
        self.file.close()


def known_of(messages: Iterable[StoredMessage]) -> Known:
    """Return what an engine holds that has read a stream, with everything in memory."""
    file = ScheduleFile(SystemClock())
    rows = file.stream("S", MODE, BASIS)
    engine = StreamEngine(
        StreamRules("S", (">",), allow_msg_ttl=True),
        DIALECTS,
        ServerLimits(guard=True, look_ahead=SECOND),
        table=rows.table,
    )
    return Stream(rows, engine).read(messages).known


@asynccontextmanager
async def writing(file: ScheduleFile) -> Any:
    """Have a file written as a sidecar does, until it is left."""
    task = asyncio.create_task(file.keep_writing())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled() or task.exception() is None, task.exception()


async def written(life: Life, stream: Stream) -> None:
    """Wait until all that an engine knows is committed, with a document that says so."""
    rows = stream.rows

    def is_written() -> bool:
        is_committed = _through(life, rows) == stream.engine.last_read
        return not rows.is_changed and not stream.engine.held.unwritten_count and is_committed

    async with writing(life.file):
        await eventually(is_written, describe="what is known is written")


def _through(life: Life, rows: StreamRows) -> int:
    found = life.file.known(rows.name, MODE)
    document = None if found is None or found[2] is None else schedule_file.read_document(found[2])
    return -1 if document is None else document.through


def left_by(life: Life, folder: Path) -> Path:
    """Return a copy of the folder of a process as it would be if it was killed now."""
    folder.mkdir()
    for name in FILES:
        if (life.folder / name).exists():
            shutil.copyfile(life.folder / name, folder / name)
    return folder
