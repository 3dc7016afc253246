"""A reader with a cache gives the readings of `read_message`, message by message."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.block_shapes import READINGS_PER_SHAPE, SHAPES_AT_ONCE
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.policies import NO_POLICIES, Policies
from nats_scheduler.message.reader import MAX_CACHED_BLOCK_BYTES, MAX_CACHED_BLOCKS, MessageReader
from nats_scheduler.message.reading import Reading, read_message, read_published
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.shared_terms import MAX_KINDS, MAX_TERMS, SharedTerms
from nats_scheduler.message.stored import StoredMessage, size_named
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import At
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.message.blocks import NAMES, VALUES, meaning

STORED_AT = 1_790_000_000_000_000_000
RULES = StreamRules("ORDERS", ("orders.>", "audit.*"))
RESTRICTED = StreamRules(
    "ORDERS", ("orders.>",), restrictions=Restrictions(targets=("orders.due", "orders.*.a"), sources=("orders.from.>",))
)

PATTERNS = [
    b"@at 2030-01-01T00:00:00Z",
    b"@at 2030-12-31T23:59:59.999999999Z",
    b"@at 2030-01-01T00:00:00.50Z",
    b"@every 5m",
    b"0 0 5 * * *",
    *(b"@at 2030-02-30T00:00:00Z", b"@at 2030-01-01T24:00:00Z", b"@at 2030-01-01T00:00:00.1234567891Z"),
    *(b"@at 2030-01-01T00:00:00.5+01:00", b"@at 0001-01-01T00:00:00Z", b"  @at 0001-01-01T00:00:00Z"),
    *(b"@at 2030-01-01T00:00:00Z ", b"@at", b"@at soon", b"@every 1ms", b"0 0 5\t* * \n*", b"0 0 0 30 2 *"),
    *(b"@daily", b"", b"x"),
]
SUBJECTS = [
    *(b"orders.due", b"orders.7.a", b"orders.from.x", b"orders.s1", b"orders.stats-1", b"orders.Nats-Schedule"),
    *(b"orders.nats-scheduler:1", b"orders.gr\xc3\xb6\xc3\x9fe", b"orders.\xff", b"orders.*", b"orders.>"),
    *(b"orders.a*", b"orders..due", b"orders.due ", b"orders.a b", b"orders\r.b", b"orders", b"audit.x"),
    *(b"audit.x.y", b"other.due", b">", b""),
]
ZONES = [b"UTC", b"Europe/Berlin", b"Nowhere", b""]
OWN = [b"7", b"a: b", b"", b"  x ", b"Nats-TTL: 5m", b"nats-scheduler:7:5:orders.s2", b"Nats-Schedule-Target", b"a\rb"]
OWN += [b"Nats-Schedule-TargetNats-Schedule-Target"]
OWN += [b"X-Paused", b"\xff", b"a\nNats-Schedule: b", b"nats-schedule"]
FREE = [b"Nats-Msg-Id", b"Nats-Msg-Size", b"Trace-Id", b"A", b"X-Tenant"]
"""Headers that mean nothing in a schedule."""


def limit(dialect: Dialect) -> bytes:
    return dialect.schedule + b"-X-Limit"


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
        own[limit(dialect)] = [b"2", b"3", b"none"]
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
    more = st.sampled_from([dialect.source, dialect.time_zone, limit(dialect), *FREE, *FREE, *NAMES])
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


def message(block: bytes, subject: str = "orders.s1", stored_at: int = STORED_AT) -> StoredMessage:
    return StoredMessage(subject, 1, stored_at, block, None)


def read_slowly(one: StoredMessage, rules: StreamRules, dialects: Sequence[Dialect] = DIALECTS) -> Reading | None:
    return read_message(one.block, one.subject, one.stored_at, rules, dialects)


dialects = st.sampled_from([DIALECTS, (PORTABLE,), (ADR51,), (PORTABLE, ADR51)])
rules = st.sampled_from(
    [
        *(RULES, RESTRICTED, StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True)),
        StreamRules("ORDERS", ("orders.>",), schedules_enabled=False),
    ]
)


@settings(max_examples=draws(25))
@given(fleets(), rules, dialects)
def test_the_blocks_of_programs_are_read_one_by_one(
    messages: list[StoredMessage], rules: StreamRules, dialects: Sequence[Dialect]
) -> None:
    reader, plain = MessageReader(rules, dialects), MessageReader(rules, dialects)
    for one in messages:
        assert reader.read(one) == read_slowly(one, rules, dialects), one
        if (cached := reader.cached(one)) is not None:
            assert read_slowly(one, rules, dialects) == (cached, None, None, None, None, None)
            assert cached.pattern.text == reader.read_uncached(one).definition.pattern.text  # type: ignore[union-attr]
            assert not reader.misnamed
        assert plain.definition_of(one) == (found.definition if (found := read_slowly(one, rules, dialects)) else None)


TARGET = (b"Nats-Schedule-Target", b"orders.due")


def at(number: int) -> tuple[bytes, bytes]:
    return b"Nats-Schedule", b"@at 2030-01-01T00:00:%02dZ" % (number % 60)


SOURCE, ZONE = (b"Nats-Schedule-Source", b"orders.in"), (b"Nats-Schedule-Time-Zone", b"UTC")
CRON, EVERY = (b"Nats-Schedule", b"0 0 5 * * *"), (b"Nats-Schedule", b"@every 5m")
ALIKE = [
    ([at(1), TARGET], [at(2), (TARGET[0], b"orders.stats-1")]),
    ([TARGET, at(1)], [(TARGET[0], b"orders.gr\xc3\xb6\xc3\x9fe"), at(2)]),
    ([at(1), TARGET, (b"Nats-Msg-Size", b"7")], [at(2), TARGET, (b"Nats-Msg-Size", b"1234567890")]),
    ([at(1), TARGET, (b"Nats-Msg-Id", b"a"), (b"A", b"")], [at(2), TARGET, (b"Nats-Msg-Id", b""), (b"A", b"b: c")]),
    ([at(1), TARGET, (b"Nats-Expected-Stream", b"S")], [at(2), TARGET, (b"Nats-Expected-Stream", b"S")]),
    ([at(1), TARGET, SOURCE], [at(2), TARGET, (SOURCE[0], b"orders.other")]),
    ([at(1), TARGET, SOURCE], [at(2), (TARGET[0], b"orders.\xff"), (SOURCE[0], b"orders.\xfe")]),
    ([EVERY, TARGET], [(EVERY[0], b"@every 90m"), (TARGET[0], b"orders.other")]),
    ([EVERY, SOURCE, TARGET], [CRON, SOURCE, TARGET]),
    ([CRON, ZONE, TARGET], [(CRON[0], b"0 0 6 * * *"), (ZONE[0], b"Europe/Berlin"), TARGET]),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("first", "then"), ALIKE)
def test_what_a_program_sends_is_known_from_its_first_message(
    first: list[tuple[bytes, bytes]], then: list[tuple[bytes, bytes]], dialect: Dialect
) -> None:
    reader = MessageReader(RULES, DIALECTS)
    one, another = (
        message(block_of(*headers).replace(b"Nats-Schedule", dialect.schedule)) for headers in (first, then)
    )
    assert reader.definition_of(one) == meaning(reader.read(one)).definition
    known = reader.cached(another)
    assert known is not None
    assert known == meaning(read_slowly(another, RULES)).definition
    for subject in ("orders.*", known.terms.target, known.terms.source or ""):
        assert reader.cached(another._replace(subject=subject)) is None, "it is rejected there"
    assert reader.cached(another._replace(subject="orders.a*")) == known, "which is no wildcard"


def test_a_fire_that_looks_like_a_known_schedule_is_a_fire() -> None:
    reader, portable = MessageReader(RULES, (PORTABLE,)), [(b"X-" + name, value) for name, value in (at(1), TARGET)]
    plain, fire = (
        message(block_of(*portable, (b"Nats-Scheduler", b"orders.s2"), (b"Nats-Msg-Id", identity)))
        for identity in (b"a", b"nats-scheduler:7:5:orders.s2")
    )
    assert meaning(reader.read(plain)).definition is not None
    assert reader.cached(plain._replace(block=plain.block.replace(b"Id: a", b"Id: b"))) is not None
    assert meaning(reader.read(fire)).generated is not None


def test_what_the_operator_does_not_allow_is_not_known() -> None:
    reader = MessageReader(RESTRICTED, DIALECTS)
    for source, others in ((b"", [b""]), (b"orders.from.x", [b"orders.from.y", b"orders.in", b"orders.due"])):
        reader.read(message(block_of(at(1), TARGET, *([(SOURCE[0], source)] if source else []))))
        for target, other in product((b"orders.due", b"orders.7.a", b"orders.7"), others):
            sampled = [(SOURCE[0], other)] if other else []
            one = message(block_of(at(2), (TARGET[0], target), *sampled))
            allowed = meaning(read_slowly(one, RESTRICTED)).definition
            assert reader.cached(one) == allowed
            assert (allowed is None) is (target == b"orders.7" or other in (b"orders.in", b"orders.due")), one
    assert reader.usual_ats(MessageRun.of([message(block_of(at(1), TARGET))])) is None


def test_a_publisher_that_changes_its_headers_gets_few_shapes() -> None:
    reader, shapes, count = MessageReader(RULES, DIALECTS), 0, 10 * READINGS_PER_SHAPE
    for number in range(count):
        reader.read(message(block_of(at(number), TARGET, (b"H%d" % number, b"1"))))
        alike = message(block_of(at(number), TARGET, (b"H%d" % number, b"2")))
        shapes += reader.cached(alike) is not None
    assert SHAPES_AT_ONCE <= shapes <= SHAPES_AT_ONCE + count // READINGS_PER_SHAPE


def test_each_message_of_a_shape_has_the_zone_that_it_names() -> None:
    reader = MessageReader(RULES, DIALECTS)
    for zone in (b"Europe/Berlin", b"Asia/Tokyo", b"America/New_York"):
        cron = block_of((b"Nats-Schedule", b"0 0 5 * * *"), (b"Nats-Schedule-Time-Zone", zone), TARGET)
        reader.read(message(cron))
        read_again = reader.cached(message(cron))
        assert read_again is not None
        assert read_again == meaning(read_slowly(message(cron), RULES)).definition
        assert read_again.pattern.time_zone == zone.decode()


def test_a_schedule_with_a_misnamed_header_is_reported_each_time() -> None:
    """What a row of the table defines is read from its block, and a cached block is one without a misnamed header."""
    one = message(block_of(at(1), TARGET, (b"Nats-Schedule-Timezone", b"UTC")))
    reader = MessageReader(RULES, DIALECTS)
    for _time in range(2):
        assert reader.cached(one) is None
        assert reader.read(one)
        assert [found.header for found in reader.misnamed] == ["Nats-Schedule-Timezone"]
        assert reader.definition_of(one) is not None


def test_a_message_that_is_no_fire_is_read_as_it_was_published() -> None:
    claim = b"Nats-Scheduler", b"orders.s2"
    one = message(block_of(at(1), TARGET, claim, (b"Nats-Msg-Id", b"nats-scheduler:7:5:orders.s2")))
    reader = MessageReader(RULES, DIALECTS)
    assert meaning(reader.read(one)).generated is not None
    for subject in ("orders.s1", "orders.due", "orders.*"):
        claims = one._replace(subject=subject)
        published = read_published(claims.block, subject, STORED_AT, RULES, DIALECTS)
        assert reader.read_as_published(claims) == published
    plain = block_of(claim, (b"Nats-Schedule-Next", b"2030-01-01T00:00:00Z"))
    assert reader.read_as_published(message(plain)).rejection is not None
    assert reader.read_as_published(message(b"")) == Reading()


def test_a_known_block_is_rejected_if_it_does_not_fire_in_five_years() -> None:
    block = block_of((b"Nats-Schedule", b"0 0 0 29 2 *"), TARGET)
    reader = MessageReader(RULES, DIALECTS)
    for stored_at, is_accepted in ((STORED_AT, True), (3_981_744_000 * SECOND, False), (STORED_AT, True)):  # 2096-03-05
        reading = meaning(reader.read(message(block, stored_at=stored_at)))
        assert (reading.definition is not None, reading.rejection is None) == (is_accepted, is_accepted)


def test_what_is_kept_is_bounded() -> None:
    reader = MessageReader(RULES, DIALECTS)
    blocks = [block_of(at(1), TARGET, (b"Nats-Expected-Last-Msg-Id", b"%d" % n)) for n in range(MAX_CACHED_BLOCKS + 1)]
    for block in blocks:
        assert reader.read(message(block))
    assert reader.cached(message(blocks[-1])) is not None
    assert reader.cached(message(blocks[0])) is None, "it had to make room"
    long = b"x" * MAX_CACHED_BLOCK_BYTES
    for headers in ([at(1), TARGET, (b"A", long)], [at(1), (b"Nats-Schedule-Target", b"orders." + long)]):
        one = message(block_of(*headers))
        readings = [reader.read(one), reader.read(one)]
        assert reader.cached(one) is None
        assert len({id(reading.definition.terms) for reading in readings if reading and reading.definition}) == 2


def test_equal_terms_are_one_object_of_active_and_paused_schedules() -> None:
    reader, names = MessageReader(RULES, DIALECTS), (b"Nats-Schedule", b"Nats-Schedule-X-Paused")
    for more in ([], [(limit(ADR51), b"2")]):
        blocks = [block_of((name, text), TARGET, *more) for name in names for text in (b"@every 5m", b"@every 6m")]
        defined = [meaning(reader.read(message(block))).defined for block in blocks]
        assert len({id(one and one.terms) for one in defined}) == 1


def test_the_terms_that_are_kept_are_bounded() -> None:
    plain = meaning(read_message(block_of(at(1), TARGET), "orders.s1", STORED_AT, RULES, DIALECTS))
    assert plain.definition is not None
    terms, kept = plain.definition.terms, SharedTerms(RULES)
    for number in range(MAX_TERMS + 10):
        assert kept.shared(terms._replace(target=f"orders.due.{number}"))
        assert kept.shared(terms._replace(policies=Policies(owner=f"{number}")))
    for number in range(MAX_TERMS + 10):
        assert kept.shared(terms._replace(ttl=f"{number}s"))
    assert MAX_KINDS < len(kept) <= (MAX_KINDS + 1) * MAX_TERMS


# -- runs of messages ----------------------------------------------------------------------------------------------


def usual(number: int, more: bytes = b"") -> StoredMessage:
    """Make a message as most programs store it, with a target of its own."""
    block = b"NATS/1.0\r\nNats-Schedule: @at 2030-01-01T00:%02d:00.5Z\r\nNats-Schedule-Target: orders.due.%d\r\n%b\r\n"
    return message(block % (number % 60, number, more), f"orders.s{number}")


@settings(max_examples=draws(25))
@given(programs(), st.data(), rules)
def test_what_is_read_of_many_at_once_is_what_each_of_them_says(
    program: Program, data: st.DataObject, given_rules: StreamRules
) -> None:
    blocks = data.draw(st.lists(st.composite(program.block)(), min_size=1, max_size=6))
    subjects = st.sampled_from(["orders.s1", "orders.s2", "orders.due", "orders.*"])
    run = MessageRun.of([message(block, data.draw(subjects)) for block in blocks])
    reader = MessageReader(given_rules, DIALECTS)
    for one in (*run, *run):
        reader.read(one)
    found = reader.usual_ats(run)
    for number, one in enumerate(run if found is not None else ()):
        assert found is not None
        definition = reader.cached(one)
        assert definition is not None
        assert isinstance(definition.pattern, At)
        assert definition.pattern.instant == found.fire_times[number]
        assert definition.terms.target == found.targets[number]
        assert size_named(one.block) == found.body_sizes[number]
        assert (definition.terms.source, definition.terms.policies) == (None, NO_POLICIES)


def test_what_is_read_of_many_at_once_has_the_sizes_that_the_server_names() -> None:
    reader, sized = MessageReader(RULES, DIALECTS), [usual(n, b"Nats-Msg-Size: %d\r\n" % n) for n in range(9, 12)]
    reader.read(sized[0])
    found = reader.usual_ats(MessageRun.of(sized))
    assert found is not None
    assert (found.body_sizes, found.targets) == ([9, 10, 11], [f"orders.due.{n}" for n in range(9, 12)])


def test_one_that_says_something_else_has_all_read_alone() -> None:
    reader = MessageReader(RULES, DIALECTS)
    reader.read(usual(0))
    good = [usual(number) for number in range(1, 6)]
    assert reader.usual_ats(MessageRun.of(good)) is not None
    days, targets = (b"2030-02-30T00:07:00.5", b"0001-01-01T00:00:00"), (b"other.due", b"orders.*", b"orders.\xff", b"")
    for other in (
        usual(7, b"Nats-TTL: 5m\r\n"),
        usual(7, b"A: %b\r\n" % (b"x" * MAX_CACHED_BLOCK_BYTES)),
        usual(7)._replace(subject="orders.due.7"),
        usual(7)._replace(subject="orders.*"),
        *(usual(7)._replace(block=usual(7).block.replace(b"2030-01-01T00:07:00.5", day)) for day in days),
        *(usual(7)._replace(block=usual(7).block.replace(b"orders.due.7", target)) for target in targets),
        usual(7)._replace(block=b""),
    ):
        for messages_read in ([*good, other], [other, *good], [*good[:2], other, *good[2:]]):
            assert reader.usual_ats(MessageRun.of(messages_read)) is None, other


def test_one_header_of_a_schedule_is_enough() -> None:
    for name in (b"Nats-Schedule-Target", b"x-nats-schedule", b"NATS-SCHEDULER"):
        plain, other = b"NATS/1.0\r\nNats-Msg-Size: 1\r\n\r\n", b"NATS/1.0\r\n%b: x\r\n\r\n" % name
        stored = [StoredMessage("s", number, 1, block, None) for number, block in enumerate([plain, other, plain], 1)]
        assert MessageRun.of([stored[0], stored[2]]).is_ordinary
        assert not MessageRun.of(stored).is_ordinary, name
