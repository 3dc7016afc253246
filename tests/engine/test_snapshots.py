"""An engine that begins with a snapshot is as one that read everything: what is certain of its fires is known to it."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from nats_scheduler.engine.actions import PurgeSchedule, WakeAt
from nats_scheduler.engine.events import Ending, FiresMissed, FiresSkipped
from nats_scheduler.engine.fire import CheckFinished, LookForFire
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.inputs import (
    CaughtUp,
    Checkpoint,
    FinishChecked,
    MessagesRead,
    OwnershipChanged,
    PurgeConcluded,
    Refused,
    SchedulesGone,
    Stored,
    Version,
)
from nats_scheduler.engine.snapshots import snapshots
from nats_scheduler.engine.snapshots.chunks import (
    UNKNOWN,
    History,
    Rest,
    SnapshotError,
    UnkeepableError,
    give_back,
    history_of,
    read_histories,
    read_rest,
    write_histories,
)
from nats_scheduler.engine.snapshots.snapshots import Restoring
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import Restrictions
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, plain, schedule, stored_fire
from tests.engine.paused_builders import paused
from tests.harness.seeds import generator, seeds

BEGUN_ANEW = {"place", "flight", "wake", "mark", "dropped_run", "__dict__", "_send_time"}
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


def restored(desk: Desk, rest: Rest, count: int, chunks: list[bytes], first: int = 1) -> Restoring:
    """Have an engine begin with a snapshot, of a stream that has the messages from the sequence `first` on."""
    restoring = desk.engine.snapshots.begin_restoring(rest, count, desk.now, first)
    for chunk in chunks:
        list(restoring.take(chunk))
    list(restoring.finish())
    desk.engine.snapshots.begin_with(restoring, desk.now)
    desk.step()
    return restoring


def facts(desk: Desk) -> dict[str, dict[str, object]]:
    """Return all that is known of each schedule that is held."""
    return {held.subject: {slot: getattr(held, slot) for slot in slots_of(type(held))} for held in desk.engine.held}


def slots_of(kind: type[Held]) -> set[str]:
    names = {
        slot for one in kind.__mro__ for slot in (*getattr(one, "__slots__", ()), *vars(one).get("__annotations__", ()))
    }
    return names - BEGUN_ANEW


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
def test_an_engine_that_begins_with_a_snapshot_holds_what_the_other_one_holds() -> None:
    for seed in seeds(3):
        messages = kinds_of_messages(Random(seed), 400)
        before, after = Desk(*messages), Desk(live=False)
        settle(before)
        rest, count, chunks = taken(before)
        restored(after, rest, count, chunks)
        again = {message.sequence: message for message in messages}
        after.step(MessagesRead([again[sequence] for sequence in rest.to_read]), CaughtUp())
        assert facts(after) == facts(before), f"seed {seed}"
        assert after.engine.inactive.rejected == before.engine.inactive.rejected
        assert after.engine.last_read == before.engine.last_read == len(messages)
        assert len(after.engine.held) == count
        view = [one.engine.view().page(START, limit=None).finish().schedules for one in (before, after)]
        assert view[0] == view[1], f"seed {seed}"
        wakes = {held.subject: held.wake for held in before.engine.held}
        assert all(held.wake <= max(wakes[held.subject], 0) for held in after.engine.held)


@pytest.mark.usefixtures("far_bits")
def test_what_aged_meanwhile_is_left_out_and_what_ages_later_is_looked_at_then() -> None:
    messages, first, aged = kinds_of_messages(generator("max_age"), 400), 200, 20 * 24 * 3_600
    before, after = (Desk(*found, live=bool(found), max_age=aged * SECOND) for found in (messages, []))
    settle(before)
    restored(after, *taken(before), first=first)
    after.step(CaughtUp(), OwnershipChanged(True))
    kept = {subject: known for subject, known in facts(before).items() if known["sequence"] >= first}  # type: ignore[operator]
    assert 0 < len(kept) < len(facts(before))
    assert facts(after) == kept
    for desk in (before, after):
        desk.at(aged + 30)
        while any(isinstance(action, WakeAt) and action.instant <= desk.now for action in desk.actions):
            desk.step()
    looked_at = [{held.subject for held in desk.engine.held if held.flight is not None} for desk in (before, after)]
    assert looked_at[1] == looked_at[0] & set(kept)
    assert len(looked_at[1]) > 20


def begun(before: Desk, *tail: StoredMessage, now: int | None = None, **options: Any) -> Desk:
    """Have another engine begin with a snapshot, and read what was stored since."""
    after = Desk(live=False, **options)
    after.now = before.now if now is None else now
    restored(after, *taken(before))
    after.step(MessagesRead(tail), CaughtUp())
    return after


def test_a_fire_that_was_stored_is_not_sent_again() -> None:
    one = schedule("@every 10s")
    before = Desk(one)
    fired(before, one, 10)
    after = begun(before)
    assert (after.at(15).fires, after.due) == ([], 20)


@pytest.mark.parametrize("policies", [{}, {"Jitter": "1ms"}], ids=["plain", "treated"])
def test_a_schedule_that_is_done_is_purged_and_does_not_fire(policies: dict[str, str]) -> None:
    one = treated("@at 2026-01-01T00:00:10Z", 1, SCHEDULE, **policies)
    before, after = Desk(one), Desk(live=False)
    fired(before, one, 11)
    before.step(PurgeConcluded(SCHEDULE, 1, "refused", refused=True))
    after.now = before.now
    restored(after, *taken(before))
    assert after.purges == [(SCHEDULE, 1)]
    after.step(CaughtUp())
    assert (after.at(20).reads, after.fires) == ([], [])


def test_what_is_stored_after_the_sequence_counts() -> None:
    before = Desk(schedule("@every 3h"), schedule("@every 3h", 2, "s.two"))
    after = begun(before, schedule("@every 5h", 3), plain("s.two", 4))
    assert [(held.subject, held.sequence) for held in after.engine.held] == [(SCHEDULE, 3)]
    assert after.purges == [(SCHEDULE, 2)]


def test_a_near_schedule_is_in_it_beside_a_far_one() -> None:
    before = Desk(schedule("@every 3h"), schedule("@every 30s", 2, "s.two"))
    assert sorted(held.subject for held in begun(before).engine.held) == [SCHEDULE, "s.two"]


def test_what_is_stored_while_it_is_taken_is_not_in_it() -> None:
    for pattern, policies in (("@every 3h", {}), ("@every 30s", {}), ("@every 3h", {"Jitter": "5s"})):
        desk = Desk(treated(pattern, 1, SCHEDULE, **policies))
        taking = desk.engine.snapshots.begin()
        desk.read(treated(pattern, 2, "s.two", **policies), schedule("@never", 3, "s.three"))
        chunks = [chunk for chunk in taking.chunks() if chunk is not None]
        after = Desk(live=False)
        restored(after, taking.rest(), 1, chunks)
        assert ([held.subject for held in after.engine.held], taking.count) == ([SCHEDULE], 1), (pattern, policies)
        assert taking.rest().to_read == ()


def test_it_names_what_is_stored_and_no_schedule_that_waits() -> None:
    near = message_on("s.near", 3, **{"Nats-Schedul": "@daily"})
    assert taken(Desk(schedule("@never"), paused("@daily", 2, "s.two"), near))[0].to_read == (1, 2, 3)


def test_one_that_would_have_to_name_too_much_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_EXCEPTIONS", 2)
    wrong = [schedule("@never", number, f"s.{number}") for number in range(1, 4)]
    assert taken(Desk(*wrong[:2]))[0].to_read == (1, 2)
    with pytest.raises(UnkeepableError, match="more than 2 messages"):
        taken(Desk(*wrong))


@pytest.mark.parametrize(
    ("pattern", "policies"),
    [("@every 3h", {}), ("@every 30s", {}), ("@every 3h", {"Nats_Schedule_X_Jitter": "5s"})],
    ids=["far", "near", "treated"],
)
def test_what_fills_more_than_one_chunk_is_complete(pattern: str, policies: Any) -> None:
    many = [schedule(pattern, n, f"s.{n}", Nats_Schedule_Target="t" * 400, **policies) for n in range(1, 600)]
    before, after = Desk(*many), Desk(live=False)
    rest, count, chunks = taken(before)
    assert len(chunks) > 2
    restoring = restored(after, rest, count, chunks)
    assert sorted(held.sequence for held in after.engine.held) == [*range(1, 600)]
    assert restoring.objects == (599 if policies else 0)


def test_what_is_looked_at_later_is_looked_at_when_it_is_due() -> None:
    before = Desk(schedule("@every 10s"), live=False, reads_all=False)
    before.step(OwnershipChanged(False), CaughtUp())
    held = before.at(13.1).held()
    assert held.wake > held.send_time, "it is left to the owner"
    after = Desk(live=False)
    restored(after, *taken(before))
    assert after.held().wake <= after.held().send_time


def test_why_one_is_done_is_known() -> None:
    cancel = message_on("s.stop", 2, Nats_Scheduler=SCHEDULE, Nats_Schedule_Next="purge")
    once = message_on(SCHEDULE, 1, X_Nats_Schedule="@at 2026-01-01T00:00:10Z", X_Nats_Schedule_X_Target="jobs.run")
    cancelled, elsewhere = Desk(schedule("@every 3h"), cancel), Desk(once, only_schedules=True)
    elsewhere.concluded(elsewhere.in_flight(once, 10), Stored(7))
    for before, ending in ((cancelled, Ending.CANCELLED), (elsewhere, Ending.FIRED)):
        before.step(PurgeConcluded(SCHEDULE, 1, "refused", refused=True))
        after = begun(before, only_schedules=before is elsewhere)
        flight = after.engine.view().flight(SCHEDULE)
        assert flight is not None
        assert flight.ending is ending


def test_old_versions_that_the_owner_did_not_purge_are_purged_by_the_one_that_takes_over_and_all_of_a_subject() -> None:
    before, after = Desk(live=False), Desk(live=False)
    before.step(OwnershipChanged(False), CaughtUp())
    before.read(schedule("@every 3h"), schedule("@every 4h", 5), schedule("@every 5h", 7))
    assert before.purges == []
    restored(after, *taken(before))
    after.step(OwnershipChanged(True), CaughtUp())
    assert after.purges == [(SCHEDULE, 6)]
    ours = Desk(schedule("@every 3h"))
    for sequence in (5, 7):
        ours.read(schedule("@every 3h", sequence))
        (order,) = ours.asked(PurgeSchedule)
        ours.step(PurgeConcluded(SCHEDULE, order.through, "no answer", known=order.known))
    assert begun(ours).purges == [(SCHEDULE, 6)]


def test_older_versions_that_could_not_be_removed_are_removed_after_a_restart() -> None:
    before = Desk(schedule("@every 3h", 4, stored_at=START - 1))
    before.read(schedule("@every 3h", 6))
    (order,) = before.asked(PurgeSchedule)
    before.step(PurgeConcluded(SCHEDULE, 5, "no answer", known=order.known))
    after = begun(before)
    assert (order.known, after.asked(PurgeSchedule)) == (Version(4, START - 1), [order])


def test_there_is_no_snapshot_of_some_streams_and_schedules() -> None:
    limited = {"restrictions": Restrictions(max_schedules=9)}
    ways: list[Any] = [
        {"reads_all": False},
        {"removes_expired": True},
        {"moves_subjects": True},
        limited,
    ]
    for how in ways:
        assert not Desk(schedule("@every 30m"), **how).engine.snapshots.is_possible, how
    assert Desk(schedule("@every 30m")).engine.snapshots.is_possible
    with pytest.raises(UnkeepableError, match="calendar"):
        taken(Desk(schedule("@every 3h", Nats_Schedule_X_Except="calendar:de")))


def test_none_begins_while_something_is_in_flight() -> None:
    def may(desk: Desk) -> tuple[bool, bool]:
        return desk.engine.snapshots.may_begin, desk.engine.snapshots.may_end

    one = schedule("@every 10s")
    desk = Desk(one)
    assert may(desk) == (True, True)
    fire = desk.in_flight(one, 10)
    assert may(desk) == (False, False)
    desk.concluded(fire, Stored(2))
    assert may(desk) == (True, False)
    desk.read(stored_fire(fire, 2, desk.now))
    assert may(desk) == (True, True)
    desk.read(schedule("@every 20s", 3))
    assert may(desk) == (False, False), "the old version is to be purged"
    desk.step(PurgeConcluded(SCHEDULE, 2))
    assert may(desk) == (True, True)
    for other in (Desk(one, live=False), Desk()):
        assert may(other) == (False, False), "not everything was read, or nothing"


def test_what_is_no_rest_of_a_snapshot_is_refused() -> None:
    document = taken(Desk(schedule("@every 3h")))[0].document()
    assert read_rest(document).document() == document
    changes: list[dict[str, Any]] = [
        *({key: None} for key in ("through", "last", "last_fired", "roll_ups", "landed", "to_read", "done")),
        *({key: [[]]} for key in ("last_fired", "landed", "to_read", "done", "old_versions")),
        {"done": [["s", 1, "nothing"]]},
        {"old_versions": [["s", 1, 2]]},
        {"to_read": list(range(30_000))},
    ]
    for change in changes:
        with pytest.raises(SnapshotError):
            read_rest({**document, **change})


@pytest.mark.usefixtures("far_bits")
@pytest.mark.parametrize("policies", [{}, {"Nats_Schedule_X_Jitter": "1s"}], ids=["plain", "treated"])
def test_the_subject_of_one_that_has_expired_is_free(policies: dict[str, Any]) -> None:
    ttls = ((1, "1h"), (2, "9h"))
    before = Desk(*(schedule("@every 90m", number, f"s.{number}", Nats_TTL=ttl, **policies) for number, ttl in ttls))
    settle(before)
    assert taken(before)[1] == 2
    before.now += HOUR
    after = begun(before, schedule("@every 90m", 3, "s.1", stored_at=before.now))
    assert sorted((held.subject, held.sequence) for held in after.engine.held) == [("s.1", 3), ("s.2", 2)]
    assert [after.held(subject).sequence for subject in ("s.1", "s.2")] == [3, 2]
    assert after.held("s.2").expires == START + 9 * HOUR


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


def treated(pattern: str = "@every 10s", sequence: int = 1, subject: str = SCHEDULE, **policies: str) -> StoredMessage:
    """Make a schedule with policies."""
    named: Any = {f"Nats_Schedule_X_{name}": value for name, value in policies.items()}
    return schedule(pattern, sequence, subject, **named)


def fired(desk: Desk, one: StoredMessage, seconds: int, sequence: int = 2) -> None:
    """Have the fire of a schedule that is due after `seconds` stored."""
    fire = desk.in_flight(one, seconds)
    desk.concluded(fire, Stored(sequence))
    desk.read(stored_fire(fire, sequence, desk.now))


def test_the_fire_before_is_named_by_the_next_report_and_each_missed_one_is_owed_from_it() -> None:
    for policy, fire_time in (({"Report": "true"}, 40), ({"Missed": "all"}, 20)):
        one = treated("@every 10s", 1, SCHEDULE, **policy)
        before = Desk(one)
        fired(before, one, 10)
        fire = begun(before).in_flight(one, 45)
        assert fire.fire_time == START + fire_time * SECOND
        if "Report" in policy:
            assert header_value(fire.block, b"X-Nats-Schedule-X-Previous") == b"2026-01-01T00:00:10Z"
            assert header_value(fire.block, b"X-Nats-Schedule-X-Missed") == b"2"
            at = START + 20 * SECOND
            owner = Desk(one)
            fired(owner, one, 10)
            after = begun(before, stored_fire(owner.at(20).fire, 3, at), now=at)
            assert history_of(after.held()) == History(at, 3, at), "it was stored since"
            assert after.due == 30


def test_a_fire_waits_for_the_one_before_that_only_the_snapshot_shows() -> None:
    one = treated(Overlap="skip", Consumer="workers")
    before = Desk(one)
    fired(before, one, 10, 2)
    after = begun(before).at(20)
    after.found(one)
    (question,) = after.asked(CheckFinished)
    assert (question.after, question.through) == (1, 2)
    after.step(FinishChecked(question, 2, START + 10 * SECOND))
    assert (after.fires, [event.count for event in after.reported(FiresSkipped)]) == ([], [1])


def test_what_was_dropped_is_neither_sent_nor_counted_again() -> None:
    one = treated(Missed="skip", Grace="1s")
    before = Desk(one).at(35)
    before.found(one)
    assert [event.dropped for event in before.reported(FiresMissed)] == [3]
    after = begun(before)
    assert (after.due, after.held().dropped) == (40, 3)
    assert after.at(39).reported(FiresMissed) == []
    later = Desk(live=False)
    later.now = START + 25 * SECOND
    restored(later, *taken(Desk(treated(Missed="skip"))))
    settled = Checkpoint(START + 24 * SECOND, 1, stored_by=START)
    later.step(OwnershipChanged(True, settled), SchedulesGone([(SCHEDULE, 1)]))
    assert later.reads == [], "it is not ended before what is settled is passed over"
    later.step(CaughtUp())
    assert later.due == 30


def test_what_the_owner_was_to_report_is_reported_by_the_one_that_takes_over() -> None:
    before, after = Desk(treated(Missed="skip", Grace="1s"), live=False), Desk(live=False)
    before.step(OwnershipChanged(False), CaughtUp())
    assert before.at(35).held().unreported == START + 10 * SECOND
    after.now = before.now
    after.step(OwnershipChanged(False))
    restored(after, *taken(before))
    after.step(CaughtUp())
    after.step(OwnershipChanged(True))
    (event,) = after.at(40).reported(FiresMissed)
    assert (event.first, event.dropped) == (START + 10 * SECOND, 3)


def test_what_a_refused_make_up_fire_stands_for_is_reported_after_a_restart() -> None:
    for one in (treated(), treated(Report="true")):
        before = Desk(one)
        before.concluded(before.in_flight(one, 35), Refused(503, 10077, "no room"))
        after = begun(before)
        fire = after.in_flight(one, 45)
        after.concluded(fire, Stored(2))
        (event,) = after.reported(FiresMissed)
        assert (event.first, event.made_up, fire.fire_time) == (START + 10 * SECOND, *[START + 40 * SECOND] * 2)


def test_of_fires_in_another_stream_nothing_is_known_at_a_start_but_which_is_next() -> None:
    one = message_on(SCHEDULE, 1, X_Nats_Schedule="@every 10s", X_Nats_Schedule_X_Target="jobs.run")
    before = Desk(one, only_schedules=True)
    before.concluded(before.in_flight(one, 10), Stored(7))
    assert before.held().previous_fire == START + 10 * SECOND
    after = begun(before, only_schedules=True)
    held = after.held()
    assert held.is_elsewhere
    assert (after.due, history_of(held)) == (20, UNKNOWN)
    assert held.previous_fire is None, "a later one may be stored there"
    after.at(25)
    after.found(one)
    assert [look.fire.fire_time for look in after.asked(LookForFire)] == [START + 20 * SECOND]


def test_a_history_is_read_as_it_was_written_and_one_that_no_schedule_has_is_refused() -> None:
    for history in (
        UNKNOWN,
        History(START, 7, START + 1, 3, None, False, 9),
        History(None, 0, 0, 12, START + HOUR, True, 0),
        History(0, (1 << 64) - 1, 0, 0, 0, True, (1 << 64) - 1),
    ):
        assert read_histories(write_histories([UNKNOWN, history]), 2) == [UNKNOWN, history]
        held = Held.__new__(Held)
        give_back(held, history)
        assert history_of(held) == history
    for history in (
        History(previous_fire=-2),
        History(unreported=(1 << 63) - 1),
        History(dropped=-1),
        History(previous_stored_at=-1),
        History(is_known=2),  # type: ignore[arg-type]
    ):
        assert read_histories(write_histories([UNKNOWN, history]), 2) is None, history


def test_a_snapshot_that_contradicts_itself_is_refused() -> None:
    """Schedules with policies have chunks of their own."""
    rest, count, chunks = taken(Desk(*(schedule("@every 3h", n, f"s.{n}") for n in range(1, 5))))
    cases = [
        ("4 schedules", rest, count + 1, chunks),
        ("more than", rest, count - 1, chunks),
        ("twice", rest, 2 * count, chunks * 2),
        ("after the sequence", replace(rest, through=3), count, chunks),
    ]
    three = [schedule("@every 3h", number, f"s.{number}") for number in range(1, 4)]
    rest, count, chunks = taken(Desk(*three, treated("@every 3h", 4, "s.4", Jitter="5s")))
    assert [chunk[:4] for chunk in chunks] == [b"NSS2", b"NSP2"]
    _rest, _count, (other,) = taken(Desk(treated("@every 3h", 4, "s.2", Jitter="5s")))
    cases += [
        ("there are 4 schedules", rest, count + 1, chunks),
        ("3 schedules", rest, count, chunks[:1]),
        ("twice", rest, count + 1, [*chunks, chunks[1]]),
        ("twice", rest, count, [chunks[0], other]),
    ]
    for mark, one in ((b"NSP2", schedule("@every 3h")), (b"NSS2", treated(Jitter="5s"))):
        rest, count, (chunk,) = taken(Desk(one))
        cases.append(("not those of its chunk", rest, count, [mark + chunk[4:]]))
    for match, rest, count, chunks in cases:
        with pytest.raises(SnapshotError, match=match):
            restored(Desk(live=False), rest, count, chunks)
