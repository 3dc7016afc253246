"""Worlds in which targets are rolled up by purges keep every promise, also if instances are killed in between.

Limit: the next fire makes up for a roll-up that a crash prevented, so that few seeds show one that is not repeated: see
`tests/engine/test_roll_ups.py`.
"""

from collections.abc import Callable

import pytest

from nats_scheduler.engine.removing.purges import Purges
from tests.judge.checkers import Violation, verdict
from tests.simulation.planted import planted
from tests.simulation.planted_division import Changes
from tests.simulation.scenario import with_roll_ups
from tests.simulation.world import World

SEEDS = 40


def roll_up_forgotten() -> Changes:
    """Roll up no target that the fire cannot roll up itself."""
    yield Purges, "roll_up", lambda _self, _target, _through, _shard: None


def roll_up_of_the_fire_too() -> Changes:
    """Purge the fire with what lies below it."""
    original = Purges.roll_up
    yield Purges, "roll_up", lambda self, target, through, shard: original(self, target, through + 1, shard)


OF_ROLL_UPS: dict[Callable[[], Changes], tuple[str, int]] = {
    roll_up_forgotten: ("Faithful", 5),
    roll_up_of_the_fire_too: ("Complete", 1),
}
"""Each bug, the promise that it breaks, and a seed that shows it."""


def broken(seed: int) -> list[Violation]:
    """Run a seed and return what it shows to be broken."""
    return verdict(World(with_roll_ups(seed)).run())


@pytest.mark.slow
def test_no_promise_is_broken_where_targets_are_purged() -> None:
    for seed in range(SEEDS):
        assert broken(seed) == [], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("bug", OF_ROLL_UPS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_in_its_seed_and_not_without_it(bug: Callable[[], Changes]) -> None:
    promise, seed = OF_ROLL_UPS[bug]
    with planted(bug):
        assert promise in {violation.promise for violation in broken(seed)}
    assert broken(seed) == []
