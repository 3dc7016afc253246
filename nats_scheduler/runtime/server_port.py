"""The requests of the runtime to JetStream, to serve a stream and to divide it among instances: as few as possible.

Two implementations exist of each: those of `jetstream`, and the models of the simulation (`tests/simulation`).

The rule: a failure raises `SchedulerError`; what was requested may have happened or not, or may happen later.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nats_scheduler.engine.stream_port import Notify, StreamPort
from nats_scheduler.jetstream.api import Config, Removed
from nats_scheduler.jetstream.registry import Delivered
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.message.stored import StoredMessage


class Bucket(Protocol):
    """The key-value bucket through which instances exchange what they write; see `jetstream.registry`.

    To read a value of an unknown format raises `UnknownFormatError`.
    """

    created: str
    """The time at which the bucket that was opened, or seen, last was created, as the server reports it."""

    broken: Callable[[str, str], None]
    """Is called with the key of a value that no sidecar can have written, and what is wrong with it."""

    async def open(self) -> bool:
        """Create the bucket if it does not exist, and return whether it was created."""
        ...

    async def is_replaced(self) -> bool:
        """Return whether the bucket is gone, or a later one than `created`."""
        ...

    async def get(self, key: str) -> Object | None:
        """Return the last value, None if there is none."""
        ...

    async def revised(self, key: str) -> tuple[Object | None, int]:
        """Return the last value and its revision, 0 if there is none."""
        ...

    async def swap(self, key: str, value: Any, revision: int) -> int | None:
        """Write a value in place of the one with this revision (0: of none); None if another one is there by now."""
        ...

    async def purge(self, key: str) -> None:
        """Remove everything that is stored under a key."""
        ...

    def send(self, key: str, value: Any) -> bool:
        """Write a value without waiting for the answer; False if it is too large."""
        ...

    def mark_deleted(self, key: str) -> None:
        """Notify followers that a key has no value any more, without waiting for the answer."""
        ...

    async def follow(self, keys: Sequence[str], received: Callable[[str, Delivered, StoredMessage], None]) -> None:
        """Deliver what is stored under matching keys, then what is written, in order; it ends only with an error."""
        ...


class StreamInformation(Protocol):
    """Returns what the server reports about a stream; see `jetstream.api`."""

    async def stream(self, name: str) -> Any:
        """Return a stream's information, or None if it does not exist."""
        ...


class StreamContents(StreamInformation, Protocol):
    """Returns also what is stored in a stream."""

    async def message(self, stream: str, *, seq: int) -> StoredMessage | None:
        """Return the message with a sequence, None if there is none."""
        ...

    async def removed(self, name: str, most: int) -> Removed | None:
        """Return which messages of a stream were removed; None if that is not known, or if more than `most` were."""
        ...


class Contacts(Protocol):
    """Makes contact with a stream on the current connection; see `jetstream.contact`."""

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
        last_read: Callable[[], int],
        is_standby: Callable[[], bool],
    ) -> StreamPort:
        """Make contact; the tasks that it begins belong to the task group."""
        ...
