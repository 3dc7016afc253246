"""The command line as a user runs it: without a context or a variable of this machine, and with an exit code."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nats_scheduler.cli.main import main
from tests.cli.changing_site import Site, site_on
from tests.cli.prompt import Cli, Prompt, prompt_on
from tests.conftest import SharedServer, StartServer
from tests.harness.servers import V2_11


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run one command in this process: `cli("next", "@daily", env={…})`."""
    theirs: dict[str, str | None] = {name: None for name in os.environ if name.startswith("NATS")}

    def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        environ = theirs | {"XDG_CONFIG_HOME": str(tmp_path)} | (env or {})
        return CliRunner().invoke(main, list(arguments), env=environ, catch_exceptions=False)

    return run


@pytest.fixture
async def prompt(cli: Cli, start_server: StartServer) -> AsyncIterator[Prompt]:
    """The command line against a server of the test's own, on which sidecars fire; none runs yet."""
    server = await start_server(V2_11)
    async with prompt_on(cli, server.url) as one:
        yield one


@pytest.fixture
async def orders(cli: Cli, shared_server: SharedServer, stream_name: str) -> AsyncIterator[Site]:
    """A stream on which commands change schedules."""
    server = await shared_server(V2_11)
    async with site_on(cli, server.url, stream_name) as one:
        yield one
