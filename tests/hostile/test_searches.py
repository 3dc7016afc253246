"""What a stranger searches for costs what the page says, whatever the subjects are like."""

from random import Random

import pytest

from nats_scheduler.engine.views.view import Order, Query
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.service.schemas import MAX_SEARCHED_CHARS
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import schedule
from tests.engine.test_view import stored_of
from tests.hostile.effort import at_most

SCHEDULES = 300
SECONDS_A_SCHEDULE = 0.002
"""Process time for each schedule: a page, and the number, of subjects that nearly match everywhere take 0.1 ms."""

NEARLY = "a" * (MAX_SEARCHED_CHARS - 1) + "b"


@pytest.mark.parametrize(
    "query",
    [
        Query(contains=NEARLY, target_contains=NEARLY, owner=NEARLY),
        Query(contains="a", target_contains="a", owner="a"),
    ],
)
def test_a_search_costs_little_for_each_schedule(query: Query) -> None:
    random = Random(7)
    messages = [
        schedule(
            "@every 1h",
            number,
            f"s.{'a' * 3_000}.{number}",
            Nats_Schedule_Target=f"t.{'a' * 3_000}.{random.randrange(9)}",
            Nats_Schedule_X_Owner="a" * random.randrange(1, 200),
        )
        for number in range(1, SCHEDULES + 1)
    ]
    stored = stored_of(*messages)
    for order in Order:
        with at_most(SCHEDULES * SECONDS_A_SCHEDULE, order):
            stored.view.page(START + HOUR, query, limit=50, order=order).answer()
            stored.view.counts(START + HOUR, query).answer()
