"""Which instances read a stream, where not all of them are to (`instances_per_stream`, `schedules_per_instance`). Pure.

A *reader* of a stream follows it and holds its schedules, so that it can fire for its shards; the others have neither
follower nor engine for it, and no memory. All instances decide by themselves, from the same heartbeats.

The rules:

- The order of the instances is drawn for each stream by rendezvous hashing, so one that comes or goes moves only its
  own streams. The first `per_stream` of them that can are the readers.
- An instance that is before another one in the order, and does not begin within `PATIENCE_NS`, is passed over: it may
  have other settings. So there is no reason for which a stream stays without a reader while one can.
- An instance leaves a stream only when `per_stream` instances before it serve it: what is read is never given up for
  what is yet to be read. It reads on while it cannot know who is alive. Only in its first seconds, what it has not yet
  read is left to those that have begun: instances that start together do not know of each other at once.
- An instance has room for `capacity` schedules. One that has none for a stream comes after all that have, and begins
  only if nobody else reads it. So a stream rather has fewer readers than an instance more than it can hold, and never
  none.
- An instance that holds a quarter more, since streams have grown or nobody else was there, comes last in the same way
  for the streams that are too many, its `surplus`. So it leaves them once others that have room serve them.
- While an instance serves the stream, another one that is gone is replaced after `REPLACED_AFTER_NS`, since it may only
  be restarted, or the next one be restarted too; if none does, readers begin at once.

Cost: one hash for each instance and stream when the instances change. Limits: with one instance per stream, what the
reader holds is taken over only after it was read again; where nobody has room, what is held is kept.
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

SURPLUS_ABOVE_PERCENT = 125
"""How much of its capacity an instance holds at most without a surplus, so that streams do not go to and fro."""


class Stance(NamedTuple):
    """What an instance says of a stream: another one in its last heartbeat."""

    reads: bool
    """It serves the stream, or has begun to read it."""
    serves: bool
    has_room: bool = True
    """It can hold the stream besides what it holds."""


@dataclass(slots=True)
class Readers:
    """The readers of all streams, as one instance decides about itself."""

    wanted: int | None = ALL_INSTANCES
    """How many instances read each stream, as the operator says; None if that is not said."""
    has_one_stream: bool = False
    """True if the account is known to have one stream only."""
    capacity: int | None = None
    """How many schedules we hold at most before further streams are for others; None: as many as there are."""
    held: int = 0
    """How many schedules we hold, or may have to hold of the streams that we have begun to read."""
    surplus: frozenset[str] = frozenset()
    """The streams that we read and have no room for."""
    _instances: frozenset[str] = frozenset()
    _began_at: int | None = None
    _changed_at: int = 0
    """The instant (ns) at which an instance came or went last."""
    _lacking: dict[str, int] = field(default_factory=dict)
    """By stream that fewer others read, and have room for, than are to, since when (ns)."""
    _orders: dict[str, tuple[frozenset[str], list[str]]] = field(default_factory=dict)
    """By stream the other instances, and the order of all of them."""

    @property
    def per_stream(self) -> int | None:
        """How many instances read each stream; None: all."""
        if self.wanted is None:
            return None if self.has_one_stream else DEFAULT_READERS
        return None if self.wanted >= ALL_INSTANCES else self.wanted

    @property
    def room(self) -> int | None:
        """How many further schedules we can hold, less than 0 if we hold too many; None: as many as there are."""
        return None if self.capacity is None else self.capacity - self.held

    @property
    def is_limited(self) -> bool:
        """True if there may be streams that some of the instances do not read."""
        return self.per_stream is not None or self.capacity is not None

    def read_all(self) -> None:
        """Read each stream from now on: the others do not learn which ones we read."""
        self.wanted, self.capacity, self.surplus = ALL_INSTANCES, None, frozenset()

    def holds(self, me: str, sizes: Mapping[str, int]) -> None:
        """Note how many schedules we hold, or may have to hold, of the streams that we read."""
        if self.capacity is None:
            return
        self.held, room, surplus = sum(sizes.values()), self.capacity, set[str]()
        if self.held > self.capacity * (100 if self.surplus else SURPLUS_ABOVE_PERCENT) // 100:
            for key in sorted(sizes, key=lambda key: (key not in self.surplus, _draw(me, key)), reverse=True):
                if sizes[key] <= room:
                    room -= sizes[key]
                else:
                    surplus.add(key)
        self.surplus = frozenset(surplus)

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
        if self.per_stream is None and mine.has_room:
            return True
        wanted = self.per_stream or ALL_INSTANCES if mine.has_room or mine.reads else 1
        age = 0 if self._began_at is None else now - self._began_at
        before, is_new = self._before(me, key, mine, others), age < REPLACED_AFTER_NS
        if mine.reads:
            return sum(one.reads if is_new and not mine.serves else one.serves for one in before) < wanted
        if not mine.has_room and (any(one.reads for one in others.values()) or age < PATIENCE_NS):
            return False  # in the first seconds others may be about to start
        if sum(one.reads and one.has_room for one in others.values()) < wanted:
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
        return readers < wanted and (is_new or now >= replaced_at)

    def _before(self, me: str, key: str, mine: Stance, others: Mapping[str, Stance]) -> list[Stance]:
        """Return those that are before us in the order: all that have no room come last."""
        names = frozenset(others)
        if (known := self._orders.get(key)) is None or known[0] != names:
            known = self._orders[key] = names, order_of(key, {*names, me})
        stances = {**others, me: mine}
        order = sorted(known[1], key=lambda name: not stances[name].has_room)
        return [stances[name] for name in order[: order.index(me)]]


def order_of(key: str, instances: Iterable[str]) -> list[str]:
    """Return instances in the order in which they are to read a stream."""
    return sorted(instances, key=lambda name: (_draw(name, key), name), reverse=True)


def _draw(name: str, key: str) -> bytes:
    return hashlib.shake_128(f"{key} {name}".encode("utf-8", "surrogateescape")).digest(8)
