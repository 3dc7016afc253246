"""What a standby does: it looks late, ends what the owner purges, and notices an owner that does not fire.

It tests `engine/firing/timing.py` and `engine/holding/ownership.py` too.
"""

import pytest

from nats_scheduler.engine.actions import Action, WakeAt
from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.firing.purging import LEFT_TO_OWNER_NS
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.holding.purges import JOINT_KEPT_NS, MAX_JOINT_FILTERS
from nats_scheduler.engine.inputs import (
    OwnershipChanged,
    PurgeConcluded,
    Refused,
    RemovalRequested,
    Stored,
    Unanswered,
)
from nats_scheduler.message.rejection import NOT_PERMITTED
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, schedule, standing_by, stored_fire

DENIED = Refused(NOT_PERMITTED, NOT_PERMITTED, "our user may not publish to the target")
WHY = "may not"
EVERY_5S = schedule("@every 5s")
UNFIRED = UNFIRED_LIMIT_NS / SECOND


def twenty() -> list[StoredMessage]:
    """Make schedules that are due at the same time."""
    return [schedule("@every 5s", sequence, f"s.{sequence}") for sequence in range(1, 21)]


def asked(desk: Desk) -> list[Action]:
    """Return what the last step asked for but the next step."""
    return [action for action in desk.actions if not isinstance(action, WakeAt)]


def test_a_schedule_whose_fires_are_read_in_time_is_never_looked_at() -> None:
    desk = standing_by(EVERY_5S)
    for turn in range(1, 5):
        for seconds in (5 * turn - 0.9, 5 * turn, 5 * turn + UNFIRED - 0.1):
            assert asked(desk.at(seconds)) == []
        desk.read(stored_fire(Desk(EVERY_5S).in_flight(EVERY_5S, 5 * turn), 1 + turn, desk.now))
        assert asked(desk) == []
        assert desk.wake == 5 * (turn + 1) + UNFIRED, "it need not be stepped before"


def test_what_is_left_for_a_while_is_looked_at_then_and_not_later_still() -> None:
    """The delay of a standby is not added to the time at which it wants to look again."""
    once = schedule("@at 2026-01-01T00:00:05Z")
    done = standing_by(once).at(5)
    done.read(stored_fire(Desk(once).in_flight(once, 5), 2, done.now))
    left = LEFT_TO_OWNER_NS / SECOND
    assert done.wake == 5 + left
    assert done.at(5 + left - 0.01).purges == []
    assert done.at(5 + left).purges == [(SCHEDULE, 1)], "the owner did not, or its request was not received"
    looked_at = standing_by(EVERY_5S).at(5 + UNFIRED)
    looked_at.found(EVERY_5S)
    assert looked_at.wake == 5 + UNFIRED + left
    assert looked_at.at(5 + UNFIRED + left - 0.01).reads == []
    assert looked_at.at(5 + UNFIRED + left).reads == [(SCHEDULE, 1)]


def test_what_is_older_than_its_stream_allows_is_looked_at_in_case_it_is_gone() -> None:
    desk, over = standing_by(schedule("@every 1h"), max_age=10 * SECOND), 10 + LEFT_TO_OWNER_NS / SECOND
    assert (desk.at(desk.wake).reads, desk.wake) == ([], over)
    assert desk.at(over).reads == [(SCHEDULE, 1)]


def test_what_is_denied_is_known_with_its_reason() -> None:
    fires, looks, once = Desk(EVERY_5S), Desk(EVERY_5S), schedule("@at 2026-01-01T00:00:05Z")
    fires.concluded(fires.in_flight(EVERY_5S, 5), DENIED)
    looks.at(4).step(Unanswered(FetchContent(SCHEDULE, 1, None), WHY, denied=True))
    removes = Desk(once)
    removes.concluded(removes.in_flight(once, 5), Stored(2))
    removes.step(PurgeConcluded(SCHEDULE, 1, WHY, denied=True))
    assert fires.engine.ownership.denied == (fires.now, f"{DENIED.description}: t.out")
    assert looks.engine.ownership.denied == (looks.now, WHY)
    assert removes.engine.ownership.denied == (removes.now, WHY), "the next owner may remove it"
    for code in (10077, 10071):
        refused = Desk(EVERY_5S)
        refused.concluded(refused.in_flight(EVERY_5S, 5), Refused(400, code, "no"))
        assert refused.engine.ownership.denied is None, "what meets everybody is not our own"


def test_a_schedule_that_its_owner_does_not_fire_is_noticed() -> None:
    desk = standing_by(EVERY_5S)
    for seconds in (5.0, 5 + UNFIRED - 0.1):
        assert (desk.at(seconds).reads, desk.engine.ownership.unfired) == ([], 0)
    assert desk.at(5 + UNFIRED).reads == [(SCHEDULE, 1)]
    assert desk.engine.ownership.unfired == 0, "it may have been removed"
    desk.found(EVERY_5S)
    assert desk.engine.ownership.unfired == START + 5 * SECOND
    assert desk.engine.is_troubled
    desk.read(message_on(SCHEDULE, 2))
    assert desk.engine.ownership.unfired == 0, "what is removed is not held against it"


def test_the_fire_of_another_schedule_does_not_excuse_the_owner() -> None:
    """It may lack a permission for one target only."""
    first, second, *_more = twenty()
    desk = standing_by(first, second).at(5 + UNFIRED)
    desk.found(first)
    for message, unfired in ((second, START + 5 * SECOND), (first, 0)):
        desk.read(stored_fire(Desk(message).in_flight(message, 5), 30 + message.sequence, desk.now))
        assert desk.engine.ownership.unfired == unfired


@pytest.mark.parametrize("change", ["this instance takes over", "another one is the owner"])
def test_it_is_noticed_no_more_once(change: str) -> None:
    desk = standing_by(EVERY_5S).at(5 + UNFIRED)
    desk.found(EVERY_5S)
    assert desk.engine.ownership.unfired
    desk.step(OwnershipChanged(True))
    if change == "another one is the owner":
        desk.step(OwnershipChanged(False))
    assert desk.engine.ownership.unfired == 0


def test_where_a_look_finds_nothing_the_owner_is_not_judged() -> None:
    gone, unanswered = standing_by(EVERY_5S), standing_by(EVERY_5S)
    for desk in (gone, unanswered):
        desk.at(5).at(5 + UNFIRED)
    gone.found(None, of=EVERY_5S)
    assert (gone.engine.ownership.unfired, gone.is_held()) == (0, False)
    unanswered.step(Unanswered(FetchContent(SCHEDULE, 1, None), "no answer"))
    assert unanswered.engine.ownership.unfired == 0
    assert unanswered.at(5 + 2 * UNFIRED).reads == [(SCHEDULE, 1)], "it is looked at again"


def test_an_owner_that_fired_another_one_for_that_time_is_not_suspected() -> None:
    fired, waiting, *_more = twenty()
    desk = standing_by(fired, waiting)
    desk.at(5).read(stored_fire(Desk(fired).in_flight(fired, 5), 30, desk.now))
    assert desk.at(5 + UNFIRED).reads == []


def at_5s(count: int = 8) -> list[StoredMessage]:
    """Make schedules of one burst."""
    return [schedule("@at 2026-01-01T00:00:05Z", number, f"s.{number}.x") for number in range(1, count + 1)]


def fires_of(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Make the messages that the fires of a burst stored."""
    return [stored_fire(Desk(one).in_flight(one, 5), 10_000 + one.sequence, START + 5 * SECOND) for one in messages]


def held_on(desk: Desk) -> list[int]:
    """Return the sequences of what is held."""
    return sorted(held.sequence for held in desk.engine.held)


def test_what_the_owner_purges_jointly_is_over_if_it_is_done() -> None:
    messages = at_5s()
    desk = standing_by(*messages).at(5)
    desk.read(*fires_of(messages[:6]))
    desk.step(RemovalRequested("s.*.x", below=4))
    assert held_on(desk) == [4, 5, 6, 7, 8], "above it lies what is done, and what is not"
    desk.step(RemovalRequested("s.*.x", below=9))
    assert held_on(desk) == [7, 8], "what is not done stays, and fires"
    assert (desk.purges, desk.reads) == ([], [])
    assert desk.at(60).purges == [], "nothing is left that it would purge itself"


def test_a_filter_that_does_not_match_ends_nothing() -> None:
    messages = at_5s(2)
    desk = standing_by(*messages).at(5)
    desk.read(*fires_of(messages))
    for wanted in ("s.*.y", "s.*", "t.>", "s.*.x.>", "s..*", "s.*x"):
        desk.step(RemovalRequested(wanted, below=10**6))
        assert held_on(desk) == [1, 2], wanted


def test_a_request_that_comes_before_the_fires_ends_them_later() -> None:
    messages = at_5s()
    desk = standing_by(*messages).at(5)
    for below in (3, 7, 2):
        desk.step(RemovalRequested("s.*.x", below=below))
    assert len(held_on(desk)) == 8
    desk.read(*fires_of(messages))
    assert held_on(desk) == [7, 8]
    assert desk.endings == [], "the owner reports them"


@pytest.mark.parametrize("seconds", [JOINT_KEPT_NS / SECOND - 0.1, JOINT_KEPT_NS / SECOND])
def test_a_request_is_kept_for_half_a_minute(seconds: float) -> None:
    messages = at_5s(1)
    desk = standing_by(*messages).at(5)
    desk.step(RemovalRequested("s.*.x", below=2))
    desk.now = START + int((5 + seconds) * SECOND)
    desk.read(*fires_of(messages))
    assert desk.is_held("s.1.x") is (seconds * SECOND >= JOINT_KEPT_NS)


def test_few_filters_are_kept_and_the_oldest_goes_first() -> None:
    messages = at_5s(1)
    for others, is_over in ((MAX_JOINT_FILTERS - 1, True), (MAX_JOINT_FILTERS, False)):
        desk = standing_by(*messages).at(5)
        desk.step(RemovalRequested("s.*.x", below=2))
        for number in range(others):
            desk.step(RemovalRequested(f"other.{number}.*", below=10**6))
        desk.read(*fires_of(messages))
        assert desk.is_held("s.1.x") is not is_over
