"""What the runtime asks of JetStream to serve a stream, and to divide it among instances: as little as it can.

Two implementations exist of each: those of `jetstream`, and the models of the simulation (`tests/simulation`).

The rule: what fails raises `JetStreamError`; what was asked then may have happened or not, or happens later.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nats_scheduler.engine.port import Notify, StreamPort
from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.message.stored import StoredMessage


class Bucket(Protocol):
    """The key-value bucket through which instances know of each other; see `jetstream.registry`."""

    created: str
    """When the bucket that was opened last was created, as the server says it; empty before."""

    broken: Callable[[str, str], None]
    """Is told the key of a value that is not of our making, and what is wrong with it."""

    async def open(self) -> bool:
        """Create the bucket where it does not exist, and return whether that was so."""
        ...

    async def get(self, key: str) -> Object | None:
        """Return the last value, None where there is none."""
        ...

    async def revised(self, key: str) -> tuple[Object | None, int]:
        """Return the last value and its revision, 0 where there is none."""
        ...

    async def swap(self, key: str, value: Any, revision: int) -> int | None:
        """Write a value in place of the one with this revision (0: of none); None where another one is there by now."""
        ...

    async def purge(self, key: str) -> None:
        """Remove whatever is stored under a key."""
        ...

    def send(self, key: str, value: Any) -> bool:
        """Write a value without waiting whether it is stored; False where it is too large."""
        ...

    def mark_deleted(self, key: str) -> None:
        """Let whoever follows know that a key has no value any more, without waiting whether it is stored."""
        ...

    async def follow(self, keys: Sequence[str], received: Callable[[str, Object | None, StoredMessage], None]) -> None:
        """Tell what is stored under keys that match, and then what is written, in order; it ends only by failing."""
        ...


class StreamInformation(Protocol):
    """Says what the server says of a stream; see `jetstream.api`."""

    async def stream(self, name: str) -> Any:
        """Return a stream's information, or None where it does not exist."""
        ...


class StreamContents(StreamInformation, Protocol):
    """Says also what is stored in a stream."""

    async def message(self, stream: str, *, seq: int) -> StoredMessage | None:
        """Return the message with a sequence, None where there is none."""
        ...


class Contacts(Protocol):
    """Makes contact with a stream on the connection of the moment; see `jetstream.contact`."""

    def __call__(
        self,
        config: Config,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        /,
        *,
        holds: Callable[[str], bool],
        window: int,
        ack_timeout: float,
        history_after: int | None,
    ) -> StreamPort:
        """Make contact, inside the task group that is to own what it begins."""
        ...
