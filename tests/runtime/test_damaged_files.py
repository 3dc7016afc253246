"""Files of schedules that are cut off, or have a byte that is not what was written: no start believes a wrong row.

Its rule: whatever was done to the files, the process knows in the end what the stream has. It may have continued from
the file, read the stream anew at once, or given the file up when it found out.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from nats_scheduler.runtime import schedule_file
from nats_scheduler.runtime.file_check import check
from nats_scheduler.runtime.file_views import OF_FILE
from nats_scheduler.runtime.schedule_file import COMMITS_NAME, FILE_NAME
from nats_scheduler.schedule.instants import DAY, MINUTE
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import plain, schedule
from tests.harness.seeds import draws, generator
from tests.runtime.file_lives import Known, Life, Stream, far, far_ones, known_of, left_by, written

NUMBER = 120
STEPS = 60
"""Steps of an engine in which all its schedules come due."""
WAL_NAME = f"{FILE_NAME}-wal"
MESSAGES = [
    *far_ones(NUMBER),
    *(far(NUMBER + n, f"s.{3 * n}") for n in range(1, 40)),
    *(plain(f"s.{7 * n}", NUMBER + 39 + n) for n in range(1, 20)),
    *(schedule("@every 1m", NUMBER + 58 + n, f"near.{n}", stored_at=START + 59 * MINUTE) for n in range(1, 20)),
]
LATER = [far(len(MESSAGES) + n, f"s.{n}") for n in range(1, 12)]
"""What is stored while no process runs."""

Damage = Callable[[Path, Random], object]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what changed written at once."""
    monkeypatch.setattr(schedule_file, "COMMIT_INTERVAL_SECONDS", 0.005)


@pytest.fixture
async def killed(tmp_path: Path, eager: None) -> Path:
    """Give the folder of a process that was killed: half of what it wrote is in the journal."""
    life = Life(tmp_path / "first")
    stream = life.stream()
    await written(life, stream.read(MESSAGES[: NUMBER // 2]))
    await written(life, stream.read(MESSAGES))
    folder = left_by(life, tmp_path / "killed")
    life.close()
    return folder


@pytest.fixture
async def closed(tmp_path: Path, killed: Path) -> Path:
    """Give the folder of a process that was asked to end."""
    return tmp_path / "first"


def cut_off(file: Path, random: Random) -> None:
    """Truncate a file."""
    with file.open("r+b") as opened:
        opened.truncate(random.randrange(file.stat().st_size))


def flipped(file: Path, random: Random) -> None:
    """Change one byte of a file."""
    with file.open("r+b") as opened:
        opened.seek(place := random.randrange(file.stat().st_size))
        (byte,) = opened.read(1)
        opened.seek(place)
        opened.write(bytes([byte ^ random.choice([1, 2, 4, 8, 16, 32, 64, 128, random.randrange(1, 256)])]))


def begun(life: Life) -> Stream:
    """Begin with a stream as a service does, and read the rest; what fails is read anew."""
    stream = life.stream()
    try:
        stream.begin()
        stream.read(MESSAGES + LATER)
    except OF_FILE as error:
        stream.rows.lost(error)
        stream = life.stream().read(MESSAGES + LATER)
    return stream


def comes_due(stream: Stream) -> None:
    """Let all schedules come due in a stream that another instance owns: all rows are read in their order."""
    for step in range(STEPS):
        stream.engine.step(stream.now + (step // 10) * DAY)


def looked_at(stream: Stream, right: Known, *, is_due: bool) -> None:
    """Use what was continued with before it is known that it is damaged: nothing wrong is believed."""
    try:
        assert stream.known.items() <= right.items()
        for subject in right:
            held = stream.engine.held.peek(subject)
            assert held is None or held.sequence == right[subject][0]
        if is_due:
            comes_due(stream)
    except OF_FILE as error:
        stream.rows.lost(error)


async def outcome(folder: Path, right: Known, *, is_due: bool = False) -> str:
    """Start on a folder, and return what became of the file; in the end the process knows what is right."""
    life = Life(folder)
    stream = begun(life)
    was_read_anew = not stream.rows.kinds
    looked_at(stream, right, is_due=is_due)
    await check(life.file)
    if life.lost:
        stream = begun(life)
    assert stream.known == right
    assert stream.is_consistent
    assert len(life.lost) <= 1
    life.close()
    if life.lost or life.removed:
        return "given up" if life.lost else "removed"
    return "read anew" if was_read_anew else "continued"


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut_off, flipped])
@pytest.mark.parametrize("name", [FILE_NAME, WAL_NAME, COMMITS_NAME])
async def test_a_damaged_file_ends_in_the_right_schedules(
    tmp_path: Path, killed: Path, closed: Path, name: str, damage: Damage
) -> None:
    """Of a killed process most pages of the database itself are in the journal again; a closed file has none."""
    found = await outcomes(killed if name == WAL_NAME else closed, tmp_path, name, damage)
    assert found & {"removed", "given up"}


async def outcomes(folder: Path, tmp_path: Path, name: str, damage: Damage) -> set[str]:
    """Return what became of copies of a folder with damage in a file."""
    right, found = known_of(MESSAGES + LATER), set()
    for number in range(draws(16 if name == FILE_NAME else 8)):
        random = generator(f"damaged files {folder.name} {name} {number} {damage.__name__}")
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
        damage(copy / name, random)
        found.add(await outcome(copy, right))
        shutil.rmtree(copy)
    return found


async def test_a_file_without_damage_is_continued_with(killed: Path, closed: Path) -> None:
    right = known_of(MESSAGES + LATER)
    assert [await outcome(folder, right) for folder in (killed, closed)] == ["continued", "continued"]


# -- the check after a start -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["wake", "subject"])
async def test_an_index_that_lost_a_row_is_found_after_a_start(tmp_path: Path, closed: Path, column: str) -> None:
    """The row is in the table, and nothing that reads it notices that the index has another entry."""
    content, right = bytearray((closed / FILE_NAME).read_bytes()), known_of(MESSAGES + LATER)
    life = Life(shutil.copytree(closed, tmp_path / "copy"))
    statement = "SELECT subject, wake FROM schedules WHERE subject = 's.99'"
    subject, wake = life.file.connection.execute(statement).fetchone()
    life.close()
    value = subject.encode() if column == "subject" else wake.to_bytes(8, "big")
    places = [place for place in range(len(content)) if content.startswith(value, place)]
    results = set()
    for place in places:
        damaged = bytearray(content)
        damaged[place + len(value) - 1] ^= 2
        copy = shutil.copytree(closed, tmp_path / f"copy-{place}")
        (copy / FILE_NAME).write_bytes(damaged)
        results.add(await outcome(copy, right, is_due=True))
    assert places
    assert results == {"given up"}
