"""A paused schedule fires nothing, replaces the active one on its subject, and is listed until its subject changes."""

from collections.abc import Sequence

import pytest

from nats_scheduler.engine.assembly import ServerLimits
from nats_scheduler.engine.events import Ending, ScheduleAccepted, ScheduleEnded, ScheduleLost, ScheduleRejected
from nats_scheduler.engine.inactive import REMOVAL_CHECK_DELAYS_NS
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentUnread,
    ExpiryConcluded,
    MessagesRead,
    RemovalRequested,
    ShardsHeld,
)
from nats_scheduler.engine.outlook import Kind, State
from nats_scheduler.engine.rows import ROW_LENGTH
from nats_scheduler.engine.stored import StoredSchedules
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.view import ALL, FiredBy, ListedSchedule, Query
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, plain, schedule, stored_fire

PAUSED = Query(states=frozenset({State.PAUSED}))
DELAYS = [delay / SECOND for delay in REMOVAL_CHECK_DELAYS_NS]
ACTIVE = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": "t.out"}
PAUSED_HEADERS = {"Nats-Schedule-X-Paused": "@every 5s", "Nats-Schedule-Target": "t.out"}


def paused(pattern: str, sequence: int = 1, subject: str = SCHEDULE, **more: str) -> StoredMessage:
    """Make a paused schedule as the stream holds it."""
    message = schedule(pattern, sequence, subject, stored_at=START, body=b"", **more)
    return message._replace(block=paused_block(message.block, ADR51))


def listed(desk: Desk, query: Query = ALL) -> list[tuple[str, State]]:
    return [(one.subject, one.state) for one in desk.engine.view().page(desk.now, query).finish().schedules]


def shown(desk: Desk) -> ListedSchedule | None:
    return desk.engine.view().schedule(SCHEDULE, desk.now)


def endings(desk: Desk) -> list[Ending]:
    return [event.ending for event in desk.reported(ScheduleEnded)]


def test_it_is_listed_with_its_definition_and_fires_nothing() -> None:
    desk = Desk(paused("@every 5s", 7))
    one = shown(desk)
    assert one is not None
    assert (one.sequence, one.stored_at, one.pattern.text, one.terms.target) == (7, START, "@every 5s", TARGET)
    assert (one.next_fire, one.state, one.kind, one.ends) == (None, State.PAUSED, Kind.EVERY, None)
    assert (desk.at(60).reads, desk.fires, desk.purges) == ([], [], [])


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_it_is_listed_in_the_dialect_of_its_message(dialect: object) -> None:
    prefix = "" if dialect is ADR51 else "X-"
    names = {f"{prefix}Nats-Schedule-X-Paused": "@daily", f"{prefix}Nats-Schedule-Target": TARGET}
    one = shown(Desk(message_on(SCHEDULE, 1, **names)))
    assert one is not None
    assert one.terms.dialect is dialect


def test_it_ends_the_active_one_on_its_subject_and_purges_its_older_versions() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(paused("@every 5s", 2))
    assert endings(desk) == [Ending.PAUSED]
    assert desk.reported(ScheduleLost) == []
    assert desk.purges == [(SCHEDULE, 1)]
    assert not desk.is_held()
    assert (desk.at(60).reads, desk.fires) == ([], [])
    assert listed(desk) == [(SCHEDULE, State.PAUSED)]


def test_a_fire_in_flight_when_it_is_paused_is_not_repeated() -> None:
    active = schedule("@every 5s")
    desk = Desk(active)
    fire = desk.in_flight(active, 5)
    desk.read(paused("@every 5s", 2))
    desk.read(stored_fire(fire, 3, desk.now))
    assert (desk.at(60).reads, desk.fires) == ([], [])


def test_resumed_it_is_held_again_and_the_paused_version_is_purged() -> None:
    desk = Desk(paused("@every 5s"))
    desk.read(schedule("@every 5s", 2))
    assert [(event.schedule, event.sequence) for event in desk.reported(ScheduleAccepted)] == [(SCHEDULE, 2)]
    assert desk.purges == [(SCHEDULE, 1)]
    assert listed(desk) == [(SCHEDULE, State.WAITING)]
    assert desk.in_flight(schedule("@every 5s", 2), 5).sequence == 2


@pytest.mark.parametrize("live", [True, False])
def test_the_last_message_counts_in_whatever_order_they_are_read(live: bool) -> None:
    active, later = schedule("@every 5s", 3), paused("@every 5s", 4)
    desk = Desk(later, live=live)
    desk.read(active)
    desk.read(paused("@every 9s", 2))
    if not live:
        desk.step(CaughtUp())
    one = shown(desk)
    assert one is not None
    assert (one.sequence, one.state) == (4, State.PAUSED)
    assert (SCHEDULE, 3) in desk.purges or live
    desk = Desk(schedule("@every 5s", 5))
    desk.read(later)
    assert listed(desk) == [(SCHEDULE, State.WAITING)]
    assert endings(desk) == []


def test_an_active_version_that_is_read_after_the_paused_one_is_purged() -> None:
    desk = Desk(paused("@every 5s", 4))
    desk.read(schedule("@every 5s", 3))
    assert desk.purges == [(SCHEDULE, 3)]


def test_stored_before_the_start_its_older_versions_are_purged_by_the_holder_of_its_shard() -> None:
    desk = Desk(schedule("@every 5s"), paused("@every 5s", 2), live=False)
    desk.step(ShardsHeld(frozenset()), CaughtUp())
    assert desk.purges == []
    desk.step(ShardsHeld(frozenset(range(64))))
    assert desk.purges == [(SCHEDULE, 1)]


@pytest.mark.parametrize(
    "later",
    [
        plain(SCHEDULE, 2),
        message_on(SCHEDULE, 2, **{"Nats-Scheduler": "s.two", "Nats-Schedule-Next": "purge"}),
        schedule("@every nonsense", 2),
        paused("@every nonsense", 2),
    ],
    ids=["plain", "cancel", "rejected", "paused and rejected"],
)
def test_another_message_on_its_subject_replaces_it(later: StoredMessage) -> None:
    desk = Desk(paused("@every 5s"))
    desk.read(later)
    assert listed(desk) == []
    assert desk.at(60).fires == []


def test_what_would_be_rejected_is_listed_as_rejected_and_never_fires() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(paused("@every nonsense", 2, Nats_Schedule_Target="t.other"))
    (rejected,) = desk.engine.view().rejected_page(ALL, 9, "").finish().messages
    assert (rejected.pattern, rejected.target, rejected.dialect) == ("@every nonsense", "t.other", ADR51)
    assert (rejected.is_paused, rejected.sequence, rejected.rejection.code) == (True, 2, 10189)
    assert [event.rejection.code for event in desk.reported(ScheduleRejected)] == [10189]
    assert str(rejected.rejection).endswith(
        "; it is paused, and would be rejected if it was resumed (server code 10189)"
    )
    assert endings(desk) == [Ending.PAUSED]
    assert listed(desk) == []
    assert 2 not in desk.engine.checkpoint(desk.now).unsettled
    assert desk.at(60).fires == []


def test_a_later_rejected_schedule_that_is_active_is_named_in_the_checkpoint() -> None:
    assert Desk(schedule("@every nonsense", 2)).engine.checkpoint(START).unsettled == {2}


def test_pages_end_with_the_paused_ones_and_each_is_on_one_page() -> None:
    messages = [schedule(f"@every {number}h", number, f"s.{number}") for number in (1, 2)]
    messages += [paused("@every 5s", number, f"s.{number}") for number in range(3, 3 + 2 * ROW_LENGTH)]
    desk, found, after = Desk(*messages), list[str](), None
    while True:
        page = desk.engine.view().page(desk.now, limit=100, after=after).finish()
        found += [one.subject for one in page.schedules]
        if (after := page.following) is None:
            break
    assert found == ["s.1", "s.2", *sorted(message.subject for message in messages[2:])]
    counts = desk.engine.view().counts(desk.now).finish()
    assert (counts.total, counts.states) == (2 + 2 * ROW_LENGTH, {State.WAITING: 2, State.PAUSED: 2 * ROW_LENGTH})
    assert desk.engine.view().counts(desk.now, PAUSED).finish().total == 2 * ROW_LENGTH
    assert len(listed(desk, PAUSED)) == 2 * ROW_LENGTH
    first = desk.engine.view().page(desk.now, limit=2).finish()
    assert [one.subject for one in first.schedules] == ["s.1", "s.2"]


def test_queries_for_subjects_targets_and_kinds_concern_paused_ones_too() -> None:
    desk = Desk(paused("@every 5s", 1, "s.1"), paused("@daily", 2, "s.2", Nats_Schedule_Target="t.two"))
    assert listed(desk, Query(subject="s.1")) == [("s.1", State.PAUSED)]
    assert listed(desk, Query(target="t.two")) == [("s.2", State.PAUSED)]
    assert listed(desk, Query(kinds=frozenset({Kind.CRON}))) == [("s.2", State.PAUSED)]
    assert listed(desk, Query(states=frozenset({State.WAITING}))) == []


def test_a_request_that_may_have_removed_it_has_it_read_twice_and_it_stays_while_it_is_stored() -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(RemovalRequested(SCHEDULE))
    assert desk.reads == [], "the server has not done it yet"
    for _delay in DELAYS:
        desk.at(desk.wake)
        assert desk.reads == [(SCHEDULE, 1)]
        desk.found(message)
        assert listed(desk) == [(SCHEDULE, State.PAUSED)]
    assert desk.now == START + sum(REMOVAL_CHECK_DELAYS_NS)
    assert desk.at(10_000).reads == []


@pytest.mark.parametrize(
    "request_",
    [
        RemovalRequested(SCHEDULE),
        RemovalRequested("s.*"),
        RemovalRequested(),
        RemovalRequested(sequence=1),
        RemovalRequested(SCHEDULE, below=2),
    ],
)
def test_gone_after_a_request_it_is_listed_no_more(request_: RemovalRequested) -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(request_)
    desk.at(DELAYS[0])
    assert desk.reads == [(SCHEDULE, 1)]
    desk.found(None, of=message)
    assert listed(desk) == []
    assert desk.at(1_000).reads == []


@pytest.mark.parametrize(
    "request_",
    [
        RemovalRequested("s.two"),
        RemovalRequested("t.>"),
        RemovalRequested(sequence=2),
        RemovalRequested(SCHEDULE, below=1),
    ],
)
def test_a_request_that_cannot_concern_it_costs_nothing(request_: RemovalRequested) -> None:
    desk = Desk(paused("@every 5s"))
    desk.step(request_)
    assert desk.at(100).reads == []


def test_a_read_without_an_answer_leaves_it_listed_and_is_repeated() -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(RemovalRequested(SCHEDULE))
    desk.at(DELAYS[0])
    desk.step(ContentUnread(SCHEDULE, 1, "no answer"))
    assert listed(desk) == [(SCHEDULE, State.PAUSED)]
    desk.at(sum(DELAYS))
    assert desk.reads == [(SCHEDULE, 1)]


def test_a_later_message_that_is_found_when_it_is_read_again_counts() -> None:
    message = paused("@every 5s")
    desk = Desk(message)
    desk.step(RemovalRequested(SCHEDULE))
    desk.at(DELAYS[0])
    desk.found(schedule("@every 9s", 5), of=message)
    assert listed(desk) == [(SCHEDULE, State.WAITING)]


def test_one_that_was_replaced_meanwhile_is_not_read_for_the_request() -> None:
    desk = Desk(paused("@every 5s"))
    desk.step(RemovalRequested(SCHEDULE))
    desk.read(paused("@every 5s", 2))
    assert desk.at(100).reads == []


def test_many_are_read_some_at_a_time() -> None:
    desk = Desk(*(paused("@every 5s", number, f"s.{number}") for number in range(1, 201)))
    desk.step(RemovalRequested())
    read: list[tuple[str, int]] = []
    desk.at(DELAYS[0])
    while desk.reads:
        assert len(desk.reads) <= 64
        read += desk.reads
        desk.at(DELAYS[0])
    assert len(set(read)) == len(read) == 200


def test_the_end_of_its_lifetime_is_shown_and_it_is_not_listed_afterwards() -> None:
    desk = Desk(paused("@every 5s", Nats_TTL="12s"))
    one = shown(desk)
    assert one is not None
    assert (one.ends, one.ended_by) == (START + 12 * SECOND, Ending.EXPIRED)
    desk.at(12)
    assert (shown(desk), listed(desk), desk.engine.view().counts(desk.now).finish().total) == (None, [], 0)
    desk.at(12 + DELAYS[0])
    assert desk.reads == [(SCHEDULE, 1)]
    desk.found(None, of=paused("@every 5s"))
    assert desk.engine.inactive.paused == {}


def test_the_age_limit_of_its_stream_ends_it_too_unless_it_never_expires() -> None:
    desk = Desk(paused("@every 5s", 1), paused("@every 5s", 2, "s.two", Nats_TTL="never"), max_age=HOUR)
    assert [one.ended_by for one in desk.engine.view().page(desk.now).finish().schedules] == [Ending.MAX_AGE, None]
    desk.at(3_600)
    assert listed(desk) == [("s.two", State.PAUSED)]


def test_where_the_server_does_not_act_on_its_ttl_it_is_removed() -> None:
    message = paused("@every 5s", Nats_TTL="12s")
    desk = Desk(message, removes_expired=True)
    assert desk.at(12).removals == [1]
    desk.step(ExpiryConcluded(1, SCHEDULE))
    assert desk.engine.inactive.paused == {}


def test_paused_schedules_take_no_place_and_free_the_one_that_they_had() -> None:
    desk = Desk()
    rules = StreamRules("DESK", (">",), restrictions=Restrictions(max_schedules=1))
    desk.engine = StreamEngine(rules, DIALECTS, ServerLimits(guard=True, look_ahead=SECOND))
    desk.step(MessagesRead([schedule("@every 5s", n, f"s.{n}") for n in (1, 2, 3)]), CaughtUp())
    assert (listed(desk), list(desk.engine.rejected)) == ([("s.1", State.WAITING)], ["s.2", "s.3"])
    desk.read(paused("@every 5s", 4, "s.1"), paused("@every 5s", 5, "s.2"))
    assert (listed(desk), list(desk.engine.rejected)) == (
        [("s.3", State.WAITING), ("s.1", State.PAUSED), ("s.2", State.PAUSED)],
        [],
    )
    assert desk.purges == [("s.1", 3), ("s.2", 4)]


def read_stored(messages: Sequence[StoredMessage], fired_by: FiredBy, *, policies: bool = True) -> StoredSchedules:
    dialects = DIALECTS if fired_by is FiredBy.SIDECAR else (ADR51,)
    stored = StoredSchedules(StreamRules("S", (">",), has_policies=policies), dialects, fired_by)
    stored.take(messages, START)
    return stored


@pytest.mark.parametrize("fired_by", FiredBy)
def test_what_is_stored_says_the_same_whoever_fires(fired_by: FiredBy) -> None:
    stored = read_stored([schedule("@every 5s"), paused("@every 5s", 2), paused("@daily", 3, "s.two")], fired_by)
    found = stored.view.page(START).finish().schedules
    assert [(one.subject, one.state, one.fired_by) for one in found] == [
        (SCHEDULE, State.PAUSED, fired_by),
        ("s.two", State.PAUSED, fired_by),
    ]
    assert stored.count == 2
    stored.remove([(SCHEDULE, 2)], START)
    assert list(stored.paused) == ["s.two"]


def test_on_a_native_stream_a_paused_one_in_portable_headers_is_the_sidecars() -> None:
    portable = message_on(SCHEDULE, 1, **{"X-Nats-Schedule-X-Paused": "@daily", "X-Nats-Schedule-Target": TARGET})
    assert read_stored([portable], FiredBy.SERVER).count == 0
    stored = StoredSchedules(StreamRules("S", (">",)), (PORTABLE,), FiredBy.SIDECAR)
    stored.take([portable], START)
    assert list(stored.paused) == [SCHEDULE]


def test_in_a_world_a_paused_schedule_is_silent_until_it_is_resumed() -> None:
    world = ScheduleWorld()
    world.publish("s.one", ACTIVE)
    world.advance("12s")
    world.publish("s.one", PAUSED_HEADERS)
    world.advance("1h")
    assert len(world.generated) == 2
    world.publish("s.one", ACTIVE)
    world.advance("11s")
    assert len(world.generated) == 4


def test_reading_again_changes_nothing() -> None:
    message = paused("@every 5s", 3)
    desk = Desk(message)
    before = desk.engine.view().page(desk.now).finish()
    desk.step(MessagesRead([message]))
    assert desk.engine.view().page(desk.now).finish() == before
    assert (desk.purges, desk.reads) == ([], [])
