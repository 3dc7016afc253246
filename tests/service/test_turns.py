"""Long work is done in slices, between other work of the loop and not beside fires, and its result is reused."""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise, repeat
from math import inf

import pytest

from nats_scheduler.service import turns
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.turns import (
    BEGINNINGS_APART_SECONDS,
    REUSE_LIMIT_SECONDS,
    SHORT_WORK_SECONDS,
    SLICE_SECONDS,
    SPARE_SECONDS,
    Turns,
    reusable,
)


class Fires:
    """Fires as the test says: by default there are none."""

    def __init__(self, bursts: Iterable[bool] = (), spare: Iterable[float] = ()) -> None:
        self._bursts, self._spare = iter(bursts), iter(spare)

    def is_burst(self) -> bool:
        return next(self._bursts, False)

    def spare_seconds(self) -> float:
        return next(self._spare, inf)


def steps(count: int, name: str, seen: list[str]) -> Generator[None, None, str]:
    """Work whose units take a slice each, by the loop's clock."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        seen.append(name)
        until = loop.time() + SLICE_SECONDS
        while loop.time() < until:
            pass
        yield
    return name


async def test_works_take_turns_and_each_returns_its_result() -> None:
    seen: list[str] = []
    shared = Turns(Fires())
    results = await asyncio.gather(*(shared.run(steps(20, name, seen)) for name in "ab"))
    assert results == ["a", "b"]
    assert seen.index("b") < 20, "b begins before a is finished"
    assert len(seen) == 40


async def test_the_loop_does_other_work_between_two_slices() -> None:
    seen: list[str] = []
    loop = asyncio.get_running_loop()

    def other() -> None:
        seen.append("other")
        loop.call_soon(other)

    other()
    await Turns(Fires()).run(steps(20, "work", seen))
    first, last = seen.index("work"), len(seen) - 1 - seen[::-1].index("work")
    assert "other" in seen[first:last]


async def test_no_slice_is_done_beside_a_burst_or_a_near_fire() -> None:
    seen: list[str] = []

    def bursts() -> Iterator[bool]:
        yield from (True, True)
        assert seen == []
        yield False

    def spare() -> Iterator[float]:
        yield from (SPARE_SECONDS / 2, 0.0, 0.0)
        assert seen == []
        yield SPARE_SECONDS

    for fires in (Fires(bursts()), Fires(spare=spare())):
        await Turns(fires).run(steps(3, "work", seen))
        assert seen == ["work"] * 3
        seen.clear()
    never_pauses = Turns(Fires(spare=repeat(0.0)))
    assert await never_pauses.run(steps(3, "work", [])) == "work", "a request gets its answer"


async def test_changes_begin_one_after_the_other_and_not_while_a_burst_lasts() -> None:
    loop, began = asyncio.get_running_loop(), list[float]()
    seen: list[bool] = []

    def bursts() -> Iterator[bool]:
        for lasts in (True, True, False):
            assert began == []
            seen.append(lasts)
            yield lasts

    shared = Turns(Fires(bursts()))

    async def change() -> None:
        await shared.begin()
        began.append(loop.time())

    await asyncio.gather(*(change() for _ in range(4)))
    assert seen == [True, True, False]
    assert all(later - earlier >= BEGINNINGS_APART_SECONDS * 0.99 for earlier, later in pairwise(began))


async def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WORK_LIMIT_SECONDS", 0.05)
    shared = Turns(Fires())
    with pytest.raises(ServiceError) as refused:
        await shared.run(steps(1_000_000, "work", []))
    assert refused.value.code == 503
    monkeypatch.undo()
    assert await shared.run(steps(1, "next", [])) == "next", "the others go on"


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on only when the test says so."""

    now = 1_000.0

    def time(self) -> float:
        return self.now


def test_a_result_is_reusable_for_ten_times_as_long_as_its_work_took() -> None:
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, StillLoop)

        async def work(takes: float) -> str:
            loop.now += takes
            return "result"

        for takes, kept in ((0.5, 5.0), (20.0, REUSE_LIMIT_SECONDS), (SHORT_WORK_SECONDS / 2, 0.0)):
            result, seconds = runner.run(reusable(work(takes)))
            assert (result, round(seconds, 6)) == ("result", kept)
