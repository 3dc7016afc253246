"""The search for the highest rate: what it finds, and that it ends."""

import pytest

from tests.bench.scenarios.rate import highest


async def search(up_to: int, lowest: int = 500, limit: int = 16_000, seconds: float = 60.0) -> tuple[int, list[int]]:
    """Search with a machine that holds every rate up to one; returns what was found and what was tried."""
    tried: list[int] = []

    async def holds(rate: int) -> bool:
        tried.append(rate)
        return rate <= up_to

    return await highest(holds, lowest, limit, seconds), tried


@pytest.mark.parametrize("up_to", [500, 999, 1_000, 2_600, 4_321, 10_000, 15_999])
async def test_the_rate_is_known_to_an_eighth(up_to: int) -> None:
    found, tried = await search(up_to)
    assert found <= up_to <= found * 9 / 8 + 1
    assert len(tried) <= 10


async def test_the_rate_doubles_and_then_the_interval_is_halved() -> None:
    assert await search(2_600) == (2_500, [500, 1_000, 2_000, 4_000, 3_000, 2_500, 2_750])


async def test_a_side_that_holds_no_rate_is_not_asked_again() -> None:
    assert await search(499) == (0, [500])


async def test_no_rate_above_the_limit_is_tried() -> None:
    assert await search(1_000_000) == (16_000, [500, 1_000, 2_000, 4_000, 8_000, 16_000])
    assert await search(1_000_000, limit=700) == (700, [500, 700])


async def test_the_search_ends_in_time() -> None:
    assert await search(1_000_000, seconds=0.0) == (0, [])
