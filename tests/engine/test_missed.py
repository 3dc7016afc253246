"""Missed fires of schedules with `X-Missed` and `X-Grace`: which are made up, which are dropped, what is reported."""

import pytest

from nats_scheduler.engine.events import Ending, FiresMissed
from nats_scheduler.engine.inputs import (
    CaughtUp,
    CheckpointLoaded,
    Refused,
    ShardsHeld,
    Stored,
    Unknown,
)
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, Desk
from tests.engine.missed_builders import dropped, endings, fired, headers, policies, stored_in, world_of

GUARDS = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
WITHOUT_CHECKPOINT = pytest.mark.parametrize("with_checkpoint", [True, False])


# -- all --------------------------------------------------------------------------------------------------------------


@GUARDS
@WITHOUT_CHECKPOINT
def test_all_makes_up_each_fire_in_order_with_its_own_identity(guard: bool, with_checkpoint: bool) -> None:
    world = world_of("@every 1m", policies("all"), guard=guard)
    world.advance("2m30s")
    world.restart("10m", with_checkpoint=with_checkpoint)
    world.advance("2m")
    assert fired(world) == list(range(1, 15))
    identities = [one.header("Nats-Msg-Id") for one in world.generated]
    assert identities == [f"nats-scheduler:1:{START + minute * MINUTE}:{SCHEDULE}" for minute in range(1, 15)]
    following = [one.header("Nats-Schedule-Next") for one in world.generated]
    assert following == [f"2026-01-01T00:{minute:02}:00Z" for minute in range(2, 16)]
    assert dropped(world) == []


def test_all_makes_up_what_came_due_while_the_contact_was_lost() -> None:
    world = world_of("@every 1m", policies("all"))
    world.advance("90s")
    world.lose_contact()
    world.advance("1h")
    world.regain_contact()
    world.advance("1m")
    assert fired(world) == list(range(1, 63))


def test_each_missed_fire_is_stored_before_the_next_one_is_sent() -> None:
    message = stored_in("@every 10s", policies("all"))
    desk = Desk(message)
    desk.in_flight(message, 35)
    for second, sequence in ((10, 2), (20, 3), (30, 4)):
        fire = desk.fire
        assert (fire.fire_time, fire.next_fire) == (START + second * SECOND, START + (second + 10) * SECOND)
        before = desk.actions
        desk.step()
        assert desk.fires == [], "it is in flight, and the next one waits for it"
        desk.concluded(fire, Stored(sequence))
        assert desk.actions != before
    assert desk.fires == []


def test_a_fire_of_unknown_outcome_is_repeated_before_the_next_missed_one() -> None:
    message = stored_in("@every 10s", policies("all"))
    desk = Desk(message).at(35)
    desk.found(message)
    first = desk.fire
    desk.concluded(first, Unknown("timeout"))
    desk.at(36)
    assert desk.fires == [first]
    desk.concluded(first, Stored(2))
    assert desk.fire.fire_time == START + 20 * SECOND


@GUARDS
def test_a_number_bounds_what_is_made_up_to_the_latest_fires(guard: bool) -> None:
    world = world_of("@every 1m", policies("all 3"), guard=guard)
    world.advance("2m30s")
    world.restart("10m")
    assert fired(world) == [1, 2, 10, 11, 12]
    assert dropped(world) == [(3, 7, "X-Missed: all 3")]


def test_a_number_drops_nothing_that_is_late_and_not_missed() -> None:
    world = world_of("@every 1m", policies("all 2", grace="5m30s"))
    world.advance("2m30s")
    world.restart("10m")
    assert fired(world) == [1, 2, 7, 8, 9, 10, 11, 12], "7 to 12 are at most 5m30s late"
    assert dropped(world) == [(3, 4, "X-Missed: all 2")]


def test_a_number_that_is_not_reached_drops_nothing() -> None:
    world = world_of("@every 1m", policies("all 10"))
    world.advance("2m30s")
    world.restart("10m")
    assert (fired(world), dropped(world)) == (list(range(1, 13)), [])


def test_a_backlog_is_counted_and_bounded_without_finding_each_fire() -> None:
    world = world_of("* * * * * *", policies("all 2", grace="1s"))
    world.advance("2s")
    world.restart("87600h")
    assert [(one.fire_time - START) // SECOND for one in world.generated] == [1, 2, 315_360_001, 315_360_002]
    (event,) = [event for event in world.events if isinstance(event, FiresMissed)]
    assert event.dropped == 315_360_000 - 2


def test_all_makes_up_the_last_fire_of_a_schedule_that_ends_and_then_removes_it() -> None:
    world = world_of("@every 1m", policies("all", Limit="4"))
    world.advance("90s")
    world.restart("1h")
    assert fired(world) == [1, 2, 3, 4]
    assert world.generated[-1].header("Nats-Schedule-Next") == "purge"
    assert (endings(world), world.next_fire(SCHEDULE)) == ([Ending.FIRED], None)


@GUARDS
def test_all_makes_up_only_what_came_due_before_the_ttl_of_the_schedule_ran_out(guard: bool) -> None:
    world = ScheduleWorld(guard=guard)
    world.publish(SCHEDULE, {**headers("@every 1m", policies("all")), "Nats-TTL": "5m30s"})
    world.advance("90s")
    world.lose_contact()
    world.advance("3m")
    world.regain_contact()
    world.advance("5m")
    assert fired(world) == [1, 2, 3, 4, 5]


def test_a_jitter_delays_fires_that_are_not_due_and_none_that_are_made_up() -> None:
    world = world_of("@every 1m", policies("all", Jitter="30s"))
    world.advance("2m")
    world.restart("10m")
    world.advance("5m")
    assert fired(world)[:14] == list(range(1, 15))
    assert [one.stored_at for one in world.generated] == sorted(one.stored_at for one in world.generated)


# -- skip -------------------------------------------------------------------------------------------------------------


@GUARDS
@WITHOUT_CHECKPOINT
def test_skip_sends_no_missed_fire_and_goes_on_with_the_next_one(guard: bool, with_checkpoint: bool) -> None:
    world = world_of("@every 1h", policies("skip"), guard=guard)
    world.advance("90m")
    world.restart("4h", with_checkpoint=with_checkpoint)
    world.advance("90m")
    assert [minute // 60 for minute in fired(world)] == [1, 6, 7]
    assert dropped(world) == [(120, 4, "X-Missed: skip")]


def test_skip_sends_the_latest_fire_that_is_late_and_not_missed() -> None:
    world = world_of("@every 4s", policies("skip"))
    world.advance("5s")
    world.restart("10s")
    assert [(one.fire_time - START) // SECOND for one in world.generated] == [4, 12]
    assert [event.dropped for event in world.events if isinstance(event, FiresMissed)] == [1]


def test_a_fire_that_is_exactly_as_late_as_the_grace_is_not_missed() -> None:
    for outage, expected in ((10 * SECOND, [1, 2]), (10 * SECOND + 1, [1])):
        world = world_of("@every 1m", policies("skip"))
        world.advance("110s")
        world.restart(10 * SECOND + outage)
        assert fired(world) == expected


def test_a_longer_grace_sends_what_is_later() -> None:
    world = world_of("@every 1h", policies("skip", grace="30m"))
    world.advance("90m")
    world.restart("58m")
    assert [minute // 60 for minute in fired(world)] == [1, 2]
    world.restart("61m")
    assert [minute // 60 for minute in fired(world)] == [1, 2, 3]
    world.restart("80m")
    assert [minute // 60 for minute in fired(world)] == [1, 2, 3]


@GUARDS
@WITHOUT_CHECKPOINT
def test_an_at_that_is_missed_ends_without_a_fire_and_is_removed(guard: bool, with_checkpoint: bool) -> None:
    world = world_of("@at 2026-01-01T01:00:00Z", policies("skip"), guard=guard)
    world.advance("1m")
    world.restart("2h", with_checkpoint=with_checkpoint)
    assert (fired(world), endings(world)) == ([], [Ending.MISSED_ITS_TIME])
    assert list(world.stream.messages()) == []
    assert dropped(world) == [(60, 1, "X-Missed: skip")]


def test_an_at_that_is_late_and_not_missed_fires() -> None:
    world = world_of("@at 2026-01-01T01:00:00Z", policies("skip"))
    world.advance("1m")
    world.restart("59m5s")
    assert (fired(world), endings(world)) == ([60], [Ending.FIRED])


def test_a_schedule_ends_if_its_last_fire_is_missed() -> None:
    world = world_of("@every 1h", policies("skip", Limit="3"))
    world.advance("90m")
    world.restart("9h")
    assert [minute // 60 for minute in fired(world)] == [1]
    assert endings(world) == [Ending.MISSED_ITS_TIME]
    assert all(message.subject != SCHEDULE for message in world.stream.messages())
    assert dropped(world) == [(120, 2, "X-Missed: skip")]


def test_refused_fires_are_dropped_once_they_are_later_than_the_grace() -> None:
    message = stored_in("@every 1h", policies("skip"))
    desk = Desk(message)
    fire = desk.in_flight(message, 3_600)
    desk.concluded(fire, Refused(503, 10077, "maximum messages exceeded"))
    for second in range(3_601, 3_640):
        desk.at(second)
        if desk.reads:
            desk.found(message)
        for again in desk.fires:
            assert second <= 3_610
            desk.concluded(again, Refused(503, 10077, "maximum messages exceeded"))
        if events := desk.reported(FiresMissed):
            assert [(event.first, event.made_up, event.dropped) for event in events] == [(START + HOUR, None, 1)]
            break
    held = desk.held()
    assert (held.fire_time, held.flight, desk.engine.failing_count) == (START + 2 * HOUR, None, 0)


def test_a_fire_whose_outcome_is_unknown_is_repeated_however_late_it_is() -> None:
    message = stored_in("@every 1h", policies("skip"))
    desk = Desk(message)
    fire = desk.in_flight(message, 3_600)
    desk.concluded(fire, Unknown("timeout"))
    desk.at(3_700)
    assert desk.fires == [fire]


def test_a_fire_that_an_earlier_holder_dropped_is_not_neglected() -> None:
    """Nothing is stored that shows it, so another instance drops it too, and reports nothing."""
    message = stored_in("@every 1h", policies("skip"))
    desk = Desk(message, live=False)
    desk.step(ShardsHeld(frozenset()))
    desk.now = START + 2 * HOUR + MINUTE
    desk.step(CaughtUp())
    held = desk.held()
    assert (held.fire_time, desk.reads, desk.reported(FiresMissed)) == (START + 3 * HOUR, [], [])


def test_an_at_that_another_holder_drops_waits_for_its_purge() -> None:
    message = stored_in("@at 2026-01-01T01:00:00Z", policies("skip"))
    desk = Desk(message, live=False)
    desk.step(ShardsHeld(frozenset()))
    desk.now = START + 2 * HOUR
    desk.step(CaughtUp())
    assert (desk.purges, desk.is_held()) == ([], True)
    desk.now += 29 * SECOND
    desk.step()
    assert desk.purges == [], "its holder may be late, and reports what is dropped"
    desk.step(ShardsHeld(ALL_SHARDS))
    assert desk.purges == [(SCHEDULE, 1)]


def kept_elsewhere(pattern: str) -> Desk:
    """Make an instance that holds no shard and passes by fires that are missed."""
    desk = Desk(stored_in(pattern, policies("skip")), live=False)
    desk.step(ShardsHeld(frozenset()))
    desk.now = START + 2 * HOUR + MINUTE
    desk.step(CaughtUp())
    assert desk.reported(FiresMissed) == []
    return desk


@pytest.mark.parametrize("pattern", ["@every 1h", "@at 2026-01-01T01:00:00Z"])
@pytest.mark.parametrize(("through", "is_reported"), [(HOUR - 1, True), (HOUR, False), (-START - 1, True)])
def test_what_a_holder_that_is_gone_dropped_is_reported_by_the_next_one_unless_it_was_settled(
    pattern: str, through: int, is_reported: bool
) -> None:
    desk = kept_elsewhere(pattern)
    events: list[FiresMissed] = []
    desk.now += MINUTE
    desk.step(CheckpointLoaded(START + through, 1), ShardsHeld(ALL_SHARDS))
    events += desk.reported(FiresMissed)
    desk.at(3 * 3_600)  # a schedule that only waits is looked at when it is woken
    events += desk.reported(FiresMissed)
    count = 2 if pattern.startswith("@every") else 1
    assert [(one.first, one.dropped) for one in events] == ([(START + HOUR, count)] if is_reported else [])


def test_a_clock_that_steps_over_fires_skips_them_or_makes_each_up() -> None:
    for value, expected in (("skip", [1]), ("all", list(range(1, 62))), ("all 2", [1, 60, 61]), ("once", [1, 61])):
        world = world_of("@every 1m", policies(value))
        world.advance("90s")
        world.step_clock(HOUR)
        assert fired(world) == expected, value


# -- once, and what is the same for all -------------------------------------------------------------------------------


def test_once_is_what_a_schedule_without_the_policy_does() -> None:
    found = []
    for given in ({}, policies("once"), policies("once", grace="1m"), policies(Jitter="1ns")):
        world = world_of("@every 1m", given)
        world.advance("2m30s")
        world.restart("10m")
        found.append((fired(world), [(event[0], event[2]) for event in dropped(world)]))
    assert found == [([1, 2, 12], [(3, "")])] * 4


@pytest.mark.parametrize("value", ["all", "all 5", "skip"])
def test_a_decision_does_not_depend_on_the_instance_that_makes_it(value: str) -> None:
    message = stored_in("@every 10s", policies(value))
    found = set()
    for _instance in range(2):
        desk = Desk(message)
        held = desk.held()
        found.add(tuple(held.due_fire(None, START + seconds * SECOND) for seconds in range(10, 300, 7)))
    assert len(found) == 1
