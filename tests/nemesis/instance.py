"""One sidecar as a real process, behind proxies of its own, one for each server: it can be cut off alone.

Its rule: a life begins when the process is started; it counts as broken until its first
connection.
It has the folder of the life before.
"""

import asyncio
from pathlib import Path

from tests.harness.processes import ChildProcess, clean_environment, sidecar_command
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually
from tests.nemesis.ground import ELSEWHERE, STREAM
from tests.nemesis.record import Record, now
from tests.nemesis.scenario import Strike

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = ("--allowed-targets-elsewhere", f"{STREAM}={ELSEWHERE}>")
START_SECONDS = 60.0
"""Longest wait for a process to connect, on a busy machine."""


class Instance:
    """A sidecar, and the faults that it can suffer."""

    def __init__(self, name: str, servers: list[str], folder: Path, record: Record) -> None:
        self.name = name
        self.is_struck = False
        self.process: ChildProcess | None = None
        self._proxies = [Proxy(server) for server in servers]
        self._folder = folder
        self._temporary = folder / f"{name}-tmp"
        """The folder with that of its schedules, which it keeps over its lives."""
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._record = record
        self._lives = 0
        self._born = 0
        self._starting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Let the proxies listen."""
        for proxy in self._proxies:
            await proxy.listen()

    async def close(self) -> None:
        """End everything."""
        if self.process is not None:
            self.process.kill()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        for proxy in self._proxies:
            await proxy.close()

    def start(self) -> None:
        """Start the process."""
        self._lives += 1
        servers = ",".join(proxy.url for proxy in self._proxies)
        self._born = now()
        self._record.history.found_no_checkpoint.append(self._born)  # it may have, and nothing here shows it
        links = self._links
        self.process = ChildProcess(
            [*sidecar_command(), "run", "--server", servers, "--log-format", "json", *ALLOWED],
            self._folder,
            name=f"{self.name}-life-{self._lives}",
            env=clean_environment(self._folder) | {"PYTHONPATH": str(ROOT), "TMPDIR": str(self._temporary)},
        )
        self._starting = asyncio.create_task(self._note_the_start(links))

    async def connected(self) -> None:
        """Wait until the process has connected."""
        if self._starting is not None:
            await self._starting

    def end(self) -> None:
        """Kill the process and note its life."""
        assert self.process is not None, "it was started"
        self.process.kill()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            self._record.broken("starting", self.name, self._born)
        self._record.lived(self.name, self._born, now())

    @property
    def has_ended_by_itself(self) -> bool:
        """True if the process ended without being killed."""
        return self.process is not None and self.process.exit_code is not None

    @property
    def _links(self) -> int:
        return sum(proxy.links_made for proxy in self._proxies)

    async def _note_the_start(self, links: int) -> None:
        begin = self._born
        await eventually(
            lambda: self._links > links, within_seconds=START_SECONDS, describe=f"{self.name} is connected"
        )
        self._record.broken("starting", self.name, begin)

    # -- strikes -------------------------------------------------------------------------------------------------

    def strike(self, strike: Strike) -> None:
        """Begin a strike."""
        assert self.process is not None, "it was started"
        if strike.kind == "kill":
            self.end()
        elif strike.kind == "stop":
            self.process.pause()
        elif strike.kind == "cut":
            self._each("cut")
        elif strike.kind == "partition":
            self._partition(strike.way)
        else:
            self._delay(strike)

    def heal(self, strike: Strike) -> None:
        """End a strike."""
        assert self.process is not None, "it was started"
        if strike.kind == "kill":
            self.start()
        elif strike.kind == "stop":
            self.process.resume()
        else:
            self._each("heal")

    def _partition(self, way: str) -> None:
        """Let nothing through: bytes in transit are held, or lost, or the connection is refused."""
        if way == "held":
            self._each("freeze")
        elif way == "held-answers":
            for proxy in self._proxies:
                proxy.to_client.hold()
        else:
            self._each("refuse")
            self._each("strand" if way == "lost" else "cut")

    def _delay(self, strike: Strike) -> None:
        for proxy in self._proxies:
            if strike.way != "to-client":
                proxy.to_server.delay = strike.delay
            if strike.way != "to-server":
                proxy.to_client.delay = strike.delay

    def _each(self, act: str) -> None:
        for proxy in self._proxies:
            getattr(proxy, act)()

    @property
    def traces(self) -> list[str]:
        """The logs of its lives that report something unforeseen."""
        files = sorted(self._folder.glob(f"{self.name}-life-*"))
        return [file.name for file in files if "Traceback" in file.read_text("utf-8", "replace")]
