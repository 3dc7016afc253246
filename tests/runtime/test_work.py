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


def test_a_missing_permission_is_told_once_and_tried_more_seldom() -> None:
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


async def test_the_first_error_ends_all_and_is_raised() -> None:
    works, waiting = Works(), asyncio.Event()
    kinds: list[Work] = [waiting.wait, partial(works.do, -1), partial(works.do, 1)]
    with pytest.raises(TimeoutError):
        await in_turn(kinds, at_once=2)
    assert works.begun == [-1]
    assert asyncio.all_tasks() == {asyncio.current_task()}
