"""The program in `docs/examples/` runs as it is, with a sidecar and on a server that fires by itself."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, sidecar_on
from tests.harness.servers import V2_10, V2_11, V2_14, V2_15
from tests.house.sources import ROOT

REMINDERS = ROOT / "docs" / "examples" / "reminders.py"
EXPECTED = """\
report added
report unchanged
the report of 23 November 2026 is due at 08:30 UTC
refused with 10071
stored orders.schedules.reminder.17, orders.schedules.reminder.18
remind of order 17: orders.schedules.reminder.17 is done: True
its history has the same fire: True
orders.schedules.report is paused: True
"""


async def run(program: Path, url: str) -> str:
    """Run a program as a user does, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    output, errors = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
    assert (process.returncode, errors.decode()) == (0, "")
    return output.decode()


@pytest.mark.parametrize("version", [V2_10, V2_11])
async def test_it_runs_with_a_sidecar(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with sidecar_on(server.url):
        assert await run(REMINDERS, server.url) == EXPECTED


@pytest.mark.parametrize("version", [V2_14, V2_15])
async def test_it_runs_on_a_server_that_fires_by_itself(start_server: StartServer, version: str) -> None:
    assert await run(REMINDERS, (await start_server(version)).url) == EXPECTED
