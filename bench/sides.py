"""The sides of a comparison: the native scheduler, and the sidecar in its modes, each on a real server of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.runtime.embedded import EmbeddedServer, find_server
from nats_scheduler.settings.connection import ConnectionSettings

STREAM = "BENCH"


@dataclass(frozen=True)
class Kind:
    """One side."""

    name: str
    server: str
    flagged: bool
    sidecar: bool
    prefix: bytes = b""


NATIVE = Kind("native", "2.15.1", flagged=True, sidecar=False)
EMULATED = Kind("emulated", "2.11.11", flagged=True, sidecar=True)
PORTABLE = Kind("portable", "2.15.1", flagged=False, sidecar=True, prefix=b"X-")


@dataclass
class Side:
    """A side that is running."""

    kind: Kind
    connection: Connection
    api: JetStreamApi

    async def count(self, subject: str) -> int:
        """Return how many messages lie on a subject of the stream."""
        info = await self.api.call(f"STREAM.INFO.{STREAM}", {"subjects_filter": subject})
        return sum((info["state"].get("subjects") or {}).values())

    async def wait_for(self, count: int, within_seconds: float) -> None:
        """Wait until so many messages were generated."""
        async with asyncio.timeout(within_seconds):
            while await self.count(f"{STREAM}.out") < count:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(kind: Kind, folder: Path, cache: Path) -> AsyncIterator[Side]:
    """Run one side with an empty stream."""
    async with EmbeddedServer(find_server(kind.server, cache), folder / kind.name) as server:
        connection = await Dialer(ConnectionSettings(servers=(server.url,))).dial()
        try:
            api = JetStreamApi(connection)
            config: dict[str, Any] = {"name": STREAM, "subjects": [f"{STREAM}.>"], "storage": "file"}
            if kind.flagged and not kind.sidecar:
                config["allow_msg_schedules"] = True
            if kind.flagged and kind.sidecar:
                config["metadata"] = {"nats-scheduler.allow_msg_schedules": "true"}
            await api.create_stream(config)
            if kind.sidecar:
                async with _sidecar(server.url, kind):
                    yield Side(kind, connection, api)
            else:
                yield Side(kind, connection, api)
        finally:
            await connection.close()


@asynccontextmanager
async def _sidecar(url: str, kind: Kind) -> AsyncIterator[None]:
    command = [str(Path(sys.executable).with_name("nats-scheduler")), "run", "-s", url]
    if not kind.flagged:
        command += ["--portable-streams", STREAM]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(20):
            while b"stream_ready" not in (line := await process.stderr.readline()):
                if not line:
                    raise RuntimeError("the sidecar ended before it served the stream")
        drain = asyncio.create_task(process.stderr.read())
        yield
        drain.cancel()
    finally:
        process.terminate()
        await process.wait()
