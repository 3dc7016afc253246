"""A message under an acknowledged sequence is matched as the fire; any other one is judged like a foreign message.

An engine that reads runs of messages does what one does that reads each message alone.
It tests `engine/firing/confirming.py`.
"""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.events import FireConfirmed, FireStored, ScheduleAccepted, ScheduleEnded
from nats_scheduler.engine.firing.purging import MAX_PURGES_PER_STEP
from nats_scheduler.engine.holding.in_flight import BURST_IN_FLIGHT
from nats_scheduler.engine.holding.progress import MAX_EXPECTED, Progress
from nats_scheduler.engine.holding.schedule_rows import row_of
from nats_scheduler.engine.holding.stored_over import Moves
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    ContentFetched,
    MessagesRead,
    OwnershipChanged,
    PublishConcluded,
    PurgeConcluded,
    Stored,
)
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import DAY, MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, plain, schedule, stored_fire
from tests.harness.blocks import block_with
from tests.harness.seeds import draws, generator

EVERY = schedule("@every 5s")


def fired(desk: Desk) -> None:
    """Let the first fire be stored under sequence 2."""
    desk.concluded(desk.in_flight(EVERY, 5), Stored(2))


def test_an_acknowledged_fire_is_seen_without_a_look_at_its_headers() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.read(plain(TARGET, 2, stored_at=desk.now + 7))
    assert [(seen.schedule, seen.stored_at - seen.fire_time) for seen in desk.reported(FireConfirmed)] == [("s.one", 7)]
    desk.read(plain(TARGET, 2))
    assert desk.reported(FireConfirmed) == [], "it is seen once"
    desk = Desk(EVERY)
    fired(desk)
    desk.read(schedule("@every 9s", 2, "s.two"))
    assert desk.reported(FireConfirmed) == [], "another message under that sequence is what its headers say"
    assert [event.schedule for event in desk.reported(ScheduleAccepted)] == ["s.two"]
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    desk.read(stored_fire(fire, 2, desk.now))
    assert len(desk.reported(FireConfirmed)) == 1, "it may be read before its acknowledgement"
    desk.concluded(fire, Stored(2))
    desk.read(plain(TARGET, 2))
    assert desk.reported(FireConfirmed) == []


def test_a_fire_that_nobody_reads_back_is_seen_as_stored_when_it_was_acknowledged() -> None:
    desk = Desk(EVERY)
    fired(desk)
    acknowledged = desk.now
    desk.now += 9
    desk.step(MessagesRead((), through=1))
    assert desk.reported(FireConfirmed) == [], "what is not passed by yet is still expected"
    desk.step(MessagesRead((), through=2))
    [seen] = desk.reported(FireConfirmed)
    assert (seen.schedule, seen.target, seen.stored_sequence, seen.stored_at) == ("s.one", TARGET, 2, acknowledged)
    assert desk.engine.last_read == 2


def test_none_is_expected_by_another_contact_or_where_messages_may_be_gone_before_they_are_read() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.step(ContactLost("gone"))
    desk.read(plain(TARGET, 2))
    desk.step(CaughtUp())
    assert desk.reported(FireConfirmed) == []
    consumed = Desk(EVERY, reads_all=False)
    fired(consumed)
    consumed.read(plain(TARGET, 2))
    assert consumed.reported(FireConfirmed) == []


def test_a_fire_that_was_reported_when_it_was_acknowledged_is_not_reported_when_a_look_up_finds_it() -> None:
    desk = Desk(EVERY, reads_all=False)
    fire = desk.in_flight(EVERY, 5)
    ours, of_another = stored_fire(fire, 3, desk.now), stored_fire(fire, 4, desk.now)
    desk.concluded(fire, Stored(3))
    assert len(desk.reported(FireConfirmed)) == 1
    desk.read(schedule("@every 9s", 7, "s.two"))
    desk.read(ours)
    assert desk.reported(FireConfirmed) == [], "it may be found after a later message"
    desk.read(of_another)
    assert len(desk.reported(FireConfirmed)) == 1


def test_another_contact_goes_on_after_what_was_read_or_looked_at() -> None:
    for reads_all, followed in ((True, 7), (False, 9)):
        desk = Desk(EVERY, plain(TARGET, 7), live=False, reads_all=reads_all)
        assert desk.engine.followed_through == (7 if reads_all else 0)
        desk.step(CaughtUp(through=9))
        assert desk.engine.followed_through == followed
        desk.step(ContactLost("cut"))
        assert desk.engine.followed_through == followed
        desk.step(CaughtUp(through=5, is_behind=True))
        assert desk.engine.followed_through == 5, "look-ups have found later messages first"
        assert not desk.engine.restart.may_write


def test_a_follower_that_is_far_behind_reads() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    progress = Progress(reads_all=True, moves=Moves(moves_all=False))
    fires = [replace(fire, stored_as=sequence) for sequence in range(1, MAX_EXPECTED + 2)]
    progress.expect(fires)
    assert not progress.expected, "the next contact may be with another stream"
    progress.is_live = True
    for some in (fires[:10], fires[10:]):
        progress.expect(some)
    assert not progress.match(plain(TARGET, MAX_EXPECTED + 1))
    assert progress.match(plain(TARGET, MAX_EXPECTED))


def test_what_can_wait_is_done_once_no_herd_is_in_the_way_and_a_slice_at_a_time() -> None:
    number = MAX_PURGES_PER_STEP + BURST_IN_FLIGHT + 100
    burst = [schedule("@at 2026-01-01T00:00:05Z", n, f"s.{n}") for n in range(1, number + 1)]
    desk = Desk(*burst).at(4.5)
    while desk.reads:
        desk.step(*(ContentFetched(message.subject, message.sequence, message, None) for message in burst))
    fires = desk.at(5).fires
    done = 0
    while done < number - BURST_IN_FLIGHT - 1:
        more = fires[done : min(done + 200, number - BURST_IN_FLIGHT - 1)]
        desk.step(*(PublishConcluded(fire, Stored(10_000 + fire.sequence)) for fire in more))
        fires += desk.fires
        done += len(more)
    one, through = fires[done], fires[:-BURST_IN_FLIGHT]
    desk.read(*(plain(TARGET, 10_000 + fire.sequence) for fire in fires))
    assert (desk.reported(FireStored), desk.reported(FireConfirmed), desk.purges) == ([], [], [])
    desk.concluded(one, Stored(10_000 + one.sequence))
    stored, purged = desk.reported(FireStored), desk.purges
    assert (len(stored), len(purged), desk.wake) == (MAX_PURGES_PER_STEP, MAX_PURGES_PER_STEP, 5)
    desk.step()
    assert [event.fire for event in (*stored, *desk.reported(FireStored))] == through
    assert [subject for subject, _through in (*purged, *desk.purges)] == [fire.schedule for fire in through]
    assert desk.asked(WakeAt) == []


# -- a fire that came due before it could be fired in time is overdue: it says nothing about punctuality --------------


def seen(desk: Desk, at_sequence: int = 2, *, late: int = MILLISECOND) -> FireConfirmed:
    """Let the fire in flight be stored and read back, and return its event."""
    desk.concluded(desk.fire, Stored(at_sequence))
    desk.read(plain(TARGET, at_sequence, stored_at=desk.now + late))
    (reported,) = desk.reported(FireConfirmed)
    return reported


def test_an_instant_before_its_schedule_was_stored_is_overdue_also_if_that_is_gone_when_it_is_read_back() -> None:
    past = 200_000_000 * SECOND
    late = schedule(f"@at {format_rfc3339(START - past)}")
    for is_gone in (False, True):
        desk = Desk()
        desk.read(late)
        desk.found(late)
        desk.concluded(desk.fire, Stored(2))
        if is_gone:
            desk.step(PurgeConcluded(SCHEDULE, 1))
        assert desk.is_held() is not is_gone
        desk.read(plain(TARGET, 2, stored_at=desk.now + MILLISECOND))
        [event] = desk.reported(FireConfirmed)
        assert (event.overdue, event.stored_at - event.fire_time) == (True, past + MILLISECOND)


@pytest.mark.parametrize("before", ["read", "contact", "owner"])
def test_what_came_due_before_all_was_read_contact_was_regained_or_the_stream_was_owned_is_overdue(before: str) -> None:
    desk = Desk(EVERY, live=before != "read").at(4)
    if before != "read":
        desk.step(ContactLost("gone") if before == "contact" else OwnershipChanged(False))
    desk.at(7)
    desk.step(OwnershipChanged(True) if before == "owner" else CaughtUp())
    desk.found(EVERY)
    assert seen(desk).overdue
    desk.at(9)
    desk.at(10)
    assert not seen(desk, 3, late=3 * SECOND).overdue, "however late the server stores it"


def test_what_the_last_owner_stored_in_time_is_not_overdue_for_the_next() -> None:
    """The new owner reads it back, and did not publish it."""
    owner, standby = Desk(EVERY), Desk(EVERY)
    standby.step(OwnershipChanged(False))
    fire = owner.in_flight(EVERY, 5)
    standby.at(5.1)
    standby.step(OwnershipChanged(True))
    standby.read(stored_fire(fire, 2, START + 5 * SECOND + 2 * MILLISECOND))
    assert [event.overdue for event in standby.reported(FireConfirmed)] == [False]


SUBJECTS = ["s.one", "s.two", "s.three", "t.out", "o.1", "o.2"]
BLOCKS = [
    *[block_with(A="1")] * 6,
    block_with(Nats_Marker_Reason="MaxAge"),
    block_with(Nats_Schedule="@every 5s", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule="@at 2100-01-01T00:00:00Z", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule="soon", Nats_Schedule_Target="t.out"),
    block_with(Nats_Schedule_X_Paused="@every 5s", Nats_Schedule_Target="t.out"),
    block_with(nats_schedule="@every 5s"),
    block_with(Nats_Scheduler="s.one", Nats_Schedule_Next="purge"),
]


def ordinary(subject: str, sequence: int) -> StoredMessage:
    return StoredMessage(subject, sequence, START, block_with(Nats_Msg_Size="0"), None)


def read_run(desk: Desk, *messages: StoredMessage) -> None:
    """Let the engine receive a run."""
    desk.step(MessagesRead(MessageRun.of([message._replace(body=None) for message in messages])))


def known(desk: Desk) -> tuple[object, ...]:
    """Return what an engine knows."""
    engine = desk.engine
    held = sorted((one.subject, one.sequence, one.fire_time) for one in engine.held)
    return held, engine.inactive.rejected, engine.inactive.paused, engine.inactive.misnamed, engine.last_message


def at_schedule(random: Random, sequence: int) -> StoredMessage:
    """Draw a schedule as programs store many; one of ten has something that most do not have."""
    days, target = random.choice([2, 3]), f"t.{random.randrange(50)}"
    more, subject = {"Nats_Msg_Size": "5"}, f"s.{random.randrange(60)}"
    match random.randrange(30):
        case 0:
            more["Nats_TTL"] = "1h"
        case 1:
            more["Nats_Msg_Size"] = "900000"
        case 2:
            target = subject
        case 3:
            more["A"] = "x" * 600
    due = format_rfc3339(START + (days if random.random() < 0.97 else 0) * DAY + random.randrange(3_600) * SECOND)
    headers = {"Nats_Schedule": f"@at {due}", "Nats_Schedule_Target": target, **more}
    return StoredMessage(subject, sequence, START + sequence, block_with(**headers), None)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"max_age": 5 * DAY // 2}, {"removes_expired": True}, {"allow_msg_ttl": False}]
)
def test_many_at_schedules_become_the_rows_that_each_of_them_would(live: bool, options: dict[str, Any]) -> None:
    random = generator((live, *options))
    for _ in range(draws(10)):
        alone, together = (Desk(live=live, **options) for _ in range(2))
        sequence = 0
        while sequence < 200:
            run = [at_schedule(random, sequence + number) for number in range(1, random.randrange(2, 12))]
            if random.random() < 0.2:
                run.append(ordinary(random.choice(run).subject, run[-1].sequence + 1))
            sequence = run[-1].sequence
            alone.step(MessagesRead(run))
            read_run(together, *run)
            assert together.actions == alone.actions
            assert known(together) == known(alone)
            assert [row_of(one) for one in together.engine.held] == [row_of(one) for one in alone.engine.held]
        for desk in (alone, together):
            desk.step(CaughtUp())
        assert together.actions == alone.actions


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("removes_expired", [True, False])
def test_the_same_happens_whether_messages_are_read_alone_or_in_runs(live: bool, removes_expired: bool) -> None:
    random = generator((live, removes_expired))

    def drawn(sequence: int) -> StoredMessage:
        is_known = random.random() < 0.3
        subject = random.choice(SUBJECTS) if is_known else f"o.{random.randrange(3)}"
        block = random.choice(BLOCKS if is_known else BLOCKS[:1])
        return StoredMessage(subject, sequence, START + sequence * SECOND, block, None)

    for _ in range(draws(20)):
        alone, together = (Desk(live=live, removes_expired=removes_expired) for _ in range(2))
        sequence = 0
        while sequence < 60:
            run = [drawn(sequence + number) for number in range(1, random.randrange(2, 12))]
            sequence = run[-1].sequence
            alone.step(MessagesRead(run))
            read_run(together, *run)
            assert together.actions == alone.actions
            assert known(together) == known(alone)
        for desk in (alone, together):
            desk.step(CaughtUp())
        assert together.actions == alone.actions
        assert together.engine.checkpoint(START) == alone.engine.checkpoint(START)


def test_an_ordinary_message_in_a_run_ends_the_schedule_on_its_subject() -> None:
    desk = Desk(schedule("@every 5s", 1))
    read_run(desk, ordinary("o.1", 2), ordinary("s.one", 3), ordinary("o.2", 4))
    assert [ended.schedule for ended in desk.reported(ScheduleEnded)] == ["s.one"]
    assert desk.engine.last_message == ordinary("o.2", 4)
