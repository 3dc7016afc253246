"""The list of commands: the same as the commands, and cheap to print; a command imports only what it needs.

It tests `cli/options.py` too.
"""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from nats_scheduler.cli.main import COMMANDS, main
from nats_scheduler.version import VERSION
from tests.cli.prompt import Cli

DEAR = ("nats", "nats_scheduler.jetstream", "pydantic", "rich", "asyncio", "prometheus_client")
"""The modules that `next`, `explain`, `check`, completion and help must not import."""

PROGRAM = """
import sys
import click
from nats_scheduler.cli.main import main
offered = main.shell_complete(click.Context(main), "")
print("completed", len(offered) > 30, [name for name in {dear!r} if name in sys.modules])
for arguments in (["--help"], ["next", "@daily", "--json"], ["explain", "@daily"], ["check", "@daily"]):
    main(arguments, standalone_mode=False)
    print("imported", [name for name in {dear!r} if name in sys.modules])
"""


def test_help_lists_every_command_with_what_it_says_of_itself(cli: Cli) -> None:
    shown = cli("--help")
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.partition("Commands:\n")[2].splitlines()] == list(COMMANDS)
    commands = {name: main.get_command(click.Context(main), name) for name in COMMANDS}
    said = {name: (one.name, (one.help or "").splitlines()[0]) for name, one in commands.items() if one is not None}
    assert said == {name: (name, summary) for name, (_place, summary) in COMMANDS.items()}


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version").output == f"nats-scheduler {VERSION}\n"


@pytest.mark.server
def test_what_needs_no_server_does_not_import_the_client() -> None:
    command = [sys.executable, "-c", PROGRAM.format(dear=DEAR)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said = [line for line in shown.stdout.splitlines() if line.startswith(("imported", "completed"))]
    assert said == ["completed True []", *["imported []"] * 4]
