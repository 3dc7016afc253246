"""Seeds of simulated worlds keep every promise, planted bugs are found in them, and a seed is repeated exactly."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from nats_scheduler.engine.fire import Fire
from tests.harness.seeds import seeds
from tests.simulation.planted import BUGS
from tests.simulation.process import OF_FILES, Point
from tests.simulation.scenario import DRAWS, KINDS, drawn, with_files
from tests.simulation.sidecar import Parts, SimulatedContact
from tests.simulation.timeline import EndlessError
from tests.simulation.world import World, judged

SEEDS = seeds(160)
USUAL = SEEDS[:25]
TIERS = [
    pytest.param(USUAL[:3], id="fast"),
    pytest.param(USUAL[3:], id="slow", marks=pytest.mark.slow),
    pytest.param(SEEDS[len(USUAL) :], id="deep", marks=[pytest.mark.slow, pytest.mark.deep]),
]
SEND_DELAY_SECONDS = 0.04
"""Less than the shortest look-ahead, and than what the judge allows a fire that is late."""


@pytest.mark.parametrize("option", DRAWS, ids=["plain", "files", "roll-ups", "standbys", "unable"])
@pytest.mark.parametrize("some", TIERS)
def test_no_promise_is_broken_whatever_breaks(some: range, option: str) -> None:
    for seed in some:
        broken = "\n".join(map(str, judged(DRAWS[option](seed))))
        assert not broken, f"repeat it: python -m tests.simulation --seed {seed} --trace {option}\n{broken}"


class Delayed(SimulatedContact):
    def publish(self, fires: Sequence[Fire]) -> None:
        asyncio.get_running_loop().call_later(SEND_DELAY_SECONDS, super().publish, fires)


@pytest.mark.slow
def test_no_promise_is_broken_if_fires_are_sent_late() -> None:
    for seed in USUAL[:8]:
        assert judged(drawn(seed), parts=Parts(contact=Delayed)) == [], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("promise", sorted({bug.promise for bug in BUGS.values()}))
def test_a_planted_bug_is_found_in_its_seed(promise: str) -> None:
    bugs = {name: bug for name, bug in BUGS.items() if bug.promise == promise}
    not_found = []
    for name, bug in bugs.items():
        broken = {violation.promise for violation in judged(bug.draw(bug.seed), parts=bug.parts)}
        if promise not in broken:
            not_found.append(name)
    assert not_found == [], "if the draws changed, look for other seeds"
    without = {(bug.draw, bug.seed) for bug in bugs.values() if bug.seed not in USUAL}
    assert [str(found) for draw, seed in without for found in judged(draw(seed))] == []


def test_a_seed_repeats_exactly() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        World(drawn(1), trace.append).run()
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", [29, pytest.param(60, marks=pytest.mark.deep)])
def test_a_seed_is_the_same_in_every_process(seed: int) -> None:
    """The order of events depends on neither the hashes of texts nor addresses."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"]
    traces = {
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": salt}, capture_output=True, check=True).stdout
        for salt in ("1", "2", "3")
    }
    assert len(traces) == 1


@pytest.mark.slow
@pytest.mark.deep
def test_processes_die_at_every_point_where_they_may() -> None:
    missing = set(Point)
    for seed in range(600):
        scenario = with_files(seed) if missing <= set(OF_FILES) else drawn(seed)
        if missing and "crash" in scenario.kinds:
            world = World(scenario)
            world.run()
            missing -= set(world.crashes)
    assert not missing


class TurnsWithoutEnd(SimulatedContact):
    """Asks for another turn in each turn."""

    def publish(self, fires: Sequence[Fire]) -> None:
        asyncio.get_running_loop().call_soon(self.publish, fires)


class WakesWithoutEnd(SimulatedContact):
    """Wakes again and again, a moment later each time."""

    def publish(self, fires: Sequence[Fire]) -> None:
        asyncio.get_running_loop().call_later(1e-9, self.publish, fires)


@pytest.mark.parametrize("contact", [TurnsWithoutEnd, WakesWithoutEnd])
def test_a_world_that_steps_without_end_is_stopped_and_named(contact: type[SimulatedContact]) -> None:
    with pytest.raises(EndlessError, match="50,000 steps") as stopped:
        World(drawn(7), parts=Parts(contact=contact)).run()
    assert "Scenario(seed=7, " in stopped.value.__notes__[0]


def test_the_seeds_break_everything_that_can_break() -> None:
    scenarios = [drawn(seed) for seed in range(100)]
    assert {kind for scenario in scenarios for kind in scenario.kinds} == set(KINDS)
    drawn_of = ("elects", "guard", "consumes", "misses", "instances")
    found = {name: {getattr(scenario, name) for scenario in scenarios} for name in drawn_of}
    assert found == {name: {1, 2, 3} if name == "instances" else {True, False} for name in drawn_of}
