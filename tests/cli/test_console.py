"""The console script without the extra for the commands, and what is said of extras.

It tests `nats_scheduler/extras.py` too.
"""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

from nats_scheduler.cli.demo import to_try
from nats_scheduler.extras import PACKAGES, missing
from tests.house.sources import ROOT

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


def test_the_demo_says_what_to_install_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nats-scheduler web" in to_try()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "nats-scheduler web  # first: pip install '.[web]' in a clone of nats-scheduler" in to_try()
