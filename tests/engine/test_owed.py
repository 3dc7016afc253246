"""A fire that was due when its schedule was replaced is stored as what it was, once, unless that takes its time away.

It tests `engine/receiving/replaced.py`, and the stages of a version that was replaced.
"""

from collections.abc import Mapping

import pytest

from nats_scheduler.engine.events import NO_VALID_SCHEDULE, FireLostToReplacement, FireRefused
from nats_scheduler.engine.inputs import CaughtUp, Checkpoint, MessagesRead, OwnershipChanged, Refused, Stored, Unknown
from nats_scheduler.engine.receiving import replaced
from nats_scheduler.message.jitter import delay_of
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, events, schedule, stored_fire, world_holding

HOURLY = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": TARGET, "Nats-Schedule-X-Jitter": "30m"}
ONCE = {**HOURLY, "Nats-Schedule": "@at 2026-01-01T01:00:00Z"}
DAILY = {"Nats-Schedule": "@every 24h", "Nats-Schedule-Target": "t.new"}
DUE = START + HOUR
SENT = DUE + delay_of(SCHEDULE, 1, DUE, HOUR // 2)
WRONG_LAST_SEQUENCE = Refused(400, 10071, "wrong last sequence: 2")
DENIED = Refused(403, 403, "permissions violation")
EVERY = schedule("@every 5s", body=b"old")
NEW = schedule("@every 1h", 2, stored_at=START + 5 * SECOND + MILLISECOND)


def edited(headers: Mapping[str, str] = HOURLY, changed: Mapping[str, str] = {}) -> ScheduleWorld:
    """Begin a world with a schedule that is edited 1.5 s after its fire time, while its jitter delays that fire."""
    world = world_holding(headers, b"old")
    world.advance_to(DUE + 3 * SECOND // 2)
    world.publish(SCHEDULE, {**DAILY, **changed}, b"new")
    return world


def fired(world: ScheduleWorld) -> list[tuple[str, bytes, int, int]]:
    return [(one.subject, one.body, one.fire_time, one.stored_at) for one in world.generated]


def due_and_replaced() -> Desk:
    """Bring a fire into flight, and let its schedule be replaced."""
    desk = Desk(EVERY)
    desk.in_flight(EVERY, 5)
    desk.read(NEW)
    return desk


def test_a_delayed_fire_is_stored_before_its_version_is_purged() -> None:
    world = edited()
    world.advance("1m")
    world.publish(SCHEDULE, DAILY, b"newer")  # its guard expects what is the last message now
    world.advance_to(SENT + SECOND)
    assert fired(world) == [(TARGET, b"old", DUE, SENT)]
    assert [one.body for one in world.stream.messages(SCHEDULE)] == [b"newer"]
    world.advance("25h")
    assert [one[:2] for one in fired(world)] == [(TARGET, b"old"), ("t.new", b"newer")]
    assert events(world, FireLostToReplacement) == []


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_restart_keeps_what_is_owed_if_it_is_known_what_was_settled(with_checkpoint: bool) -> None:
    world = edited()
    world.advance("1s")
    world.restart("2s", with_checkpoint=with_checkpoint)
    world.advance_to(SENT + MINUTE)
    assert fired(world) == ([(TARGET, b"old", DUE, SENT)] if with_checkpoint else [])
    assert [one.body for one in world.stream.messages(SCHEDULE)] == [b"new"]


@pytest.mark.parametrize("change", ["purged", "overwritten", "rejected", "bounded", "the same time"])
def test_what_takes_the_time_away_takes_what_is_owed(change: str) -> None:
    bounds = {
        "bounded": {"Nats-Schedule-X-Start": "2026-01-02T00:00:00Z"},
        "the same time": {"Nats-Schedule": ONCE["Nats-Schedule"]},
    }
    world = edited(HOURLY, bounds.get(change, {}))
    if change == "overwritten":
        world.publish(SCHEDULE, b"", b"ordinary")
    elif change == "rejected":
        world.publish(SCHEDULE, {**HOURLY, "Nats-Schedule": "nonsense"})
    elif change == "purged":
        world.purge(SCHEDULE)
    world.advance_to(SENT + SECOND)
    assert [one[:2] for one in fired(world)] == ([("t.new", b"new")] if change == "the same time" else [])
    lost = FireLostToReplacement(SCHEDULE, 1, DUE, NO_VALID_SCHEDULE)
    assert events(world, FireLostToReplacement) == ([lost] if change in ("overwritten", "rejected") else [])


def test_one_that_fires_once_loses_its_time_to_another_and_says_so() -> None:
    world = edited(ONCE)
    world.advance_to(SENT + SECOND)
    assert fired(world) == []
    assert [one.reason for one in events(world, FireLostToReplacement)] == [
        "it had one time, which another one replaced"
    ]
    assert events(edited({**ONCE, "Nats-Schedule-X-Debounce": "true"}), FireLostToReplacement) == []


@pytest.mark.parametrize("outcome", [WRONG_LAST_SEQUENCE, Unknown("cut"), Stored(7)])
def test_a_fire_in_flight_is_sent_until_it_is_stored(outcome: object) -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    desk.read(NEW)
    assert desk.purges == []
    assert desk.engine.checkpoint(desk.now).through < START + 5 * SECOND
    desk.concluded(fire, outcome)  # type: ignore[arg-type]
    if not isinstance(outcome, Stored):
        if isinstance(outcome, Unknown):  # its bytes are sent again: they may be stored
            desk.at(5.05)
            desk.found(EVERY)
            desk.concluded(desk.fire, WRONG_LAST_SEQUENCE)
        desk.found(EVERY)
        again = desk.fire
        assert (again.body, again.fire_time, again.last) == (b"old", fire.fire_time, 2)
        desk.concluded(again, Stored(7))
    assert desk.purges == [(SCHEDULE, 1)]
    assert (desk.due, desk.at(60).reads, desk.fires) == (3605, [], [])
    assert desk.engine.checkpoint(desk.now).through == desk.now


def test_what_cannot_be_stored_any_more_is_reported_by_the_owner() -> None:
    lost = []
    for outcome in (WRONG_LAST_SEQUENCE, DENIED):
        desk = due_and_replaced()
        desk.concluded(desk.engine._state.active[1].flight.fire, outcome)  # type: ignore[union-attr, arg-type]
        if outcome is WRONG_LAST_SEQUENCE:
            desk.found(None, of=EVERY)  # the stream keeps one message for each subject
        lost += [(one.sequence, one.reason) for one in desk.reported(FireLostToReplacement)]
        assert desk.reported(FireRefused) == []
    assert lost == [(1, "its message is not stored any more"), (1, "it was refused: permissions violation (403)")]


def test_a_standby_keeps_what_is_owed_until_it_is_stored_or_its_own() -> None:
    for takes_over in (False, True):
        desk = Desk(live=False)
        desk.step(OwnershipChanged(False), MessagesRead([EVERY]), CaughtUp())
        desk.read(NEW)
        owner = Desk(EVERY)
        fire = owner.in_flight(EVERY, 5)
        if takes_over:
            desk.now = START + 6 * SECOND
            desk.step(OwnershipChanged(True, Checkpoint(START + 4 * SECOND, 1)))
            desk.at(6.1)
            desk.found(EVERY)
            assert (desk.fire.body, desk.fire.fire_time) == (b"old", START + 5 * SECOND)
        else:
            desk.read(stored_fire(fire, 3, START + 5 * SECOND + 2 * MILLISECOND))
            desk.now = START + 6 * SECOND
            desk.step(OwnershipChanged(True, Checkpoint(START + 4 * SECOND, 1)))
            assert desk.at(60).fires == []


@pytest.mark.parametrize(("missed", "kept"), [("once", [4]), ("all", [1, 2, 3, 4])])
def test_no_backlog_of_versions_is_invented_and_one_stands_for_more(missed: str, kept: list[int]) -> None:
    versions = [
        schedule("@every 1h", 1 + number, stored_at=START + number * 2 * HOUR, Nats_Schedule_X_Missed=missed)
        for number in range(5)
    ]
    for settled, reads in ((None, []), (Checkpoint(START + HOUR // 2, 1), [(SCHEDULE, one) for one in kept])):
        desk = Desk(live=False)
        desk.now = versions[-1].stored_at + MINUTE
        desk.step(OwnershipChanged(True, settled), MessagesRead(versions), CaughtUp())
        assert [read for read in desk.reads if read[1] != 5] == reads


def test_a_rejected_version_that_is_read_late_takes_what_is_owed_of_the_one_before_it() -> None:
    for between, purges in ((schedule("nonsense", 2), [(SCHEDULE, 2)]), (schedule("@every 2h", 2), [])):
        desk = Desk(EVERY)
        desk.in_flight(EVERY, 5)
        desk.read(schedule("@every 1h", 3, stored_at=START + 5 * SECOND + MILLISECOND))
        desk.read(between)
        assert desk.purges == purges


def test_no_more_versions_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaced, "MAX_OWED", 2)
    world = world_holding(HOURLY)
    for number in range(1, 4):
        world.publish(f"s.{number}", HOURLY)
    world.advance_to(DUE + SECOND)
    before = len(world.generated)
    for number in range(1, 4):
        world.publish(f"s.{number}", DAILY)
    kept = 3 - len(events(world, FireLostToReplacement))
    world.advance("1h")
    assert kept == 2
    assert len({one.header("Nats-Scheduler") for one in world.generated[before:]} - {SCHEDULE}) == 2


def test_a_replacement_that_ends_first_is_purged_after_what_is_owed() -> None:
    world = edited(changed={"Nats-Schedule": "@at 2026-01-01T01:00:03Z"})
    world.advance("5s")
    assert [one[0] for one in fired(world)] == ["t.new"]
    world.advance_to(SENT + 2 * SECOND)
    assert [one[0] for one in fired(world)] == ["t.new", TARGET]
    assert list(world.stream.messages(SCHEDULE)) == []
