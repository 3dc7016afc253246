"""The files under `deploy/`, read once: their YAML, and the Dockerfile's instructions.

Its rule: reading is here, judging is in the tests.
Limit: the Dockerfile is read as this repository writes it (no heredocs, exec form only).
"""

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
CHART = DEPLOY / "helm" / "nats-scheduler"
NATS_VALUES = DEPLOY / "helm" / "nats"
STREAMS = DEPLOY / "streams"

VOLUME = "/var/lib/nats-scheduler"
"""Where a container has the volume in which the sidecar makes its folder."""

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
