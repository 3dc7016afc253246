"""Work beside the serving of an account: much of one kind in turn, errors that end one or all, setbacks and retries."""

import asyncio
from functools import partial

import pytest

from nats_scheduler.control.errors import DeadlineError, ForbiddenError, SchedulerError
from nats_scheduler.jetstream.api import consumer_name
from nats_scheduler.jetstream.denials import forbidden
from nats_scheduler.jetstream.task_group import TaskGroup, Work, in_turn
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.work import RETRY_WAIT_LIMIT_SECONDS, Background, Setbacks
from tests.harness.log_lines import capture_logs
from tests.harness.waiting import one_turn


def denied(stream: str = "ORDERS") -> ForbiddenError:
    """Be denied another consumer."""
    return forbidden(f"$JS.API.CONSUMER.CREATE.{stream}.{consumer_name()}")


def setbacks(*errors: SchedulerError) -> list[tuple[bool, float]]:
    """Let work fail, and return of each error whether it is reported, and how long the wait is then."""
    reported: list[str] = []
    found = []
    work = Setbacks(1.0, reported.append)
    for error in errors:
        before = len(reported)
        work.failed(error)
        assert reported[before:] in ([], [str(error)])
        found.append((len(reported) > before, work.wait_seconds))
    return found


def test_what_may_heal_is_tried_soon_and_told_each_time() -> None:
    assert setbacks(*[DeadlineError("none")] * 3) == [(True, 1.0)] * 3


def test_a_missing_permission_is_told_once_and_tried_more_and_more_seldom_until_another_failure() -> None:
    seldom = [1.0, 2.0, 4.0, 8.0, RETRY_WAIT_LIMIT_SECONDS, RETRY_WAIT_LIMIT_SECONDS]
    errors = [*(denied() for _ in seldom), denied("OTHER"), DeadlineError("none"), denied("OTHER")]
    assert setbacks(*errors) == [*((wait == 1.0, wait) for wait in seldom), *[(True, 1.0)] * 3]


async def wait_for(event: asyncio.Event, done: list[str]) -> None:
    await event.wait()
    done.append("done")


async def fail() -> None:
    raise RuntimeError("a defect")


async def test_an_error_ends_the_work_that_raised_it_and_is_logged() -> None:
    event, done = asyncio.Event(), list[str]()
    with capture_logs() as lines:
        async with TaskGroup() as group:
            background = Background(group, Reporter(Metrics()))
            background.begin(wait_for(event, done))
            await background.begin(fail())
            event.set()
    assert done == ["done"]
    assert [(line["event"], str(line["exc_info"])) for line in lines] == [("task_failed", "a defect")]


async def test_nothing_begins_in_a_group_that_ends() -> None:
    event, done = asyncio.Event(), list[str]()
    event.set()
    async with TaskGroup() as group:
        background = Background(group, Reporter(Metrics()))
    with pytest.raises(asyncio.CancelledError):
        background.begin(wait_for(event, done))
    assert done == []


async def test_work_that_is_cancelled_before_it_began_leaves_no_warning() -> None:
    """Warnings are errors in tests: that a coroutine was never awaited would be one."""
    event, done = asyncio.Event(), list[str]()
    async with TaskGroup() as group:
        task = Background(group, Reporter(Metrics())).begin(wait_for(event, done))
        task.cancel()
    assert (task.cancelled(), done) == (True, [])


class Works:
    """Works that note what they do; one with a negative number fails."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most_at_once = 0

    async def do(self, number: int) -> None:
        self.begun.append(number)
        self.most_at_once = max(self.most_at_once, len(self.begun) - len(self.ended))
        if number < 0:
            raise TimeoutError
        turned = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turned.set_result, None)
        await turned
        self.ended.append(number)


async def test_all_is_done_in_order_and_no_more_than_allowed_at_once() -> None:
    works = Works()
    await in_turn([partial(works.do, number) for number in range(20)], at_once=3)
    assert (works.begun, sorted(works.ended), works.most_at_once) == (list(range(20)), list(range(20)), 3)
    assert await in_turn([]) == []


async def test_the_results_are_in_the_order_of_the_works_whichever_ends_first() -> None:
    last_has_ended = asyncio.Event()

    async def square(number: int) -> int:
        if number == 9:
            last_has_ended.set()
        elif number == 0:
            await last_has_ended.wait()
        return number * number

    for works in ([partial(square, number) for number in range(10)], (partial(square, number) for number in range(10))):
        last_has_ended.clear()
        assert await in_turn(works, at_once=2) == [number * number for number in range(10)]


async def test_the_first_error_ends_all_and_is_raised() -> None:
    works, waiting = Works(), asyncio.Event()
    kinds: list[Work] = [waiting.wait, partial(works.do, -1), partial(works.do, 1)]
    with pytest.raises(TimeoutError):
        await in_turn(kinds, at_once=2)
    assert works.begun == [-1]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancellation_is_not_lost_to_the_error_of_a_work_that_fails_at_the_same_time() -> None:
    fails = asyncio.get_running_loop().create_future()

    async def work(waited_for: asyncio.Future[None]) -> None:
        await waited_for

    never = asyncio.get_running_loop().create_future()
    working = asyncio.create_task(in_turn([partial(work, fails), partial(work, never)]))
    await one_turn()
    await one_turn()
    fails.set_exception(DeadlineError("the connection is lost"))
    await one_turn()  # the work has failed, and what waits for it has not gone on yet
    working.cancel()
    await asyncio.wait((working,))
    assert working.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
