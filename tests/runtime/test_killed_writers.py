"""A process that writes the file of schedules is killed at any moment: the next one knows what the stream has."""

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
from nats_scheduler.runtime.schedule_file import FILE_NAME, FORMAT
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import plain, schedule
from tests.harness.seeds import generator, seeds
from tests.runtime.file_lives import Life, far, known_of

LIVES = 6
"""Processes that are killed, one after the other, on one file; the first one may end by itself."""
PORTION = 400
"""Messages that are new to each of them."""
INSTRUCTIONS = 100
"""Of SQLite, between two moments at which a writer may end itself."""


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


def write(life: Life, messages: list[StoredMessage], random: Random) -> None:
    """Read a stream in portions, and write what is known after each."""
    stream = life.stream()
    stream.begin()
    while stream.engine.last_read < len(messages):
        through = stream.engine.last_read + random.choice([1, 3, 40, 150, 1_500])
        stream.read(messages[:through])
        asyncio.run(life.file._write())
    life.close()


def begin_to_end(life: Life, random: Random, reach: float) -> None:
    """Have this process killed at a drawn moment: between two steps of SQLite, or anywhere after some time of CPU.

    `reach` is the part of the longest time that is drawn from; a fast machine has written all before that is over.
    """
    if random.random() < 0.5:
        left = iter(range(random.randrange(1, 2 + int(900 * reach)), 0, -1))

        def go_on() -> int:
            if next(left) == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

        life.file.connection.set_progress_handler(go_on, INSTRUCTIONS)
    else:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process as SIGKILL does, also in a system call
        signal.setitimer(signal.ITIMER_PROF, random.uniform(0.001, 0.001 + 0.07 * reach))


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


def is_sound(folder: Path) -> bool:
    """Return whether a file has its format already; if so, each of its rows has its checksum."""
    connection = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    prepare(connection)
    try:
        if connection.execute("PRAGMA user_version").fetchone() != (FORMAT,):
            return False
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for stream in connection.execute("SELECT * FROM streams"):
            assert checksum(*stream[:-1]) == stream[-1]
        for row in connection.execute("SELECT * FROM schedules"):
            checked((row[0], *row[2:]))
        return True
    finally:
        connection.close()


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
    reach = 1.0
    data = folder / "data"
    data.mkdir(parents=True)
    for life in range(LIVES):
        stored, drawn = messages[: (life + 1) * PORTION], random.getrandbits(64)

        def work(
            life: int = life, drawn: int = drawn, stored: list[StoredMessage] = stored, reach: float = reach
        ) -> None:
            writer = Life(data)
            if life or drawn % 2:
                begin_to_end(writer, Random(f"end {drawn}"), reach)
            write(writer, stored, Random(drawn))

        is_over = is_killed(work)
        killed += is_over
        reach = reach if is_over else reach / 2
        if is_sound(data) and is_over:
            copy = shutil.copytree(data, folder / f"next-{life}", ignore=shutil.ignore_patterns("*-shm"))
            looked += 1
            continued += continues(copy, stored)
    return killed, looked, continued


@pytest.mark.slow
def test_a_killed_writer_leaves_what_the_next_one_continues_from(tmp_path: Path) -> None:
    counts = [play(tmp_path / str(seed), seed) for seed in seeds(2)]
    killed, looked, continued = (sum(column) for column in zip(*counts, strict=True))
    assert killed > len(counts) * LIVES // 3, "they were killed before they had written all"
    assert continued > looked // 2
