"""Long work is done in slices between which other work of the loop runs, and waits while fires do."""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise, repeat
from math import inf

import pytest

from nats_scheduler.service import turns
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.turns import BEGINNINGS_APART_SECONDS, SLICE_SECONDS, SPARE_SECONDS, Turns


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


async def test_no_slice_is_done_while_a_burst_lasts() -> None:
    seen: list[str] = []

    def bursts() -> Iterator[bool]:
        yield from (True, True)
        assert seen == []
        yield False

    await Turns(Fires(bursts())).run(steps(3, "work", seen))
    assert seen == ["work"] * 3


async def test_no_slice_is_done_while_a_fire_is_near_or_in_flight() -> None:
    seen: list[str] = []

    def spare() -> Iterator[float]:
        yield from (SPARE_SECONDS / 2, 0.0, 0.0)
        assert seen == []
        yield SPARE_SECONDS

    await Turns(Fires(spare=spare())).run(steps(3, "work", seen))
    assert seen == ["work"] * 3


async def test_fires_that_never_pause_do_not_keep_a_request_from_its_answer() -> None:
    assert await Turns(Fires(spare=repeat(0.0))).run(steps(3, "work", [])) == "work"


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
    assert await shared.run(steps(1, "next", [])) == "next", "the others go on"
