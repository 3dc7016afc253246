"""A stream that goes back to an earlier state, or is created again under the same name, while it is served.

The rule: each test fails with the bug planted that it stands for.
"""

from collections import Counter
from random import Random

import pytest

from nats_scheduler.engine.reading import landed as forgeries
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.runtime import continuity
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import SECOND
from tests.simulation.fleet import SimulatedFleet
from tests.simulation.planted import planted
from tests.simulation.planted_division import Changes
from tests.simulation.scenario import ANSWER_DEADLINE, LIVE

pytestmark = pytest.mark.slow

worlds = pytest.mark.parametrize("divides", [True, False], ids=["divided", "undivided"])
servers = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])


def step_back_unnoticed() -> Changes:
    """Assume that messages that were read are stored for ever."""

    async def unnoticed(*_args: object) -> str:
        return ""

    yield continuity, "step_back", unnoticed
    yield StreamService, "serves_the_same", lambda *_: True


def older_fire_elsewhere_believed() -> Changes:
    """Take a fire that was stored before its schedule for one of it."""
    yield forgeries, "is_older", lambda *_: False


def fires_after_a_return(*, divides: bool, guard: bool = True, is_new: bool = False) -> dict[str, list[int]]:
    """Let a stream go back, and return for which times each schedule fired since.

    At 0 s `s.old` and `s.late` are stored, a copy is made, and `s.lost` is stored; all have fired when the stream goes
    back at 4.5 s. At 5 s `s.new` is stored, and the world ends at 11 s.
    """
    with SimulatedFleet(divides=divides, guard=guard, consumes=False, lags=False) as fleet:
        for name in ("i0", "i1"):
            fleet.boot(name)
        fleet.timeline.run(3 * SECOND)
        begin = fleet.timeline.now
        fleet.store("s.old", "@every 1s")
        fleet.store("s.late", f"@at {format_rfc3339(fleet.timeline.now + 2 * SECOND)}")
        through, messages = (0, []) if is_new else fleet.server.stream.copied()
        fleet.store("s.lost", "@every 1s")
        fleet.timeline.run(4 * SECOND + SECOND // 2)
        fires = fleet.server.history.fires
        assert {fire.schedule for fire in fires} == {"s.old", "s.late", "s.lost"}
        fires.clear()
        fleet.server.go_back(through, messages)
        fleet.timeline.run(SECOND // 2)
        fleet.store("s.new", "@every 1s")
        fleet.timeline.run(LIVE + 3 * SECOND)
        assert fleet.holders() == dict.fromkeys(ALL_SHARDS, 1 if divides else 2)
        found: dict[str, list[int]] = {}
        for fire in fires:
            assert fire.fire_time is not None
            found.setdefault(fire.schedule, []).append((fire.fire_time - begin) // SECOND)
        return found


@worlds
@servers
def test_what_is_stored_after_a_return_fires_and_what_is_gone_does_not(*, divides: bool, guard: bool) -> None:
    fired = fires_after_a_return(divides=divides, guard=guard)
    assert fired.keys() == {"s.old", "s.late", "s.new"}
    assert fired["s.new"][-3:] == [8, 9, 10]


@worlds
def test_what_had_fired_behind_the_copy_fires_once_more(*, divides: bool) -> None:
    assert fires_after_a_return(divides=divides)["s.late"] == [2]


@worlds
def test_a_stream_that_is_made_anew_is_served_from_its_beginning(*, divides: bool) -> None:
    fired = fires_after_a_return(divides=divides, is_new=True)
    assert fired.keys() == {"s.new"}
    assert fired["s.new"][-3:] == [8, 9, 10]


def fires_in_the_end(seed: int) -> Counter[tuple[str, int]]:
    """Let a stream go back while other things break; count the fires for the last 3 s, by schedule and second."""
    random = Random(f"return {seed}")
    divides, guard, is_new = (random.random() < 0.5 for _ in range(3))
    with SimulatedFleet(divides=divides, guard=guard, consumes=False, lags=False) as fleet:
        instances = [fleet.boot(name) for name in ("i0", "i1")]
        fleet.timeline.run(3 * SECOND)
        if not is_new:
            fleet.store("s.old", "@every 1s")
        copy = fleet.server.stream.copied()
        fleet.store("s.lost", "@every 1s")
        fleet.timeline.run(int(random.random() * 5 * SECOND))
        troubled, trouble = random.choice(instances), random.choice(["lossy", "slow", "cut", "stall", "kill"])
        if trouble in ("lossy", "slow"):
            troubled.weather.kinds.add(trouble)
        elif trouble == "cut":
            troubled.cut(2 * SECOND)
        elif trouble == "stall":
            troubled.process.stall()
        else:
            troubled.kill()
        fleet.timeline.run(int(random.random() * 2 * SECOND))
        fleet.server.go_back(*copy)
        fleet.timeline.run(int(random.random() * 2 * SECOND))
        fleet.store("s.new", "@every 1s")
        troubled.weather.kinds.clear()
        troubled.wake(acts_first=random.random() < 0.5)
        if not troubled.is_alive:
            troubled.boot("latest")
        fleet.timeline.run(ANSWER_DEADLINE + 3 * LIVE)
        begin, fires = fleet.timeline.now, fleet.server.history.fires
        fires.clear()
        fleet.timeline.run(3 * SECOND + SECOND // 2)
        assert fleet.holders() == dict.fromkeys(ALL_SHARDS, 1 if divides else 2), trouble
        times = ((fire.schedule, ((fire.fire_time or 0) - begin) // SECOND) for fire in fires)
        assert is_new or "s.old" in {fire.schedule for fire in fires}, trouble
        return Counter((schedule, second) for schedule, second in times if 0 <= second < 3)


@pytest.mark.parametrize("part", range(4))
def test_whatever_breaks_beside_it_each_schedule_fires_once_for_each_time(part: int) -> None:
    for seed in range(part, 60, 4):
        fires = fires_in_the_end(seed)
        fired = {schedule for schedule, _second in fires}
        assert "s.new" in fired <= {"s.old", "s.new"}, seed
        assert fires == {(schedule, second): 1 for schedule in fired for second in range(3)}, seed


@worlds
def test_a_return_that_nobody_notices_is_seen(*, divides: bool) -> None:
    with planted(step_back_unnoticed):
        assert "s.new" not in fires_after_a_return(divides=divides)


def fires_elsewhere_of_three_streams(*, divides: bool, guard: bool) -> list[int]:
    """Make a stream anew twice, each time with the same `@at`; return the fires in the other stream, by second."""
    with SimulatedFleet(divides=divides, guard=guard, consumes=False, lags=False, elsewhere=True) as fleet:
        for name in ("i0", "i1"):
            fleet.boot(name)
        fleet.timeline.run(3 * SECOND)
        begin = fleet.timeline.now
        for _ in range(3):
            fleet.store_for_elsewhere("s.again", f"@at {format_rfc3339(begin + SECOND)}")
            fleet.timeline.run(LIVE + SECOND)
            fleet.server.go_back(0, [])
        return [((fire.fire_time or 0) - begin) // SECOND for fire in fleet.server.history.fires]


@worlds
@servers
def test_a_schedule_that_is_stored_again_in_a_stream_made_anew_fires_elsewhere_again(
    *, divides: bool, guard: bool
) -> None:
    assert fires_elsewhere_of_three_streams(divides=divides, guard=guard) == [1, 1, 1]


@worlds
def test_a_fire_of_the_stream_before_that_is_believed_is_seen(*, divides: bool) -> None:
    with planted(older_fire_elsewhere_believed):
        assert len(fires_elsewhere_of_three_streams(divides=divides, guard=True)) < 3
