"""The table of schedules gives back what was written, or raises, and finds it by its indexes whatever a subject is."""

import sqlite3
from collections.abc import Callable
from importlib.resources import files
from random import Random
from typing import Any
from zlib import crc32

import pytest

from nats_scheduler.engine import holding
from nats_scheduler.engine.holding import table as module
from nats_scheduler.engine.holding.table import (
    ROWS_AT_ONCE,
    SCHEMA,
    SUBJECTS_AT_ONCE,
    DamagedTableError,
    Row,
    Table,
    in_memory,
)
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.testing.manual_clock import START
from tests.harness.seeds import draws, generator, seeds

TEXTS = [
    "s.one",
    "s.*",
    "s.>",
    "%",
    "_",
    "s.%.x",
    "it's",
    '"quoted"',
    "a\0b",
    "\0",
    "s.ä.€.𝄞",
    "s.\udc80\udcff",
    "\udcff\udcff\udcff\udcff",
    "?1",
    "--",
    "; DROP TABLE schedules",
    "s." + "x" * 40_000,
    "NULL",
    "1",
    "1e3",
    "x'00'",
]
INTEGERS = [0, 1, -1, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), START]


def some_row(random: Random, subject: str) -> Row:
    return Row(
        subject,
        random.choice(INTEGERS),
        random.choice(INTEGERS),
        random.choice(list(PatternKind)).value,
        random.choice(TEXTS),
        random.choice((None, "", "Europe/Berlin")),
        random.choice((b"", b"\0\xff\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", random.randbytes(700))),
        random.choice(INTEGERS),
        random.choice(INTEGERS),
        random.choice((None, *INTEGERS)),
        random.choice(INTEGERS),
        random.choice((None, "", "fired")),
        random.choice((None, "", "[null, 0, 0, 0, null, true, 0]")),
        random.choice((None, *INTEGERS)),
    )


def row(subject: str, sequence: int = 1, wake: int = START, **more: Any) -> Row:
    return Row(subject, sequence, START, "at", "t", None, b"", wake, wake, None, 0)._replace(**more)


def all_of(table: Table) -> list[Row]:
    return [one for part in table.rows() for _number, one in part]


# -- what is written --------------------------------------------------------------------------------------------------


def test_each_column_comes_back_as_it_was_written() -> None:
    random = generator("columns")
    for number in range(draws(20)):
        table = Table()
        rows = {subject: some_row(random, subject) for subject in TEXTS}
        inserted = list(rows.values())
        table.insert_new(inserted[:10])
        for one in inserted[10:]:
            found = table.find(one.subject)
            assert found is None
            assert table.find(one.subject) is None
            number = table.insert_one(one)
            assert table.find(one.subject) == (number, one)
        changed = {subject: some_row(random, subject) for subject in random.sample(TEXTS, 8)}
        ids = {one.subject: number for part in table.rows() for number, one in part}
        table.update([(ids[subject], one) for subject, one in changed.items()])
        rows |= changed
        for subject, one in rows.items():
            assert table.find(subject) == (ids[subject], one)
        assert {one.subject: one for one in all_of(table)} == rows
        gone = random.sample(TEXTS, 5)
        table.delete([ids[subject] for subject in gone])
        assert table.known(TEXTS) == rows.keys() - set(gone)
        assert len(all_of(table)) == len(TEXTS) - 5


def test_no_subject_is_another_one() -> None:
    table = Table()
    table.insert_new([row(subject, number) for number, subject in enumerate(TEXTS)])
    for subject in TEXTS:
        for other in (subject + "\0", subject + " ", subject.upper() + "X", subject[:-1]):
            if other not in TEXTS:
                assert table.find(other) is None, (subject, other)
                assert table.known([other]) == set()
    with pytest.raises(sqlite3.IntegrityError):
        table.insert_one(row("s.one"))


def test_rows_of_other_streams_are_not_seen() -> None:
    connection = in_memory()
    one, other = Table(connection, 1), Table(connection, 2)
    for table, number in ((one, 1), (other, 2)):
        table.insert_new([row("s.same", number, ending="fired", history="[]"), row(f"s.{number}", number)])
    for table, number in ((one, 1), (other, 2)):
        assert [found.sequence for found in all_of(table)] == [number, number]
        assert [found.sequence for _number, found in table.done() + table.with_history()] == [number, number]
        assert table.known(["s.same", "s.1", "s.2"]) == {"s.same", f"s.{number}"}
        assert (len(table.woken((-1, 0), START, 9)), table.first_wake(0)) == (2, START)
        assert table.due(0, START, 0, [])[0] == len(table.next_rows(0, 0, 9)) == 2
    other.renumber(1)
    assert all_of(other) == all_of(one)


def test_what_is_inserted_is_told() -> None:
    told: list[int] = []
    table = Table(None, 0, told.append)
    table.insert_new([row(f"s.{number}") for number in range(7)])
    assert told == [], "the caller has not counted them yet"
    table.inserted(7)
    assert told == [7]


# -- questions, against a model ---------------------------------------------------------------------------------------


def subjects_of(random: Random, count: int) -> list[str]:
    tokens = ["a", "b", "ä", "\udcff", "*", "0", "%"]
    return sorted({".".join(random.choices(tokens, k=random.randrange(1, 6))) for _ in range(count)})


def key(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")


def test_the_answers_are_those_of_a_list() -> None:
    for seed in seeds(3):
        random, table = generator(f"table {seed}"), Table()
        rows = [
            row(subject, number, START + random.randrange(50), fire_time=START + random.randrange(50))
            for number, subject in enumerate(subjects_of(random, 3_000))
        ]
        rows = [one._replace(kind=random.choice(("at", "every")), target=random.choice(TEXTS)) for one in rows]
        random.shuffle(rows)
        table.insert_new(rows)
        rows.sort(key=lambda one: key(one.subject))
        assert all_of(table) == rows
        asked = [*subjects_of(random, 2 * SUBJECTS_AT_ONCE), *(one.subject for one in rows[:700])]
        assert table.known(asked) == {one.subject for one in rows} & set(asked)
        by_wake = sorted((one.wake, number, one) for part in table.rows() for number, one in part)
        after, found = (-1, 0), list[Row]()
        while some := table.woken(after, START + 40, 64):
            assert len(some) <= 64
            found += [one for _number, one in some]
            after = some[-1][1].wake, some[-1][0]
        assert found == [one for wake, _number, one in by_wake if wake <= START + 40]
        for instant in range(START - 1, START + 51):
            later = [one.wake for one in rows if one.wake > instant]
            assert table.first_wake(instant) == min(later, default=None)
            due = [one for one in rows if START + 10 < one.wake <= instant and one.fire_time <= instant]
            since = min((max(one.fire_time, one.stored_at) for one in due), default=None)
            assert table.due(START + 10, instant, 0, []) == (len(due), since)
            coming = [one.wake for one in rows if one.wake > START + 10 and one.fire_time > instant]
            assert len(table.next_rows(START + 10, instant, 10_000)) == len(coming)


def test_which_rows_are_due_besides_those_that_end_before() -> None:
    table = Table()
    table.insert_new(
        [
            row("s.1", 1, START, fire_time=START + HOUR),
            row("s.2", 2, START, fire_time=START + HOUR, expires=START + HOUR),
            row("s.3", 3, START, fire_time=START + HOUR, expires=START + HOUR + 1),
            row("s.4", 4, START, fire_time=START + HOUR, expires=-1),
        ]
    )
    ids = {one.subject: number for part in table.rows() for number, one in part}
    assert table.due(0, START + 2 * HOUR, 0, []) == (3, START + HOUR)
    assert table.due(0, START + 2 * HOUR, HOUR, []) == (1, START + HOUR)
    assert table.due(0, START + 2 * HOUR, HOUR + 1, []) == (3, START + HOUR)
    assert table.due(0, START + 2 * HOUR, 0, [ids["s.1"], ids["s.4"], 77]) == (1, START + HOUR)
    assert table.due(0, START + HOUR - 1, 0, []) == (0, None)


def test_a_portion_is_bounded() -> None:
    table, count = Table(), 40 * ROWS_AT_ONCE + 3
    table.insert_new([row(f"s.{number:06}", number) for number in range(count)])
    parts = list(table.rows())
    assert max(map(len, parts)) == ROWS_AT_ONCE
    assert sum(map(len, parts)) == count
    assert list(Table().rows()) == []


def test_what_is_there_all_the_time_is_yielded_once_while_rows_come_go_and_change() -> None:
    for seed in seeds(3):
        random, table = generator(f"portions {seed}"), Table()
        table.insert_new([row(f"s.{number:05}", number) for number in range(0, 4_000, 2)])
        staying, seen, sequence = {f"s.{number:05}" for number in range(0, 4_000, 4)}, list[str](), 10_000
        for part in table.rows():
            for number, one in part:
                assert table.find(one.subject) == (number, one), "it is as it is now"
            seen += [one.subject for _number, one in part]
            for _ in range(30):
                subject, sequence = f"s.{random.randrange(4_000):05}", sequence + 1
                known = table.find(subject)
                if known is None:
                    table.insert_new([row(subject, sequence)])
                elif subject in staying or random.random() < 0.5:
                    table.update([(known[0], row(subject, sequence))])
                else:
                    table.delete([known[0]])
        assert seen == sorted(set(seen))
        assert staying <= set(seen)


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", Row._fields)
def test_a_value_that_is_not_what_was_written_is_noticed(column: str) -> None:
    written = row("s.one", 5, expires=START, zone="UTC", ending="fired", history="[]", headers=b"NATS/1.0")
    value = getattr(written, column)
    others: list[object] = [None, b"", "s", f"{value}x", 0, -1, 1.5]
    if isinstance(value, int):
        others += [value + 1, value - 1, -value - 1]
    noticed = 0
    for other in (one for one in others if one != value):
        connection = in_memory()
        table = Table(connection, 0)
        table.insert_new([written])
        try:
            connection.execute(f"UPDATE schedules SET {column} = ?", (other,))  # noqa: S608
        except sqlite3.IntegrityError:
            continue  # NULL, where there is none
        assert finds_damage(lambda: all_of(table)), other  # noqa: B023
        for ask in (table.done, table.with_history):
            assert finds_damage(ask) or ask() == []
        noticed += 1
    assert noticed >= 5


def finds_damage(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except DamagedTableError:
        return True
    return False


def test_a_flipped_bit_is_noticed_wherever_it_is() -> None:
    """In the file's bytes; what SQLite itself finds is an error too."""
    table = Table(source := in_memory(), 0)
    table.insert_new([row(f"s.{number}", number, headers=b"h" * 50) for number in range(20)])
    expected, random = all_of(table), generator("bits")
    source.execute("COMMIT")
    image, noticed = source.serialize(), 0
    for _ in range(draws(300)):
        place, bit = random.randrange(len(image)), 1 << random.randrange(8)
        damaged = bytearray(image)
        damaged[place] ^= bit
        connection = sqlite3.connect(":memory:", isolation_level=None)
        module.prepare(connection)
        try:
            connection.deserialize(bytes(damaged))
            found = all_of(Table(connection, 0))
        except (DamagedTableError, sqlite3.DatabaseError, UnicodeDecodeError):  # the last: of a damaged schema
            noticed += 1
        else:
            assert all(one in expected for one in found), f"byte {place}, bit {bit}"
        finally:
            connection.close()
    assert noticed > 0


# -- indexes ----------------------------------------------------------------------------------------------------------


QUESTIONS: dict[str, tuple[Callable[[Table], object], str]] = {
    "find": (lambda table: table.find("s.1"), "schedules_by_subject (stream=? AND subject=?)"),
    "known": (lambda table: table.known(["s.1", "s.ä"]), "schedules_by_subject (stream=? AND subject=?"),
    "woken": (lambda table: table.woken((5, 1), 99, 9), "schedules_by_wake (stream=? AND"),
    "first_wake": (lambda table: table.first_wake(5), "schedules_by_wake (stream=? AND wake>?)"),
    "due": (lambda table: table.due(5, 9, 0, [1]), "schedules_by_wake (stream=? AND wake>? AND wake<?)"),
    "next_rows": (lambda table: table.next_rows(5, 5, 9), "schedules_by_wake (stream=? AND wake>?)"),
    "rows": (lambda table: list(table.rows()), "schedules_by_subject (stream=? AND subject>?)"),
    "with_history": (lambda table: table.with_history(), "schedules_with_history (stream=?)"),
    "done": (lambda table: table.done(), "schedules_done (stream=?)"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_uses_an_index_and_sorts_nothing(name: str) -> None:
    connection, executed = in_memory(), list[str]()
    ask, index = QUESTIONS[name]
    connection.set_trace_callback(executed.append)
    ask(Table(connection, 0))
    connection.set_trace_callback(None)
    statements = [one for one in executed if one.startswith("SELECT")]
    assert statements
    for statement in statements:
        plan = [str(detail) for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert any(index in detail for detail in plan), plan
        assert not any("TEMP B-TREE" in detail or detail.startswith("SCAN schedules") for detail in plan), plan


def steps_of(connection: sqlite3.Connection, act: Callable[[], object]) -> int:
    """Return how many steps SQLite's machine takes."""
    steps = 0

    def note() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(note, 1)
    try:
        act()
    finally:
        connection.set_progress_handler(None, 1)
    return steps


def colliding(count: int) -> list[str]:
    """Return subjects with the same CRC-32: it is linear, so each of 32 bits more can be made up for."""
    basis, found = "s." + "A" * 60, list[str]()
    place = len(basis)
    wanted = crc32(basis.encode() + b"0000000000000000000000000000000000000000")
    # Solve for bits of 40 letters, each "0" or "1", by elimination over GF(2).
    rows: list[tuple[int, int]] = []
    kernel: list[int] = []
    for number in range(40):
        text = bytearray(basis.encode() + b"0" * 40)
        text[place + number] ^= 1
        vector, mask = crc32(bytes(text)) ^ wanted, 1 << number
        for known, known_mask in rows:
            if vector ^ known < vector:
                vector, mask = vector ^ known, mask ^ known_mask
        if vector:
            rows.append((vector, mask))
            rows.sort(reverse=True)
        else:
            kernel.append(mask)
    for number in range(min(count, 1 << len(kernel))):
        mask = 0
        for bit, one in enumerate(kernel):
            mask ^= one if number >> bit & 1 else 0
        found.append(basis + "".join("1" if mask >> bit & 1 else "0" for bit in range(40)))
    return found


def test_subjects_with_one_crc_cost_no_more_than_others() -> None:
    hostile = colliding(200)
    assert len(set(hostile)) == len(hostile) == 200
    assert len({crc32(subject.encode()) for subject in hostile}) == 1
    random = generator("others")
    others = ["s." + "A" * 60 + "".join(random.choices("01", k=40)) for _ in hostile]
    assert steps_with(hostile) == steps_with(others)


def steps_with(subjects: list[str]) -> list[int]:
    """Return how many steps it takes to insert, to find and to know these subjects."""
    connection = in_memory()
    table = Table(connection, 0)

    def find_all() -> None:
        for subject in subjects:
            assert table.find(subject) is not None

    acts: list[Callable[[], object]] = [
        lambda: table.insert_new([row(one) for one in subjects]),
        find_all,
        lambda: table.known(subjects),
    ]
    return [steps_of(connection, act) for act in acts]


# -- the schema -------------------------------------------------------------------------------------------------------


def test_the_schema_says_what_each_column_is() -> None:
    text = files(holding).joinpath(SCHEMA).read_text(encoding="utf-8")
    commented = 0
    for name in ("file", "streams", "schedules"):
        columns = [column for _, column, *_ in in_memory().execute(f"PRAGMA table_info({name})")]
        assert columns
        for column in columns:
            lines = [line for line in text.splitlines() if line.startswith(f"    {column} ")]
            assert lines, column
            assert all("-- " in line for line in lines), lines
            commented += 1
    assert commented > 20
    columns = [column for _, column, *_ in in_memory().execute("PRAGMA table_info(schedules)")]
    assert columns == ["id", "stream", *Row._fields, "checksum"]
