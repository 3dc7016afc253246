"""The order of the instances of each stream, and which of them read it: its owner-to-be and the standbys. Pure.

An instance that *reads* a stream follows it and holds its schedules, so that it can fire at once; the others have
neither follower nor engine for it, and no memory. All instances decide by themselves, from the same heartbeats.

The rules:

- Rendezvous hashing draws the order of the instances for each stream, so one that comes or goes moves only its own
  streams. The first `1 + standbys` that can read a stream; `engine.ownership.owners` says which of them owns it.
- An instance that is before another one in the order, and does not begin within `PATIENCE_NS`, is passed over: it may
  have other settings. So there is no reason for which a stream stays unread while an instance can read it.
- An instance leaves a stream only when as many before it have read it: what is read is never given up for what is yet
  to be read. It reads on while it cannot know who is alive. Only in its first seconds, what it has not yet read is left
  to those that have begun: instances that start together do not know of each other at once.
- While an instance serves the stream, another one that is gone is replaced after `REPLACED_AFTER_NS`, since it may only
  be restarted, or the next one be restarted too; if none does, others begin to read it at once.

Cost: one hash for each instance and stream when the instances change. Limit: without standbys, a stream is read again
before another instance fires for it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from nats_scheduler.schedule.instants import SECOND

DEFAULT_STANDBYS = 1
"""The instances that read a stream besides its owner, if the operator names no number."""

ALL_INSTANCES = 1_000
"""As a number of standbys: all instances read each stream. There are never more."""

REPLACED_AFTER_NS = 10 * SECOND
"""The time (ns) since instances came or went after which one that is gone is replaced as a standby."""

PATIENCE_NS = 3 * SECOND
"""The time (ns) for which an instance is waited for that should begin to read, before the next one does."""


class Stance(NamedTuple):
    """What an instance says of a stream: another one in its last heartbeat."""

    reads: bool
    """It serves the stream, or has begun to read it."""
    serves: bool


@dataclass(slots=True)
class Order:
    """Who reads which stream, as one instance decides about itself."""

    standbys: int = DEFAULT_STANDBYS
    """How many instances read each stream besides its owner."""
    _instances: frozenset[str] = frozenset()
    _began_at: int | None = None
    _changed_at: int = 0
    """The instant (ns) at which an instance came or went last."""
    _lacking: dict[str, int] = field(default_factory=dict)
    """By stream that fewer others read than are to, since when (ns)."""

    @property
    def readers(self) -> int:
        """How many instances read each stream."""
        return 1 + self.standbys

    def read_all(self) -> None:
        """Read each stream from now on: the others do not learn which ones we read."""
        self.standbys = ALL_INSTANCES

    def met(self, instances: Iterable[str], now: int) -> None:
        """Note which other instances are alive."""
        alive = frozenset(instances)
        if self._began_at is None:
            self._began_at = now
        if alive != self._instances:
            self._instances, self._changed_at = alive, now

    def includes(self, me: str, key: str, mine: Stance, others: Mapping[str, Stance], now: int) -> bool:
        """Return whether `me` is to read a stream.

        `others` are the other instances that count: alive, able to serve the stream, and not about to end.
        """
        order = order_of(key, {*others, me})
        before = [others[name] for name in order[: order.index(me)]]
        is_new = self._began_at is None or now - self._began_at < REPLACED_AFTER_NS
        if mine.reads:
            return sum(one.reads if is_new and not mine.serves else one.serves for one in before) < self.readers
        if sum(one.reads for one in others.values()) < self.readers:
            since = max(self._changed_at, self._lacking.setdefault(key, now))
        else:
            since = self._changed_at
            self._lacking.pop(key, None)
        is_urgent = not any(one.serves for one in others.values())
        replaced_at = since + (0 if is_urgent else REPLACED_AFTER_NS)
        waited_until, readers = replaced_at + PATIENCE_NS, 0
        for one in before:
            if one.reads or now < waited_until:
                readers += 1
            else:
                waited_until += PATIENCE_NS
        return readers < self.readers and (is_new or now >= replaced_at)


def order_of(key: str, instances: Iterable[str]) -> list[str]:
    """Return instances in the order of a stream."""
    return sorted(instances, key=lambda name: (_draw(name, key), name), reverse=True)


def first_of(key: str, instances: Iterable[str]) -> str | None:
    """Return the first of the instances in the order of a stream; None if there are none."""
    return max(instances, key=lambda name: (_draw(name, key), name), default=None)


@lru_cache(maxsize=1 << 15)
def _draw(name: str, key: str) -> bytes:
    return hashlib.shake_128(f"{key} {name}".encode("utf-8", "surrogateescape")).digest(8)
