"""A stored message is an ordinary one, a schedule, a fire of a sidecar, a cancel, or rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition, Terms
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.generated import generated_block
from nats_scheduler.message.headers import EMPTY_BLOCK, header_value
from nats_scheduler.message.reading import Generated, Reading, read_message
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import parse_pattern
from tests.harness.blocks import block_of, with_identity
from tests.message.blocks import odd_blocks
from tests.message.recorded import AT, schedule

RULES = StreamRules("ORDERS", ("orders.>", "sample.*"), allow_msg_ttl=True)
STORED_AT = 1_790_000_000_000_000_000
IDENTITY = ("Nats-Msg-Id", "nats-scheduler:7:5:orders.s2")


def read(*headers: tuple[str, str]) -> Reading | None:
    """Read a message on `orders.s1` with these headers, both dialects served."""
    return read_message(block_of(*headers), "orders.s1", STORED_AT, RULES, DIALECTS)


@pytest.mark.parametrize("block", [None, b"", EMPTY_BLOCK, b"xx", block_of(("A", "b"), ("Nats-Msg-Id", "c"))])
def test_an_ordinary_message_means_nothing(block: bytes | None) -> None:
    assert read_message(block, "orders.s1", STORED_AT, RULES, DIALECTS) is None


def test_a_look_alike_means_nothing() -> None:
    assert read(("nats-schedule", "@daily"), ("A", "Nats-Schedule: @daily"), ("Nats-Schedule-Target", "x y")) is None


def test_a_schedule_is_defined_in_the_dialect_that_carries_it() -> None:
    for dialect in DIALECTS:
        block = block_of((dialect.schedule, AT.encode()), (dialect.target, b"orders.due"))
        reading = read_message(block, "orders.s1", STORED_AT, RULES, DIALECTS)
        assert reading is not None
        assert isinstance(reading.definition, Definition)
        assert reading.definition.terms.dialect is dialect


def test_the_first_dialect_with_a_schedule_decides() -> None:
    both = block_of(
        ("X-Nats-Schedule", "rubbish"),
        ("X-Nats-Scheduler", "orders.s2"),
        ("Nats-Schedule", AT),
        ("Nats-Schedule-Target", "orders.due"),
    )
    native_first = read_message(both, "orders.s1", STORED_AT, RULES, [ADR51, PORTABLE])
    assert native_first is not None
    assert native_first.definition is not None
    portable_first = read_message(both, "orders.s1", STORED_AT, RULES, [PORTABLE, ADR51])
    assert portable_first is not None
    assert portable_first.rejection is not None
    assert portable_first.rejection.code == 10189


def test_a_dialect_that_is_not_served_is_not_read() -> None:
    block = block_of(*schedule("rubbish"))
    assert read_message(block, "orders.s1", STORED_AT, RULES, [PORTABLE]) is None
    assert read_message(block, "orders.s1", STORED_AT, RULES, []) is None


def test_an_empty_schedule_leaves_the_word_to_the_other_dialect() -> None:
    reading = read(("Nats-Schedule", ""), ("X-Nats-Schedule", AT), ("X-Nats-Schedule-Target", "orders.due"))
    assert reading is not None
    assert reading.definition is not None
    assert reading.definition.terms.dialect is PORTABLE


def test_a_message_that_names_a_schedule_and_says_purge_cancels_it() -> None:
    cancel = Reading(cancels="orders.s2")
    assert read(("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")) == cancel
    assert read(("X-Nats-Schedule-Next", "purge"), ("X-Nats-Scheduler", "orders.s2"), ("A", "b")) == cancel


def test_a_schedule_may_cancel_another_one() -> None:
    reading = read(*schedule(scheduler="orders.s2", next="purge"))
    assert reading is not None
    assert reading.definition is not None
    assert reading.cancels == "orders.s2"


def test_a_faulty_cancel_spoils_the_schedule_that_carries_it() -> None:
    reading = read(*schedule(scheduler="orders.s2"))
    assert reading is not None
    assert reading.definition is None
    assert str(reading.rejection) == (
        "Nats-Scheduler of 'orders.s2' is without Nats-Schedule-Next: expected 'purge' there, or neither"
        " (server code 10212)"
    )


@pytest.mark.parametrize(
    ("scheduler", "following", "sentence"),
    [
        (
            "orders.s2",
            "2030-01-01T00:00:00Z",
            "Nats-Schedule-Next of '2030-01-01T00:00:00Z' is not 'purge', the only value that a client may set",
        ),
        ("", "purge", "Nats-Scheduler of '' is missing or empty: expected the subject of the schedule that ends"),
        (
            "orders.*",
            "purge",
            "Nats-Scheduler of 'orders.*' is not a literal subject such as 'orders.due': no wildcards, blanks or "
            "empty tokens",
        ),
        (
            "orders.s1",
            "purge",
            "Nats-Scheduler of 'orders.s1' is the subject of the message itself: a schedule ends another one",
        ),
    ],
)
def test_a_faulty_cancel_says_what_was_expected(scheduler: str, following: str, sentence: str) -> None:
    reading = read(("Nats-Scheduler", scheduler), ("Nats-Schedule-Next", following))
    assert reading is not None
    assert str(reading.rejection) == f"{sentence} (server code 10212)"


def test_a_cancel_on_a_stream_without_schedules_names_the_stream() -> None:
    block = block_of(("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge"))
    off = StreamRules("ORDERS", ("orders.>",), schedules_enabled=False)
    reading = read_message(block, "orders.s1", STORED_AT, off, DIALECTS)
    assert reading is not None
    assert str(reading.rejection) == (
        "Nats-Scheduler of 'orders.s2' is on stream 'ORDERS', which has no schedules: set allow_msg_schedules "
        "(server code 10188)"
    )


@pytest.mark.clause("storage-ttl")
def test_the_ttl_of_the_schedule_itself_is_judged_first_or_last() -> None:
    """A server of 2.10 ignores it; the server's other rejections are in `recorded`."""
    without = StreamRules("ORDERS", ("orders.>",))
    block = block_of(*schedule("rubbish", storage_ttl="5m"))
    first = read_message(block, "orders.s1", STORED_AT, without, DIALECTS)
    assert first is not None
    assert str(first.rejection) == (
        "Nats-TTL of '5m' is on stream 'ORDERS', which has no message TTLs: set allow_msg_ttl (server code 10166)"
    )
    last = read(*schedule(storage_ttl="soon"))
    assert last is not None
    assert str(last.rejection) == ("Nats-TTL of 'soon' is not a duration such as '5m' or 'never' (server code 10165)")
    assert read(("Nats-TTL", "soon"), ("Nats-Schedule-Target", "orders.due")) is None, "no schedule, no judgement"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_fire_of_ours_is_told_by_its_identity(dialect: Dialect) -> None:
    prefix = "" if dialect is ADR51 else "X-"
    headers = ((prefix + "Nats-Scheduler", "orders.s2"), (prefix + "Nats-Schedule-Next", "purge"), IDENTITY)
    assert read(*headers) == Reading(generated=Generated("orders.s2", 7, 5))


def test_a_fire_of_ours_counts_whichever_dialect_is_served_now() -> None:
    block = block_of(("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge"), IDENTITY)
    reading = read_message(block, "orders.due", STORED_AT, RULES, [PORTABLE])
    assert reading == Reading(generated=Generated("orders.s2", 7, 5))


def test_a_fire_of_ours_is_neither_a_schedule_nor_a_cancel() -> None:
    reading = read(*schedule(scheduler="orders.s2", next="purge"), IDENTITY)
    assert reading == Reading(generated=Generated("orders.s2", 7, 5))


def test_an_identity_that_names_another_schedule_is_not_believed() -> None:
    reading = read(("Nats-Scheduler", "orders.s3"), ("Nats-Schedule-Next", "purge"), IDENTITY)
    assert reading == Reading(cancels="orders.s3")


def test_an_identity_without_a_scheduler_is_not_believed() -> None:
    reading = read(*schedule(), IDENTITY)
    assert reading is not None
    assert reading.definition is not None


@given(odd_blocks, st.text(max_size=10), st.sampled_from([(), (ADR51,), (PORTABLE,), DIALECTS]))
def test_no_bytes_and_no_subject_are_wrong_enough_to_raise(
    block: bytes, subject: str, dialects: tuple[Dialect, ...]
) -> None:
    reading = read_message(block, subject, STORED_AT, RULES, dialects)
    assert reading is None or reading != Reading()


def test_a_fire_is_known_though_its_sample_ended_in_a_bare_line_feed() -> None:
    pattern = parse_pattern("@every 5m")
    assert not isinstance(pattern, Invalid | None)
    terms = Terms(ADR51, "orders.due", "sample.a", "", False)
    sample = b"NATS/1.0\r\nUnit: C\nNats-Scheduled: no\r\n\r\n"
    fire = with_identity(generated_block(sample, pattern, terms, "orders.s2", None), "nats-scheduler:7:5:orders.s2")
    assert header_value(fire, b"Nats-Scheduler") is None
    reading = read_message(fire, "orders.due", STORED_AT, RULES, [ADR51])
    assert reading == Reading(generated=Generated("orders.s2", 7, 5))
