"""A process that writes the file of schedules is killed at any moment: what it leaves is a state that it committed.

Its rule: what a writer does follows from its seed, but for the moment of its end. So a writer that is not killed shows
what was committed at each number of commits.
"""

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from nats_scheduler.engine.holding.table import checked, checksum, prepare
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.schedule_file import COMMITS_NAME, FILE_NAME, FORMAT, ScheduleFile
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import plain, schedule
from tests.harness.seeds import draws, generator, seeds
from tests.runtime.file_lives import Life, far, known_of

LIVES = 6
"""Processes that are killed, one after the other, on one file; the first one may end by itself."""
PORTION = 700
"""Messages that are new to each of them."""
INSTRUCTIONS = 100
"""Of SQLite, between two moments at which a writer may end itself."""

TABLES = ("streams", "schedules", "file")
Dump = list[list[tuple[object, ...]]]


def stream_of(seed: int) -> list[StoredMessage]:
    """Draw a stream: new schedules, some that replace others by ones of any kind, some that are removed."""
    random, messages = Random(f"stream {seed}"), []
    for sequence in range(1, LIVES * PORTION + 1):
        drawn, subject = random.random(), f"s.{random.randrange(1, sequence + 1)}"
        if drawn < 0.1:
            messages.append(plain(subject, sequence))
        elif drawn < 0.15:
            messages.append(schedule("@every 1m", sequence, subject, stored_at=START + 59 * MINUTE))
        else:
            messages.append(far(sequence, subject if drawn < 0.3 else ""))
    return messages


class CommittedError(BaseException):
    """Ends a writer that is not killed: no other code catches it."""


class CountedFile(ScheduleFile):
    """A file that ends its writer behind a commit."""

    last = 0
    """The number of that commit; 0: none does."""

    def _commit_now(self) -> None:
        """Commit, and end the writer."""
        super()._commit_now()
        if self._commits == self.last:
            raise CommittedError


def write(life: Life, messages: list[StoredMessage], random: Random) -> None:
    """Read a stream in portions, and write what is known after each."""
    stream = life.stream()
    stream.begin()
    while stream.engine.last_read < len(messages):
        through = stream.engine.last_read + random.choice([1, 3, 40, 150, 1_500])
        stream.read(messages[:through])
        asyncio.run(life.file._write())
    life.close()


def begin_to_end(life: Life, random: Random) -> None:
    """Have this process killed at a drawn moment: between two steps of SQLite, or anywhere after some time of CPU."""
    if random.random() < 0.5:
        left = iter(range(random.randrange(1, 900), 0, -1))

        def go_on() -> int:
            if next(left) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

        life.file.connection.set_progress_handler(go_on, INSTRUCTIONS)
    else:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process as SIGKILL does, also in a system call
        signal.setitimer(signal.ITIMER_PROF, random.uniform(0.001, 0.07))


def is_killed(work: Callable[[], None]) -> bool:
    """Do work in a process of its own; returns whether that was killed, and fails if it failed."""
    if (child := os.fork()) == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _pid, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "the writer failed"
    return os.WIFSIGNALED(status)


def dump(connection: sqlite3.Connection) -> Dump:
    """Return all that is in the tables."""
    return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES]  # noqa: S608


def opened(folder: Path) -> tuple[int, Dump]:
    """Return the format of a file, and all that is in its tables; each row has its checksum."""
    connection = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    prepare(connection)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            return version, []
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = dump(connection)
        for stream in found[0]:
            assert checksum(*stream[:-1]) == stream[-1]
        for row in found[1]:
            checked((row[0], *row[2:]))
        return version, found
    finally:
        connection.close()


def committed(folder: Path, messages: list[StoredMessage], random: Random, last: int) -> Dump:
    """Return what a writer that is not killed has in its tables behind a commit."""
    life = Life(folder, of=CountedFile)
    assert isinstance(life.file, CountedFile)
    life.file.last = last
    if life.file._commits != last:
        with pytest.raises(CommittedError):
            write(life, messages, random)
    found = dump(life.file.connection)
    life.file.last = 0
    life.file.close()
    return found


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*-shm"))
    return to


def continues(folder: Path, messages: list[StoredMessage]) -> bool:
    """Return whether the next process continues from a file; whether or not, it knows what is in the stream."""
    life = Life(folder)
    assert life.removed == ""
    stream = life.stream()
    is_continued = stream.begin()
    assert stream.is_consistent
    assert stream.read(messages).known == known_of(messages)
    assert stream.is_consistent
    life.close()
    assert life.lost == []
    return is_continued


def play(folder: Path, seed: int) -> tuple[int, int, int]:
    """Kill writers on one file, one after the other.

    Returns how many were killed, on how many of their files another process begins, and how many of these continue.
    """
    messages, random = stream_of(seed), generator(f"killed writers {seed}")
    killed = looked = continued = 0
    data = folder / "data"
    data.mkdir()
    for life in range(LIVES):
        stored, drawn = messages[: (life + 1) * PORTION], random.getrandbits(64)
        before = copied(data, folder / f"before-{life}")

        def work(life: int = life, drawn: int = drawn, stored: list[StoredMessage] = stored) -> None:
            writer = Life(data)
            if life or drawn % 2:
                begin_to_end(writer, Random(f"end {drawn}"))
            write(writer, stored, Random(drawn))

        is_over = is_killed(work)
        killed += is_over
        version, found = opened(data)
        if version == FORMAT:
            ((_boot, is_closed, commits),) = found[2]
            assert isinstance(commits, int)
            assert commits - int((data / COMMITS_NAME).read_bytes()) in (0, 1)
            assert is_closed or found == committed(before, stored, Random(drawn), commits)
            if is_over and (drawn % 4 == 0 or life == LIVES - 1):
                looked += 1
                continued += continues(copied(data, folder / f"next-{life}"), stored)
    shutil.rmtree(folder)
    return killed, looked, continued


def play_all(folder: Path, seeds: range) -> None:
    """Play many, most of whose writers have to be killed."""
    counts = []
    for seed in seeds:
        (folder / str(seed)).mkdir()
        counts.append(play(folder / str(seed), seed))
    killed, looked, continued = (sum(column) for column in zip(*counts, strict=True))
    assert killed > len(seeds) * LIVES // 3, "they were killed before they had written all"
    assert continued > looked // 2


@pytest.mark.slow
def test_a_killed_writer_leaves_what_it_committed(tmp_path: Path) -> None:
    play_all(tmp_path, seeds(4))


@pytest.mark.deep
def test_a_thousand_killed_writers_leave_what_they_committed(tmp_path: Path) -> None:
    few = seeds(4)
    play_all(tmp_path, range(few.stop, few.stop + draws(167)))
