"""A sidecar with a lateness budget, as a process of its own: only its event loop rests (`runtime.punctual`).

What is asserted holds however busy the machine is: that makes fires come together, and never apart.
"""

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on
from tests.harness.blocks import block_to_send
from tests.harness.burst import Burst
from tests.harness.flagged import FLAGGED
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11

pytestmark = pytest.mark.server

FIRES, SPAN_SECONDS = 400, 2
"""At 200 a second, of which a third follow each other within 2 ms by chance."""

MOST_TURNS = 60
"""Turns of the second half, in which fires share wakes: 5 or 6 if the machine lets it, 130 without a budget."""


async def test_with_a_budget_fires_are_sent_together_and_each_once_and_none_before_its_time(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", metadata=FLAGGED)
        flags = ("run", "-s", server.url, "--lateness-budget", "S=250ms,0s")
        with sidecar(*flags, folder=tmp_path) as process:
            await process.wait_for_line("owner_changed")
            begin, draw = CLOCK.now() + SECOND, Random(1)
            dues = sorted(begin + draw.randrange(SPAN_SECONDS * SECOND) for _ in range(FIRES))
            schedules = [
                (
                    f"S.s.{number}",
                    block_to_send({"Nats-Schedule": f"@at {format_rfc3339(due)}", "Nats-Schedule-Target": "S.out"}),
                    b"%d" % number,
                )
                for number, due in enumerate(dues)
            ]
            burst = Burst(account, "budget")
            burst.write(b"".join(burst.frames(schedules)))
            await burst.answered(FIRES)
            fired = await account.wait_for("S", "S.out", FIRES)
            assert await process.terminate() == 0
        assert await account.number_on("S", "S.s.*") == 0, "all are purged"
    numbers = [int(one.body or b"") for one in fired]
    assert sorted(numbers) == list(range(FIRES))
    assert all(one.stored_at >= dues[number] for one, number in zip(fired, numbers, strict=True))
    half = [one.stored_at for one in fired if one.stored_at >= begin + SPAN_SECONDS * SECOND // 2]
    turns = 1 + sum(late - early > 2 * MILLISECOND for early, late in pairwise(half))
    assert turns <= MOST_TURNS
