"""One store on one port, on which servers of different versions run one after the other: upgrades and downgrades.

Its rule: the server before is stopped cleanly, so that what the next one finds is what its version makes of it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from tests.harness.servers import server_binary

NAME = "upgraded"


class Machine:
    """A machine on which somebody installs one version of the server after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.server: EmbeddedServer | None = None

    @property
    def url(self) -> str:
        """Where clients connect, whatever runs there."""
        return f"nats://127.0.0.1:{self._port}"

    async def install(self, version: str) -> str:
        """Stop what runs, start a server of this version on the same store and port, and return its URL."""
        await self.stop()
        self.server = EmbeddedServer(server_binary(version), self._folder, port=self._port, name=NAME)
        await self.server.start()
        return self.url

    async def stop(self) -> None:
        """Stop what runs."""
        if self.server is not None:
            await self.server.stop()
            self.server = None


@asynccontextmanager
async def machine_in(folder: Path) -> AsyncIterator[Machine]:
    """Run a machine for the length of a `with` block."""
    machine = Machine(folder)
    try:
        yield machine
    finally:
        await machine.stop()
