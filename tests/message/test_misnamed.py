"""Headers that look like those of a schedule but are not."""

import pytest

from nats_scheduler.message.dialect import DIALECTS, PORTABLE
from nats_scheduler.message.reader import MessageReader
from nats_scheduler.message.reading import MAX_NAME_BYTES, MAX_REPORTED_HEADERS, misnamed_headers
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from tests.harness.blocks import block_of

RULES = StreamRules("ORDERS", ("orders.>",))
PATTERN, TARGET = ("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "orders.due")


def found(*headers: tuple[str, str]) -> list[tuple[str, str]]:
    """Read a message as an engine does, and return its misnamed headers."""
    reader = MessageReader(RULES, DIALECTS)
    message = StoredMessage("orders.s", 1, 1_790_000_000_000_000_000, block_of(*headers), None)
    if reader.cached(message) is None:
        reader.read_uncached(message)
    return [(one.header, one.reason) for one in reader.misnamed]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Nats-Schedul", "Nats-Schedule may be meant"),
        ("nats-schedule", "is not Nats-Schedule"),
        ("NATS-SCHEDULE", "is not Nats-Schedule"),
        ("Nats-schedule", "is not Nats-Schedule"),
        ("nats_schedule", "Nats-Schedule may be meant"),
        ("NatsSchedule", "Nats-Schedule may be meant"),
        ("Nats-Shedule", "Nats-Schedule may be meant"),
        ("x-nats-schedule", "is not X-Nats-Schedule"),
        ("X-Nats-Schedul", "X-Nats-Schedule may be meant"),
        ("Nats-Schedule-At", "has no effect"),
    ],
)
def test_a_header_that_is_nearly_that_of_a_schedule_is_found_on_a_message_that_is_none(name: str, meant: str) -> None:
    ((header, reason),) = found((name, "@daily"), TARGET)
    assert header == name
    assert meant in reason


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Nats-Schedule-Timezone", "Nats-Schedule-Time-Zone may be meant"),
        ("Nats-Schedule-TZ", "has no effect"),
        ("nats-schedule-time-zone", "is not Nats-Schedule-Time-Zone"),
        ("Nats-Schedule-Ttl", "is not Nats-Schedule-TTL"),
        ("X-Nats-Schedule-Timezone", "X-Nats-Schedule-Time-Zone may be meant"),
    ],
)
def test_a_header_without_effect_is_found_on_a_schedule(name: str, meant: str) -> None:
    ((header, reason),) = found(PATTERN, TARGET, (name, "Europe/Berlin"))
    assert header == name
    assert meant in reason


def test_a_schedule_with_such_a_header_is_found_each_time_and_those_without_are_read_fast() -> None:
    reader = MessageReader(RULES, DIALECTS)
    wrong = block_of(PATTERN, TARGET, ("Nats-Schedule-Timezone", "Europe/Berlin"))
    right = block_of(PATTERN, TARGET)
    for sequence in (1, 2, 3):
        message = StoredMessage("orders.s", sequence, 1, wrong, None)
        assert reader.cached(message) is None
        assert reader.read_uncached(message) is not None
        assert len(reader.misnamed) == 1
    message = StoredMessage("orders.s", 4, 1, right, None)
    reader.read_uncached(message)
    assert reader.misnamed == ()
    assert reader.cached(message) is not None


@pytest.mark.parametrize(
    "headers",
    [
        [PATTERN, TARGET],
        [PATTERN, TARGET, ("Nats-Schedule-X-Missed", "skip")],
        [PATTERN, TARGET, ("X-Nats-Schedule-X-Missed", "skip")],
        [PATTERN, TARGET, ("Nats-Schedule-TTL", "5m"), ("Nats-Schedule-Time-Zone", "UTC"), ("Nats-TTL", "1h")],
        [("X-Nats-Schedule", "@daily"), ("X-Nats-Schedule-Target", "orders.due")],
        [("Nats-Schedule-X-Paused", "@every 1s"), TARGET],
        [("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "purge")],
        [("Nats-Scheduler", "orders.s2"), ("Nats-Schedule-Next", "2026-01-01T00:00:00Z")],
        [("X-Text", "see nats-schedule: below"), ("Delivery-Schedule", "weekly"), ("Schedule", "daily")],
        [("Nats-Msg-Id", "nats-schedule:5")],
        [("A", "b")],
        [],
    ],
)
def test_headers_as_they_are_meant_to_be_and_those_of_others_are_not_found(headers: list[tuple[str, str]]) -> None:
    assert found(*headers) == []


def test_a_header_that_is_of_no_use_alone_is_found() -> None:
    ((header, reason),) = found(TARGET)
    assert header == "Nats-Schedule-Target"
    assert "without Nats-Schedule" in reason


def test_only_headers_that_are_served_are_missed_where_they_stand_alone() -> None:
    assert misnamed_headers(block_of(TARGET), [PORTABLE], is_schedule=False) == ()


def test_what_a_stranger_writes_is_cut_and_counted() -> None:
    many = [(f"Nats-Schedule-{number}", "x") for number in range(100)]
    assert len(found(PATTERN, TARGET, *many)) == MAX_REPORTED_HEADERS
    ((header, _reason),) = found(("Nats-Schedul" + "x" * 10_000, "x"))
    assert len(header) == MAX_NAME_BYTES
    ((header, _reason),) = found(("Nats-Schedul\x1b[31m", "x"))
    assert "\x1b" in header, "it is escaped where it is printed"
