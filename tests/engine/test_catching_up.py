"""After an outage: so many missed fires come in a second, and what is on time does not wait for them.

The tests of `engine.firing.catching_up` and `engine.holding.catch_up`.
"""

from collections import Counter

from nats_scheduler.engine.events import CatchingUp
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import events

RATE = 20


def published(world: ScheduleWorld, number: int, pattern: str, **policies: str) -> None:
    """Publish schedules with a pattern."""
    more = {f"Nats-Schedule-{name.replace('_', '-')}": value for name, value in policies.items()}
    for one in range(number):
        rest = f"{len(policies)}{pattern[1:3]}.{one}"
        world.publish(f"s.{rest}", {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"t.{rest}", **more})


def lateness(world: ScheduleWorld, beginning: str) -> list[int]:
    """Return how late (s) fires were stored, in the order in which they were."""
    found = [one for one in world.generated if one.subject.startswith(beginning)]
    return [(one.stored_at - one.fire_time) // SECOND for one in found]


def test_missed_fires_come_at_the_rate_and_once_despite_a_restart() -> None:
    world = ScheduleWorld(catch_up_rate=RATE)
    published(world, 90, "@at 2026-01-01T00:00:10Z")
    published(world, 4, "@every 5s", X_Missed="all", X_Limit="7")
    published(world, 1, "0 0 * * * *", X_Start="2026-01-01T00:00:00Z")
    world.publish("s.often", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "t.often"})
    world.advance("3s")
    world.restart("60s")
    world.advance("2s")
    assert events(world, CatchingUp) == [CatchingUp(events(world, CatchingUp)[0].waiting, RATE)]
    world.restart("1s")
    world.advance("10s")
    assert events(world, CatchingUp)[-1] == CatchingUp(0, RATE)
    assert Counter(one.schedule for one in world.generated if one.subject.startswith("t.0")) == {
        f"s.0at.{number}": 1 for number in range(90)
    }
    for number in range(4):
        backlog = [one.fire_time for one in world.generated if one.schedule == f"s.2ev.{number}"]
        assert backlog == [START + step * 5 * SECOND for step in range(1, 8)]
    made_up = [one.stored_at for one in world.generated if one.stored_at - one.fire_time > 10 * SECOND]
    assert len(made_up) == 90 + 4 * 7
    assert all(sum(first <= at < first + SECOND for at in made_up) <= 1.2 * RATE for first in made_up)
    assert not any(lateness(world, "t.often")), "it is on time, and stands for what it missed"


def test_what_fires_again_before_its_turn_is_on_time() -> None:
    world = ScheduleWorld(catch_up_rate=1)
    published(world, 30, "@every 20s")
    world.restart("32s")
    world.advance("12s")
    assert [late for late in lateness(world, "t.") if late] == list(range(12, 20)), "one a second, until 40 s"
    fired = Counter(one.schedule for one in world.generated if one.fire_time == START + 40 * SECOND)
    assert len(fired) == 30, "each is stored at its time, whether it was made up or not"
    assert {one.stored_at for one in world.generated if one.fire_time == START + 40 * SECOND} == {START + 40 * SECOND}


def test_what_is_owed_of_replaced_schedules_keeps_its_turn() -> None:
    world = ScheduleWorld(catch_up_rate=1)
    published(world, 30, "@every 20s")
    world.restart("32s")
    for one in range(30):
        world.publish(f"s.0ev.{one}", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "t.new"})
    world.advance("1m")
    assert lateness(world, "t.0") == list(range(12, 42)), "one a second"


def test_what_ends_or_is_replaced_while_it_waits_has_no_turn() -> None:
    world = ScheduleWorld(catch_up_rate=1)
    published(world, 9, "@at 2026-01-01T00:00:10Z")
    world.restart("60s")
    assert [one.schedule for one in world.generated] == ["s.0at.0"], "one a second"
    world.purge("s.0at.8")
    world.publish("s.0at.7", {"Nats-Schedule": "@at 2026-01-01T00:00:10Z", "Nats-Schedule-Target": "t.replaced"})
    world.lose_contact()
    world.advance("30s")
    world.regain_contact()
    world.advance("10s")
    assert Counter(one.subject for one in world.generated) == {f"t.0at.{n}": 1 for n in range(7)} | {"t.replaced": 1}
    assert [one.subject for one in world.stream.messages("s.>")] == []
