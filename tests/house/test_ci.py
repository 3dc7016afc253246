"""`.ci/run` runs the second command of the README, and nothing that it prepares can keep it from that."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.house.test_documents import shell_blocks

SCRIPT = ROOT / ".ci" / "run"
RUN_SECONDS = 60.0

TOOLS = {
    "id": "echo $USER_ID",
    "dpkg-query": '[ "${@: -1}" = zsh ] && echo -n installed',
    "apt-get": 'echo "$@" >> "$CALLS"; exit $APT_CODE',
    "timeout": 'shift; exec "$@"',
    "python3": 'mkdir -p .venv/bin; for tool in pip pytest; do cp "$STUBS/tool" .venv/bin/$tool; done',
    "tool": 'echo "$(basename "$0")" "$@" >> "$CALLS"',
}
"""What stands in for the programs that the script runs: they write down how they were called."""

COMMANDS = [
    "pip install --quiet --editable .[test]",
    "pytest",
    "pip install --quiet --require-hashes --requirement docs/site/requirements.lock",
    "pytest -n 1 tests/site/test_site.py",
]
"""How it calls them in the end, whatever was installed before."""


def run(folder: Path, *, user: int, apt_code: int) -> tuple[list[str], str]:
    """Run a copy of the script with these programs; returns the calls, and what was printed as a warning."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash to run the script with")
    stubs, calls, copy = folder / "stubs", folder / "calls", folder / ".ci" / "run"
    stubs.mkdir()
    for name, body in TOOLS.items():
        (stubs / name).write_text(f"#!{bash}\n{body}\n")
        (stubs / name).chmod(0o755)
    copy.parent.mkdir()
    shutil.copy(SCRIPT, copy)
    own = {"STUBS": str(stubs), "CALLS": str(calls), "USER_ID": str(user), "APT_CODE": str(apt_code)}
    path = f"{stubs}:{os.environ['PATH']}"
    answer = subprocess.run(
        [bash, copy], env={**own, "PATH": path}, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return calls.read_text().splitlines(), answer.stderr


def test_ci_runs_the_second_command_of_the_readme() -> None:
    assert shell_blocks(ROOT / "README.md")[1] in SCRIPT.read_text("utf-8").splitlines()
    assert SCRIPT.stat().st_mode & 0o111 == 0o111


@pytest.mark.server
def test_bash_understands_the_script() -> None:
    answer = subprocess.run(["bash", "-n", SCRIPT], capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.server
def test_ci_installs_the_packages_that_are_missing(tmp_path: Path) -> None:
    calls, warnings = run(tmp_path, user=0, apt_code=0)
    installed = [call.split()[-1] for call in calls if call.startswith("install ")]
    assert [call for call in calls if call.startswith("update")] == ["update -qq"]
    assert installed == [
        *("prometheus", "chromium", "chromium-driver", "fish", "jq"),
        *("runc", "podman", "netavark", "aardvark-dns", "iptables", "iproute2", "debootstrap"),
    ]
    assert calls[-4:] == COMMANDS
    assert warnings == ""


@pytest.mark.server
def test_ci_goes_on_where_packages_cannot_be_installed(tmp_path: Path) -> None:
    calls, warnings = run(tmp_path, user=0, apt_code=100)
    assert calls[-4:] == COMMANDS
    assert "prometheus could not be installed: the tests that need it are skipped" in warnings.splitlines()


@pytest.mark.server
def test_ci_installs_nothing_for_a_user_who_is_not_root(tmp_path: Path) -> None:
    calls, warnings = run(tmp_path, user=1000, apt_code=0)
    assert calls == COMMANDS
    assert warnings == ""
