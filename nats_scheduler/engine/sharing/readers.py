"""Which instances read a stream, where not all of them are to (`instances_per_stream`). Pure.

A *reader* of a stream follows it and holds its schedules, so that it can fire for its shards; the others have neither
follower nor engine for it, and no memory. All instances decide by themselves, from the same heartbeats.

The rules:

- The order of the instances is drawn for each stream by rendezvous hashing, so one that comes or goes moves only its
  own streams. The first `per_stream` of them that can are the readers.
- An instance that is before another one in the order, and does not begin within `PATIENCE_NS`, is passed over: it may
  have other settings. So there is no reason for which a stream stays without a reader while one can.
- An instance leaves a stream only when `per_stream` instances before it serve it: what is read is never given up for
  what is yet to be read. It reads on while it cannot know who is alive.
- While an instance serves the stream, another one that is gone is replaced after `REPLACED_AFTER_NS`, since it may only
  be restarted, or the next one be restarted too; if none does, readers begin at once.

Cost: one hash for each instance and stream when the instances change. Limit: with one instance per stream, what the
reader holds is taken over only after it was read again.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nats_scheduler.schedule.instants import SECOND

ALL_INSTANCES = 1_000
"""Stands for all instances: there are never more."""

DEFAULT_READERS = 2
"""The readers of a stream where there are more streams than one, if the operator names no number."""

REPLACED_AFTER_NS = 10 * SECOND
"""The time (ns) since instances came or went after which one that is gone is replaced as a reader."""

PATIENCE_NS = 3 * SECOND
"""The time (ns) for which an instance is waited for that should begin to read, before the next one does."""


class Stance(NamedTuple):
    """What the last heartbeat of another instance says of a stream."""

    reads: bool
    """It serves the stream, or has begun to read it."""
    serves: bool


@dataclass(slots=True)
class Readers:
    """The readers of all streams, as one instance decides about itself."""

    wanted: int | None = ALL_INSTANCES
    """How many instances read each stream, as the operator says; None if that is not said."""
    has_one_stream: bool = False
    """True if the account is known to have one stream only."""
    _instances: frozenset[str] = frozenset()
    _began_at: int | None = None
    _changed_at: int = 0
    """The instant (ns) at which an instance came or went last."""
    _lacking: dict[str, int] = field(default_factory=dict)
    """By stream that fewer others read than are to, since when (ns)."""
    _orders: dict[str, tuple[frozenset[str], list[str]]] = field(default_factory=dict)

    @property
    def per_stream(self) -> int | None:
        """How many instances read each stream; None: all."""
        if self.wanted is None:
            return None if self.has_one_stream else DEFAULT_READERS
        return None if self.wanted >= ALL_INSTANCES else self.wanted

    def met(self, instances: Iterable[str], now: int) -> None:
        """Note which other instances are alive."""
        alive = frozenset(instances)
        if self._began_at is None:
            self._began_at = now
        if alive != self._instances:
            self._instances, self._changed_at = alive, now

    def includes(self, me: str, key: str, others: Mapping[str, Stance], now: int, *, is_reading: bool) -> bool:
        """Return whether `me` is to read a stream, which it does already if `is_reading`.

        `others` are the other instances that count: alive, able to serve the stream, and not about to end.
        """
        if (per_stream := self.per_stream) is None:
            return True
        before = [others[name] for name in self._before(me, key, frozenset(others))]
        if is_reading:
            return sum(one.serves for one in before) < per_stream
        if sum(one.reads for one in others.values()) < per_stream:
            since = max(self._changed_at, self._lacking.setdefault(key, now))
        else:
            since = self._changed_at
            self._lacking.pop(key, None)
        is_new = self._began_at is None or now - self._began_at < REPLACED_AFTER_NS
        is_urgent = not any(one.serves for one in others.values())
        replaced_at = since + (0 if is_urgent else REPLACED_AFTER_NS)
        waited_until, readers = replaced_at + PATIENCE_NS, 0
        for one in before:
            if one.reads or now < waited_until:
                readers += 1
            else:
                waited_until += PATIENCE_NS
        return readers < per_stream and (is_new or now >= replaced_at)

    def _before(self, me: str, key: str, others: frozenset[str]) -> list[str]:
        known = self._orders.get(key)
        if known is None or known[0] != others:
            order = order_of(key, {*others, me})
            known = self._orders[key] = others, order[: order.index(me)]
        return known[1]


def order_of(key: str, instances: Iterable[str]) -> list[str]:
    """Return instances in the order in which they are to read a stream."""
    return sorted(instances, key=lambda name: (_draw(name, key), name), reverse=True)


def _draw(name: str, key: str) -> bytes:
    return hashlib.shake_128(f"{key} {name}".encode("utf-8", "surrogateescape")).digest(8)
