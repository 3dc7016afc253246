"""A leader that is behind the node from which its stream is followed, in worlds made by hand.

The rule: each test fails with the bug planted that it stands for.
"""

import pytest

from nats_scheduler.engine.firing.outcomes import Outcomes
from nats_scheduler.engine.holding import lifecycle as refusals
from nats_scheduler.engine.inputs import FiresStored
from tests.judge.history import SECOND
from tests.simulation.fleet import SimulatedFleet
from tests.simulation.planted import planted
from tests.simulation.planted_division import Changes
from tests.simulation.scenario import LIVE

pytestmark = pytest.mark.slow

SCHEDULES = frozenset(f"s.{number}" for number in range(12))

worlds = pytest.mark.parametrize("divides", [True, False], ids=["divided", "undivided"])


def refusal_ended_by_the_fire_before() -> Changes:
    """Let refusals of a moment rest as others do, and take whatever is stored of a schedule for its refused fire."""
    original = Outcomes.were_stored

    def were_stored(self: Outcomes, stored: FiresStored, now: int) -> None:
        known = self._lifecycle.refusals
        for fire in stored.fires:
            if fire.sequence in known.held:
                known.stored(fire.sequence, now)
        original(self, stored, now)

    yield refusals, "OF_A_MOMENT", frozenset()
    yield Outcomes, "were_stored", were_stored


def fired_after_a_leader_was_behind(*, divides: bool) -> set[str]:
    """Return which of the schedules, one fire a second each, fire within 3 s after their leader has caught up.

    It was behind by more than their interval: it refused their fires, and acknowledged the fires before them later.
    """
    with SimulatedFleet(divides=divides, guard=True, consumes=False, lags=True) as fleet:
        fleet.boot("i0")
        fleet.timeline.run(3 * SECOND)
        for schedule in SCHEDULES:
            fleet.store(schedule, "@every 1s")
        fleet.timeline.run(3 * SECOND)
        fleet.server.stream.behind = 3 * SECOND // 2
        fleet.timeline.run(5 * SECOND)
        fleet.server.stream.behind = 0
        fires = fleet.server.history.fires
        fires.clear()
        fleet.timeline.run(LIVE)
        return {fire.schedule or "" for fire in fires}


@worlds
def test_all_fire_soon_after_their_leader_has_caught_up(*, divides: bool) -> None:
    assert fired_after_a_leader_was_behind(divides=divides) == SCHEDULES


@worlds
def test_a_refusal_that_the_fire_before_ends_is_seen(*, divides: bool) -> None:
    with planted(refusal_ended_by_the_fire_before):
        assert fired_after_a_leader_was_behind(divides=divides) != SCHEDULES
