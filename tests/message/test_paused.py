"""A paused schedule is its message with one header renamed: no other byte changes, and it reads as it would resumed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.paused import Paused, paused_block, paused_name, paused_pattern, read_paused, resumed_block
from nats_scheduler.message.reader import MessageReader
from nats_scheduler.message.reading import Reading, read_message
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.message.blocks import meaning, odd_blocks, portable, proper_blocks

RULES = StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True)
SUBJECT = "orders.s1"
STORED_AT = 1_790_000_000_000_000_000
ACTIVE = [("A", "b"), ("Nats-Schedule", "@every 5m"), ("Nats-Schedule-Target", "orders.due"), ("Nats-TTL", "5m")]
PAUSED = [("A", "b"), ("Nats-Schedule-X-Paused", "@every 5m"), *ACTIVE[2:]]

dialects = st.sampled_from(DIALECTS)
blocks = st.one_of(odd_blocks, proper_blocks)


def read(block: bytes, rules: StreamRules = RULES, served: tuple[Dialect, ...] = DIALECTS) -> Reading | None:
    return read_message(block, SUBJECT, STORED_AT, rules, served)


def paused_of(*headers: tuple[str, str]) -> Paused | None:
    """Read a message with these headers and return what is paused."""
    return read_paused(block_of(*headers), SUBJECT, RULES, DIALECTS, STORED_AT)


def test_pausing_renames_the_header_where_it_is() -> None:
    for dialect in DIALECTS:
        active, paused = (block_of(*(portable(h) if dialect is PORTABLE else h)) for h in (ACTIVE, PAUSED))
        assert paused_block(active, dialect) == paused
        assert resumed_block(paused, dialect) == active
        assert paused_pattern(paused, dialect) == "@every 5m"


@settings(max_examples=draws(40))
@given(blocks, dialects)
def test_pausing_and_resuming_keep_all_other_bytes(block: bytes, dialect: Dialect) -> None:
    """Compare line by line, since a header begins only after a line end."""
    lines, paused = block.split(b"\r\n"), paused_block(block, dialect).split(b"\r\n")
    active, resumable = dialect.schedule + b":", paused_name(dialect) + b":"
    assert paused[0] == lines[0], "nothing before the first line end is a header"
    assert paused[1:] == [
        resumable + line.removeprefix(active) if line.startswith(active) else line for line in lines[1:]
    ]
    if b"X-Paused" not in block:  # a schedule with such a header is rejected, and cannot be paused
        assert resumed_block(paused_block(block, dialect), dialect) == block


def test_what_cancels_another_schedule_is_no_paused_one() -> None:
    """It leaves alive what it lands on."""
    cancel = [("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")]
    assert read(block_of(*PAUSED, *cancel)) == Reading(cancels="orders.s2")
    assert meaning(read(block_of(*PAUSED, cancel[0]))).rejection is not None


def test_what_would_be_rejected_if_resumed_is_paused_all_the_same() -> None:
    for name, value, code, header in (
        ("Nats-Schedule-X-Paused", "@often", 10189, "Nats-Schedule"),
        ("Nats-Schedule-Target", SUBJECT, 10190, "Nats-Schedule-Target"),
        ("Nats-Schedule-X-Limit", "none", 0, "Nats-Schedule-X-Limit"),
        ("Nats-Schedule-Next", "soon", 10212, "Nats-Schedule-Next"),
        ("Nats-TTL", "soon", 10165, "Nats-TTL"),
    ):
        reading = meaning(read(block_of(*{**dict(PAUSED), name: value}.items())))
        assert reading.rejection is None
        assert reading.paused is not None
        assert isinstance(reading.paused.resumed, Rejection)
        assert (reading.paused.resumed.code, reading.paused.resumed.header) == (code, header)


def test_what_would_be_no_schedule_is_no_paused_one() -> None:
    for value in ("", "   ", "@at 0001-01-01T00:00:00Z"):
        assert paused_of(("Nats-Schedule-X-Paused", value), *ACTIVE[2:]) is None
        assert read(block_of(("Nats-Schedule-X-Paused", value), *ACTIVE[2:])) is None
    for name in ("nats-schedule-x-paused", "Nats-Schedule-X-paused", "X-Paused", "Nats-Schedule-Paused"):
        assert paused_of((name, "@every 5m"), *ACTIVE[2:]) is None, "the name is case-sensitive"


def test_a_schedule_with_both_headers_is_rejected_and_told_how_to_pause() -> None:
    extra = ("Nats-Schedule-X-Paused", "true")
    for block in (block_of(extra, *ACTIVE), block_of(*ACTIVE, extra)):
        assert read_paused(block, SUBJECT, RULES, DIALECTS, STORED_AT) is None
        reading = meaning(read(block))
        assert reading.paused is None
        assert "a paused schedule has its pattern in this header, and no Nats-Schedule" in str(reading.rejection)


def test_a_faulty_schedule_with_both_headers_is_rejected_for_its_fault() -> None:
    reading = meaning(read(block_of(("Nats-Schedule", "@often"), *PAUSED)))
    assert reading.rejection is not None
    assert reading.rejection.code == 10189
    native = StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True, has_policies=False)
    reading = meaning(read(block_of(*ACTIVE, ("Nats-Schedule-X-Paused", "true")), native, (ADR51,)))
    assert reading.definition is not None
    assert reading.paused is None


def test_the_first_dialect_in_which_a_message_is_paused_counts() -> None:
    block = block_of(*portable(PAUSED), *PAUSED)
    for served in (DIALECTS, DIALECTS[::-1]):
        paused = read_paused(block, SUBJECT, RULES, served, STORED_AT)
        assert paused is not None
        assert paused.dialect is served[0]
    assert read_paused(block, SUBJECT, RULES, (), STORED_AT) is None


def test_each_of_several_headers_is_renamed_so_that_none_is_active() -> None:
    block = block_of(
        ("Nats-Schedule", "@every 5m"), ("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "orders.due")
    )
    paused = paused_block(block, ADR51)
    assert [name for name, _value in header_items(paused)][:2] == [b"Nats-Schedule-X-Paused"] * 2
    assert paused_pattern(paused, ADR51) == "@every 5m"
    assert read_paused(paused, SUBJECT, RULES, DIALECTS, STORED_AT) is not None


def test_it_is_read_for_the_time_at_which_it_would_be_resumed() -> None:
    leap_day = block_of(("Nats-Schedule-X-Paused", "0 0 0 29 2 *"), ("Nats-Schedule-Target", "orders.due"))
    before, after = 3_900_000_000_000_000_000, 3_981_744_000_000_000_000  # the next leap day after that is in 2104
    for stored_at, kind in ((before, Definition), (after, Rejection)):
        paused = read_paused(leap_day, SUBJECT, RULES, DIALECTS, stored_at)
        assert paused is not None
        assert isinstance(paused.resumed, kind)


def test_a_reader_reads_it_each_time_and_reports_no_misnamed_header() -> None:
    reader = MessageReader(RULES, DIALECTS)
    active, paused = block_of(*ACTIVE), block_of(*PAUSED)
    for block in (active, paused, active, paused, block_of(*portable(PAUSED))):
        message = StoredMessage(SUBJECT, 1, STORED_AT, block, None)
        assert reader.read(message) == read(block)
        assert reader.misnamed == ()
