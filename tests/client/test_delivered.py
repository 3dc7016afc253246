"""The headers by which a fire names its schedule are read in both spellings, and any other message is no fire."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from nats_scheduler.client import Delivered, delivered
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.schedule.instants import SECOND

AT = 1_800_000_000 * SECOND + 1
NEXT = "2027-01-15T09:00:00.000000001+01:00"


@dataclass
class Message:
    """A message as nats-py gives it."""

    headers: Mapping[str, str] | None


@pytest.mark.parametrize("prefix", ["", "X-"])
def test_a_fire_names_its_schedule_and_its_times(prefix: str) -> None:
    identity = fire_identity("orders.s", 7, AT)
    headers = {f"{prefix}Nats-Scheduler": "orders.s", f"{prefix}Nats-Schedule-Next": NEXT, "Nats-Msg-Id": identity}
    found = delivered(Message(headers))
    assert found == Delivered("orders.s", AT, AT)
    assert found is not None
    assert (found.fire_time, found.is_last) == (datetime(2027, 1, 15, 8, tzinfo=UTC), False)
    assert found.next_fire == datetime(2027, 1, 15, 8, tzinfo=UTC)


def test_the_last_fire_of_a_server_names_neither_time() -> None:
    found = delivered(Message({"Nats-Scheduler": "orders.s", "Nats-Schedule-Next": "purge"}))
    assert found == Delivered("orders.s", None, None)
    assert found is not None
    assert (found.fire_time, found.next_fire, found.is_last) == (None, None, True)


@pytest.mark.parametrize("identity", [fire_identity("orders.other", 7, AT), "nats-scheduler:x", "anything"])
def test_an_identity_of_something_else_is_no_fire_time(identity: str) -> None:
    headers = {"Nats-Scheduler": "orders.s", "Nats-Schedule-Next": NEXT, "Nats-Msg-Id": identity}
    assert delivered(Message(headers)) == Delivered("orders.s", None, AT)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"Nats-Scheduler": "orders.s"},
        {"Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "", "Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "orders.s", "Nats-Schedule-Next": "tomorrow"},
    ],
)
def test_any_other_message_is_no_fire(headers: Mapping[str, str] | None) -> None:
    assert delivered(Message(headers)) is None
