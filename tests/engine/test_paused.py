"""A paused schedule fires nothing, replaces the active one on its subject, and is listed until its subject changes."""

from collections.abc import Sequence

import pytest

from nats_scheduler.engine.events import Ending, ScheduleAccepted, ScheduleLost, ScheduleRejected
from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.holding.roster import ROW_LENGTH
from nats_scheduler.engine.inputs import (
    CaughtUp,
    MessagesRead,
    ShardsHeld,
)
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views.figures import ScheduleKind, State
from nats_scheduler.engine.views.stored import StoredSchedules
from nats_scheduler.engine.views.view import ALL, FiredBy, Query
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import Restrictions, StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, plain, schedule, stored_fire
from tests.engine.paused_builders import listed, paused, shown

PAUSED = Query(states=frozenset({State.PAUSED}))
ACTIVE = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": "t.out"}
PAUSED_HEADERS = {"Nats-Schedule-X-Paused": "@every 5s", "Nats-Schedule-Target": "t.out"}


def test_it_is_listed_with_its_definition_and_fires_nothing() -> None:
    desk = Desk(paused("@every 5s", 7))
    one = shown(desk)
    assert one is not None
    assert (one.sequence, one.stored_at, one.pattern.text, one.terms.target) == (7, START, "@every 5s", TARGET)
    assert (one.next_fire, one.state, one.kind, one.ends) == (None, State.PAUSED, ScheduleKind.EVERY, None)
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
    assert desk.endings == [Ending.PAUSED]
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
    assert desk.endings == []


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
    assert desk.endings == [Ending.PAUSED]
    assert listed(desk) == []
    assert 2 not in desk.engine.checkpoint(desk.now).unsettled
    assert desk.at(60).fires == []


def test_a_cancel_does_not_concern_it_because_no_schedule_is_there() -> None:
    desk = Desk(paused("@every 5s"))
    desk.read(message_on("x.y", 2, **{"Nats-Scheduler": SCHEDULE, "Nats-Schedule-Next": "purge"}))
    assert (listed(desk), desk.purges) == ([(SCHEDULE, State.PAUSED)], [])


@pytest.mark.parametrize("subject", ["s.>", "*", "s.*.x"])
def test_on_a_subject_with_wildcards_nothing_is_purged(subject: str) -> None:
    """A server stores a message that is published to `s.>` under that subject; a purge of it removes every schedule."""
    desk = Desk(schedule("@every 1h", 1, "s.other"), schedule("@every 5s", 2, subject))
    desk.read(paused("@every 5s", 3, subject), paused("@every 5s", 4, subject))
    assert desk.purges == []
    assert desk.engine.inactive.rejected[subject].sequence == 4
    assert desk.is_held("s.other")


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
    assert listed(desk, Query(kinds=frozenset({ScheduleKind.CRON}))) == [("s.2", State.PAUSED)]
    assert listed(desk, Query(states=frozenset({State.WAITING}))) == []


def test_paused_schedules_take_no_place_and_free_the_one_that_they_had() -> None:
    desk = Desk()
    rules = StreamRules("DESK", (">",), restrictions=Restrictions(max_schedules=1))
    desk.engine = StreamEngine(rules, DIALECTS, ServerLimits(guard=True, look_ahead=SECOND))
    desk.step(MessagesRead([schedule("@every 5s", n, f"s.{n}") for n in (1, 2, 3)]), CaughtUp())
    assert (listed(desk), list(desk.engine.inactive.rejected)) == ([("s.1", State.WAITING)], ["s.2", "s.3"])
    desk.read(paused("@every 5s", 4, "s.1"), paused("@every 5s", 5, "s.2"))
    assert (listed(desk), list(desk.engine.inactive.rejected)) == (
        [("s.3", State.WAITING), ("s.1", State.PAUSED), ("s.2", State.PAUSED)],
        [],
    )
    assert desk.purges == [("s.1", 3), ("s.2", 4)]
    desk.read(schedule("@every 5s", 6, "s.1"))
    assert (listed(desk), list(desk.engine.inactive.rejected)) == (
        [("s.3", State.WAITING), ("s.2", State.PAUSED)],
        ["s.1"],
    )
    assert desk.purges == [("s.1", 5)]


def read_stored(messages: Sequence[StoredMessage], fired_by: FiredBy, *, policies: bool = True) -> StoredSchedules:
    dialects = DIALECTS if fired_by is FiredBy.SIDECAR else (ADR51,)
    stored = StoredSchedules(StreamRules("S", (">",), has_policies=policies), dialects, fired_by)
    stored.take(messages, START)
    return stored


@pytest.mark.parametrize("fired_by", FiredBy)
def test_what_is_stored_says_the_same_in_every_mode_of_the_stream(fired_by: FiredBy) -> None:
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
