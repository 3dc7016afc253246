"""An outage is reported when it begins, again while it lasts, and when it is over; not more often."""

from nats_scheduler.runtime.sidecar import MAX_REASONS_NOTED, REPORT_INTERVAL_NS, Outage
from nats_scheduler.schedule.instants import SECOND

HALF_A_SECOND = SECOND // 2


class Times:
    """A clock that a test moves."""

    now = 5 * SECOND

    def __call__(self) -> int:
        return self.now


def test_a_reason_is_told_at_once_and_again_while_it_lasts() -> None:
    clock = Times()
    outage = Outage(clock)
    begun, reported = clock.now, []
    for _ in range(140):  # 70 s, an attempt each half second
        said = outage.failed("connect_failed", "refused")
        if said is not None:
            reported.append(((clock.now - begun) / SECOND, said))
        clock.now += HALF_A_SECOND
    assert reported == [
        (0.0, {}),
        (30.0, {"seconds": 30.0, "attempts": 61}),
        (60.0, {"seconds": 60.0, "attempts": 121}),
    ]
    assert outage.over() == {"seconds": 70.0, "attempts": 140}


def test_another_reason_is_told_at_once_and_two_that_take_turns_are_no_flood() -> None:
    clock = Times()
    outage = Outage(clock)
    reported = []
    for attempt in range(60):
        if outage.failed("connect_failed", f"reason {attempt % 2}") is not None:
            reported.append(attempt)
        clock.now += HALF_A_SECOND
    assert reported == [0, 1]
    assert outage.failed("jetstream_unavailable", "reason 0") == {"seconds": 30.0, "attempts": 61}


def test_a_connection_at_the_first_attempt_says_nothing_of_an_outage() -> None:
    outage = Outage(Times())
    assert outage.over() == {}
    outage.begins()
    assert outage.over() == {}


def test_the_next_outage_begins_anew() -> None:
    clock = Times()
    outage = Outage(clock)
    assert outage.failed("connect_failed", "refused") == {}
    clock.now += REPORT_INTERVAL_NS // 2
    outage.over()
    clock.now += REPORT_INTERVAL_NS // 4
    outage.begins()
    clock.now += SECOND
    outage.begins()
    assert outage.failed("connect_failed", "refused") == {}
    assert outage.over() == {"seconds": 1.0, "attempts": 1}


def test_any_number_of_reasons_is_remembered_within_bounds() -> None:
    outage = Outage(Times())
    reported = sum(
        outage.failed("connect_failed", f"reason {number}") is not None for number in range(3 * MAX_REASONS_NOTED)
    )
    assert reported == 3 * MAX_REASONS_NOTED
    assert len(outage._reported_at) <= MAX_REASONS_NOTED
