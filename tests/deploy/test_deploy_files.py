"""The files under `deploy/`: the program takes their commands, variables and settings, and none grants too much."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from nats_scheduler.cli.main import main
from nats_scheduler.message.stream_rules import FLAG, StreamRules, check_create
from nats_scheduler.settings.fields import FILE_VARIABLE, setting_fields
from nats_scheduler.settings.load import load_settings
from tests.deploy.files import DEPLOY, DOCKERFILE, ROOT, STREAMS, beside, compose, image_variables
from tests.harness.processes import sidecar_command
from tests.house.test_documents import shell_blocks

SYSTEMD = DEPLOY / "systemd"
UNITS = {SYSTEMD / "nats-scheduler.service": "run", SYSTEMD / "nats-scheduler-web.service": "web"}
INSTALLED = "/opt/nats-scheduler/bin/nats-scheduler"
"""Where the page has its reader install the program."""
MOST_EXPOSED = 20
"""Highest exposure that `systemd-analyze security` may find, in tenths: 20 is 2.0, "OK"."""
TOOL_SECONDS = 120.0


def understood(words: list[str]) -> None:
    """Follow a command line through the click commands; raises click.UsageError where it is not understood."""
    command: click.Command = main
    while isinstance(command, click.Group):
        name, *words = words
        inner = command.get_command(click.Context(command), name)
        if inner is None:
            raise click.UsageError(f"no command {name}")
        command = inner
    command.make_context(command.name, list(words))


def test_the_program_knows_the_commands_in_the_files() -> None:
    given = [compose()["scheduler"]["command"], compose()["web"]["command"], beside()["args"]]
    given += [[command] for command in UNITS.values()]
    for line in "\n".join(shell_blocks(ROOT / "docs" / "operating" / "deploy.md")).replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line.removeprefix("sudo "), comments=True) or [""]
        given += [arguments] if Path(program).name == "nats-scheduler" else []
    for arguments in given:
        understood(arguments)
    with pytest.raises(click.UsageError):
        understood(["run", "--no-such-flag"])


def test_the_program_knows_the_variables_in_the_files() -> None:
    known = {FILE_VARIABLE, *(name for field in setting_fields().values() for name in field.variables)}
    named = {*image_variables(), *(one["name"] for one in beside()["env"])}
    named |= {name for service in ("scheduler", "web") for name in compose()[service]["environment"]}
    for file in (*UNITS, SYSTEMD / "environment"):
        named |= set(re.findall(r"^#?(?:Environment=)?(NATS_\w+)=", file.read_text("utf-8"), re.M))
    assert len(named) > 8
    assert {name for name in named if name.startswith("NATS_")} <= known


def test_the_settings_of_the_unit_are_taken_as_they_are(tmp_path: Path) -> None:
    installed = "/etc/nats-scheduler"
    shutil.copytree(STREAMS, tmp_path / "streams")
    moved = (SYSTEMD / "settings.json").read_text("utf-8").replace(installed, str(tmp_path))
    (tmp_path / "settings.json").write_text(moved, encoding="utf-8")
    text = (SYSTEMD / "environment").read_text("utf-8").replace(installed, str(tmp_path))
    environment = dict(re.findall(r"^(\w+)=(.*)", text, re.M))
    settings = load_settings({"no_context": True}, environment, Path(environment[FILE_VARIABLE]))
    assert settings.streams_folder == tmp_path / "streams"
    assert settings.metrics_port == json.loads(moved)["metrics_port"]


def test_an_example_does_not_end_schedules_by_its_limits() -> None:
    for file in STREAMS.glob("*.json"):
        config = json.loads(file.read_text("utf-8"))
        rules = StreamRules.from_config(config)
        assert (rules.max_age, rules.evicts, config[FLAG], check_create(config)) == (0, False, True, None)


def test_the_image_is_built_of_pinned_parts() -> None:
    text = DOCKERFILE.read_text("utf-8")
    assert re.search(r"^ARG BASE=python:3\.12\.\d+-slim-bookworm@sha256:[0-9a-f]{64}$", text, re.M)
    assert set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${BASE}"}
    fetching = re.findall(r"bin/pip (?:install|wheel) (?!--no-deps --no-build-isolation)(.*)", text)
    assert [line for line in fetching if "--require-hashes" not in line] == []


def test_compose_gives_no_rights_and_leaves_time_to_drain() -> None:
    services: list[dict[str, Any]] = [compose()["scheduler"], compose()["web"]]
    for service in services:
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert "no-new-privileges:true" in service["security_opt"]
    assert int(compose()["scheduler"]["stop_grace_period"].removesuffix("s")) > 10
    assert "ports" not in compose()["scheduler"], "the metrics are for this network and not for the host"


@pytest.mark.server
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_every_line_and_finds_little_exposed(unit: Path, tmp_path: Path) -> None:
    """With the program of this environment: systemd looks whether it can be started."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: the Debian package systemd has it")
    assert f"ExecStart={INSTALLED} {UNITS[unit]}\n" in unit.read_text("utf-8")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text("utf-8").replace(INSTALLED, sidecar_command()[0]), encoding="utf-8")
    for asked in (["verify", "--man=no"], ["security", "--offline=true", f"--threshold={MOST_EXPOSED}"]):
        command = ["systemd-analyze", *asked, str(copy)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        assert answer.returncode == 0, answer.stdout[-500:] + answer.stderr
        assert [line for line in answer.stderr.splitlines() if unit.name in line] == []
