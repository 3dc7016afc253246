"""Schedules that store nothing although they are to are reported: `schedule_silent`, `schedule_only_dropped`."""

from nats_scheduler.engine.events import ClockChangeSkipped, ScheduleOnlyDropped, ScheduleSilent
from nats_scheduler.engine.inputs import Stored
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, events, schedule
from tests.engine.test_overlap import world_with as overlapping
from tests.engine.test_refusals import FULL, Refusing


def refused(pattern: str, **more: str) -> tuple[ScheduleWorld, Refusing]:
    """Return a world in which the server refuses the fires of a schedule."""
    network = Refusing({TARGET: FULL})
    world = ScheduleWorld(network=network)
    world.publish(SCHEDULE, {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **more})
    return world, network


def test_a_schedule_is_silent_after_three_periods_and_five_minutes() -> None:
    reason = "its fires are refused: maximum messages exceeded (10077)"
    for pattern, first, silent_for in (
        ("@every 10s", 10 * SECOND, 5 * MINUTE),
        ("@every 4m", 4 * MINUTE, 12 * MINUTE),
    ):
        world, network = refused(pattern)
        world.advance(first + silent_for - 31 * SECOND)
        assert events(world, ScheduleSilent) == [], pattern
        world.advance("2m")  # it is retried within half a minute
        assert events(world, ScheduleSilent) == [ScheduleSilent(SCHEDULE, 1, START + first, reason)], pattern
        network.targets.clear()
        world.advance("10s")
        network.targets[TARGET] = FULL
        world.advance(first + silent_for + 2 * MINUTE)
        assert len(events(world, ScheduleSilent)) == 2, "it is another silence"


def test_a_silence_that_lasts_is_reported_once_a_day() -> None:
    every = schedule("@every 2h")
    desk = Desk(every)
    desk.concluded(desk.in_flight(every, 7_200), FULL)
    told = []
    for hour in range(4, 60, 2):
        desk.at(3_600 * hour)
        told += [hour] * len(desk.reported(ScheduleSilent))
        desk.found(every)
        desk.concluded(desk.fire, FULL)
    assert told == [8, 32, 56]


def test_a_schedule_that_is_not_to_fire_is_not_silent() -> None:
    for pattern, more in (
        ("@at 2026-01-01T00:01:00Z", {}),
        ("@every 1m", {"Nats-Schedule-X-Start": "2026-02-01T00:00:00Z"}),
        ("@every 1m", {"Nats-Schedule-X-Except": "2026-01-01"}),
    ):
        world, _network = refused(pattern, **more)
        world.advance("20m")
        assert events(world, ScheduleSilent) == [], pattern


def test_a_fire_that_waits_for_the_one_before_makes_its_schedule_silent() -> None:
    world = overlapping("queue")
    world.advance("9m")
    (silent,) = events(world, ScheduleSilent)
    assert silent == ScheduleSilent(SCHEDULE, 1, START + 2 * MINUTE, "the fire before it is unfinished")


def test_a_schedule_of_which_a_policy_drops_all_is_reported_after_an_hour() -> None:
    world = overlapping("skip", "@every 10m", kept=True)
    world.advance("79m")
    assert events(world, ScheduleOnlyDropped) == []
    world.advance("2m")
    assert events(world, ScheduleOnlyDropped) == [
        ScheduleOnlyDropped(SCHEDULE, 1, START + 20 * MINUTE, 7, "X-Overlap: skip")
    ]


def test_what_an_outage_makes_a_policy_drop_counts_once() -> None:
    every = schedule("@every 1h", Nats_Schedule_X_Missed="skip", Nats_Schedule_X_Grace="2s")
    desk, told = Desk(every), []
    for hour in (10, 11, 12, 13, 36, 37):  # ten hours at once, and then each hour
        desk.at(3_600 * hour + 30)
        desk.found(every)
        told += [(hour, one.dropped) for one in desk.reported(ScheduleOnlyDropped)]
    assert told == [(12, 12), (36, 36)], "again after a day"
    fire = desk.in_flight(every, 38 * 3_600)
    desk.concluded(fire, Stored(2))
    for hour in (39, 40, 41):
        desk.at(3_600 * hour + 30)
        desk.found(every)
        assert bool(desk.reported(ScheduleOnlyDropped)) is (hour == 41), "it begins anew"


BEFORE_GAP = "2026-03-27T12:00:00Z"
"""Two days before the clock of Berlin goes from 02:00 to 03:00; `Asia/Beirut` goes from 00:00 to 01:00 that day."""

SKIPPED = {
    ("0 30 2 * * *", "Europe/Berlin", ""): ["2026-03-29T02:30:00Z..2026-03-29T02:30:00Z before 2026-03-30T00:30:00Z"],
    ("0 */10 2 29 3 *", "Europe/Berlin", ""): [
        "2026-03-29T02:00:00Z..2026-03-29T02:50:00Z before 2027-03-29T00:00:00Z"
    ],
    ("@daily", "Asia/Beirut", ""): ["2026-03-29T00:00:00Z..2026-03-29T00:00:00Z before 2026-03-29T21:00:00Z"],
    ("0 */10 * * * *", "Europe/Berlin", ""): [],
    ("0 0 12 * * *", "Europe/Berlin", ""): [],
    ("0 30 2 * * *", "Europe/Berlin", "X-Clock-Change: after"): [],
    ("0 30 2 * * *", "Europe/Berlin", "X-Except: 2026-03-29"): [],
    ("0 30 2 * * *", "Europe/Berlin", "X-Start: 2026-03-29T12:00:00Z"): [],
    ("0 30 2 * * *", "Europe/Berlin", "X-End: 2026-03-29T12:00:00Z"): [],
}


def test_fire_times_that_a_change_of_the_clock_skips_are_reported_once() -> None:
    """When the fire before is stored, or the schedule is; a restart says nothing again."""
    for (pattern, zone, policy), lines in SKIPPED.items():
        world = ScheduleWorld()
        world.advance_to(BEFORE_GAP)
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Time-Zone": zone, "Nats-Schedule-Target": TARGET}
        name, _, value = policy.partition(": ")
        world.publish(SCHEDULE, headers | ({f"Nats-Schedule-{name}": value} if name else {}))
        for _ in range(3):
            world.advance("16h")
            world.restart("1s")
        found = [
            f"{format_rfc3339(one.skipped.first * SECOND)}..{format_rfc3339(one.skipped.last * SECOND)}"
            f" before {format_rfc3339(one.due)}"
            for one in events(world, ClockChangeSkipped)
        ]
        assert found == lines, (pattern, zone, policy)
