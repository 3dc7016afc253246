"""The commands: their list is cheap to print, and each imports only what it needs.

It tests `cli/options.py`, `cli/console.py`, `cli/web.py` and `extras.py` too.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from nats_scheduler.extras import PACKAGES, missing
from tests.cli.prompt import Cli
from tests.harness.processes import sidecar
from tests.house.sources import ROOT

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


@pytest.mark.server
def test_what_needs_no_server_does_not_import_the_client() -> None:
    command = [sys.executable, "-c", PROGRAM.format(dear=DEAR)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said = [line for line in shown.stdout.splitlines() if line.startswith(("imported", "completed"))]
    assert said == ["completed True []", *["imported []"] * 4]


# -- the console script without the extra for the commands, and what is said of extras -------------------------------

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
WITHOUT_EXTRAS = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from nats_scheduler.cli.console import main; main()"


@pytest.mark.server
@pytest.mark.parametrize("arguments", [[], ["--version"], ["run"], ["next", "@daily"]])
def test_a_command_without_its_extra_says_what_to_install(arguments: list[str]) -> None:
    """With `-S` no installed package is found."""
    command = [sys.executable, "-I", "-S", "-c", WITHOUT_EXTRAS, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    install = "pip install '.[run]' in a clone of nats-scheduler"
    said = f"nats-scheduler: error: the commands need the extra 'run': {install}\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", said)


def test_the_packages_that_are_looked_for_are_those_of_the_extra() -> None:
    distributions = packages_distributions()
    for extra, packages in PACKAGES.items():
        wanted = [Requirement(text) for text in EXTRAS[extra]]
        names = {name for one in wanted for name in ([one.name] if one.name != "nats-py" else one.extras)}
        assert missing(extra) == []
        found = {distributions[package][0].lower().replace("_", "-") for package in packages}
        assert found == names - {"nats-scheduler"}


# -- `nats-scheduler web`: what it needs, and what it refuses, before anything is served -----------------------------


def test_without_the_extra_one_sentence_names_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = cli("web")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the status page needs jinja2: pip install '.[web]' in a clone" in result.stderr


def test_a_short_token_is_refused_and_not_printed(cli: Cli) -> None:
    result = cli("web", "--no-context", "--web-token", "hunter2")
    assert result.exit_code == 2
    assert "at least 20 characters" in result.stderr.lower()
    assert "hunter2" not in result.stderr


@pytest.mark.server
@pytest.mark.deep
async def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    with sidecar("web", "--web-port", "0", "--server", "nats://127.0.0.1:1", folder=tmp_path) as process:
        await process.wait_for_line("connect_failed")
        assert await process.interrupt() == 0
