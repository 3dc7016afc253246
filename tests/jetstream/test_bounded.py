"""Requests of a bounded number: each is answered once, and those of a group are sent together."""

import asyncio
from collections.abc import Callable

import pytest

from nats_scheduler.engine.inputs import ExpiryConcluded, Input
from nats_scheduler.jetstream.bounded import BoundedRequests
from tests.harness.waiting import eventually

LONG_SECONDS = 600.0
"""Longer than any test takes: nothing is sent because of it."""


class Server:
    """What is asked, and what was answered."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: list[Input] = []
        self.opened = asyncio.Event()
        self.opened.set()

    async def ask(self, number: int) -> Input:
        self.asked.append(number)
        await self.opened.wait()
        return ExpiryConcluded(number)

    def requests(
        self, tasks: asyncio.TaskGroup, *, limit: int = 100, seconds: float = 0.0, group: int = 1
    ) -> BoundedRequests[int]:
        return BoundedRequests(
            self.answers.append,
            tasks,
            ask=self.ask,
            give_up=lambda number, reason: ExpiryConcluded(number, failure=reason),
            limit=limit,
            group_seconds=seconds,
            group_limit=group,
        )


async def until(condition: Callable[[], bool]) -> None:
    await eventually(condition, within_seconds=30)


@pytest.mark.parametrize("seconds", [0.0, 0.01])
async def test_each_is_answered_once_and_no_more_than_the_limit_are_asked_at_a_time(seconds: float) -> None:
    server = Server()
    server.opened.clear()
    async with asyncio.TaskGroup() as tasks:
        requests = server.requests(tasks, limit=3, seconds=seconds, group=4)
        for number in range(10):
            requests.begin(number)
        await until(lambda: len(server.asked) == 3)
        server.opened.set()
        await until(lambda: len(server.answers) == 10)
    assert sorted(server.asked) == [*range(10)]
    assert sorted(answer.sequence for answer in server.answers if isinstance(answer, ExpiryConcluded)) == [*range(10)]


async def test_the_first_is_sent_at_once_and_those_that_follow_it_wait_for_each_other() -> None:
    server = Server()
    async with asyncio.TaskGroup() as tasks:
        requests = server.requests(tasks, seconds=LONG_SECONDS, group=4)
        requests.begin(0)
        await until(lambda: len(server.answers) == 1)
        for number in (1, 2, 3):
            requests.begin(number)
        assert server.asked == [0]
        requests.begin(4)  # they are as many as need not wait
        await until(lambda: len(server.answers) == 5)
        requests.end("over")
    assert server.asked == [0, 1, 2, 3, 4]


async def test_what_waits_is_sent_when_its_time_has_come() -> None:
    server = Server()
    async with asyncio.TaskGroup() as tasks:
        requests = server.requests(tasks, seconds=0.05, group=100)
        for number in range(3):
            requests.begin(number)
        await until(lambda: len(server.answers) == 3)
    assert server.asked == [0, 1, 2]


async def test_what_waits_for_its_group_is_given_up_at_the_end() -> None:
    server = Server()
    async with asyncio.TaskGroup() as tasks:
        requests = server.requests(tasks, seconds=LONG_SECONDS, group=4)
        requests.begin(0)
        await until(lambda: len(server.answers) == 1)
        requests.begin(1)
        requests.end("the contact ended")
        requests.begin(2)
    assert server.asked == [0]
    assert server.answers[1:] == [ExpiryConcluded(n, failure="the contact ended") for n in (1, 2)]
