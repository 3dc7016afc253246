"""A message under an acknowledged sequence is matched as the fire; any other one is judged like a foreign message."""

from dataclasses import replace

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.events import FireReadBack, FireStored, ScheduleAccepted
from nats_scheduler.engine.holding.lifecycle import BURST_IN_FLIGHT
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, ContentRead, MessagesRead, PublishConcluded, Stored
from nats_scheduler.engine.reading.progress import MAX_EXPECTED, Progress
from nats_scheduler.engine.removing.purges import MAX_PURGES_PER_STEP
from tests.engine.direct import TARGET, Desk, plain, schedule, stored_fire

EVERY = schedule("@every 5s")


def fired(desk: Desk) -> None:
    """Let the first fire be stored under sequence 2."""
    desk.concluded(desk.in_flight(EVERY, 5), Stored(2))


def test_an_acknowledged_fire_is_seen_without_a_look_at_its_headers() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.read(plain(TARGET, 2, stored_at=desk.now + 7))
    assert [(seen.schedule, seen.stored_at - seen.fire_time) for seen in desk.reported(FireReadBack)] == [("s.one", 7)]
    desk.read(plain(TARGET, 2))
    assert desk.reported(FireReadBack) == []


def test_a_fire_that_nobody_reads_back_is_seen_as_stored_when_it_was_acknowledged() -> None:
    desk = Desk(EVERY)
    fired(desk)
    acknowledged = desk.now
    desk.now += 9
    desk.step(MessagesRead((), through=2))
    reported = [
        (seen.schedule, seen.target, seen.stored_sequence, seen.stored_at) for seen in desk.reported(FireReadBack)
    ]
    assert reported == [("s.one", TARGET, 2, acknowledged)]
    assert desk.engine.last_read == 2


def test_what_is_not_passed_by_yet_is_still_expected() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.step(MessagesRead((), through=1))
    assert desk.reported(FireReadBack) == []
    desk.read(plain(TARGET, 2, stored_at=desk.now + 7))
    assert len(desk.reported(FireReadBack)) == 1


def test_another_message_under_that_sequence_is_what_its_headers_say() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.read(schedule("@every 9s", 2, "s.two"))
    assert desk.reported(FireReadBack) == []
    assert [event.schedule for event in desk.reported(ScheduleAccepted)] == ["s.two"]


def test_another_contact_may_be_with_another_stream() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.step(ContactLost("gone"))
    desk.read(plain(TARGET, 2))
    desk.step(CaughtUp())
    assert desk.reported(FireReadBack) == []


def test_a_fire_that_was_read_before_its_acknowledgement_is_seen_once() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    desk.read(stored_fire(fire, 2, desk.now))
    assert len(desk.reported(FireReadBack)) == 1
    desk.concluded(fire, Stored(2))
    desk.read(plain(TARGET, 2))
    assert desk.reported(FireReadBack) == []


def test_where_messages_may_be_gone_before_they_are_read_none_is_expected() -> None:
    desk = Desk(EVERY, reads_all=False)
    fired(desk)
    desk.read(plain(TARGET, 2))
    assert desk.reported(FireReadBack) == []


def test_another_contact_goes_on_after_what_was_read_or_looked_at() -> None:
    for reads_all, followed in ((True, 7), (False, 9)):
        desk = Desk(EVERY, plain(TARGET, 7), live=False, reads_all=reads_all)
        assert desk.engine.followed_through == (7 if reads_all else 0)
        desk.step(CaughtUp(through=9))
        assert desk.engine.followed_through == followed
        desk.step(ContactLost("cut"))
        assert desk.engine.followed_through == followed


def test_a_follower_that_is_far_behind_reads() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    progress = Progress(reads_all=True)
    progress.expect([replace(fire, stored_as=sequence) for sequence in range(1, MAX_EXPECTED + 2)])
    assert not progress.match(plain(TARGET, MAX_EXPECTED + 1))
    assert progress.match(plain(TARGET, MAX_EXPECTED))


def test_what_can_wait_is_done_once_no_herd_is_in_the_way_and_a_slice_at_a_time() -> None:
    number = MAX_PURGES_PER_STEP + BURST_IN_FLIGHT + 100
    burst = [schedule("@at 2026-01-01T00:00:05Z", n, f"s.{n}") for n in range(1, number + 1)]
    desk = Desk(*burst)
    desk.at(4.5)
    while desk.reads:
        desk.step(*(ContentRead(message.subject, message.sequence, message, None) for message in burst))
    fires = desk.at(5).fires
    done = 0
    while done < number - BURST_IN_FLIGHT - 1:
        more = fires[done : min(done + 200, number - BURST_IN_FLIGHT - 1)]
        desk.step(*(PublishConcluded(fire, Stored(10_000 + fire.sequence)) for fire in more))
        fires += desk.fires
        done += len(more)
    one = fires[done]
    desk.read(*(plain(TARGET, 10_000 + fire.sequence) for fire in fires))
    assert (desk.reported(FireStored), desk.reported(FireReadBack), desk.purges) == ([], [], [])
    desk.concluded(one, Stored(10_000 + one.sequence))
    stored, purged = desk.reported(FireStored), desk.purges
    assert (len(stored), len(purged), desk.wake) == (MAX_PURGES_PER_STEP, MAX_PURGES_PER_STEP, 5)
    desk.step()
    stored += desk.reported(FireStored)
    purged += desk.purges
    assert [event.fire for event in stored] == fires[:-BURST_IN_FLIGHT]
    assert [subject for subject, _through in purged] == [fire.schedule for fire in fires[:-BURST_IN_FLIGHT]]
    assert desk.asked(WakeAt) == []
