"""A server whose limits change while it runs is served by the limits that it has now."""

import pytest

from nats_scheduler.engine.events import FireRefused, FireStored
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.flagged import FLAG, FlaggedStream
from tests.harness.servers import V2_11, reload_config

SMALL = 4_000
"""Bytes that the server takes of a message: a schedule of this size has a fire that is larger."""


def limited(most: int) -> str:
    """Return the configuration of a server that takes so many bytes."""
    return f"max_payload: {most}\n"


@pytest.mark.clause("size-limits")
async def test_a_fire_too_large_is_stored_when_the_server_takes_more(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=limited(SMALL))
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S", **FLAG)
        await running.ready("S")
        stream = FlaggedStream(account, "S")
        await stream.schedule("s", "@every 1s", b"x" * (SMALL - 150))
        [refused, *_] = await running.reported("S", FireRefused)
        assert (refused.code, "exceeds the server's max_payload of 4000" in refused.description) == (10054, True)
        await stream.canary()
        assert running.of("S", FireRefused)[1:] == []
        reload_config(server, f"port: {server.port}\n" + limited(100_000))
        await stream.wait_for("out")
        stored = await running.reported("S", FireStored, 2)
        assert stored[-1].fire.schedule == "S.s"
        assert running.told("connection_lost") == []
