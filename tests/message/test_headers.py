"""Headers are read and changed as the server does it, byte for byte."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.dialect import DIALECTS, Dialect, schedule_fields
from nats_scheduler.message.effective_headers import with_effective_headers
from nats_scheduler.message.headers import (
    EMPTY_BLOCK,
    Header,
    header_items,
    header_value,
    with_header,
    with_headers,
    without_headers,
    without_status,
)
from tests.harness.blocks import block_of
from tests.harness.seeds import draws
from tests.message import reference
from tests.message.blocks import NAMES, odd_blocks

names = st.sampled_from(NAMES)


VALUES = {
    b"Name: value": b"value",
    b"Name:value": b"value",
    b"Name:    value": b"value",
    b"Name: value \t": b"value \t",
    b"Name:\tvalue": b"\tvalue",
    b"Name:": b"",
    b"Name:   ": b"",
    b"Name: \xff\xfe": b"\xff\xfe",
    b"Name: a\rb\nc": b"a\rb\nc",
    b"name: value": None,
    b"Name : value": None,
    b" Name: value": None,
    b"Name": None,
    b"XName: value": None,
    b"Name-More: value": None,
    b"Other: Name: value": None,
    b"XName: no\r\nName:value": b"value",
    b"Name: Xylophone": b"Xylophone",
    b"Name: first\r\nName: second": b"first",
}


def test_a_value_is_found_as_the_server_finds_it() -> None:
    blocks = {line: b"NATS/1.0\r\nA: b\r\n" + line + b"\r\nC: d\r\n\r\n" for line in VALUES}
    assert {line: header_value(block, b"Name") for line, block in blocks.items()} == VALUES


def test_a_doubled_look_alike_hides_the_header_behind_it() -> None:
    hidden = b"NATS/1.0\r\nA: NameName\r\nName: value\r\n\r\n"
    apart = b"NATS/1.0\r\nA: Name..Name\r\nName: value\r\n\r\n"
    assert header_value(hidden, b"Name") is None
    assert without_headers(hidden, [b"Name"]) == hidden
    assert header_value(apart, b"Name") == b"value"


def test_a_name_that_the_block_starts_with_is_never_found() -> None:
    block = b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert header_value(block, b"A") is None
    assert without_headers(block, [b"A"]) == block


def test_a_header_is_appended_at_the_end() -> None:
    appended = with_header(block_of(("A", "1"), ("B", "2")), b"A", b"3")
    assert appended == b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n"
    for block in (None, b"", b"x", b"xx", EMPTY_BLOCK):
        assert with_header(block, b"A", b"1") == b"NATS/1.0\r\nA: 1\r\n\r\n"


def test_an_appended_value_cannot_start_another_header() -> None:
    block = with_header(None, b"A", b" \t1\r\nB: 2\n ")
    assert block == b"NATS/1.0\r\nA: 1  B: 2\r\n\r\n"


def test_every_occurrence_is_removed_and_the_rest_stays() -> None:
    block = b"NATS/1.0\r\nKey: 1\r\nA:  x \r\nKey:\r\nKey: 2\r\nkey: 3\r\nA: y\r\nKeys: 4\r\nKey: 5\r\n\r\n"
    assert without_headers(block, [b"Key"]) == b"NATS/1.0\r\nA:  x \r\nkey: 3\r\nA: y\r\nKeys: 4\r\n\r\n"
    assert without_headers(block, (), [b"Key"]) == b"NATS/1.0\r\nA:  x \r\nkey: 3\r\nA: y\r\n\r\n"
    assert without_headers(block_of(("Key", "1"), ("Other", "2")), [b"Key"], [b"Oth"]) == b""
    assert without_headers(EMPTY_BLOCK, [b"Key"], [b"Oth"]) == EMPTY_BLOCK


def test_a_prefix_behind_a_bare_line_feed_is_stripped_too() -> None:
    block = b"NATS/1.0\r\nA: b\nName-x: 1\r\nC: d\nName: 2\r\n\r\n"
    assert without_headers(block, [b"Name"]) == block
    assert without_headers(block, (), [b"Name-"]) == b"NATS/1.0\r\nA: b\nC: d\nName: 2\r\n\r\n"
    assert without_headers(b"\nName-x: 1\r\nA: some text\r\n\r\n", (), [b"Name-"]) == b"\nA: some text\r\n\r\n"


def test_an_inline_status_is_dropped_as_a_newer_server_drops_it() -> None:
    kept = {
        b"NATS/1.0 503 busy\r\nA: b\r\n\r\n": b"NATS/1.0\r\nA: b\r\n\r\n",
        b"NATS/1.0abc\r\nA: b\r\n\r\n": b"NATS/1.0\r\nA: b\r\n\r\n",
        b"NATS/1.0 503\r\n\r\n": b"",
        b"NATS/1.0\r\n\r\n": b"NATS/1.0\r\n\r\n",
        b"A: b\r\n\r\n": b"A: b\r\n\r\n",
        b"NATS/1.0": b"NATS/1.0",
        b"": b"",
    }
    assert {stored: without_status(stored) for stored in kept} == kept


@settings(max_examples=draws(60))
@given(odd_blocks, names)
def test_values_agree_with_the_server_on_any_bytes(block: bytes, name: bytes) -> None:
    assert header_value(block, name) == reference.slice_header(name, block)
    assert isinstance(header_items(block), list)
    assert with_header(block, b"A", b"1").endswith(b"A: 1\r\n\r\n")


@settings(max_examples=draws(40))
@given(odd_blocks, st.lists(names, max_size=3), st.lists(names, max_size=3))
def test_removals_agree_with_the_server_on_any_bytes(block: bytes, removed: list[bytes], prefixes: list[bytes]) -> None:
    left = reference.remove_status(block)
    for prefix in prefixes:
        left = reference.remove_if_prefix_present(left, prefix)
    for name in removed:
        left = reference.remove_if_present(left, name)
    assert without_headers(block, removed, prefixes) == left


@settings(max_examples=draws(40))
@given(odd_blocks, st.sampled_from(DIALECTS))
def test_one_pass_finds_what_the_search_by_name_finds(block: bytes, dialect: Dialect) -> None:
    fields = schedule_fields(block, dialect)
    by_name = {name: header_value(block, name) for name in dialect.names}
    assert {name: fields[name] for name in dialect.names if name in fields} == {
        name: value.decode("utf-8", "surrogateescape") for name, value in by_name.items() if value is not None
    }


# -- where headers are placed so that the search of every release finds them ---------------------------------------

IDENTITY = b"Nats-Msg-Id"
SEQUENCE = b"Nats-Expected-Last-Subject-Sequence"
GUARD_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
PLACED = (IDENTITY, SEQUENCE, GUARD_SUBJECT)


def ours_for(schedule: bytes) -> list[Header]:
    return [(IDENTITY, b"nats-scheduler:7:5:" + schedule), (SEQUENCE, b"7"), (GUARD_SUBJECT, schedule)]


pieces = st.lists(
    st.sampled_from([*PLACED, b"Orig-", b"X-", b" ", b":", b": ", b"\r\n", b"\n", b"7", b"x"]), max_size=7
).map(b"".join)
bases = st.tuples(st.sampled_from([b"NATS/1.0\r\n", b"NATS/1.0 \r\n", b""]), pieces, pieces).map(
    lambda parts: parts[0] + b"A: " + parts[1] + b"\r\n" + parts[2] + b"\r\n"
)
schedules = st.lists(st.sampled_from([b"orders", *PLACED]), min_size=1, max_size=4).map(b".".join)


@settings(max_examples=draws(60))
@given(bases, schedules)
def test_every_search_finds_what_was_placed(base: bytes, schedule: bytes) -> None:
    ours = ours_for(schedule)
    base += b"Nats-Scheduler: %b\r\n\r\n" % schedule
    block = with_effective_headers(base, ours)
    if block is None:
        assert any(name in base.split(b"\r\n")[0] for name in PLACED) or schedule.count(b"Nats-") > 1
        return
    for search in reference.SEARCHES:
        found = [(name, search(name, block)) for name, _value in ours]
        assert [(name, reference.slice_header(name, block[at - 2 :])) for name, at in found if at >= 2] == ours
    assert sorted(block.split(b"\r\n")) == sorted(with_headers(base, ours).split(b"\r\n"))


def test_a_schedule_called_like_a_header_fires() -> None:
    doubled, guard = b"a.Nats-Msg-IdNats-Msg-Id", b"a." + GUARD_SUBJECT
    for schedule in (b"a.Nats-Msg-Id", doubled, b"a." + SEQUENCE, guard, b"Nats-Msg-Id." + SEQUENCE):
        assert with_effective_headers(block_of(("Nats-Scheduler", schedule)), ours_for(schedule)) is not None
    schedule = b"Nats-Msg-Id." + GUARD_SUBJECT
    assert with_effective_headers(block_of(("Nats-Scheduler", schedule)), ours_for(schedule)) is None
    assert with_effective_headers(b"Nats-Msg-Id: 1\r\n\r\n", ours_for(b"orders.s")) is None, "the first line hides it"
