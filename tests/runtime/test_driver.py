"""The end of a driver, and the cases in which it does not trust its contact any more.

A drain waits for what is in flight, and never for a driver that will not step again; a process that was paused fires
nothing before it has read what happened meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import pytest

from nats_scheduler.engine.actions import Action, PurgeSchedule, RemoveExpired
from nats_scheduler.engine.events import Event
from nats_scheduler.engine.fire import (
    Fire,
    Question,
)
from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.inputs import CaughtUp, ContentRead, Input, MessagesRead, PurgeConcluded
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.clock import Clock, SystemClock
from nats_scheduler.runtime.driver import MAX_CONTENTS_PER_STEP, MAX_READ_AT_REST, StreamDriver
from nats_scheduler.runtime.wakes import CONTACT_STANDSTILL_LIMIT_NS, Wakes
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START, ManualClock
from tests.harness.waiting import eventually
from tests.runtime.test_wakes import Sleeper

pytestmark = pytest.mark.usefixtures("quick_ticks")

LONG_SECONDS = 30.0
"""Far above what any of these tests may take."""
SHORT_SECONDS = 15.0


class SilentStream:
    """A contact that takes everything and answers nothing."""

    def __init__(self) -> None:
        self.purges: list[PurgeSchedule] = []

    def publish(self, fires: Sequence[Fire]) -> None:
        """Answer nothing."""

    def ask(self, question: Question) -> None:
        """Answer nothing."""

    def purge(self, request: PurgeSchedule) -> None:
        """Note the request, and answer nothing."""
        self.purges.append(request)

    def remove(self, request: RemoveExpired) -> None:
        """Answer nothing."""

    async def follow(self, after: int) -> None:
        """Deliver nothing."""

    def end(self, reason: str) -> None:
        """Answer nothing."""


def driver(report: Callable[[Event], None] = lambda _event: None, clock: Clock | None = None) -> StreamDriver:
    rules = StreamRules("ORDERS", ("orders.>",))
    return StreamDriver(StreamEngine(rules, (ADR51,), ServerLimits(guard=True)), clock or SystemClock(), report)


async def caught_up(clock: ManualClock) -> StreamDriver:
    """Return a driver that has read everything."""
    one = driver(clock=clock)
    one.attach(SilentStream())
    one.receive(CaughtUp())
    await eventually(lambda: one.engine.is_live, within_seconds=SHORT_SECONDS)
    return one


def version(sequence: int) -> StoredMessage:
    """Return a version of a schedule that is not due in our time."""
    block = b"NATS/1.0\r\nNats-Schedule: @at 2200-01-01T00:00:00Z\r\nNats-Schedule-Target: orders.out\r\n\r\n"
    return StoredMessage("orders.s", sequence, 1, block, None)


async def purging() -> tuple[StreamDriver, PurgeSchedule]:
    """Return a driver that waits for the removal of a version that was replaced."""
    one, stream = driver(), SilentStream()
    one.attach(stream)
    one.receive(MessagesRead([version(1), version(2)]))
    one.receive(CaughtUp())
    await eventually(lambda: stream.purges, within_seconds=SHORT_SECONDS)
    return one, stream.purges[0]


async def test_what_is_under_way_is_looked_at_now_and_then_unless_it_was_just_stepped() -> None:
    steps: list[int] = []

    class CountingEngine(StreamEngine):
        def step(self, now: int, inputs: Iterable[Input] = ()) -> list[Action]:
            steps.append(now)
            return super().step(now, inputs)

    rules, clock, stream = StreamRules("ORDERS", ("orders.>",)), ManualClock(), SilentStream()
    one = StreamDriver(CountingEngine(rules, (ADR51,), ServerLimits(guard=True)), clock, lambda _event: None)
    one.attach(stream)
    one.receive(MessagesRead([version(1), version(2)]))
    one.receive(CaughtUp())
    one.step()
    assert stream.purges
    counts = []
    for _ in range(3):
        one.step_if_restless()
        counts.append(len(steps))
    assert counts == [1, 2, 3]
    one.receive(PurgeConcluded("orders.s", 1))
    one.step()
    for _ in range(3):
        one.step_if_restless()
    assert len(steps) == 4
    one.stop()


async def test_who_waits_for_its_turn_is_not_stepped_by_the_tick() -> None:
    one, purge = await purging()
    one.step_if_restless()
    before = one.engine.steps
    one.receive(PurgeConcluded(purge.schedule, purge.through))
    assert one.step_if_restless(), "its turn is still to come"
    assert one.engine.steps == before
    one.step_if_due()
    assert not one.step_if_restless()
    one.stop()


async def test_what_becomes_under_way_after_a_tick_without_anything_is_looked_at_by_the_next_ticks() -> None:
    wakes, stream, beside = Wakes(SystemClock()), SilentStream(), Sleeper()
    engine = StreamEngine(StreamRules("ORDERS", ("orders.>",)), (ADR51,), ServerLimits(guard=True))
    one = StreamDriver(engine, SystemClock(), lambda _event: None, wakes)
    one.attach(stream)
    one.receive(MessagesRead([version(1)]))
    one.receive(CaughtUp())
    beside.is_restless = True
    wakes.attach(beside)
    await eventually(lambda: beside.asked >= 2, within_seconds=SHORT_SECONDS)
    one.receive(MessagesRead([version(2)]))
    await eventually(lambda: stream.purges, within_seconds=SHORT_SECONDS)
    before = one.engine.steps
    await eventually(lambda: one.engine.steps >= before + 2, within_seconds=SHORT_SECONDS)
    wakes.detach(beside)
    one.stop()


async def test_a_drain_waits_until_what_is_in_flight_has_been_answered() -> None:
    one, purge = await purging()
    draining = asyncio.create_task(one.drain(LONG_SECONDS))
    assert not await one.drain(0)
    one.receive(PurgeConcluded(purge.schedule, purge.through))
    async with asyncio.timeout(SHORT_SECONDS):
        assert await draining


async def test_a_drain_does_not_wait_for_a_stream_that_is_deleted_meanwhile() -> None:
    one, _purge = await purging()
    draining = asyncio.create_task(one.drain(LONG_SECONDS))
    assert not await one.drain(0)
    one.stop()
    async with asyncio.timeout(SHORT_SECONDS):
        assert await draining


async def test_a_drain_of_a_driver_that_was_stopped_is_over_at_once() -> None:
    one, _purge = await purging()
    one.stop()
    async with asyncio.timeout(SHORT_SECONDS):
        assert await one.drain(LONG_SECONDS)


async def test_a_drain_of_an_engine_that_broke_is_over_at_once_and_not_clean() -> None:
    def break_down(_event: Event) -> None:
        raise RuntimeError("a defect")

    one = driver(break_down)
    one.attach(SilentStream())
    one.receive(CaughtUp())
    await eventually(one.failed.done, within_seconds=SHORT_SECONDS)
    async with asyncio.timeout(SHORT_SECONDS):
        assert not await one.drain(LONG_SECONDS)


async def test_a_process_that_stood_still_ends_its_contact_and_fires_nothing() -> None:
    clock = ManualClock()
    one = await caught_up(clock)
    clock.advance(CONTACT_STANDSTILL_LIMIT_NS + SECOND)
    await eventually(one.outdated.done, within_seconds=SHORT_SECONDS)
    assert "stood still" in one.outdated.result()
    assert not one.has_contact
    await eventually(lambda: not one.engine.is_live, within_seconds=SHORT_SECONDS)


async def test_a_machine_whose_monotonic_clock_stood_still_with_it_is_noticed_by_the_wall_clock() -> None:
    clock = ManualClock()
    one = await caught_up(clock)
    clock.set(START + CONTACT_STANDSTILL_LIMIT_NS + SECOND)
    await eventually(one.outdated.done, within_seconds=SHORT_SECONDS)


async def test_a_process_that_stood_still_in_the_middle_of_a_step_is_noticed() -> None:
    clock = ManualClock()

    class StoppedEngine(StreamEngine):
        def step(self, now: int, inputs: Iterable[Input] = ()) -> list[Action]:
            if inputs == [CaughtUp()]:
                clock.advance(CONTACT_STANDSTILL_LIMIT_NS + SECOND)
            return super().step(now, inputs)

    rules = StreamRules("ORDERS", ("orders.>",))
    one = StreamDriver(StoppedEngine(rules, (ADR51,), ServerLimits(guard=True)), clock, lambda _event: None)
    one.attach(SilentStream())
    one.receive(CaughtUp())
    await eventually(one.outdated.done, within_seconds=SHORT_SECONDS)


async def test_a_process_that_stood_still_before_its_first_step_is_noticed() -> None:
    clock = ManualClock()
    one = driver(clock=clock)
    one.attach(SilentStream())
    clock.advance(CONTACT_STANDSTILL_LIMIT_NS + SECOND)
    one.receive(CaughtUp())
    await eventually(one.outdated.done, within_seconds=SHORT_SECONDS)
    assert not one.engine.is_live


async def test_what_an_ended_contact_still_says_opens_nothing_and_the_next_one_does() -> None:
    clock = ManualClock()
    one = await caught_up(clock)
    clock.advance(CONTACT_STANDSTILL_LIMIT_NS + SECOND)
    await eventually(lambda: not one.engine.is_live, within_seconds=SHORT_SECONDS)
    one.receive(CaughtUp())
    one.receive(MessagesRead([version(7)]))
    await eventually(lambda: one.engine.last_read == 7, within_seconds=SHORT_SECONDS)
    assert not one.engine.is_live
    one.attach(SilentStream())
    assert not one.outdated.done()
    one.receive(CaughtUp())
    await eventually(lambda: one.engine.is_live, within_seconds=SHORT_SECONDS)


async def test_nothing_rests_while_a_fire_waits_for_what_arrives() -> None:
    due = b"NATS/1.0\r\nNats-Schedule: @at 1970-01-01T00:00:01Z\r\nNats-Schedule-Target: orders.out\r\n\r\n"
    clock = ManualClock()
    one = await caught_up(clock)
    said: list[bool] = []

    def hurry(_key: int, *, is_urgent: bool) -> None:
        said.append(is_urgent)

    one._wakes.moderation.hurry = hurry  # type: ignore[assignment, method-assign]
    one.receive(MessagesRead([StoredMessage("orders.s", 1, clock.now(), due, None)]))
    one.step()
    one.receive(ContentRead("orders.s", 1, StoredMessage("orders.s", 1, clock.now(), due, b""), None))
    one.step()
    one.receive(MessagesRead([version(sequence) for sequence in range(2, 3 + MAX_READ_AT_REST)]))
    one.step()
    one.step()
    one.stop()
    assert said[:4] == [True, False, True, False]


async def test_nothing_rests_where_no_guard_refuses_the_fire_of_a_schedule_that_is_gone() -> None:
    rules, said = StreamRules("ORDERS", ("orders.>",)), list[bool]()
    engine = StreamEngine(rules, (ADR51,), ServerLimits(guard=False))
    one = StreamDriver(engine, ManualClock(), lambda _event: None, is_guarded=False)

    def hurry(_key: int, *, is_urgent: bool) -> None:
        said.append(is_urgent)

    one._wakes.moderation.hurry = hurry  # type: ignore[assignment, method-assign]
    one.attach(SilentStream())
    for given in (CaughtUp(), MessagesRead([version(1)])):
        one.receive(given)
        one.step()
    assert said == [True]  # and that was not withdrawn
    one.stop()


async def test_contents_that_come_together_are_taken_in_parts_and_each_once() -> None:
    taken: list[list[Input]] = []

    class NotingEngine(StreamEngine):
        def step(self, now: int, inputs: Iterable[Input] = ()) -> list[Action]:
            taken.append(list(inputs))
            return super().step(now, inputs)

    rules, count = StreamRules("ORDERS", ("orders.>",)), 3 * MAX_CONTENTS_PER_STEP
    engine = NotingEngine(rules, (ADR51,), ServerLimits(guard=True))
    one = StreamDriver(engine, ManualClock(), lambda _event: None)
    one.attach(SilentStream())
    contents = [ContentRead("orders.s", number, None, None) for number in range(count)]
    for content in contents:
        one.receive(content)
    one.receive(CaughtUp())
    await eventually(lambda: sum(map(len, taken)) == count + 1, within_seconds=SHORT_SECONDS)
    assert [given for step in taken for given in step] == [*contents, CaughtUp()], "in the order in which they came"
    assert max(map(len, taken)) <= MAX_CONTENTS_PER_STEP + 1
    one.stop()


async def test_no_content_is_taken_after_the_loss_of_its_contact() -> None:
    one = await caught_up(ManualClock())
    for number in range(3 * MAX_CONTENTS_PER_STEP):
        one.receive(ContentRead("orders.s", number, None, None))
    one.detach("lost")
    one.step()
    assert not one._inputs
    one.stop()
