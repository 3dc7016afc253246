"""`.ci/run` runs the second command of the README and the deep tier, whatever becomes of what it prepares."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.failures import LINES, sections_of
from tests.harness.second_attempts import MOST_CASES, cases_for_a_second_attempt
from tests.house.sources import ROOT
from tests.house.test_documents import shell_blocks

SCRIPT = ROOT / ".ci" / "run"
RUN_SECONDS = 60.0

TOOLS = {
    "id": "echo $USER_ID",
    "dpkg-query": '[ "${@: -1}" = zsh ] && echo -n installed',
    "apt-get": 'echo "$@" >> "$CALLS"; exit $APT_CODE',
    "timeout": 'shift; exec "$@"',
    "python3": 'mkdir -p .venv/bin; for tool in pip pytest python; do cp "$STUBS/tool" .venv/bin/$tool; done',
    "tool": """echo "$(basename "$0")" "$@" >> "$CALLS"
case "$(basename "$0") $*" in "$FAILING " | "$FAILING") exit 1 ;; python*) exit $AGAIN_CODE ;; esac""",
}
"""The stand-ins for the programs that the script runs: they write down how they were called."""

COMMANDS = [
    "pip install --quiet --editable .[test]",
    "pytest",
    "pytest -m deep",
    "pip install --quiet --require-hashes --requirement docs/site/requirements.lock",
    "pytest -n 1 tests/site/test_site.py",
]
"""The calls of the script in the end, whatever was installed before."""


def run(
    folder: Path, *, user: int, apt_code: int, failing: str = "", again_code: int = 0
) -> tuple[list[str], str, int]:
    """Run a copy of the script with these programs, of which one call is `failing`.

    Returns the calls, the warnings, and the exit code.
    """
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash to run the script with")
    stubs, calls, copy = folder / "stubs", folder / "calls", folder / ".ci" / "run"
    stubs.mkdir(parents=True)
    for name, body in TOOLS.items():
        (stubs / name).write_text(f"#!{bash}\n{body}\n")
        (stubs / name).chmod(0o755)
    copy.parent.mkdir()
    shutil.copy(SCRIPT, copy)
    own = {"STUBS": str(stubs), "CALLS": str(calls), "USER_ID": str(user), "APT_CODE": str(apt_code)}
    own |= {"FAILING": failing, "AGAIN_CODE": str(again_code)}
    path = f"{stubs}:{os.environ['PATH']}"
    answer = subprocess.run(
        [bash, copy], env={**own, "PATH": path}, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    return calls.read_text().splitlines(), answer.stderr, answer.returncode


def test_ci_runs_the_second_command_of_the_readme() -> None:
    assert shell_blocks(ROOT / "README.md")[1] in SCRIPT.read_text("utf-8").splitlines()
    assert SCRIPT.stat().st_mode & 0o111 == 0o111


@pytest.mark.server
def test_ci_installs_the_packages_that_are_missing_and_goes_on_where_it_cannot(tmp_path: Path) -> None:
    lacking = "prometheus could not be installed: the tests that need it are skipped"
    for apt_code, folder in ((0, tmp_path / "installed"), (100, tmp_path / "refused")):
        calls, warnings, code = run(folder, user=0, apt_code=apt_code)
        assert [call for call in calls if call.startswith("update")] == ["update -qq"]
        assert [call.split()[-1] for call in calls if call.startswith("install ")] == [
            *("prometheus", "chromium", "chromium-driver", "fish", "jq"),
            *("runc", "podman", "netavark", "aardvark-dns", "iptables", "iproute2", "debootstrap"),
        ]
        assert (calls[-5:], code) == (COMMANDS, 0)
        assert (lacking in warnings.splitlines()) == (apt_code != 0)
    assert run(tmp_path / "user", user=1000, apt_code=0) == (COMMANDS, "", 0), "nothing for one who is not root"


@pytest.mark.server
@pytest.mark.parametrize("tier", ["pytest", "pytest -m deep"])
def test_a_failed_tier_counts_unless_its_cases_pass_alone(tmp_path: Path, tier: str) -> None:
    place = COMMANDS.index(tier) + 1
    for again_code, following in ((0, COMMANDS[place:]), (1, [])):
        folder = tmp_path / str(again_code)
        calls, _warnings, code = run(folder, user=1000, apt_code=0, failing=tier, again_code=again_code)
        second = calls.pop(place)
        assert second.startswith("python -m tests.harness.second_attempts /")
        assert (calls, code) == ([*COMMANDS[:place], *following], again_code)


def test_only_a_few_cases_with_servers_are_tried_again() -> None:
    two = "server tests/a.py::one\nserver tests/b.py::two[x y]\n"
    assert cases_for_a_second_attempt(two) == ["tests/a.py::one", "tests/b.py::two[x y]"]
    assert cases_for_a_second_attempt("server tests/a.py::one\n- tests/b.py::two\n") == []
    assert cases_for_a_second_attempt("server tests/a.py::one\n" * (MOST_CASES + 1)) == []
    assert cases_for_a_second_attempt("") == []


def test_a_failure_shows_what_its_processes_wrote_and_how_it_is_run_again(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for name, text, time in (("b/sidecar.err", "one\ntwo", 7), ("a.log", "three\n" * 99, 6), ("old.log", "four", 4)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (time, time))
    (title, command), *logs = sections_of(request.node, tmp_path, begun=5)
    assert (title, command.split("pytest ")[1]) == ("to run it again", f"-n 0 '{request.node.nodeid}'")
    assert logs == [
        ("the last lines of a.log", "\n".join(["three"] * LINES)),
        ("the last lines of b/sidecar.err", "one\ntwo"),
    ]
