"""The messages with a lifetime that the sidecar enforces, and its length."""

import pytest

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.reading import expiry_of, lifetime_of
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, SECOND
from tests.harness.blocks import block_with

AT = 1_767_225_600_000_000_007
GENERATED = {"Nats_Scheduler": "s.one", "Nats_Schedule_Next": "purge", "Nats_Msg_Id": "nats-scheduler:1:5:s.one"}


def expiry(*dialects: Dialect, **headers: str) -> int | None:
    return expiry_of(StoredMessage("t", 1, AT, block_with(**headers), None), dialects or DIALECTS)


@pytest.mark.parametrize(
    ("ttl", "lifetime"),
    [
        ("5s", 5 * SECOND),
        ("1h", HOUR),
        ("90", 90 * SECOND),
        ("1.9s", SECOND),
        ("007", 7 * SECOND),
        ("18446744073709551617", SECOND),
        ("00", None),
        ("18446744073709551616", None),
        ("never", None),
        ("NEVER", None),
        ("soon", None),
        ("0", None),
        ("999ms", None),
        ("5s ", None),
        ("", None),
    ],
)
def test_the_lifetime_is_what_the_server_takes_from_the_header(ttl: str, lifetime: int | None) -> None:
    block = b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % ttl.encode()
    assert lifetime_of(block) == lifetime


def test_a_lifetime_of_many_years_does_not_wrap() -> None:
    assert lifetime_of(block_with(Nats_TTL="9223372036854775807")) == (2**63 - 1) * SECOND


def test_schedules_and_generated_messages_expire_and_nothing_else_does() -> None:
    assert expiry(Nats_TTL="5s", Nats_Schedule="@every 1s") == AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", Nats_Schedule="@every nonsense") == AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", X_Nats_Schedule="@every 1s") == AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", Nats_Schedule_X_Paused="@every 1s") == AT + 5 * SECOND
    assert expiry(Nats_TTL="5s", **GENERATED) == AT + 5 * SECOND
    assert expiry(Nats_TTL="5s") is None
    assert expiry(Nats_TTL="5s", Nats_Schedule_Target="t", Nats_Schedule="") is None
    assert expiry(Nats_TTL="5s", Nats_Scheduler="s.one", Nats_Schedule_Next="purge") is None
    assert expiry(Nats_Schedule="@every 1s") is None
    assert expiry(X_Nats_TTL="5s", Nats_Schedule="@every 1s") is None


def test_a_schedule_in_a_dialect_that_is_not_served_is_left_alone_but_what_was_generated_is_not() -> None:
    assert expiry(PORTABLE, Nats_TTL="5s", Nats_Schedule="@every 1s") is None
    assert expiry(ADR51, Nats_TTL="5s", X_Nats_Schedule="@every 1s") is None
    assert expiry(PORTABLE, Nats_TTL="5s", **GENERATED) == AT + 5 * SECOND
