"""A fire's identity is written and parsed without loss, and no other text is parsed as one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.identity import (
    beside_identity,
    fire_identity,
    number_after,
    parse_beside,
    parse_identity,
)
from tests.harness.seeds import draws


def test_an_identity_names_sequence_time_and_schedule() -> None:
    assert fire_identity("orders.s1", 7, 1_790_000_000_000_000_000) == (
        "nats-scheduler:7:1790000000000000000:orders.s1"
    )


@settings(max_examples=draws(50))
@given(st.text(min_size=1), st.integers(0, 2**64 - 1), st.integers(-(10**24), 10**24), st.integers(1, 2**64 - 1))
def test_an_identity_is_read_back_and_is_that_of_one_fire(
    schedule: str, sequence: int, fire_time: int, taken: int
) -> None:
    fire = schedule, sequence, fire_time
    usual, again, requested = fire_identity(*fire), fire_identity(*fire, taken), beside_identity(*fire)
    assert (parse_identity(usual), parse_identity(again), parse_beside(requested)) == (fire, fire, fire)
    assert usual != again, "the first one was taken: it is another one of the same fire"
    assert (parse_identity(requested), parse_beside(usual)) == (None, None)


def test_a_number_follows_that_of_the_message_with_the_identity() -> None:
    assert number_after(0, 23, 64) == 64
    assert number_after(0, 23, 7) == 7
    assert number_after(0, 23) == 23
    assert number_after(23, 23) == 24
    assert number_after(23, 23, 64) == 64


FOREIGN = [
    *("", "x", "nats-scheduler", "nats-scheduler:1:2:", "nats-scheduler:1:2", "nats-scheduler:01:2:s"),
    *("nats-scheduler:1/:2:s", "nats-scheduler:1/0:2:s", "nats-scheduler:1/2/3:2:s", "nats-scheduler:1:02:s"),
    *("nats-scheduler:1:-0:s", "nats-scheduler:-1:2:s", "nats-scheduler:+1:2:s", "nats-scheduler: 1:2:s"),
    *("nats-scheduler:1:2.0:s", "nats-scheduler:1_0:2:s", "nats-scheduler:١:2:s", "Nats-Scheduler:1:2:s"),
    *(" nats-scheduler:1:2:s", f"nats-scheduler:{'9' * 60_000}:1:s", f"nats-scheduler:1:{'9' * 60_000}:s"),
]


def test_a_foreign_message_id_is_no_identity() -> None:
    assert [text for text in FOREIGN if parse_identity(text) is not None] == []
