"""The bytes of contents that a process has in memory, and the reads that wait for room.

A content is counted from the moment at which it is asked for until its fire is stored, or until it is dropped: while it
is read, kept for the next fire, built into a fire, and in flight. All streams of a process share one `ContentMemory`.

The rules:

- What is large is read `LARGE_AHEAD_NS` before its fire, and has three quarters of the memory at most; so what is small
  passes by. While something large waits, what is small has a quarter at most, so that it comes to its turn.
- One content that is larger than three quarters goes alone, and beside it a quarter for what is small.
- No stream takes more than what is left after that (of the rest it takes half at most), so that another one finds room.
- What waits goes in the order of its fire times, also after an edit of a calendar has moved them.
- A fire of unknown outcome keeps its body, and is read again at once into that room: what is ahead of it may wait for
  just that.

The size of a large content is noted when its headers are read (`Nats-Msg-Size`), by sequence; one without a note counts
as small until it is read. After a start that continues from rows no size is known: what turns out to be large is
dropped, noted, and read again in its turn.

Cost: nothing for a schedule that waits and is small; an addition for each step of a fire; a dictionary entry for a
large one.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import add

from nats_scheduler.engine.holding.flight import Flight, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage, size_named
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

DEFAULT_CONTENT_MEMORY_BYTES = 64 * 1024 * 1024

MAX_SMALL_BYTES = 8 * 1024
"""Largest content, headers included, that is small; in a memory of less than 512 KiB a 64th of it."""

LARGE_AHEAD_NS = 250 * MILLISECOND
"""The time (ns) before its fire at which a large content is read.

A sample is read when it is due, and waits no longer than this for the room of a content that is due after it.
"""

LOOK_FOR_ROOM_INTERVAL_NS = 10 * MILLISECOND
"""The interval (ns) at which a stream checks whether others have made room."""

CLAIM_NS = 1 * SECOND
"""A claim that is not renewed for this time (ns) is void: its stream may be gone."""


class ContentMemory:
    """The bytes of contents of all streams of a process."""

    def __init__(self, limit: int = DEFAULT_CONTENT_MEMORY_BYTES) -> None:
        """Allow `limit` bytes."""
        self.limit = limit
        self.small_size = min(MAX_SMALL_BYTES, limit // 64)
        """Largest content (bytes) that is small."""
        self.small = self.large = 0
        """Bytes in use by contents of either kind."""
        self._claimed_by: object = None
        self._claimed_until = 0

    @property
    def most_small(self) -> int:
        """The number of bytes that are left for what is small, however much of the rest is in use."""
        return self.limit // 4

    def claim(self, by: object, now: int) -> None:
        """Let nothing large of others begin, and no more of what is small, before there is room for `by`."""
        if not self._is_claimed(now, besides=by):
            self._claimed_by, self._claimed_until = by, now + CLAIM_NS

    def unclaim(self, by: object) -> None:
        """End a claim."""
        if self._claimed_by is by:
            self._claimed_by = None

    def has_room_for_small(self, size: int, used: int, *, is_urgent: bool, now: int) -> bool:
        """Return whether a stream that uses `used` bytes for what is small may use `size` more."""
        least = max(self.most_small - self.small, 0)
        left = least if self._is_claimed(now) else max(self.limit - self.large - self.small, least)
        return size <= left and (used == 0 or (used if is_urgent else 2 * used) + size <= left)

    def has_room_for_large(self, size: int, used: int, by: object, now: int) -> bool:
        """Return whether a stream that uses `used` bytes for what is large may use `size` more."""
        if self._is_claimed(now, besides=by):
            return False
        if self.large == 0:
            return size + self.small <= self.limit or self.small <= self.most_small
        left = self.limit - self.most_small - self.large
        return size <= min(left, self.limit - self.large - self.small) and (used == 0 or used + size <= left)

    def _is_claimed(self, now: int, besides: object = None) -> bool:
        return self._claimed_by is not None and self._claimed_by is not besides and now < self._claimed_until


class Contents:
    """The contents of one stream's fires, and the reads that wait for room."""

    def __init__(self, memory: ContentMemory) -> None:
        self._memory = memory
        self.now = 0
        """The time (ns) of the last step."""
        self._small = self._large = 0
        self._noted: dict[int, int] = {}
        """The sizes of large contents by sequence."""
        self.waiting_small: list[tuple[int, int, Held, Flight]] = []
        self.waiting_large: list[tuple[int, int, Held, Flight]] = []
        """Heaps: send time (ns), a number, and what waits."""
        self._number = 0
        self._has_ended = False

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self._small + self._large

    # -- sizes ---------------------------------------------------------------------------------------------------

    def note(self, message: StoredMessage) -> int:
        """Note the size of a schedule message if it is large; returns that of its body (bytes), 0 if unknown."""
        _subject, sequence, _stored_at, block, body = message
        body_size = size_named(block) if body is None else len(body)
        if (size := len(block) + body_size) > self._memory.small_size:
            self._noted[sequence] = size
        return body_size

    def note_all(self, run: MessageRun, body_sizes: Sequence[int]) -> None:
        """Note the sizes of those schedule messages that are large; their bodies have these sizes (bytes)."""
        sizes = list(map(add, body_sizes, map(len, run.blocks)))
        if max(sizes) > self._memory.small_size:
            large = (size > self._memory.small_size for size in sizes)
            self._noted.update(compress(zip(run.sequences, sizes, strict=True), large))

    def forget(self, sequence: int) -> None:
        """Note nothing of a schedule any more that is held no longer."""
        if self._noted:
            self._noted.pop(sequence, None)

    # -- what is in use ------------------------------------------------------------------------------------------

    def use(self, flight: Flight, size: int) -> None:
        """Count `size` bytes for a flight from now on."""
        if self._has_ended:
            return
        before, flight.content_size = flight.content_size, size
        for amount, sign in ((before, -1), (size, 1)):
            if amount > self._memory.small_size:
                self._large += sign * amount
                self._memory.large += sign * amount
            else:
                self._small += sign * amount
                self._memory.small += sign * amount

    def drop(self, flight: Flight) -> None:
        """Count nothing for a flight any more but the body of a fire that it repeats."""
        size = 0 if flight.fire is None else len(flight.fire.body)
        if flight.content_size or size:
            self.use(flight, size)

    def may_keep(self, content: StoredMessage) -> bool:
        """Return whether a content may stay for the next fire: what is large is read again."""
        size = size_of(content)
        return size <= self._memory.small_size and self._has_room(size)

    def takes(self, held: Held, flight: Flight, size: int) -> bool:
        """Count a content that was read by its real size; returns False if there is no room for it yet."""
        if size > flight.content_size:
            if size > self._memory.small_size:
                self._noted[held.sequence] = size
            self.use(flight, 0)
            if not self._may_begin(held, flight):
                return False
        self.use(flight, size)
        return True

    def end(self) -> None:
        """Leave all room to others: the engine steps no more."""
        self._memory.small -= self._small
        self._memory.large -= self._large
        self._memory.unclaim(self)
        self._small = self._large = 0
        self._has_ended = True

    # -- waiting for room ----------------------------------------------------------------------------------------

    def begins(self, held: Held, flight: Flight) -> bool:
        """Return whether a read may begin, and count it; if not it waits, and `granted` returns it later."""
        if flight.content_size or (not self._waiting_with(held) and self._may_begin(held, flight)):
            return True
        flight.waits_for_room = True
        self.moved(held, flight)
        return False

    def moved(self, held: Held, flight: Flight) -> None:
        """Give what waits for room the turn of its send time, which is another one than before."""
        if flight.waits_for_room:
            self._number += 1
            heapq.heappush(self._waiting_with(held), (held.send_time, self._number, held, flight))

    def granted(self) -> Iterator[Held]:
        """Yield what waited and has room now, and count it."""
        for waiting in (self.waiting_small, self.waiting_large):
            while waiting:
                at, number, held, flight = waiting[0]
                if held.flight is not flight or not flight.waits_for_room or flight.stage is not Stage.FETCHING:
                    heapq.heappop(waiting)
                elif at != held.send_time:  # it would hold back what is due before its new time
                    heapq.heapreplace(waiting, (held.send_time, number, held, flight))
                elif not self._may_begin(held, flight):
                    break
                else:
                    flight.waits_for_room = False
                    heapq.heappop(waiting)
                    yield held

    def next_look(self) -> int | None:
        """Return when (ns) to look for room again; None if nothing waits for it."""
        soon = self.now + LOOK_FOR_ROOM_INTERVAL_NS
        if self.waiting_small:
            return soon
        if self.waiting_large:
            return max(soon, self.waiting_large[0][0] - LARGE_AHEAD_NS)
        return None

    def _size(self, held: Held) -> int:
        return self._noted.get(held.sequence, self._memory.small_size)

    def _waiting_with(self, held: Held) -> list[tuple[int, int, Held, Flight]]:
        return self.waiting_large if self._size(held) > self._memory.small_size else self.waiting_small

    def _may_begin(self, held: Held, flight: Flight) -> bool:
        size, ahead = self._size(held), held.send_time - self.now
        if size > self._memory.small_size and ahead > LARGE_AHEAD_NS:
            return False
        if not self._has_room(size, is_urgent=ahead <= LARGE_AHEAD_NS):
            return False
        self.use(flight, size)
        return True

    def _has_room(self, size: int, *, is_urgent: bool = True) -> bool:
        memory = self._memory
        if size <= memory.small_size:
            return memory.has_room_for_small(size, self._small, is_urgent=is_urgent, now=self.now)
        if memory.has_room_for_large(size, self._large, self, self.now):
            memory.unclaim(self)
            return True
        if self._large == 0:
            memory.claim(self, self.now)
        return False


def size_of(content: StoredMessage, source: StoredMessage | None = None) -> int:
    """Return the bytes of a content that was read, and of its source."""
    size = len(content.block) + len(content.body or b"")
    return size if source is None else size + len(source.block) + len(source.body or b"")
