"""The example streams: taken by servers as they are."""

import json

import nats
import pytest

from nats_scheduler.message.stream_rules import FLAG, StreamRules, check_create
from tests.conftest import StartServer
from tests.deploy.files import STREAMS
from tests.harness.servers import EMULATED_VERSIONS, NATIVE_VERSIONS

CONFIGS = [json.loads(file.read_text("utf-8")) for file in sorted(STREAMS.glob("*.json"))]
API_SECONDS = 60.0
"""Longest wait for an answer of the JetStream API."""


def test_an_example_does_not_end_schedules_by_its_limits() -> None:
    for config in CONFIGS:
        rules = StreamRules.from_config(config)
        assert (rules.max_age, rules.evicts, config[FLAG], check_create(config)) == (0, False, True, None)


@pytest.mark.parametrize("version", [EMULATED_VERSIONS[0], NATIVE_VERSIONS[-1]])
async def test_a_server_takes_the_examples_as_they_are(version: str, start_server: StartServer) -> None:
    server = await start_server(version)
    client = await nats.connect(server.url)
    try:
        for config in CONFIGS:
            subject = f"$JS.API.STREAM.CREATE.{config['name']}"
            reply = await client.request(subject, json.dumps(config).encode(), timeout=API_SECONDS)
            answer = json.loads(reply.data)
            assert "error" not in answer, answer
            assert answer["config"].get(FLAG, False) is (version in NATIVE_VERSIONS)
    finally:
        await client.close()
