"""The times and messages of fires, seen from outside: publish, let time pass, read the stream.

It tests `engine/firing/sending.py` and `engine/firing/advancing.py` too.
"""

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.events import Ending, FireRefused, ScheduleAccepted
from nats_scheduler.engine.fire import FetchContent, Fire
from nats_scheduler.engine.holding.contents import MAX_SMALL_BYTES
from nats_scheduler.engine.holding.in_flight import MAX_IN_FLIGHT
from nats_scheduler.engine.inputs import (
    ContentFetched,
    OwnershipChanged,
    PublishConcluded,
    RemovalRequested,
    ServerLimited,
    Stored,
)
from nats_scheduler.message.headers import with_header
from nats_scheduler.schedule.instants import SECOND
from tests.engine.direct import Desk, message_on, plain, schedule


def at(instant: str, **more: str) -> dict[str, str]:
    return {"Nats-Schedule": f"@at {instant}", "Nats-Schedule-Target": "t.out", **more}


def test_the_content_is_read_ahead_and_the_fire_sent_when_it_is_due() -> None:
    message = schedule("@every 5s", body=b"hello")
    desk = Desk(message)
    assert desk.wake == 4
    assert desk.at(3.9).wake == 4
    assert (desk.reads, desk.fires) == ([], [])
    assert desk.at(4).reads == [("s.one", 1)]
    assert [read.may_wait for read in desk.asked(FetchContent)] == [True], "to be read with others"
    desk.found(message)
    assert (desk.fires, desk.wake) == ([], 5)
    assert desk.at(5).fire.body == b"hello"
    late = Desk(message).at(5)
    assert [read.may_wait for read in late.asked(FetchContent)] == [False]


def test_the_content_is_kept_for_a_next_fire_that_is_soon_and_guarded() -> None:
    for seconds, headers, size, options, is_kept in (
        (10, {}, 0, {}, True),
        (11, {}, 0, {}, False),
        (10, {}, 0, {"guard": False}, False),
        (10, {"Nats_Schedule_Source": "source"}, 0, {}, False),
        (10, {}, MAX_SMALL_BYTES, {}, False),
        (10, {"Nats_Schedule_X_Except": "2026-01-02"}, 0, {}, True),
    ):
        message = schedule(f"@every {seconds}s", body=b"x" * size, **headers)  # type: ignore[arg-type]
        desk, source = Desk(message, **options), plain("source", 9)
        desk.at(seconds).found(message, source if "Nats_Schedule_Source" in headers else None)
        used = desk.engine.contents.used
        desk.concluded(desk.fire, Stored(2))
        assert 0 < desk.engine.contents.used <= used if is_kept else desk.engine.contents.used == 0
        assert (desk.at(2 * seconds).reads == []) is is_kept, (seconds, headers, options)
        assert bool(desk.fires) is is_kept
    lost = Desk(message)
    fire = lost.in_flight(message, 10)
    lost.step(OwnershipChanged(False), PublishConcluded(fire, Stored(2)))
    assert (lost.at(20).fires, lost.engine.contents.used) == ([], 0)


def test_what_is_read_again_or_has_no_schedule_means_nothing() -> None:
    message = schedule("@every 5s")
    desk = Desk(message)
    desk.read(message, message)
    assert desk.reported(ScheduleAccepted) == []
    assert desk.in_flight(message, 5).sequence == 1
    other = Desk()
    other.read(plain("t.other", 1), plain("s.one", 2))
    assert (other.actions, len(other.engine.held), other.engine.last_read) == ([], 0, 2)


def test_a_fire_that_is_too_large_is_reported_once_and_blocks_nobody() -> None:
    large, small = schedule("@every 5s", body=b"x" * 2_000), schedule("@every 5s", 2, "s.two")
    desk = Desk(large, small, max_payload=1_500)
    desk.at(5)
    desk.found(large)
    refusals = desk.reported(FireRefused)
    assert [(refusal.code, refusal.fire.schedule) for refusal in refusals] == [(10054, "s.one")]
    assert [refusal.retry_after for refusal in refusals] == [desk.held().wake - desk.now]
    assert refusals[0].description.endswith(" exceeds the server's max_payload of 1500")
    desk.found(small)
    assert desk.fire.schedule == "s.two"
    desk.at(6)
    desk.found(large)
    assert desk.reported(FireRefused) == []


def test_what_is_too_large_is_judged_when_it_is_sent() -> None:
    message = schedule("@every 5s", body=b"x" * 100)
    desk = Desk(message).at(4.5)
    desk.found(message)
    desk.step(ServerLimited(100))  # after the fire was built, and before it is sent
    desk.at(5)
    assert (desk.fires, [refusal.code for refusal in desk.reported(FireRefused)]) == ([], [10054])
    desk.step(ServerLimited(1 << 20))
    desk.at(5.5)
    desk.found(message)
    assert desk.fire.schedule == message.subject


def test_headers_or_a_target_that_are_too_long_are_not_sent() -> None:
    message = schedule("@every 5s")
    large = message._replace(block=with_header(message.block, b"X", b"x" * 65_500))
    far = schedule("@at 2026-01-01T00:00:05Z", Nats_Schedule_Target="t." + "x" * 4_000)
    for refused, code in ((large, 10097), (far, 10190)):
        desk = Desk(refused).at(5)
        desk.found(refused)
        assert desk.fires == []
        assert [(event.code, event.fire.schedule) for event in desk.reported(FireRefused)] == [(code, "s.one")]


def test_the_last_fire_within_the_horizon_ends_the_schedule() -> None:
    leap_day = 3_981_312_000 * SECOND  # 2096-02-29, and 2100 is no leap year
    desk = Desk()
    desk.now = leap_day - 3600 * SECOND
    last = schedule("0 0 0 29 2 *", stored_at=desk.now)
    desk.read(last)
    desk.now = leap_day
    desk.step()
    desk.found(last)
    fire = desk.fire
    assert (fire.fire_time, fire.next_fire) == (leap_day, None)
    desk.concluded(fire, Stored(2))
    assert desk.endings == [Ending.EXHAUSTED]
    assert not desk.is_held()
    assert desk.purges == []


def test_what_is_cancelled_while_a_herd_flies_is_not_sent_any_more() -> None:
    burst = [schedule("@at 2026-01-01T00:00:05Z", number, f"s.{number}") for number in range(1, 2 * MAX_IN_FLIGHT + 1)]
    desk = Desk(*burst)
    desk.at(4.99)
    while desk.reads:
        desk.step(*(ContentFetched(message.subject, message.sequence, message, None) for message in burst))
    first = desk.at(5).fires
    assert 0 < len(first) < MAX_IN_FLIGHT
    while desk.asked(WakeAt):
        desk.step()
        first += desk.fires
    assert len(first) == MAX_IN_FLIGHT
    assert desk.asked(WakeAt) == []
    last = burst[-1]
    desk.read(message_on("x.cancel", 10_000, Nats_Scheduler=last.subject, Nats_Schedule_Next="purge"))
    sent = [fire.schedule for fire in first]
    for fire in first:
        desk.concluded(fire, Stored(20_000))
        sent += [more.schedule for more in desk.fires]
    assert sent == [message.subject for message in burst[:-1]]


def looks_by_sequence(desk: Desk) -> list[bool]:
    return [read.by_sequence for read in desk.asked(FetchContent)]


def test_a_look_that_decides_is_at_the_last_message_of_the_subject() -> None:
    message = schedule("@every 1h")
    unguarded = Desk(message, guard=False)
    assert looks_by_sequence(unguarded.at(3600)) == [False]
    sampling = Desk(schedule("@every 1h", Nats_Schedule_Source="t.source"))
    assert looks_by_sequence(sampling.at(3600)) == [False]
    doubted = Desk(message)
    doubted.at(3600)
    doubted.step(RemovalRequested(message.subject))
    assert looks_by_sequence(doubted) == [False]


# -- no more fires are in flight than the cap allows, whatever made them due: the window of a cancel depends on it ----

HERD = 2 * MAX_IN_FLIGHT + 50


class Server:
    """Answers everything that an engine with a herd asks for, and counts what is in flight."""

    def __init__(self) -> None:
        stored = [schedule("@at 2026-01-01T00:00:55Z", n, f"s.{n}") for n in range(1, HERD + 1)]
        self.desk = Desk(*stored, guard=False)
        self.messages = {message.sequence: message for message in stored}
        self.in_flight: list[Fire] = []
        self.most_in_flight = 0
        self.desk.at(60)  # after an outage: everything is overdue, though not missed, and nothing was read
        self.answer_reads()

    def answer_reads(self) -> None:
        """Answer reads until none is asked for."""
        while True:
            self.in_flight += self.desk.fires
            self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
            answers = [ContentFetched(*asked, self.messages[asked[1]], None) for asked in self.desk.reads]
            if not answers and not self.desk.fires:
                return
            self.desk.step(*answers)

    def conclude_all(self) -> list[str]:
        """Conclude what is in flight; returns the schedules of these fires."""
        concluded, self.in_flight = self.in_flight, []
        self.desk.step(*(PublishConcluded(fire, Stored(10_000 + fire.sequence)) for fire in concluded))
        self.answer_reads()
        return [fire.schedule for fire in concluded]


def test_overdue_fires_whose_content_arrives_late_keep_to_the_cap() -> None:
    server = Server()
    done: list[str] = []
    for _ in range(10):  # more than needed, so that one that never ends fails
        done += server.conclude_all()
    assert server.most_in_flight == MAX_IN_FLIGHT
    assert sorted(done) == sorted(message.subject for message in server.messages.values())
