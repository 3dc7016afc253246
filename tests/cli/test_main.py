"""The list of commands: complete, the same as the commands, and cheap to print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from nats_scheduler.cli.main import COMMANDS, main
from nats_scheduler.version import VERSION
from tests.cli.conftest import Cli

DEAR = ("nats", "nats_scheduler.jetstream", "pydantic", "rich", "asyncio", "prometheus_client")
"""The modules that `next`, `explain`, `check` and help must not import."""

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def test_help_lists_every_command(cli: Cli) -> None:
    shown = cli("--help")
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.partition("Commands:\n")[2].splitlines()] == list(COMMANDS)


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version").output == f"nats-scheduler {VERSION}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_page_has_a_section_for_every_command(name: str) -> None:
    assert f"\n## nats-scheduler {name}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["next", "explain", "check", "settings show"])
def test_the_reference_page_names_every_option(name: str) -> None:
    command: click.Command | None = main
    for part in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), part)
    assert command is not None
    page = PAGE.read_text(encoding="utf-8") + (PAGE.parent / "settings.md").read_text(encoding="utf-8")
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    assert [option for option in options if f"`{option}" not in page] == []


def test_a_command_that_does_not_exist_is_wrong_use(cli: Cli) -> None:
    assert cli("fly").exit_code == 2


@pytest.mark.server
@pytest.mark.parametrize(
    "arguments", [["--help"], ["next", "@daily", "--json"], ["explain", "@daily"], ["check", "@daily"]]
)
def test_what_needs_no_server_does_not_import_the_client(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from nats_scheduler.cli.main import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        f"print('imported', [name for name in {DEAR!r} if name in sys.modules])\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.splitlines()[-1] == "imported []"
