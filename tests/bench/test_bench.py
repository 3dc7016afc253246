"""The benchmark measures each kind of scenario, tiny, from end to end; the page has the saved figures."""

import pytest

from tests.bench import measures as m
from tests.bench.__main__ import run
from tests.bench.page import PAGE, page
from tests.bench.profiles import MILLION, scenario
from tests.bench.runs import Run
from tests.bench.scenarios.held import Among, Held
from tests.bench.scenarios.herd import Herd
from tests.bench.scenarios.mixed import Mixed
from tests.bench.scenarios.scenario import Scenario
from tests.bench.scenarios.spread import Budget, Spread, Steady
from tests.bench.scenarios.streams import HandOver, Streams, Takeover
from tests.bench.sides import EMULATED, KINDS
from tests.harness.servers import V2_11, V2_15, server_binary

LEAD_SECONDS = 5.0
"""A busy machine must still store 20 schedules before they are due."""


def test_the_page_has_what_the_saved_runs_found() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.bench.page"
    assert [scenario(name).name for name in MILLION] == list(MILLION)


@pytest.mark.server
@pytest.mark.deep
@pytest.mark.parametrize(
    ("tiny", "measure"),
    [
        (Spread(20, 1.0, lead_seconds=LEAD_SECONDS), m.P99),
        (Steady(20, 1.0, ahead_seconds=LEAD_SECONDS), m.P99),
        (Mixed(20, seconds=4, intervals=(2, 4), ahead_seconds=LEAD_SECONDS), m.CPU_FIRE.sum),
        (Budget(50, per_second=20, seconds=1.0), m.CPU_FIRE.sum),
        (Herd(20, lead_seconds=LEAD_SECONDS), m.PURGED),
        (Held(50, beside=20, idle_seconds=0.2, burst_lead_seconds=LEAD_SECONDS), m.BARE_RESTART),
        (Among(200, held=10), m.BARE_RESTART),
        (Streams(5, seconds=2, spread_seconds=1.0, lead_seconds=LEAD_SECONDS), m.MANY_OVER_ONE),
        (Takeover(20, 1.0, lead_seconds=LEAD_SECONDS), m.TAKEOVER),
        (HandOver(20, 1.0, lead_seconds=LEAD_SECONDS), m.LAST),
    ],
    ids=lambda one: one.name,
)
async def test_a_scenario_is_measured_from_end_to_end(tiny: Scenario, measure: m.Measure) -> None:
    for version in (V2_11, V2_15):
        server_binary(version)
    kinds = KINDS if isinstance(tiny, Spread) else (EMULATED,)
    found = Run()
    assert await run(found, [tiny], kinds) == []
    assert found.scenarios[tiny.name][EMULATED.name][measure.name] >= 0
