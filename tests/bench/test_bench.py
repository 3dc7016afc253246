"""The benchmark measures what it says, on every side: each scenario, tiny, from end to end."""

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from tests.bench import measures as m
from tests.bench.fires import WrongFiresError, read_fires
from tests.bench.load import at_pattern, schedule, subject_of, target_of
from tests.bench.runner import run
from tests.bench.runs import Run
from tests.bench.scenarios.asked import Asked
from tests.bench.scenarios.divided import Divided
from tests.bench.scenarios.held import Held, Loaded, Ordinary
from tests.bench.scenarios.herd import Herd
from tests.bench.scenarios.mixed import Mixed
from tests.bench.scenarios.scenario import Scenario
from tests.bench.scenarios.spread import Budget, Rate, Spread, Steady
from tests.bench.scenarios.streams import HandOver, Streams, Takeover
from tests.bench.sides import EMULATED, KINDS, NATIVE, PAIR, PORTABLE, Kind, running
from tests.harness.servers import V2_11, V2_15, server_binary

pytestmark = [pytest.mark.server, pytest.mark.deep]

LEAD_SECONDS = 4.0
"""Several run at once here; a machine that is slow at it must still store 20 schedules before they are due."""
SCENARIOS_AT_ONCE = 6

LATENESS = (m.P50, m.P99, m.LAST)
TINY: list[tuple[Scenario, tuple[m.Measure, ...]]] = [  # the longest first
    (
        Streams(5, seconds=2, spread_seconds=1.0, lead_seconds=LEAD_SECONDS),
        (*LATENESS, m.MANY_OVER_ONE, *m.MANY_IDLE_CPU.measures),
    ),
    (Spread(20, 1.0, lead_seconds=LEAD_SECONDS), LATENESS),
    (Spread(20, 1.0, sampling=True, family="sampling", lead_seconds=LEAD_SECONDS), LATENESS),
    (
        Spread(20, 1.0, others_per_second=500, family="busy", asked=500, lead_seconds=LEAD_SECONDS),
        (*LATENESS, m.OTHERS_RATE),
    ),
    (Herd(20, lead_seconds=LEAD_SECONDS), (*LATENESS, m.FOLLOWED, m.PURGED)),
    (Herd(20, repeating=True, lead_seconds=LEAD_SECONDS), (*LATENESS, m.FOLLOWED)),
    (
        Held(50, beside=20, idle_seconds=0.2, burst_lead_seconds=LEAD_SECONDS),
        (*LATENESS, m.FOLLOWED, m.MEMORY, *m.IDLE_CPU.measures, m.RESTART, m.BARE_RESTART),
    ),
    (
        Asked(50, spread=20, spread_seconds=1.0, burst=20, lead_seconds=LEAD_SECONDS),
        (m.QUIET_SPREAD_P99, m.QUIET_BURST_P99),
    ),
    (Budget(50, per_second=20, seconds=1.0), (*LATENESS, *m.CPU_FIRE.measures)),
    (Steady(20, 1.0, ahead_seconds=LEAD_SECONDS), LATENESS),
    (Rate(64, step_seconds=1.0, warm_up_seconds=0.5, search_seconds=5.0), (m.HIGHEST_RATE,)),
    (Mixed(20, seconds=4, intervals=(2, 4), ahead_seconds=LEAD_SECONDS), (*LATENESS, *m.CPU_FIRE.measures)),
    (Loaded(50), (m.FOLLOWED,)),
    (Ordinary(200, held=10, subjects=20), (m.RESTART,)),
]


@pytest.fixture(autouse=True)
def servers() -> None:
    """Fetch the servers, or skip with the reason."""
    for version in (V2_11, V2_15):
        server_binary(version)


async def measured(scenario: Scenario, kinds: tuple[Kind, ...]) -> Run:
    """Run a scenario once, and fail where it failed on any side."""
    said: list[str] = []
    found, failures = await run([scenario], kinds, 1, said.append)
    assert failures == 0, said
    return found


async def test_each_scenario_is_measured_on_every_side() -> None:
    free = asyncio.Semaphore(SCENARIOS_AT_ONCE)

    async def measured_in_turn(scenario: Scenario) -> Run:
        async with free:
            return await measured(scenario, KINDS)

    runs = await asyncio.gather(*(measured_in_turn(scenario) for scenario, _expected in TINY))
    for found, (scenario, expected) in zip(runs, TINY, strict=True):
        assert list(found.scenarios) == [scenario.name]
        figures = {(measure, side) for _scenario, measure, side in found.entries()}
        assert figures >= {(measure.name, kind.name) for measure in expected for kind in KINDS}
        assert {measure for measure, _side in figures} <= m.MEASURES.keys()
        for measure, side in figures:
            assert min(found.values(scenario.name, measure, side)) >= 0 or "memory" in measure
        if m.LAST in expected:
            for kind in KINDS:
                late = [found.value(scenario.name, measure.name, kind.name) or 0.0 for measure in LATENESS]
                assert late == sorted(late)
                assert late[-1] > 0


@pytest.mark.parametrize(
    ("scenario", "measure"),
    [
        (Takeover(20, 1.0, lead_seconds=LEAD_SECONDS), m.TAKEOVER),
        (Takeover(20, 1.0, lead_seconds=LEAD_SECONDS, is_in_many=True), m.TAKEOVER_P50),
        (HandOver(20, 1.0, lead_seconds=LEAD_SECONDS), m.LAST),
    ],
    ids=["one-stream", "many-streams", "hand-over"],
)
async def test_a_takeover_is_measured_where_there_is_somebody_to_take_over(
    scenario: Scenario, measure: m.Measure
) -> None:
    kind = EMULATED if measure is m.TAKEOVER else PORTABLE
    found = await measured(scenario, (NATIVE, kind))
    assert found.value(scenario.name, measure.name, NATIVE.name) is None
    assert found.values(scenario.name, measure.name, kind.name)


async def test_each_instance_reads_some_of_the_streams() -> None:
    scenario = Divided(60, streams=6, instances=3, fires=30, seconds=2.0, lead_seconds=LEAD_SECONDS)
    found = await measured(scenario, (NATIVE, EMULATED))
    shares = [found.value(scenario.name, one[1].name, EMULATED.name) for one in (m.READ_BY_ALL, m.READ_BY_FEW)]
    assert shares[0] == 100
    assert 100 * 2 / 3 <= (shares[1] or 0.0) <= 100
    assert found.values(scenario.name, m.TAKEOVER.name, EMULATED.name)
    assert found.value(scenario.name, m.TAKEOVER.name, NATIVE.name) is None


async def test_many_streams_idle_and_fire_among_several_instances() -> None:
    fleet = Divided(
        6,
        instances=3,
        fires=30,
        seconds=2.0,
        lead_seconds=LEAD_SECONDS,
        idle_seconds=0.2,
        family="fleet",
        is_one_each=True,
    )
    found = await measured(fleet, (EMULATED, PAIR))
    for measure in (m.IDLE_CPU.sum, m.FIRING_CPU.sum, m.TAKEOVER):
        assert found.values(fleet.name, measure.name, EMULATED.name)
        assert not found.values(fleet.name, measure.name, PAIR.name), "it says itself how many instances there are"


async def test_a_scenario_that_fails_is_told_and_the_others_go_on() -> None:
    said: list[str] = []
    too_soon = Spread(20, 1.0, lead_seconds=-60)
    found, failures = await run([too_soon, Herd(5, lead_seconds=LEAD_SECONDS)], [NATIVE], 1, said.append)
    assert failures == 1
    assert any("FAILED on native: schedules were due before all were stored" in line for line in said), said
    assert found.value("herd-5", m.LAST.name, NATIVE.name) is not None
    assert found.scenarios["spread-20"] == [{}]


async def test_a_load_that_is_published_late_fails_its_scenario() -> None:
    said: list[str] = []
    _found, failures = await run([Steady(20, 1.0, ahead_seconds=0.0)], [NATIVE], 1, said.append)
    assert failures == 1
    assert any("FAILED on native: the load is" in line for line in said), said


async def test_a_fire_is_looked_for_on_the_target_of_its_own_schedule(tmp_path: Path) -> None:
    async with running(NATIVE, tmp_path, Random(1)) as side:
        before = await side.mark()
        due, prefix = at_pattern(time.time_ns()), side.kind.prefix
        await side.store([schedule(subject_of(0), due, prefix, target_of(subject_of(1)))])
        await side.wait_for_fires(1, before, within_seconds=30.0)
        with pytest.raises(WrongFiresError, match=r"BENCH\.s\.0 was stored on BENCH\.t\.1, expected BENCH\.t\.0"):
            await read_fires(side.connection, side.api)
