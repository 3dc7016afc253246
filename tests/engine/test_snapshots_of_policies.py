"""Snapshots of schedules with policies: they hold what is known of their fires, but not what is uncertain later."""

from typing import Any

import pytest

from nats_scheduler.engine.events import FiresMissed, FiresSkipped
from nats_scheduler.engine.fire import (
    CheckFinished,
    LookForFire,
)
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import (
    CaughtUp,
    CheckpointLoaded,
    FinishChecked,
    MessagesRead,
    PurgeConcluded,
    Refused,
    SchedulesGone,
    ShardsHeld,
    Stored,
)
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, shard_of
from nats_scheduler.engine.snapshots.chunks import (
    UNKNOWN,
    History,
    SnapshotError,
    give_back,
    history_of,
    read_histories,
    write_histories,
)
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, schedule, stored_fire
from tests.engine.test_snapshots import restored, snapshot_between, taken


def treated(pattern: str = "@every 10s", sequence: int = 1, subject: str = SCHEDULE, **policies: str) -> StoredMessage:
    """Make a schedule with policies."""
    named: Any = {f"Nats_Schedule_X_{name}": value for name, value in policies.items()}
    return schedule(pattern, sequence, subject, **named)


def fired(desk: Desk, one: StoredMessage, seconds: int, sequence: int) -> None:
    """Have the fire of a schedule that is due after `seconds` stored."""
    fire = desk.in_flight(one, seconds)
    desk.concluded(fire, Stored(sequence))
    desk.read(stored_fire(fire, sequence, desk.now))


def held_by(desk: Desk, subject: str = SCHEDULE) -> Held:
    held = desk.held(subject)
    assert held.has_history
    return held


def test_the_fire_before_is_named_by_the_next_report() -> None:
    one = treated(Report="true")
    before, after = Desk(one), Desk(live=False)
    fired(before, one, 10, 2)
    snapshot_between(before, after)
    fire = after.in_flight(one, 40)
    assert header_value(fire.block, b"X-Nats-Schedule-X-Previous") == b"2026-01-01T00:00:10Z"
    assert header_value(fire.block, b"X-Nats-Schedule-X-Missed") == b"2"


def test_a_fire_waits_for_the_one_before_that_only_the_snapshot_shows() -> None:
    one = treated(Overlap="skip", Consumer="workers")
    before, after = Desk(one), Desk(live=False)
    fired(before, one, 10, 2)
    snapshot_between(before, after)
    after.at(20)
    after.found(one)
    (question,) = after.asked(CheckFinished)
    assert (question.after, question.through) == (1, 2)
    after.step(FinishChecked(question, 2, START + 10 * SECOND))
    assert not after.fires
    assert [event.count for event in after.reported(FiresSkipped)] == [1]


def test_a_fire_of_the_time_after_the_snapshot_is_the_one_before() -> None:
    one = treated(Report="true")
    before, after = Desk(one), Desk(live=False)
    fired(before, one, 10, 2)
    rest, count, chunks = taken(before)
    fire = before.at(20).fire
    after.now = before.now
    restored(after, rest, count, chunks)
    after.step(MessagesRead([stored_fire(fire, 3, before.now)]), CaughtUp())
    assert history_of(held_by(after)) == History(START + 20 * SECOND, 3, before.now)
    assert held_by(after).fire_time == START + 30 * SECOND


def test_each_missed_fire_is_owed_from_where_the_snapshot_was_taken() -> None:
    one = treated(Missed="all")
    before, after = Desk(one), Desk(live=False)
    fired(before, one, 10, 2)
    snapshot_between(before, after)
    assert after.in_flight(one, 45).fire_time == START + 20 * SECOND


def test_what_was_dropped_is_neither_sent_nor_counted_again() -> None:
    one = treated(Missed="skip", Grace="1s")
    before, after = Desk(one), Desk(live=False)
    before.at(35)
    before.found(one)
    assert [event.dropped for event in before.reported(FiresMissed)] == [3]
    snapshot_between(before, after)
    assert held_by(after).fire_time == START + 40 * SECOND
    assert held_by(after).dropped == 3
    after.at(39)
    assert not after.reported(FiresMissed)


def test_what_another_holder_was_to_report_is_reported_by_the_one_that_takes_over() -> None:
    one = treated(Missed="skip", Grace="1s")
    others = ALL_SHARDS - {shard_of(SCHEDULE)}
    before, after = Desk(one, live=False), Desk(live=False)
    before.step(ShardsHeld(others), CaughtUp())
    before.at(35)
    assert held_by(before).unreported == START + 10 * SECOND
    rest, count, chunks = taken(before)
    after.now = before.now
    after.step(ShardsHeld(others))
    restored(after, rest, count, chunks)
    after.step(CaughtUp())
    after.step(ShardsHeld(ALL_SHARDS))
    after.at(40)
    (event,) = after.reported(FiresMissed)
    assert (event.first, event.dropped) == (START + 10 * SECOND, 3)


@pytest.mark.parametrize("policies", [{}, {"Report": "true"}], ids=["plain", "treated"])
def test_what_a_refused_make_up_fire_stands_for_is_reported_after_a_restart(policies: dict[str, str]) -> None:
    one = treated("@every 10s", 1, SCHEDULE, **policies)
    before, after = Desk(one), Desk(live=False)
    before.concluded(before.in_flight(one, 35), Refused(503, 10077, "no room"))
    snapshot_between(before, after)
    fire = after.in_flight(one, 45)
    assert fire.fire_time == START + 40 * SECOND
    after.concluded(fire, Stored(2))
    assert [(event.first, event.made_up) for event in after.reported(FiresMissed)] == [
        (START + 10 * SECOND, START + 40 * SECOND)
    ]


def test_a_schedule_that_is_due_is_not_ended_before_what_is_settled_is_passed_over() -> None:
    one = treated(Missed="skip")
    before, after = Desk(one), Desk(live=False)
    rest, count, chunks = taken(before)
    after.now = START + 25 * SECOND
    restored(after, rest, count, chunks)
    settled = CheckpointLoaded(START + 24 * SECOND, 1, shards=ALL_SHARDS, stored_by=START)
    after.step(settled, SchedulesGone([(SCHEDULE, 1)]))
    assert not after.reads
    after.step(CaughtUp())
    assert held_by(after).fire_time == START + 30 * SECOND


def test_of_fires_in_another_stream_nothing_is_known_at_a_start_but_which_is_next() -> None:
    one = message_on(SCHEDULE, 1, X_Nats_Schedule="@every 10s", X_Nats_Schedule_X_Target="jobs.run")
    before, after = Desk(one, only_schedules=True), Desk(live=False, only_schedules=True)
    before.concluded(before.in_flight(one, 10), Stored(7))
    assert held_by(before).previous_fire == START + 10 * SECOND
    snapshot_between(before, after)
    held = held_by(after)
    assert held.is_elsewhere
    assert held.fire_time == START + 20 * SECOND
    assert history_of(held) == UNKNOWN
    assert held.previous_fire is None, "a later one may be stored there"
    after.at(25)
    after.found(one)
    assert [look.fire.fire_time for look in after.asked(LookForFire)] == [START + 20 * SECOND]


def test_a_schedule_with_policies_that_is_done_is_purged() -> None:
    one = treated("@at 2026-01-01T00:00:10Z", Jitter="1ms")
    before, after = Desk(one), Desk(live=False)
    fired(before, one, 11, 2)
    before.step(PurgeConcluded(SCHEDULE, 1, "refused", refused=True))
    after.now = before.now
    restored(after, *taken(before))
    assert after.purges == [(SCHEDULE, 1)]


def test_a_schedule_with_policies_whose_ttl_has_run_out_is_left_out() -> None:
    one = schedule("@every 3h", Nats_Schedule_X_Jitter="1s", Nats_TTL="60")
    before, after = Desk(one), Desk(live=False)
    rest, count, chunks = taken(before)
    after.now = START + 61 * SECOND
    restored(after, rest, count, chunks)
    assert (count, len(after.engine.held)) == (1, 0)


@pytest.mark.parametrize(
    "history",
    [
        UNKNOWN,
        History(START, 7, START + 1, 3, None, False, 9),
        History(None, 0, 0, 12, START + HOUR, True, 0),
        History(0, (1 << 64) - 1, 0, 0, 0, True, (1 << 64) - 1),
    ],
)
def test_a_history_is_read_as_it_was_written(history: History) -> None:
    assert read_histories(write_histories([UNKNOWN, history]), 2) == [UNKNOWN, history]
    held = Held.__new__(Held)
    give_back(held, history)
    assert history_of(held) == history


@pytest.mark.parametrize(
    "history",
    [
        History(previous_fire=-2),
        History(unreported=(1 << 63) - 1),
        History(dropped=-1),
        History(previous_stored_at=-1),
        History(is_known=2),  # type: ignore[arg-type]
    ],
)
def test_a_history_that_no_schedule_has_is_refused(history: History) -> None:
    assert read_histories(write_histories([UNKNOWN, history]), 2) is None


def snapshot_of(*messages: StoredMessage) -> tuple[Any, int, list[bytes]]:
    return taken(Desk(*messages))


def test_schedules_with_policies_have_chunks_of_their_own() -> None:
    plain = [schedule("@every 3h", number, f"s.{number}") for number in range(1, 4)]
    rest, count, chunks = snapshot_of(*plain, treated("@every 3h", 4, "s.4", Jitter="5s"))
    assert [chunk[:4] for chunk in chunks] == [b"NSS1", b"NSP1"]
    with pytest.raises(SnapshotError, match="there are 4 schedules"):
        restored(Desk(live=False), rest, count + 1, chunks)
    with pytest.raises(SnapshotError, match="3 schedules"):
        restored(Desk(live=False), rest, count, chunks[:1])
    with pytest.raises(SnapshotError, match="twice"):
        restored(Desk(live=False), rest, count + 1, [*chunks, chunks[1]])
    _rest, _count, (other,) = snapshot_of(treated("@every 3h", 4, "s.2", Jitter="5s"))
    with pytest.raises(SnapshotError, match="twice"):
        restored(Desk(live=False), rest, count, [chunks[0], other])


@pytest.mark.parametrize(
    ("mark", "one"),
    [(b"NSP1", schedule("@every 3h")), (b"NSS1", treated(Jitter="5s"))],
    ids=["without policies", "with policies"],
)
def test_a_kind_is_refused_in_a_chunk_of_others(mark: bytes, one: StoredMessage) -> None:
    rest, count, (chunk,) = snapshot_of(one)
    with pytest.raises(SnapshotError, match="not those of its chunk"):
        restored(Desk(live=False), rest, count, [mark + chunk[4:]])
