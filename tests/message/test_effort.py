"""What reading messages costs is estimated from their bytes: nothing dear is taken for cheap."""

import pytest

from nats_scheduler.message.effort import AT_SCHEDULE, MESSAGE, POLICY, SCHEDULE, effort_of
from tests.harness.blocks import block_with

AT = block_with(Nats_Schedule="@at 2027-01-01T00:00:00Z", Nats_Schedule_Target="t.out")
CRON = block_with(Nats_Schedule="0 0 3 * * *", Nats_Schedule_Target="t.out")
BOUNDED = block_with(Nats_Schedule="0 0 3 * * *", Nats_Schedule_Target="t.out", Nats_Schedule_X_Limit="1000")
PORTABLE = BOUNDED.replace(b"Nats-Sch", b"X-Nats-Sch")
PAUSED = BOUNDED.replace(b"Nats-Schedule:", b"Nats-Schedule-X-Paused:")


@pytest.mark.parametrize(
    ("block", "least"),
    [
        (b"", MESSAGE),
        (AT, AT_SCHEDULE),
        (CRON, SCHEDULE),
        (CRON.replace(b": ", b":"), SCHEDULE),
        (BOUNDED, POLICY),
        (BOUNDED.replace(b": ", b":"), POLICY),
        (PORTABLE, POLICY),
        (PAUSED, 2 * POLICY),
        (block_with(Nats_Schedule="@at 2027-01-01T00:00:00Z", Any="x" * 60_000), 1_000),
    ],
)
def test_a_message_costs_at_least_what_it_makes_us_do(block: bytes, least: int) -> None:
    assert least <= effort_of([block]) < 3 * least
    assert effort_of([block] * 50) >= 50 * least, "so many cost so many times as much"


def test_texts_that_look_cheap_do_not_hide_what_is_dear() -> None:
    disguise = block_with(Any="Nats-Schedule: @at " * 20)
    assert effort_of([BOUNDED] * 50 + [disguise] * 50) >= 50 * POLICY
