"""`X-Overlap`, `X-Consumer` and `X-Timeout`: which values are accepted, and which policies need which others."""

import pytest

from nats_scheduler.message.definition import Definition, read_definition
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules
from tests.harness.blocks import block_of
from tests.message.test_policies import DAILY, EVERY, STORED_AT, SUBJECT, accepted, rejects


@pytest.mark.parametrize(
    ("pattern", "name", "value", "reason"),
    [
        (EVERY, "X-Overlap", "", "is not what a fire may do: expected one of allow, skip, queue"),
        (EVERY, "X-Overlap", "Skip", "is not what a fire may do"),
        (EVERY, "X-Consumer", "", "is empty: expected the name of a consumer"),
        (EVERY, "X-Consumer", "a.b", "is no name of a consumer"),
        (EVERY, "X-Consumer", "a b", "is no name of a consumer"),
        (EVERY, "X-Consumer", "*", "is no name of a consumer"),
        (EVERY, "X-Consumer", "a\udcff", "is not UTF-8"),
        (EVERY, "X-Consumer", "a/b", "is no name of a consumer"),
        (EVERY, "X-Consumer", "c" * 256, "has 256 characters: expected at most 255"),
        (EVERY, "X-Consumer", "billing", "has no effect without X-Overlap"),
        (EVERY, "X-Timeout", "later", "is not a duration: expected a duration such as"),
        (EVERY, "X-Timeout", "0s", "is not more than 0"),
        (EVERY, "X-Timeout", "1h", "has no effect without X-Overlap"),
    ],
)
def test_what_is_wrong_about_an_overlap_rejects_the_schedule(pattern: str, name: str, value: str, reason: str) -> None:
    rejects(pattern, name, value, reason)


@pytest.mark.parametrize(
    ("retention", "needs_consumer"),
    [
        ({}, True),
        ({"retention": "limits"}, True),
        ({"retention": "workqueue"}, False),
        ({"retention": "interest"}, False),
    ],
)
def test_an_overlap_needs_a_consumer_where_the_stream_keeps_what_was_acknowledged(
    retention: dict[str, str], needs_consumer: bool
) -> None:
    rules = StreamRules.from_config({"name": "ORDERS", "subjects": ["orders.>"], **retention})
    headers = [("Nats-Schedule", EVERY), ("Nats-Schedule-Target", "orders.due"), ("Nats-Schedule-X-Overlap", "skip")]
    found = read_definition(block_of(*headers), SUBJECT, rules, ADR51, STORED_AT)
    if needs_consumer:
        assert isinstance(found, Rejection)
        assert (found.code, found.header, found.value) == (0, "Nats-Schedule-X-Overlap", "skip")
        assert found.reason.startswith("needs X-Consumer on this stream, which keeps what was acknowledged")
    else:
        assert isinstance(found, Definition)
    with_consumer = block_of(*headers, ("Nats-Schedule-X-Consumer", "work-1"))
    assert isinstance(read_definition(with_consumer, SUBJECT, rules, ADR51, STORED_AT), Definition)
    allowed = block_of(*headers[:2], ("Nats-Schedule-X-Overlap", "allow"))
    assert isinstance(read_definition(allowed, SUBJECT, rules, ADR51, STORED_AT), Definition)


def test_an_overlap_changes_no_fire_times() -> None:
    assert accepted(DAILY, ("X-Overlap", "queue"), ("X-Timeout", "1h")).pattern is accepted(DAILY).pattern
