"""The oldest stored schedules have the places that the operator allows, on every instance, whenever it started."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from nats_scheduler.engine.actions import PurgeSchedule, WakeAt
from nats_scheduler.engine.events import Ending, ScheduleAccepted, ScheduleEnded, ScheduleRejected
from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentFetched,
    Input,
    MessagesRead,
    OwnershipChanged,
    PurgeConcluded,
    RemovalRequested,
    SchedulesGone,
    ServerLimits,
)
from nats_scheduler.engine.receiving.admission import MAX_PLACED_AT_ONCE
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, message_on, plain, schedule
from tests.harness.seeds import seeds

SUBJECTS = tuple(f"s.{n}" for n in range(8))


def engine_for(most: int) -> StreamEngine:
    rules = StreamRules("DESK", (">",), allow_msg_ttl=True, restrictions=Restrictions(max_schedules=most))
    return StreamEngine(rules, DIALECTS, ServerLimits(guard=True, look_ahead=SECOND))


def desk_for(most: int, *messages: StoredMessage) -> Desk:
    """Make a desk whose operator limits the number of schedules."""
    desk = Desk()
    desk.engine = engine_for(most)
    desk.actions = desk.engine.step(START, [MessagesRead(messages), CaughtUp()])
    return desk


def held_by(engine: StreamEngine) -> dict[str, int]:
    return {held.subject: held.sequence for held in engine.held}


def waiting_for(engine: StreamEngine) -> dict[str, int]:
    return {subject: one.sequence for subject, one in engine.inactive.rejected.items() if one.rejection.code == 10023}


def daily(*numbers: int) -> list[StoredMessage]:
    return [schedule("@daily", n, f"s.{n}") for n in numbers]


def at(second: int, sequence: int, subject: str) -> StoredMessage:
    return schedule(f"@at 2026-01-01T00:00:{second:02}Z", sequence, subject)


def test_schedules_beyond_the_limit_are_rejected_and_others_stay() -> None:
    desk = desk_for(2, *daily(1, 2, 3, 4))
    assert (held_by(desk.engine), waiting_for(desk.engine)) == ({"s.1": 1, "s.2": 2}, {"s.3": 3, "s.4": 4})
    assert [rejected.schedule for rejected in desk.reported(ScheduleRejected)] == ["s.3", "s.4"]
    desk.read(schedule("@hourly", 5, "s.5"))
    [rejected] = desk.reported(ScheduleRejected)
    assert (rejected.schedule, rejected.rejection.code, rejected.rejection.value) == ("s.5", 10023, "@hourly")
    assert held_by(desk.engine) == {"s.1": 1, "s.2": 2}
    full = desk_for(2, *daily(1, 2))
    full.read(schedule("@hourly", 3, "s.1"))
    assert (full.reported(ScheduleRejected), held_by(full.engine)) == ([], {"s.2": 2, "s.1": 3}), "it is not one more"


def test_of_two_that_are_read_out_of_order_the_older_one_has_the_place() -> None:
    desk = desk_for(1)
    desk.read(*daily(2))
    desk.read(*daily(1))
    assert held_by(desk.engine) == {"s.1": 1}
    assert [event.schedule for event in desk.reported(ScheduleRejected)] == ["s.2"]


def test_an_at_whose_time_passed_while_it_waited_never_fires() -> None:
    desk = desk_for(1, schedule("@daily", 1, "s.1"), at(5, 2, "s.2"), at(30, 3, "s.3"))
    desk.at(10)
    desk.read(plain("s.1", 4))
    assert (desk.fires, desk.reads, desk.purges) == ([], [], [("s.2", 2)])
    assert desk.reported(ScheduleAccepted) == []
    desk.step(PurgeConcluded("s.2", 2))
    assert [(event.schedule, event.ending) for event in desk.reported(ScheduleEnded)] == [
        ("s.2", Ending.MISSED_ITS_TIME)
    ]
    assert held_by(desk.engine) == {"s.3": 3}


@pytest.mark.parametrize("policies", [{}, {"Nats_Schedule_X_Missed": "all"}])
def test_a_repeating_schedule_that_waited_goes_on_with_its_next_fire(policies: dict[str, Any]) -> None:
    """While it waits it is rejected, so its fires are not owed, whatever its policy is."""
    waiting = schedule("@every 4s", 2, "s.2", **policies)
    desk = desk_for(1, *daily(1), waiting).at(10)
    desk.read(plain("s.1", 3))
    assert [(event.schedule, event.due - START) for event in desk.reported(ScheduleAccepted)] == [("s.2", 12 * SECOND)]
    desk.found(waiting)
    desk.at(11.5)
    desk.found(waiting)
    assert [fire.fire_time - START for fire in desk.at(12).fires] == [12 * SECOND]


def test_a_cancel_ends_a_schedule_that_waits_and_no_later_one() -> None:
    desk = desk_for(1, *daily(1, 3, 4))
    desk.read(message_on("x.cancel", 5, Nats_Scheduler="s.3", Nats_Schedule_Next="purge"))
    assert (waiting_for(desk.engine), desk.purges) == ({"s.4": 4}, [("s.3", 3)])
    desk.read(message_on("x.cancel", 2, Nats_Scheduler="s.4", Nats_Schedule_Next="purge"))  # read out of order
    assert (waiting_for(desk.engine), desk.purges) == ({"s.4": 4}, [])


@dataclass
class Stream:
    """The stored messages, by sequence."""

    messages: dict[int, StoredMessage] = field(default_factory=dict)
    last: int = 0

    def store(self, message: StoredMessage) -> StoredMessage:
        self.last += 1
        stored = message._replace(sequence=self.last)
        self.messages[self.last] = stored
        return stored

    def last_on(self, subject: str) -> StoredMessage | None:
        return next((m for _n, m in sorted(self.messages.items(), reverse=True) if m.subject == subject), None)

    def purge(self, subject: str, through: int | None = None) -> None:
        self.messages = {
            n: m for n, m in self.messages.items() if m.subject != subject or (through is not None and n > through)
        }

    @property
    def in_order(self) -> list[StoredMessage]:
        return [message for _sequence, message in sorted(self.messages.items())]


class Instance:
    """One engine; its reads and purges are answered from what is stored until it asks for nothing more."""

    def __init__(self, stream: Stream, most: int, *, is_owner: bool) -> None:
        self.engine = engine_for(most)
        self._stream = stream
        self.asked: list[RemovalRequested] = []
        """Its requests to remove messages, which the others receive."""
        self.receive(OwnershipChanged(is_owner), MessagesRead(stream.in_order), CaughtUp())

    def receive(self, *facts: Input) -> None:
        todo: list[Input] = list(facts)
        while todo:
            actions = self.engine.step(START, todo)
            todo = []
            for action in actions:
                if isinstance(action, FetchContent):
                    found = self._stream.last_on(action.schedule)
                    todo.append(ContentFetched(action.schedule, action.sequence, found, None))
                elif isinstance(action, PurgeSchedule):
                    self._stream.purge(action.schedule, action.through)
                    self.asked.append(RemovalRequested(action.schedule, below=action.through + 1))
                    todo.append(PurgeConcluded(action.schedule, action.through))


def test_every_instance_and_every_restart_holds_the_same_schedules() -> None:
    for seed in seeds(2):
        chance = random.Random(seed)
        stream, most = Stream(), chance.randrange(5)
        instances = [Instance(stream, most, is_owner=is_owner) for is_owner in (True, False)]
        for _ in range(40):
            facts = happened(stream, chance)
            for instance in instances:
                instance.receive(*facts)
            for one, other in (instances, instances[::-1]):
                other.receive(*one.asked)
                one.asked.clear()
            if chance.random() < 0.1:
                number = chance.randrange(2)
                instances[number] = Instance(stream, most, is_owner=not number)
            for instance in (*instances, Instance(stream, most, is_owner=True)):
                assert_the_oldest_are_held(stream, instance, most, f"seed {seed}")


def happened(stream: Stream, chance: random.Random) -> list[Input]:
    """Let something happen to a stream; returns the inputs that report it."""
    subject, kind = chance.choice(SUBJECTS), chance.random()
    if kind < 0.6:
        return [MessagesRead([stream.store(schedule("@yearly", 0, subject))])]
    if kind < 0.7:
        return [MessagesRead([stream.store(plain(subject, 0))])]
    if kind < 0.75:
        return [MessagesRead([stream.store(schedule("@never", 0, subject))])]
    if kind < 0.8:
        return [MessagesRead([stream.store(message_on("c", 0, Nats_Scheduler=subject, Nats_Schedule_Next="purge"))])]
    stream.purge(subject)
    return [RemovalRequested(subject)]


def assert_the_oldest_are_held(stream: Stream, instance: Instance, most: int, which: str) -> None:
    held, waiting = held_by(instance.engine), waiting_for(instance.engine)
    last = {subject: stream.last_on(subject) for subject in SUBJECTS}
    valid = {m.sequence: subject for subject, m in last.items() if m is not None and b"@yearly" in m.block}
    expected = [(valid[sequence], sequence) for sequence in sorted(valid)]
    assert held == dict(expected[:most]), which
    # The purge of a schedule that waits is noticed only when its turn comes.
    gone = {subject for subject in waiting if last[subject] is None}
    assert {s: n for s, n in waiting.items() if s not in gone} == dict(expected[most:]), which


def test_places_that_become_free_at_once_are_filled_a_few_in_each_step() -> None:
    numbers = range(1, 6 * MAX_PLACED_AT_ONCE)
    desk = desk_for(3 * MAX_PLACED_AT_ONCE, *daily(*numbers))
    desk.step(SchedulesGone([(f"s.{number}", number) for number in range(1, 3 * MAX_PLACED_AT_ONCE + 1)]))
    placed = [len(desk.engine.held)]
    while desk.asked(WakeAt) and desk.wake <= 0:
        desk.step()
        placed.append(len(desk.engine.held) - sum(placed))
    assert max(placed) <= MAX_PLACED_AT_ONCE
    assert len(desk.engine.held) == 3 * MAX_PLACED_AT_ONCE - 1
    assert waiting_for(desk.engine) == {}
