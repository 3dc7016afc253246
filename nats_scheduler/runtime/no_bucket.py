"""A registry's bucket that keeps nothing: for a stream whose shards no other instance takes over.

The rule: every write succeeds, and nothing is ever found.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.jetstream.registry import Delivered
from nats_scheduler.message.stored import StoredMessage


class NoBucket:
    """A bucket without values; a `runtime.port.Bucket`."""

    def __init__(self) -> None:
        self.created = ""
        self.broken: Callable[[str, str], None] = lambda _key, _reason: None

    async def open(self) -> bool:
        """Return that it exists."""
        return False

    async def get(self, _key: str) -> Object | None:
        """Return no value."""
        return None

    async def revised(self, _key: str) -> tuple[Object | None, int]:
        """Return no value and no revision."""
        return None, 0

    async def swap(self, _key: str, _value: Any, revision: int) -> int | None:
        """Return the next revision."""
        return revision + 1

    async def purge(self, _key: str) -> None:
        """Remove nothing."""

    def send(self, _key: str, _value: Any) -> bool:
        """Return that it is not too large."""
        return True

    def mark_deleted(self, _key: str) -> None:
        """Change nothing."""

    async def follow(self, _keys: Sequence[str], _received: Callable[[str, Delivered, StoredMessage], None]) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()
