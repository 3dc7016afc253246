"""Schedules that store nothing although they are to are found, each with its cause; and those that a policy drops."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.engine.events import ClockChangeSkipped, ScheduleOnlyDropped, ScheduleSilent
from nats_scheduler.engine.inputs import CalendarsRead, ContactLost, OwnershipChanged, Unknown
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views import silent as module
from nats_scheduler.engine.views.silent import BEGINNING
from nats_scheduler.message.silence import Silence
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, events, schedule
from tests.engine.test_calendars import NO_DAY, TODAY, in_flight_at_20s, named_schedule
from tests.engine.test_overlap import world_with as overlapping
from tests.engine.test_refusals import FULL, Refusing
from tests.harness.seeds import draws


def refused(pattern: str, **more: str) -> tuple[ScheduleWorld, Refusing]:
    """Return a world in which the server refuses the fires of a schedule."""
    network = Refusing({TARGET: FULL})
    world = ScheduleWorld(network=network)
    world.publish(SCHEDULE, {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **more})
    return world, network


def silent(engine: StreamEngine, now: int) -> list[ScheduleSilent]:
    """Return the schedules that are silent, of all that are held."""
    found = engine.silent(now).answer()
    assert found.following is None
    return found.events


def in_world(world: ScheduleWorld) -> list[ScheduleSilent]:
    return silent(world.engine, world.clock.now())


def test_a_schedule_is_silent_after_three_periods_and_five_minutes() -> None:
    reason = "its fires are refused: maximum messages exceeded (10077)"
    for pattern, first, silent_for in (
        ("@every 10s", 10 * SECOND, 5 * MINUTE),
        ("@every 4m", 4 * MINUTE, 12 * MINUTE),
    ):
        world, network = refused(pattern)
        world.advance(first + silent_for - SECOND)
        assert in_world(world) == [], pattern
        world.advance("1s")
        assert in_world(world) == [ScheduleSilent(SCHEDULE, 1, START + first, Silence.REFUSED, reason)], pattern
        network.targets.clear()
        world.advance("40s")
        assert in_world(world) == [], "it fires again"


def test_a_schedule_that_is_not_to_fire_is_not_silent() -> None:
    for pattern, more in (
        ("@at 2026-01-01T00:01:00Z", {}),
        ("@every 1m", {"Nats-Schedule-X-Start": "2026-02-01T00:00:00Z"}),
        ("@every 1m", {"Nats-Schedule-X-Except": "2026-01-01"}),
        ("@every 1m", {"Nats-TTL": "90s"}),
        ("0 0 12 * * *", {"Nats-Schedule-X-Jitter": "24h"}),
    ):
        world, _network = refused(pattern, **more)
        world.advance("8m")
        assert in_world(world) == [], pattern


@settings(max_examples=draws(15), deadline=None)
@given(
    st.sampled_from(["@every 11m", "@every 30h", "0 */7 * * * *", "0 30 2 * * *", "0 0 9 1 * *", "0 0 8 * * mon"]),
    st.sampled_from(
        [
            {},
            {"Jitter": "26h"},
            {"Limit": "3"},
            {"Start": "2026-01-03T00:00:00Z", "End": "2026-01-09T00:00:00Z"},
            {"Except": "2026-01-02/2026-01-06"},
            {"Missed": "all"},
            {"Missed": "skip", "Grace": "1s"},
            {"Anchor": "2026-01-02T05:00:00Z"},
        ]
    ),
    st.lists(st.integers(1, 40 * HOUR), min_size=1, max_size=5),
)
def test_a_schedule_that_fires_when_its_pattern_says_is_never_silent(
    pattern: str, policies: dict[str, str], waits: list[int]
) -> None:
    world = ScheduleWorld()
    zone = {} if pattern.startswith("@") else {"Nats-Schedule-Time-Zone": "Europe/Berlin"}
    named = {f"Nats-Schedule-X-{name}": value for name, value in policies.items()}
    world.publish(SCHEDULE, {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **zone, **named})
    for wait in waits:
        world.advance(wait)
        assert in_world(world) == []


def test_a_fire_that_is_forgotten_makes_its_schedule_silent() -> None:
    every = schedule("@every 1m")
    for stage, is_fetched, causes in (("fetching", False, []), ("in flight", True, [Silence.UNANSWERED])):
        desk = Desk(every).at(60)
        if is_fetched:
            desk.found(every)
            desk.concluded(desk.fire, Unknown("lost"))
        assert [one.cause for one in silent(desk.engine, START + 6 * MINUTE - 1)] == [], stage
        found = silent(desk.engine, START + 6 * MINUTE)
        assert [one.cause for one in found] == (causes or [Silence.UNKNOWN]), stage
        assert [one.since for one in found] == [START + MINUTE]
    desk.step(ContactLost("lost"))
    desk.now = START + HOUR
    desk.step(OwnershipChanged(False))
    desk.step(OwnershipChanged(True))
    assert silent(desk.engine, desk.now) == [], "this instance was not able to fire it before"


def test_a_fire_that_an_edit_takes_away_makes_its_schedule_silent_no_more() -> None:
    for days, causes in ((NO_DAY, [Silence.UNANSWERED]), (TODAY, [])):
        desk, fire = in_flight_at_20s(named_schedule())
        desk.concluded(fire, Unknown("lost"))
        desk.step(CalendarsRead(days))
        assert [one.cause for one in silent(desk.engine, START + HOUR)] == causes


def test_a_schedule_that_a_wrong_clock_left_waiting_for_days_is_found() -> None:
    """As stored while the clock was in the future, and as fired then; those that have rows, and those that have not."""
    headers = {"Nats-Schedule-Target": TARGET}
    for pattern, period, is_fired in (("@every 1m", MINUTE, True), ("@every 2h", 2 * HOUR, False)):
        world = ScheduleWorld()
        wrong = world.clock.now() + 3 * DAY
        if is_fired:
            world.publish(SCHEDULE, {"Nats-Schedule": pattern, **headers})
        world.clock.set(wrong)
        world.advance("1s")
        if not is_fired:
            world.publish(SCHEDULE, {"Nats-Schedule": pattern, **headers})
        world.advance("1s")
        assert in_world(world) == [], "by that clock it is right"
        world.clock.set(START + MINUTE)
        world.advance("1s")
        (found,) = in_world(world)
        assert (found.cause, found.schedule) == (Silence.CLOCK, SCHEDULE)
        assert START < found.since <= START + MINUTE + 2 * MINUTE + period
        world.publish(SCHEDULE, {"Nats-Schedule": pattern, **headers})
        world.advance("1s")
        assert in_world(world) == [], "it is published again"


def test_rows_are_judged_some_at_a_time_until_all_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 20)
    monkeypatch.setattr(module, "MAX_FOUND", 10)
    late = START + 3 * DAY
    desk = Desk(*(schedule("@every 1h", number, f"s.{number}", stored_at=late) for number in range(1, 46)))
    found, after = list[int](), BEGINNING
    for expected in (10, 10, 5):
        part = desk.engine.silent(START, after).answer()
        assert len(part.events) == expected
        found += [one.sequence for one in part.events]
        after = part.following or BEGINNING
    assert (len(set(found)), after) == (25, BEGINNING)
    others = desk.engine.silent(START, BEGINNING, lambda event: event.sequence in found).answer()
    assert len({one.sequence for one in others.events} - set(found)) == 10, "those that are reported hide no others"


def republished(pattern: str, seconds: int, times: int, **more: str) -> list[tuple[int, int]]:
    """Store a schedule so many times; returns when it was reported, and the fire that was lost first, in seconds."""
    desk, told = Desk(schedule(pattern, **more)), []  # type: ignore[arg-type]
    for number in range(1, times):
        desk.at(number * seconds)
        desk.read(schedule(pattern, number + 1, stored_at=desk.now, **more))  # type: ignore[arg-type]
        told += [(number * seconds, (one.since - START) // SECOND) for one in desk.reported(ScheduleSilent)]
        known = {(one.schedule, one.sequence, one.cause, " " in one.reason) for one in desk.reported(ScheduleSilent)}
        assert known <= {(SCHEDULE, number + 1, Silence.REPUBLISHED, True)}
    listed = desk.engine.view().schedule(SCHEDULE, desk.now)
    assert listed is not None
    assert not told or listed.unfired_since == START + told[0][1] * SECOND
    return told


def test_a_schedule_stored_again_before_each_fire_is_reported_each_day() -> None:
    assert republished("@every 6s", 4, 200) == [(24, 6)]
    assert republished("@every 1h", 3_000, 100) == [
        (15_000, 3_600),
        (102_000, 3_600),
        (189_000, 3_600),
        (276_000, 3_600),
    ]


def test_a_schedule_that_is_stored_again_and_fires_is_not_silent() -> None:
    for seconds, pattern, more in (
        (7, "@every 6s", {}),
        (4, "0 * * * * *", {}),
        (4, "@every 6s", {"Nats_Schedule_X_Anchor": "2026-01-01T00:00:00Z"}),
        (4, "@every 6s", {"Nats_Schedule_X_Debounce": "true"}),
    ):
        assert republished(pattern, seconds, 40, **more) == [], (seconds, pattern)
    desk = Desk(schedule("@every 6s"))
    for number in range(1, 40):
        desk.at(number * 4)
        desk.read(schedule(f"@every {6 + number % 2}s", number + 1, stored_at=desk.now))
        assert desk.reported(ScheduleSilent) == [], "it is edited"


def test_a_schedule_all_of_which_is_dropped_is_reported_after_an_hour() -> None:
    world = overlapping("skip", "@every 10m", kept=True)
    world.advance("79m")
    assert events(world, ScheduleOnlyDropped) == []
    world.advance("2m")
    assert events(world, ScheduleOnlyDropped) == [
        ScheduleOnlyDropped(SCHEDULE, 1, START + 20 * MINUTE, 7, "X-Overlap: skip")
    ]


BEFORE_GAP = "2026-03-27T12:00:00Z"
"""Two days before the clock of Berlin goes from 02:00 to 03:00; `Asia/Beirut` goes from 00:00 to 01:00 that day."""

SKIPPED = {
    ("0 30 2 * * *", "Europe/Berlin", ""): ["2026-03-29T02:30:00Z..2026-03-29T02:30:00Z before 2026-03-30T00:30:00Z"],
    ("@daily", "Asia/Beirut", ""): ["2026-03-29T00:00:00Z..2026-03-29T00:00:00Z before 2026-03-29T21:00:00Z"],
    ("0 */10 * * * *", "Europe/Berlin", ""): [],
    ("0 30 2 * * *", "Europe/Berlin", "X-Clock-Change: after"): [],
    ("0 30 2 * * *", "Europe/Berlin", "X-Except: 2026-03-29"): [],
    ("0 30 2 * * *", "Europe/Berlin", "X-End: 2026-03-29T12:00:00Z"): [],
}


def test_fire_times_that_a_change_of_the_clock_skips_are_reported_once() -> None:
    """When the fire before is stored, or the schedule is; a restart says nothing again."""
    for (pattern, zone, policy), lines in SKIPPED.items():
        world = ScheduleWorld()
        world.advance_to(BEFORE_GAP)
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Time-Zone": zone, "Nats-Schedule-Target": TARGET}
        name, _, value = policy.partition(": ")
        for subject in (SCHEDULE, "s.two"):  # the second one is held as a row at once
            world.publish(subject, headers | ({f"Nats-Schedule-{name}": value} if name else {}))
        for _ in range(2):
            world.advance("24h")
            world.restart("1s")
        assert {one.time_zone for one in events(world, ClockChangeSkipped)} <= {zone}
        found = [
            f"{one.schedule} {format_rfc3339(one.skipped.first * SECOND)}..{format_rfc3339(one.skipped.last * SECOND)}"
            f" before {format_rfc3339(one.due)}"
            for one in events(world, ClockChangeSkipped)
        ]
        expected = [f"{subject} {line}" for line in lines for subject in (SCHEDULE, "s.two")]
        assert sorted(found) == sorted(expected), (pattern, zone, policy)
