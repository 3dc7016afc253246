"""Replicated streams in a cluster of an older version, with the sidecar at any node, beside one native server.

The same schedules fire, the same are stopped, and every fire has the same bytes but for what makes it unique.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import SharedServer
from tests.differential.differences import Differences
from tests.differential.sides import REFERENCE, fresh_name
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.cluster import running_cluster
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import V2_11
from tests.service.asking import answered

PAST = "@at 2020-01-01T00:00:00Z"
OURS = (b"Nats-Msg-Id: nats-scheduler:", b"Nats-Expected-Last-Subject-Sequence")
"""The headers behind those of ADR-51 in a fire of the sidecar."""


def as_native(block: bytes) -> bytes:
    """Return the headers of a fire without those that make it unique."""
    return b"\r\n".join(line for line in block.split(b"\r\n") if not line.startswith(OURS))


async def say_all(stream: FlaggedStream, due: str) -> None:
    """Store schedules of each kind, and stop some of them in each way."""
    at = f"@at {due}"
    await stream.publish("sensor", {"Kind": "reading", "X": " spaced "}, b"20.5")
    await stream.publish("at", {"Before": "1", **stream.headers(at), "kind": "order", "Nats-Msg-Id": "mine"}, b"once")
    await stream.schedule("ttl", at, b"", "out.ttl", {"TTL": "5m", "Rollup": "sub"})
    await stream.schedule("sample", at, b"own", "out.sample", {"Source": stream.subject("sensor")})
    await stream.schedule("past", PAST, b"past", "out.past")
    await stream.schedule("every", "@every 1s", b"tick", "ticks")
    await stream.schedule("replaced", at, b"old", "out.replaced")
    await stream.schedule("replaced", at, b"new", "out.replaced")
    await stream.schedule("cancelled", at, b"never", "out.cancelled")
    await stream.publish(
        "cancels", {"Nats-Scheduler": stream.subject("cancelled"), "Nats-Schedule-Next": "purge"}, b"cancel"
    )
    deleted = await stream.schedule("deleted", at, b"never", "out.deleted")
    await stream.call("STREAM.MSG.DELETE", {"seq": deleted})
    await stream.schedule("purged", at, b"never", "out.purged")
    await stream.call("STREAM.PURGE", {"filter": stream.subject("purged")})
    await stream.schedule("overwritten", at, b"never", "out.overwritten")
    await stream.publish("overwritten", body=b"plain")


async def story(stream: FlaggedStream) -> dict[str, Any]:
    """Say everything, and return the fires byte for byte and what else is stored.

    What is due is counted from here: a young cluster may take seconds to give the stream a leader.
    """
    await say_all(stream, in_seconds(2.5))
    await stream.wait_for("ticks", 2)
    await stream.call("STREAM.PURGE", {"filter": stream.subject("every")})
    await stream.canary(1.4)
    rests: dict[str, list[bytes | None]] = {}
    for message in await stream.messages(">"):
        rest = message.subject.removeprefix(f"{stream.name}.")
        if not rest.startswith(("canary", "out", "ticks")):
            rests.setdefault(rest, []).append(message.body)
    fires = [await stream.messages(rest) for rest in ("out", "out.>")]
    stored = sorted((one.subject, as_native(one.block), one.body) for found in fires for one in found)
    ticks = {one.body for one in await stream.messages("ticks")}
    return {"fires": stored, "rests": rests, "ticks": ticks}


async def on_the_native(share: SharedServer, name: str) -> dict[str, Any]:
    async with account_on((await share(REFERENCE)).url) as account:
        await account.create(name, allow_msg_ttl=True)
        return await story(FlaggedStream(account, name))


async def on_the_cluster(user: EmbeddedServer, sidecars_at: list[EmbeddedServer], name: str) -> dict[str, Any]:
    """Act out the story as a user at one node, with a sidecar at each of some nodes."""
    async with AsyncExitStack() as stack:
        account = await stack.enter_async_context(account_on(user.url))
        running = [await stack.enter_async_context(sidecar_on(node.url)) for node in sidecars_at]
        for one in running:
            # Its answer comes from that node only if that one knows of its other subscriptions too.
            await answered(account.connection, f"health.get.{one.sidecar.instance}")
        await account.create(name, num_replicas=3, allow_msg_ttl=True, allow_rollup_hdrs=True)
        stream = FlaggedStream(account, name)
        await stream.schedule_soon("served", PAST, target="canary.served")
        await stream.wait_for("canary.served")
        told = await story(stream)
        assert all(one.sidecar.served[name].engine.is_live for one in running)
        return told


@pytest.mark.clause("replicated")
async def test_a_replicated_stream_is_served_from_another_node_and_from_all(
    shared_server: SharedServer, tmp_path: Path
) -> None:
    found = Differences()
    async with running_cluster(V2_11, tmp_path) as cluster:
        for nodes in (cluster.nodes[:1], cluster.nodes):
            name = fresh_name()
            native, emulated = await asyncio.gather(
                on_the_native(shared_server, name), on_the_cluster(cluster.nodes[1], nodes, name)
            )
            found.compare(f"sidecars at {len(nodes)} nodes", {REFERENCE: native, V2_11: emulated})
    found.check(at_least=2)
