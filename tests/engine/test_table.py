"""The table of schedules gives back what was written, or raises, and finds it by its indexes whatever a subject is."""

from random import Random
from typing import Any

import pytest

from nats_scheduler.engine.holding.table import SUBJECTS_AT_ONCE, DamagedTableError, Row, Table, in_memory
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, schedule
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


def test_each_column_comes_back_as_it_was_written() -> None:
    random = generator("columns")
    for number in range(draws(3)):
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


def test_the_number_of_rows_that_were_inserted_is_told() -> None:
    told = list[int]()
    desk = Desk(schedule("@every 3h"), table=Table(notify=told.append))
    for some in (range(2, 9), [9]):
        desk.read(*(schedule("@every 3h", number, f"s.{number}") for number in some))
    assert told == [7, 1]


def subjects_of(random: Random, count: int) -> list[str]:
    tokens = ["a", "b", "ä", "\udcff", "*", "0", "%"]
    return sorted({".".join(random.choices(tokens, k=random.randrange(1, 6))) for _ in range(count)})


def key(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")


def test_the_answers_are_those_of_a_list() -> None:
    for seed in seeds(1):
        random, table = generator(f"table {seed}"), Table()
        rows = [
            row(subject, number, START + random.randrange(50), fire_time=START + random.randrange(50))
            for number, subject in enumerate(subjects_of(random, 1_200))
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
        for instant in range(START - 1, START + 51, 4):
            later = [one.wake for one in rows if one.wake > instant]
            assert table.first_wake(instant) == min(later, default=None)
            due = [one for one in rows if START + 10 < one.wake <= instant and one.fire_time <= instant]
            since = min((max(one.fire_time, one.stored_at) for one in due), default=None)
            assert table.due(START + 10, instant, 0, []) == (len(due), since)
            coming = [one.wake for one in rows if one.wake > START + 10 and one.fire_time > instant]
            assert len(table.next_rows(START + 10, instant, 10_000)) == len(coming)


def test_rows_that_stay_are_yielded_once_while_others_come_and_go() -> None:
    for seed in seeds(1):
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


@pytest.mark.parametrize("column", ["subject", "sequence", "headers", "expires", "history"])
def test_a_value_that_is_not_what_was_written_is_noticed(column: str) -> None:
    written = row("s.one", 5, expires=START, zone="UTC", ending="fired", history="[]", headers=b"NATS/1.0")
    value = getattr(written, column)
    others: list[object] = [b"", f"{value}x", 1.5, *([value + 1, -value - 1] if isinstance(value, int) else [])]
    for other in others:
        connection = in_memory()
        table = Table(connection, 0)
        table.insert_new([written])
        connection.execute(f"UPDATE schedules SET {column} = ?", (other,))  # noqa: S608
        with pytest.raises(DamagedTableError):
            all_of(table)
