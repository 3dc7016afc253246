"""Long work is done once for several requesters, short work for each."""

import asyncio

import pytest

from nats_scheduler.service import turns as reuse
from nats_scheduler.service.turns import MAX_RESULTS, Reused


class Work:
    """Work that takes `takes` seconds, by a clock that moves only then, or when it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.takes = 0.0
        self.done = 0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)

    async def do(self) -> int:
        self.done += 1
        self.now += self.takes
        return self.done


async def test_a_result_is_reused_for_ten_times_as_long_as_its_work_took(monkeypatch: pytest.MonkeyPatch) -> None:
    reused, work = Reused[int](), Work(monkeypatch)
    work.takes = 0.5
    assert [await reused.get("key", work.do) for _ in range(3)] == [1, 1, 1]
    work.now += 4.9
    assert await reused.get("key", work.do) == 1
    work.now += 0.2
    assert await reused.get("key", work.do) == 2
    assert await reused.get("another", work.do) == 3


async def test_no_result_is_reused_for_more_than_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    reused, work = Reused[int](), Work(monkeypatch)
    work.takes = 20.0
    await reused.get("key", work.do)
    work.now += 29.9
    assert await reused.get("key", work.do) == 1
    work.now += 0.2
    assert await reused.get("key", work.do) == 2


async def test_short_work_is_done_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    reused, work = Reused[int](), Work(monkeypatch)
    work.takes = reuse.SHORT_WORK_SECONDS / 2
    assert [await reused.get("key", work.do) for _ in range(3)] == [1, 2, 3]


async def test_requesters_of_the_same_wait_for_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    reused, work, go = Reused[int](), Work(monkeypatch), asyncio.Event()
    work.takes = 1.0

    async def wait_and_do() -> int:
        await go.wait()
        return await work.do()

    both = [asyncio.create_task(reused.get("key", wait_and_do)) for _ in range(2)]
    asyncio.get_running_loop().call_soon(go.set)  # after both have begun
    assert await asyncio.gather(*both) == [1, 1]


async def test_work_that_fails_is_done_again() -> None:
    reused = Reused[int]()

    async def fail() -> int:
        raise ValueError("no")

    async def succeed() -> int:
        return 1

    with pytest.raises(ValueError, match="no"):
        await reused.get("key", fail)
    assert await reused.get("key", succeed) == 1


async def test_the_results_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    reused, work = Reused[int](), Work(monkeypatch)
    work.takes = 1.0
    for key in range(3 * MAX_RESULTS):
        await reused.get(key, work.do)
        work.now -= 1.0
    assert len(reused._results) == MAX_RESULTS
    assert await reused.get(3 * MAX_RESULTS - 1, work.do) == 3 * MAX_RESULTS, "the last one is kept"
