"""A schedule that is far when it is read is held like one that was near before: at once, and never as an object."""

from random import Random
from typing import Any

import pytest

from nats_scheduler.engine.actions import Action, WakeAt
from nats_scheduler.engine.holding.far import FarRow
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.inputs import CaughtUp, CheckpointLoaded, MessagesRead, ShardsHeld
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, SHARDS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import Desk, schedule
from tests.engine.test_snapshots import kinds_of_messages

DAY_SECONDS = 86_400
PARTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "max_age": {"max_age": 40 * DAY_SECONDS * SECOND},
    "removes_expired": {"removes_expired": True},
    "work queue": {"reads_all": False},
}


def known(desk: Desk) -> list[tuple[object, ...]]:
    """Return what is held."""
    return sorted(
        (one.subject, one.sequence, one.stored_at, one.shard, one.fire_time, one.wake, one.expires, one.terms)
        for one in desk.engine.held
    )


def done(desk: Desk) -> list[Action]:
    """Return what the last step asked for: only when it wants the next one depends on what is far."""
    return [action for action in desk.actions if not isinstance(action, WakeAt)]


def until(desk: Desk, seconds: float) -> list[Action]:
    """Step at an instant as often as the engine wants, and return what it asked for."""
    found = done(desk.at(seconds))
    while any(isinstance(action, WakeAt) and action.instant <= desk.now for action in desk.actions):
        desk.step()
        found += done(desk)
    return found


def desks(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> tuple[Desk, Desk]:
    """Return an engine, and one for which nothing is ever far."""
    far = Desk(**parts)
    with monkeypatch.context() as patch:
        patch.setattr(Roster, "far_bits", 62)
        return far, Desk(**parts)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_held_and_reported_and_read_like_a_near_one(
    monkeypatch: pytest.MonkeyPatch, seed: int, parts: dict[str, Any], live: bool
) -> None:
    random = Random(seed)
    both = desks(monkeypatch, live=live, **parts)
    messages = kinds_of_messages(random, 400)
    ours = frozenset(random.sample(range(SHARDS), 40))
    settled = START + random.choice([-SECOND, 900 * 3600 * SECOND])
    for desk in both:
        desk.step(CheckpointLoaded(settled, 200), ShardsHeld(ours))
    while messages:
        run, messages = messages[:17], messages[17:]
        for desk in both:
            desk.step(MessagesRead(run))
        assert done(both[0]) == done(both[1])
        assert known(both[0]) == known(both[1])
    for desk in both:
        desk.step(CaughtUp(), ShardsHeld(ALL_SHARDS))
    assert both[0].engine.held.rows.far_count > 100 > both[1].engine.held.rows.far_count == 0
    for day in range(40):
        passed = [until(desk, day * DAY_SECONDS + 1) for desk in both]
        assert passed[0] == passed[1], f"day {day}"


def test_it_is_never_an_object_if_one_like_it_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, pack = list[str](), FarRow.pack

    def noted(row: FarRow, place: int, held: Held) -> bool:
        packed.append(held.subject)
        return pack(row, place, held)

    monkeypatch.setattr(FarRow, "pack", noted)
    desk = Desk()
    desk.read(*(schedule("@at 2100-01-01T00:00:00Z", number, f"s.{number}") for number in range(1, 40)))
    assert desk.engine.held.rows.far_count == 39
    assert packed == ["s.1"]


def test_a_later_version_of_it_is_held_instead() -> None:
    desk = Desk()
    first, second, third = (
        [schedule(f"@at {year}-01-01T00:00:00Z", place + after, f"s.{place}") for place in (1, 2)]
        for year, after in ((2100, 0), (2101, 2), (2102, 4))
    )
    for versions in (first, second, third):
        desk.read(*versions)
        assert [(one.subject, one.sequence) for one in desk.engine.held] == [
            (one.subject, one.sequence) for one in versions
        ]


def test_texts_that_do_not_fit_into_a_row_are_held_all_the_same() -> None:
    desk = Desk()
    longest = "x" * 900
    many: list[StoredMessage] = [
        schedule("@at 2100-01-01T00:00:00Z", number, f"s.{longest}.{number}", stored_at=START + number * MILLISECOND)
        for number in range(1, 300)
    ]
    desk.read(*many)
    assert sorted(one.subject for one in desk.engine.held) == sorted(one.subject for one in many)
    assert len(desk.engine.held) == len(many)


@pytest.mark.parametrize("due", ["2262-04-11T23:47:16Z", "2262-04-11T23:47:17Z", "9999-12-31T23:59:59Z"])
def test_a_fire_time_that_no_row_can_have_is_that_of_an_object(due: str) -> None:
    pattern = f"@at {due}"
    desk = Desk(schedule(pattern, 1, "s.1"))
    desk.read(*(schedule(pattern, number, f"s.{number}") for number in range(2, 5)))
    assert [desk.engine.held.on(f"s.{number}") is not None for number in range(1, 5)] == [True] * 4
    assert desk.engine.held.rows.far_count in (0, 4)
    assert {one.fire_time for one in desk.engine.held} == {parse_rfc3339(due)}
