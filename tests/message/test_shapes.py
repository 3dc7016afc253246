"""Blocks that differ in some values are read as `read_message` reads each of them, and most of them without it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.reader import MAX_SHAPES, READINGS_PER_SHAPE, SHAPES_AT_ONCE, MessageReader
from nats_scheduler.message.reading import Reading, read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import Restrictions, StreamRules
from tests.harness.blocks import block_of
from tests.message.blocks import NAMES, VALUES

STORED_AT = 1_790_000_000_000_000_000
RULES = StreamRules("ORDERS", ("orders.>", "audit.*"))
RESTRICTED = StreamRules(
    "ORDERS", ("orders.>",), restrictions=Restrictions(targets=("orders.due", "orders.*.a"), sources=("orders.from.>",))
)

PATTERNS = [
    b"@at 2030-01-01T00:00:00Z",
    b"@at 2030-12-31T23:59:59.999999999Z",
    b"@at 2030-01-01T00:00:00.50Z",
    b"@at 2030-02-30T00:00:00Z",
    b"@at 2030-01-01T24:00:00Z",
    b"@at 2030-01-01T00:00:00.1234567891Z",
    b"@at 2030-01-01T00:00:00+01:00",
    b"@at 0001-01-01T00:00:00Z",
    b"@at 2030-01-01T00:00:00Z ",
    b"@at",
    b"@every 5m",
    b"@every 1ms",
    b"0 0 5 * * *",
    b"0 0 0 30 2 *",
    b"@daily",
    b"",
    b"x",
]
SUBJECTS = [
    b"orders.due",
    b"orders.7.a",
    b"orders.from.x",
    b"orders.s1",
    b"orders.stats-1",
    b"orders.Nats-Schedule",
    b"orders.nats-scheduler:1",
    b"orders.gr\xc3\xb6\xc3\x9fe",
    b"orders.\xff",
    b"orders.*",
    b"orders.>",
    b"orders.a*",
    b"orders..due",
    b"orders.due ",
    b"orders.a b",
    b"orders\r.b",
    b"orders",
    b"audit.x",
    b"audit.x.y",
    b"other.due",
    b">",
    b"",
]
ZONES = [b"UTC", b"Europe/Berlin", b"Nowhere", b""]
OWN = [b"7", b"a: b", b"", b"  x ", b"Nats-TTL: 5m", b"nats-scheduler:7:5:orders.s2", b"Nats-Schedule-Target", b"a\rb"]
OWN += [b"X-Paused", b"\xff", b"a\nNats-Schedule: b", b"nats-schedule"]
FREE = [b"Nats-Msg-Id", b"Nats-Msg-Size", b"Trace-Id", b"A", b"X-Tenant"]
"""Headers that mean nothing in a schedule."""


class Program(NamedTuple):
    """The common part of the blocks of a program: their headers in order, and the values that never change."""

    dialect: Dialect
    names: tuple[bytes, ...]
    values: tuple[bytes, ...]
    space: bytes

    def block(self, draw: st.DrawFn) -> bytes:
        """Draw the block of one message."""
        dialect = self.dialect
        own = {dialect.schedule: PATTERNS, dialect.target: SUBJECTS, dialect.source: SUBJECTS, dialect.time_zone: ZONES}
        lines = []
        for name, value in zip(self.names, self.values, strict=True):
            choice = own.get(name) or (OWN if name in FREE else [value])
            lines.append(b"%b:%b%b\r\n" % (name, self.space, draw(st.sampled_from([choice[0], *choice]))))
        return b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n"


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program, most often one that publishes valid schedules."""
    dialect = draw(st.sampled_from([ADR51, ADR51, PORTABLE]))
    usual = [dialect.schedule, dialect.target]
    more = st.sampled_from([dialect.source, dialect.time_zone, *FREE, *FREE, *NAMES])
    names = draw(st.permutations([*usual, *draw(st.lists(more, max_size=4))]))
    values = draw(st.lists(st.sampled_from(VALUES), min_size=len(names), max_size=len(names)))
    return Program(dialect, tuple(names), tuple(values), draw(st.sampled_from([b" ", b" ", b"", b"  "])))


@st.composite
def fleets(draw: st.DrawFn) -> list[StoredMessage]:
    """Draw the messages of one to three programs, in any order."""
    drawn = draw(st.lists(programs(), min_size=1, max_size=3))
    chosen = draw(st.lists(st.sampled_from(drawn), min_size=2, max_size=12))
    subjects = st.sampled_from(["orders.s1", "orders.s2", "orders.due", "orders.*"])
    return [message(program.block(draw), draw(subjects)) for program in chosen]


def message(block: bytes, subject: str = "orders.s1") -> StoredMessage:
    return StoredMessage(subject, 1, STORED_AT, block, None)


def read_slowly(one: StoredMessage, rules: StreamRules, dialects: Sequence[Dialect] = DIALECTS) -> object:
    return read_message(one.block, one.subject, one.stored_at, rules, dialects)


@given(
    fleets(),
    st.sampled_from([RULES, RESTRICTED, StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True)]),
    st.sampled_from([DIALECTS, (PORTABLE,), (ADR51,)]),
)
def test_the_blocks_of_programs_are_read_one_by_one(
    messages: list[StoredMessage], rules: StreamRules, dialects: Sequence[Dialect]
) -> None:
    reader = MessageReader(rules, dialects)
    for one in messages:
        assert reader.read(one) == read_slowly(one, rules, dialects), one
        if (cached := reader.cached(one)) is not None:
            assert read_slowly(one, rules, dialects) == (cached, None, None, None, None, None)
            assert cached.pattern.text == reader.read_uncached(one).definition.pattern.text  # type: ignore[union-attr]
            assert not reader.misnamed


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("pattern", [*PATTERNS[:2], b"@at 2030-01-01T00:00:00.50Z", b"@every 5m", b"0 0 5 * * *"])
def test_every_subject_is_checked_as_target_and_as_source(dialect: Dialect, pattern: bytes) -> None:
    for rules in (RULES, RESTRICTED):
        reader = MessageReader(rules, DIALECTS)
        assert reader.read(message(block_of((dialect.schedule, pattern), (dialect.target, b"orders.due"))))
        for target in SUBJECTS:
            one = message(block_of((dialect.schedule, pattern), (dialect.target, target)))
            assert reader.read(one) == read_slowly(one, rules), one
        first = [(dialect.schedule, pattern), (dialect.target, b"orders.due"), (dialect.source, b"orders.from.y")]
        assert reader.read(message(block_of(*first)))
        for target, source in zip(SUBJECTS * len(SUBJECTS), sorted(SUBJECTS * len(SUBJECTS)), strict=True):
            one = message(block_of((dialect.schedule, pattern), (dialect.target, target), (dialect.source, source)))
            assert reader.read(one) == read_slowly(one, rules), one


TARGET = (b"Nats-Schedule-Target", b"orders.due")


def at(number: int) -> tuple[bytes, bytes]:
    return b"Nats-Schedule", b"@at 2030-01-01T00:00:%02dZ" % (number % 60)


def cron(number: int) -> tuple[bytes, bytes]:
    return b"Nats-Schedule", b"0 %d 5 * * *" % (number % 60)


def target(number: int) -> tuple[bytes, bytes]:
    return b"Nats-Schedule-Target", b"orders.t.%d" % number


def zone(number: int) -> tuple[bytes, bytes]:
    return b"Nats-Schedule-Time-Zone", [b"Europe/Berlin", b"Asia/Tokyo", b"America/Lima"][number % 3]


def source(number: int) -> tuple[bytes, bytes]:
    return b"Nats-Schedule-Source", b"orders.from.%d" % number


def identity(number: int) -> tuple[bytes, bytes]:
    return b"Nats-Msg-Id", b"%d" % number


Headers = list[tuple[bytes, bytes]]
LIVES = [(b"Nats-Schedule-TTL", b"5m"), (b"Nats-TTL", b"2160h"), (b"Nats-Rollup", b"sub")]
FLEETS: dict[str, Callable[[int], Headers]] = {
    "targets of their own": lambda n: [at(n), target(n)],
    "fractions": lambda n: [(b"Nats-Schedule", b"@at 2030-01-01T00:00:00.%dZ" % (n + 1)), TARGET],
    "sizes": lambda n: [at(n), TARGET, (b"Nats-Msg-Size", b"%d" % n)],
    "identities and tenants": lambda n: [identity(n), at(n), target(n), (b"X-Tenant", b"t%d" % (n % 7))],
    "sources": lambda n: [(b"Nats-Schedule", b"@every 5m"), TARGET, source(n)],
    "cron patterns": lambda n: [cron(n), target(n)],
    "time zones": lambda n: [cron(n), target(n), zone(n)],
    "portable headers": lambda n: [(b"X-" + name, value) for name, value in (at(n), target(n))],
    "lifetimes": lambda n: [at(n), target(n), *LIVES],
}


class CountingReader(MessageReader):
    """Counts how often it read without a cache."""

    uncached = 0

    def read_uncached(self, message: StoredMessage) -> Reading | None:
        self.uncached += 1
        return super().read_uncached(message)


@pytest.mark.parametrize("fleet", FLEETS)
def test_only_the_first_block_of_a_program_is_read_slowly(fleet: str) -> None:
    rules = StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True)
    reader = CountingReader(rules, DIALECTS)
    for number in range(300):
        one = message(block_of(*FLEETS[fleet](number)))
        reading = reader.read(one)
        assert reading is not None
        assert reading.definition is not None
        assert reading == read_slowly(one, rules), one
    assert reader.uncached <= 2


def test_several_programs_at_once_are_read_fast() -> None:
    reader = CountingReader(RULES, DIALECTS)
    own = [b"A", b"B", b"C", b"D", b"E", b"F", b"G", b"H"]
    for number in range(2_000):
        one = message(block_of(at(number), target(number), (own[number % MAX_SHAPES], b"%d" % number)))
        assert reader.read(one) == read_slowly(one, RULES), one
    assert reader.uncached <= SHAPES_AT_ONCE + (MAX_SHAPES - SHAPES_AT_ONCE) * READINGS_PER_SHAPE * 2


def test_shapes_are_not_made_for_each_block_of_a_publisher_that_changes_its_headers() -> None:
    reader = MessageReader(RULES, DIALECTS)
    made: set[int] = set()
    kept = []
    for number in range(2_000):
        reader.read(message(block_of(at(number), TARGET, (b"H%d" % number, b"1"))))
        kept += [shape for shape in reader._shapes if id(shape) not in made]
        made |= {id(shape) for shape in reader._shapes}
    assert len(kept) <= SHAPES_AT_ONCE + 2_000 // READINGS_PER_SHAPE


def test_a_shape_that_is_not_used_any_more_makes_room() -> None:
    reader = CountingReader(RULES, DIALECTS)
    for program in range(3 * MAX_SHAPES):
        for number in range(200):
            own = (b"H%d" % program, b"%d" % number)
            reader.read(message(block_of(at(number), TARGET, own)))
    assert reader.uncached <= 3 * MAX_SHAPES * (READINGS_PER_SHAPE + 1)


def assert_read_after(first: Headers, other: Headers, dialects: Sequence[Dialect]) -> None:
    """Read a block, and one that differs only in values that mean nothing in most blocks."""
    reader = MessageReader(RULES, dialects)
    template, one = message(block_of(*first)), message(block_of(*other))
    read = reader.read(template)
    assert read is not None
    assert read.definition is not None
    assert reader.read(one) == read_slowly(one, RULES, dialects) != read


def test_a_value_may_hide_the_header_behind_it() -> None:
    hiding = b"Nats-Schedule-TargetNats-Schedule-Target"
    assert_read_after([at(1), (b"A", b"1"), TARGET], [at(1), (b"A", hiding), TARGET], DIALECTS)


def test_an_identity_may_make_a_fire_of_what_was_a_schedule() -> None:
    scheduler = b"X-Nats-Scheduler", b"orders.s2"  # a header of the dialect that is not served
    fire = b"Nats-Msg-Id", b"nats-scheduler:7:5:orders.s2"
    assert_read_after([at(1), TARGET, scheduler, identity(1)], [at(1), TARGET, scheduler, fire], (ADR51,))
