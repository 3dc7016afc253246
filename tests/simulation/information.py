"""The requests of a simulated sidecar to its server about the stream, through a connection that may end."""

from typing import Any

from nats_scheduler.jetstream.api import Removed
from nats_scheduler.message.stored import StoredMessage
from tests.simulation.link import Link
from tests.simulation.process import Point
from tests.simulation.server import Server


class Information:
    """The server's information about the stream, requested through a connection: a `runtime.port.StreamInformation`."""

    def __init__(self, server: Server, link: Link) -> None:
        self._server = server
        self._link = link

    async def stream(self, _name: str) -> Any:
        """Return the stream's information."""
        return await self._link.ask_again(Point.LOOK_AT_STREAM, self._server.information, then=Point.LOOKED_AT_STREAM)

    async def message(self, _name: str, *, seq: int) -> StoredMessage | None:
        """Return the message with a sequence."""
        return await self._link.ask_again(Point.LOOK_AT_STREAM, lambda: self._server.stream.message(seq))

    async def removed(self, _name: str, most: int) -> Removed | None:
        """Return which messages were removed."""
        return await self._link.ask_again(Point.LOOK_AT_STREAM, lambda: self._removed(most))

    def _removed(self, most: int) -> Removed | None:
        first, gone = self._server.removed()
        return Removed(first, gone) if len(gone) <= most else None
