"""The messages that say the same, and the changes by an edit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.control.errors import NotPossibleError, RejectedError
from nats_scheduler.control.words import edited, is_same, is_same_pattern
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.message.stored import StoredMessage
from tests.harness.blocks import block_of
from tests.harness.seeds import draws


def stored(block: bytes, body: bytes = b"b") -> StoredMessage:
    return StoredMessage("s", 1, 0, block, body)


def test_order_and_publish_headers_make_no_difference() -> None:
    one = block_of(("A", "1"))
    assert is_same(stored(block_of(("A", "1"), ("B", "2"))), block_of(("B", "2"), ("A", "1")), b"b")
    assert not is_same(stored(block_of(("A", "1"), ("A", "2"))), block_of(("A", "2"), ("A", "1")), b"b")
    assert not is_same(stored(block_of(("A", "1"), ("A", "1"))), one, b"b")
    for added in ("Nats-Msg-Id", "Nats-Expected-Stream", "Nats-Expected-Last-Subject-Sequence", "Nats-Batch-Id"):
        assert is_same(stored(block_of(("A", "1"), (added, "x"))), one, b"b")
        assert is_same(stored(one), block_of(("A", "1"), (added, "x")), b"b")
    assert is_same(stored(block_of(("A", "1"), ("Nats-Rollup", "sub"))), one, b"b"), "a server adds it"
    assert not is_same(stored(one), block_of(("A", "1"), ("Nats-Rollup", "sub")), b"b")
    assert not is_same(stored(block_of(("A", "1"), ("Nats-Rollup", "all"))), one, b"b")
    assert not is_same(stored(one, b"other"), one, b"b")
    assert is_same(StoredMessage("s", 1, 0, one, None), one, b"")


def test_headers_that_do_not_count_count_if_both_have_them() -> None:
    anchored = stored(block_of(("A", "1"), ("X", "old")))
    assert is_same(anchored, block_of(("A", "1")), b"b", but_for=(b"X",))
    assert not is_same(anchored, block_of(("A", "1"), ("X", "new")), b"b", but_for=(b"X",))


def test_an_edit_keeps_every_other_line_byte_for_byte() -> None:
    before = b"NATS/1.0\r\nA:1\r\nB:   two \t\r\nC: 3\r\nno colon\r\nB: again\r\n\r\n"
    after = edited(before, Edit(set=[(b"B", b"new"), (b"D", b"4")], unset=[b"C", b"absent"]))
    assert after == b"NATS/1.0\r\nA:1\r\nB: new\r\nno colon\r\nD: 4\r\n\r\n"


def test_what_is_no_header_or_would_not_be_found_is_refused() -> None:
    for before, edit, reason in (
        (block_of(("Z", "1")), Edit(set=[(b"A", b"1\r\nB: 2")]), "line break"),
        (block_of(("Z", "1")), Edit(set=[(b"A:B", b"1")]), "no name"),
        (block_of(("Z", "1")), Edit(set=[(b"", b"1")]), "no name"),
        (block_of(("Z", "1")), Edit(set=[(b"A B", b"1")]), "no name"),
        (block_of(("Z", "1")), Edit(unset=["é".encode()]), "no name"),
        (block_of(("Z", "1")), Edit(set=[(b"A", b"1"), (b"A", b"2")]), "twice"),
        (block_of(("Z", "1")), Edit(set=[(b"A", b"1")], unset=[b"A"]), "one of them"),
    ):
        with pytest.raises(NotPossibleError, match=reason):
            edited(before, edit)


def test_patterns_are_compared_by_what_they_mean() -> None:
    same = {
        (b"@every 1h", b"@every 60m"): True,
        (b"@every 1h", b"@every 1h0m0s"): True,
        (b"@every 1h", b"@every 2h"): False,
        (b"@at 2200-01-01T00:00:00Z", b"@at 2200-01-01T01:00:00+01:00"): True,
        (b"@at 2200-01-01T00:00:00Z", b"@at 2200-01-01T00:00:01Z"): False,
        (b"@daily", b"0 0 0 * * *"): False,
        (b"@daily", b"@daily"): True,
        (b"@every soon", b"@every soon"): True,
        (b"@every soon", b"@every \xff"): False,
        (b"", b"@every 1h"): False,
    }
    assert {pair: is_same_pattern(*pair) for pair in same} == same
    assert {pair: is_same_pattern(*pair[::-1]) for pair in same} == same


NAMES = st.sampled_from([b"Aa", b"B", b"Nats-Schedule", b"X-Long-Name"])
VALUES = st.binary(max_size=8).filter(lambda value: not set(value) & set(b"\r\n")).map(lambda v: v.strip(b" \t"))


@settings(max_examples=draws(40))
@given(st.lists(st.tuples(NAMES, VALUES), max_size=6), st.dictionaries(NAMES, VALUES, max_size=3), st.sets(NAMES))
def test_any_edit_says_what_it_named_and_nothing_else(
    before: list[tuple[bytes, bytes]], new: dict[bytes, bytes], unset: set[bytes]
) -> None:
    unset -= new.keys()
    try:
        after = edited(block_of(*before), Edit(set=list(new.items()), unset=list(unset)))
    except RejectedError:
        return  # a value hides a header
    found = dict(reversed(header_items(after)))
    assert {name: found[name] for name in new} == new
    untouched = [item for item in before if item[0] not in {*new, *unset}]
    assert [item for item in header_items(after) if item[0] not in new] == untouched
