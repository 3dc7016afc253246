"""The files under `deploy/`, read once: their YAML, the Dockerfile's instructions, the unit's settings, and every
command line and environment variable of ours that they hold.

Its rule: reading is here, judging is in the tests, so that one list of commands serves all rules about commands.
Limit: the Dockerfile is read as this repository writes it (no heredocs, exec form only).
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
UNIT = DEPLOY / "systemd" / "nats-scheduler.service"
ENVIRONMENT = DEPLOY / "systemd" / "environment"
SETTINGS = DEPLOY / "systemd" / "settings.json"
CHART = DEPLOY / "helm" / "nats-scheduler"
NATS_VALUES = DEPLOY / "helm" / "nats"
STREAMS = DEPLOY / "streams"
GUIDE = ROOT / "docs" / "operating" / "deploy.md"

PROGRAM = "nats-scheduler"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - what the files say, and nothing binds to


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile: its name in capitals, and the rest on one line."""

    name: str
    rest: str


@cache
def instructions() -> tuple[Instruction, ...]:
    """Read the Dockerfile, comments left out and continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    parts = (line.split(maxsplit=1) for line in whole.splitlines() if line.strip())
    return tuple(Instruction(name.upper(), rest) for name, rest in parts)


def rests(name: str) -> list[str]:
    """List what follows each instruction of a name."""
    return [one.rest for one in instructions() if one.name == name]


def final_stage() -> tuple[Instruction, ...]:
    """Give the instructions of the image itself, from its FROM on."""
    read = instructions()
    return read[max(index for index, one in enumerate(read) if one.name == "FROM") :]


@cache
def compose() -> dict[str, Any]:
    """Read the compose file."""
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return read


@cache
def nats_values(name: str) -> dict[str, Any]:
    """Read a file of values for the official chart of NATS."""
    read: dict[str, Any] = yaml.safe_load((NATS_VALUES / name).read_text("utf-8"))
    return read


def beside() -> dict[str, Any]:
    """Give the container that these values put beside the server."""
    added = [one["value"] for one in nats_values("beside.yaml")["podTemplate"]["patch"]]
    (container,) = [one for one in added if "image" in one]
    return dict(container)


def image_variables() -> dict[str, str]:
    """Give the variables of ours that the image sets."""
    words = [word for one in final_stage() if one.name == "ENV" for word in shlex.split(one.rest)]
    return {name: value for name, _, value in (word.partition("=") for word in words) if name.startswith("NATS")}


def unit_settings() -> list[tuple[str, str]]:
    """Read the unit's settings in order; a name may stand more than once."""
    lines = UNIT.read_text("utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return [(name, value) for name, _, value in pairs]


def environment_file() -> dict[str, str]:
    """Read the example environment file of the unit."""
    lines = ENVIRONMENT.read_text("utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def our_commands() -> dict[str, list[str]]:
    """Collect every command line of `nats-scheduler`, without the program, by where it stands."""
    found = {
        "Dockerfile": json.loads(rests("CMD")[-1]),
        "compose": compose()["services"]["scheduler"]["command"],
        "beside the server": beside()["args"],
        "systemd": shlex.split(dict(unit_settings())["ExecStart"])[1:],
    }
    return found | {f"deploy.md {n}": line for n, line in enumerate(_commands_of(GUIDE), 1)}


def our_variables() -> dict[str, set[str]]:
    """Collect the names of every `NATS*` variable that the sidecar is given, by where it stands."""
    given = {
        "Dockerfile": set(image_variables()),
        "compose": set(compose()["services"]["scheduler"]["environment"]),
        "beside the server": {one["name"] for one in beside()["env"]},
        "systemd": set(environment_file()),
    }
    return {place: {name for name in names if name.startswith("NATS")} for place, names in given.items()}


def _commands_of(document: Path) -> Iterator[list[str]]:
    """Give the command lines of ours in a document's `sh` blocks, each as its arguments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", document.read_text("utf-8"), re.M | re.S)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line.removeprefix("sudo "), comments=True) or [""]
        if Path(program).name == PROGRAM:
            yield arguments
