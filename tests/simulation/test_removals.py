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

worlds = pytest.mark.parametrize("elects", [True, False], ids=["owned", "by all"])

STORED = frozenset({"s.tick", *(f"s.{number}" for number in range(12))})
FROM_THE_BEGINNING = STORED - {f"s.{number}" for number in range(6)}
LEFT = {
    "from within": STORED - {"s.3", "s.4", "s.9"},
    "from the beginning": FROM_THE_BEGINNING,
    "on request": FROM_THE_BEGINNING,
    "not at all": STORED,
}
"""How something is removed, and what is left."""


def left_after(how: str, *, elects: bool, guard: bool = True) -> set[str]:
    """Store schedules, remove some `how`, and return what both instances list in the end; the rest has to fire.

    `s.4` is rejected.
    """
    with two(elects=elects, guard=guard) as (fleet, *instances):
        for number in range(12):
            at = f"@at {format_rfc3339(fleet.timeline.now + (30 + 600 * (number % 2)) * 60 * SECOND)}"
            fleet.store(f"s.{number}", "every day" if number == 4 else at)
        fleet.store("s.tick", "@every 1s")
        fleet.timeline.run(2 * SECOND)
        assert all(instance.schedules == STORED for instance in instances)
        stream = fleet.server.stream
        if how == "from within":
            for number in (3, 4, 9):
                stream.purge(f"s.{number}")
        elif how != "not at all":
            for sequence in range(1, 7):
                stream.delete(sequence)
        if how == "on request":
            fleet.server.listeners += instances
            fleet.server.tell_of_removal(RemovalRequested("s.*"))
        else:
            for instance in instances:
                instance.list_streams()
        fleet.timeline.run(int(2 * LONGEST_WAIT_SECONDS * SECOND))
        assert fleet.fires_within(3 * SECOND) == {"s.tick": 3}, "what is stored fires"
        first, second = (instance.schedules for instance in instances)
        assert first == second
        return first


@pytest.mark.parametrize("how", LEFT)
def test_what_is_removed_is_listed_no_more(how: str) -> None:
    for elects, guard in ((True, True), (True, False), (False, True)):
        assert left_after(how, elects=elects, guard=guard) == LEFT[how], f"elects: {elects}, guard: {guard}"


def fires_after_a_return(*, elects: bool, guard: bool = True, is_new: bool = False) -> dict[str, list[int]]:
    """Let a stream go back, and return for which times each schedule fired since.

    At 0 s `s.old` and `s.late` are stored, a copy is made, and `s.lost` is stored; all have fired when the stream goes
    back at 4.5 s. At 5 s `s.new` is stored, and the world ends at 11 s.
    """
    with two(elects=elects, guard=guard) as (fleet, _first, _second):
        begin = fleet.timeline.now
        fleet.store("s.old", "@every 1s")
        fleet.store("s.late", f"@at {format_rfc3339(fleet.timeline.now + 2 * SECOND)}")
        through, messages = (0, []) if is_new else fleet.server.stream.copied()
        fleet.store("s.lost", "@every 1s")
        assert fleet.fires_within(4 * SECOND + SECOND // 2).keys() == {"s.old", "s.late", "s.lost"}
        fires = fleet.server.history.fires
        fires.clear()
        fleet.server.go_back(through, messages)
        fleet.timeline.run(SECOND // 2)
        fleet.store("s.new", "@every 1s")
        fleet.timeline.run(LIVE + 3 * SECOND)
        assert len(fleet.owners()) == (1 if elects else 2)
        found: dict[str, list[int]] = {}
        for fire in fires:
            assert fire.fire_time is not None
            found.setdefault(fire.schedule, []).append((fire.fire_time - begin) // SECOND)
        return found


@worlds
def test_after_a_return_what_is_stored_fires_and_nothing_else(*, elects: bool) -> None:
    for guard in (True, False):
        fired = fires_after_a_return(elects=elects, guard=guard)
        assert fired.keys() == {"s.old", "s.late", "s.new"}
        assert fired["s.new"][-3:] == [8, 9, 10]
        assert fired["s.late"] == [2] or not guard, "what had fired behind the copy fires once more"


@worlds
def test_a_stream_that_is_made_anew_is_served_from_its_beginning(*, elects: bool) -> None:
    fired = fires_after_a_return(elects=elects, is_new=True)
    assert fired.keys() == {"s.new"}
    assert fired["s.new"][-3:] == [8, 9, 10]


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


@pytest.mark.parametrize("some", [seeds(60)[:20], pytest.param(seeds(60)[20:], marks=pytest.mark.deep)], ids=str)
def test_after_a_return_each_schedule_fires_once_for_each_time(some: range) -> None:
    for seed in some:
        fires = fires_in_the_end(seed)
        fired = {schedule for schedule, _second in fires}
        assert "s.new" in fired <= {"s.old", "s.new"}, seed
        assert fires == dict.fromkeys(product(fired, range(3)), 1), seed


def fires_elsewhere_of_three_streams(*, elects: bool, guard: bool) -> list[int]:
    """Make a stream anew twice, each time with the same `@at`; return the fires in the other stream, by second."""
    with two(elects=elects, guard=guard, elsewhere=True) as (fleet, _first, _second):
        begin = fleet.timeline.now
        for _ in range(3):
            fleet.store_for_elsewhere("s.again", f"@at {format_rfc3339(begin + SECOND)}")
            fleet.timeline.run(LIVE + SECOND)
            fleet.server.go_back(0, [])
        return [((fire.fire_time or 0) - begin) // SECOND for fire in fleet.server.history.fires]


@worlds
def test_what_is_stored_in_a_stream_made_anew_fires_elsewhere_again(*, elects: bool) -> None:
    for guard in (True, False):
        assert fires_elsewhere_of_three_streams(elects=elects, guard=guard) == [1, 1, 1]
