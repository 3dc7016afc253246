"""An outage is reported when it begins, while it lasts and at its end."""

from nats_scheduler.runtime.sidecar import Outage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import ManualClock

HALF_A_SECOND = SECOND // 2


def test_a_reason_is_told_at_once_and_again_while_it_lasts() -> None:
    clock = ManualClock()
    outage, reported = Outage(clock.monotonic), []
    for attempt in range(140):  # 70 s, an attempt each half second
        said = outage.failed("connect_failed", "refused")
        if said is not None:
            reported.append((attempt / 2, said))
        clock.advance(HALF_A_SECOND)
    assert reported == [
        (0.0, {}),
        (30.0, {"seconds": 30.0, "attempts": 61}),
        (60.0, {"seconds": 60.0, "attempts": 121}),
    ]
    assert outage.over() == {"seconds": 70.0, "attempts": 140}


def test_two_reasons_that_take_turns_are_no_flood() -> None:
    clock = ManualClock()
    outage, reported = Outage(clock.monotonic), []
    for attempt in range(60):
        if outage.failed("connect_failed", f"reason {attempt % 2}") is not None:
            reported.append(attempt)
        clock.advance(HALF_A_SECOND)
    assert reported == [0, 1]
    assert outage.failed("jetstream_unavailable", "reason 0") == {"seconds": 30.0, "attempts": 61}
