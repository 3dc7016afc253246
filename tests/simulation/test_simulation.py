"""Seeds of simulated worlds keep every promise, and a seed is a world that can be repeated exactly.

`NATS_SCHEDULER_SIMULATION=N` runs N seeds in the place of the usual ones.
"""

import os
import subprocess
import sys

import pytest

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.schedule.instants import MILLISECOND
from tests.simulation.process import OF_SNAPSHOTS, Point
from tests.simulation.scenario import KINDS, drawn, with_snapshots
from tests.simulation.world import World, judged

SEEDS = int(os.environ.get("NATS_SCHEDULER_SIMULATION", "120"))
PARTS = 10
SEND_DELAY_NS = 40 * MILLISECOND
"""Less than the shortest look-ahead, and than what the judge allows a fire that is late."""
EACH_PART = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))]
"""The fast tier runs the first part: each part is a sample of all kinds of worlds."""


@pytest.mark.parametrize("part", EACH_PART)
def test_no_promise_is_broken_whatever_breaks(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        broken = "\n".join(map(str, judged(seed)))
        assert not broken, f"repeat it: python -m tests.simulation --seed {seed} --trace\n{broken}"


@pytest.mark.slow
def test_no_promise_is_broken_if_fires_are_sent_after_their_fire_times(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Held.send_time_of

    def send_time_of(held: Held, fire_time: int) -> int:
        return original(held, fire_time) if held.jitters else fire_time + SEND_DELAY_NS

    monkeypatch.setattr(Held, "send_time_of", send_time_of)
    for seed in range(SEEDS // PARTS):
        assert judged(seed) == [], f"seed {seed}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_repeats_exactly(seed: int) -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        World(drawn(seed), trace.append).run()
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", [29, 60])
def test_a_seed_is_the_same_in_every_process(seed: int) -> None:
    """The order of events depends on neither the hashes of texts nor addresses."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"]
    traces = {
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": salt}, capture_output=True, check=True).stdout
        for salt in ("1", "2", "3", "4")
    }
    assert len(traces) == 1


@pytest.mark.slow
def test_processes_die_at_every_point_where_they_may() -> None:
    missing = set(Point)
    for seed in range(600):
        if not missing:
            return
        scenario = with_snapshots(seed) if missing <= set(OF_SNAPSHOTS) else drawn(seed)
        if "crash" in scenario.kinds:
            world = World(scenario)
            world.run()
            missing -= set(world.crashes)
    assert not missing


def test_the_seeds_break_everything_that_can_break() -> None:
    scenarios = [drawn(seed) for seed in range(100)]
    assert {kind for scenario in scenarios for kind in scenario.kinds} == set(KINDS)
    assert {scenario.divides for scenario in scenarios} == {True, False}
    assert {scenario.guard for scenario in scenarios} == {True, False}
    assert {scenario.consumes for scenario in scenarios} == {True, False}
    assert {scenario.misses for scenario in scenarios} == {True, False}
    assert {scenario.instances for scenario in scenarios} == {1, 2, 3}
