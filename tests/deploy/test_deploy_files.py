"""The files under `deploy/`: the program and the programs that read them understand each, and none grants too much.

A Dockerfile with pinned bases, a compose file, a systemd unit: each runs the sidecar without rights, and drains it.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from nats_scheduler.cli.main import main
from nats_scheduler.settings.fields import FILE_VARIABLE, setting_fields
from nats_scheduler.settings.load import load_settings
from nats_scheduler.version import VERSION
from tests.deploy.files import (
    COMPOSE,
    DEPLOY,
    DOCKERFILE,
    EVERY_ADDRESS,
    ROOT,
    STREAMS,
    beside,
    compose,
    image_variables,
    instructions,
    nats_values,
    rests,
)
from tests.harness.processes import sidecar_command
from tests.house.test_documents import shell_blocks

SYSTEMD = DEPLOY / "systemd"
UNIT = SYSTEMD / "nats-scheduler.service"
UNIT_OF_PAGE = SYSTEMD / "nats-scheduler-web.service"
GUIDE = ROOT / "docs" / "operating" / "deploy.md"
KNOWN = {
    *("ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "STOPSIGNAL"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}
MOST_EXPOSED = 20
"""Highest exposure that `systemd-analyze security` may find, in tenths: 20 is 2.0, "OK"."""
TOOL_SECONDS = 60.0


def understood(arguments: list[str]) -> None:
    """Follow a command line through the click commands; raises click.UsageError where it is not understood."""
    command: click.Command = main
    words = list(arguments)
    while isinstance(command, click.Group):
        name = words.pop(0) if words else "(nothing)"
        inner = command.get_command(click.Context(command), name)
        if inner is None:
            raise click.UsageError(f"no command {name}")
        command = inner
    command.make_context(command.name, words)


def pairs_of(file: Path, *, commented: bool = False) -> list[tuple[str, str]]:
    """Read the lines of a file of systemd that give a name a value, in order; a name may stand more than once.

    With `commented` also those that are to be uncommented.
    """
    text = re.sub(r"^#(?=\w+=)", "", file.read_text("utf-8"), flags=re.M) if commented else file.read_text("utf-8")
    lines = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
    return [(name, value) for name, separator, value in lines if separator]


def test_the_commands_and_variables_of_the_files_are_those_of_the_program() -> None:
    sidecar = compose()["services"]["scheduler"]
    given = [json.loads(rests("CMD")[-1]), sidecar["command"], beside()["args"]]
    given += [shlex.split(dict(pairs_of(one))["ExecStart"])[1:] for one in (UNIT, UNIT_OF_PAGE)]
    for line in "\n".join(shell_blocks(GUIDE)).replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line.removeprefix("sudo "), comments=True) or [""]
        given += [arguments] if Path(program).name == "nats-scheduler" else []
    for arguments in given:
        understood(arguments)
    for wrong in (["serve"], ["run", "--no-such-flag"], []):
        with pytest.raises(click.UsageError):
            understood(wrong)
    known = {FILE_VARIABLE, *(name for field in setting_fields().values() for name in field.variables)}
    in_pod = {one["name"] for one in beside()["env"]}
    of_units = [pair for one in (UNIT, UNIT_OF_PAGE) for pair in pairs_of(one, commented=True)]
    of_unit = [value.partition("=")[0] for name, value in of_units if name == "Environment"]
    in_file = dict(pairs_of(SYSTEMD / "environment"))
    for names in (image_variables(), sidecar["environment"], in_pod, of_unit, in_file):
        ours = {name for name in names if name.startswith("NATS")}
        assert ours
        assert ours <= known


def test_the_settings_of_the_unit_are_taken_as_they_are(tmp_path: Path) -> None:
    installed = "/etc/nats-scheduler"
    shutil.copytree(STREAMS, tmp_path / "streams")
    moved = (SYSTEMD / "settings.json").read_text("utf-8").replace(installed, str(tmp_path))
    (tmp_path / "settings.json").write_text(moved, encoding="utf-8")
    environment = {name: value.replace(installed, str(tmp_path)) for name, value in pairs_of(SYSTEMD / "environment")}

    settings = load_settings({"no_context": True}, environment, Path(environment[FILE_VARIABLE]))

    assert settings.streams_folder == tmp_path / "streams"
    assert settings.metrics_port == json.loads(moved)["metrics_port"]
    assert settings.connection.servers == ("nats://127.0.0.1:4222",)


def test_the_images_have_one_tag_everywhere() -> None:
    services, tag = compose()["services"], f"nats-scheduler:{VERSION}"
    assert {services["scheduler"]["image"], services["web"]["image"], beside()["image"]} == {tag}
    for file in (DOCKERFILE, GUIDE):
        text = file.read_text("utf-8")
        assert f"--tag {tag} ." in text
        assert set(re.findall(r"nats-scheduler:\d\S*", text)) == {tag}
    in_chart = nats_values("server.yaml")["container"]["image"]["tag"]
    assert {services["nats"]["image"], f"nats:{in_chart}"} == {"nats:2.11.11-alpine"}


def test_the_image_is_built_of_pinned_parts_for_any_architecture() -> None:
    assert {one.name for one in instructions()} <= KNOWN, "the reader knows each instruction"
    (argument,) = rests("ARG")
    name, _, base = argument.partition("=")
    assert re.fullmatch(r"python:3\.12\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert [rest.split()[0] for rest in rests("FROM")] == [f"${{{name}}}"] * 2, "a stage that builds, and the image"
    text = DOCKERFILE.read_text("utf-8").partition("ARG BASE=")[2]
    assert not re.search(r"--platform|amd64|x86_64|arm64|aarch64", text)
    commands = [command for rest in rests("RUN") for command in rest.split("&&") if "bin/pip" in command]
    unpinned = [one for one in commands if "--require-hashes" not in one and "--no-index" not in one]
    assert [one.split("bin/pip ")[1] for one in unpinned] == [
        "wheel --no-deps --no-build-isolation --wheel-dir /wheels ."
    ]
    assert all("--no-build-isolation" in one for one in commands if "bin/pip wheel" in one)


def test_what_is_copied_into_the_image_exists_and_is_let_into_the_context() -> None:
    copies = [rest.split()[:-1] for rest in rests("COPY") if not rest.startswith("--from=")]
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for source in (one for words in copies for one in words):
        assert (ROOT / source).exists(), source
        assert f"!{source.removeprefix('./')}" in let_in


def test_compose_builds_our_image_and_runs_it_without_rights_and_with_time_to_drain() -> None:
    sidecar = compose()["services"]["scheduler"]
    assert (DEPLOY / sidecar["build"]["context"] / sidecar["build"]["dockerfile"]).resolve() == DOCKERFILE
    assert all(word in rests("HEALTHCHECK")[-1] for word in sidecar["healthcheck"]["test"][1:])
    assert (sidecar["read_only"], sidecar["cap_drop"]) == (True, ["ALL"])
    assert "no-new-privileges:true" in sidecar["security_opt"]
    assert int(sidecar["stop_grace_period"].removesuffix("s")) > 10
    assert sidecar["environment"]["NATS_SCHEDULER_METRICS_ADDRESS"] == EVERY_ADDRESS
    assert "ports" not in sidecar, "the metrics are for this network and not for the host"


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of this machine; skips the test where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"no {Path(program).name}: a Debian package has it, or pip install -e '.[deep]'")
    return subprocess.run([found, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)


@pytest.mark.server
def test_compose_reads_the_file() -> None:
    has_docker = shutil.which("docker") and run("docker", "compose", "version").returncode == 0
    reader = ["docker", "compose"] if has_docker else [str(Path(sys.executable).with_name("podman-compose"))]
    answer = run(*reader, "--file", COMPOSE, "config")
    assert answer.returncode == 0, answer.stderr
    assert set(yaml.safe_load(answer.stdout)["services"]) >= {"nats", "scheduler"}


def startable(unit: Path, command: str, folder: Path) -> Path:
    """Copy a unit with the program of this environment, for systemd looks whether it can be started."""
    installed = "/opt/nats-scheduler/bin/nats-scheduler"
    text = unit.read_text("utf-8")
    assert f"ExecStart={installed} {command}\n" in text
    copy = folder / unit.name
    copy.write_text(text.replace(installed, sidecar_command()[0]), encoding="utf-8")
    return copy


@pytest.mark.server
@pytest.mark.parametrize(("file", "command"), [(UNIT, "run"), (UNIT_OF_PAGE, "web")], ids=["run", "web"])
def test_systemd_understands_every_line_and_finds_little_exposed(file: Path, command: str, tmp_path: Path) -> None:
    unit = startable(file, command, tmp_path)
    answer = run("systemd-analyze", "verify", "--man=no", unit)
    assert [line for line in answer.stderr.splitlines() if unit.name in line] == []
    assert answer.returncode == 0, answer.stderr
    answer = run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", unit)
    if "unrecognized option" in answer.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit that is not installed")
    assert answer.returncode == 0, answer.stdout[-500:] + answer.stderr
