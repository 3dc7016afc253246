"""A reader with a cache gives the readings of `read_message`, message by message, whatever it read before."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.reader import (
    MAX_CACHED_BLOCK_BYTES,
    MAX_CACHED_BLOCKS,
    MAX_KINDS,
    MAX_SHAPES,
    MAX_TERMS,
    MessageReader,
)
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from tests.harness.blocks import block_of
from tests.message.blocks import odd_blocks, proper_blocks

STORED_AT = 1_790_000_000_000_000_000
PATTERNS = [
    b"@at 2030-01-01T00:00:00Z",
    b"@at 2030-01-01T00:00:00.5+01:00",
    b"  @at 0001-01-01T00:00:00Z",
    b"@at soon",
    b"@every 5m",
    b"@every 1ms",
    b"0 0 5 * * *",
    b"0 0 5\t* * \n*",
    b"0 0 0 30 2 *",
    b"",
    b"x",
]
SUBJECTS = ["orders.s1", "orders.s2", "orders.due", "orders.*", "a b"]


LEAP_DAY_OF_2096 = 3_981_744_000_000_000_000
"""2096-03-05: the next leap day is in 2104, since the year 2100 has none."""


def message(block: bytes, subject: str = "orders.s1", stored_at: int = STORED_AT) -> StoredMessage:
    return StoredMessage(subject, 1, stored_at, block, None)


def assert_reads_as_ever(messages: Sequence[StoredMessage], rules: StreamRules, dialects: Sequence[Dialect]) -> None:
    """Read the messages in this order, twice, and compare each reading with that of a reader without a cache."""
    reader = MessageReader(rules, dialects)
    for one in [*messages, *messages]:
        assert reader.read(one) == read_message(one.block, one.subject, one.stored_at, rules, dialects), one


rules = st.builds(
    StreamRules, st.just("ORDERS"), st.just(("orders.>",)), allow_msg_ttl=st.booleans(), schedules_enabled=st.booleans()
)
dialects = st.sampled_from([DIALECTS, (PORTABLE,), (ADR51,), (PORTABLE, ADR51)])


@st.composite
def similar_messages(draw: st.DrawFn) -> list[StoredMessage]:
    """Draw messages whose blocks differ in one value, at a position where a schedule's pattern could be."""
    before = draw(st.one_of(proper_blocks, odd_blocks))
    after = draw(st.one_of(proper_blocks, odd_blocks))
    name = draw(st.sampled_from([b"Nats-Schedule:", b"Nats-Schedule: ", b"X-Nats-Schedule: "]))
    patterns = draw(st.lists(st.sampled_from(PATTERNS), min_size=2, max_size=5))
    start = before.removesuffix(b"\r\n")
    around = draw(st.sampled_from([b"\r\n", b"\n", b""])), draw(st.sampled_from([b"\r\n", b"\n", b""]))
    target = draw(
        st.sampled_from([b"", b"Nats-Schedule-Target: orders.due\r\n", b"X-Nats-Schedule-Target: orders.due\r\n"])
    )
    end = after.removeprefix(b"NATS/1.0\r\n")
    blocks = [start + around[0] + name + pattern + around[1] + target + end for pattern in patterns]
    return [message(block, draw(st.sampled_from(SUBJECTS))) for block in blocks]


@given(similar_messages(), rules, dialects)
def test_messages_that_differ_in_the_pattern_are_read_one_by_one(
    messages: list[StoredMessage], rules: StreamRules, dialects: Sequence[Dialect]
) -> None:
    assert_reads_as_ever(messages, rules, dialects)


@given(
    st.lists(st.sampled_from(PATTERNS), min_size=2, max_size=6),
    st.lists(st.sampled_from(SUBJECTS), min_size=6, max_size=6),
    st.sampled_from([b"", b"UTC", b"Europe/Berlin"]),
    rules,
)
def test_what_a_fleet_publishes_is_read_one_by_one(
    patterns: list[bytes], subjects: list[str], zone: bytes, rules: StreamRules
) -> None:
    zones = [(b"Nats-Schedule-Time-Zone", zone)] if zone else []
    target = (b"Nats-Schedule-Target", b"orders.due")
    blocks = [block_of((b"Nats-Schedule", pattern), target, *zones) for pattern in patterns]
    assert_reads_as_ever(list(map(message, blocks, subjects)), rules, DIALECTS)


@given(st.lists(odd_blocks, max_size=5), rules, dialects)
def test_odd_blocks_are_read_one_by_one(blocks: list[bytes], rules: StreamRules, dialects: Sequence[Dialect]) -> None:
    assert_reads_as_ever(list(map(message, blocks)), rules, dialects)


def test_a_header_that_is_doubled_does_not_hide_behind_a_known_one() -> None:
    first, second = b"@at 2030-01-01T00:00:00Z", b"@at 2031-01-01T00:00:00Z"
    target = (b"Nats-Schedule-Target", b"orders.due")
    blocks = [
        block_of((b"Nats-Schedule", one), target, (b"Nats-Schedule", other))
        for one in (first, second)
        for other in (first, second)
    ]
    assert_reads_as_ever(list(map(message, blocks)), StreamRules("ORDERS", ("orders.>",)), DIALECTS)


def test_a_block_whose_other_bytes_differ_has_terms_of_its_own() -> None:
    blocks = [
        block_of((b"Nats-Schedule", b"@at 203%d-01-01T00:00:00Z" % year), (b"Nats-Schedule-Target", target))
        for target in (b"orders.due", b"orders.new")
        for year in range(4)
    ]
    zigzag = [block for pair in zip(blocks[:4], blocks[4:], strict=True) for block in pair]
    assert_reads_as_ever(list(map(message, [*blocks, *zigzag])), StreamRules("ORDERS", ("orders.>",)), DIALECTS)


def test_a_known_block_is_rejected_where_it_does_not_fire_within_the_horizon() -> None:
    block = block_of((b"Nats-Schedule", b"0 0 0 29 2 *"), (b"Nats-Schedule-Target", b"orders.due"))
    times = [STORED_AT, LEAP_DAY_OF_2096, STORED_AT]
    messages = [message(block, stored_at=stored_at) for stored_at in times]
    rules = StreamRules("ORDERS", ("orders.>",))
    assert_reads_as_ever(messages, rules, DIALECTS)
    reading = MessageReader(rules, DIALECTS).read(messages[1])
    assert reading is not None
    assert reading.rejection is not None


def test_a_schedule_that_cancels_another_one_does_both_each_time_it_is_read() -> None:
    block = block_of(
        (b"Nats-Schedule", b"@every 5m"),
        (b"Nats-Schedule-Target", b"orders.due"),
        (b"Nats-Scheduler", b"orders.s2"),
        (b"Nats-Schedule-Next", b"purge"),
    )
    rules = StreamRules("ORDERS", ("orders.>",))
    assert_reads_as_ever([message(block)], rules, DIALECTS)
    reading = MessageReader(rules, DIALECTS).read(message(block))
    assert reading is not None
    assert (reading.cancels, reading.definition is None) == ("orders.s2", False)


def test_equal_patterns_in_equal_blocks_share_their_definition() -> None:
    reader = MessageReader(StreamRules("ORDERS", ("orders.>",)), DIALECTS)
    blocks = [block_of((b"Nats-Schedule", b"@every 5m"), (b"Nats-Schedule-Target", b"orders.due"))] * 4
    readings = [reader.read(message(block, f"orders.s{number}")) for number, block in enumerate(blocks)]
    assert len({id(reading.definition) for reading in readings[1:] if reading}) == 1


def test_blocks_that_differ_in_pattern_and_identity_share_their_terms() -> None:
    reader = MessageReader(StreamRules("ORDERS", ("orders.>",)), DIALECTS)
    target = (b"Nats-Schedule-Target", b"orders.due")
    patterns = [b"@at 203%d-01-01T00:00:00Z" % year for year in range(9)] + [b"@every 5m", b"0 0 5 * * *"]
    identities: list[list[tuple[bytes, bytes]]] = [[], [(b"Nats-Msg-Id", b"1")], [(b"Nats-Msg-Id", b"2")]]
    blocks = [block_of((b"Nats-Schedule", pattern), target, *own) for pattern in patterns for own in identities]
    readings = [reader.read(message(block)) for block in blocks]
    definitions = [reading.definition for reading in readings if reading and reading.definition]
    assert len(definitions) == len(blocks)
    assert len({definition.pattern for definition in definitions}) == len(patterns)
    assert len({id(definition.terms) for definition in definitions}) == 1


def test_what_is_kept_is_bounded() -> None:
    reader = MessageReader(StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True), DIALECTS)
    target = (b"Nats-Schedule-Target", b"orders.due")
    for number in range(max(MAX_CACHED_BLOCKS, MAX_TERMS) + 100):
        own = (b"Nats-Expected-Last-Msg-Id", b"%d" % number)
        assert reader.read(message(block_of((b"Nats-Schedule", b"@every %ds" % (number + 1)), target)))
        assert reader.read(message(block_of((b"Nats-Schedule", b"@every 5m"), target, own)))
        aimed = (b"Nats-Schedule-Target", b"orders.due.%d" % number)
        assert reader.read(message(block_of((b"Nats-Schedule", b"@every 5m"), aimed)))
        lives = (b"Nats-Schedule-TTL", b"%ds" % (number + 1))
        assert reader.read(message(block_of((b"Nats-Schedule", b"@every 5m"), target, lives)))
        owned = (b"Nats-Schedule-X-Owner", b"%d" % number)
        assert reader.read(message(block_of((b"Nats-Schedule", b"@every 5m"), target, owned)))
    assert len(reader._whole) <= MAX_CACHED_BLOCKS
    assert len(reader._terms) <= (MAX_KINDS + 1) * MAX_TERMS
    assert len(reader._shapes) <= MAX_SHAPES
    reader = MessageReader(StreamRules("ORDERS", ("orders.>",)), DIALECTS)
    long = b"x" * MAX_CACHED_BLOCK_BYTES
    assert reader.read(message(block_of((b"Nats-Schedule", b"@every 5m"), target, (b"A", long))))
    distant = (b"Nats-Schedule-Target", b"orders." + long)
    assert reader.read(message(block_of((b"Nats-Schedule", b"@every 5m"), distant)))
    assert (len(reader._whole), len(reader._terms), len(reader._shapes)) == (0, 0, 0)
