"""The command line as a user runs it: without a context or a variable of this machine, and with an exit code."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nats_scheduler.cli.main import main
from tests.cli.changing_site import PORTABLE, SITES, Cli, Site, site_on
from tests.conftest import SharedServer
from tests.harness.servers import V2_15

__all__ = ["Cli"]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run one command in this process: `cli("next", "@daily", env={…})`."""
    theirs: dict[str, str | None] = {name: None for name in os.environ if name.startswith("NATS")}

    def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        environ = theirs | {"XDG_CONFIG_HOME": str(tmp_path)} | (env or {})
        return CliRunner().invoke(main, list(arguments), env=environ, catch_exceptions=False)

    return run


@pytest.fixture(params=SITES)
async def site(
    cli: Cli, request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str
) -> AsyncIterator[Site]:
    """A stream of each kind, on which commands change schedules."""
    version = V2_15 if request.param == PORTABLE else request.param
    server = await shared_server(version)
    async with site_on(cli, server.url, request.param, stream_name) as one:
        yield one
