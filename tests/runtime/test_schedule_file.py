"""The file of schedules: a process continues from what another one left, or says why not, and can be without it."""

import sqlite3
from pathlib import Path

import pytest

from nats_scheduler.engine.holding.table import checksum
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime import schedule_file
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.schedule_file import (
    COMMITS_NAME,
    FILE_NAME,
    LOCK_WAIT_SECONDS,
    MAX_UNCOMMITTED,
    ScheduleFile,
)
from nats_scheduler.schedule import zones
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.schedule.zone_data import package_folder
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import plain, schedule
from tests.harness.waiting import eventually
from tests.runtime.file_lives import BASIS, BOOT, MODE, Life, far, far_ones, known_of, left_by, writing, written

NUMBER = 150
OF_ANOTHER_BASIS = "it is of another creation of the stream, other settings, another server or another version"
NOT_CLOSED = "the machine ended before it was closed"
MISSING = "its last changes are missing"


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what changed written at once."""
    monkeypatch.setattr(schedule_file, "COMMIT_INTERVAL_SECONDS", 0.005)


def filled(folder: Path, messages: list[StoredMessage], *names: str) -> None:
    """Leave a file of streams that have these messages."""
    life = Life(folder)
    for name in names or ("S",):
        life.stream(name).read(messages)
    life.close()


def changed(folder: Path, statement: str, *values: object) -> None:
    """Change a file that nobody has open."""
    connection = sqlite3.connect(folder / FILE_NAME)
    with connection:
        connection.execute(statement, values)
    connection.close()


def number_of_rows(folder: Path) -> int:
    connection = sqlite3.connect(folder / FILE_NAME)
    (number,) = connection.execute("SELECT count(*) FROM schedules").fetchone()
    connection.close()
    return int(number)


# -- what continues ----------------------------------------------------------------------------------------------------


async def test_a_process_continues_from_what_was_closed_or_killed(tmp_path: Path) -> None:
    messages = far_ones(NUMBER)
    life = Life(tmp_path / "closed")
    assert not life.stream().begin()
    stream = life.stream().read(messages)
    await written(life, stream)
    killed = left_by(life, tmp_path / "killed")
    life.close()
    messages += [far(NUMBER + 1), far(NUMBER + 2, "s.7"), plain("s.8", NUMBER + 3)]
    for folder in (tmp_path / "closed", killed):
        for _start in range(2):  # the second one has nothing new to read
            life = Life(folder)
            stream = life.stream()
            assert (life.removed, stream.rows.ignored, stream.begin()) == ("", "", True)
            assert stream.read(messages).known == known_of(messages)
            assert stream.is_consistent
            life.close()
    assert number_of_rows(killed) == NUMBER


async def test_a_subject_that_is_no_utf_8_is_continued_with(tmp_path: Path) -> None:
    odd = b"s.\xff\xfe".decode("utf-8", "surrogateescape")
    messages = [far(1, odd), far(2), plain(odd + ".x", 3)]
    filled(tmp_path, messages)
    life = Life(tmp_path)
    stream = life.stream()
    assert (stream.rows.ignored, stream.begin()) == ("", True)
    assert stream.known == known_of(messages)
    life.close()


# -- what does not -----------------------------------------------------------------------------------------------------


async def killed_at(tmp_path: Path) -> Path:
    """Return the folder that a killed process left."""
    life = Life(tmp_path / "before")
    await written(life, life.stream().read(far_ones(NUMBER)))
    killed = left_by(life, tmp_path / "killed")
    life.close()
    return killed


async def test_what_a_process_left_when_the_machine_ended_is_not_used(tmp_path: Path) -> None:
    killed = await killed_at(tmp_path)
    life = Life(killed, "another boot")
    assert (life.removed, life.stream().begin(), life.lost) == (NOT_CLOSED, False, [])
    life.close()
    life = Life(killed, "a third boot")
    assert life.removed == ""
    life.close()


async def test_a_file_that_is_opened_is_not_closed_for_another_boot(tmp_path: Path) -> None:
    filled(tmp_path / "first", far_ones(NUMBER))
    life = Life(tmp_path / "first")
    opened = left_by(life, tmp_path / "opened")
    (opened / f"{FILE_NAME}-wal").unlink(missing_ok=True)  # what is noted there may not reach the disk
    life.close()
    life = Life(opened, "another boot")
    assert life.removed == NOT_CLOSED
    life.close()


async def test_a_file_without_its_last_changes_is_not_used(tmp_path: Path) -> None:
    killed = await killed_at(tmp_path)
    (killed / f"{FILE_NAME}-wal").unlink()
    life = Life(killed)
    assert life.removed in (MISSING, "it was not complete")
    assert not life.stream().begin()
    life.close()
    filled(tmp_path / "closed", far_ones(NUMBER))
    (tmp_path / "closed" / COMMITS_NAME).write_bytes(b"%20d\n" % 1_000)
    life = Life(tmp_path / "closed")
    assert life.removed == MISSING
    life.close()


async def test_a_file_that_was_never_complete_is_not_used(tmp_path: Path) -> None:
    life = Life(tmp_path / "first")
    stream = life.stream().read(far_ones(NUMBER), is_all=False)
    async with writing(life.file):
        await eventually(lambda: stream.rows.is_loading)
    killed = left_by(life, tmp_path / "killed")
    life.close()
    life = Life(killed)
    assert (life.removed, life.stream().begin()) == ("it was not complete", False)
    life.close()
    life = Life(tmp_path / "first")  # it was closed before the stream was read, and has no document
    stream = life.stream()
    assert (life.removed, stream.rows.ignored, stream.begin()) == ("", "", False)
    assert stream.read(far_ones(NUMBER)).known == known_of(far_ones(NUMBER))
    life.close()


@pytest.mark.parametrize("change", ["PRAGMA user_version = 2", "ALTER TABLE streams RENAME COLUMN ends TO begins"])
def test_a_file_of_another_format_is_not_used(tmp_path: Path, change: str) -> None:
    filled(tmp_path, far_ones(NUMBER))
    changed(tmp_path, change)
    life = Life(tmp_path)
    assert (life.removed, life.stream().begin()) == ("it has another format", False)
    life.close()


def test_a_file_that_says_something_else_than_was_written_is_damaged(tmp_path: Path) -> None:
    filled(tmp_path, far_ones(NUMBER))
    changed(tmp_path, "UPDATE file SET commits = 'many'")
    life = Life(tmp_path)
    assert life.removed.startswith("it is damaged: ")
    assert not life.stream().begin()
    life.close()


def test_what_is_no_database_is_not_used_and_an_empty_file_is_new(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"rows" * 1_000)
    life = Life(tmp_path)
    assert life.removed == "it is damaged: file is not a database"
    life.close()
    (tmp_path / FILE_NAME).write_bytes(b"")
    life = Life(tmp_path)
    assert life.removed == ""
    life.close()


def test_no_link_takes_the_place_of_a_file(tmp_path: Path) -> None:
    other, folder = tmp_path / "other", tmp_path / "data"
    filled(other, far_ones(NUMBER))
    before = (other / FILE_NAME).read_bytes()
    folder.mkdir()
    (folder / FILE_NAME).symlink_to(other / FILE_NAME)
    life = Life(folder)
    assert life.removed == "it is a link"
    life.close()
    assert (other / FILE_NAME).read_bytes() == before
    (folder / COMMITS_NAME).unlink()
    (folder / COMMITS_NAME).symlink_to(other / "made")
    with pytest.raises(OSError, match=COMMITS_NAME):
        ScheduleFile(SystemClock()).open(folder, BOOT)
    assert not (other / "made").exists()


def test_where_there_can_be_no_file_the_tables_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME / "in the place of the file").mkdir(parents=True)
    file = ScheduleFile(SystemClock())
    with pytest.raises(OSError, match=FILE_NAME):
        file.open(tmp_path, BOOT)
    assert file.path is None
    assert file.stream("S", MODE, BASIS).table.known(["s.1"]) == set()
    file.close()


# -- what one stream does not continue from ----------------------------------------------------------------------------


def written_anew(folder: Path, document: str) -> None:
    """Let the file have another document of the first stream."""
    connection = sqlite3.connect(folder / FILE_NAME)
    statement = "SELECT number, name, mode, basis, ends, kinds FROM streams WHERE name = 'ONE'"
    number, name, mode, basis, ends, kinds = connection.execute(statement).fetchone()
    values = name, mode, basis, document, ends, kinds
    with connection:
        connection.execute(
            "UPDATE streams SET document = ?, checksum = ? WHERE number = ?",
            (document, checksum(number, *values), number),
        )
    connection.close()


def test_a_stream_whose_document_cannot_be_read_is_read_anew_alone(tmp_path: Path) -> None:
    messages = far_ones(NUMBER)
    filled(tmp_path, messages, "ONE", "OTHER")
    written_anew(tmp_path, '{"through": "all"}')
    life = Life(tmp_path)
    one, other = life.stream("ONE"), life.stream("OTHER")
    assert (life.removed, one.rows.ignored) == ("", "what belongs to its rows cannot be read")
    assert (one.begin(), other.begin()) == (False, True)
    assert one.read(messages).known == other.known == known_of(messages)
    life.close()


async def test_a_stream_of_another_basis_is_read_anew_and_its_old_rows_go(tmp_path: Path) -> None:
    messages = far_ones(NUMBER)
    filled(tmp_path, messages, "ONE", "OTHER")
    life = Life(tmp_path)
    one, other = life.stream("ONE", "another basis"), life.stream("OTHER")
    assert (one.rows.ignored, one.begin(), other.begin()) == (OF_ANOTHER_BASIS, False, True)
    life.close()
    assert number_of_rows(tmp_path) == 2 * NUMBER
    life = Life(tmp_path)
    async with writing(life.file):
        await eventually(lambda: life.file.connection.execute("SELECT count(*) FROM schedules").fetchone() == (NUMBER,))
    other = life.stream("OTHER")
    assert other.begin()
    assert other.known == known_of(messages)
    life.close()


def test_a_stream_that_names_a_zone_with_other_data_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = tmp_path / "zones" / "Depot" / "Hall"
    zone.parent.mkdir(parents=True)
    zone.write_bytes((Path(package_folder()) / "Europe" / "Berlin").read_bytes())
    monkeypatch.setenv("ZONEINFO", str(tmp_path / "zones"))
    zones._find_cached_zone.cache_clear()
    messages = [schedule("0 30 9 1 1 *", 1, "s.1", stored_at=START, Nats_Schedule_Time_Zone="Depot/Hall"), far(2)]
    folder = tmp_path / "data"
    life = Life(folder)
    life.stream("ONE").read(messages)
    life.stream("OTHER").read([far(2)])
    life.close()
    zones._find_cached_zone.cache_clear()  # as a new process begins
    life = Life(folder)
    assert life.stream("ONE").rows.document is not None, "the same data"
    life.close()
    zone.write_bytes((Path(package_folder()) / "America" / "New_York").read_bytes())
    zones._find_cached_zone.cache_clear()
    life = Life(folder)
    one, other = life.stream("ONE"), life.stream("OTHER")
    assert one.rows.ignored == "the data of the time zone Depot/Hall is not what it was"
    assert (one.begin(), other.begin()) == (False, True)
    assert one.read(messages).known == known_of(messages)
    life.close()
    monkeypatch.undo()
    zones._find_cached_zone.cache_clear()


def test_no_start_continues_from_a_stream_that_is_forgotten(tmp_path: Path) -> None:
    messages = far_ones(NUMBER)
    filled(tmp_path, messages, "ONE", "OTHER")
    life = Life(tmp_path)
    one, other = life.stream("ONE"), life.stream("OTHER")
    assert (one.begin(), other.begin()) == (True, True)
    one.rows.forget()
    one.rows.forget()
    life.close()
    one.rows.forget()
    life = Life(tmp_path)
    one, other = life.stream("ONE"), life.stream("OTHER")
    assert (one.rows.ignored, one.begin(), other.begin()) == ("", False, True)
    life.close()


# -- a file that cannot be used any more -------------------------------------------------------------------------------


def full(life: Life) -> None:
    """Let the file have no more pages than now."""
    (pages,) = life.file.connection.execute("PRAGMA page_count").fetchone()
    life.file.connection.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_full_file_is_given_up_and_all_streams_are_read_anew(tmp_path: Path) -> None:
    messages = far_ones(NUMBER)
    life = Life(tmp_path)
    one, other = life.stream("ONE").read(messages), life.stream("OTHER").read(messages)
    await written(life, one)
    full(life)
    messages += far_ones(2 * MAX_UNCOMMITTED, NUMBER + 1)
    with pytest.raises(sqlite3.OperationalError) as raised:
        one.read(messages)
    assert one.rows.lost(raised.value)
    assert other.rows.lost(raised.value), "it is of no use any more, whatever it raises"
    assert len(life.lost) == len(one.failures) == len(other.failures) == 1
    assert life.file.path is None
    for name in ("ONE", "OTHER"):
        stream = life.stream(name)
        assert not stream.begin()
        assert stream.read(messages).known == known_of(messages)
        assert not stream.rows.lost(ValueError("a mistake of ours"))
    life.close()
    assert len(life.lost) == 1


async def test_what_the_writing_finds_out_is_raised_to_nobody(tmp_path: Path) -> None:
    """The next start continues from what was committed."""
    messages = far_ones(NUMBER)
    life = Life(tmp_path / "first")
    stream = life.stream().read(messages)
    await written(life, stream)
    full(life)
    near = [schedule("@every 1s", NUMBER + n, f"near.{n}", stored_at=START + HOUR) for n in range(1, 60)]
    async with writing(life.file) as task:
        stream.read([*messages, *near])
        await eventually(task.done)
    assert (len(life.lost), len(stream.failures)) == (1, 1)
    life.close()
    life = Life(tmp_path / "first")
    stream = life.stream()
    assert (life.removed, stream.begin()) == ("", True)
    assert stream.read([*messages, *near]).known == known_of([*messages, *near])
    life.close()


# -- another program that has the file open ----------------------------------------------------------------------------


def other_program(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / FILE_NAME, timeout=0, isolation_level=None)


async def test_a_program_that_reads_keeps_nothing_from_being_committed(tmp_path: Path) -> None:
    messages = far_ones(NUMBER)
    life = Life(tmp_path / "first")
    stream = life.stream().read(messages)
    await written(life, stream)
    reader = other_program(tmp_path / "first")
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM schedules").fetchone() == (NUMBER,)
    messages += far_ones(3 * MAX_UNCOMMITTED, NUMBER + 1)
    await written(life, stream.read(messages))
    assert reader.execute("SELECT count(*) FROM schedules").fetchone() == (NUMBER,)
    killed = left_by(life, tmp_path / "killed")
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM schedules").fetchone() == (len(messages),)
    life.close()
    assert life.lost == []
    reader.close()
    for folder in (killed, tmp_path / "first"):
        life = Life(folder)
        stream = life.stream()
        assert (life.removed, stream.begin()) == ("", True)
        assert stream.known == known_of(messages)
        life.close()


async def test_a_program_that_has_the_file_locked_has_it_given_up(tmp_path: Path) -> None:
    """The event loop does not wait for it for longer than for a moment."""
    messages = far_ones(NUMBER)
    life = Life(tmp_path)
    stream = life.stream().read(messages)
    await written(life, stream)
    assert life.file.connection.execute("PRAGMA busy_timeout").fetchone() == (LOCK_WAIT_SECONDS * 1_000,)
    writer = other_program(tmp_path)
    writer.execute("BEGIN IMMEDIATE")
    async with writing(life.file) as task:
        messages.append(plain("other", NUMBER + 1))
        stream.read(messages)
        await eventually(task.done)
    assert life.lost == ["database is locked"]
    assert len(stream.failures) == 1
    assert life.stream().read(messages).known == known_of(messages)
    life.close()
    life = Life(tmp_path)
    assert life.removed == "it cannot be used: database is locked"
    assert not life.stream().begin()
    life.close()
    writer.execute("ROLLBACK")
    writer.close()
