"""Seeds of simulated worlds keep every promise, planted bugs are found in them, and a seed is repeated exactly."""

import asyncio
from collections.abc import Sequence

import pytest

from nats_scheduler.engine.fire import Fire
from tests.harness.seeds import seeds
from tests.simulation.planted import BUGS
from tests.simulation.scenario import DRAWS, drawn
from tests.simulation.sidecar import Parts, SimulatedContact
from tests.simulation.world import World, judged

SEEDS = seeds(60)
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
