"""What is said of the memory of stored schedules is about what they take."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.message import shared_terms
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import schedule

COUNT = 320
RULES = StreamRules.from_config({"name": "S", "subjects": [">"], "allow_msg_schedules": True})


def at(number: int) -> StoredMessage:
    pattern = f"@at {format_rfc3339(START + HOUR + number * SECOND)}"
    return schedule(pattern, number, f"orders.{number}.remind", Nats_Schedule_Target=f"orders.{number}.due")


def invalid(number: int) -> StoredMessage:
    return schedule("every day", number, f"s.{number}")


@pytest.mark.parametrize("made", [at, invalid])
def test_what_is_measured_is_about_what_they_take(
    made: Callable[[int], StoredMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_terms, "MAX_TERMS", 16)  # it keeps a bounded number, which is not measured
    stored = StoredSchedules(RULES, (ADR51,), FiredBy.SERVER, notify_fired=lambda _fired: None)
    stored.take([made(1)], START)
    before = StoredSchedules(RULES, (ADR51,), FiredBy.SERVER)
    before.take([made(number) for number in range(1, COUNT + 2)], START)  # patterns are cached, which is bounded
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2, COUNT + 2, 32):
            stored.take([made(one) for one in range(number, number + 32)], START)
        gc.collect()
        taken, _most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    taken += stored.held.table.bytes  # SQLite's memory is not traced
    measured = done(stored.measured())
    assert stored.count == COUNT + 1
    # What is measured leaves out the caches of the reader, which are bounded.
    assert 0.5 * taken <= measured <= 2.5 * taken, f"{taken / COUNT:.0f} bytes each, measured {measured / COUNT:.0f}"
