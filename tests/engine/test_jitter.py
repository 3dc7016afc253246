"""Schedules with a jitter: what happens between the fire time and the send time of a fire, and what it costs others."""

from nats_scheduler.engine.events import Ending, FireConfirmed, ScheduleEnded, ScheduleEndsEarly
from nats_scheduler.engine.inputs import PurgeConcluded, Stored
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import ListedSchedule
from nats_scheduler.message.jitter import delay_of
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, plain, schedule, stored_fire, world_holding

HOURLY = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": TARGET, "Nats-Schedule-X-Jitter": "30m"}
OFTEN = {"Nats-Schedule": "@every 10m", "Nats-Schedule-Target": "t.often"}


def sent(number: int = 1) -> int:
    """Return when the fire of an hour is sent."""
    fire_time = START + number * HOUR
    return fire_time + delay_of(SCHEDULE, 1, fire_time, HOUR // 2)


def fired(world: ScheduleWorld, target: str = TARGET) -> list[tuple[int, int]]:
    """Return the fire time of each fire on a target, and when it was stored."""
    return [(one.fire_time, one.stored_at) for one in world.generated if one.subject == target]


def jittered(pattern: str = "@every 1h") -> StoredMessage:
    return schedule(pattern, Nats_Schedule_X_Jitter="30m")


def listed(desk: Desk, at: int) -> ListedSchedule:
    found = desk.engine.view().schedule(SCHEDULE, at)
    assert found is not None
    return found


def test_each_fire_is_sent_after_its_delay() -> None:
    world = world_holding(HOURLY)
    world.advance("210m")
    times = [START + number * HOUR for number in (1, 2, 3)]
    assert fired(world) == [(time, sent(number)) for number, time in enumerate(times, 1)]
    assert len({at - time for time, at in fired(world)}) == 3
    following = [one.header("Nats-Schedule-Next") for one in world.generated]
    assert following == [f"2026-01-01T0{hour}:00:00Z" for hour in (2, 3, 4)]
    identities = [one.header("Nats-Msg-Id") for one in world.generated]
    assert identities == [f"nats-scheduler:1:{time}:{SCHEDULE}" for time in times]
    assert not any("X-" in name for one in world.generated for name, _value in one.headers)


# -- the delay is interrupted -----------------------------------------------------------------------------------------


def test_a_checkpoint_in_a_delay_settles_all_but_the_delayed_fire() -> None:
    """Consumers removed all fires, and their identities are gone: only the checkpoint says what was fired."""
    world = world_holding(HOURLY, config={"retention": "workqueue"})
    world.publish("s.often", OFTEN)
    world.advance_to(sent(2) - MINUTE)
    world.checkpoint = world.engine.checkpoint(world.now)
    assert world.checkpoint.through == world.now, "the delay holds back nothing"
    assert world.checkpoint.unsettled == frozenset()
    before = fired(world), fired(world, "t.often")
    assert [time for time, _at in before[0]] == [START + HOUR]
    for message in world.generated:
        world.stream.delete(message.sequence)
    world.restart("30s")
    assert (fired(world), fired(world, "t.often")) == before, "nothing is fired again"
    world.advance_to(sent(2))
    assert fired(world) == [*before[0], (START + 2 * HOUR, sent(2))]


def test_a_ttl_that_runs_out_during_the_delay_ends_the_schedule() -> None:
    world = ScheduleWorld()
    lifetime = (HOUR + (sent() - START - HOUR) // 2) // SECOND
    world.publish(SCHEDULE, {**HOURLY, "Nats-TTL": f"{lifetime}s"})
    world.advance("2h")
    assert fired(world) == []
    endings = [event.ending for event in world.events if isinstance(event, (ScheduleEndsEarly, ScheduleEnded))]
    assert endings == [Ending.EXPIRED, Ending.EXPIRED], "announced when it was stored, and carried out"
    after = world_holding({**HOURLY, "Nats-TTL": f"{(sent() - START) // SECOND + 1}s"})
    after.advance("2h")
    assert fired(after) == [(START + HOUR, sent())], "after the send time it changes nothing"


def test_the_lateness_of_a_last_fire_counts_from_its_send_time() -> None:
    message = jittered("@at 2026-01-01T01:00:00Z")
    desk = Desk(message)
    at = (sent() - START) / SECOND
    desk.at(at - 0.5)
    desk.found(message)
    fire = desk.at(at + 0.001).fire
    back = stored_fire(fire, 2, desk.now)
    desk.concluded(fire, Stored(2))
    desk.step(PurgeConcluded(SCHEDULE, 1))
    assert not desk.is_held()
    desk.read(back)
    (seen,) = desk.reported(FireConfirmed)
    assert (seen.fire_time, seen.send_time, seen.overdue) == (START + HOUR, sent(), False)


def test_a_schedule_waits_during_its_delay_and_shows_both_times() -> None:
    desk = Desk(jittered(), plain("d.x", 2))
    delay = sent() - START - HOUR
    for at, number in ((START + 1, 1), (START + HOUR + delay // 2, 1), (sent() + 1, 2), (START + 2 * HOUR + 1, 2)):
        one = listed(desk, at)
        assert (one.state, one.next_fire, one.sent) == (State.WAITING, START + number * HOUR, sent(number)), at
    assert listed(Desk(schedule("@every 1h")), START).sent is None
