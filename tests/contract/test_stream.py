"""The stream in memory stores, refuses and removes as a server does: the same publishes get the same answers."""

from typing import Any

import pytest

from nats_scheduler.engine.inputs import Outcome, Stored
from nats_scheduler.testing.manual_clock import ManualClock
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.conftest import SharedServer
from tests.contract.conftest import OpenSide
from tests.contract.sides import PortSide, memory_side, server_side
from tests.harness.blocks import block_with
from tests.harness.servers import V2_11

PUBLISHES: list[dict[str, str]] = [
    {},
    {"Nats_Msg_Id": "a"},
    {"Nats_Msg_Id": "a"},
    {"Nats_Rollup": "sub"},
    {"Nats_Rollup": "SUB"},
    {"Nats_Rollup": "subject"},
    {"Nats_TTL": "5s"},
    {"Nats_TTL": "never"},
    {"Nats_TTL": "soon"},
    {"Nats_TTL": "1ms"},
    {"Nats_Expected_Last_Subject_Sequence": "999"},
    {"Nats_Expected_Last_Subject_Sequence": "0", "Nats_Expected_Last_Subject_Sequence_Subject": "no.such"},
    {"Nats_Msg_Id": "a", "Nats_Expected_Last_Subject_Sequence": "999"},
    {"Nats_Msg_Id": "a", "Nats_TTL": "5s"},
    {"Nats_Msg_Id": "a", "Nats_TTL": "soon"},
    {"Nats_TTL": "soon", "Nats_Expected_Last_Subject_Sequence": "999"},
    {"Nats_TTL": "5s", "Nats_Expected_Last_Subject_Sequence": "999"},
    {"Nats_TTL": "soon", "Nats_Rollup": "subject"},
    {"Nats_Msg_Id": "a", "Nats_Rollup": "subject"},
    {"Nats_Expected_Last_Subject_Sequence": "999", "Nats_Rollup": "subject"},
    {"Nats_Msg_Id": "b", "Nats_Rollup": "sub"},
    {"Nats_Rollup": "all"},
]


async def history(side: PortSide) -> list[Any]:
    outcomes: list[Outcome] = []
    for headers in PUBLISHES:
        fire = side.fire()
        outcomes.append(await side.outcome(type(fire)("s", 0, 0, None, fire.target, block_with(**headers), b"")))
    return [*outcomes, await side.stored()]


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_the_same_publishes_get_the_same_answers_as_on_a_server(
    shared_server: SharedServer, stream_name: str, is_allowed: bool
) -> None:
    config = {"allow_rollup_hdrs": is_allowed, "allow_msg_ttl": is_allowed}
    server = await shared_server(V2_11)
    async with server_side(server.url, stream_name, config) as real, memory_side(stream_name, config) as memory:
        assert await history(memory) == await history(real)


async def test_versions_are_limited_and_a_rollup_is_of_its_subject(open_side: OpenSide) -> None:
    async with open_side(max_msgs_per_subject=2) as side:
        for name in ("a", "a", "b", "a"):
            await side.store(name)
        assert await side.stored() == [(2, "a"), (3, "b"), (4, "a")]
        assert await side.store("a", block_with(Nats_Rollup="sub")) == 5
        assert await side.stored() == [(3, "b"), (5, "a")]


async def test_an_identity_is_forgotten_with_the_window() -> None:
    clock = ManualClock()
    stream = MemoryStream({"name": "S", "subjects": ["s"], "duplicate_window": 100}, clock.now)
    assert stream.publish("s", block_with(Nats_Msg_Id="a")) == Stored(1)
    clock.advance(99)
    assert stream.publish("s", block_with(Nats_Msg_Id="a")) == Stored(1, duplicate=True)
    clock.advance(1)
    assert stream.publish("s", block_with(Nats_Msg_Id="a")) == Stored(2)
