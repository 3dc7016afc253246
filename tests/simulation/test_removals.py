"""Removals by the stream itself, or on a request that nobody saw: no instance holds what was removed any more.

The rule: each test fails with the bug planted that it stands for.
"""

import asyncio

import pytest

from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.runtime.port import StreamContents
from nats_scheduler.runtime.removals import LONGEST_WAIT_SECONDS, Removals
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import SECOND
from tests.simulation.fleet import SimulatedFleet
from tests.simulation.planted import planted
from tests.simulation.planted_division import Changes
from tests.simulation.server import Server

pytestmark = pytest.mark.slow

worlds = pytest.mark.parametrize("divides", [True, False], ids=["divided", "undivided"])
servers = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])

STORED = frozenset({"s.tick", *(f"s.{number}" for number in range(12))})


def removals_not_followed() -> Changes:
    """Never look what the stream has removed."""

    async def follow(_self: Removals, _api: StreamContents) -> None:
        await asyncio.get_running_loop().create_future()

    yield Removals, "follow", follow


def all_said_to_be_removed() -> Changes:
    """Have the server say that it has removed all that is stored."""
    yield Server, "removed", lambda self: (self.stream.last_sequence + 1, frozenset())


def left_after(how: str, *, divides: bool, guard: bool = True) -> set[str]:
    """Store schedules, remove some `how`, and return what both instances list in the end; the rest has to fire.

    The removals from within are `s.3`, `s.4` and `s.9`, of which the second is rejected; from the beginning, up to
    `s.5`.
    """
    with SimulatedFleet(divides=divides, guard=guard, consumes=False, lags=False) as fleet:
        instances = [fleet.boot(name) for name in ("i0", "i1")]
        fleet.timeline.run(3 * SECOND)
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
        fires = fleet.server.history.fires
        fires.clear()
        fleet.timeline.run(3 * SECOND)
        assert len(fires) == 3, "what is stored fires"
        first, second = (instance.schedules for instance in instances)
        assert first == second
        return first


FROM_WITHIN = STORED - {"s.3", "s.4", "s.9"}
FROM_THE_BEGINNING = STORED - {f"s.{number}" for number in range(6)}


@worlds
@servers
@pytest.mark.parametrize(
    ("how", "left"),
    [
        ("from within", FROM_WITHIN),
        ("from the beginning", FROM_THE_BEGINNING),
        ("on request", FROM_THE_BEGINNING),
        ("not at all", STORED),
    ],
)
def test_what_is_removed_is_listed_no_more(how: str, left: set[str], *, divides: bool, guard: bool) -> None:
    assert left_after(how, divides=divides, guard=guard) == left


@worlds
@pytest.mark.parametrize("how", ["from within", "from the beginning", "on request"])
def test_removals_that_nobody_follows_are_seen(how: str, *, divides: bool) -> None:
    with planted(removals_not_followed):
        assert left_after(how, divides=divides) == STORED


@worlds
def test_a_server_that_contradicts_itself_ends_no_schedule(*, divides: bool) -> None:
    with planted(all_said_to_be_removed):
        assert left_after("not at all", divides=divides) == STORED
