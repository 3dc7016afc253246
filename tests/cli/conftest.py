"""The command line as a user runs it: without a context or a variable of this machine, and with an exit code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nats_scheduler.cli.main import main

Cli = Callable[..., Result]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run one command in this process: `cli("next", "@daily", env={…})`."""
    theirs: dict[str, str | None] = {name: None for name in os.environ if name.startswith("NATS")}

    def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        environ = theirs | {"XDG_CONFIG_HOME": str(tmp_path)} | (env or {})
        return CliRunner().invoke(main, list(arguments), env=environ, catch_exceptions=False)

    return run
