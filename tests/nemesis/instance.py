"""One sidecar as a real process, behind proxies of its own, one for each server: it can be cut off alone.

Its rule: a life begins when the process is started; it counts as broken until its first
connection.
It has the folder of the life before, unless a strike has done something to its file of schedules.
"""

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from nats_scheduler.message.identity import parse_identity
from nats_scheduler.runtime.schedule_file import FILE_NAME
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.harness.processes import ChildProcess, clean_environment, sidecar_command
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually
from tests.judge.history import SECOND, FireAnswered, FireKey
from tests.nemesis.ground import ELSEWHERE, STREAM
from tests.nemesis.record import Record, now
from tests.nemesis.scenario import Strike
from tests.nemesis.shifted import AHEAD

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = ("--allowed-targets-elsewhere", f"{STREAM}={ELSEWHERE}>")
CONTINUED = re.compile(rf'^\{{(?=.*"stream": ?"{STREAM}").*"event": ?"stream_continued"', re.M)
FIRE_STORED = re.compile(r'^\{.*"event": ?"fire_stored".*', re.M)
"""A debug line about a fire that is stored, by an answer of the server."""
START_SECONDS = 60.0
"""Longest wait for a process to connect, on a busy machine."""


class Clock:
    """The clocks of the processes of one sidecar, which read from a file how far they are ahead."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(AHEAD.size))
        self.command = [sys.executable, "-m", "tests.nemesis.shifted", str(file)]
        """The command of a sidecar that has it."""
        self._file = file

    def set_ahead(self, seconds: float, way: str) -> None:
        """Set the clocks ahead that the way of a strike names."""
        ahead = int(seconds * SECOND)
        with self._file.open("r+b") as opened:  # in place: the processes have mapped it
            opened.write(AHEAD.pack(ahead, way.startswith("machine") * ahead))


class Instance:
    """A sidecar, and the faults that it can suffer."""

    def __init__(
        self,
        name: str,
        servers: list[str],
        folder: Path,
        record: Record,
        *,
        clock: Clock | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """Make a sidecar; with a `clock`, that is the one of its machine."""
        self.name = name
        self._options = options
        self._command = [*sidecar_command(), "run"] if clock is None else clock.command
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
            [*self._command, "--server", servers, "--log-format", "json", *ALLOWED, *self._options],
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
            self._harm(strike)
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

    def _harm(self, strike: Strike) -> None:
        """Do to the file of schedules what the strike says; the process is down."""
        random = Random(f"{strike}")
        for file in self._temporary.glob(f"nats-scheduler-*/*/{FILE_NAME}"):
            if strike.way == "folder-deleted":
                shutil.rmtree(file.parent)
            elif strike.way == "file-cut":
                os.truncate(file, random.randrange(file.stat().st_size + 1))
            elif strike.way == "file-flipped" and file.stat().st_size:
                content = bytearray(file.read_bytes())
                content[random.randrange(len(content))] ^= 1 << random.randrange(8)
                file.write_bytes(content)

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
    def continued(self) -> int:
        """The number of its lives that continued with the stream from their file, by their logs."""
        return sum(CONTINUED.search(log) is not None for log in self._logs())

    def answered(self) -> Iterator[FireAnswered]:
        """Yield what servers answered to fires that were stored, by the logs of its lives, if they say so.

        That a fire is a duplicate says nothing about what is stored: no fire counts by that alone.
        """
        for log in self._logs():
            for line in FIRE_STORED.finditer(log):
                said = json.loads(line[0])
                identity = parse_identity(said["identity"])
                at = parse_rfc3339(said["timestamp"])
                assert isinstance(at, int), line[0]
                if said["stream"] == STREAM and identity is not None and not said["duplicate"]:
                    yield FireAnswered(FireKey(identity[1], identity[2]), said["stored_as"], at)

    def last_lines(self, schedule: str, count: int) -> list[str]:
        """Return the last lines of its logs that name a schedule."""
        named = f'"{schedule}"'
        found = [line for log in self._logs() for line in log.splitlines() if named in line]
        return [f"{self.name}: {line}" for line in found[-count:]]

    def _logs(self) -> Iterator[str]:
        """Yield the log of each life."""
        for life in range(1, self._lives + 1):
            yield (self._folder / f"{self.name}-life-{life}.err").read_text("utf-8", "replace")

    @property
    def traces(self) -> list[str]:
        """The logs of its lives that report something unforeseen."""
        files = sorted(self._folder.glob(f"{self.name}-life-*"))
        return [file.name for file in files if "Traceback" in file.read_text("utf-8", "replace")]
