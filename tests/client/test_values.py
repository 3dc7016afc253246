"""The values that the client returns have their times twice: as a `datetime` in UTC, and as the stored nanoseconds.

It tests `client/delivered_fire.py` too.
"""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta

import pytest

from nats_scheduler.client import Delivered, InvalidScheduleError, delivered, every
from nats_scheduler.client.schedule_block import Wanted, spelled
from nats_scheduler.client.times import instant_of
from nats_scheduler.client.values import Schedule, elsewhere, schedule_of
from nats_scheduler.control.current import read_current
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from tests.client.test_schedule_block import BOTH_2_14, EMULATED

STORED_AT = instant_of(datetime(2026, 11, 20, 12, tzinfo=UTC), "now") + 123_456_789
NOON = datetime(2026, 11, 20, 12, 0, 0, 123_456, tzinfo=UTC)
EVERY = every(timedelta(hours=1)).policies(jitter=timedelta(minutes=1), note="x")


def stored(block: bytes) -> Schedule:
    found = read_current(StoredMessage("orders.s", 7, STORED_AT, block, b"body"), EMULATED.served)
    assert found is not None
    return schedule_of("ORDERS", found)


def test_a_schedule_is_read_back_as_it_was_said() -> None:
    wanted = Wanted(EVERY, elsewhere("jobs.run"), {"source": "orders.in"}, headers={"A": "ü"})
    schedule = stored(spelled(wanted, EMULATED, STORED_AT))
    assert (schedule.stored_at_ns, schedule.stored_at) == (STORED_AT, NOON)
    assert (schedule.when, schedule.target, schedule.form.source) == (EVERY, "jobs.run", "orders.in")
    assert (schedule.spelling, schedule.is_fired_by_server, schedule.form.rollup) == ("portable", False, None)
    assert dict(schedule.form.policies) == {"X-Jitter": "1m0s", "X-Note": "x", "X-Target": "jobs.run"}
    assert (schedule.form.headers, schedule.body) == ((("A", "ü"),), b"body")
    with pytest.raises(FrozenInstanceError):
        schedule.body = b"other"  # type: ignore[misc]
    first, hour = datetime(2026, 11, 20, 13, tzinfo=UTC), timedelta(hours=1)
    assert schedule.next(2, after=schedule.stored_at) == [first, first + hour]
    assert (schedule.next(after=first), schedule.next_ns(after=STORED_AT)) == ([first + hour], [instant_of(first, "")])


def test_a_paused_schedule_says_what_it_would_be() -> None:
    block = spelled(Wanted(EVERY, "orders.out"), BOTH_2_14, STORED_AT)
    schedule = stored(paused_block(block, PORTABLE))
    assert (schedule.is_paused, schedule.pattern, schedule.when) == (True, "@every 1h0m0s", EVERY)
    assert schedule.next(after=schedule.stored_at) == [datetime(2026, 11, 20, 13, tzinfo=UTC)]


def test_a_rejected_schedule_says_why_and_never_fires() -> None:
    schedule = stored(b"NATS/1.0\r\nNats-Schedule: 0 61 * * * *\r\nNats-Schedule-Target: orders.out\r\n\r\n")
    assert schedule.rejection is not None
    assert "minute 61 is above 59 (server code 10189)" in schedule.rejection
    assert schedule.next(5, after=schedule.stored_at) == []
    with pytest.raises(InvalidScheduleError):
        _ = schedule.when


NEXT = "2027-01-15T09:00:00.000000001+01:00"


@dataclass
class Message:
    """A message as nats-py gives it."""

    headers: Mapping[str, str] | None


@pytest.mark.parametrize("prefix", ["", "X-"])
def test_a_fire_names_its_schedule_and_its_times(prefix: str) -> None:
    fire_time = 1_800_000_000 * SECOND + 1
    names = {f"{prefix}Nats-Scheduler": "orders.s", f"{prefix}Nats-Schedule-Next": NEXT}
    found = delivered(Message({**names, "Nats-Msg-Id": fire_identity("orders.s", 7, fire_time)}))
    assert found == Delivered("orders.s", fire_time, fire_time, schedule_sequence=7)
    assert found is not None
    at = datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert (found.fire_time, found.next_fire, found.is_last) == (at, at, False)
    for identity in (fire_identity("orders.other", 7, fire_time), "anything"):
        assert delivered(Message({**names, "Nats-Msg-Id": identity})) == Delivered("orders.s", None, fire_time)
    last = delivered(Message({"Nats-Scheduler": "orders.s", "Nats-Schedule-Next": "purge"}))
    assert last is not None
    assert (last.fire_time, last.next_fire, last.is_last) == (None, None, True), "the last fire of a server"


def test_any_other_message_is_no_fire() -> None:
    for headers in (
        None,
        {},
        {"Nats-Scheduler": "orders.s"},
        {"Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "", "Nats-Schedule-Next": "purge"},
        {"Nats-Scheduler": "orders.s", "Nats-Schedule-Next": "tomorrow"},
    ):
        assert delivered(Message(headers)) is None, headers
