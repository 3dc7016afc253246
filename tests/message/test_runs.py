"""A run is the sequence of its messages, and ordinary only if none of them means anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.reading import misnamed_headers, read_message
from nats_scheduler.message.stored import MessageRun, StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from tests.message.blocks import odd_blocks, proper_blocks

messages = st.builds(
    StoredMessage,
    st.sampled_from(["s.1", "größe.ф", "s.\udcff"]),
    st.integers(1, 10**18),
    st.integers(0, 10**19),
    st.one_of(proper_blocks, odd_blocks),
    st.none(),
)


@given(st.lists(messages, min_size=1, max_size=5))
def test_a_run_is_the_sequence_of_its_messages(given_messages: list[StoredMessage]) -> None:
    run = MessageRun.of(given_messages)
    assert list(run) == given_messages
    assert [run[at] for at in range(len(run))] == given_messages
    assert (run[-1], run[1:]) == (given_messages[-1], given_messages[1:])
    assert all(type(message) is StoredMessage for message in run)


@given(st.lists(messages, min_size=1, max_size=3))
def test_no_message_of_an_ordinary_run_means_anything(given_messages: list[StoredMessage]) -> None:
    rules = StreamRules("ORDERS", ("orders.>",))
    if MessageRun.of(given_messages).is_ordinary:
        for subject, _sequence, stored_at, block, _body in given_messages:
            assert read_message(block, subject, stored_at, rules, DIALECTS) is None
            assert misnamed_headers(block, DIALECTS, is_schedule=False) == ()


@pytest.mark.parametrize("name", [b"Nats-Schedule-Target", b"x-nats-schedule", b"NATS-SCHEDULER"])
def test_one_header_of_a_schedule_is_enough(name: bytes) -> None:
    plain, other = b"NATS/1.0\r\nNats-Msg-Size: 1\r\n\r\n", b"NATS/1.0\r\n%b: x\r\n\r\n" % name
    stored = [StoredMessage("s", number, 1, block, None) for number, block in enumerate([plain, other, plain], 1)]
    assert MessageRun.of([stored[0], stored[2]]).is_ordinary
    assert not MessageRun.of(stored).is_ordinary
