"""A generated message carries the headers that the server would have given it, byte for byte."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.definition import Definition, read_definition
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.effective_headers import are_effective
from nats_scheduler.message.generated import (
    REPORT_NAMES,
    as_stored_natively,
    fire_block,
    generated_block,
    guard_headers,
    identity_header,
    is_generated_by,
    plain_fire_block,
    report_headers,
)
from nats_scheduler.message.headers import EMPTY_BLOCK, header_items, header_value
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.reading import Generated, Reading, read_message
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.testing.manual_clock import START
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.message.blocks import odd_blocks
from tests.message.recorded import GENERATED, PURGED

RULES = StreamRules("T", ("t.>",), allow_msg_ttl=True)
NEXT = 1_795_181_379_000_000_000


def definition(block: bytes, dialect: Dialect = ADR51) -> Definition:
    """Read a block that holds a schedule."""
    found = read_definition(block, "t.s", RULES, dialect, 0)
    assert isinstance(found, Definition)
    return found


def scheduled(pattern: str = "@every 1s", dialect: Dialect = ADR51, zone: str | None = None) -> Definition:
    """Make the definition of a schedule for `t.o`."""
    items = [(dialect.schedule, pattern.encode()), (dialect.target, b"t.o")]
    if zone is not None:
        items.append((dialect.time_zone, zone.encode()))
    return definition(block_of(*items), dialect)


def test_the_block_is_the_one_that_the_server_generated() -> None:
    for name, (schedule, source, generated) in GENERATED.items():
        base = schedule if source is None else source
        assert generated_block(base, *definition(schedule), "t.s", None) == generated, name
    once = scheduled("@at 2020-01-01T00:00:00Z")
    assert generated_block(None, *once, "t.s", None) == b"NATS/1.0\r\n" + PURGED
    assert generated_block(None, *once, "t.\udcff", None) == (b"NATS/1.0\r\n" + PURGED).replace(b"t.s", b"t.\xff")


def test_the_next_fire_is_printed_as_the_server_prints_it() -> None:
    for pattern, zone, fire, printed in (
        ("@every 1s", None, NEXT + 500_000_000, b"2026-11-20T13:29:39.5Z"),
        ("@daily", "UTC", NEXT, b"2026-11-20T13:29:39Z"),
        ("@daily", "Europe/Berlin", NEXT, b"2026-11-20T14:29:39+01:00"),
        ("@every 1s", None, None, b"purge"),
    ):
        block = generated_block(EMPTY_BLOCK, *scheduled(pattern, zone=zone), "t.s", fire)
        assert header_items(block) == [(b"Nats-Scheduler", b"t.s"), (b"Nats-Schedule-Next", printed)]


def test_a_portable_schedule_generates_portable_headers() -> None:
    block = block_of(
        ("X-Nats-Schedule", "@at 2020-01-01T00:00:00Z"),
        ("X-Nats-Schedule-Target", "t.o"),
        ("X-Nats-Schedule-TTL", "5s"),
        ("X-Nats-Schedule-Rollup", "sub"),
        ("Nats-TTL", "1h"),
        ("A", "b"),
    )
    assert generated_block(block, *definition(block, PORTABLE), "t.s", None) == (
        b"NATS/1.0\r\nA: b\r\nX-Nats-Scheduler: t.s\r\nX-Nats-Schedule-Next: purge\r\n"
        b"Nats-TTL: 5s\r\nNats-Rollup: sub\r\n\r\n"
    )


def test_a_portable_fire_carries_no_header_that_a_server_obeys() -> None:
    source = block_of(
        ("Nats-Schedule", "@daily"),
        ("Nats-Schedule-Next", "purge"),
        ("X-Nats-Schedule", "@daily"),
        ("Nats-Stream-Source", "ORIGIN 1 > > >"),
        ("Nats-Batch-Id", "b"),
        ("Nats-Batch-Sequence", "1"),
        ("Nats-Batch-Commit", "1"),
        ("Nats-Expected-Stream", "OTHER"),
        ("Nats-Incr", "+1"),
        ("A", "b"),
    )
    block = generated_block(source, *scheduled("@at 2020-01-01T00:00:00Z", PORTABLE), "t.s", None)
    assert header_items(block) == [(b"A", b"b"), (b"X-Nats-Scheduler", b"t.s"), (b"X-Nats-Schedule-Next", b"purge")]


def test_a_header_is_hidden_only_where_the_native_scheduler_hides_it() -> None:
    for value, ttl, rollup in (
        ("nothing", b"5s", b"sub"),
        ("Nats-TTL: 1h", b"5s", b"sub"),
        ("Nats-Rollup: all", b"5s", b"sub"),
        ("Nats-TTLNats-TTL", None, b"sub"),
        ("Nats-RollupNats-Rollup", b"5s", None),
    ):
        block = block_of(
            ("Nats-Schedule", "@every 1s"),
            ("Nats-Schedule-Target", "t.o"),
            ("Nats-Schedule-TTL", "5s"),
            ("Nats-Schedule-Rollup", "sub"),
            ("A", value),
        )
        fired = fire_block(block, *definition(block), "t.s", NEXT, [identity_header("7:t.s")])
        assert fired is not None, value
        assert sorted(header_items(fired)) == [
            (b"A", value.encode()),
            (b"Nats-Msg-Id", b"7:t.s"),
            (b"Nats-Rollup", b"sub"),
            (b"Nats-Schedule-Next", b"2026-11-20T13:29:39Z"),
            (b"Nats-Scheduler", b"t.s"),
            (b"Nats-TTL", b"5s"),
        ]
        assert (header_value(fired, b"Nats-TTL"), header_value(fired, b"Nats-Rollup")) == (ttl, rollup)
        assert are_effective(fired, [(b"Nats-TTL", b"5s")]) is (ttl is not None)
        assert are_effective(fired, [(b"Nats-Rollup", b"sub")]) is (rollup is not None)


def test_a_schedule_that_ends_in_a_bare_line_feed_keeps_the_rollup() -> None:
    block = b"NATS/1.0\r\nNats-Schedule: @daily\r\nNats-Schedule-Target: t.o\r\nB: c\nNats-Schedule-Foo: last\r\n\r\n"
    rolling = block.replace(b"B: c", b"Nats-Rollup: SUB\r\nB: c")
    assert as_stored_natively(rolling) == rolling, "a server appends no second one"
    stripped = b"NATS/1.0\r\nB: c\n"
    assert generated_block(as_stored_natively(block), *scheduled(), "t.s", None) == (
        stripped + b"Nats-Rollup: sub\r\n" + PURGED
    )


only_of_a_schedule = st.lists(
    st.tuples(
        st.sampled_from([b"", b"-Target", b"r", b": @at ", b"-Source: x\n", b"-TTL:\rNats-Msg-Id: 7"]),
        st.sampled_from([b": a.b", b":", b"", b": Nats-TTL: 5s", b": \r\nNats-Expected-Stream: S", b"\n"]),
    ),
    max_size=4,
).map(lambda rows: b"NATS/1.0\r\n%b\r\n" % b"".join(b"Nats-Schedule%b%b\r\n" % row for row in rows))


def test_its_schedule_does_not_wait_for_a_fire_that_was_requested() -> None:
    names = ("Nats-Scheduler", "t.s"), ("Nats-Schedule-Next", "purge")
    for identity, is_awaited in (
        (beside_identity("t.s", 7, 5), False),
        (fire_identity("t.s", 7, 5), True),
        ("7", True),
    ):
        assert is_generated_by(block_of(*names, ("Nats-Msg-Id", identity)), "t.s") is is_awaited, identity
    assert is_generated_by(block_of(*names), "t.s")
    assert not is_generated_by(block_of(("A", "t.s")), "t.s")
    assert not is_generated_by(None, "t.s")


def test_a_subject_that_is_not_utf_8_is_named_byte_for_byte() -> None:
    ours = identity_header(fire_identity("t.\udcff", 7, 5)), *guard_headers("t.\udcff", 7)
    block = fire_block(None, *scheduled(), "t.\udcff", None, ours)
    assert header_items(block) == [
        *((b"Nats-Scheduler", b"t.\xff"), (b"Nats-Schedule-Next", b"purge")),
        (b"Nats-Msg-Id", b"nats-scheduler:7:5:t.\xff"),
        (b"Nats-Expected-Last-Subject-Sequence", b"7"),
        (b"Nats-Expected-Last-Subject-Sequence-Subject", b"t.\xff"),
    ]
    assert is_generated_by(block, "t.\udcff")
    assert read_message(block, "t.o", START, RULES, DIALECTS) == Reading(generated=Generated("t.\udcff", 7, 5))


def plainly(found: Definition, base: bytes, schedule: str, next_fire: int | None = NEXT) -> bytes | None:
    """Return the block of a fire if it is built without a search, and require that it is the one with a search."""
    named = found.pattern, found.terms, schedule, next_fire
    plain = plain_fire_block(base, *named, f"nats-scheduler:7:5:{schedule}", 9)
    if plain is not None:
        ours = [identity_header(f"nats-scheduler:7:5:{schedule}"), *guard_headers(schedule, 9)]
        assert plain == fire_block(as_stored_natively(base), *named, ours)
    return plain


def test_only_the_fire_of_most_schedules_is_built_without_a_search() -> None:
    for dialect in DIALECTS:
        base = block_of((dialect.schedule, b"@every 1s"), (dialect.target, b"t.o"))
        for next_fire in (None, NEXT):
            assert plainly(scheduled(dialect=dialect), base, "t.s", next_fire) is not None
    base = block_of((b"Nats-Schedule", b"@every 1s"), (b"Nats-Schedule-Target", b"t.o"), (b"Own", b"1"))
    assert plainly(definition(base), base, "t.s") is None


@settings(max_examples=draws(40))
@given(odd_blocks | only_of_a_schedule, st.sampled_from(DIALECTS), st.text(max_size=12))
def test_both_ways_to_build_a_fire_give_the_same_bytes(base: bytes, dialect: Dialect, schedule: str) -> None:
    found = scheduled(dialect=dialect)
    named = block_of((dialect.schedule, b"@every 1s"), (dialect.target, b"t.o"))
    for block in (base, named, named[:-2] + base[10:]):
        plainly(found, block, f"t.{schedule}".encode("utf-8", "replace").decode())


def test_a_report_writes_times_as_those_of_the_next_fire() -> None:
    for text, zone, due, previous in (
        ("@every 1h", None, b"2026-01-01T02:00:00Z", b"2026-01-01T01:00:00Z"),
        ("0 0 * * * *", "Asia/Kathmandu", b"2026-01-01T07:45:00+05:45", b"2026-01-01T06:45:00+05:45"),
    ):
        found = report_headers(scheduled(text, zone=zone).pattern, START + 2 * HOUR, START + HOUR, 7)
        assert found == list(zip(REPORT_NAMES, (due, previous, b"7"), strict=True))
    first = report_headers(scheduled("@every 1h").pattern, START + HOUR, None, 0)
    assert first == [(b"X-Nats-Schedule-X-Due", b"2026-01-01T01:00:00Z"), (b"X-Nats-Schedule-X-Missed", b"0")]
