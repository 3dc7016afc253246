"""The linters and the type checker of the house, run as the maintainers run them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT

SCRIPTS = Path(sys.executable).parent
TOOL_SECONDS = 300.0
"""Longest run of one tool; mypy without a cache takes about half a minute."""


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize(
    "command",
    ["ruff check .", "ruff format --check .", "mypy", "lint-imports"],
    ids=["ruff-check", "ruff-format", "mypy-strict", "dependencies-point-one-way"],
)
def test_the_house_is_clean(command: str) -> None:
    program, *arguments = command.split()
    answer = subprocess.run(
        [str(SCRIPTS / program), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"
