"""The files under `deploy/`, read once."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
CHART = DEPLOY / "helm" / "nats-scheduler"
STREAMS = DEPLOY / "streams"

VOLUME = "/var/lib/nats-scheduler"
"""Where a container has the volume in which the sidecar makes its folder."""


@cache
def compose() -> dict[str, Any]:
    """Read the services of the compose file."""
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"])


@cache
def nats_values(name: str) -> dict[str, Any]:
    """Read a file of values for the official chart of NATS."""
    return dict(yaml.safe_load((DEPLOY / "helm" / "nats" / name).read_text("utf-8")))


def beside() -> dict[str, Any]:
    """Give the container that these values put beside the server."""
    added = [one["value"] for one in nats_values("beside.yaml")["podTemplate"]["patch"]]
    (container,) = [one for one in added if "image" in one]
    return dict(container)


def image_variables() -> dict[str, str]:
    """Give the variables of ours that the image sets."""
    return dict(re.findall(r"^(?:ENV)? +(NATS_\w+)=(\S+)", DOCKERFILE.read_text("utf-8"), re.M))
