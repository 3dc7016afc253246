"""Finds the place of a subject among millions, without an object for each.

The places are in buckets, by a hash of their subjects. A bucket is bytes that are searched for a hash, so that few
subjects are compared that are not the one that is asked for.

The rule: buckets are divided one at a time as the number of places grows (linear hashing), so that no call takes long.
They are not joined again: what is left of one that became empty is some hundred bytes.

Cost: about ten bytes for each place; about a microsecond to add, to find or to remove one.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator

from nats_scheduler.engine.sharing.shards import subject_hash

BUCKET_LENGTH = 48
"""A bucket is divided if there are more places for each bucket than this, on average."""

BUCKETS_PER_UNIT = 512
"""Buckets that are removed in one unit of work."""

_PLACE_BITS = 32
_PLACE = (1 << _PLACE_BITS) - 1
_ENTRY_BYTES = 8
_HASH_BYTES = 4
_HASH_AT = _HASH_BYTES if sys.byteorder == "little" else 0
"""Where the hash begins in an entry."""


class SubjectIndex:
    """The places of subjects; each subject is there at most once."""

    def __init__(self, subject_at: Callable[[int], bytes]) -> None:
        """`subject_at` returns the subject at a place that was added."""
        self._subject_at = subject_at
        self._buckets = [bytearray()]
        """Those of the subjects whose hashes end alike: for each the hash and behind it the place, as one number."""
        self._mask = 0
        """The bits of a hash that tell the buckets apart; for those that were divided since, one bit more counts."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, subject: bytes, place: int) -> None:
        """Add the place of a subject that is not there."""
        self.add_hashed(subject_hash(subject), place)

    def add_hashed(self, hashed: int, place: int) -> None:
        """Add the place of a subject with this hash that is not there."""
        bucket = self._bucket(hashed)
        bucket += (hashed << _PLACE_BITS | place).to_bytes(_ENTRY_BYTES, sys.byteorder)
        self._count += 1
        if self._count > BUCKET_LENGTH * len(self._buckets):
            self._divide()

    def make_room(self, count: int) -> None:
        """Prepare an empty index for so many subjects, so that no bucket has to be divided."""
        assert not self._count, "the index is empty"
        wanted = count // BUCKET_LENGTH
        self._mask = (1 << wanted.bit_length()) - 1
        self._buckets = [bytearray() for _ in range(self._mask + 1)]

    def fill(self, hashes: array[int], first: int) -> None:
        """Add subjects with these hashes, at one place after the other from `first` on.

        None of them is there; there is room for them.
        """
        buckets, mask, count = self._buckets, self._mask, len(hashes)
        halves = array("I", bytes(count * _ENTRY_BYTES))
        halves[_HASH_AT // _HASH_BYTES :: 2] = hashes
        halves[1 - _HASH_AT // _HASH_BYTES :: 2] = array("I", range(first, first + count))
        entries = struct.unpack(f"{_ENTRY_BYTES}s" * count, halves)
        for hashed, entry in zip(hashes, entries, strict=True):
            buckets[hashed & mask] += entry
        self._count += count

    def twice(self) -> Iterator[bytes | None]:
        """Yield each subject that is there twice, and None after each unit of work."""
        for number, bucket in enumerate(self._buckets):
            entries = _entries(bucket)
            if len({entry >> _PLACE_BITS for entry in entries}) != len(entries):
                subjects = [self._subject_at(entry & _PLACE) for entry in entries]
                yield from (subject for subject in set(subjects) if subjects.count(subject) > 1)
            if number % BUCKETS_PER_UNIT == 0:
                yield None

    def find(self, subject: bytes) -> int | None:
        """Return the place of a subject; None if it is not there."""
        return self.find_hashed(subject_hash(subject), subject)

    def find_hashed(self, hashed: int, subject: bytes) -> int | None:
        """Return the place of a subject with this hash; None if it is not there."""
        bucket = self._bucket(hashed)
        at = self._position(bucket, hashed, subject)
        return None if at < 0 else _place(bucket, at)

    def pop(self, subject: bytes) -> int | None:
        """Remove a subject and return its place; None if it is not there."""
        hashed = subject_hash(subject)
        bucket = self._bucket(hashed)
        at = self._position(bucket, hashed, subject)
        if at < 0:
            return None
        place = _place(bucket, at)
        bucket[at : at + _ENTRY_BYTES] = bucket[-_ENTRY_BYTES:]
        del bucket[-_ENTRY_BYTES:]
        self._count -= 1
        return place

    def emptied(self) -> Iterator[None]:
        """Remove all, and yield after each unit of work."""
        while len(self._buckets) > 1:
            del self._buckets[max(len(self._buckets) - BUCKETS_PER_UNIT, 1) :]
            yield
        self._buckets, self._mask, self._count = [bytearray()], 0, 0

    def _bucket(self, hashed: int) -> bytearray:
        """Return the bucket for a hash."""
        number = hashed & (2 * self._mask + 1)
        return self._buckets[number if number < len(self._buckets) else hashed & self._mask]

    def _position(self, bucket: bytearray, hashed: int, subject: bytes) -> int:
        """Return where the entry of a subject is in its bucket, -1 if it is not there."""
        wanted = hashed.to_bytes(_HASH_BYTES, sys.byteorder)
        found = bucket.find(wanted)
        while found >= 0:
            # A hash may also be found in the bytes of a place, or of two entries.
            at = found - _HASH_AT
            if at % _ENTRY_BYTES == 0 and self._subject_at(_place(bucket, at)) == subject:
                return at
            found = bucket.find(wanted, found + 1)
        return -1

    def _divide(self) -> None:
        """Divide the next bucket into itself and a new one at the end."""
        if len(self._buckets) > 2 * self._mask + 1:
            self._mask = 2 * self._mask + 1
        bit = self._mask + 1
        number = len(self._buckets) - bit
        before, moving = _entries(self._buckets[number]), bit << _PLACE_BITS
        self._buckets[number] = bytearray(array("Q", [entry for entry in before if not entry & moving]))
        self._buckets.append(bytearray(array("Q", [entry for entry in before if entry & moving])))


def _entries(bucket: bytearray) -> array[int]:
    entries = array("Q")
    entries.frombytes(bucket)
    return entries


def _place(bucket: bytearray, at: int) -> int:
    """Return the place in the entry that begins at a position."""
    return int.from_bytes(bucket[at : at + _ENTRY_BYTES], sys.byteorder) & _PLACE
