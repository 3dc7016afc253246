"""An engine that continues from rows is as one that read everything: what is certain of its fires is known to it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from nats_scheduler.engine import restart
from nats_scheduler.engine.actions import PurgeSchedule, WakeAt
from nats_scheduler.engine.events import Ending, FiresMissed, FiresSkipped
from nats_scheduler.engine.fire import CheckFinished, LookForFire
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.remembered import UNKNOWN, History, read_history, written_history
from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.inputs import (
    CalendarsRead,
    CaughtUp,
    Checkpoint,
    FinishChecked,
    MessagesRead,
    OwnershipChanged,
    PurgeConcluded,
    Refused,
    SchedulesGone,
    ServerLimits,
    Stored,
    Version,
)
from nats_scheduler.engine.restart import RestartDocument
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.paused import paused_block
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.schedule_file import read_document, written_document
from nats_scheduler.schedule.calendars import KnownCalendars, read_calendar
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, Desk, message_on, plain, schedule, stored_fire
from tests.engine.paused_builders import paused
from tests.harness.blocks import block_with
from tests.harness.seeds import generator, seeds

ALL_ROWS = 1_000_000
BEGUN_ANEW = {"flight", "wake", "mark", "row", "headers", "dropped_run", "__dict__", "_send_time"}
"""The attributes that are not as they were in an engine that continues."""


# -- a stream that is served by one engine after the other, and by one for ever ---------------------------------------


class RowsWorld(ScheduleWorld):
    """A world whose engines continue from the rows of the one before."""

    def __init__(self, **more: Any) -> None:
        self.table = Table()
        self.document: RestartDocument | None = None
        self.continued = 0
        super().__init__(**more)

    def write(self) -> None:
        """Write all rows, and a document if there may be one."""
        self.engine.held.write_changed(ALL_ROWS)
        if self.engine.restart.may_write:
            self.document = through_json(self.engine.restart.document())

    def _boot(self) -> None:
        before = getattr(self, "engine", None)
        if before is None or self.document is None:
            self.table = Table()
        self._wake = None
        self._inbox = [CalendarsRead(self._known_calendars()), OwnershipChanged(True, self.checkpoint)]
        self.engine = StreamEngine(self.stream.rules, DIALECTS, ServerLimits(guard=self.stream.guard), table=self.table)
        if before is not None and self.document is not None:
            self.continued += 1
            self.engine.restart.begin_with(self.document, before.held.written)
            found = [self.stream.message(sequence) for sequence in self.document.to_read]
            self._inbox.append(MessagesRead([one._replace(body=None) for one in found if one is not None]))
        self._connect()
        self.settle()
        look_up_gone(self)


def look_up_gone(world: ScheduleWorld) -> None:
    """Tell the engine which schedules are not stored any more, as it is told now and then, and after a start."""
    held = [(one.subject, one.sequence) for one in world.engine.held]
    world._pass_on(SchedulesGone([one for one in held if world.stream.message(one[1]) is None]))


def through_json(document: RestartDocument | None) -> RestartDocument:
    assert document is not None
    found = read_document(written_document(document))
    assert found == document
    return found


POLICIES: list[dict[str, str]] = [
    {"X-Jitter": "5s"},
    {"X-Missed": "skip", "X-Grace": "10s"},
    {"X-Missed": "all"},
    {"X-Missed": "all 3", "X-Jitter": "2s"},
    {"X-Report": "true", "X-Note": "daily"},
    {"X-Overlap": "skip"},
    {"X-Overlap": "queue"},
    {"X-Limit": "4"},
    {"X-Start": "2026-01-01T00:05:00Z", "X-End": "2026-01-01T00:20:00Z"},
    {"X-Except": "calendar:de", "X-Report": "true"},
]
SUBJECTS = [f"s.{number}" for number in range(12)]


class Life:
    """What happens to a stream, drawn at random; several worlds may be given the same one."""

    def __init__(self, name: str, world: ScheduleWorld, *, keeps_all: bool) -> None:
        """Begin; unless it `keeps_all`, fires are consumed and rolled up, and messages expire."""
        self.random = generator(name)
        self.world = world
        self._keeps_all = keeps_all
        world.add_stream("JOBS", ["jobs.>"])
        world.advance(SECOND * 3 // 10)

    def act(self) -> None:
        acts = [*([self.store] * 5), self.overwrite, self.reject, self.pause, self.land, self.cancel, self.remove]
        self.random.choice(acts)()
        if self.random.random() < 0.05:
            days = self.random.choice(("2026-01-01", "2026-01-02", "2026-01-05"))
            self.world.set_calendar("de", days)
        if not self._keeps_all and self.random.random() < 0.3:
            self.world.stream.take("t.>")
        self.world.advance(self.random.choice([1, 2, 5, 20, 130, 400]) * SECOND)

    def subject(self) -> str:
        return self.random.choice(SUBJECTS)

    def headers(self) -> dict[str, str]:
        random, name = self.random, self.random.choice(("Nats-Schedule", "X-Nats-Schedule"))
        if random.random() < 0.4:
            at = self.world.now // SECOND * SECOND + random.choice((-60, 3, 40, 200, 900, 5_000)) * SECOND
            found = {name: f"@at {format_rfc3339(at)}"}
        else:
            patterns = "@every 2s", "@every 7s", "@every 1m", "@every 10m", "*/20 * * * * *", "0 */5 * * * *", "@hourly"
            found = {name: random.choice(patterns)}
        if not found[name].startswith("@") and random.random() < 0.5:
            found[f"{name}-Time-Zone"] = "Europe/Berlin"
        found[f"{name}-Target"] = f"t.{random.randrange(5)}"
        if random.random() < 0.5:
            policies = random.choice(POLICIES)
            if not (found[name].startswith("@at") and policies.keys() & {"X-Limit", "X-Start"}):
                found |= {f"{name}-{policy}": value for policy, value in policies.items()}
        elif random.random() < 0.2 and not self._keeps_all:
            found[f"{name}-Rollup"] = "sub"
        elif random.random() < 0.2:
            found[f"{name}-TTL"] = "never" if self._keeps_all else "5m"
        if random.random() < 0.1:
            found["Nats-TTL"] = "never" if self._keeps_all else random.choice(("30s", "10m", "never"))
        if random.random() < 0.1 and name.startswith("X-"):
            found["X-Nats-Schedule-X-Target"] = "jobs.run"
            del found["X-Nats-Schedule-Target"]
        return found

    def store(self) -> None:
        self.world.publish(self.subject(), self.headers(), b"body")

    def overwrite(self) -> None:
        self.world.publish(self.subject(), b"", b"plain")

    def reject(self) -> None:
        self.world.publish(self.subject(), {"Nats-Schedule": "@often", "Nats-Schedule-Target": "t.1"})

    def pause(self) -> None:
        block = block_with(Nats_Schedule="@every 5s", Nats_Schedule_Target="t.1")
        self.world.publish(self.subject(), paused_block(block, ADR51))

    def land(self) -> None:
        """Store what looks like the fire of another schedule, on the subject of one."""
        self.world.publish(self.subject(), {"Nats-Scheduler": "s.other", "Nats-Schedule-Next": "purge"})

    def cancel(self) -> None:
        self.world.publish("x.cancel", {"Nats-Scheduler": self.subject(), "Nats-Schedule-Next": "purge"})

    def remove(self) -> None:
        self.world.purge(self.subject())
        look_up_gone(self.world)


def fires(world: ScheduleWorld) -> list[tuple[Any, ...]]:
    """Return what was stored, but in which order within one instant."""
    return sorted(
        (one.schedule, one.schedule_sequence, one.fire_time, one.stored_at, one.headers, one.body)
        for one in world.generated
    )


def inactive(world: ScheduleWorld, last: Mapping[str, int]) -> dict[str, object]:
    """Return what is rejected or paused, still stored, and the last message that was stored on its subject.

    What is gone is looked up now and then, and what it covered is found by those that read everything.
    """
    found: dict[str, Any] = {**world.engine.inactive.rejected, **world.engine.inactive.paused}
    stored = {subject: one for subject, one in found.items() if world.stream.message(one.sequence) is not None}
    return {subject: one for subject, one in stored.items() if last[subject] == one.sequence}


def held_in(world: ScheduleWorld) -> list[tuple[Any, ...]]:
    """Return the schedules that an engine holds, that are still stored, and what it shows of them."""
    page = world.engine.view().page(world.now, limit=None).answer().schedules
    stored = [one for one in page if world.stream.message(one.sequence) is not None]
    held = [one for one in stored if one.state is not State.PAUSED]
    return sorted(((one.subject, one.sequence, one.state, one.next_fire, one.ends) for one in held), key=repr)


def compare(name: str, downtimes: list[int], *, keeps_all: bool) -> RowsWorld:
    """Stop one world often, at moments at which a document was written, or only rows were written since.

    Another one is stopped as well if time passes meanwhile: then it reads everything again.
    """
    random, calendars = generator(f"stops of {name}"), {"de": "2026-01-01"}
    always, rows = ScheduleWorld(calendars=calendars), RowsWorld(calendars=calendars)
    last: dict[str, int] = {}
    always.stream.listen(lambda message: last.update({message.subject: message.sequence}))
    lives = Life(name, always, keeps_all=keeps_all), Life(name, rows, keeps_all=keeps_all)
    for number in range(60):
        for life in lives:
            life.act()
        if random.random() < 0.5:
            rows.write()
        if random.random() < 0.3:
            rows.engine.held.write_changed(random.randrange(5))
        if random.random() < 0.5:
            downtime = random.choice(downtimes) * SECOND
            rows.restart(downtime)
            if downtime:
                always.restart(downtime)
        where = f"{name}, act {number}"
        assert held_in(rows) == held_in(always), where
        assert inactive(rows, last) == inactive(always, last), where
        # Of fires that are gone an engine that reads everything knows less, and one whose rows are not written yet.
        most = None if keeps_all and not any(downtimes) else 4
        assert [one[:most] for one in fires(rows)] == [one[:most] for one in fires(always)], where
    return rows


@pytest.mark.parametrize("keeps_all", [True, False], ids=["kept", "removed"])
def test_engines_that_continue_do_what_one_engine_does(keeps_all: bool) -> None:
    worlds = [compare(f"continue {seed}", [0], keeps_all=keeps_all) for seed in seeds(4)]
    assert all(world.continued > 10 for world in worlds)
    assert sum(len(world.generated) for world in worlds) > 200


def test_engines_that_continue_after_a_while_do_what_those_do_that_read_everything() -> None:
    for seed in seeds(3):
        compare(f"later {seed}", [1, 15, 300], keeps_all=True)


# -- two desks --------------------------------------------------------------------------------------------------------


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


def kinds_of_messages(random: Random, count: int) -> list[StoredMessage]:
    """Make schedules of all kinds, and messages that are none."""
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
                {"Nats_TTL": "300h"},
                {"Nats_Schedule_X_Note": f"n{sequence % 3}"},
                {"Nats_Schedule_X_Start": "2026-12-24T00:00:00Z"},
                {"Other": "long " * 200},
                {"Nats_Schedule_X_Jitter": "5s"},
                {"Nats_Schedule_X_Missed": "skip", "Nats_Schedule_X_Grace": "1m"},
                {"Nats_Schedule_X_Missed": "all 3", "Nats_Schedule_X_Jitter": "2s"},
                {"Nats_Schedule_X_Report": "true", "Nats_Schedule_X_Note": "daily"},
                {"Nats_Schedule_X_Except": "calendar:de"},
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


def test_an_engine_that_continues_holds_what_the_other_one_holds() -> None:
    for seed in seeds(3):
        messages = kinds_of_messages(generator(f"kinds {seed}"), 400)
        before, expected = Desk(*messages), Desk(*messages)
        for one in (before, expected):
            settle(one)
        document = left(before)
        after = Desk(live=False, table=before.engine.held.table)
        continued(after, before, document)
        again = {message.sequence: message for message in messages}
        after.step(MessagesRead([again[sequence] for sequence in document.to_read]), CaughtUp())
        assert facts(after) == facts(expected), f"seed {seed}"
        assert after.engine.inactive.rejected == expected.engine.inactive.rejected
        assert after.engine.last_read == expected.engine.last_read == len(messages)
        assert len(after.engine.held) == len(expected.engine.held)
        assert after.engine.held.kinds == expected.engine.held.kinds
        view = [one.engine.view().page(START, limit=None).answer().schedules for one in (expected, after)]
        assert view[0] == view[1], f"seed {seed}"
        wakes = {held.subject: held.wake for held in expected.engine.held}
        for held in after.engine.held:
            assert held.wake <= max(wakes[held.subject], 0) or held.no_fire is not None


def test_what_ages_later_is_looked_at_then() -> None:
    messages, aged = kinds_of_messages(generator("max_age"), 400), 20 * 24 * 3_600
    before = Desk(*messages, max_age=aged * SECOND)
    settle(before)
    after = begun(before, max_age=aged * SECOND)
    expected = Desk(*messages, max_age=aged * SECOND)
    settle(expected)
    assert facts(after) == facts(expected)
    for desk in (expected, after):
        desk.at(aged + 30)
        while any(isinstance(action, WakeAt) and action.instant <= desk.now for action in desk.actions):
            desk.step()
    looked_at = [{held.subject for held in desk.engine.held if held.flight is not None} for desk in (expected, after)]
    assert looked_at[0] == looked_at[1]
    assert len(looked_at[1]) > 20


def test_a_fire_that_was_stored_is_not_sent_again() -> None:
    one = schedule("@every 10s")
    before = Desk(one)
    fired(before, one, 10)
    after = begun(before)
    assert (after.at(15).fires, after.due) == ([], 20)


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


def test_what_is_stored_after_the_sequence_counts() -> None:
    before = Desk(schedule("@every 3h"), schedule("@every 3h", 2, "s.two"))
    after = begun(before, schedule("@every 5h", 3), plain("s.two", 4))
    assert [(held.subject, held.sequence) for held in after.engine.held] == [(SCHEDULE, 3)]
    assert after.purges == [(SCHEDULE, 2)]


def test_one_that_is_soon_due_is_continued_beside_one_that_waits() -> None:
    before = Desk(schedule("@every 3h"), schedule("@every 30s", 2, "s.two"))
    after = begun(before)
    assert sorted(held.subject for held in after.engine.held) == [SCHEDULE, "s.two"]
    assert after.at(29.5).reads == [("s.two", 2)]


def test_rows_may_say_more_than_the_document() -> None:
    for pattern, policies in (("@every 3h", {}), ("@every 30s", {}), ("@every 3h", {"Jitter": "5s"})):
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


def test_a_fire_that_was_acknowledged_and_is_not_read_back_yet_ends_what_the_stream_must_have() -> None:
    one = schedule("@every 10s")
    desk = Desk(one)
    desk.concluded(desk.in_flight(one, 10), Stored(7))
    assert desk.engine.restart.ends == 7


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


def test_what_is_looked_at_later_is_looked_at_when_it_is_due() -> None:
    before = Desk(schedule("@every 10s"), live=False)
    before.step(OwnershipChanged(False), CaughtUp())
    held = before.at(16.1).held()
    assert held.wake != held.send_time, "it is left to the owner"
    document = left(before)
    after = Desk(live=False, table=before.engine.held.table)
    continued(after, before, document)
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


def test_older_versions_that_could_not_be_removed_are_removed_after_a_restart() -> None:
    before = Desk(schedule("@every 3h", 4, stored_at=START - 1))
    before.read(schedule("@every 3h", 6))
    (order,) = before.asked(PurgeSchedule)
    before.step(PurgeConcluded(SCHEDULE, 5, "no answer", known=order.known))
    after = begun(before)
    assert (order.known, after.asked(PurgeSchedule)) == (Version(4, START - 1), [order])


def test_what_was_stored_over_a_schedule_is_known_after_a_restart() -> None:
    other = schedule("@at 2026-01-01T00:00:10Z", 1, "s.other", Nats_Schedule_Target=SCHEDULE)
    before = Desk(other, schedule("@every 1h", 2))
    fire = before.in_flight(other, 10)
    before.concluded(fire, Stored(3))
    before.read(stored_fire(fire, 3, before.now))
    before.step(PurgeConcluded("s.other", 1))
    assert left(before).stored_over == [(2, 3)]
    after = begun(before)
    assert after.engine.stored_over.last_on(after.held()) == 3


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


def test_no_document_is_made_while_something_that_was_read_is_left_to_be_taken() -> None:
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


def test_what_is_no_document_is_none() -> None:
    document = left(Desk(schedule("@every 3h"), schedule("@daily", 2, "s.2", Nats_Schedule_Time_Zone="Europe/Berlin")))
    assert document.zones.keys() == {"Europe/Berlin"}
    text = written_document(document)
    assert read_document(text) == document
    changes: list[dict[str, Any]] = [
        *({key: None} for key in ("through", "last", "last_fired", "zones", "roll_ups", "stored_over", "to_read")),
        *({key: [[]]} for key in ("last_fired", "stored_over", "to_read", "zones", "old_versions")),
        {"old_versions": [["s", 1, 2]]},
        {"zones": {"Europe/Berlin": 1}},
    ]
    for change in changes:
        changed = {**json.loads(text), **change}
        assert read_document(json.dumps(changed)) is None, change
    for wrong in ("", "{", "null", "[]", text[:-1], text.replace("through", "to")):
        assert read_document(wrong) is None, wrong


def test_a_zone_whose_data_changed_is_named() -> None:
    document = left(Desk(schedule("@daily", Nats_Schedule_Time_Zone="Europe/Berlin")))
    assert document.changed_zone == ""
    for zones in ({"Europe/Berlin": "other"}, {"No/Where": document.zones["Europe/Berlin"]}):
        changed = replace(document, zones={**document.zones, **zones})
        assert changed.changed_zone == next(iter(zones))
    desk = begun(Desk(schedule("@daily", Nats_Schedule_Time_Zone="Europe/Berlin")))
    assert left(desk).zones == document.zones, "what the document before named is named again"


def test_the_subject_of_one_that_has_expired_is_free() -> None:
    ways: list[Any] = [{}, {"Nats_Schedule_X_Jitter": "1s"}]
    for policies in ways:
        ttls = ((1, "1h"), (2, "9h"))
        before = Desk(
            *(schedule("@every 90m", number, f"s.{number}", Nats_TTL=ttl, **policies) for number, ttl in ttls)
        )
        settle(before)
        before.now += HOUR
        after = begun(before, schedule("@every 90m", 3, "s.1", stored_at=before.now))
        assert sorted((held.subject, held.sequence) for held in after.engine.held) == [("s.1", 3), ("s.2", 2)]
        assert after.held("s.2").expires == START + 9 * HOUR


def test_the_document_names_the_targets_that_are_still_to_be_rolled_up() -> None:
    message = schedule("@every 5s", Nats_Schedule_Rollup="sub")
    desk = Desk(message, rolls_up_by_purge=True)
    fire = desk.in_flight(message, 5)
    desk.concluded(fire, Stored(20))
    desk.step(PurgeConcluded(fire.target, 19, "no answer"))
    desk.read(stored_fire(fire, 20, desk.now))
    document = left(desk)
    later = Desk(live=False, rolls_up_by_purge=True, table=desk.engine.held.table)
    continued(later, desk, document)
    assert later.purges == [(fire.target, 19)]


# -- policies ---------------------------------------------------------------------------------------------------------


def treated(pattern: str = "@every 10s", sequence: int = 1, subject: str = SCHEDULE, **policies: str) -> StoredMessage:
    """Make a schedule with policies."""
    named: Any = {f"Nats_Schedule_X_{name}": value for name, value in policies.items()}
    return schedule(pattern, sequence, subject, **named)


def fired(desk: Desk, one: StoredMessage, seconds: int, sequence: int = 2) -> None:
    """Have the fire of a schedule that is due after `seconds` stored."""
    fire = desk.in_flight(one, seconds)
    desk.concluded(fire, Stored(sequence))
    desk.read(stored_fire(fire, sequence, desk.now))


def history_of(held: Held) -> History:
    return History(*(getattr(held, name) for name in History._fields))


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
            owner, before = Desk(one), Desk(one)
            for desk in (owner, before):
                fired(desk, one, 10)
            after = begun(before, stored_fire(owner.at(20).fire, 3, at), now=at)
            assert history_of(after.held()) == History(at, 3, at), "it was stored since"
            assert after.due == 30


def test_a_fire_waits_for_the_one_before_that_only_its_row_shows() -> None:
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
    first = Desk(treated(Missed="skip"))
    document = left(first)
    later = Desk(live=False, table=first.engine.held.table)
    later.now = START + 25 * SECOND
    continued(later, first, document)
    settled = Checkpoint(START + 24 * SECOND, 1, stored_by=START)
    later.step(OwnershipChanged(True, settled), SchedulesGone([(SCHEDULE, 1)]))
    assert later.reads == [], "it is not ended before what is settled is passed over"
    later.step(CaughtUp())
    assert later.due == 30


def test_what_the_owner_was_to_report_is_reported_by_the_one_that_takes_over() -> None:
    before = Desk(treated(Missed="skip", Grace="1s"), live=False)
    before.step(OwnershipChanged(False), CaughtUp())
    assert before.at(35).held().unreported == START + 10 * SECOND
    document = left(before)
    after = Desk(live=False, table=before.engine.held.table)
    after.now = before.now
    after.step(OwnershipChanged(False))
    continued(after, before, document)
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
    assert held.is_to_other_stream
    assert (after.due, history_of(held)) == (20, UNKNOWN)
    assert held.previous_fire is None, "a later one may be stored there"
    after.at(25)
    after.found(one)
    assert [look.fire.fire_time for look in after.asked(LookForFire)] == [START + 20 * SECOND]


def test_a_calendar_that_was_edited_meanwhile_decides_about_what_comes() -> None:
    def known(days: str) -> CalendarsRead:
        return CalendarsRead(KnownCalendars({"de": read_calendar("de", days.encode())}))

    one = treated("@every 6h", Except="calendar:de")
    for left_days, due in (("2026-01-01", DAY), ("2026-01-05", 6 * HOUR)):
        before = Desk(live=False)
        before.step(known("2026-01-01"), MessagesRead([one]), CaughtUp())
        assert before.held().fire_time == START + DAY
        document = left(before)
        after = Desk(live=False, table=before.engine.held.table)
        after.step(known(left_days))
        continued(after, before, document)
        after.step(CaughtUp())
        assert after.held().fire_time == START + due


def test_a_history_is_read_as_it_was_written() -> None:
    held = Desk(treated(Report="true")).held()
    for history in (
        UNKNOWN,
        History(START, 7, START + 1, 3, None, False, 9),
        History(None, 0, 0, 12, START + HOUR, True, 0),
        History(0, (1 << 64) - 1, 0, 0, 0, True, (1 << 64) - 1),
    ):
        for name, value in history._asdict().items():
            setattr(held, name, value)
        written = written_history(held)
        other = Desk(treated(Report="true")).held()
        read_history(other, written)
        assert history_of(other) == history
