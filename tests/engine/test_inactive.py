"""Messages that fire nothing: paused schedules, listed while they are stored, and headers that nobody reads."""

from collections.abc import Sequence

import pytest

from nats_scheduler.engine.events import Ending, HeadersMisnamed, ScheduleAccepted, ScheduleLost, ScheduleRejected
from nats_scheduler.engine.holding import inactive
from nats_scheduler.engine.holding.inactive import MAX_MISNAMED_REPORTS
from nats_scheduler.engine.inputs import (
    CaughtUp,
    MessagesRead,
    OwnershipChanged,
    SchedulesGone,
    ServerLimits,
    Stored,
)
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ALL, FiredBy
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, plain, schedule, stored_fire
from tests.engine.paused_builders import listed, paused, shown

PORTABLE_HEADERS = {"X-Nats-Schedule-X-Paused": "@daily", "X-Nats-Schedule-Target": TARGET}


def test_it_is_listed_with_its_definition_and_fires_nothing() -> None:
    message = paused("@every 5s", 7)
    desk = Desk(message)
    one = shown(desk)
    assert one is not None
    assert (one.sequence, one.stored_at, one.pattern.text, one.terms.target) == (7, START, "@every 5s", TARGET)
    assert (one.next_fire, one.state, one.kind, one.ends) == (None, State.PAUSED, PatternKind.EVERY, None)
    assert one.terms.dialect is ADR51
    desk.read(message)
    assert (shown(desk), desk.purges) == (one, []), "reading it again changes nothing"
    assert (desk.at(60).reads, desk.fires, desk.purges) == ([], [], [])
    portable = shown(Desk(message_on(SCHEDULE, 1, **PORTABLE_HEADERS)))
    assert portable is not None
    assert portable.terms.dialect is PORTABLE


def test_it_ends_the_active_one_on_its_subject_until_it_is_resumed() -> None:
    active, resumed = schedule("@every 5s"), schedule("@every 5s", 4)
    desk = Desk(active)
    fire = desk.in_flight(active, 5)
    desk.read(paused("@every 5s", 2))
    assert (desk.endings, desk.reported(ScheduleLost), desk.is_held()) == ([Ending.PAUSED], [], False)
    assert desk.purges == [(SCHEDULE, 1)], "its older versions are purged"
    desk.read(stored_fire(fire, 3, desk.now))
    assert (desk.at(60).reads, desk.fires) == ([], []), "the fire in flight is not repeated"
    assert listed(desk) == [(SCHEDULE, State.PAUSED)]
    desk.read(resumed)
    assert [(event.schedule, event.sequence) for event in desk.reported(ScheduleAccepted)] == [(SCHEDULE, 4)]
    assert (desk.purges, listed(desk)) == ([(SCHEDULE, 3)], [(SCHEDULE, State.WAITING)])
    assert desk.in_flight(resumed, 61).sequence == 4
    before = Desk(active, paused("@every 5s", 2), live=False)
    before.step(OwnershipChanged(False), CaughtUp())
    assert before.purges == []
    before.step(OwnershipChanged(True))
    assert before.purges == [(SCHEDULE, 1)], "what was stored before the start is purged by the owner"


def test_a_fire_of_ours_takes_the_place_of_what_is_rejected_on_its_target() -> None:
    every = schedule("@every 5s")
    desk = Desk(every, message_on(TARGET, 2, Nats_Schedule="@nonsense", Nats_Schedule_Target="t.x"))
    assert TARGET in desk.engine.inactive.rejected
    fire = desk.in_flight(every, 5)
    desk.concluded(fire, Stored(3))
    desk.read(stored_fire(fire, 3, desk.now))
    assert (desk.engine.inactive.rejected, desk.due) == ({}, 10)


def test_the_last_message_counts_in_whatever_order_they_are_read() -> None:
    active, later = schedule("@every 5s", 3), paused("@every 5s", 4)
    desk = Desk(later)
    desk.read(active)
    assert desk.purges == [(SCHEDULE, 3)]
    desk.read(paused("@every 9s", 2))
    one = shown(desk)
    assert one is not None
    assert (one.sequence, one.state) == (4, State.PAUSED)
    desk = Desk(schedule("@every 5s", 5))
    desk.read(later)
    assert (listed(desk), desk.endings) == ([(SCHEDULE, State.WAITING)], [])


def test_another_message_on_its_subject_replaces_a_paused_schedule() -> None:
    cancel = {"Nats-Scheduler": "s.two", "Nats-Schedule-Next": "purge"}
    for later in (
        plain(SCHEDULE, 2),
        message_on(SCHEDULE, 2, **cancel),
        schedule("@every nonsense", 2),
        paused("@every nonsense", 2),
    ):
        desk = Desk(paused("@every 5s"))
        desk.read(later)
        assert listed(desk) == [], later
        assert desk.at(60).fires == []
    desk = Desk(paused("@every 5s"))
    desk.read(message_on("x.y", 2, **{**cancel, "Nats-Scheduler": SCHEDULE}))
    assert (listed(desk), desk.purges) == ([(SCHEDULE, State.PAUSED)], []), "no schedule is there"


def test_what_would_be_rejected_is_listed_as_rejected_and_never_fires() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(paused("@every nonsense", 2, Nats_Schedule_Target="t.other"))
    (rejected,) = done(desk.engine.view().rejected_page(ALL, 9, "")).messages
    assert (rejected.pattern, rejected.target, rejected.dialect) == ("@every nonsense", "t.other", ADR51)
    assert (rejected.is_paused, rejected.sequence, rejected.rejection.code) == (True, 2, 10189)
    assert [event.rejection.code for event in desk.reported(ScheduleRejected)] == [10189]
    text = "; it is paused, and would be rejected if it was resumed (server code 10189)"
    assert str(rejected.rejection).endswith(text)
    assert (desk.endings, listed(desk)) == ([Ending.PAUSED], [])
    assert 2 not in desk.engine.checkpoint(desk.now).unsettled
    assert Desk(schedule("@every nonsense", 2)).engine.checkpoint(START).unsettled == {2}, "an active one is named"
    assert desk.at(60).fires == []


def test_on_a_subject_with_wildcards_nothing_is_purged() -> None:
    """A server stores a message that is published to `s.>` under that subject; a purge of it removes every schedule."""
    for subject in ("s.>", "*", "s.*.x"):
        desk = Desk(schedule("@every 1h", 1, "s.other"), schedule("@every 5s", 2, subject))
        desk.read(paused("@every 5s", 3, subject), paused("@every 5s", 4, subject))
        assert desk.purges == []
        assert desk.engine.inactive.rejected[subject].sequence == 4
        assert desk.is_held("s.other")


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


def read_stored(messages: Sequence[StoredMessage], fired_by: FiredBy) -> StoredSchedules:
    dialects = DIALECTS if fired_by is FiredBy.SIDECAR else (ADR51,)
    stored = StoredSchedules(StreamRules("S", (">",)), dialects, fired_by)
    stored.take(messages, START)
    return stored


@pytest.mark.parametrize("fired_by", FiredBy)
def test_what_is_stored_says_the_same_in_every_mode_of_the_stream(fired_by: FiredBy) -> None:
    stored = read_stored([schedule("@every 5s"), paused("@every 5s", 2), paused("@daily", 3, "s.two")], fired_by)
    found = [(one.subject, one.state, one.fired_by) for one in stored.view.page(START).answer().schedules]
    assert found == [(SCHEDULE, State.PAUSED, fired_by), ("s.two", State.PAUSED, fired_by)]
    assert stored.count == 2
    stored.remove([(SCHEDULE, 2)], START)
    assert list(stored.paused) == ["s.two"]
    portable = read_stored([message_on(SCHEDULE, 1, **PORTABLE_HEADERS)], fired_by)
    assert list(portable.paused) == ([SCHEDULE] if fired_by is FiredBy.SIDECAR else []), "it is the sidecar's"


def test_the_end_of_a_paused_one_is_shown_until_it_has_passed() -> None:
    desk = Desk(paused("@every 5s", Nats_TTL="12s"))
    one = shown(desk)
    assert one is not None
    assert (one.ends, one.ended_by) == (START + 12 * SECOND, Ending.EXPIRED)
    desk.at(12)
    assert (shown(desk), listed(desk), desk.engine.view().counts(desk.now).answer().total) == (None, [], 0)
    desk.step(SchedulesGone([(SCHEDULE, 1)]))
    assert desk.engine.inactive.paused == {}


def reported(desk: Desk) -> list[tuple[str, int, list[str]]]:
    return [(one.subject, one.sequence, [h for h, _ in one.headers]) for one in desk.reported(HeadersMisnamed)]


def test_a_message_that_was_meant_to_be_a_schedule_is_reported() -> None:
    """So is a schedule with a header that nobody reads; it fires all the same."""
    desk = Desk()
    desk.read(message_on("s.x", 1, Nats_Schedul="@daily", Nats_Schedule_Target=TARGET))
    assert reported(desk) == [("s.x", 1, ["Nats-Schedul"])]
    assert [one.stored_at for one in desk.reported(HeadersMisnamed)] == [START]
    assert not desk.is_held("s.x")
    one = schedule("@every 1s", 2, Nats_Schedule_Timezone="Europe/Berlin")
    desk.read(one)
    assert reported(desk) == [(SCHEDULE, 2, ["Nats-Schedule-Timezone"])]
    assert desk.in_flight(one, 1).schedule == SCHEDULE
    covered = Desk(message_on("s.x", 1, Nats_Schedul="@daily"), plain("s.x", 2), live=False)
    covered.step(CaughtUp())
    assert (reported(covered), covered.engine.inactive.misnamed) == ([], {})


def test_of_a_flood_of_them_few_are_noted_and_few_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inactive, "MAX_MISNAMED_NOTED", most := MAX_MISNAMED_REPORTS + 10)
    flood = [message_on(f"s.{number}", number, Nats_Schedul="@daily") for number in range(1, most + 10)]
    desk = Desk(*flood, live=False)
    assert len(desk.engine.inactive.misnamed) == most
    desk.step(CaughtUp())
    assert len(reported(desk)) == MAX_MISNAMED_REPORTS
