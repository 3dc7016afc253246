"""What a driver takes, when it does not trust its contact any more, its end, and what the collector looks at.

A drain waits for what is in flight, and never for a driver that will not step again; a process that was paused fires
nothing before it has read what happened meanwhile.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence

import pytest

from nats_scheduler.engine.actions import Action, PurgeSchedule, RemoveExpired
from nats_scheduler.engine.events import Event
from nats_scheduler.engine.fire import Fire, Question
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentFetched,
    Input,
    MessagesRead,
    PurgeConcluded,
    RemovalRequested,
    ServerLimits,
)
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.waiting_inputs import MAX_CONTENTS_PER_STEP
from nats_scheduler.runtime.wakes import CONTACT_STANDSTILL_LIMIT_NS, Wakes
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START, ManualClock
from tests.harness.waiting import eventually

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
        """Deliver nothing, and do not end."""
        await asyncio.get_running_loop().create_future()

    def end(self, reason: str) -> None:
        """Answer nothing."""


class NotingEngine(StreamEngine):
    """An engine that notes what each of its steps is given."""

    def __init__(self, *, guard: bool = True, before: Callable[[list[Input]], None] = lambda _given: None) -> None:
        super().__init__(StreamRules("ORDERS", ("orders.>",)), (ADR51,), ServerLimits(guard=guard))
        self._before = before
        self.taken: list[list[Input]] = []

    def step(self, now: int, inputs: Iterable[Input] = ()) -> list[Action]:
        self.taken.append(list(inputs))
        self._before(self.taken[-1])
        return super().step(now, inputs)


def driver(engine: NotingEngine, clock: ManualClock | None = None, wakes: Wakes | None = None) -> StreamDriver:
    """Return a driver with contact."""
    one = StreamDriver(engine, clock or ManualClock(), lambda _event: None, wakes)
    one.attach(SilentStream())
    return one


async def caught_up(clock: ManualClock, wakes: Wakes | None = None) -> StreamDriver:
    """Return a driver that has read everything."""
    one = driver(NotingEngine(), clock, wakes)
    one.receive(CaughtUp())
    await eventually(lambda: one.engine.is_live)
    return one


def version(sequence: int) -> StoredMessage:
    """Return a version of a schedule that is not due in our time."""
    block = b"NATS/1.0\r\nNats-Schedule: @at 2200-01-01T00:00:00Z\r\nNats-Schedule-Target: orders.out\r\n\r\n"
    return StoredMessage("orders.s", sequence, 1, block, b"")


def purging(engine: NotingEngine, wakes: Wakes | None = None) -> StreamDriver:
    """Return a driver that waits for the removal of a version that was replaced."""
    one, stream = driver(engine, wakes=wakes), SilentStream()
    one.attach(stream)
    one.receive(MessagesRead([version(1), version(2)]))
    one.receive(CaughtUp())
    one.step()
    assert [(purge.schedule, purge.through) for purge in stream.purges] == [("orders.s", 1)]
    return one


PURGED = PurgeConcluded("orders.s", 1)


async def test_a_drain_waits_for_what_is_in_flight_and_not_for_a_stopped_one() -> None:
    for conclude in (lambda one: one.receive(PURGED), StreamDriver.stop):
        one = purging(NotingEngine())
        draining = asyncio.create_task(one.drain(LONG_SECONDS))
        assert not await one.drain(0)
        was_finished = one.is_finished
        conclude(one)
        async with asyncio.timeout(SHORT_SECONDS):
            assert await draining
            assert (was_finished, one.is_finished) == (False, True)
            one.stop()
            assert await one.drain(LONG_SECONDS), "of one that was stopped it is over at once"


async def test_a_drain_of_an_engine_that_broke_is_over_and_not_clean() -> None:
    def break_down(_event: Event) -> None:
        raise RuntimeError("a defect")

    one = StreamDriver(NotingEngine(), ManualClock(), break_down)
    one.attach(SilentStream())
    one.receive(CaughtUp())
    await eventually(one.failed.done)
    async with asyncio.timeout(SHORT_SECONDS):
        assert not await one.drain(LONG_SECONDS)
    assert not one.is_finished


async def test_a_process_that_stood_still_fires_nothing_before_it_has_read() -> None:
    clock = ManualClock()
    one = await caught_up(clock)
    clock.advance(CONTACT_STANDSTILL_LIMIT_NS + SECOND)
    await eventually(one.outdated.done)
    assert "stood still" in one.outdated.result()
    assert not one.has_contact
    await eventually(lambda: not one.engine.is_live)
    one.receive(CaughtUp())
    one.receive(MessagesRead([version(7)]))
    await eventually(lambda: one.engine.last_read == 7)
    assert not one.engine.is_live, "what an ended contact still says opens nothing"
    one.attach(SilentStream())
    assert not one.outdated.done()
    one.receive(CaughtUp())
    await eventually(lambda: one.engine.is_live)


async def test_the_wall_clock_shows_that_a_whole_machine_stood_still() -> None:
    clock = ManualClock()
    one = await caught_up(clock)
    clock.set(START + CONTACT_STANDSTILL_LIMIT_NS + SECOND)
    await eventually(one.outdated.done)


async def test_a_standstill_before_or_in_the_first_step_is_noticed() -> None:
    for in_the_middle in (True, False):
        clock = ManualClock()

        def stand_still(_given: list[Input] | None = None, clock: ManualClock = clock) -> None:
            clock.advance(CONTACT_STANDSTILL_LIMIT_NS + SECOND)

        one = driver(NotingEngine(before=stand_still) if in_the_middle else NotingEngine(), clock)
        if not in_the_middle:
            stand_still()
        one.receive(CaughtUp())
        await eventually(one.outdated.done)
        assert in_the_middle or not one.engine.is_live


def contents(count: int, first: int = 0) -> list[Input]:
    return [ContentFetched("orders.s", number, None, None) for number in range(first, first + count)]


async def test_contents_that_come_together_are_taken_in_parts_in_order() -> None:
    """What needs no fire to be built does not wait for contents, and is taken between those it came between."""
    engine, removal = NotingEngine(), RemovalRequested(filter="orders.s")
    one, read = driver(engine), contents(3 * MAX_CONTENTS_PER_STEP)
    parts = [read[start : start + MAX_CONTENTS_PER_STEP] for start in range(0, len(read), MAX_CONTENTS_PER_STEP)]
    parts[0].append(removal)
    parts[1].insert(1, CaughtUp())
    given = [content for part in parts for content in part]
    for content in given:
        one.receive(content)
    await eventually(lambda: sum(map(len, engine.taken)) == len(given))
    assert engine.taken == parts
    one.stop()


def bounded(sequence: int) -> StoredMessage:
    """Return a schedule with a policy, which may take a while to read."""
    block = version(sequence).block[:-2] + b"Nats-Schedule-X-Limit: 1000\r\n\r\n"
    return StoredMessage(
        f"orders.{sequence}", sequence, 1, block.replace(b"@at 2200-01-01T00:00:00Z", b"@every 1h"), b""
    )


async def test_a_step_gets_few_of_the_messages_that_are_dear_to_read() -> None:
    """3,000 of them in one step took 23 s, in which no stream of the process fired."""
    engine, messages = NotingEngine(), [bounded(sequence) for sequence in range(1, 301)]
    one = driver(engine)
    one.receive(MessagesRead(MessageRun.of([message._replace(body=None) for message in messages[:200]])))
    one.receive(MessagesRead(messages[200:], through=400))
    one.receive(CaughtUp())
    await eventually(lambda: engine.is_live)
    steps = [[given for given in step if isinstance(given, MessagesRead)] for step in engine.taken]
    numbers = [sum(len(read.messages) for read in step) for step in steps]
    assert max(numbers) <= 10
    read = [message.sequence for step in steps for given in step for message in given.messages]
    assert read == list(range(1, 301))
    throughs = [given.through for step in steps for given in step if given.through]
    assert (throughs, engine.last_read) == ([400], 400), "what is known through a sequence is known with the last part"
    assert len(engine.held) == 300
    one.stop()


# -- the collector is global, and so it is looked at in processes of their own

WHAT_IS_HELD = """
import gc
from nats_scheduler.runtime.garbage_collector import collect_only_what_is_new

class Cycle:
    alive = 0
    def __init__(self):
        self.me = self
        Cycle.alive += 1
    def __del__(self):
        Cycle.alive -= 1

collect_only_what_is_new()
held = [[number] for number in range(500_000)]
assert gc.get_freeze_count() > 400_000, gc.get_freeze_count()
assert len(gc.get_objects()) < 100_000, len(gc.get_objects())
gc.collect()  # freezes the rest: later, one of the cycles may be alive, and would be frozen too
for _ in range(200_000):
    Cycle()
assert Cycle.alive < 50_000, Cycle.alive
gc.collect()
assert Cycle.alive == 0, Cycle.alive
"""


@pytest.mark.slow
def test_what_is_held_is_looked_at_no_more_and_cycles_are_found() -> None:
    subprocess.run([sys.executable, "-c", WHAT_IS_HELD], check=True)
