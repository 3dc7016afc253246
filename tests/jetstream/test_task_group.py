"""A cancellation is never lost to the error of a child that fails at the same time."""

import asyncio
from contextlib import suppress

import pytest

from nats_scheduler.control.errors import DeadlineError
from nats_scheduler.jetstream.task_group import TaskGroup

LOST = DeadlineError("the connection is lost")


async def fails() -> None:
    raise LOST


async def fails_when_cancelled() -> None:
    """Fail as a request does whose connection is lost while its task is cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        raise LOST


@pytest.mark.parametrize("waits_inside", [True, False])
async def test_a_cancelled_worker_ends_although_its_children_fail(waits_inside: bool) -> None:
    """It waits inside of its group, or only for its end."""
    attempts, began = 0, asyncio.Event()

    async def retry_for_ever() -> None:
        nonlocal attempts
        while True:
            with suppress(ExceptionGroup):
                async with TaskGroup() as tasks:
                    attempts += 1
                    tasks.create_task(fails_when_cancelled())
                    asyncio.get_running_loop().call_soon(began.set)
                    if waits_inside:
                        await asyncio.Event().wait()

    running = asyncio.create_task(retry_for_ever())
    await began.wait()
    running.cancel()
    done, _pending = await asyncio.wait((running,), timeout=60)
    assert done == {running}
    assert running.cancelled()
    assert attempts == 1


async def errors_of_a_group(*, waits_inside: bool) -> list[BaseException]:
    try:
        async with TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait())
            tasks.create_task(fails())
            if waits_inside:
                await asyncio.Event().wait()
    except ExceptionGroup as errors:
        return list(errors.exceptions)
    return []


@pytest.mark.parametrize("waits_inside", [True, False])
async def test_the_error_of_a_child_is_raised_if_nobody_cancelled(waits_inside: bool) -> None:
    task = asyncio.current_task()
    assert task is not None
    for _ in range(2):  # what a first failure leaves behind must not count as a cancellation at the second one
        assert await errors_of_a_group(waits_inside=waits_inside) == [LOST]
        assert task.cancelling() == 0
