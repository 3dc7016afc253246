"""Schedules that the operator forbids are rejected as the server would reject them, and nothing else is."""

import pytest

from nats_scheduler.message.definition import Definition, read_definition
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import UNRESTRICTED, Restrictions, StreamRules
from tests.harness.blocks import block_of

STORED_AT = 1_790_000_000_000_000_000


def read(
    restrictions: Restrictions, target: bytes = b"orders.due", source: bytes = b""
) -> Definition | Rejection | None:
    rules = StreamRules("ORDERS", (">",), restrictions=restrictions)
    headers = [(b"Nats-Schedule", b"@every 5m"), (b"Nats-Schedule-Target", target), (b"Nats-Schedule-Source", source)]
    return read_definition(block_of(*headers), "orders.s1", rules, ADR51, STORED_AT)


@pytest.mark.parametrize(
    ("restrictions", "source"),
    [
        (UNRESTRICTED, b"elsewhere"),
        (Restrictions(targets=("orders.due",)), b"elsewhere"),
        (Restrictions(targets=("x", "orders.*")), b""),
        (Restrictions(sources=("sensors.>",)), b"sensors.a.b"),
        (Restrictions(sources=("sensors.>",)), b""),
    ],
)
def test_what_is_allowed_is_accepted(restrictions: Restrictions, source: bytes) -> None:
    assert isinstance(read(restrictions, source=source), Definition)


@pytest.mark.parametrize(
    ("restrictions", "expected"),
    [
        (
            Restrictions(targets=("orders.paid", "due.>")),
            "Nats-Schedule-Target of 'orders.due' is not among the targets that the operator allows on this stream: "
            "orders.paid, due.> (server code 10190)",
        ),
        (
            Restrictions(sources=("sensors.*",)),
            "Nats-Schedule-Source of 'sensors.a.b' is not among the sources that the operator allows on this stream: "
            "sensors.* (server code 10203)",
        ),
    ],
)
def test_what_is_not_allowed_is_rejected_in_words(restrictions: Restrictions, expected: str) -> None:
    assert str(read(restrictions, source=b"sensors.a.b")) == expected


def test_the_checks_of_the_server_come_first() -> None:
    refused = read(Restrictions(targets=("orders.paid",)), source=b"a..b")
    assert isinstance(refused, Rejection)
    assert refused.code == 10203


@pytest.mark.parametrize(("held", "fits"), [(0, True), (2, True), (3, False), (4, False)])
def test_one_schedule_more_than_allowed_is_rejected(held: int, fits: bool) -> None:
    fault = Restrictions(max_schedules=3).number_fault(b"Nats-Schedule", "@daily", held)
    assert (fault is None) == fits
    if fault is not None:
        assert (fault.code, fault.status) == (10023, 503)
        assert "one schedule more than the 3" in str(fault)
