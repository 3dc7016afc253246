"""Long work is done in slices between which other work of the loop runs, and waits while fires do."""

import asyncio
from collections.abc import Generator

import pytest

from nats_scheduler.service import turns
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.turns import SLICE_SECONDS, Turns


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
    shared = Turns(lambda: False)
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
    await Turns(lambda: False).run(steps(20, "work", seen))
    first, last = seen.index("work"), len(seen) - 1 - seen[::-1].index("work")
    assert "other" in seen[first:last]


async def test_no_slice_is_done_while_a_burst_lasts() -> None:
    seen: list[str] = []
    burst = asyncio.Event()
    asked = 0

    def is_burst() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            assert seen == []
            burst.set()
        return asked < 3

    await Turns(is_burst).run(steps(3, "work", seen))
    assert burst.is_set()
    assert seen == ["work"] * 3


async def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WORK_LIMIT_SECONDS", 0.05)
    shared = Turns(lambda: False)
    with pytest.raises(ServiceError) as refused:
        await shared.run(steps(1_000_000, "work", []))
    assert refused.value.code == 503
    assert await shared.run(steps(1, "next", [])) == "next", "the others go on"
