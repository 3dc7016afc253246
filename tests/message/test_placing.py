"""The search of every release finds the headers that the server acts on, whatever headers are before them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.headers import Header, with_effective_headers, with_headers
from tests.harness.blocks import block_of
from tests.message import reference

IDENTITY = b"Nats-Msg-Id"
SEQUENCE = b"Nats-Expected-Last-Subject-Sequence"
SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
NAMES = (IDENTITY, SEQUENCE, SUBJECT)


def ours_for(schedule: bytes) -> list[Header]:
    return [(IDENTITY, b"nats-scheduler:7:5:" + schedule), (SEQUENCE, b"7"), (SUBJECT, schedule)]


def first_only(key: bytes, block: bytes) -> bytes | None:
    """Search as 2.10 does, and 2.11 up to 2.11.4."""
    at = block.find(key)
    is_header = at >= 2 and block[at - 2 : at] == b"\r\n" and block[at + len(key) : at + len(key) + 1] == b":"
    return reference.slice_header(key, block[at - 2 :]) if is_header else None


def first_with_a_colon(key: bytes, block: bytes) -> bytes | None:
    """Search as 2.11.8 does."""
    at = block.find(key + b":")
    return reference.slice_header(key, block[at - 2 :]) if at >= 2 and block[at - 2 : at] == b"\r\n" else None


SEARCHES = (first_only, first_with_a_colon, reference.slice_header)

shards = st.lists(
    st.sampled_from([*NAMES, b"Orig-", b"X-", b" ", b":", b": ", b"\r\n", b"\n", b"7", b"x"]), max_size=7
).map(b"".join)
bases = st.tuples(st.sampled_from([b"NATS/1.0\r\n", b"NATS/1.0 \r\n", b""]), shards, shards).map(
    lambda parts: parts[0] + b"A: " + parts[1] + b"\r\n" + parts[2] + b"\r\n"
)
schedules = st.lists(st.sampled_from([b"orders", *NAMES]), min_size=1, max_size=4).map(b".".join)


@given(bases, schedules)
def test_every_search_finds_what_was_placed(base: bytes, schedule: bytes) -> None:
    ours = ours_for(schedule)
    base += b"Nats-Scheduler: %b\r\n\r\n" % schedule
    block = with_effective_headers(base, ours)
    if block is None:
        assert any(name in base.split(b"\r\n")[0] for name in NAMES) or schedule.count(b"Nats-") > 1
        return
    for search in SEARCHES:
        assert [(name, search(name, block)) for name, _value in ours] == ours
    assert sorted(block.split(b"\r\n")) == sorted(with_headers(base, ours).split(b"\r\n"))


@given(st.lists(st.tuples(st.sampled_from([b"A", b"Trace-Id"]), st.sampled_from([b"b", b"", b"Nats-Msg"]))))
def test_ours_come_last_where_nothing_hides_them(headers: list[tuple[bytes, bytes]]) -> None:
    base = block_of(*headers)
    assert with_effective_headers(base, ours_for(b"orders.s")) == with_headers(base, ours_for(b"orders.s"))


@pytest.mark.parametrize(
    "schedule",
    [b"a.Nats-Msg-Id", b"a.Nats-Msg-IdNats-Msg-Id", b"a." + SEQUENCE, b"a." + SUBJECT, b"Nats-Msg-Id." + SEQUENCE],
)
def test_a_schedule_called_like_a_header_fires_all_the_same(schedule: bytes) -> None:
    base = block_of(("Nats-Scheduler", schedule))
    assert with_effective_headers(base, ours_for(schedule)) is not None


def test_what_no_order_uncovers_is_not_placed_at_all() -> None:
    schedule = b"Nats-Msg-Id." + SUBJECT
    assert with_effective_headers(block_of(("Nats-Scheduler", schedule)), ours_for(schedule)) is None
