"""What several ask for is done once, for as long as anybody waits for it, and its result is kept for its time."""

import asyncio
from typing import Any

import pytest

from nats_scheduler.jetstream.single_flight import SingleFlight, SingleFlights, UnfinishedError
from tests.harness.waiting import one_turn


class Works:
    """Works with the results 1, 2, …, which end when a test lets them; after each beginning the clock moves by 1 s."""

    def __init__(self, kept_seconds: float = 0.0) -> None:
        self.now = 0.0
        self.begun = 0
        self.kept_seconds = kept_seconds
        self.error: Exception | None = None
        self.may_end = asyncio.Event()
        self.flight = SingleFlight[int](lambda: self.now)

    async def do(self) -> tuple[int, float]:
        self.begun += 1
        self.now += 1
        number = self.begun
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return number, self.kept_seconds

    def ask(self, **given: Any) -> asyncio.Task[int]:
        return asyncio.create_task(self.flight.get(self.do, **given))

    async def asked(self, number: int = 1, **given: Any) -> list[asyncio.Task[int]]:
        """Have so many ask; the work is in progress then."""
        asking = [self.ask(**given) for _ in range(number)]
        await turns()
        return asking

    def end(self) -> None:
        self.may_end.set()

    def hold(self) -> None:
        """Let no later work end yet."""
        self.may_end = asyncio.Event()


async def turns(count: int = 5) -> None:
    """Let all go on that waits for nothing else."""
    for _ in range(count):
        await one_turn()


async def cancelled(*tasks: asyncio.Task[int]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


def nothing_runs() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_is_that_of_all_who_wait_and_is_not_kept() -> None:
    works = Works(kept_seconds=10.0)
    works.end()
    assert await works.ask() == 1
    works.now, works.error = 100.0, ValueError("no")
    assert await asyncio.gather(*(works.ask() for _ in range(2)), return_exceptions=True) == [works.error] * 2
    assert works.flight.last == 1, "the result before may still be of use"
    works.error = None
    assert await works.ask() == 3


async def test_who_is_cancelled_ends_the_work_only_if_nobody_else_waits() -> None:
    works = Works()
    first, second, third = await works.asked(3)
    await cancelled(first, third)
    assert works.flight.is_running
    works.end()
    assert (await second, works.begun) == (1, 1)
    works.hold()
    alone = await works.asked(2)
    await cancelled(*alone)
    assert (works.flight.is_running, nothing_runs()) == (False, True)
    works.end()
    assert await works.ask() == 3


async def test_work_goes_on_without_those_who_gave_up() -> None:
    works = Works(kept_seconds=10.0)
    with pytest.raises(UnfinishedError):
        await works.flight.get(works.do, patience=0)
    assert works.flight.is_running
    works.end()
    assert await works.ask() == 1, "it was begun before"
    works.now = 100.0
    works.hold()
    with pytest.raises(UnfinishedError):
        await works.flight.get(works.do, patience=0)
    await works.flight.close()
    assert (works.flight.is_running, works.flight.last, nothing_runs()) == (False, 1, True)
    await works.flight.close()


async def test_who_names_an_instant_gets_a_result_of_work_that_began_after_it() -> None:
    works = Works()
    [before] = await works.asked()  # it began at 0 s
    after = await works.asked(3, since=0.0)
    assert works.begun == 1, "two of a kind are not done at once"
    works.end()
    assert await before == 1
    assert await asyncio.gather(*after) == [2, 2, 2]
    assert await works.ask(since=0.5) == 2, "it began at 1 s"
    assert await works.ask(since=1.0) == 3


async def test_running_work_of_a_key_is_not_dropped() -> None:
    works, flights = Works(kept_seconds=10.0), SingleFlights[int](2)
    first = asyncio.create_task(flights.of("a").get(works.do))
    await turns()
    running = flights.of("a")
    for key in "bcd":
        flights.of(key)
    assert flights.of("a") is running
    works.end()
    assert await first == 1
    of_b, of_c = flights.of("b"), flights.of("c")
    assert flights.of("a") is not running, "it was asked for before b and c"
    assert (flights.of("c") is of_c, flights.of("b") is of_b) == (True, False)
