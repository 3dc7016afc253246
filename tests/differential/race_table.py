"""`python -m tests.differential.race_table`: all races on a native server and beside two older ones, in one run.

It prints how many fires were stored behind the acknowledged end of their schedule (stale), how late the latest of them
was, and how many acknowledged replacements were lost.
`NATS_SCHEDULER_RACES` sets how many schedules race, 3,000 unless given.
"""

import asyncio
import os
import tempfile
from pathlib import Path

os.environ.setdefault("NATS_SCHEDULER_RACES", "3000")

from nats_scheduler.cli.output import print_table
from nats_scheduler.schedule.instants import MILLISECOND
from tests.differential.races import ACTS, HERD, raced
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11, V2_15, running_server

LASTS = (0, 60)
"""The times (ms) for which the acts go on behind the instant."""


async def row(version: str, act: str, lasts: int) -> list[str]:
    """Race on a fresh server."""
    with tempfile.TemporaryDirectory(prefix="race-") as folder:
        async with running_server(version, Path(folder) / "server") as server:
            beside = Path(folder) / "sidecar" if version in EMULATED_VERSIONS else None
            tally = await raced(server.url, act, lasts * MILLISECOND, beside)
    window = f"{tally.window / MILLISECOND:.1f}" if tally.window else "-"
    return [version, act, str(lasts), str(HERD), str(tally.fired), str(tally.stale), window, str(tally.lost)]


async def main() -> None:
    """Run every race on every side."""
    rows = [await row(version, act, lasts) for act in ACTS for lasts in LASTS for version in (V2_15, V2_11, V2_10)]
    print_table(["server", "each is", "within ms", "of", "fired", "stale", "latest ms", "lost"], rows)


if __name__ == "__main__":
    asyncio.run(main())
