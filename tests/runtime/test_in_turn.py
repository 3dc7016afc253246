"""Much of one kind: begun in order, some at a time, and ended by the first error."""

import asyncio
from functools import partial

import pytest

from nats_scheduler.jetstream.task_group import in_turn


class Works:
    """Works that note what they do, and go on when they are allowed to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most_at_once = 0

    async def do(self, number: int) -> None:
        self.begun.append(number)
        self.most_at_once = max(self.most_at_once, len(self.begun) - len(self.ended))
        await asyncio.wait_for(asyncio.Event().wait(), 0) if number < 0 else await a_turn()
        self.ended.append(number)


async def a_turn() -> None:
    turned = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turned.set_result, None)
    await turned


async def test_all_is_done_in_order_and_no_more_than_allowed_at_once() -> None:
    works = Works()
    await in_turn([partial(works.do, number) for number in range(20)], at_once=3)
    assert (works.begun, sorted(works.ended), works.most_at_once) == (list(range(20)), list(range(20)), 3)


async def test_nothing_to_do_ends_at_once() -> None:
    await in_turn([])


async def test_the_first_error_ends_all_and_is_raised() -> None:
    works, waiting = Works(), asyncio.Event()
    with pytest.raises(TimeoutError):
        await in_turn([waiting.wait, partial(works.do, -1), partial(works.do, 1)], at_once=2)
    assert works.begun == [-1]
    assert asyncio.all_tasks() == {asyncio.current_task()}
