"""The systemd unit: understood by systemd, hardened, restarted but for wrong settings."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import UNIT, unit_settings
from tests.harness.processes import sidecar_command

pytestmark = pytest.mark.server

MOST_EXPOSED = 20
"""Highest exposure that `systemd-analyze security` may find, in tenths: 20 is 2.0, "OK"."""


@pytest.fixture
def analyze() -> str:
    """Find systemd-analyze, or skip."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze to check the unit with")
    return program


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Copy the unit with the program of this environment, for systemd looks whether it can be started."""
    installed = "/opt/nats-scheduler/bin/nats-scheduler"
    text = UNIT.read_text("utf-8")
    assert f"ExecStart={installed} run\n" in text
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(installed, sidecar_command()[0]), encoding="utf-8")
    return copy


def test_systemd_understands_every_line(analyze: str, unit: Path) -> None:
    answer = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60.0, check=False
    )
    said = [line for line in answer.stderr.splitlines() if UNIT.name in line]
    assert said == []
    assert answer.returncode == 0, answer.stderr


def test_systemd_finds_little_exposed(analyze: str, unit: Path) -> None:
    command = [analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
    if "unrecognized option" in answer.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit that is not installed")
    assert answer.returncode == 0, answer.stdout[-500:] + answer.stderr


def test_the_sidecar_comes_back_unless_its_settings_are_wrong() -> None:
    settings = dict(unit_settings())
    assert settings["Restart"] == "always"
    assert settings["RestartPreventExitStatus"] == "2"
    assert settings["StartLimitIntervalSec"] == "0"


def test_the_sidecar_is_asked_to_drain_and_given_the_time() -> None:
    settings = dict(unit_settings())
    assert settings["KillSignal"] == "SIGTERM"
    assert int(settings["TimeoutStopSec"]) > 10


def test_the_sidecar_has_no_rights() -> None:
    wanted = {("DynamicUser", "yes"), ("NoNewPrivileges", "yes"), ("ProtectSystem", "strict")}
    assert wanted <= set(unit_settings())
    assert ("CapabilityBoundingSet", "") in unit_settings()
