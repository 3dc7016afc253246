"""Headers that look like those of a schedule: reported once, noted while their message is the last on its subject."""

import pytest

from nats_scheduler.engine.events import HeadersMisnamed
from nats_scheduler.engine.inputs import CaughtUp, ShardsHeld
from nats_scheduler.engine.reading.inactive import MAX_MISNAMED_NOTED, MAX_MISNAMED_REPORTS
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, plain, schedule


def reported(desk: Desk) -> list[tuple[str, int, list[str]]]:
    return [(one.subject, one.sequence, [h for h, _ in one.headers]) for one in desk.reported(HeadersMisnamed)]


def test_a_message_that_was_meant_to_be_a_schedule_is_reported_when_it_is_read() -> None:
    desk = Desk()
    desk.read(message_on("s.x", 1, Nats_Schedul="@daily", Nats_Schedule_Target=TARGET))
    assert reported(desk) == [("s.x", 1, ["Nats-Schedul"])]
    assert [one.stored_at for one in desk.reported(HeadersMisnamed)] == [START]
    assert not desk.is_held("s.x")


def test_a_schedule_with_a_header_that_nobody_reads_is_reported_and_fires_all_the_same() -> None:
    desk = Desk()
    one = schedule("@every 1s", Nats_Schedule_Timezone="Europe/Berlin")
    desk.read(one)
    assert reported(desk) == [(SCHEDULE, 1, ["Nats-Schedule-Timezone"])]
    assert desk.in_flight(one, 1).schedule == SCHEDULE


def test_what_was_stored_before_is_reported_once_by_the_holder_of_its_shard() -> None:
    desk = Desk(message_on("s.x", 1, Nats_Schedul="@daily"), live=False)
    desk.step(ShardsHeld(frozenset()), CaughtUp())
    assert reported(desk) == []
    desk.step(ShardsHeld(ALL_SHARDS))
    assert reported(desk) == [("s.x", 1, ["Nats-Schedul"])]
    desk.step(ShardsHeld(ALL_SHARDS))
    assert reported(desk) == []


def test_what_another_message_covers_is_no_news() -> None:
    desk = Desk(message_on("s.x", 1, Nats_Schedul="@daily"), plain("s.x", 2), live=False)
    desk.step(CaughtUp())
    assert (reported(desk), desk.engine.inactive.misnamed) == ([], {})


@pytest.mark.slow
def test_a_flood_of_them_costs_bounded_memory_and_bounded_time() -> None:
    flood = [message_on(f"s.{number}", number, Nats_Schedul="@daily") for number in range(1, MAX_MISNAMED_NOTED + 10)]
    desk = Desk(*flood, live=False)
    assert len(desk.engine.inactive.misnamed) == MAX_MISNAMED_NOTED
    desk.step(CaughtUp())
    assert len(reported(desk)) == MAX_MISNAMED_REPORTS
