"""The instructions to the program in the files under `deploy/` are those that the program understands."""

import json
import re
import shutil
from pathlib import Path

import click
import pytest

from nats_scheduler.cli.main import main
from nats_scheduler.settings.fields import FILE_VARIABLE, setting_fields
from nats_scheduler.settings.load import load_settings
from nats_scheduler.version import VERSION
from tests.deploy.files import (
    DEPLOY,
    GUIDE,
    SETTINGS,
    STREAMS,
    beside,
    compose,
    environment_file,
    nats_values,
    our_commands,
    our_variables,
)


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


@pytest.mark.parametrize("place", sorted(our_commands()))
def test_a_command_of_the_files_is_one_of_the_program(place: str) -> None:
    understood(our_commands()[place])


@pytest.mark.parametrize("wrong", [["serve"], ["run", "--no-such-flag"], []])
def test_a_command_that_is_none_would_be_seen(wrong: list[str]) -> None:
    with pytest.raises(click.UsageError):
        understood(wrong)


@pytest.mark.parametrize("place", sorted(our_variables()))
def test_a_variable_of_the_files_is_one_of_the_program(place: str) -> None:
    known = {FILE_VARIABLE, *(name for field in setting_fields().values() for name in field.variables)}
    assert our_variables()[place]
    assert our_variables()[place] <= known


def test_the_settings_of_the_unit_are_taken_as_they_are(tmp_path: Path) -> None:
    installed = "/etc/nats-scheduler"
    shutil.copytree(STREAMS, tmp_path / "streams")
    moved = SETTINGS.read_text("utf-8").replace(installed, str(tmp_path))
    (tmp_path / "settings.json").write_text(moved, encoding="utf-8")
    environment = {name: value.replace(installed, str(tmp_path)) for name, value in environment_file().items()}

    settings = load_settings({"no_context": True}, environment, Path(environment[FILE_VARIABLE]))

    assert settings.streams_folder == tmp_path / "streams"
    assert settings.metrics_port == json.loads(moved)["metrics_port"]
    assert settings.connection.servers == ("nats://127.0.0.1:4222",)


def test_the_image_is_tagged_with_this_version_everywhere() -> None:
    tag = f"nats-scheduler:{VERSION}"
    assert compose()["services"]["scheduler"]["image"] == tag
    assert beside()["image"] == tag
    for file in (DEPLOY / "Dockerfile", GUIDE):
        text = file.read_text("utf-8")
        assert f"--tag {tag} ." in text
        assert set(re.findall(r"nats-scheduler:\d\S*", text)) == {tag}


def test_the_server_beside_the_sidecar_is_the_same_2_11_everywhere() -> None:
    in_chart = nats_values("server.yaml")["container"]["image"]["tag"]
    assert {compose()["services"]["nats"]["image"], f"nats:{in_chart}"} == {"nats:2.11.11-alpine"}
