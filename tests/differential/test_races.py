"""*Latest* and *Gone* in the moment of the fire: the server decides on 2.11, and the native scheduler does not."""

from pathlib import Path

import pytest

from nats_scheduler.schedule.instants import MILLISECOND
from tests.conftest import StartServer
from tests.differential.races import raced
from tests.harness.servers import V2_11, V2_15

TRIES = ((0, 60), (-40, 60), (-20, 40), (0, 200), (-150, 200), (0, 600))
"""The beginning (ms, from the instant on) and the duration (ms) of the acts: some try meets the herd in the middle.

A fast machine has stored it before the server has answered the first purges.
"""


HELD_BY_THE_GUARD = ("replaced", "overwritten", "deleted", "purged")
"""The acts on which the server itself decides on 2.11; a cancel is a message that the sidecar has to read first."""


@pytest.mark.clause("latest-and-gone")
@pytest.mark.parametrize("act", HELD_BY_THE_GUARD)
async def test_what_was_acknowledged_at_the_instant_of_the_fire_holds(
    act: str, start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    tallies = []
    for number, (begins, lasts) in enumerate(TRIES):
        folder = tmp_path / str(number)
        tallies.append(await raced(server.url, act, lasts * MILLISECOND, folder, begins=begins * MILLISECOND))
        assert (tallies[-1].stale, tallies[-1].lost) == (0, 0)
        if tallies[-1].was_close:
            return
    raise AssertionError(f"nothing raced: {tallies}")


@pytest.mark.clause("latest-and-gone")
async def test_the_native_scheduler_loses_updates_in_the_same_race(start_server: StartServer) -> None:
    server = await start_server(V2_15)
    for lasts in (0, 0, 10 * MILLISECOND, 0, 10 * MILLISECOND):
        tally = await raced(server.url, "replaced", lasts)
        if tally.lost and tally.stale:
            return
    pytest.skip("the native scheduler was lucky in five races: it lost no update")
