"""A cluster of three nats-servers of one version on loopback, whose nodes can be killed and started again.

Its rule: whatever returns from here has a meta leader that all running nodes name and keep up with, so the
next JetStream request is not the one that finds out.
Cost: about two seconds until the first election is over. Limit: one cluster name, no gateways, no leaf nodes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nats_scheduler.runtime.embedded import HOST, EmbeddedServer, EmbeddedServerError, free_port
from tests.harness.servers import server_binary
from tests.harness.waiting import eventually

NODES = 3
HEARD_SECONDS = 3.0
"""A peer whose last message is older is not keeping up; the leader's heartbeat is one second."""
MONITOR_SECONDS = 2.0
"""Longest wait for a node's answer about its JetStream state."""
START_ATTEMPTS = 3
"""The number of attempts to start a cluster: another process may take one of its ports, or no leader is elected."""


class Cluster:
    """Three servers that route to each other; `nodes[i].url` is the client port of each."""

    def __init__(self, version: str, folder: Path, config: str = "", *, advertise: bool = True) -> None:
        binary = server_binary(version)
        routes = [free_port() for _ in range(NODES)]
        self._monitors = [free_port() for _ in range(NODES)]
        self.nodes = [
            EmbeddedServer(
                binary,
                folder / f"n{i}",
                name=f"n{i}",
                config=_node_config(routes[i], routes, self._monitors[i], advertise=advertise) + config,
            )
            for i in range(NODES)
        ]

    @property
    def urls(self) -> list[str]:
        """The client URLs of all nodes, running or not."""
        return [node.url for node in self.nodes]

    async def start(self) -> None:
        """Start all nodes and wait for their meta leader; ends them all again when one fails."""
        results = await asyncio.gather(*(node.start() for node in self.nodes), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await self.stop()
            raise failures[0]
        await self.meta_leader()
        for node in self.nodes:
            if node.pid is None:  # it greets before it listens for the others, and ends if it cannot
                await self.stop()
                raise EmbeddedServerError(f"{node.name} ended at its start:\n{node.log.read_text(encoding='utf-8')}")

    async def stop(self) -> None:
        """End all nodes."""
        await asyncio.gather(*(node.stop() for node in self.nodes))

    async def meta_leader(self) -> EmbeddedServer:
        """Wait until all running nodes name one running leader and keep up with it, and return it."""
        return await eventually(self._agreed_leader, describe="one meta leader that all running nodes name and follow")

    async def kill(self, node: EmbeddedServer) -> None:
        """End one node with SIGKILL and wait until the others have a meta leader."""
        await node.kill()
        await self.meta_leader()

    async def revive(self, node: EmbeddedServer) -> None:
        """Start a node that was killed, on its old ports and store, and wait until it keeps up."""
        await node.start()
        await self.meta_leader()

    async def _agreed_leader(self) -> EmbeddedServer | None:
        states = {
            node.name: await _meta_state(monitor)
            for node, monitor in zip(self.nodes, self._monitors, strict=True)
            if node.pid is not None
        }
        named = {state.get("leader") for state in states.values()}
        leader = next(iter(named)) if len(named) == 1 else None
        if leader not in states:
            return None
        following = set(_keeping_up(states[leader].get("replicas") or []))
        if not set(states) - {leader} <= following:
            return None
        return next(node for node in self.nodes if node.name == leader)


@asynccontextmanager
async def running_cluster(
    version: str, folder: Path, *, config: str = "", advertise: bool = True
) -> AsyncIterator[Cluster]:
    """Run a cluster for the length of a `with` block; `config` is added to each node's own.

    Where nodes do not advertise each other, clients know the URLs that they were given, and a proxy is not gone round.
    """
    cluster = await _started(version, folder, config, advertise)
    try:
        yield cluster
    finally:
        await cluster.stop()


async def _started(version: str, folder: Path, config: str, advertise: bool) -> Cluster:
    for attempt in range(1, START_ATTEMPTS + 1):
        cluster = Cluster(version, folder / f"attempt-{attempt}", config, advertise=advertise)
        try:
            await cluster.start()
        except EmbeddedServerError as error:
            if "address already in use" not in str(error) or attempt == START_ATTEMPTS:
                raise
        except AssertionError:  # no meta leader: new nodes of 2.10 do not always elect one in this time
            await cluster.stop()
            if attempt == START_ATTEMPTS:
                raise
        except BaseException:
            await cluster.stop()
            raise
        else:
            return cluster
    raise AssertionError("unreachable: the last attempt returns or raises")


def _node_config(route: int, routes: Iterable[int], monitor: int, *, advertise: bool) -> str:
    others = ", ".join(f'"nats://{HOST}:{port}"' for port in routes)
    names = f'name: "test", listen: "{HOST}:{route}", no_advertise: {str(not advertise).lower()}'
    return f'http: "{HOST}:{monitor}"\ncluster {{ {names}, routes: [{others}] }}\n'


def _keeping_up(replicas: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Name the peers that the leader calls current and had contact with of late (`active` is in nanoseconds)."""
    for replica in replicas:
        if replica.get("current") and replica.get("active", 0) < HEARD_SECONDS * 1e9:
            yield replica["name"]


async def _meta_state(monitor: int) -> dict[str, Any]:
    """Ask a node's monitoring port for its view of the meta group; empty while it has none."""
    try:
        async with asyncio.timeout(MONITOR_SECONDS):
            reader, writer = await asyncio.open_connection(HOST, monitor)
            try:
                writer.write(b"GET /jsz HTTP/1.0\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.transport.abort()
    except OSError:  # TimeoutError is one
        return {}
    body = json.loads(answer.partition(b"\r\n\r\n")[2] or b"{}")
    meta: dict[str, Any] = body.get("meta_cluster") or {}
    return meta
