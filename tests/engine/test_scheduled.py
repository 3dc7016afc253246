"""Schedules are woken by time and by sequence, those that are rows and those that are objects; few are objects.

With what that is made of: `engine/holding/wake_queue.py`, `engine/holding/schedule_rows.py`.
"""

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from nats_scheduler.engine.holding import scheduled as module
from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.schedule_rows import row_of
from nats_scheduler.engine.holding.scheduled import MIN_AHEAD_NS, OBJECTS_AHEAD_NS, Schedules
from nats_scheduler.engine.holding.table import DamagedTableError, Table
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.reader import MessageReader
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import TARGET, Desk, schedule
from tests.harness.blocks import block_with
from tests.harness.seeds import generator, seeds

READER = MessageReader(StreamRules("S", (">",)), DIALECTS)
FAR = START + HOUR
NEAR = START + 5 * SECOND
FIRE = START + 10_000 * HOUR
"""What waits is looked at before its fire."""


def definition_of(block: bytes) -> Definition:
    found = READER.definition_of(StoredMessage("s", 1, START, block, b""))
    assert found is not None
    return found


PLAIN = definition_of(block_with(Nats_Schedule="@every 1h", Nats_Schedule_Target="t"))
AT = definition_of(block_with(Nats_Schedule=f"@at {format_rfc3339(FAR)}", Nats_Schedule_Target="t"))
WITH_HISTORY = definition_of(
    block_with(Nats_Schedule="@every 1h", Nats_Schedule_Target="t", Nats_Schedule_X_Report="true")
)


def empty(table: Table | None = None, now: int = START) -> Schedules:
    schedules = Schedules(READER.definition_of, table)
    schedules.comes_to(now)
    return schedules


def held(sequence: int, subject: str = "", definition: Definition = PLAIN) -> Held:
    return Held(subject or f"s.{sequence}", sequence, definition, START, FIRE)


def waking(
    schedules: Schedules, sequence: int, instant: int, subject: str = "", definition: Definition = PLAIN
) -> Held:
    """Hold a schedule that is woken at an instant."""
    one = held(sequence, subject, definition)
    schedules.hold(one)
    schedules.wake(one, instant)
    return one


def step(schedules: Schedules, now: int, most: int = 100) -> list[int]:
    """Do what a step of an engine does, and return the sequences of those that it wakes."""
    schedules.comes_to(now)
    found = [one.sequence for one in schedules.pop_woken(now, most)]
    schedules.release(())
    return found


def woken(schedules: Schedules, now: int, most: int = 3) -> list[int]:
    """Return what is woken by `now`: step by step, as long as the schedules says that there is something to do."""
    found: list[int] = []
    for _ in range(100_000):
        found += step(schedules, now, most)
        if (wake := schedules.next_wake()) is None or wake > now:
            return found
    raise AssertionError("it always says that there is something to do")


@dataclass
class Known:
    """What a model knows of one schedule."""

    sequence: int
    wake: int = NO_WAKE


class Model:
    """A schedules, and a dictionary beside it that says what the schedules holds."""

    def __init__(self, random: Random, subjects: int) -> None:
        self.random = random
        self.table = Table()
        self.schedules = empty(self.table)
        self.now = START
        self.known: dict[str, Known] = {}
        self.in_progress: dict[str, Held] = {}
        self.subjects = [f"s.{number}" for number in range(subjects)]
        self.last = 0

    def do_something(self) -> None:
        acts = [
            *([self.hold] * 4),
            *([self.insert] * 2),
            *([self.wake] * 6),
            self.cancel,
            self.remove,
            self.begin_flight,
            self.end_flight,
            *([self.pass_time] * 2),
            self.write,
            self.look,
        ]
        self.random.choice(acts)()
        if self.random.random() < 0.6:
            self.release()

    def subject(self) -> str:
        return self.random.choice(self.subjects)

    def sequence(self) -> int:
        self.last += 1
        return self.last

    def instant(self) -> int:
        far = self.random.choice((SECOND, OBJECTS_AHEAD_NS, 2 * OBJECTS_AHEAD_NS, 20 * OBJECTS_AHEAD_NS))
        return self.now + self.random.randrange(-SECOND, far) // SECOND * SECOND

    def hold(self) -> None:
        subject, definition = self.subject(), self.random.choice((PLAIN, AT, WITH_HISTORY))
        self.in_progress.pop(subject, None)
        one = waking(self.schedules, self.sequence(), self.instant(), subject, definition)
        self.known[subject] = Known(one.sequence, one.wake)

    def insert(self) -> None:
        new = sorted({self.subject() for _ in range(5)} - self.known.keys())
        rows = []
        for subject in new:
            one = held(self.sequence(), subject)
            one.wake = self.schedules.objects_through + self.random.randrange(1, 20 * OBJECTS_AHEAD_NS)
            rows.append(row_of(one))
            self.known[subject] = Known(one.sequence, one.wake)
        if rows:
            self.schedules.insert(rows)

    def wake(self) -> None:
        subject = self.subject()
        one = self.schedules.on(subject)
        assert (one is None) == (subject not in self.known)
        if one is not None:
            self.known[subject].wake = instant = self.instant()
            self.schedules.wake(one, instant)

    def cancel(self) -> None:
        """Cancel the wake of one, as of one for which something is in progress."""
        subject = self.subject()
        if (one := self.schedules.on(subject)) is not None:
            self.schedules.cancel_wake(one)
            self.known[subject].wake = NO_WAKE

    def remove(self) -> None:
        subject = self.subject()
        one, known = self.schedules.remove(subject), self.known.pop(subject, None)
        assert (one and one.sequence) == (known and known.sequence)
        self.in_progress.pop(subject, None)

    def begin_flight(self) -> None:
        subject = self.subject()
        if (one := self.schedules.on(subject)) is not None and one.flight is None:
            one.flight = Flight()
            self.in_progress[subject] = one

    def end_flight(self) -> None:
        if self.in_progress:
            subject, one = self.in_progress.popitem()
            one.flight = None
            self.known[subject].wake = instant = self.instant()
            self.schedules.wake(one, instant)

    def pass_time(self) -> None:
        """Let time pass as an engine does, which only steps when the schedules says so: all are woken in time."""
        self.release()
        until = self.now + self.random.randrange(
            1, self.random.choice((SECOND, OBJECTS_AHEAD_NS, 5 * OBJECTS_AHEAD_NS))
        )
        expected, found = [], list[tuple[int, int]]()
        for one in self.known.values():
            if one.wake != NO_WAKE and one.wake <= until:
                expected.append((max(one.wake, self.now), one.wake, one.sequence))
                one.wake = NO_WAKE
        for _ in range(10_000):
            wake = self.schedules.next_wake()
            if wake is None or wake > until:
                break
            self.now = max(self.now, wake)
            found += [(self.now, sequence) for sequence in step(self.schedules, self.now, self.random.randrange(1, 9))]
        else:
            raise AssertionError("it always says that there is something to do")
        assert found == [(at, sequence) for at, _wake, sequence in sorted(expected)]
        self.now = until
        self.schedules.comes_to(until)

    def write(self) -> None:
        self.schedules.write_changed(self.random.randrange(1, 20))

    def release(self) -> None:
        later = set(self.random.sample([one.sequence for one in self.known.values()], min(2, len(self.known))))
        kept = {subject for subject, one in self.known.items() if one.sequence in later}
        kept = {subject for subject in kept if self.schedules.has_object(subject)}
        self.schedules.release(later)
        assert all(map(self.schedules.has_object, kept)), "what is left for later stays"
        for subject, one in self.in_progress.items():
            assert self.schedules.peek(subject) is one, "nothing in progress is discarded"

    def look(self) -> None:
        """Compare all that can be asked."""
        known = {subject: one.sequence for subject, one in self.known.items()}
        assert len(self.schedules) == len(known)
        assert {one.subject: one.sequence for one in self.schedules} == known
        some = [*self.random.sample(self.subjects, 10), "s", "s.*", ""]
        assert self.schedules.known(some) == known.keys() & set(some)
        for subject in some:
            for one in (self.schedules.peek(subject), self.schedules.on(subject)):
                assert (one and one.sequence) == known.get(subject)
            sequence = known.get(subject, 1)
            assert (self.schedules.exactly(subject, sequence) is None) == (subject not in known)
            assert self.schedules.exactly(subject, sequence + 1_000_000) is None
        kinds = Counter(one.kind for one in self.schedules)
        assert self.schedules.kinds == kinds
        self.release()
        for subject, expected in self.known.items():
            found = self.schedules.peek(subject)
            assert found is not None
            assert found.wake == expected.wake
        wakes = [one.wake for one in self.known.values() if one.wake != NO_WAKE]
        wake = self.schedules.next_wake()
        assert not wakes or (wake is not None and wake <= min(wakes))

    def end(self) -> None:
        """Write everything: the rows say what is held."""
        for flying in self.in_progress.values():
            flying.flight = None
            self.schedules.changed(flying)
        self.release()
        self.schedules.write_changed(1_000_000)
        rows = {row.subject: (number, row) for part in self.table.rows() for number, row in part}
        assert {subject: row.sequence for subject, (_, row) in rows.items()} == {
            subject: one.sequence for subject, one in self.known.items()
        }
        assert self.schedules.written == self.schedules.kinds
        for one in self.schedules.objects():
            (number, row), expected = rows[one.subject], row_of(one)
            assert (number, row._replace(wake=0)) == (one.row, expected._replace(wake=0))
            assert row.wake == expected.wake or (one.wake == NO_WAKE and row.wake <= self.now), "it was woken since"


@pytest.mark.parametrize("most_known", [10_000, 20], ids=["all subjects known", "too many subjects"])
def test_it_holds_and_wakes_what_a_dictionary_says(most_known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN_SUBJECTS", most_known)
    for seed in seeds(2):
        model = Model(generator(f"schedules {seed}"), 40 if seed % 2 else 200)
        for number in range(300):
            try:
                model.do_something()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, act {number}: {error}") from error
        model.look()
        model.end()


def test_rows_become_objects_before_their_time_and_rows_again() -> None:
    schedules = empty()
    waking(schedules, 1, FAR)
    waking(schedules, 2, NEAR)
    schedules.release(())
    assert [schedules.has_object(subject) for subject in ("s.1", "s.2")] == [False, True]
    wake = schedules.next_wake()
    assert wake == NEAR
    assert woken(schedules, NEAR) == [2]
    assert schedules.next_wake() == FAR - MIN_AHEAD_NS
    assert step(schedules, FAR - OBJECTS_AHEAD_NS) == []
    assert step(schedules, FAR - MIN_AHEAD_NS) == []
    assert schedules.has_object("s.1"), "a minute before its time"
    assert schedules.next_wake() == FAR
    one = schedules.on("s.1")
    assert one is not None
    schedules.wake(one, FAR + HOUR)
    assert schedules.has_object("s.1")
    schedules.release(())
    assert not schedules.has_object("s.1")
    assert woken(schedules, FAR + HOUR - 1) == []
    assert woken(schedules, FAR + HOUR) == [1]


def test_what_no_row_can_be_stays_an_object_and_is_named() -> None:
    schedules = empty()
    late, early = Held("s.late", 1, PLAIN, START, 1 << 63), Held("s.early", 2, PLAIN, START, -(1 << 63))
    for one in (late, early):
        schedules.hold(one)
        schedules.wake(one, FAR)
    schedules.release(())
    schedules.write_changed(10)
    assert schedules.objects() == [late, early]
    assert sorted(schedules.unwritten) == [1, 2]
    assert woken(schedules, FAR) == [1, 2]
    schedules.hold(held(3, "s.late"))
    schedules.remove("s.early")
    assert schedules.unwritten == {}


def test_one_of_long_ago_is_woken_after_a_start() -> None:
    table = Table()
    first, old = empty(table), Held("s.1", 1, PLAIN, START, -HOUR)
    first.hold(old)
    first.wake(old, -HOUR)
    first.write_changed(1)
    again = Schedules(READER.definition_of, table)
    assert again.begin({PatternKind.EVERY: 1}) == []
    again.comes_to(START)
    assert woken(again, START) == [1]


def test_headers_of_no_schedule_show_that_the_table_is_damaged() -> None:
    table = Table()
    schedules = empty(table)
    one = held(1)
    one.wake, one.headers = FAR, b"NATS/1.0\r\nNats-Schedule: @never\r\n\r\n"
    schedules.insert([row_of(one)])
    with pytest.raises(DamagedTableError, match=r"s\.1"):
        schedules.on("s.1")


def test_of_long_headers_a_row_has_what_defines_its_schedule() -> None:
    desk = Desk(schedule("@every 3h"))
    for length, is_kept in ((1, True), (600, False)):
        more = {"Nats_Schedule_TTL": "5m", "Other": "x" * length}
        first, second = (desk.engine.last_read + number for number in (1, 2))
        for sequence in (first, second):  # what is read of the first is known of the second one
            desk.read(schedule("@every 3h", sequence, f"s.{sequence}", **more))  # type: ignore[arg-type]
        found = desk.engine.held.table.find(f"s.{second}")
        assert found is not None
        assert (b"Other" in found[1].headers) is is_kept
        one = desk.held(f"s.{second}")
        assert (one.pattern.text, one.terms.target, one.terms.ttl) == ("@every 3h", TARGET, "5m")
