"""An engine that begins with a snapshot is as one that read everything."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.inputs import (
    CaughtUp,
    MessagesRead,
    PurgeConcluded,
    Stored,
)
from nats_scheduler.engine.snapshots.chunks import Rest, SnapshotError, UnkeepableError, read_rest
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, plain, schedule, stored_fire

BEGUN_ANEW = ("place", "flight", "wake", "__dict__", "_send_time")
"""The attributes that are not as they were in an engine that begins with a snapshot."""
POLICIES: list[dict[str, str]] = [
    {"Nats_Schedule_X_Jitter": "5s"},
    {"Nats_Schedule_X_Missed": "skip", "Nats_Schedule_X_Grace": "1m"},
    {"Nats_Schedule_X_Missed": "all 3", "Nats_Schedule_X_Jitter": "2s"},
    {"Nats_Schedule_X_Report": "true", "Nats_Schedule_X_Note": "daily"},
]


def taken(desk: Desk) -> tuple[Rest, int, list[bytes]]:
    """Return a snapshot of what an engine holds, through the bytes that would be stored."""
    taking = desk.engine.snapshots.begin()
    chunks = [chunk for chunk in taking.chunks() if chunk is not None]
    return read_rest(taking.rest().document()), taking.count, chunks


def settle(desk: Desk) -> None:
    """Answer all purges, until nothing is left to do."""
    while not desk.engine.is_idle:
        purges = desk.asked(PurgeSchedule)
        desk.step(*(PurgeConcluded(one.schedule, one.through, known=one.known) for one in purges))


def restored(desk: Desk, rest: Rest, count: int, chunks: list[bytes]) -> None:
    """Have an engine begin with a snapshot."""
    restoring = desk.engine.snapshots.begin_restoring(rest, count, desk.now)
    for chunk in chunks:
        list(restoring.take(chunk))
    list(restoring.finish())
    desk.engine.snapshots.begin_with(restoring, desk.now)
    desk.step()


def facts(desk: Desk) -> dict[str, dict[str, object]]:
    return {held.subject: {slot: getattr(held, slot) for slot in slots_of(held)} for held in desk.engine.held}


def slots_of(held: Held) -> list[str]:
    slots = [
        slot
        for kind in type(held).__mro__
        for slot in (*getattr(kind, "__slots__", ()), *vars(kind).get("__annotations__", ()))
    ]
    return [slot for slot in slots if slot not in BEGUN_ANEW]


def kinds_of_messages(random: Random, count: int) -> list[StoredMessage]:
    """Make schedules of all kinds that a snapshot may have, and messages that are none."""
    found: list[StoredMessage] = []
    for sequence in range(1, count + 1):
        due = START + random.randrange(HOUR, 900 * HOUR)
        stored = START + sequence * MILLISECOND
        subject = f"s.{random.randrange(count)}"
        more = random.choice(
            [
                {},
                {"Nats_Schedule_TTL": "5m"},
                {"Nats_Schedule_Source": "src.one"},
                {"Nats_TTL": "never"},
                {"Nats_Schedule_X_Note": f"n{sequence % 3}"},
                {"Nats_Schedule_X_Start": "2026-12-24T00:00:00Z"},
                *POLICIES,
            ]
        )
        pattern = random.choice([f"@at {format_rfc3339(due)}", "@every 90m", "0 30 9 * * mon-fri", "@daily"])
        if "Nats_Schedule_X_Start" in more and pattern.startswith("@at"):
            more = {}
        if random.random() < 0.1:
            found.append(plain(subject, sequence, stored_at=stored))
        elif random.random() < 0.1:
            found.append(schedule("@nonsense", sequence, subject, stored_at=stored))
        else:
            headers: Any = {"Nats_Schedule_Target": f"t.{random.randrange(5)}"} | more
            found.append(schedule(pattern, sequence, subject, stored_at=stored, **headers))
    return found


@pytest.fixture(params=[False, True], ids=["far", "near"])
def far_bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(Roster, "far_bits", 62)


@pytest.mark.usefixtures("far_bits")
@pytest.mark.parametrize("seed", range(8))
def test_an_engine_that_begins_with_a_snapshot_holds_what_the_other_one_holds(seed: int) -> None:
    messages = kinds_of_messages(Random(seed), 700)
    before = Desk(*messages)
    settle(before)
    after = Desk(live=False)
    rest, count, chunks = taken(before)
    restored(after, rest, count, chunks)
    again = {message.sequence: message for message in messages}
    after.step(MessagesRead([again[sequence] for sequence in rest.to_read]), CaughtUp())
    assert facts(after) == facts(before)
    assert after.engine.inactive.rejected == before.engine.inactive.rejected
    assert after.engine.last_read == before.engine.last_read == len(messages)
    assert len(after.engine.held) == count
    view = [one.engine.view().page(START, limit=None).finish().schedules for one in (before, after)]
    assert view[0] == view[1]
    wakes = {held.subject: held.wake for held in before.engine.held}
    assert all(held.wake <= max(wakes[held.subject], 0) for held in after.engine.held)


def snapshot_between(before: Desk, after: Desk, *tail: StoredMessage) -> None:
    """Have another engine begin with a snapshot, and read what was stored since."""
    rest, count, chunks = taken(before)
    after.now = before.now
    restored(after, rest, count, chunks)
    after.step(MessagesRead(tail), CaughtUp())


def test_a_fire_that_was_stored_is_not_sent_again() -> None:
    one = schedule("@every 10s")
    before, after = Desk(one), Desk(live=False)
    fire = before.in_flight(one, 10)
    before.concluded(fire, Stored(2))
    before.read(stored_fire(fire, 2, before.now))
    snapshot_between(before, after)
    after.at(15)
    assert not after.fires
    assert [held.fire_time for held in after.engine.held] == [START + 20 * SECOND]


def test_a_schedule_that_is_done_is_purged_and_does_not_fire() -> None:
    one = schedule(f"@at {format_rfc3339(START + 10 * SECOND)}")
    before, after = Desk(one), Desk(live=False)
    fire = before.in_flight(one, 10)
    before.concluded(fire, Stored(2))
    before.read(stored_fire(fire, 2, before.now))
    before.step(PurgeConcluded(SCHEDULE, 1, "refused", refused=True))
    after.now = before.now
    restored(after, *taken(before))
    assert after.purges == [(SCHEDULE, 1)]
    after.step(CaughtUp())
    after.at(20)
    assert not after.reads
    assert not after.fires


def test_what_is_stored_after_the_sequence_counts() -> None:
    before, after = Desk(schedule("@every 3h"), schedule("@every 3h", 2, "s.two")), Desk(live=False)
    snapshot_between(before, after, schedule("@every 5h", 3), plain("s.two", 4))
    assert [(held.subject, held.sequence) for held in after.engine.held] == [(SCHEDULE, 3)]
    assert after.purges == [(SCHEDULE, 2)]


def test_a_schedule_that_names_a_calendar_prevents_a_snapshot() -> None:
    desk = Desk(schedule("@every 3h", Nats_Schedule_X_Except="calendar:de"))
    with pytest.raises(UnkeepableError, match="calendar"):
        taken(desk)


@pytest.mark.parametrize(
    "how", [{"reads_all": False}, {"removes_expired": True}, {"moves_subjects": True}, {"max_age": HOUR}], ids=str
)
def test_there_is_no_snapshot_of_such_a_stream(how: Any) -> None:
    assert not Desk(schedule("@every 30m"), **how).engine.snapshots.is_possible
    assert Desk(schedule("@every 30m")).engine.snapshots.is_possible


def test_none_begins_while_something_is_in_flight() -> None:
    def may() -> tuple[bool, bool]:
        return desk.engine.snapshots.may_begin, desk.engine.snapshots.may_end

    one = schedule("@every 10s")
    desk = Desk(one)
    assert may() == (True, True)
    fire = desk.in_flight(one, 10)
    assert may() == (False, False)
    desk.concluded(fire, Stored(2))
    assert may() == (True, False)
    desk.read(stored_fire(fire, 2, desk.now))
    assert may() == (True, True)


def test_a_snapshot_that_contradicts_itself_is_refused() -> None:
    before = Desk(*(schedule("@every 3h", n, f"s.{n}") for n in range(1, 5)))
    rest, count, chunks = taken(before)
    with pytest.raises(SnapshotError, match="4 schedules"):
        restored(Desk(live=False), rest, count + 1, chunks)
    with pytest.raises(SnapshotError, match="more than"):
        restored(Desk(live=False), rest, count - 1, chunks)
    with pytest.raises(SnapshotError, match="twice"):
        restored(Desk(live=False), rest, 2 * count, chunks * 2)
    with pytest.raises(SnapshotError, match="after the sequence"):
        restored(Desk(live=False), replace(rest, through=3), count, chunks)


@pytest.mark.parametrize(
    "change",
    [
        *({key: None} for key in ("through", "last", "last_fired", "roll_ups", "landed", "to_read", "done")),
        *({key: [[]]} for key in ("last_fired", "landed", "to_read", "done", "old_versions")),
        {"done": [["s", 1, "nothing"]]},
        {"old_versions": [["s", 1, 2]]},
        {"to_read": list(range(30_000))},
    ],
    ids=lambda change: str(change)[:40],
)
def test_what_is_no_rest_of_a_snapshot_is_refused(change: Any) -> None:
    document = taken(Desk(schedule("@every 3h")))[0].document()
    assert read_rest(document).document() == document
    with pytest.raises(SnapshotError):
        read_rest({**document, **change})


@pytest.mark.usefixtures("far_bits")
def test_the_subject_of_one_that_has_expired_is_free() -> None:
    one, other = (schedule("@every 90m", number, f"s.{number}", Nats_TTL=ttl) for number, ttl in ((1, "1h"), (2, "9h")))
    before, after = Desk(one, other), Desk(live=False)
    settle(before)
    before.now += 2 * HOUR
    again = schedule("@every 90m", 3, "s.1", stored_at=before.now)
    snapshot_between(before, after, again)
    assert sorted((held.subject, held.sequence) for held in after.engine.held) == [("s.1", 3), ("s.2", 2)]
    assert [held.sequence for held in map(after.engine.held.on, ("s.1", "s.2")) if held is not None] == [3, 2]


def test_it_names_the_targets_that_are_still_to_be_rolled_up() -> None:
    message = schedule("@every 5s", Nats_Schedule_Rollup="sub")
    desk = Desk(message, rolls_up_by_purge=True)
    fire = desk.in_flight(message, 5)
    desk.concluded(fire, Stored(20))
    desk.step(PurgeConcluded(fire.target, 19, "no answer"))
    desk.read(stored_fire(fire, 20, desk.now))
    later = Desk(live=False, rolls_up_by_purge=True)
    restored(later, *taken(desk))
    assert later.purges == [(fire.target, 19)]
