"""One value of the registry's bucket in which each instance has an entry of its own, for tools that read it.

The rules: an instance writes its own entry and no other, by compare-and-set. Entries of instances that are gone are
removed by the next instance that writes. The size of an entry is limited by what the others leave. Each entry has the
number of its own format (`jetstream.formats`): those of a newer version stay as they are.
Cost: two requests if nothing has changed, three otherwise.
Limit: the entry of a killed instance stays until another one writes; readers use those of alive instances only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from nats_scheduler.jetstream.foreign_json import Object
from nats_scheduler.jetstream.formats import ENTRY_FORMATS, marked
from nats_scheduler.jetstream.registry import MAX_VALUE_BYTES

MAX_ENTRY_WRITE_ATTEMPTS = 8
"""How often a change is tried while others change the value."""

MAX_SHARED_HEADER_BYTES = 1_024
"""Room for the headers of the message."""

MAX_SHARED_BYTES = MAX_VALUE_BYTES - MAX_SHARED_HEADER_BYTES

ENTRY_FRAME_BYTES = 22
"""What JSON adds to an entry and its name: two quotes, a colon, a comma, their blanks, and the number of its format."""


class SharedBucket(Protocol):
    """What is asked of the bucket; see `jetstream.registry`."""

    async def revised(self, key: str) -> tuple[Object | None, int]:
        """Return the last value and its revision, 0 if there is none."""
        ...

    async def keys(self, under: str) -> list[str]:
        """Return the keys that begin with `under.`, without this prefix."""
        ...

    async def swap(self, key: str, value: Object, revision: int) -> int | None:
        """Write a value in place of the one with this revision; None if another one is there by now."""
        ...


async def write_entry(
    bucket: SharedBucket, key: str, instance: str, entry_within: Callable[[int], Object | None]
) -> bool:
    """Write the entry of an instance, and return whether the value holds it now.

    `entry_within` returns the entry for so many bytes of room, None to have none.
    Raises `JetStreamError` if the bucket does not answer, or refuses.
    """
    for _ in range(MAX_ENTRY_WRITE_ATTEMPTS):
        value, revision = await bucket.revised(key)
        before = value or {}
        alive = {instance, *await bucket.keys("instance")}
        after = {name: entry for name, entry in before.items() if name in alive and name != instance}
        room = MAX_SHARED_BYTES - len(json.dumps(after)) - len(instance) - ENTRY_FRAME_BYTES
        if (entry := entry_within(room)) is not None:
            after[instance] = marked(key, entry, ENTRY_FORMATS)
        if after == before or await bucket.swap(key, after, revision) is not None:
            return True
    return False
