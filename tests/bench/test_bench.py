"""The benchmark measures what it says, on every side: each scenario, tiny, from end to end."""

import pytest

from bench.__main__ import run
from bench.measures import LAST, MEASURES, P50, P99
from bench.scenarios.herd import Herd
from bench.scenarios.scenario import Scenario
from bench.scenarios.spread import Spread
from bench.sides import KINDS
from tests.harness.servers import V2_11, V2_15, server_binary

TINY: list[Scenario] = [Herd(20, lead_seconds=1), Spread(20, 1.0)]


@pytest.fixture(autouse=True)
def servers() -> None:
    """Fetch the servers, or skip with the reason."""
    for version in (V2_11, V2_15):
        server_binary(version)


@pytest.mark.parametrize("scenario", TINY, ids=lambda scenario: str(scenario.name))
async def test_a_scenario_is_measured_on_every_side(scenario: Scenario) -> None:
    said: list[str] = []
    found, failures = await run([scenario], KINDS, 1, said.append)
    assert failures == 0, said
    assert {side for _scenario, _measure, side in found.entries()} == {kind.name for kind in KINDS}
    for name, measure, side in found.entries():
        assert name == scenario.name
        assert measure in MEASURES
        assert all(value >= 0 for value in found.values(name, measure, side))
    for kind in KINDS:
        figures = [found.value(scenario.name, measure.name, kind.name) or -1 for measure in (P50, P99, LAST)]
        assert figures == sorted(figures)
