"""The programs of `docs/examples/clients/` are run as they are, by the tools of their languages."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.processes import ChildProcess, clean_environment
from tests.harness.seeds import EFFORT
from tests.harness.servers import V2_11
from tests.harness.toolchains import CLIENTS, PROGRAMS
from tests.harness.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.deep

PRINTED = """\
orders.schedules.pulse fired: pulse, and fires again
orders.schedules.reminder fired: remind of order 17, for the last time
orders.schedules.report fired: open orders, and fires again
orders.schedules.report is replaced
orders.schedules.pulse is ended
"""


async def printed(command: list[str], env: Mapping[str, str], folder: Path, name: str) -> str:
    """Run a program to its end, and return what it prints if it ends well."""
    with ChildProcess(command, folder, name=name, env={**clean_environment(folder), **env}) as process:
        code = await process.wait_for_exit(within_seconds=PATIENCE_SECONDS)
        assert (code, process.stderr) == (0, ""), process.stdout
        return process.stdout


COMPILED_FOR_MINUTES = ("nats-rust",)


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_program_of_another_client_runs(start_server: StartServer, client: str, tmp_path: Path) -> None:
    if client in COMPILED_FOR_MINUTES and EFFORT == 1:
        pytest.skip("compiling it takes as long as the rest of the tier: TEST_EFFORT=2")
    server = await start_server(V2_11)
    program = await asyncio.to_thread(CLIENTS[client], tmp_path)
    async with sidecar_on(server.url):
        assert await printed([*program.command, server.url], program.env, tmp_path, client) == PRINTED


def test_each_folder_of_examples_is_run() -> None:
    assert {path.name for path in PROGRAMS.iterdir() if path.is_dir()} == set(CLIENTS)
