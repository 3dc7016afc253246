"""The example streams: taken by every server as they are, and by the real CLI as it is typed."""

import json
from pathlib import Path
from typing import Any

import nats
import pytest

from nats_scheduler.message.stream_rules import FLAG, StreamRules, check_create
from tests.conftest import StartServer
from tests.deploy.files import STREAMS
from tests.harness.servers import ALL_VERSIONS, NATIVE_VERSIONS

FILES = sorted(STREAMS.glob("*.json"))
API_SECONDS = 5.0
"""Longest wait for an answer of the JetStream API."""


def config_of(file: Path) -> dict[str, Any]:
    """Read a stream file."""
    config: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return config


def test_an_example_does_not_end_schedules_by_its_limits() -> None:
    """It carries the switch, and keeps the rules."""
    for file in FILES:
        config = config_of(file)
        rules = StreamRules.from_config(config)
        assert (rules.max_age, rules.evicts) == (0, False), file
        assert (config[FLAG], check_create(config), config["name"].lower()) == (True, None, file.stem)
        assert rules.name == config["name"]


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_every_server_takes_the_examples_as_they_are(version: str, start_server: StartServer) -> None:
    server = await start_server(version)
    client = await nats.connect(server.url)
    try:
        for config in map(config_of, FILES):
            subject = f"$JS.API.STREAM.CREATE.{config['name']}"
            reply = await client.request(subject, json.dumps(config).encode(), timeout=API_SECONDS)
            answer = json.loads(reply.data)
            assert "error" not in answer, answer
            assert answer["config"].get(FLAG, False) is (version in NATIVE_VERSIONS)
    finally:
        await client.close()
