"""A chunk that is damaged in any way is no chunk, or one with other schedules: reading it raises nothing else."""

import struct
import sys
from array import array
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.engine.holding.far import MAX_ROW_BYTES, FarEntry, FarRow, Kinds, kind_and_text
from nats_scheduler.engine.holding.held import NEVER_EXPIRES, NO_EXPIRY, Held
from nats_scheduler.engine.holding.roster import ROW_LENGTH
from nats_scheduler.engine.snapshots.chunks import (
    CHUNK_BYTES,
    ChunkWriter,
    History,
    LastRead,
    Rest,
    SnapshotError,
    UnkeepableError,
    read_chunk,
    read_columns,
    write_columns,
)
from nats_scheduler.engine.snapshots.snapshots import Restoring
from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.policies import NO_POLICIES, Policies, PolicyText
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import At

RULES = StreamRules("S", (">",), allow_msg_ttl=True)
STORED = 1_790_000_000 * SECOND
REST = Rest(299, LastRead("s.299", 299, STORED), 0)


def read(block: bytes, subject: str, stored_at: int) -> Definition | None:
    reading = read_message(block, subject, stored_at, RULES, DIALECTS)
    return None if reading is None else reading.definition


def entry(number: int, *, expires: int = NO_EXPIRY, target: str = "t", policies: Policies = NO_POLICIES) -> FarEntry:
    terms = Terms(ADR51, target, None, "", False, policies)
    held = Held(f"s.{number}", number, Definition(At(None, STORED + number), terms), 0)
    packed = kind_and_text(held.subject, held.pattern, held.terms, held.fire_time)
    assert packed is not None
    return FarEntry(*packed, number, STORED, held.fire_time, held.fire_time - SECOND, expires)


def chunks_of(*entries: FarEntry, history: History | None = None) -> list[bytes]:
    writer = ChunkWriter()
    return [chunk for chunk in (*(writer.add(one, history) for one in entries), writer.finish()) if chunk is not None]


def chunk_of(*entries: FarEntry, history: History | None = None) -> bytes:
    (only,) = chunks_of(*entries, history=history)
    return only


def sequences_in(chunks: list[bytes]) -> list[list[int]]:
    """Return the sequences in each block."""
    return [list(block.columns.sequences) for chunk in chunks for block in read_chunk(chunk, read).blocks]


CHUNK = chunk_of(*(entry(number, expires=STORED if number == 3 else NO_EXPIRY) for number in range(1, 300)))
JITTER = Policies((PolicyText("X-Jitter", "5s"),), jitter=5 * SECOND)
WITH_HISTORIES = chunk_of(
    *(entry(number, policies=JITTER) for number in range(1, 300)), history=History(STORED, 3, STORED, 1, STORED)
)


CHUNKS = {"without histories": CHUNK, "with histories": WITH_HISTORIES}


def test_all_columns_are_read_as_they_were_written() -> None:
    (block,) = read_chunk(chunk_of(entry(5, expires=NEVER_EXPIRES), entry(1 << 40)), read).blocks
    assert list(block.columns.sequences) == [5, 1 << 40]
    assert list(block.columns.fire_times) == [STORED + 5, STORED + (1 << 40)]
    assert block.columns.expiries == {0: NEVER_EXPIRES}
    assert block.columns.texts == b"s.5\0t\0" + f"s.{1 << 40}".encode() + b"\0t\0"


def row_of(entries: list[FarEntry]) -> tuple[FarRow, Kinds]:
    kinds = Kinds()
    row = FarRow(kinds, 0)
    assert all(row.put(place, one) for place, one in enumerate(entries))
    return row, kinds


def test_a_row_is_written_as_its_schedules_are_and_none_with_gaps() -> None:
    others = [Policies((PolicyText("X-Note", text),), note=text) for text in "abc"]
    entries = [
        entry(number, policies=[NO_POLICIES, *others][number % 4], expires=NO_EXPIRY if number % 7 else STORED)
        for number in range(1, 257)
    ]
    row, kinds = row_of(entries)
    columns = row.columns()
    assert columns is not None
    writer = ChunkWriter()
    assert writer.add_row(columns, kinds.__getitem__) is None
    assert writer.finish() == chunk_of(*entries)
    row.remove(1)
    assert row.columns() is None
    assert row.put(1, entry(999))
    assert row.columns() is None, "its texts are behind those of the places after it"
    assert row_of([])[0].columns() is None


def test_rows_fill_chunks() -> None:
    writer, chunks = ChunkWriter(), list[bytes]()
    for first in range(0, 8 * ROW_LENGTH, ROW_LENGTH):
        row, kinds = row_of([entry(first + number, target="t" * 100) for number in range(1, ROW_LENGTH + 1)])
        columns = row.columns()
        assert columns is not None
        chunks += filter(None, [writer.add_row(columns, kinds.__getitem__)])
    chunks += filter(None, [writer.finish()])
    assert len(chunks) > 1
    assert max(map(len, chunks)) < 2 * CHUNK_BYTES
    assert [number for block in sequences_in(chunks) for number in block] == list(range(1, 8 * ROW_LENGTH + 1))


@pytest.mark.parametrize("which", CHUNKS)
@settings(max_examples=40)
@given(number=st.integers(0, 1 << 20), by=st.integers(1, 255))
def test_a_chunk_with_another_byte_is_read_or_refused(which: str, number: int, by: int) -> None:
    chunk = CHUNKS[which]
    place = number % len(chunk)
    damaged = chunk[:place] + bytes([chunk[place] ^ by]) + chunk[place + 1 :]
    restoring = Restoring(REST, 299, read, STORED, 4)
    try:
        list(restoring.take(damaged))
        list(restoring.finish())
    except SnapshotError:
        return
    assert len(restoring.roster) <= 299, "one may have expired"
    if which == "with histories":
        assert all(restoring.roster.peek(held.subject) is held for held in restoring.roster)


def test_a_chunk_that_ends_early_or_is_too_long_is_refused() -> None:
    for chunk in CHUNKS.values():
        for length in (0, 3, 11, 40, len(CHUNK) // 2, -1):
            with pytest.raises(SnapshotError):
                list(read_chunk(chunk[:length], read).blocks)
        with pytest.raises(SnapshotError, match="longer than its blocks"):
            list(read_chunk(chunk + b"x", read).blocks)


def test_a_kind_that_is_no_schedule_is_refused() -> None:
    kinds = b'[["s.1", 1, "NATS/1.0\\r\\n\\r\\n", ""]]'
    with pytest.raises(SnapshotError, match="no schedule"):
        list(read_chunk(struct.pack("<4sII", b"NSS2", len(kinds), 0) + kinds, read).kinds)


def test_what_cannot_be_kept_is_said() -> None:
    with pytest.raises(UnkeepableError, match="texts"):
        ChunkWriter().add(entry(1)._replace(text=b"x" * (MAX_ROW_BYTES + 1)))
    with pytest.raises(UnkeepableError, match="2262"):
        ChunkWriter().add(entry(1, expires=(1 << 63) + 5))
    row, kinds = row_of([entry(1, expires=(1 << 63) + 5)])
    columns = row.columns()
    assert columns is not None
    with pytest.raises(UnkeepableError, match="2262"):
        ChunkWriter().add_row(columns, kinds.__getitem__)


def test_a_full_row_begins_another_block_and_a_full_chunk_another_one() -> None:
    assert [len(block) for block in sequences_in([CHUNK])] == [256, 43]
    full = sequences_in(chunks_of(*(entry(number, target="t" * 400) for number in range(1, 200))))
    assert (len(full), sum(map(len, full))) == (2, 199)
    notes = [Policies((PolicyText("X-Note", f"{number} {'x' * 9_000}"),), note="n") for number in range(1, 100)]
    long = chunks_of(*(entry(number, policies=policies) for number, policies in enumerate(notes, 1)))
    assert max(map(len, long)) < 3 * CHUNK_BYTES, "it can be unpacked"
    assert sum(map(len, sequences_in(long))) == 99


def test_columns_are_read_as_they_were_written_from_any_place() -> None:
    columns = [array("Q", [1, 1 << 63]), array("q", [-1, 3]), array("B", [0, 255])]
    data = b"before" + write_columns(columns)
    assert read_columns(data + b"after", 6, "QqB", 2) == (columns, len(data))
    assert read_columns(b"", 0, "q", 0) == ([array("q")], 0)


def test_the_least_byte_of_a_column_comes_first_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: tuple[Literal["little", "big"], ...] = ("little", "big")
    for order in orders:
        monkeypatch.setattr(sys, "byteorder", order)
        column = array("H")
        column.frombytes((0x0201).to_bytes(2, order))  # as the number is in the memory of such a machine
        assert write_columns([column]) == b"\x01\x02"
        assert read_columns(b"\x01\x02", 0, "H", 1) == ([column], 2)
