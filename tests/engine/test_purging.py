"""A schedule that is done is purged, and does not fire again while, or if, it cannot be.

Where the stream refuses `Nats-Rollup`, a target is rolled up by a purge below the fire, which removes only that.
"""

import pytest

from nats_scheduler.engine.actions import PurgeSchedule, purge_after
from nats_scheduler.engine.events import Ending, PurgeFailed, ScheduleEnded
from nats_scheduler.engine.holding import purges
from nats_scheduler.engine.holding.purges import OLD_VERSIONS_RETRY_NS, PURGED_KEPT_NS
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    FiresStored,
    OwnershipChanged,
    PurgeConcluded,
    RemovalRequested,
    SchedulesPurged,
    Stored,
    Version,
)
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import beside_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, schedule

AT_5S = "@at 2026-01-01T00:00:05Z"
ONCE = schedule(AT_5S)
DENIED = "purge is denied (server code 10110)"


def fired() -> Desk:
    """Return a desk on which a delayed message has just fired."""
    desk = Desk(ONCE)
    desk.concluded(desk.in_flight(ONCE, 5), Stored(2))
    return desk


def test_a_last_fire_says_up_to_where_its_schedule_is_purged() -> None:
    desk = Desk(ONCE)
    fire = desk.in_flight(ONCE, 5)
    assert purge_after(fire) == PurgeSchedule(SCHEDULE, 1, None, Version(1, START))
    desk.step(FiresStored([fire], [2]))
    assert (desk.asked(PurgeSchedule), desk.engine.is_idle) == ([], False)
    desk.step(PurgeConcluded("s.one", 1))
    assert (desk.endings, desk.engine.is_idle) == ([Ending.FIRED], True)


def test_schedules_purged_together_end_and_none_that_was_replaced() -> None:
    messages = [schedule(AT_5S, number, f"s.{number}") for number in (1, 2, 3)]
    desk = Desk(*messages).at(5)
    for message in messages:
        desk.found(message)
        desk.concluded(desk.fire, Stored(10 + message.sequence))
    desk.read(schedule("@at 2026-01-01T01:00:00Z", 20, "s.2"))
    desk.step(SchedulesPurged(["s.1", "s.2", "s.3", "s.4"], [1, 2, 3, 4]))
    assert desk.reported(ScheduleEnded) == [ScheduleEnded(f"s.{number}", number, Ending.FIRED) for number in (1, 3)]
    assert [held.sequence for held in desk.engine.held] == [20]


def test_a_failed_purge_is_repeated_and_the_schedule_stays_silent() -> None:
    desk = fired()
    desk.step(PurgeConcluded("s.one", 1, "no answer"))
    assert desk.reported(PurgeFailed) == [PurgeFailed(SCHEDULE, 1, "no answer", refused=False)]
    assert desk.wake == 5.05
    desk.at(5.05)
    assert (desk.purges, desk.fires, desk.reads) == ([("s.one", 1)], [], [])


def test_a_refused_purge_is_not_repeated_and_its_schedule_is_silent() -> None:
    desk = fired()
    desk.step(PurgeConcluded("s.one", 1, DENIED, refused=True))
    assert desk.reported(PurgeFailed) == [PurgeFailed(SCHEDULE, 1, DENIED, refused=True)]
    desk.read(ONCE)
    desk.at(3600)
    assert (desk.purges, desk.fires, desk.reads) == ([], [], [])
    assert (desk.is_held(), desk.engine.is_idle) == (True, True)
    desk.read(schedule(AT_5S, 3, stored_at=START + 5 * SECOND))
    assert desk.reads == [("s.one", 3)]
    desk.step(PurgeConcluded("s.one", 1))
    assert (desk.is_held(), desk.endings) == (True, []), "a purge that concludes after a replacement does not end that"


def replaced() -> Desk:
    """Return a desk that asks for the removal of an older version."""
    desk = Desk(schedule("@every 1h"))
    desk.read(schedule("@every 1h", 2))
    assert desk.asked(PurgeSchedule) == [PurgeSchedule(SCHEDULE, 1, None, Version(1, START))]
    return desk


def test_removals_of_older_versions_are_tried_until_they_are_gone() -> None:
    desk = replaced()
    [order] = desk.asked(PurgeSchedule)
    desk.step(PurgeConcluded("s.one", 1, "no answer", known=order.known))
    assert [event.through for event in desk.reported(PurgeFailed)] == [1]
    assert (desk.is_held(), desk.engine.is_idle, desk.wake) == (True, True, 5)
    assert desk.at(4).purges == []
    assert desk.at(5).asked(PurgeSchedule) == [order]
    desk.step(PurgeConcluded("s.one", 1))
    assert desk.at(60).purges == []
    denied, lost = replaced(), replaced()
    denied.step(PurgeConcluded("s.one", 1, DENIED, refused=True))
    assert denied.at(60).purges == [], "the server will not remove them"
    lost.step(ContactLost("cut"), PurgeConcluded("s.one", 1, "cut"))
    assert lost.at(60).purges == [], "they wait for contact"
    lost.step(CaughtUp())
    assert lost.purges == [("s.one", 1)]


def reconnected(desk: Desk) -> list[PurgeSchedule]:
    desk.step(ContactLost("killed"))
    desk.step(CaughtUp())
    return desk.asked(PurgeSchedule)


@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
def test_what_came_back_with_its_killed_server_is_removed_again(guard: bool) -> None:
    """A server with the guard keeps what it acknowledged, and is asked once."""
    message, again = schedule(AT_5S), [PurgeSchedule(SCHEDULE, 1, START, Version(1, START))]
    desk = Desk(message, guard=guard).at(4.96)
    desk.found(message)
    desk.concluded(desk.at(5).fire, Stored(2))
    desk.step(PurgeConcluded(SCHEDULE, 1))
    assert not desk.is_held()
    assert reconnected(desk) == ([] if guard else again)
    if not guard:
        desk.step(PurgeConcluded(SCHEDULE, 1, "cut"))
        assert desk.at(60).purges == [], "it is not purged without a read"
        assert reconnected(desk) == again
        desk.at(5 + PURGED_KEPT_NS / SECOND + 1)
        assert reconnected(desk) == []


def test_of_many_that_were_purged_the_latest_are_removed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purges, "MAX_PURGED_KEPT", 3)
    messages = [schedule(f"@at 2026-01-01T00:00:0{number}Z", number, f"s.{number}") for number in range(1, 6)]
    desk = Desk(*messages, guard=False)
    for number, message in enumerate(messages, 1):
        desk.at(number - 0.04)
        desk.found(message)
        desk.concluded(desk.at(number).fire, Stored(10 + number))
        desk.step(PurgeConcluded(message.subject, number))
    assert [purge.schedule for purge in reconnected(desk)] == ["s.3", "s.4", "s.5"]


EVERY_5S = "@every 5s"
FIRE = 20


def rolling_up(pattern: str = EVERY_5S) -> StoredMessage:
    return schedule(pattern, Nats_Schedule_Rollup="sub")


def rolled_up(pattern: str = EVERY_5S) -> Desk:
    """Return a desk on which a schedule that rolls up its target has just fired."""
    message = rolling_up(pattern)
    desk = Desk(message, rolls_up_by_purge=True)
    fire = desk.in_flight(message, 5)
    assert header_value(fire.block, b"Nats-Rollup") is None
    desk.concluded(fire, Stored(FIRE))
    assert desk.purges == [(TARGET, FIRE - 1)]
    return desk


def test_a_fire_says_itself_that_it_rolls_up_where_the_stream_takes_that() -> None:
    message = rolling_up()
    desk = Desk(message)
    fire = desk.in_flight(message, 5)
    assert header_value(fire.block, b"Nats-Rollup") == b"sub"
    desk.concluded(fire, Stored(FIRE))
    assert desk.purges == []


def fire_stored(message: StoredMessage, subject: str = TARGET) -> StoredMessage:
    """Return what an instance before stored for a schedule."""
    fire = Desk(message, rolls_up_by_purge=True).in_flight(message, 5)
    return StoredMessage(subject, FIRE, START + 5 * SECOND, fire.block, fire.body)


def test_a_failed_roll_up_is_repeated_and_its_schedule_stays_meanwhile() -> None:
    desk = rolled_up(AT_5S)
    desk.step(PurgeConcluded(TARGET, FIRE - 1, "no answer"))
    assert desk.reported(PurgeFailed) == [PurgeFailed(TARGET, FIRE - 1, "no answer", refused=False)]
    assert desk.purges == []
    assert desk.at(5 + OLD_VERSIONS_RETRY_NS / SECOND).purges == [(TARGET, FIRE - 1)]
    desk.step(PurgeConcluded(TARGET, FIRE - 1))
    assert desk.purges == [(SCHEDULE, 1)]
    refused = rolled_up(AT_5S)
    refused.step(PurgeConcluded(TARGET, FIRE - 1, DENIED, refused=True))
    assert [(event.schedule, event.refused) for event in refused.reported(PurgeFailed)] == [(TARGET, True)]
    assert refused.purges == [(SCHEDULE, 1)], "the fires are kept"


def test_a_later_fire_on_the_target_is_rolled_up_too_before_the_first_one_is_answered() -> None:
    messages = [schedule(EVERY_5S, number, f"s.{number}", Nats_Schedule_Rollup="sub") for number in (1, 2)]
    desk = Desk(*messages, rolls_up_by_purge=True).at(5)
    for message, stored_as in zip(messages, (FIRE, FIRE + 5), strict=True):
        desk.found(message)
        desk.concluded(desk.fire, Stored(stored_as))
        assert desk.purges == [(TARGET, stored_as - 1)]


def test_a_fire_stored_before_a_crash_is_rolled_up_and_no_forged_one() -> None:
    for pattern, following in ((AT_5S, [(SCHEDULE, 1)]), (EVERY_5S, [])):
        message = rolling_up(pattern)
        desk = Desk(message, fire_stored(message), rolls_up_by_purge=True)
        assert desk.purges == [(TARGET, FIRE - 1)]
        desk.step(PurgeConcluded(TARGET, FIRE - 1))
        assert desk.purges == following
    message = rolling_up()
    for desk in (rolled_up(), Desk(message, rolls_up_by_purge=True)):
        desk.read(fire_stored(message, "s.other")._replace(sequence=FIRE + 1))
        assert desk.purges == [], "anybody may write what a fire says"


@pytest.mark.parametrize("is_done", [True, False])
def test_the_next_owner_rolls_up_what_the_one_before_may_not_have(is_done: bool) -> None:
    message = rolling_up()
    desk = Desk(message, rolls_up_by_purge=True)
    desk.step(OwnershipChanged(False))
    desk.now = START + 5 * SECOND
    desk.read(fire_stored(message))
    assert desk.purges == []
    if is_done:
        desk.step(RemovalRequested(filter=TARGET, below=FIRE))
    desk.step(OwnershipChanged(True))
    assert desk.purges == ([] if is_done else [(TARGET, FIRE - 1)])


def test_a_requested_fire_rolls_up_the_target_if_its_schedule_says_so() -> None:
    for headers, of, target, is_rolled_up in (
        ({"Nats_Schedule": EVERY_5S}, 1, TARGET, True),
        ({"Nats_Schedule": EVERY_5S, "Nats_Schedule_Rollup": ""}, 1, TARGET, False),
        ({"Nats_Schedule": EVERY_5S}, 2, TARGET, False),
        ({"Nats_Schedule": EVERY_5S}, 1, "s.other", False),
    ):
        named = {"Nats_Schedule_Target": TARGET, "Nats_Schedule_Rollup": "sub", **headers}
        desk = Desk(message_on(SCHEDULE, 1, **{n: v for n, v in named.items() if v}), rolls_up_by_purge=True)
        identity = beside_identity(SCHEDULE, of, START + 7 * SECOND)
        desk.read(message_on(target, FIRE, Nats_Scheduler=SCHEDULE, Nats_Msg_Id=identity))
        assert desk.purges == ([(TARGET, FIRE - 1)] if is_rolled_up else []), (headers, of, target)
