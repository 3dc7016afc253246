"""The memory and the start time of a sidecar: it imports only what it needs."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11

NEEDLESS = (
    *("rich", "pygments", "structlog", "yaml", "nkeys", "nacl", "jinja2", "starlette", "uvicorn", "croniter"),
    *("jsonschema", "hypothesis", "nats_scheduler.client", "nats_scheduler.web", "nats_scheduler.testing"),
)
"""Libraries and rooms that other commands use, or a sidecar whose user has a key; 8 MB in all."""

PROGRAM = """
import json, sys
from nats_scheduler.cli.main import main
main({arguments!r}, standalone_mode=False)
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.server
async def test_a_sidecar_that_fires_has_imported_nothing_that_it_does_not_need(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    program = PROGRAM.format(arguments=["run", "--no-context", "-s", server.url])
    async with account_on(server.url) as account:
        await account.create("S", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        with ChildProcess([sys.executable, "-c", program], tmp_path) as process:
            await process.wait_for_line("stream_ready")
            await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"})
            await account.wait_for("S", "S.out")
            assert await process.terminate() == 0
            imported = json.loads(process.stdout)
    assert {"nats_scheduler.runtime.sidecar", "nats"} <= set(imported)
    assert [name for name in imported if name.startswith(NEEDLESS)] == []
