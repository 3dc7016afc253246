"""Fire time, send time and read-back threshold are three times, and each is used where it is meant.

Its rule: the send time is moved away from the fire time, as a policy will, in the one place that knows it. So whatever
takes one time for the other shows.
"""

import pytest

from nats_scheduler.engine.events import Ending, FireReadBack, FiresMissed, ScheduleEnded, ScheduleEndsEarly
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import CaughtUp, MessagesRead, ShardsHeld
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule, stored_fire

DELAY = 2 * SECOND
"""Longer than the look-ahead of a server of 2.10, where a schedule still waits between the two times."""

EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": TARGET}
AT_10S = {"Nats-Schedule": "@at 2026-01-01T00:00:10Z", "Nats-Schedule-Target": TARGET}
SAMPLING = {**EVERY_5S, "Nats-Schedule-Source": "d.in"}


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send each fire some time after the time that it stands for."""
    for kind in (Timetable, Held):
        monkeypatch.setattr(kind, "send_time_of", lambda _timetable, fire_time: fire_time + DELAY)


def stored(world: ScheduleWorld) -> list[tuple[float, float]]:
    """Return what each fire stands for, and when it was stored, in seconds after the start."""
    return [((one.fire_time - START) / SECOND, (one.stored_at - START) / SECOND) for one in world.generated]


@pytest.mark.usefixtures("delayed")
class TestFiresThatAreSentAfterTheirFireTimes:
    @pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
    @pytest.mark.parametrize("headers", [EVERY_5S, SAMPLING], ids=["plain", "sampling"])
    def test_a_repeating_schedule_keeps_its_fire_times(self, headers: dict[str, str], *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        world.publish(SCHEDULE, headers)
        world.advance("18s")
        assert stored(world) == [(5, 7), (10, 12), (15, 17)]
        following = [one.header("Nats-Schedule-Next") for one in world.generated]
        assert following == [f"2026-01-01T00:00:{seconds}Z" for seconds in (10, 15, 20)]

    @pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
    def test_a_schedule_that_fires_once_is_purged_after_its_fire(self, *, guard: bool) -> None:
        world = ScheduleWorld(guard=guard)
        world.publish(SCHEDULE, AT_10S)
        world.advance("11s")
        assert (stored(world), world.engine.held.on(SCHEDULE) is None) == ([], False)
        world.advance("5s")
        assert (stored(world), world.engine.held.on(SCHEDULE) is None) == ([(10, 12)], True)

    @pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
    @pytest.mark.parametrize("with_checkpoint", [True, False])
    def test_a_restart_between_fire_time_and_send_time_loses_and_doubles_nothing(
        self, with_checkpoint: bool, guard: bool
    ) -> None:
        world = ScheduleWorld(guard=guard)
        world.publish(SCHEDULE, EVERY_5S)
        for seconds in (6, 5, 2, 3):
            world.advance(seconds * SECOND)
            world.restart(with_checkpoint=with_checkpoint)
        world.advance("2s")
        assert stored(world) == [(5, 7), (10, 12), (15, 17)]

    def test_only_fires_whose_send_time_has_come_are_made_up(self) -> None:
        world = ScheduleWorld()
        world.publish(SCHEDULE, EVERY_5S)
        world.advance("6s")
        world.restart("15s")
        assert stored(world) == [(15, 21)], "5 and 10 are missed, and 20 is not due"
        world.advance("7s")
        assert stored(world) == [(15, 21), (20, 22), (25, 27)]
        missed = [event for event in world.events if isinstance(event, FiresMissed)]
        assert [(one.first, one.made_up) for one in missed] == [(START + 5 * SECOND, START + 15 * SECOND)]

    def test_a_fire_stands_for_itself_alone_until_the_next_one_is_to_be_sent(self) -> None:
        world = ScheduleWorld()
        world.publish(SCHEDULE, EVERY_5S)
        world.advance("6s")
        world.restart("5s")
        world.advance("2s")
        assert stored(world) == [(5, 11), (10, 12)]

    def test_a_schedule_whose_ttl_runs_out_before_its_send_time_does_not_fire(self) -> None:
        world = ScheduleWorld()
        world.publish(SCHEDULE, {**EVERY_5S, "Nats-TTL": "6s"})
        world.advance("8s")
        assert stored(world) == []
        endings = [event.ending for event in world.events if isinstance(event, (ScheduleEndsEarly, ScheduleEnded))]
        assert endings == [Ending.EXPIRED, Ending.EXPIRED], "announced, and carried out"

    def test_lateness_counts_from_the_send_time(self) -> None:
        world = ScheduleWorld()
        world.publish(SCHEDULE, EVERY_5S)
        world.advance("6s")
        world.restart()
        world.advance("2s")
        seen = [event for event in world.events if isinstance(event, FireReadBack)]
        assert [(one.fire_time - START, one.stored_at - one.send_time, one.overdue) for one in seen] == [
            (5 * SECOND, 0, False)
        ]

    def test_a_schedule_of_another_holder_is_neglected_only_after_its_send_time(self) -> None:
        desk = Desk(live=False)
        desk.step(ShardsHeld(frozenset()), MessagesRead([schedule("@every 1h")]), CaughtUp())
        for seconds, reads in ((3_600, []), (3_604.9, []), (3_605.1, [(SCHEDULE, 1)])):
            assert desk.at(seconds).reads == reads, seconds

    def test_a_schedule_of_another_holder_is_taken_for_gone_so_long_after_its_send_time(self) -> None:
        desk = Desk(live=False, reads_all=False)
        desk.step(ShardsHeld(frozenset()), MessagesRead([schedule("@every 1h")]), CaughtUp())
        for seconds, reads in ((3_600, []), (3_631.9, []), (3_632.1, [(SCHEDULE, 1)])):
            assert desk.at(seconds).reads == reads, seconds


@pytest.mark.parametrize(("threshold_after", "advances"), [(0, True), (1, False)])
def test_a_fire_that_is_read_back_advances_its_schedule_from_the_threshold_on(
    threshold_after: int, advances: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = schedule("@every 5s")
    holder = Desk(message)
    fire = holder.in_flight(message, 5)
    threshold = property(lambda held: held.fire_time + threshold_after)
    monkeypatch.setattr(Held, "read_back_threshold", threshold)
    desk = Desk(message)
    desk.step(ShardsHeld(frozenset()))
    desk.at(5).read(stored_fire(fire, 2, desk.now))
    held = desk.held()
    assert held.fire_time == START + (10 if advances else 5) * SECOND
