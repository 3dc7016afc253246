"""The benchmark measures what it says, on every side: a small herd, and a small spread."""

from pathlib import Path

from bench.__main__ import CACHE, run, spread
from bench.sides import EMULATED, NATIVE, PORTABLE, running
from tests.harness.servers import V2_11, V2_15, server_binary


async def test_a_herd_is_measured_on_every_side_and_a_spread_of_any_length(tmp_path: Path) -> None:
    for version in (V2_11, V2_15):
        server_binary(version)  # fetched, or skipped with the reason
    results = await run([NATIVE, EMULATED, PORTABLE], [], [20])
    async with running(EMULATED, tmp_path, CACHE) as side:
        results.append(await spread(side, 20, 1.0))
    assert [(result.scenario, result.side) for result in results] == [
        ("herd of 20", NATIVE.name),
        ("herd of 20", EMULATED.name),
        ("herd of 20", PORTABLE.name),
        ("20 spread over 1 s", EMULATED.name),
    ]
    assert all(0 <= result.p50 <= result.p99 <= result.last for result in results)
