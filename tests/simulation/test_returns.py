"""A stream that goes back to an earlier state, or is made anew under the same name, while it is served.

The rule: each test fails with the bug planted that it stands for.
"""

import pytest

from nats_scheduler.engine.shards import ALL_SHARDS
from nats_scheduler.runtime import stream_service
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import SECOND
from tests.simulation.fleet import Fleet
from tests.simulation.planted import planted
from tests.simulation.planted_division import Changes
from tests.simulation.scenario import LIVE

worlds = pytest.mark.parametrize("divides", [True, False], ids=["divided", "undivided"])
servers = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])


def step_back_unnoticed() -> Changes:
    """Believe that what was read of a stream is there for ever."""

    async def unnoticed(*_args: object) -> str:
        return ""

    yield stream_service, "step_back", unnoticed
    yield StreamService, "serves_the_same", lambda *_: True


def fires_after_a_return(*, divides: bool, guard: bool = True, is_new: bool = False) -> dict[str, list[int]]:
    """Have a stream go back, and return for which times each schedule fired since.

    At 0 s `s.old` and `s.late` are stored, a copy is made, and `s.lost` is stored; all have fired when the stream goes
    back at 4.5 s. At 5 s `s.new` is stored, and 11 s are the end.
    """
    with Fleet(divides=divides, guard=guard, consumes=False, lags=False) as fleet:
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


@worlds
def test_a_return_that_nobody_notices_is_seen(*, divides: bool) -> None:
    with planted(step_back_unnoticed):
        assert "s.new" not in fires_after_a_return(divides=divides)
