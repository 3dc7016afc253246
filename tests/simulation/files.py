"""The machines of instances, and the folder of each with the file of schedules: what processes leave to the next ones.

Its rule: a process writes with the real `ScheduleFile`, into a real folder. What a killed process leaves is a copy of
its files at that moment, so that what was not committed is lost; if it dies in the middle of a commit, only a part of
that is there. What happens to a file while no process uses it is drawn by the world, and has a name here.
Limit: a byte that changes where no checksum is, such as in an index, is not noticed; none does here.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from nats_scheduler.engine.holding import scheduled, table
from nats_scheduler.engine.holding.table import prepare
from nats_scheduler.runtime import schedule_file
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.data_folder import ClaimedFolder, claim
from nats_scheduler.runtime.schedule_file import COMMITS_NAME, FILE_NAME, ScheduleFile
from tests.simulation.process import Point, Process
from tests.simulation.scenario import MILLISECOND

JOURNAL_NAME = f"{FILE_NAME}-wal"
NAMES = (FILE_NAME, JOURNAL_NAME, COMMITS_NAME)

BEFALLS = {
    "nothing": 24,
    "machine crashed": 3,
    "lost": 2,
    "older": 4,
    "row altered": 3,
}
"""What happens to a file before a process starts, and how often."""

MOST_COPIES = 3
COPIED = 0.05
"""The share of commits after which an older copy of the file is kept."""

Limit = tuple[Any, str, Any]
"""A module, the name of one of its limits, and another value of it."""


@contextmanager
def limited(limits: Iterable[Limit]) -> Iterator[None]:
    """Give modules other limits while the block runs, so that a small world reaches them."""
    with pytest.MonkeyPatch.context() as changed:
        for module, name, value in limits:
            assert name.isupper(), f"{name} is no limit"
            changed.setattr(module, name, value)
        yield


def near(seed: int) -> Iterable[Limit]:
    """Have few schedules as objects, and few looked up at once, in half of the worlds: all worlds end soon."""
    if seed % 2 == 0:
        return ()
    return (
        (scheduled, "OBJECTS_AHEAD_NS", 300 * MILLISECOND),
        (scheduled, "MIN_AHEAD_NS", 150 * MILLISECOND),
        (scheduled, "MAX_READ_PER_CALL", 2),
        (scheduled, "MAX_KNOWN_SUBJECTS", 0),
        (table, "ROWS_AT_ONCE", 2),
        (table, "SUBJECTS_AT_ONCE", 2),
    )


def hasty(seed: int) -> Iterable[Limit]:
    """Have files written often, and a few rows at a time."""
    draw = Random(f"commits {seed}")
    return (
        (schedule_file, "COMMIT_INTERVAL_SECONDS", draw.choice([0.05, 0.3, 1.0])),
        (schedule_file, "MAX_LEFT", draw.choice([1, 3, 64])),
        (schedule_file, "ROWS_PER_UNIT", draw.choice([1, 2])),
        (schedule_file, "MAX_ROUNDS", draw.choice([2, 200])),
        (schedule_file, "MAX_UNCOMMITTED", draw.choice([0, 3])),
    )


class Machine:
    """A machine with a folder, which one of its processes uses at a time."""

    def __init__(self, name: str, seed: int, trace: Callable[[str], None]) -> None:
        """Begin with an empty folder."""
        self.random = Random(f"machine {name} {seed}")
        self._name = name
        self._trace = trace
        self._root = TemporaryDirectory(ignore_cleanup_errors=True)
        self._folders = 0
        self._boots = 1
        self._tells_boots = self.random.random() < 0.9
        self._copies: list[Path] = []
        self.user: MachineFile | None = None
        """The file that a process uses now."""
        self.folder = self._new_folder()

    @property
    def boot(self) -> str:
        """What identifies this start of the machine, "" if it does not tell."""
        return f"boot {self._boots}" if self._tells_boots else ""

    def remove(self) -> None:
        """Remove all that is on the machine."""
        self._root.cleanup()

    def move(self) -> Path:
        """Have the next process find a copy of what is in the folder now; returns the folder before."""
        before, self.folder = self.folder, self._new_folder()
        copy(before, self.folder)
        return before

    def keep_copy(self) -> None:
        """Keep a copy of the files as they are."""
        place = self._new_folder()
        copy(self.folder, place)
        self._copies.append(place)
        if len(self._copies) > MOST_COPIES:
            shutil.rmtree(self._copies.pop(0))

    def befall(self, what: str) -> None:
        """Let something happen to the file, while no process uses it."""
        if self.user is not None or what == "nothing":
            return
        path = self.folder / FILE_NAME
        if what == "machine crashed":
            self._boots += 1
        elif not path.exists():
            return
        elif what == "lost":
            path.unlink()
            path.with_name(JOURNAL_NAME).unlink(missing_ok=True)
        elif what == "older":
            self._put_back()
        else:
            self._alter(path)
        self._trace(f"{self._name}: what befalls its file: {what}")

    def _put_back(self) -> None:
        if self._copies:
            place = self.random.choice(self._copies)
            for name in NAMES:
                (self.folder / name).unlink(missing_ok=True)
            copy(place, self.folder)

    def _alter(self, path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        prepare(connection)
        try:
            alter_row(connection, self.random)
        finally:
            connection.close()

    def _new_folder(self) -> Path:
        self._folders += 1
        place = Path(self._root.name, str(self._folders))
        place.mkdir(0o700)
        return place


def copy(place: Path, to: Path) -> None:
    """Copy the files of a folder that are there."""
    for name in NAMES:
        with suppress(FileNotFoundError):
            shutil.copyfile(place / name, to / name)


def alter_row(connection: sqlite3.Connection, random: Random) -> None:
    """Have a row say something else than was written."""
    numbers = [number for (number,) in connection.execute("SELECT id FROM schedules ORDER BY id")]
    if numbers:
        statement = "UPDATE schedules SET fire_time = fire_time + 1000000000 WHERE id = ?"
        connection.execute(statement, (random.choice(numbers),))


class MachineFile(ScheduleFile):
    """The file of one process, which may die at each commit, and in the middle of one."""

    def __init__(self, machine: Machine, process: Process, clock: Clock, report_lost: Callable[[str], object]) -> None:
        """Use the file in the folder of a machine, or the memory if another process does."""
        super().__init__(clock, report_lost)
        self._machine = machine
        self._process = process
        self._before_commit: tuple[int, bytes] = 0, b""
        self._claimed: ClaimedFolder | None = None
        self._left: Path | None = None
        process.dies, process.ended = self._leave_files, self._release
        claimed = claim(machine.folder)
        if isinstance(claimed, str):
            process.note(f"keeps no file: {claimed}")
            return
        self._claimed, machine.user = claimed, self
        try:
            removed = self.open(claimed.path, machine.boot)
        finally:
            self._opened = self.connection
        process.note(f"opens its file: {removed or 'it is used'}")

    def commit(self) -> None:
        """Commit what was written, if the process does not die."""
        if self.path is None:
            super().commit()
            return
        self._process.point(Point.COMMIT)
        self._before_commit = self._journal_size(), self._number()
        super().commit()
        self._process.point(Point.COMMITTED)
        if self._machine.random.random() < COPIED:
            self._machine.keep_copy()

    def fill_disk(self) -> None:
        """Have no further change be written: from its next statement on, or from the end of its next commit on."""
        if self.path is None:
            return
        if self._machine.random.random() < 0.5:
            self.connection.execute("PRAGMA query_only = ON")
        else:
            full = os.open("/dev/full", os.O_RDWR)
            os.dup2(full, self._noted.fileno())
            os.close(full)

    def alter_row(self) -> None:
        """Have a row say something else than was written."""
        if self.path is not None:
            with suppress(sqlite3.Error):  # the disk is full
                alter_row(self.connection, self._machine.random)

    # -- the end of its process ----------------------------------------------------------------------------------

    def _leave_files(self) -> None:
        """Leave the files as they are now to the next process."""
        if self._claimed is None or self._left is not None:
            return
        self._left = self._machine.move()
        if self._process.crashed_at is Point.COMMITTED and self.path is not None:
            self._tear(self._machine.folder)

    def _tear(self, folder: Path) -> None:
        """Have the last commit be there, or its number not, or only a part of it."""
        how, (size, number) = self._machine.random.choice(["whole", "not numbered", "torn"]), self._before_commit
        if how == "whole":
            return
        (folder / COMMITS_NAME).write_bytes(number)
        now = self._journal_size()
        if how == "torn" and size < now:
            os.truncate(folder / JOURNAL_NAME, size + int(self._machine.random.random() * (now - size)))

    def _release(self) -> None:
        """Close all that the kernel closes."""
        if self._claimed is None or self._left is None:
            return
        self._opened.close()
        self.connection.close()
        if self.path is not None:
            self._noted.close()
        self._claimed.close()
        self._claimed = self._machine.user = None
        shutil.rmtree(self._left)

    def _journal_size(self) -> int:
        assert self.path is not None, "it is in a folder"
        try:
            return self.path.with_name(JOURNAL_NAME).stat().st_size
        except FileNotFoundError:
            return 0

    def _number(self) -> bytes:
        return os.pread(self._noted.fileno(), 32, 0)
