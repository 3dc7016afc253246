"""What a stream loses while it is served: removals that nobody requested, and a stream that goes back or is made anew.

It tests `runtime/continuity.py` too, and `runtime/server_port.py`.
"""

from collections import Counter
from itertools import product
from random import Random

import pytest

from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.runtime.removals import LONGEST_WAIT_SECONDS
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.harness.seeds import seeds
from tests.judge.history import SECOND
from tests.simulation.fleet import two
from tests.simulation.scenario import ANSWER_DEADLINE, LIVE

pytestmark = pytest.mark.slow

STORED = frozenset({"s.tick", *(f"s.{number}" for number in range(12))})


@pytest.mark.parametrize("how", ["from within", "from the beginning", "on request"])
@pytest.mark.parametrize("elects", [True, False], ids=["owned", "by all"])
def test_what_is_removed_is_listed_no_more(how: str, *, elects: bool) -> None:
    """Both instances list the same; `s.4` is rejected, and listed too."""
    with two(elects=elects) as (fleet, *instances):
        for number in range(12):
            at = f"@at {format_rfc3339(fleet.timeline.now + (30 + 600 * (number % 2)) * 60 * SECOND)}"
            fleet.store(f"s.{number}", "every day" if number == 4 else at)
        fleet.store("s.tick", "@every 1s")
        fleet.timeline.run(2 * SECOND)
        assert all(instance.schedules == STORED for instance in instances)
        removed = (3, 4, 9) if how == "from within" else range(6)
        for number in removed:
            fleet.server.stream.purge(f"s.{number}")
        if how == "on request":
            fleet.server.listeners += instances
            fleet.server.tell_of_removal(RemovalRequested("s.*"))
        else:
            for instance in instances:
                instance.list_streams()
        fleet.timeline.run(int(2 * LONGEST_WAIT_SECONDS * SECOND))
        assert fleet.fires_within(3 * SECOND) == {"s.tick": 3}, "what is stored fires"
        assert all(one.schedules == STORED - {f"s.{number}" for number in removed} for one in instances)


def fires_in_the_end(seed: int) -> Counter[tuple[str, int]]:
    """Let a stream go back while other things break; count the fires for the last 3 s, by schedule and second."""
    random = Random(f"return {seed}")
    elects, guard, is_new = (random.random() < 0.5 for _ in range(3))
    with two(elects=elects, guard=guard) as (fleet, *instances):
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
        assert len(fleet.owners()) == (1 if elects else 2), trouble
        times = ((fire.schedule, ((fire.fire_time or 0) - begin) // SECOND) for fire in fires)
        assert is_new or "s.old" in {fire.schedule for fire in fires}, trouble
        return Counter((schedule, second) for schedule, second in times if 0 <= second < 3)


@pytest.mark.parametrize("some", [seeds(24)[:8], pytest.param(seeds(24)[8:], marks=pytest.mark.deep)], ids=str)
def test_after_a_return_each_schedule_fires_once_for_each_time(some: range) -> None:
    for seed in some:
        fires = fires_in_the_end(seed)
        fired = {schedule for schedule, _second in fires}
        assert "s.new" in fired <= {"s.old", "s.new"}, seed
        assert fires == dict.fromkeys(product(fired, range(3)), 1), seed
