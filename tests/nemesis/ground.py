"""The servers of a round: one, or a cluster of three, with the stream under test, another one, and a log of schedules.

Its rule: the server itself copies every schedule message to the log when it stores it, so that nothing that was ever
stored is unknown, however soon it is replaced or purged.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats_scheduler.control.errors import NotConnectedError, SchedulerError
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.harness.account import Account
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.flagged import FLAGGED
from tests.harness.servers import running_server
from tests.harness.waiting import eventually
from tests.judge.history import SECOND, StoreSeen
from tests.judge.reading import store_seen
from tests.nemesis.scenario import SHORT_WINDOW, Scenario

STREAM = "NEMESIS"
LOG = "LOG"
OTHER = "OTHER"
"""The stream into which some schedules fire."""
ELSEWHERE = "o."
"""The prefix of its subjects."""
BUCKET = "KV_nats_scheduler"
CALENDARS = "nats_scheduler_calendars"
"""The bucket of calendars."""
WORKED = ("t.0", "t.1", "t.2", "t.3", "t.queue", "t.skip")
"""The targets whose workers take their time."""
AT_ONCE = "at-once"
"""The consumer of all other targets, which works on a work queue only."""
OTHERS = ("t.4", "t.5", "t.6", "t.7", "t.8", "t.9", "t.10", "t.11", "t.steady.>", "t.late.>")
DURABLE = "jetstream { sync_interval: always }\n"
STORE = Path("jetstream", "$G", "streams", STREAM, "msgs")
"""Where a server keeps the messages of the stream."""
PROBE_SECONDS = 3.0
"""Longest time for all answers of a probe: a busy server needs some time for each."""
STEP_DOWN_SECONDS = 2.0
ACK_WAIT = 2 * SECOND
"""Time (ns) after which a message is delivered again."""


def worker_of(target: str) -> str:
    """Return the name of the consumer of a target."""
    return f"worker-{target.removeprefix('t.')}"


class Ground:
    """The servers, and the faults that they suffer."""

    def __init__(self, nodes: list[EmbeddedServer], cluster: Cluster | None, scenario: Scenario) -> None:
        self.nodes = nodes
        self._retention = "workqueue" if scenario.consumes else "limits"
        self.cluster = cluster
        self._paused: list[EmbeddedServer] = []
        self.changed = asyncio.Event()
        """Set when nodes are stopped: who needs answers connects again."""
        self.consumers: dict[str, tuple[str, ...]] = {worker_of(target): (target,) for target in WORKED}
        """The targets of the generated messages that each consumer receives."""
        if scenario.consumes:
            self.consumers[AT_ONCE] = OTHERS

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [node.url for node in self.nodes]

    @property
    def running(self) -> list[EmbeddedServer]:
        """The nodes that run, and are not stopped."""
        return [node for node in self.nodes if node.pid is not None and node not in self._paused]

    def pause(self, node: EmbeddedServer) -> None:
        """Stop a node: it holds its connections and does nothing."""
        if node.pid is not None and node not in self._paused:
            os.kill(node.pid, signal.SIGSTOP)
            self._paused.append(node)
            self.changed.set()

    def resume(self) -> None:
        """Let the nodes that are stopped go on."""
        for node in self._paused:
            if node.pid is not None:
                os.kill(node.pid, signal.SIGCONT)
        self._paused.clear()

    async def stores(self) -> list[StoreSeen]:
        """End all nodes, and return what the files of each hold of the stream under test."""
        self.resume()
        await asyncio.gather(*(node.stop() for node in self.nodes))
        return [store_seen(node.name, node.store_dir / STORE) for node in self.nodes]

    async def step_down(self, stream: str) -> None:
        """Let the leader of a stream step down; raises as the API does."""
        async with asyncio.timeout(STEP_DOWN_SECONDS), self.account() as account:
            await account.api.call(f"STREAM.LEADER.STEPDOWN.{stream}")

    @asynccontextmanager
    async def account(self) -> AsyncIterator[Account]:
        """Connect to any node that runs."""
        running = tuple(node.url for node in self.running)
        if not running:
            raise NotConnectedError("no server runs")
        connection = await Dialer(ConnectionSettings(servers=running)).dial()
        try:
            yield Account(connection, JetStreamApi(connection))
        finally:
            await connection.close()

    async def create_streams(self) -> None:
        """Create the streams, and the consumers of the one under test."""
        replicas = len(self.nodes)
        shared = {"storage": "file", "num_replicas": replicas}
        async with self.account() as account:
            await account.api.call(f"STREAM.CREATE.{LOG}", {"name": LOG, "subjects": ["log.>"], **shared})
            other = {"name": OTHER, "subjects": [f"{ELSEWHERE}>"], "duplicate_window": SHORT_WINDOW, **shared}
            await account.api.call(f"STREAM.CREATE.{OTHER}", other)
            wanted = {
                "name": STREAM,
                "subjects": ["s.>", "t.>", "x.>"],
                "allow_msg_schedules": True,
                "allow_rollup_hdrs": True,
                "retention": self._retention,
                "metadata": FLAGGED,
                "republish": {"src": "s.>", "dest": "log.s.>"},
                **shared,
            }
            await account.api.call(f"STREAM.CREATE.{STREAM}", wanted)
            for name, filters in self.consumers.items():
                config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": ACK_WAIT}
                body = {"stream_name": STREAM, "config": {**config, "filter_subjects": filters}}
                await account.api.call(f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", body)

    async def serves(self) -> None:
        """Wait until all streams, buckets and consumers have leaders on nodes that run, and a message is stored."""
        await eventually(self._answers, describe="the streams have leaders that answer")

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS), self.account() as account:
                for name in (STREAM, OTHER, BUCKET, f"KV_{CALENDARS}"):
                    if not await self._is_led(account, name):
                        return False
                for name in self.consumers:
                    await account.api.consumer(STREAM, name)  # only its leader answers
                await account.publish("x.probe")
        except (SchedulerError, OSError):  # TimeoutError is one
            return False
        return True

    async def _is_led(self, account: Account, name: str) -> bool:
        info = await account.api.stream(name)
        if info is None:
            return name not in (STREAM, OTHER)  # the sidecars and the editor make the buckets
        leader = (info.get("cluster") or {}).get("leader")
        running = {node.name for node in self.running}
        return self.cluster is None or leader in running


@asynccontextmanager
async def ground_for(scenario: Scenario, folder: Path) -> AsyncIterator[Ground]:
    """Run the servers of a round, with their streams."""
    if scenario.nodes == 1:
        async with running_server(scenario.version, folder / "server") as server:
            ground = Ground([server], None, scenario)
            await ground.create_streams()
            yield ground
        return
    config = DURABLE if scenario.durable else ""
    async with running_cluster(scenario.version, folder / "cluster", config=config, advertise=False) as cluster:
        ground = Ground(cluster.nodes, cluster, scenario)
        await eventually(lambda: _created(ground), describe="the streams of the cluster are created")
        try:
            yield ground
        finally:
            ground.resume()


async def _created(ground: Ground) -> bool:
    try:
        await ground.create_streams()
    except SchedulerError:
        return False
    return True
