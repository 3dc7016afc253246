"""Missed fires of schedules with `X-Missed` and `X-Grace`: which are made up, dropped and owed, and what is told."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from nats_scheduler.engine.events import Ending, FireRefused, FiresMissed
from nats_scheduler.engine.inputs import CaughtUp, Checkpoint, MessagesRead, OwnershipChanged, Refused, Stored, Unknown
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, endings, events
from tests.engine.missed_builders import dropped, fired, policies, stored_in, world_of

FULL = Refused(503, 10077, "maximum messages exceeded")
ALL_10S = stored_in("@every 10s", policies("all"))


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_all_makes_up_each_fire_in_order_with_its_own_identity(with_checkpoint: bool) -> None:
    world = world_of("@every 1m", policies("all"))
    world.advance("2m30s")
    world.restart("10m", with_checkpoint=with_checkpoint)
    world.advance("2m")
    assert fired(world) == list(range(1, 15))
    identities = [one.header("Nats-Msg-Id") for one in world.generated]
    assert identities == [f"nats-scheduler:1:{START + minute * MINUTE}:{SCHEDULE}" for minute in range(1, 15)]
    following = [one.header("Nats-Schedule-Next") for one in world.generated]
    assert following == [f"2026-01-01T00:{minute:02}:00Z" for minute in range(2, 16)]
    assert dropped(world) == []


class Outage(NamedTuple):
    """What is fired (min after the start) if nothing runs for a while, what is dropped, and how the schedule ends."""

    found: dict[str, str]
    span: str | int
    fired: list[int]
    dropped: Sequence[tuple[int, int, str]] = ()
    pattern: str = "@every 1m"
    before: str = "2m30s"
    after: str = "0s"
    endings: Sequence[Ending] = ()


HOURLY, ONCE = "@every 1h", "@at 2026-01-01T01:00:00Z"
OUTAGES = [
    Outage(policies("all 3"), "10m", [1, 2, 10, 11, 12], [(3, 7, "X-Missed: all 3")]),
    Outage(policies("all 10"), "10m", list(range(1, 13))),
    # 7 to 12 are late, and not missed.
    Outage(policies("all 2", grace="5m30s"), "10m", [1, 2, 7, 8, 9, 10, 11, 12], [(3, 4, "X-Missed: all 2")]),
    Outage(policies("all", Limit="4"), "1h", [1, 2, 3, 4], endings=[Ending.FIRED]),
    Outage(policies("skip"), "4h", [60, 360, 420], [(120, 4, "X-Missed: skip")], HOURLY, "90m", "90m"),
    Outage(policies("skip"), 20 * SECOND, [1, 2], before="110s"),  # exactly as late as the grace
    Outage(policies("skip"), 20 * SECOND + 1, [1], [(2, 1, "X-Missed: skip")], before="110s"),
    Outage(policies("skip", grace="30m"), "62m", [60], [(120, 1, "X-Missed: skip")], HOURLY, "90m"),
    Outage(policies("skip"), "2h", [], [(60, 1, "X-Missed: skip")], ONCE, "1m", endings=[Ending.MISSED_ITS_TIME]),
    Outage(policies("skip"), "59m5s", [60], [], ONCE, "1m", endings=[Ending.FIRED]),
    Outage(
        policies("skip", Limit="3"),
        "9h",
        [60],
        [(120, 2, "X-Missed: skip")],
        HOURLY,
        "90m",
        endings=[Ending.MISSED_ITS_TIME],
    ),
    # `once` is what a schedule without the policy does.
    Outage({}, "10m", [1, 2, 12], [(3, 0, "")]),
    Outage(policies("once", grace="1m"), "10m", [1, 2, 12], [(3, 0, "")]),
    Outage(policies(Jitter="1ns"), "10m", [1, 2, 12], [(3, 9, "")]),
]


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_after_an_outage_the_policy_decides_what_is_sent_and_told(with_checkpoint: bool) -> None:
    for case in OUTAGES:
        world = world_of(case.pattern, case.found)
        world.advance(case.before)
        world.restart(case.span, with_checkpoint=with_checkpoint)
        world.advance(case.after)
        assert (fired(world), dropped(world)) == (case.fired, list(case.dropped)), case
        assert endings(world) == list(case.endings), case
        assert bool(world.stream.last(SCHEDULE)) is not bool(case.endings), case


def test_a_backlog_is_counted_and_bounded_without_finding_each_fire() -> None:
    world = world_of("* * * * * *", policies("all 2", grace="1s"))
    world.advance("2s")
    world.restart("87600h")
    assert [(one.fire_time - START) // SECOND for one in world.generated] == [1, 2, 315_360_001, 315_360_002]
    (event,) = events(world, FiresMissed)
    assert event.dropped == 315_360_000 - 2


def test_refused_fires_are_dropped_after_the_grace_and_unknown_repeated() -> None:
    message = stored_in("@every 1h", policies("skip"))
    desk, unknown = Desk(message), Desk(message)
    desk.concluded(desk.in_flight(message, 3_600), FULL)
    told: list[FiresMissed] = []
    for second in range(3_601, 3_640):
        desk.at(second)
        if desk.reads:
            desk.found(message)
        for again in desk.fires:
            assert second <= 3_610
            desk.concluded(again, FULL)
        told += desk.reported(FiresMissed)
    assert told == [FiresMissed(SCHEDULE, 1, START + HOUR, None, True, 1, "X-Missed: skip")]
    assert (desk.due, desk.held().flight, desk.engine.failing_count) == (7_200, None, 0)
    fire = unknown.in_flight(message, 3_600)
    unknown.concluded(fire, Unknown("timeout"))
    assert unknown.at(3_700).fires == [fire]


def kept_standing_by(pattern: str, now: int = 2 * HOUR + MINUTE, *, limit: str = "") -> Desk:
    """Make an instance that stands by and passes by fires that are missed."""
    desk = Desk(stored_in(pattern, policies("skip", Limit=limit)), live=False)
    desk.step(OwnershipChanged(False))
    desk.now = START + now
    desk.step(CaughtUp())
    assert desk.reported(FiresMissed) == []
    return desk


def test_what_an_owner_that_is_gone_dropped_is_reported_by_the_next_one() -> None:
    for pattern, limit, count in (("@every 1h", "2", 2), ("@at 2026-01-01T01:00:00Z", "", 1)):
        for through, read, is_reported in ((HOUR - 1, 1, True), (HOUR, 1, False), (HOUR, 0, True)):
            desk = kept_standing_by(pattern, limit=limit)
            desk.now += MINUTE
            desk.step(OwnershipChanged(True, Checkpoint(START + through, read)))
            events = desk.reported(FiresMissed)
            desk.at(3 * 3_600)  # a schedule that only waits is looked at when it is woken
            events += desk.reported(FiresMissed)
            told = [(one.first, one.dropped) for one in events]
            assert told == ([(START + HOUR, count)] if is_reported else []), (pattern, limit, through)


def test_a_clock_that_steps_over_fires_skips_them_or_makes_each_up() -> None:
    for value, expected in (("skip", [1]), ("all", list(range(1, 62))), ("all 2", [1, 60, 61]), ("once", [1, 61])):
        world = world_of("@every 1m", policies(value))
        world.advance("90s")
        world.step_clock(HOUR)
        world.advance("1s")
        assert fired(world) == expected, value


def begun_at(seconds: int, checkpoint: Checkpoint, message: StoredMessage) -> Desk:
    """Begin with a checkpoint and a schedule, which is read then."""
    desk = Desk(live=False)
    desk.now = START + seconds * SECOND
    desk.step(OwnershipChanged(True, checkpoint), MessagesRead([message]), CaughtUp())
    desk.found(message)
    return desk


def test_without_any_trace_of_earlier_fires_only_the_latest_is_made_up() -> None:
    """A first sidecar on an old stream, or one whose bucket and fires are gone: no backlog is invented."""
    world = world_of("@every 1m", policies("all"))
    world.advance("2m30s")
    world.purge(TARGET)
    world.restart("10m", with_checkpoint=False)
    assert fired(world) == [1, 2, 12]
    consumed = world_of("@every 1m", policies("all"))
    consumed.advance("5m30s")
    consumed.purge(TARGET)
    consumed.restart("3m")
    assert fired(consumed) == list(range(1, 9)), "a checkpoint settles what consumers removed"


def test_a_schedule_that_no_owner_had_read_makes_up_each_fire() -> None:
    """It was stored while no sidecar ran: a checkpoint shows that, and without one nothing does."""
    message = stored_in("@every 10s", policies("all"), sequence=5)
    for checkpoint, fire_time in ((Checkpoint(START - SECOND, 4), 10), (Checkpoint(-1, 0), 30)):
        assert begun_at(35, checkpoint, message).fire.fire_time == START + fire_time * SECOND


def test_a_refused_backlog_is_named_with_its_first_fire() -> None:
    """Its schedule is an exception of the checkpoint; without the fire time all since its storage would be owed."""
    desk = Desk(ALL_10S)
    for second in (10, 20):
        fire = desk.in_flight(ALL_10S, second) if second == 10 else desk.at(second).fire
        desk.concluded(fire, Stored(second))
    desk.concluded(desk.at(30).fire, FULL)
    assert desk.reported(FireRefused)
    desk.at(55)
    checkpoint = desk.engine.checkpoint(desk.now)
    assert (checkpoint.through, checkpoint.unsettled) == (desk.now, frozenset({1}))
    assert checkpoint.owed == {1: START + 30 * SECOND}
    assert begun_at(61, checkpoint, ALL_10S).fire.fire_time == START + 30 * SECOND
