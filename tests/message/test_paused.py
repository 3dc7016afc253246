"""A paused schedule is its message with one header renamed: no other byte changes, and it reads as it would resumed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.misnamed import misnamed_headers
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
def test_all_other_bytes_and_their_order_are_kept_and_resuming_gives_the_same_bytes(
    block: bytes, dialect: Dialect
) -> None:
    """Compare line by line, since a header begins only after a line end."""
    lines, paused = block.split(b"\r\n"), paused_block(block, dialect).split(b"\r\n")
    active, resumable = dialect.schedule + b":", paused_name(dialect) + b":"
    assert paused[0] == lines[0], "nothing before the first line end is a header"
    assert paused[1:] == [
        resumable + line.removeprefix(active) if line.startswith(active) else line for line in lines[1:]
    ]
    if b"X-Paused" not in block:  # a schedule with such a header is rejected, and cannot be paused
        assert resumed_block(paused_block(block, dialect), dialect) == block


@settings(max_examples=draws(40))
@given(blocks, st.sampled_from([SUBJECT, "orders.due", "s"]), st.booleans(), st.sampled_from([DIALECTS, (PORTABLE,)]))
def test_a_schedule_that_was_paused_is_read_as_it_was_and_never_as_an_active_one(
    block: bytes, subject: str, allow_msg_ttl: bool, served: tuple[Dialect, ...]
) -> None:
    rules = StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=allow_msg_ttl)
    for dialect in served:
        block = paused_block(block, dialect)
    after = read_message(block, subject, STORED_AT, rules, served)
    assert after is None or after.definition is None
    if after is not None and after.paused is not None:
        dialect, resumed = after.paused
        before = meaning(read_message(resumed_block(block, dialect), subject, STORED_AT, rules, served))
        assert resumed in (before.definition, before.rejection)


@settings(max_examples=draws(40))
@given(proper_blocks, dialects)
def test_every_schedule_of_one_dialect_is_a_paused_one_after_it_was_paused(block: bytes, dialect: Dialect) -> None:
    before = read(block, served=(dialect,))
    after = read(paused_block(block, dialect), served=(dialect,))
    if before is not None and before.definition is not None and before.cancels is None:
        assert after == Reading(paused=Paused(dialect, before.definition))


def test_what_cancels_another_schedule_is_no_paused_one_because_it_leaves_alive_what_it_lands_on() -> None:
    cancel = [("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")]
    assert read(block_of(*PAUSED, *cancel)) == Reading(cancels="orders.s2")
    reading = meaning(read(block_of(*PAUSED, cancel[0])))
    assert reading.rejection is not None


def test_what_would_be_rejected_when_it_is_resumed_is_paused_all_the_same() -> None:
    for name, value, code, header in (
        ("Nats-Schedule-X-Paused", "@often", 10189, "Nats-Schedule"),
        ("Nats-Schedule-Target", SUBJECT, 10190, "Nats-Schedule-Target"),
        ("Nats-Schedule-Time-Zone", "Mars/Olympus", 10223, "Nats-Schedule-Time-Zone"),
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


def test_a_schedule_with_both_headers_is_rejected_with_a_sentence_that_says_how_to_pause() -> None:
    extra = ("Nats-Schedule-X-Paused", "true")
    for block in (block_of(extra, *ACTIVE), block_of(*ACTIVE, extra)):
        assert read_paused(block, SUBJECT, RULES, DIALECTS, STORED_AT) is None
        reading = meaning(read(block))
        assert reading.paused is None
        assert str(reading.rejection) == (
            "Nats-Schedule-X-Paused of 'true' is no policy: a paused schedule has its pattern in this header, and no"
            " Nats-Schedule (a rule of nats-scheduler, not of the server)"
        )


def test_a_faulty_schedule_with_both_headers_is_rejected_for_its_fault_and_a_server_fires_it() -> None:
    reading = meaning(read(block_of(("Nats-Schedule", "@often"), *PAUSED)))
    assert reading.rejection is not None
    assert reading.rejection.code == 10189
    native = StreamRules("ORDERS", ("orders.>",), allow_msg_ttl=True, has_policies=False)
    reading = meaning(read(block_of(*ACTIVE, ("Nats-Schedule-X-Paused", "true")), native, (ADR51,)))
    assert reading.definition is not None
    assert reading.paused is None


def test_an_active_schedule_in_a_served_dialect_is_not_paused_by_the_other_one() -> None:
    block = block_of(("Nats-Schedule-X-Paused", "@daily"), *portable(ACTIVE))
    reading = meaning(read(block))
    assert reading.definition is not None
    assert reading.paused is None
    assert (paused := read_paused(block, SUBJECT, RULES, (ADR51,), STORED_AT)) is not None
    assert paused.dialect is ADR51


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


def test_a_misnamed_header_of_a_paused_schedule_is_reported() -> None:
    for name in ("Nats-Schedule-Timezone", "Nats-Schedul"):
        reader = MessageReader(RULES, DIALECTS)
        reader.read(StoredMessage(SUBJECT, 1, STORED_AT, block_of(*PAUSED, (name, "UTC")), None))
        assert [one.header for one in reader.misnamed] == [name]
    assert misnamed_headers(block_of(*PAUSED), DIALECTS, is_schedule=False) == ()


def test_definitions_that_are_paused_share_their_terms_with_those_that_are_active() -> None:
    reader = MessageReader(RULES, DIALECTS)
    active, paused = (reader.read(StoredMessage(SUBJECT, 1, STORED_AT, block_of(*h), None)) for h in (ACTIVE, PAUSED))
    assert active is not None
    assert active.definition is not None
    assert paused is not None
    assert paused.paused is not None
    assert isinstance(paused.paused.resumed, Definition)
    assert paused.paused.resumed.terms is active.definition.terms
