"""`.ci/run` runs the second command of the README and the deep tier, and the workflows of the forge run the same."""

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.house.sources import ROOT
from tests.house.test_documents import shell_blocks
from tests.house.test_style import LINTERS, TOOL_SECONDS

SCRIPT = ROOT / ".ci" / "run"
FORGE = ROOT / ".github"
TO_INSTALL = shell_blocks(ROOT / "README.md")[1].rpartition(" && ")[0]
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
OF_A_FORGE = ("helm registry login ", "helm push ", "gh release create ")
"""Commands that publish, which nobody types."""


def workflows() -> dict[str, Any]:
    """Read the workflows, by name."""
    return {file.stem: yaml.safe_load(file.read_text("utf-8")) for file in (FORGE / "workflows").iterdir()}


def steps() -> list[dict[str, Any]]:
    """List the steps of all workflows."""
    return [step for one in workflows().values() for job in one["jobs"].values() for step in job.get("steps", ())]


def test_ci_runs_the_command_of_the_readme_and_the_deep_tier() -> None:
    lines = [line.strip() for line in SCRIPT.read_text("utf-8").splitlines()]
    assert shell_blocks(ROOT / "README.md")[1] in lines
    assert {".venv/bin/pytest -m deep", TO_INSTALL.replace("[test]", "[test,deep]")} <= set(lines)
    assert [path.stat().st_mode & 0o111 for path in (SCRIPT, ROOT / "deploy" / "release")] == [0o111] * 2


def test_a_workflow_runs_the_commands_of_ci_and_of_the_pages() -> None:
    parts = re.findall(r"^(\w+)\(\) \{", SCRIPT.read_text("utf-8"), re.M)
    known = {TO_INSTALL, "sudo .ci/run packages", "deploy/release", 'deploy/release "$GITHUB_REF_NAME"'}
    known |= {f".ci/run {part}" for part in parts} | {f".venv/bin/{linter}" for linter in LINTERS}
    typed = {step["run"] for step in steps() if "run" in step}
    assert {one for one in typed - known if not one.startswith(OF_A_FORGE)} == set()
    assert {".ci/run usual", ".ci/run deep"} <= typed


def test_a_workflow_has_only_the_rights_that_it_names() -> None:
    for name, one in workflows().items():
        assert one["permissions"] == {"contents": "read"}, name
    assert "secrets." not in "".join(file.read_text("utf-8") for file in (FORGE / "workflows").iterdir())


@pytest.mark.server
@pytest.mark.deep
def test_actionlint_has_nothing_against_the_workflows() -> None:
    found = shutil.which("actionlint")
    if found is None and shutil.which("go") is None:
        pytest.skip("neither actionlint nor Go is on the path")
    files = map(str, (FORGE / "workflows").iterdir())
    command = [*([found] if found else ["go", "run", ACTIONLINT]), *files]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stderr
