"""Long work is done in slices, between other work of the loop and not beside fires, and its result is reused."""

import asyncio
from collections.abc import Generator, Iterator
from itertools import repeat

import pytest

from nats_scheduler.service import turns
from nats_scheduler.service.micro import ServiceError
from nats_scheduler.service.turns import (
    SLICE_SECONDS,
    SPARE_SECONDS,
    Turns,
)
from tests.harness.spare_time import Fires


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


async def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WORK_LIMIT_SECONDS", 0.05)
    shared = Turns(Fires())
    with pytest.raises(ServiceError) as refused:
        await shared.run(steps(1_000_000, "work", []))
    assert refused.value.code == 503
    monkeypatch.undo()
    assert await shared.run(steps(1, "next", [])) == "next", "the others go on"
