"""Work beside the serving of an account: an error ends the work that raised it, and the group ends all."""

import asyncio

import pytest

from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.work import Background
from tests.harness.log_lines import capture_logs


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
