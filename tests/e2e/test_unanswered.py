"""A stream whose leader is away when a sidecar starts is served as soon as the leader is back."""

from pathlib import Path
from typing import Any

from tests.e2e.test_clusters import AS_ADOPTED, DURABLE
from tests.harness.account import account_on, sidecar_on
from tests.harness.cluster import running_cluster
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

NAMED_SECONDS = 25.0
"""Longest wait for the sidecar to say that the stream does not answer: a list takes some seconds then."""
BACK_SECONDS = 20.0
"""Longest wait for the stream once its leader is back: less than until the next list of all streams."""


async def test_a_stream_whose_leader_was_away_is_served_when_it_is_back(
    tmp_path: Path, said: list[dict[str, Any]]
) -> None:
    async with running_cluster(V2_11, tmp_path, config=DURABLE) as cluster:
        async with account_on((await cluster.meta_leader()).url) as account:
            created = await account.create("S", storage="file", num_replicas=1, **AS_ADOPTED)
            await account.publish("S.s", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.out"})
        (away,) = (node for node in cluster.nodes if node.name == created["cluster"]["leader"])
        await away.kill()
        other = await cluster.meta_leader()
        async with sidecar_on(other.url) as running:

            def is_named() -> bool:
                return any(line["event"] == "stream_read_failed" and line["stream"] == "S" for line in said)

            await eventually(is_named, within_seconds=NAMED_SECONDS, describe="the stream does not answer")
            await away.restart()
            await running.ready("S", within_seconds=BACK_SECONDS)
            async with account_on(other.url) as account:

                async def fires() -> bool:
                    return bool(await account.messages("S", "S.out"))

                await eventually(fires, within_seconds=BACK_SECONDS, describe="its schedule fires")
