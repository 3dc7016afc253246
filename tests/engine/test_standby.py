"""What a standby does: it looks late, ends what the owner purges, and notices an owner that does not fire.

It tests `engine/firing/timing.py` and `engine/holding/ownership.py` too.
"""

from typing import Any

import pytest

from nats_scheduler.engine.actions import Action, WakeAt
from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.firing.purging import LEFT_TO_OWNER_NS
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.holding.purges import JOINT_KEPT_NS, MAX_JOINT_FILTERS
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    ContentFetched,
    MessagesRead,
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
from tests.engine.direct import SCHEDULE, Desk, message_on, plain, schedule, stored_fire

DENIED = Refused(NOT_PERMITTED, NOT_PERMITTED, "our user may not publish to the target")
WHY = "may not"
EVERY_5S = schedule("@every 5s")
UNFIRED = UNFIRED_LIMIT_NS / SECOND


def standing_by(*messages: StoredMessage, **more: Any) -> Desk:
    """Have a live engine that stands by."""
    desk = Desk(live=False, **more)
    desk.step(OwnershipChanged(False), MessagesRead(messages or [EVERY_5S]), CaughtUp())
    return desk


def twenty() -> list[StoredMessage]:
    """Make schedules that are due at the same time."""
    return [schedule("@every 5s", sequence, f"s.{sequence}") for sequence in range(1, 21)]


def asked(desk: Desk) -> list[Action]:
    """Return what the last step asked for but the next step."""
    return [action for action in desk.actions if not isinstance(action, WakeAt)]


# -- when it looks at a schedule ------------------------------------------------------------------------------------


def test_a_schedule_whose_fires_are_read_in_time_is_never_looked_at() -> None:
    desk = standing_by(EVERY_5S)
    for turn in range(1, 50):
        for seconds in (5 * turn - 0.9, 5 * turn, 5 * turn + UNFIRED - 0.1):
            assert asked(desk.at(seconds)) == []
        desk.read(stored_fire(Desk(EVERY_5S).in_flight(EVERY_5S, 5 * turn), 1 + turn, desk.now))
        assert asked(desk) == []
        assert desk.wake == 5 * (turn + 1) + UNFIRED, "it need not be stepped before"


@pytest.mark.parametrize("seconds", [6, 40, 4_000])
def test_what_was_due_before_it_was_stored_is_looked_at_as_late_as_what_is_due_now(seconds: int) -> None:
    """An `@at` in the past fires at once: the owner has the same 3 s for it, and 30 s to purge it."""
    late = schedule("@at 2026-01-01T00:00:05Z", stored_at=START + seconds * SECOND)
    desk = standing_by(plain("s.other", 9)).at(seconds)
    desk.read(late)
    assert desk.reads == desk.at(seconds + UNFIRED - 1).reads == []
    assert desk.wake == seconds + UNFIRED
    desk.read(stored_fire(Desk(late).in_flight(late, seconds), 2, desk.now))
    assert (desk.purges, desk.wake) == ([], seconds + UNFIRED - 1 + LEFT_TO_OWNER_NS / SECOND)
    unfired = standing_by(plain("s.other", 9)).at(seconds)
    unfired.read(late)
    assert unfired.at(seconds + UNFIRED).reads == [(SCHEDULE, 1)]
    unfired.found(late)
    assert unfired.engine.ownership.unfired == START + 5 * SECOND


def test_what_came_due_in_an_outage_of_all_is_left_to_the_owner_for_a_while() -> None:
    """It makes them up; a standby that read them too would double what the server does after each outage."""
    messages = twenty()
    desk = Desk(*messages, live=False)
    desk.step(OwnershipChanged(False))
    desk.now = START + 600 * SECOND
    desk.step(CaughtUp())
    assert (desk.reads, desk.wake) == ([], 600 + UNFIRED)
    assert len(desk.at(600 + UNFIRED).reads) == 1


def test_what_is_done_before_its_time_is_purged_half_a_minute_later_if_the_owner_does_not() -> None:
    tomorrow = schedule("@at 2026-01-02T00:00:00Z")
    desk = standing_by(tomorrow).at(100)
    desk.read(message_on("s.stop", 2, Nats_Scheduler=SCHEDULE, Nats_Schedule_Next="purge"))
    assert (desk.purges, desk.wake) == ([], 100 + LEFT_TO_OWNER_NS / SECOND)
    assert desk.at(100 + LEFT_TO_OWNER_NS / SECOND).purges == [(SCHEDULE, 1)]


def test_a_fire_that_is_read_a_moment_before_the_look_prevents_it() -> None:
    desk = standing_by(EVERY_5S).at(7.99)
    desk.read(stored_fire(Desk(EVERY_5S).in_flight(EVERY_5S, 5), 2, START + 5 * SECOND))
    assert desk.at(8).reads == desk.at(12.9).reads == []
    assert desk.at(13).reads == [(SCHEDULE, 1)]


@pytest.mark.parametrize("more", [{}, {"guard": False}], ids=["guard", "no guard"])
@pytest.mark.parametrize("headers", [{}, {"Nats_Schedule_Source": "s.source"}], ids=["content", "source"])
@pytest.mark.parametrize("seconds", [1, 5, 7, 20, 60])
def test_it_is_looked_at_as_soon_however_often_and_however_early_the_owner_reads_it(
    seconds: int, headers: dict[str, Any], more: dict[str, bool]
) -> None:
    """Where an owner reads it 10 s before its fire, or as soon as it was fired before, or at its time."""
    message = schedule(f"@every {seconds}s", **headers)
    desk = standing_by(message, look_ahead=10 * SECOND, **more)
    assert seconds + UNFIRED <= desk.wake <= seconds + UNFIRED + 0.1
    plain_one = schedule(f"@every {seconds}s")
    desk.at(seconds).read(stored_fire(Desk(plain_one).in_flight(plain_one, seconds), 2, desk.now))
    assert 2 * seconds + UNFIRED <= desk.wake <= 2 * seconds + UNFIRED + 0.1
    assert desk.at(2 * seconds + UNFIRED - 0.01).reads == []
    assert desk.at(2 * seconds + UNFIRED + 0.1).reads == [(SCHEDULE, 1)]


def test_a_source_is_read_at_its_time_also_after_a_takeover() -> None:
    message = schedule("@every 1m", Nats_Schedule_Source="s.source")
    desk = standing_by(message, look_ahead=10 * SECOND).at(55)
    desk.step(OwnershipChanged(True))
    for read in desk.reads:
        desk.step(ContentFetched(*read, message, plain("s.source", 2)))
    assert (desk.fires, desk.wake) == ([], 60)
    assert desk.at(59.9).reads == []
    assert desk.at(60).reads == [(SCHEDULE, 1)]


@pytest.mark.parametrize("more", [{}, {"guard": False}, {"reads_all": False}], ids=["guard", "no guard", "consumed"])
def test_the_owner_itself_waits_for_nothing(more: dict[str, bool]) -> None:
    desk = Desk(EVERY_5S, **more)
    assert desk.wake < 5
    assert desk.at(desk.wake).reads == [(SCHEDULE, 1)]
    later = standing_by(EVERY_5S, **more)
    assert later.wake > 5
    later.step(OwnershipChanged(True))
    assert later.wake == Desk(EVERY_5S, **more).wake


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


def test_one_that_was_left_for_a_while_fires_at_once_after_a_takeover() -> None:
    for seconds in (9, 20, 37):
        desk = standing_by(EVERY_5S).at(5 + UNFIRED)
        desk.found(EVERY_5S)
        desk.now = START + seconds * SECOND
        desk.step(OwnershipChanged(True))
        assert desk.reads == [(SCHEDULE, 1)]
        desk.found(EVERY_5S)
        assert desk.fire.fire_time == START + seconds // 5 * 5 * SECOND


def test_all_that_is_left_for_a_while_is_looked_at_then_a_slice_at_a_time() -> None:
    messages = [
        schedule("@at 2026-01-01T00:00:05Z", number, f"s.{number}", Nats_Schedule_X_Missed="all")
        for number in range(1, 501)
    ]
    desk = standing_by(*messages).at(5)
    desk.read(*(stored_fire(Desk(one).in_flight(one, 5), 1_000 + one.sequence, desk.now) for one in messages))
    purges = desk.at(5 + LEFT_TO_OWNER_NS / SECOND).purges
    steps = 1
    while desk.asked(WakeAt) and desk.asked(WakeAt)[-1].instant <= desk.now:
        desk.step()
        purges += desk.purges
        steps += 1
    assert purges == [(one.subject, one.sequence) for one in messages]
    assert steps > 3


# -- what an owner does not fire ------------------------------------------------------------------------------------


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


def test_what_is_denied_to_a_standby_does_not_make_it_unable() -> None:
    desk = standing_by()
    desk.at(5 + UNFIRED).step(Unanswered(FetchContent(SCHEDULE, 1, None), WHY, denied=True))
    assert desk.engine.ownership.denied is None


def test_a_schedule_that_the_owner_does_not_fire_is_noticed_after_a_while() -> None:
    desk = standing_by()
    for seconds in (5.0, 5 + UNFIRED - 0.1):
        assert (desk.at(seconds).reads, desk.engine.ownership.unfired) == ([], 0)
    assert desk.at(5 + UNFIRED).reads == [(SCHEDULE, 1)]
    assert desk.engine.ownership.unfired == 0, "it may have been removed"
    desk.found(EVERY_5S)
    assert desk.engine.ownership.unfired == START + 5 * SECOND
    assert desk.engine.is_troubled
    desk.read(message_on(SCHEDULE, 2))
    assert desk.engine.ownership.unfired == 0, "what is removed is not held against it"


def test_the_fire_of_another_schedule_for_the_same_time_does_not_excuse_the_owner() -> None:
    """It may lack a permission for one target only."""
    first, second, *_more = twenty()
    desk = standing_by(first, second).at(5 + UNFIRED)
    desk.found(first)
    for message, unfired in ((second, START + 5 * SECOND), (first, 0)):
        desk.read(stored_fire(Desk(message).in_flight(message, 5), 30 + message.sequence, desk.now))
        assert desk.engine.ownership.unfired == unfired


@pytest.mark.parametrize("change", ["its fire is read", "this instance takes over", "another one is the owner"])
def test_it_is_noticed_no_more_once(change: str) -> None:
    desk = standing_by().at(5 + UNFIRED)
    desk.found(EVERY_5S)
    assert desk.engine.ownership.unfired
    if change == "its fire is read":
        desk.read(stored_fire(Desk(EVERY_5S).in_flight(EVERY_5S, 5), 2, desk.now))
    else:
        desk.step(OwnershipChanged(True))
        if change == "another one is the owner":
            desk.step(OwnershipChanged(False))
    assert desk.engine.ownership.unfired == 0


def test_where_a_look_finds_nothing_or_has_no_answer_the_owner_is_not_judged() -> None:
    gone, unanswered = standing_by(), standing_by()
    for desk in (gone, unanswered):
        desk.at(5).at(5 + UNFIRED)
    gone.found(None, of=EVERY_5S)
    assert (gone.engine.ownership.unfired, gone.is_held()) == (0, False)
    unanswered.step(Unanswered(FetchContent(SCHEDULE, 1, None), "no answer"))
    assert unanswered.engine.ownership.unfired == 0
    assert unanswered.at(5 + 2 * UNFIRED).reads == [(SCHEDULE, 1)], "it is looked at again"


def test_one_schedule_is_looked_at_at_a_time() -> None:
    messages = twenty()
    desk = standing_by(*messages)
    desk.at(5)
    assert desk.at(5 + UNFIRED).reads == [("s.1", 1)]
    desk.found(None, of=messages[0])
    assert desk.at(5 + 2 * UNFIRED).reads == [("s.2", 2)]
    desk.found(messages[1])
    assert desk.engine.ownership.unfired == START + 5 * SECOND
    assert desk.at(5 + 3 * UNFIRED).reads == []


def test_what_was_due_long_ago_and_is_stored_is_not_held_against_the_owner() -> None:
    desk = standing_by()
    for seconds in (5 + LEFT_TO_OWNER_NS / SECOND, 5 + 2 * LEFT_TO_OWNER_NS / SECOND):
        assert desk.at(seconds).reads == [(SCHEDULE, 1)]
        desk.found(EVERY_5S)
    assert desk.engine.ownership.unfired == 0


def test_a_schedule_that_the_owner_fires_is_not_noticed() -> None:
    desk = standing_by()
    desk.at(5).read(stored_fire(Desk(EVERY_5S).in_flight(EVERY_5S, 5), 2, desk.now))
    assert desk.at(9).reads == []
    assert desk.engine.ownership.unfired == 0
    assert desk.engine.ownership.last_fired == START + 5 * SECOND


def test_an_owner_that_fired_another_schedule_for_that_time_is_not_suspected() -> None:
    fired, waiting, *_more = twenty()
    desk = standing_by(fired, waiting)
    desk.at(5).read(stored_fire(Desk(fired).in_flight(fired, 5), 30, desk.now))
    assert desk.at(5 + UNFIRED).reads == []


def test_where_fires_of_the_owner_cannot_be_seen_it_is_not_judged_by_them() -> None:
    desk = standing_by(reads_all=False)
    for seconds in (5, 9, 20):
        assert desk.at(seconds).reads == []
    assert desk.engine.ownership.unfired == 0


def test_after_an_outage_fires_are_expected_anew() -> None:
    desk = standing_by()
    desk.step(ContactLost("cut"))
    desk.at(9)
    desk.step(CaughtUp())
    assert desk.at(9 + UNFIRED - 0.1).reads == []
    assert desk.at(9 + UNFIRED).reads == [(SCHEDULE, 1)]


# -- what the owner purges jointly ----------------------------------------------------------------------------------

COUNT = 40


def at_5s(count: int = COUNT) -> list[StoredMessage]:
    """Make schedules of one burst."""
    return [schedule("@at 2026-01-01T00:00:05Z", number, f"s.{number}.x") for number in range(1, count + 1)]


def fires_of(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Make the messages that the fires of a burst stored."""
    return [stored_fire(Desk(one).in_flight(one, 5), 10_000 + one.sequence, START + 5 * SECOND) for one in messages]


def held_on(desk: Desk) -> list[int]:
    """Return the sequences of what is held."""
    return sorted(held.sequence for held in desk.engine.held)


def test_what_the_owner_purges_jointly_is_over_if_it_is_done_and_lies_below() -> None:
    messages = at_5s()
    desk = standing_by(*messages).at(5)
    desk.read(*fires_of(messages[:30]))
    assert len(held_on(desk)) == COUNT
    desk.step(RemovalRequested("s.*.x", below=21))
    assert held_on(desk) == list(range(21, COUNT + 1)), "above it lies what is done, and what is not"
    desk.step(RemovalRequested("s.*.x", below=COUNT + 1))
    assert held_on(desk) == list(range(31, COUNT + 1)), "what is not done stays, and fires"
    assert (desk.purges, desk.reads) == ([], [])
    assert desk.at(60).purges == [], "nothing is left that it would purge itself"


@pytest.mark.parametrize("wanted", ["s.*.y", "s.*", "t.>", "s.*.x.>", "*", "s..*", "*.1.*.*", "s.*x"])
def test_a_filter_that_does_not_match_ends_nothing(wanted: str) -> None:
    messages = at_5s()
    desk = standing_by(*messages).at(5)
    desk.read(*fires_of(messages))
    desk.step(RemovalRequested(wanted, below=10**6))
    assert len(held_on(desk)) == COUNT


def test_a_request_that_is_received_before_the_fires_ends_them_when_they_are_read() -> None:
    messages = at_5s()
    desk = standing_by(*messages).at(5)
    desk.step(RemovalRequested("s.*.x", below=11))
    desk.step(RemovalRequested("s.*.x", below=31))
    desk.step(RemovalRequested("s.*.x", below=5))
    assert len(held_on(desk)) == COUNT
    desk.read(*fires_of(messages))
    assert held_on(desk) == list(range(31, COUNT + 1))
    assert desk.endings == [Ending.FIRED] * 0, "the owner reports them"


def test_a_request_counts_for_its_time_only() -> None:
    """What is done later was not what the owner purged then."""
    early, late = at_5s(1)[0], schedule("@at 2026-01-01T01:00:00Z", 2, "s.2.x")
    desk = standing_by(early, late).at(5)
    desk.step(RemovalRequested("s.*.x", below=3))
    desk.read(*fires_of([early]))
    assert held_on(desk) == [2]
    desk.at(3_600).read(stored_fire(Desk(late).in_flight(late, 3_600), 20_000, desk.now))
    assert (held_on(desk), desk.wake) == ([2], 3_600 + LEFT_TO_OWNER_NS / SECOND)


@pytest.mark.parametrize("seconds", [JOINT_KEPT_NS / SECOND - 0.1, JOINT_KEPT_NS / SECOND])
def test_a_request_is_kept_for_half_a_minute(seconds: float) -> None:
    messages = at_5s(1)
    desk = standing_by(*messages).at(5)
    desk.step(RemovalRequested("s.*.x", below=2))
    desk.now = START + int((5 + seconds) * SECOND)
    desk.read(*fires_of(messages))
    assert desk.is_held("s.1.x") is (seconds * SECOND >= JOINT_KEPT_NS)


def test_a_request_that_was_received_before_a_takeover_says_nothing_after_it() -> None:
    messages = at_5s(2)
    desk = standing_by(*messages).at(4)
    desk.step(RemovalRequested("s.*.x", below=3))
    for is_owner in (True, False):
        desk.step(OwnershipChanged(is_owner))
    desk.at(5).read(*fires_of(messages))
    assert held_on(desk) == [1, 2]


def test_a_joint_request_ends_nothing_of_the_owner() -> None:
    """It is not its own: those are not received. Its schedules end with the answers to its own purges."""
    messages = at_5s(3)
    desk = Desk(*messages)
    for message in messages:
        desk.concluded(desk.in_flight(message, 5), Stored(10 + message.sequence))
    desk.step(RemovalRequested("s.>", below=100))
    assert held_on(desk) == [1, 2, 3]
    desk.step(*(PurgeConcluded(one.subject, one.sequence) for one in messages))
    assert held_on(desk) == []


def test_few_filters_are_kept_and_the_oldest_goes_first() -> None:
    messages = at_5s(1)
    for others, is_over in ((MAX_JOINT_FILTERS - 1, True), (MAX_JOINT_FILTERS, False)):
        desk = standing_by(*messages).at(5)
        desk.step(RemovalRequested("s.*.x", below=2))
        for number in range(others):
            desk.step(RemovalRequested(f"other.{number}.*", below=10**6))
        desk.read(*fires_of(messages))
        assert desk.is_held("s.1.x") is not is_over


def test_a_clock_that_steps_back_keeps_no_request_for_longer() -> None:
    messages = at_5s(1)
    desk = standing_by(*messages).at(4)
    desk.step(RemovalRequested("s.*.x", below=2))
    desk.at(-3_600)
    desk.at(-3_600 + JOINT_KEPT_NS / SECOND)
    desk.at(5).read(*fires_of(messages))
    assert held_on(desk) == [1]


def test_a_plain_message_on_the_subject_of_one_that_is_done_ends_it() -> None:
    messages = at_5s(1)
    desk = standing_by(*messages).at(5)
    desk.read(*fires_of(messages))
    desk.read(plain("s.1.x", 20_000))
    desk.step(RemovalRequested("s.*.x", below=20_001))
    assert held_on(desk) == []
