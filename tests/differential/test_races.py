"""*Latest* and *Gone* in the moment of the fire: the server decides on 2.11."""

from pathlib import Path

import pytest

from tests.conftest import SharedServer
from tests.differential.races import raced
from tests.harness.servers import V2_11

HERD = 800
"""The number of schedules that race."""

TRIES = ((0, 60), (-40, 60), (-20, 40), (0, 200), (-150, 200), (0, 600))
"""The beginning (ms, from the instant on) and the duration (ms) of the acts: some try meets the herd in the middle.

A fast machine has stored it before the server has answered the first purges.
"""

# The server itself decides on these acts on 2.11; a cancel is a message that the sidecar has to read first.
HELD_BY_THE_GUARD = ["replaced", "purged"]


@pytest.mark.clause("latest-and-gone")
@pytest.mark.parametrize("act", HELD_BY_THE_GUARD)
async def test_what_was_acknowledged_at_the_instant_of_the_fire_holds(
    act: str, shared_server: SharedServer, tmp_path: Path
) -> None:
    server = await shared_server(V2_11)
    for number, (begins, lasts) in enumerate(TRIES):
        tally = await raced(server.url, act, lasts, tmp_path / str(number), herd=HERD, begins=begins)
        assert (tally.stale, tally.lost) == (0, 0)
        if tally.was_close:
            return
    pytest.skip(f"no act met the herd in the middle in {len(TRIES)} tries")
