"""An engine that continues from rows is as one that read everything: what is certain of its fires is known to it.

It tests `engine/holding/remembered.py` too.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from nats_scheduler.engine import restart
from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.events import FiresMissed
from nats_scheduler.engine.holding import scheduled
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.inputs import CaughtUp, MessagesRead, OwnershipChanged, PurgeConcluded, Stored
from nats_scheduler.engine.restart import RestartDocument
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.schedule_file import read_document, written_document
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, message_on, plain, schedule, stored_fire
from tests.engine.paused_builders import paused

ALL_ROWS = 1_000_000
BEGUN_ANEW = {"flight", "wake", "mark", "row", "headers", "dropped_run", "__dict__", "_send_time"}
"""The attributes that are not as they were in an engine that continues."""


def through_json(document: RestartDocument | None) -> RestartDocument:
    assert document is not None
    found = read_document(written_document(document))
    assert found == document
    return found


def left(desk: Desk) -> RestartDocument:
    """Have an engine write what another one may continue from."""
    desk.engine.held.write_changed(ALL_ROWS)
    return through_json(desk.engine.restart.document())


def continued(desk: Desk, before: Desk, document: RestartDocument | None = None) -> None:
    """Have an engine that has read nothing continue from the rows of another one, which is not used any more."""
    document = left(before) if document is None else document
    desk.engine.restart.begin_with(document, before.engine.held.written)
    desk.step()


def begun(before: Desk, *tail: StoredMessage, now: int | None = None, **options: Any) -> Desk:
    """Have another engine continue, and read what was stored since."""
    document = left(before)
    after = Desk(live=False, table=before.engine.held.table, **options)
    after.now = before.now if now is None else now
    continued(after, before, document)
    after.step(MessagesRead(tail), CaughtUp())
    return after


def settle(desk: Desk) -> None:
    """Answer all purges, until nothing is left to do."""
    while not desk.engine.is_idle:
        purges = desk.asked(PurgeSchedule)
        desk.step(*(PurgeConcluded(one.schedule, one.through, known=one.known) for one in purges))


def facts(desk: Desk) -> dict[str, dict[str, object]]:
    """Return all that is known of each schedule that is held."""
    return {held.subject: {slot: getattr(held, slot) for slot in slots_of(type(held))} for held in desk.engine.held}


def slots_of(kind: type[Held]) -> set[str]:
    names = {
        slot for one in kind.__mro__ for slot in (*getattr(one, "__slots__", ()), *vars(one).get("__annotations__", ()))
    }
    return names - BEGUN_ANEW


def kinds_of_messages() -> list[StoredMessage]:
    """Make schedules of all kinds, and messages that are none."""
    patterns = "@at 2026-01-03T00:00:00Z", "@every 90m", "0 30 9 * * mon-fri"
    kinds: list[dict[str, str]] = [
        {},
        {"Nats_Schedule_TTL": "5m", "Nats_TTL": "never"},
        {"Nats_Schedule_Source": "src.one", "Nats_TTL": "300h"},
        {"Other": "long " * 200, "Nats_Schedule_X_Note": "daily"},
        {"Nats_Schedule_X_Missed": "all 3", "Nats_Schedule_X_Jitter": "2s"},
        {"Nats_Schedule_X_Report": "true"},
        {"Nats_Schedule_X_Except": "calendar:de"},
    ]
    found = [schedule("@nonsense", 1, "s.1"), plain("s.2", 2)]
    for number, (pattern, more) in enumerate(product(patterns, kinds), 3):
        found.append(schedule(pattern, number, f"s.{number}", stored_at=START, body=b"", **more))
    return [*found, plain("s.4", len(found) + 1), schedule("@daily", len(found) + 2, "s.5")]


@pytest.mark.parametrize("most_known", [10_000, 5], ids=["all subjects known", "too many subjects"])
def test_an_engine_that_continues_holds_what_the_other_one_holds(
    most_known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled, "MAX_KNOWN_SUBJECTS", most_known)
    messages = kinds_of_messages()
    before, expected = Desk(*messages), Desk(*messages)
    for one in (before, expected):
        settle(one)
    document = left(before)
    after = Desk(live=False, table=before.engine.held.table)
    continued(after, before, document)
    again = {message.sequence: message for message in messages}
    after.step(MessagesRead([again[sequence] for sequence in document.to_read]), CaughtUp())
    assert facts(after) == facts(expected)
    assert after.engine.inactive.rejected == expected.engine.inactive.rejected
    assert after.engine.last_read == expected.engine.last_read == len(messages)
    assert after.engine.held.kinds == expected.engine.held.kinds
    view = [one.engine.view().page(START, limit=None).answer().schedules for one in (expected, after)]
    assert view[0] == view[1]
    wakes = {held.subject: held.wake for held in expected.engine.held}
    for held in after.engine.held:
        assert held.wake <= max(wakes[held.subject], 0) or held.no_fire is not None


@pytest.mark.parametrize("policies", [{}, {"Jitter": "1ms"}], ids=["plain", "treated"])
def test_a_schedule_that_is_done_is_purged_and_does_not_fire(policies: dict[str, str]) -> None:
    one = treated("@at 2026-01-01T00:00:10Z", 1, SCHEDULE, **policies)
    before = Desk(one)
    fired(before, one, 11)
    before.step(PurgeConcluded(SCHEDULE, 1, "refused", refused=True))
    document = left(before)
    after = Desk(live=False, table=before.engine.held.table)
    after.now = before.now
    continued(after, before, document)
    assert after.purges == [(SCHEDULE, 1)]
    after.step(CaughtUp())
    assert (after.at(20).reads, after.fires) == ([], [])


def test_rows_may_say_more_than_the_document() -> None:
    for pattern, policies in (("@every 3h", {"Jitter": "5s"}), ("@every 30s", {})):
        desk = Desk(treated(pattern, 1, SCHEDULE, **policies))
        document = left(desk)
        tail = [
            treated(pattern, 2, "s.two", **policies),
            schedule("@never", 3, "s.three"),
            treated(pattern, 4, SCHEDULE, **policies),
            plain("s.two", 5),
        ]
        desk.read(*tail)
        desk.engine.held.write_changed(ALL_ROWS)
        assert (document.through, desk.engine.restart.ends) == (1, 5)
        after = Desk(live=False, table=desk.engine.held.table)
        continued(after, desk, document)
        after.step(MessagesRead(tail), CaughtUp())
        assert [(held.subject, held.sequence) for held in after.engine.held] == [(SCHEDULE, 4)], (pattern, policies)
        assert list(after.engine.inactive.rejected) == ["s.three"]
        assert (len(after.engine.held), after.engine.held.kinds.total()) == (1, 1)


def test_the_document_names_what_is_stored_and_no_schedule_that_waits() -> None:
    near = message_on("s.near", 3, **{"Nats-Schedul": "@daily"})
    late = schedule("@at 2300-01-01T00:00:00Z", 4, "s.late")
    desk = Desk(schedule("@never"), paused("@daily", 2, "s.two"), near, late, schedule("@daily", 5, "s.five"))
    assert left(desk).to_read == [1, 2, 3, 4]
    after = Desk(live=False, table=desk.engine.held.table)
    continued(after, desk, left(desk))
    assert [held.subject for held in after.engine.held] == ["s.five"]
    after.step(MessagesRead([late]), CaughtUp())
    assert sorted(held.subject for held in after.engine.held) == ["s.five", "s.late"]


def test_a_document_that_would_have_to_name_too_much_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "MAX_NAMED", 2)
    wrong = [schedule("@never", number, f"s.{number}") for number in range(1, 4)]
    assert left(Desk(*wrong[:2])).to_read == [1, 2]
    assert Desk(*wrong).engine.restart.document() is None


def test_old_versions_that_were_not_purged_are_purged_after_a_start() -> None:
    before = Desk(live=False)
    before.step(OwnershipChanged(False), CaughtUp())
    before.read(schedule("@every 3h"), schedule("@every 4h", 5), schedule("@every 5h", 7))
    assert before.purges == []
    document = left(before)
    after = Desk(live=False, table=before.engine.held.table)
    continued(after, before, document)
    after.step(OwnershipChanged(True), CaughtUp())
    assert after.purges == [(SCHEDULE, 6)]
    ours = Desk(schedule("@every 3h"))
    for sequence in (5, 7):
        ours.read(schedule("@every 3h", sequence))
        (order,) = ours.asked(PurgeSchedule)
        ours.step(PurgeConcluded(SCHEDULE, order.through, "no answer", known=order.known))
    assert begun(ours).purges == [(SCHEDULE, 6)]


def test_each_field_of_a_document_counts_for_the_engine_that_continues() -> None:
    owing, under = schedule("@every 5s", 1, "s.owing", body=b"old"), schedule("@at 2026-01-01T00:00:20Z", 2, "s.under")
    rolls = schedule("@every 5s", 3, "s.rolls", Nats_Schedule_Rollup="sub")
    before = Desk(owing, under, rolls, rolls_up_by_purge=True).at(5)
    before.found(rolls)
    fire = before.fire
    before.concluded(fire, Stored(4))
    over = message_on("s.under", 5, Nats_Scheduler="s.other", Nats_Schedule_Next="purge")
    named = ((6, "s.owing"), (7, "s.rolls"))
    newer = [schedule("@every 1h", number, name, stored_at=before.now + number) for number, name in named]
    before.read(stored_fire(fire, 4, before.now), over, *newer)
    (order,) = before.asked(PurgeSchedule)
    before.step(PurgeConcluded("s.rolls", 6, "no answer", known=order.known))
    document = left(before)
    after = Desk(live=False, table=before.engine.held.table, rolls_up_by_purge=True)
    after.now = before.now
    continued(after, before, document)
    assert (after.purges, document.to_read, after.engine.last_read) == ([(TARGET, 3)], [1], 7)
    after.step(MessagesRead([owing]), CaughtUp())
    assert after.purges == [("s.rolls", 6)]
    after.found(owing)
    assert (after.fire.body, after.fire.fire_time, after.fire.last) == (b"old", before.now, 6)
    assert after.in_flight(under, 20).last == 5


def test_a_standby_that_continues_does_not_suspect_an_owner_that_fired_for_that_time() -> None:
    one, other = schedule("@every 5s"), schedule("@every 5s", 2, "s.two")
    for has_fired in (True, False):
        before = Desk(live=False)
        before.step(OwnershipChanged(False), MessagesRead([one, other]), CaughtUp())
        before.at(5)
        if has_fired:
            before.read(stored_fire(Desk(one).in_flight(one, 5), 3, before.now))
        document = left(before)
        after = Desk(live=False, table=before.engine.held.table)
        after.now = before.now
        after.step(OwnershipChanged(False))
        continued(after, before, document)
        after.step(CaughtUp())
        assert after.at(5 + UNFIRED_LIMIT_NS / SECOND).reads == ([] if has_fired else [(SCHEDULE, 1)])


def test_no_engine_continues_from_some_streams() -> None:
    ways: list[Any] = [
        {"reads_all": False},
        {"removes_expired": True},
        {"moves_subjects": True},
        {"restrictions": Restrictions(max_schedules=9)},
    ]
    for how in ways:
        desk = Desk(schedule("@every 30m"), **how)
        assert (desk.engine.restart.is_possible, desk.engine.restart.may_write) == (False, False), how
    assert Desk(schedule("@every 30m")).engine.restart.is_possible


def test_no_document_is_made_before_all_that_was_read_is_taken() -> None:
    one = schedule("@every 10s")
    for other in (Desk(one, live=False), Desk()):
        assert not other.engine.restart.may_write, "not everything was read, or nothing"
    desk = Desk(one)
    assert desk.engine.restart.may_write
    fire = desk.in_flight(one, 10)
    assert desk.engine.restart.may_write
    after = begun(Desk(one), stored_fire(fire, 2, desk.now), now=desk.now)
    assert after.due == 20, "a fire in flight is read after the document"
    desk.step(CaughtUp(through=5, is_behind=True))
    assert not desk.engine.restart.may_write


def test_a_zone_whose_data_changed_is_named() -> None:
    document = left(Desk(schedule("@daily", Nats_Schedule_Time_Zone="Europe/Berlin")))
    assert document.changed_zone == ""
    for zones in ({"Europe/Berlin": "other"}, {"No/Where": document.zones["Europe/Berlin"]}):
        changed = replace(document, zones={**document.zones, **zones})
        assert changed.changed_zone == next(iter(zones))
    desk = begun(Desk(schedule("@daily", Nats_Schedule_Time_Zone="Europe/Berlin")))
    assert left(desk).zones == document.zones, "what the document before named is named again"


def treated(pattern: str = "@every 10s", sequence: int = 1, subject: str = SCHEDULE, **policies: str) -> StoredMessage:
    """Make a schedule with policies."""
    named: Any = {f"Nats_Schedule_X_{name}": value for name, value in policies.items()}
    return schedule(pattern, sequence, subject, **named)


def fired(desk: Desk, one: StoredMessage, seconds: int, sequence: int = 2) -> None:
    """Have the fire of a schedule that is due after `seconds` stored."""
    fire = desk.in_flight(one, seconds)
    desk.concluded(fire, Stored(sequence))
    desk.read(stored_fire(fire, sequence, desk.now))


def test_the_fire_before_is_known_to_reports_and_to_what_is_owed() -> None:
    for policy, fire_time in (({"Report": "true"}, 40), ({"Missed": "all"}, 20)):
        one = treated("@every 10s", 1, SCHEDULE, **policy)
        before = Desk(one)
        fired(before, one, 10)
        fire = begun(before).in_flight(one, 45)
        assert fire.fire_time == START + fire_time * SECOND
        if "Report" in policy:
            assert header_value(fire.block, b"X-Nats-Schedule-X-Previous") == b"2026-01-01T00:00:10Z"
            assert header_value(fire.block, b"X-Nats-Schedule-X-Missed") == b"2"


def test_what_was_dropped_is_neither_sent_nor_counted_again() -> None:
    one = treated(Missed="skip", Grace="1s")
    before = Desk(one).at(35)
    before.found(one)
    assert [event.dropped for event in before.reported(FiresMissed)] == [3]
    after = begun(before)
    assert (after.due, after.held().dropped) == (40, 3)
    assert after.at(39).reported(FiresMissed) == []
