"""Where the stream refuses `Nats-Rollup`, a target is rolled up by a purge below the fire, which removes only that."""

import pytest

from nats_scheduler.engine.events import Ending, PurgeFailed
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    PurgeConcluded,
    RemovalRequested,
    ShardsHeld,
    Stored,
)
from nats_scheduler.engine.removing.purges import OLD_VERSIONS_RETRY_NS, Purges
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, schedule

NO_ROLL_UPS = {"allow_rollup_hdrs": False}
AT_5S = "@at 2026-01-01T00:00:05Z"
EVERY_5S = "@every 5s"
FIRE = 20


def rolling_up(pattern: str = EVERY_5S) -> StoredMessage:
    return schedule(pattern, Nats_Schedule_Rollup="sub")


def fired(pattern: str = EVERY_5S) -> Desk:
    """Return a desk on which a schedule that rolls up its target has just fired."""
    message = rolling_up(pattern)
    desk = Desk(message, rolls_up_by_purge=True)
    fire = desk.in_flight(message, 5)
    assert header_value(fire.block, b"Nats-Rollup") is None
    desk.concluded(fire, Stored(FIRE))
    return desk


def test_what_lies_on_the_target_below_the_fire_is_purged_once_it_is_stored() -> None:
    desk = fired()
    assert desk.purges == [(TARGET, FIRE - 1)]
    desk.step(PurgeConcluded(TARGET, FIRE - 1))
    assert desk.purges == []
    assert desk.engine.is_idle


def test_a_schedule_that_is_done_is_purged_after_its_target_was_rolled_up() -> None:
    desk = fired(AT_5S)
    assert desk.purges == [(TARGET, FIRE - 1)]
    desk.step(PurgeConcluded(TARGET, FIRE - 1))
    assert desk.purges == [(SCHEDULE, 1)]
    desk.step(PurgeConcluded(SCHEDULE, 1))
    assert desk.endings == [Ending.FIRED]


def test_a_failed_roll_up_is_repeated_and_the_schedule_stays_until_it_is_done() -> None:
    desk = fired(AT_5S)
    desk.step(PurgeConcluded(TARGET, FIRE - 1, "no answer"))
    assert [event.reason for event in desk.reported(PurgeFailed)] == ["no answer"]
    assert desk.purges == []
    desk.at(5 + OLD_VERSIONS_RETRY_NS / SECOND)
    assert desk.purges == [(TARGET, FIRE - 1)]
    desk.step(PurgeConcluded(TARGET, FIRE - 1))
    assert desk.purges == [(SCHEDULE, 1)]


def test_a_refused_roll_up_is_reported_and_the_fires_are_kept() -> None:
    desk = fired(AT_5S)
    desk.step(PurgeConcluded(TARGET, FIRE - 1, "purge is denied (server code 10110)", refused=True))
    assert [(event.schedule, event.refused) for event in desk.reported(PurgeFailed)] == [(TARGET, True)]
    assert desk.purges == [(SCHEDULE, 1)]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_fire_that_was_stored_before_a_crash_is_rolled_up_when_it_is_read(is_last: bool) -> None:
    pattern = AT_5S if is_last else EVERY_5S
    message = rolling_up(pattern)
    before = Desk(message, rolls_up_by_purge=True)
    fire = before.in_flight(message, 5)
    stored = StoredMessage(TARGET, FIRE, START + 5 * SECOND, fire.block, fire.body)
    desk = Desk(message, stored, rolls_up_by_purge=True)
    assert desk.purges == [(TARGET, FIRE - 1)]
    desk.step(PurgeConcluded(TARGET, FIRE - 1))
    assert desk.purges == ([(SCHEDULE, 1)] if is_last else [])


@pytest.mark.parametrize("is_old", [True, False])
def test_what_only_claims_to_be_a_fire_rolls_up_nothing(is_old: bool) -> None:
    """Anybody may write what a fire says."""
    message = rolling_up()
    before = Desk(message, rolls_up_by_purge=True)
    fire = before.in_flight(message, 5)
    desk = fired() if is_old else Desk(message, rolls_up_by_purge=True)
    desk.read(StoredMessage("s.other", FIRE + 1, START + 5 * SECOND, fire.block, fire.body))
    assert desk.purges == []


def test_another_holder_rolls_up_what_it_fired_and_its_heir_what_it_may_not_have() -> None:
    message = rolling_up()
    before = Desk(message, rolls_up_by_purge=True)
    fire = before.in_flight(message, 5)
    desk = Desk(message, rolls_up_by_purge=True)
    desk.step(ShardsHeld(frozenset()))
    desk.now = START + 5 * SECOND
    desk.read(StoredMessage(TARGET, FIRE, START + 5 * SECOND, fire.block, fire.body))
    assert desk.purges == []
    desk.step(ShardsHeld(ALL_SHARDS))
    assert desk.purges == [(TARGET, FIRE - 1)]


def test_what_its_holder_has_rolled_up_is_not_done_again() -> None:
    message = rolling_up()
    before = Desk(message, rolls_up_by_purge=True)
    fire = before.in_flight(message, 5)
    desk = Desk(message, rolls_up_by_purge=True)
    desk.step(ShardsHeld(frozenset()))
    desk.now = START + 5 * SECOND
    desk.read(StoredMessage(TARGET, FIRE, START + 5 * SECOND, fire.block, fire.body))
    desk.step(RemovalRequested(filter=TARGET, below=FIRE))
    desk.step(ShardsHeld(ALL_SHARDS))
    assert desk.purges == []


# -- in a world -------------------------------------------------------------------------------------------------------

ROLLED_UP = [("other", b"kept"), ("out", b"new"), ("out", b"later")]


def left(*, allowed: bool) -> list[tuple[str, bytes | None]]:
    """Return what is stored after a fire has rolled up its target, and something was published behind it."""
    world = ScheduleWorld(config={"allow_rollup_hdrs": allowed})
    for body in (b"older", b"old"):
        world.publish("out", body=body)
    world.publish("other", body=b"kept")
    world.publish("s", {"Nats-Schedule": AT_5S, "Nats-Schedule-Target": "out", "Nats-Schedule-Rollup": "sub"}, b"new")
    world.advance("10s")
    world.publish("out", body=b"later")
    world.advance("60s")
    return [(one.subject, one.body) for one in world.stream.messages()]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_target_holds_what_it_holds_where_the_stream_allows_roll_ups(allowed: bool) -> None:
    assert left(allowed=allowed) == ROLLED_UP


@pytest.mark.parametrize("further", [1, 1_000_000, -1_000_000], ids=["the fire too", "all behind it", "nothing"])
def test_a_planted_bug_that_purges_something_else_is_found(monkeypatch: pytest.MonkeyPatch, further: int) -> None:
    original = Purges.roll_up
    monkeypatch.setattr(
        Purges, "roll_up", lambda self, target, through, shard: original(self, target, through + further, shard)
    )
    assert left(allowed=False) != ROLLED_UP


def test_a_lost_contact_ends_no_roll_up() -> None:
    desk = fired()
    desk.step(PurgeConcluded(TARGET, FIRE - 1, "contact ended"), ContactLost("cut"))
    assert desk.engine.is_idle
    desk.step(CaughtUp(FIRE))
    assert desk.at(20).purges == [(TARGET, FIRE - 1)]
