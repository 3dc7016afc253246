"""The sides of a comparison: the native scheduler, the sidecar in its modes, and a pair of it, each on its own server.

The rule: the sidecar is a process of its own, so that its CPU and its memory are its own.
What is called the scheduler is the process that schedules: the server where it is native, else the sidecar, or both
sidecars of the pair.
"""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.runtime.embedded import HOST, EmbeddedServer, find_server, tied_to_this_process
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.bench.load import PROBED, STREAM, at_pattern, schedule
from tests.bench.processes import Cpu, cpu_seconds, kernel_seconds, resident_bytes
from tests.bench.publisher import Publisher

CACHE = Path(__file__).parents[2] / ".cache" / "nats-server"
READY_SECONDS = 1_800.0
"""Longest wait for a scheduler that was started, or that follows a load, to fire."""
ANSWER_SECONDS = 60.0
"""Longest wait for an answer: with millions of subjects a server pauses for seconds."""
POLL_SECONDS = 0.02
"""Pause between two checks of a stream."""
PROBE_POLL_SECONDS = 0.005
STOP_SECONDS = 60.0
"""Longest wait for a process to end; a server with millions of messages writes its index first."""


@dataclass(frozen=True)
class Kind:
    """One side."""

    name: str
    server: str
    flagged: bool
    sidecar: bool
    prefix: bytes = b""
    instances: int = 1
    """The number of sidecars, unless the scenario itself sets one."""

    def stream(self, name: str = STREAM, has_ttl: bool = False) -> dict[str, Any]:
        """Return the configuration of a stream that is measured."""
        config: dict[str, Any] = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
        if has_ttl:
            config["allow_msg_ttl"] = True
        if self.flagged and not self.sidecar:
            config["allow_msg_schedules"] = True
        if self.flagged and self.sidecar:
            config["metadata"] = {"nats-scheduler.allow_msg_schedules": "true"}
        return config


NATIVE = Kind("native", "2.15.1", flagged=True, sidecar=False)
EMULATED = Kind("emulated", "2.11.11", flagged=True, sidecar=True)
PORTABLE = Kind("portable", "2.15.1", flagged=False, sidecar=True, prefix=b"X-")
PAIR = Kind("pair", "2.11.11", flagged=True, sidecar=True, instances=2)
"""Two sidecars as everybody should run them, an owner and a standby, beside one."""
KINDS = (NATIVE, EMULATED, PORTABLE, PAIR)


class Mark(NamedTuple):
    """Where the stream stood at one point of a scenario."""

    last_sequence: int
    messages: int
    acknowledged: int
    """Messages of the load so far."""


class StartError(Exception):
    """A sidecar ended, or did not become ready; shows its output."""


@dataclass
class Sidecar:
    """One running sidecar; its output is in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    async def ready(self, owns: bool = True) -> None:
        """Wait until it has read the stream, and owns it; with `owns` false it may be a standby."""
        try:
            await _until(partial(self.serves, 1, owns), READY_SECONDS)
        except TimeoutError as error:
            raise StartError(self.log.read_text(errors="replace")) from error

    async def stop(self) -> None:
        """End it as an operator would."""
        self.process.terminate()
        try:
            await _until(self._has_ended, STOP_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()

    async def serves(self, streams: int, owns: bool = True) -> bool:
        """Return whether it has read `streams` streams, and owns them; with `owns` false it may be a standby."""
        if await self._has_ended():
            raise StartError(self.log.read_text(errors="replace"))
        said = self.log.read_bytes()
        return all(said.count(event) >= streams for event in (b"stream_ready", *([b"owner_changed"] if owns else [])))

    async def _has_ended(self) -> bool:
        return self.process.poll() is not None


@dataclass
class Side:
    """A side that is running."""

    kind: Kind
    folder: Path
    server: EmbeddedServer
    connection: Connection
    api: JetStreamApi
    publisher: Publisher
    draw: Random
    """Draws when the load is due."""
    flags: tuple[str, ...] = ()
    """The settings of the sidecar that are not its defaults."""
    sidecars: list[Sidecar] = field(default_factory=list)
    streams: list[str] = field(default_factory=lambda: [STREAM])
    """The names of the streams that are measured."""
    _probed: int = 0

    async def store(self, frames: Iterable[bytes]) -> float:
        """Store messages as fast as the server takes them, and return how many a second it took."""
        started = time.perf_counter()
        stored = await self.publisher.publish(frames)
        return stored / (time.perf_counter() - started)

    async def mark(self) -> Mark:
        """Return where the stream stands; all that was published must be acknowledged."""
        state = (await self.api.call(f"STREAM.INFO.{STREAM}"))["state"]
        return Mark(state["last_seq"], state["messages"], self.publisher.acknowledged)

    async def wait_for_fires(self, count: int, since: Mark, within_seconds: float) -> None:
        """Wait until `count` messages were generated since a mark, while nothing is published.

        The stream's last sequence shows it: to count the messages on many targets, the server would list them all.
        """

        async def are_there() -> bool:
            now = await self.mark()
            return now.last_sequence - since.last_sequence >= count + now.acknowledged - since.acknowledged

        await _until(are_there, within_seconds)

    async def wait_for_purges(self, left: int, within_seconds: float) -> None:
        """Wait until at most `left` messages are stored in the stream."""

        async def are_gone() -> bool:
            return (await self.mark()).messages <= left

        await _until(are_gone, within_seconds)

    async def purge(self, subjects: str = "") -> None:
        """Remove what is stored on some subjects of the stream; all, if none are given."""
        await self.api.call(f"STREAM.PURGE.{STREAM}", {"filter": subjects} if subjects else {})

    async def until_it_fires(self) -> int:
        """Store a schedule that is due, and return when its message was stored (ns): all before it was followed."""
        due = at_pattern(time.time_ns())
        await self.publisher.publish([schedule(f"{STREAM}.probe", due, self.kind.prefix, PROBED)])
        before, stored_at = self._probed, 0

        async def has_fired() -> bool:
            nonlocal stored_at
            fired = await self.api.message(STREAM, last_by_subj=PROBED)
            if fired is not None:
                self._probed, stored_at = fired.sequence, fired.stored_at
            return self._probed > before

        await _until(has_fired, READY_SECONDS, PROBE_POLL_SECONDS)
        return stored_at

    @property
    def server_pid(self) -> int:
        """The server's process."""
        assert self.server.pid is not None
        return self.server.pid

    @property
    def scheduler_pids(self) -> list[int]:
        """The processes that schedule."""
        return [sidecar.process.pid for sidecar in self.sidecars] or [self.server_pid]

    def cpu(self) -> Cpu:
        """Return the seconds of CPU that were used so far."""
        used = {pid: cpu_seconds(pid) for pid in {self.server_pid, *self.scheduler_pids}}
        scheduler = sum(used[pid] for pid in self.scheduler_pids)
        return Cpu(sum(used.values()), scheduler, used[self.server_pid], sum(map(kernel_seconds, used)))

    def scheduler_memory(self) -> int:
        """Return the resident bytes of the scheduler."""
        return sum(map(resident_bytes, self.scheduler_pids))

    def start_sidecar(self) -> Sidecar:
        """Start one more instance of the sidecar, without waiting for it.

        It has the file of schedules of the one that was stopped in its place, if there was one.
        """
        log = self.folder / f"sidecar-{time.time_ns()}.log"
        command = [
            str(Path(sys.executable).with_name("nats-scheduler")),
            "run",
            "--no-context",
            "-s",
            self.server.url,
            "--data",
            str(self._data / str(len(self.sidecars))),
            *self.flags,
        ]
        if not self.kind.flagged:
            command += ["--portable-streams", ",".join(self.streams)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                tied_to_this_process(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.sidecars.append(Sidecar(process, log))
        return self.sidecars[-1]

    @property
    def _data(self) -> Path:
        """The folder with those of the sidecars."""
        return self.folder / f"{self.kind.name}-data"

    async def restart_scheduler(self, has_file: bool = True) -> float:
        """Stop the scheduler and start it again; returns the seconds from its start until it has fired.

        Without `has_file` the files of schedules are deleted between.
        """
        if self.kind.sidecar:
            await self.stop_sidecars()
            if not has_file:
                self.forget_files()
            started = time.time_ns()
            for _ in range(self.kind.instances):
                self.start_sidecar()
        else:
            await self.server.stop(STOP_SECONDS)
            started = time.time_ns()
            await self.server.start()
            await self.reconnect()
        return (await self.until_it_fires() - started) / 1_000_000_000

    def forget_files(self) -> None:
        """Delete the files of schedules; no sidecar may run."""
        shutil.rmtree(self._data, ignore_errors=True)

    async def serve_many(
        self, names: Sequence[str], within_seconds: float, sidecars: int = 1, has_ttl: bool = False
    ) -> float | None:
        """Create more streams, start anew, and return the seconds until all are served; None on the native side.

        Of more than one sidecar each is started when those before it are ready; the first reads and owns all streams,
        and the others those that are theirs.
        """
        for name in names:
            await self.api.create_stream(self.kind.stream(name, has_ttl))
        self.streams += names
        if not self.kind.sidecar:
            return None
        await self.stop_sidecars()
        started = time.perf_counter()
        for number in range(max(sidecars, self.kind.instances)):
            count = 1 if number else len(self.streams)
            await _until(partial(self.start_sidecar().serves, count, not number), within_seconds)
        return time.perf_counter() - started

    async def reconnect(self) -> None:
        """Connect again, after the server was started again."""
        self.publisher.close()
        await self.connection.close()
        self.connection, self.api, self.publisher = await _connect(self.server)

    async def stop_sidecars(self) -> None:
        """Stop every instance of the sidecar."""
        while self.sidecars:
            await self.sidecars.pop().stop()


async def _until(condition: Callable[[], Awaitable[bool]], within_seconds: float, pause: float = POLL_SECONDS) -> None:
    """Check the condition until it holds; raises `TimeoutError` past the deadline."""
    async with asyncio.timeout(within_seconds):
        while not await condition():  # noqa: ASYNC110 - neither a server nor a process notifies us
            await asyncio.sleep(pause)


@asynccontextmanager
async def running(
    kind: Kind, folder: Path, draw: Random, sidecars: int | None = None, flags: tuple[str, ...] = ()
) -> AsyncIterator[Side]:
    """Run one side with an empty stream; `draw` draws when its load is due.

    `sidecars` is their number, by default that of the kind, `flags` are their settings.
    """
    binary = find_server(kind.server, CACHE)
    async with EmbeddedServer(binary, folder / kind.name, ready_seconds=READY_SECONDS) as server:
        side = Side(kind, folder, server, *await _connect(server), draw, flags)
        side.forget_files()
        try:
            await side.api.create_stream(kind.stream())
            for number in range((kind.instances if sidecars is None else sidecars) if kind.sidecar else 0):
                await side.start_sidecar().ready(owns=not number)
            yield side
        finally:
            await side.stop_sidecars()
            side.publisher.close()
            await side.connection.close()


async def _connect(server: EmbeddedServer) -> tuple[Connection, JetStreamApi, Publisher]:
    connection = await Dialer(ConnectionSettings(servers=(server.url,))).dial()
    return connection, JetStreamApi(connection, deadline=ANSWER_SECONDS), await Publisher.connect(HOST, server.port)
