"""Schedules that are far from their next fire, as numbers and bytes: nearly all of a million are.

A schedule that waits for a fire of next month needs no object. It is packed here, into a place of its row
(`engine.holding.roster`), and becomes an object again before its time comes, or when a message concerns it.
`SubjectIndex` finds the place of a subject, `FarAgenda` the places that become near, and `FarRow` has what is there.

The rule: what is unpacked is equal to what was packed. What cannot be packed stays an object: a schedule whose policies
need more than its definition, one in progress, one with a fire time after 2262, and texts that are too long or contain
the separator.

Cost: 49 bytes for each schedule, about ten for its entry in the index and 4 for that in the agenda, the bytes of its
subject, target and source, and of an `@at` that is not written as it is printed; 2 µs to pack or to unpack, about one
to find a subject. A row is 256 schedules; its texts take at most 64 KB.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.policies import Policies
from nats_scheduler.schedule.patterns import At, Pattern

# The place of each subject among millions, without an object for each.
#
# The places are in buckets, by the last bits of the hashes of their subjects. A bucket is bytes that are searched for a
# hash, so that few subjects are compared that are not the one that is asked for.
#
# The rule: the hash is keyed, with a key that each process draws (`index_hash`). With one that is the same everywhere,
# a publisher of schedules could choose subjects that are all in one bucket with one hash. Nothing that can be observed
# depends on the hashes: an order of buckets is never shown, and all of them are visited, empty ones too.
#
# Cost: about nine bytes for each of a million, and half a microsecond to find one; a bucket has some kilobytes then.

BUCKETS = 1 << 13
"""The most buckets that there are; some are made when they are needed."""

BUCKETS_PER_UNIT = 512
"""Buckets that are visited in one unit of work."""

_PLACE_BITS = 32
_PLACE = (1 << _PLACE_BITS) - 1
_ENTRY_BYTES = 8
_HASH_BYTES = 4
_HASH_BITS = 8 * _HASH_BYTES
_HASH_AT = _HASH_BYTES if sys.byteorder == "little" else 0
"""Where the hash begins in an entry."""


def index_hash(subject: bytes) -> int:
    """Return the hash of a subject in the indexes of this process: Python's own for bytes, which is keyed (SipHash)."""
    return hash(subject) & (1 << _HASH_BITS) - 1


class SubjectIndex:
    """The places of subjects; each subject is there at most once."""

    def __init__(self, subject_at: Callable[[int], bytes]) -> None:
        """`subject_at` returns the subject at a place that was added."""
        self._subject_at = subject_at
        self._buckets: defaultdict[int, bytearray] = defaultdict(bytearray)
        """Those of the subjects whose hashes end alike: for each the hash and behind it the place, as one number."""

    def add(self, subject: bytes, place: int) -> None:
        """Add the place of a subject that is not there."""
        hashed = index_hash(subject)
        self._buckets[hashed % BUCKETS] += (hashed << _PLACE_BITS | place).to_bytes(_ENTRY_BYTES, sys.byteorder)

    def fill(self, subjects: Iterable[bytes], first: int) -> None:
        """Add subjects, none of which is there, at one place after the other from `first` on."""
        buckets, order = self._buckets, sys.byteorder
        for place, hashed in enumerate(map(index_hash, subjects), first):
            buckets[hashed % BUCKETS] += (hashed << _PLACE_BITS | place).to_bytes(_ENTRY_BYTES, order)

    def twice(self) -> Iterator[bytes | None]:
        """Yield each subject that is there twice, and None after each unit of work."""
        for number in range(BUCKETS):
            bucket = self._buckets.get(number)
            if bucket is not None:
                yield from self._twice_in(bucket)
            if number % BUCKETS_PER_UNIT == 0:
                yield None

    def find(self, subject: bytes) -> int | None:
        """Return the place of a subject; None if it is not there."""
        hashed = index_hash(subject)
        bucket = self._buckets.get(hashed % BUCKETS)
        if bucket is None or hashed.to_bytes(_HASH_BYTES, sys.byteorder) not in bucket:
            return None  # as of nearly all of a load
        at = self._position(bucket, hashed, subject)
        return None if at < 0 else _place(bucket, at)

    def pop(self, subject: bytes) -> int | None:
        """Remove a subject and return its place; None if it is not there."""
        hashed = index_hash(subject)
        bucket = self._buckets.get(hashed % BUCKETS)
        at = -1 if bucket is None else self._position(bucket, hashed, subject)
        if bucket is None or at < 0:
            return None
        place = _place(bucket, at)
        bucket[at : at + _ENTRY_BYTES] = bucket[-_ENTRY_BYTES:]
        del bucket[-_ENTRY_BYTES:]
        if not bucket:
            del self._buckets[hashed % BUCKETS]
        return place

    def emptied(self) -> Iterator[None]:
        """Remove all, and yield after each unit of work."""
        for number in range(BUCKETS):
            self._buckets.pop(number, None)
            if number % BUCKETS_PER_UNIT == 0:
                yield

    def _twice_in(self, bucket: bytearray) -> Iterator[bytes]:
        entries = array("Q", bytes(bucket))
        if len({entry >> _PLACE_BITS for entry in entries}) != len(entries):
            subjects = [self._subject_at(entry & _PLACE) for entry in entries]
            yield from dict.fromkeys(subject for subject in subjects if subjects.count(subject) > 1)

    def _position(self, bucket: bytes | bytearray, hashed: int, subject: bytes) -> int:
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


def _place(bucket: bytes | bytearray, at: int) -> int:
    """Return the place in the entry that begins at a position."""
    return int.from_bytes(bucket[at : at + _ENTRY_BYTES], sys.byteorder) & _PLACE


# The agenda of one stream's far schedules: their places, in spans by the instants of their wakes.
#
# The rule: a place is entered in the span of its wake, and stays there if its schedule is fetched and woken at
# another time, or removed. Such an entry is stale, and is skipped when its span comes. Whenever an entry becomes
# stale, a few others are looked at and removed if they are stale, so that at most about a third of them are, and no
# call takes long.
#
# A span becomes near when the one before it begins. Its entries are handed out a piece at a time, so that a burst is
# near again long before it is due. A row that is filled at once has one entry, in the span of its earliest wake. When
# that becomes near, the row is handed out as a whole, and its places are entered: a start with millions enters few.

LOOKED_AT = 4
"""Entries that are looked at when one becomes stale."""

MIN_ORDER_LENGTH = 1024
"""Numbers of spans that are gone are not removed while there are no more than this."""

_NO_SPAN = -1


class FarAgenda:
    """The spans of the far schedules."""

    def __init__(self, bits: int) -> None:
        """Begin empty; a span is 2 to the power of `bits` nanoseconds."""
        self._bits = bits
        self.spans: dict[int, array[int]] = {}
        """The places of the schedules that are woken in each span, by the number of the span."""
        self._rows: dict[int, array[int]] = {}
        """The first places of the rows whose earliest wake is in each span, by the number of the span."""
        self._looked_at: dict[int, int] = {}
        """Which entry of a span is looked at next, to see whether it is stale; the first one if it is not here."""
        self.order: list[int] = []
        """The numbers of the spans, as a heap; some may be gone. Empty: nothing is far."""
        self._near_through = 0
        """The number of the last span that is near."""

    def comes_to(self, now: int) -> None:
        """Note the time (ns): the current span and the next one are near."""
        near = (now >> self._bits) + 1
        if near > self._near_through:
            self._near_through = near

    def is_far(self, instant: int) -> bool:
        """Return whether a schedule that is woken at an instant (ns) is far."""
        return instant >> self._bits > self._near_through

    def first_far(self) -> int:
        """Return the first instant (ns) of a wake that is far."""
        return self._near_through + 1 << self._bits

    def add(self, place: int, wake: int) -> None:
        """Enter the place of a schedule that is woken at `wake` (ns)."""
        number = wake >> self._bits
        (self.spans.get(number) or self._new_span(number)).append(place)

    def add_row(self, first: int, wakes: array[int]) -> None:
        """Enter a row, which begins with the place `first`, of schedules that are woken at these instants (ns)."""
        number = min(wakes) >> self._bits
        rows = self._rows.get(number)
        if rows is None:
            rows = self._rows[number] = array("I")
            self._begins(number)
        rows.append(first)

    def _new_span(self, number: int) -> array[int]:
        """Return the places of a span that begins: it has none yet."""
        places = self.spans[number] = array("I")
        self._begins(number)
        return places

    def _begins(self, number: int) -> None:
        heapq.heappush(self.order, number)
        if len(self.order) > 2 * (len(self.spans) + len(self._rows)) + MIN_ORDER_LENGTH:
            self.order[:] = sorted(self.spans.keys() | self._rows.keys())

    def became_stale(self, wake: int, wake_of: Callable[[int], int | None]) -> None:
        """Note that an entry with this wake (ns) is stale; `wake_of` returns that of the far schedule in a place."""
        number = wake >> self._bits
        places = self.spans.get(number)
        if places is None:
            return
        at = self._looked_at.get(number, 0)
        for _ in range(min(LOOKED_AT, len(places))):
            at %= len(places)
            known = wake_of(places[at])
            if known is not None and known >> self._bits == number:
                at += 1
                continue
            last = places.pop()
            if at < len(places):
                places[at] = last
            elif not places:
                self._end_span(number)
                return
        self._looked_at[number] = at

    def unpacking_of(self, wake: int) -> int:
        """Return when (ns) a far schedule that is woken at `wake` (ns) becomes near."""
        return ((wake >> self._bits) - 1) << self._bits

    def next_unpacking(self) -> int | None:
        """Return when (ns) the next schedules become near."""
        number = self._first()
        return None if number is None else (number - 1) << self._bits

    def take(self, most: int) -> array[int]:
        """Take some places out of the first span, if it is near; some may be stale."""
        number = self._first_near()
        places = self.spans.get(number)
        if places is None:
            return array("I")
        rest = max(len(places) - most, 0)
        taken = places[rest:]
        del places[rest:]
        if not places:
            self._end_span(number)
        return taken

    def take_row(self) -> int | None:
        """Take a row out of the first span, if it is near; returns its first place, and all places are to be added."""
        number = self._first_near()
        rows = self._rows.get(number)
        if rows is None:
            return None
        first = rows.pop()
        if not rows:
            del self._rows[number]
        return first

    def _end_span(self, number: int) -> None:
        del self.spans[number]
        self._looked_at.pop(number, None)

    def near_through(self, now: int) -> int:
        """Return the last instant (ns) up to `now` before which nothing is left to be taken."""
        number = self._first()
        return now if number is None else min(now, (number << self._bits) - 1)

    def _first_near(self) -> int:
        """Return the number of the first span if it is near; else one that no span has."""
        number = self._first()
        return _NO_SPAN if number is None or number > self._near_through else number

    def _first(self) -> int | None:
        while self.order and self.order[0] not in self.spans and self.order[0] not in self._rows:
            heapq.heappop(self.order)
        return self.order[0] if self.order else None


# The texts of the far schedules of one row: bytes behind each other, and where those of each place are.
#
# The rule: nothing is moved. What is not needed any more stays until the texts that are left are put together anew.
# Cost: four bytes for each place. Limit: 64 KB, since a position takes two bytes.


class Texts:
    """The texts of a row, by place."""

    __slots__ = ("_ends", "_starts", "data")

    def __init__(self, places: int = 0) -> None:
        """Begin with empty texts."""
        self._starts = array("H", bytes(2 * places))
        self._ends = array("H", bytes(2 * places))
        self.data = bytearray()
        """All of them, and what was taken out since they were put together."""

    def at(self, place: int) -> bytes:
        """Return the texts of a place."""
        return bytes(self.data[self._starts[place] : self._ends[place]])

    def put(self, place: int, text: bytes) -> None:
        """Append the texts of a place."""
        self._starts[place] = len(self.data)
        self.data += text
        self._ends[place] = len(self.data)

    def grow(self, more: int) -> None:
        """Add `more` places, with empty texts."""
        for column in (self._starts, self._ends):
            column.frombytes(bytes(more * column.itemsize))

    def trim(self, places: int) -> None:
        """Keep the first `places` places only, without room to grow."""
        self._starts, self._ends, self.data = self._starts[:places], self._ends[:places], bytearray(self.data)

    def ends_of_first(self, places: int) -> array[int] | None:
        """Return where the texts of the first places end, if these are all there is and follow each other."""
        starts, ends = self._starts[:places], self._ends[:places]
        is_whole = starts[0] == 0 and starts[1:] == ends[:-1] and ends[-1] == len(self.data)
        return ends if is_whole else None

    @classmethod
    def of_ends(cls, ends: array[int], data: bytes) -> Texts:
        """Return texts that follow each other without a gap."""
        texts = cls()
        texts._starts = array("H", [0])
        texts._starts.extend(ends[:-1])
        texts._ends, texts.data = ends, bytearray(data)
        return texts

    def of(self, places: Iterable[int]) -> Texts:
        """Return the texts of these places alone."""
        texts = Texts(len(self._starts))
        for place in places:
            texts.put(place, self.at(place))
        return texts


# What many far schedules of a stream have in common is kept once, and has a number.
#
# Cost: a fraction of a microsecond for each schedule. Limit: what exceeds `MAX_KINDS` gets no number.

MAX_KINDS = 65_535
"""The most kinds of schedules of one stream that are packed; a number of a kind takes two bytes."""


class FarKind(NamedTuple):
    """The values that the schedules of a fleet have in common."""

    pattern: Pattern | None
    """None for an `@at`: its instant is the fire time."""
    dialect: Dialect
    ttl: str
    rollup: bool
    policies: Policies
    has_source: bool


class Kinds:
    """The kinds of one stream's far schedules, by number; one that no schedule has any more is forgotten."""

    def __init__(self) -> None:
        self._numbers: dict[FarKind, int] = {}
        self._kinds: list[FarKind | None] = []
        self._counts: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: int) -> FarKind:
        """Return the kind with a number."""
        kind = self._kinds[number]
        assert kind is not None, f"no schedule is of kind {number}"
        return kind

    def get(self, number: int) -> FarKind | None:
        """Return the kind with a number; None if it was forgotten meanwhile."""
        return self._kinds[number]

    def take(self, kind: FarKind) -> int | None:
        """Count one more schedule of a kind and return its number; None if there are too many kinds."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._add(kind)
        if number is not None:
            self._counts[number] += 1
        return number

    def take_more(self, number: int, count: int) -> None:
        """Count `count` more schedules of a kind that some schedule has."""
        self._counts[number] += count

    def release(self, number: int) -> None:
        """Count one less schedule of a kind."""
        self._counts[number] -= 1
        if not self._counts[number]:
            kind = self[number]
            del self._numbers[kind]
            self._kinds[number] = None
            self._free.append(number)

    def _add(self, kind: FarKind) -> int | None:
        if self._free:
            number = self._free.pop()
            self._kinds[number] = kind
        elif len(self._kinds) < MAX_KINDS:
            number = len(self._kinds)
            self._kinds.append(kind)
            self._counts.append(0)
        else:
            return None
        self._numbers[kind] = number
        return number


MAX_ROW_BYTES = 65_535
"""The most bytes that the texts of a row take; a position in them takes two."""

NO_FIRE_TIME = (1 << 63) - 1
"""The fire time of a place without a far schedule."""

_NO_KIND = 65_535
_SEPARATOR = b"\0"
_GROWTH = 16
"""The number of places by which a row grows."""


@dataclass(slots=True)
class Window:
    """Which far schedules are left out: those with a fire time (ns) between `after` and `first`, or later than `last`.

    Those with a TTL are not left out, because they may be removed before they fire.
    """

    after: int
    first: int
    last: int | None = None

    def leaves_out(self, fire_time: int) -> bool:
        """Return whether a far schedule without a TTL is left out."""
        return self.after < fire_time < self.first or (self.last is not None and fire_time > self.last)


class FarEntry(NamedTuple):
    """A far schedule as it is packed; instants are in ns."""

    kind: FarKind
    text: bytes
    """Its subject, target and source, and how an `@at` is written, with a separator between them."""
    sequence: int
    stored_at: int
    fire_time: int
    wake: int
    expires: int
    mark: int = 0
    """What is known of its body (`message.stored.body_mark`), if it fires once; 0 for nothing."""


class FarColumns(NamedTuple):
    """The far schedules of a row without a gap, by place; instants are in ns."""

    kinds: array[int]
    """Their numbers, two bytes each."""
    sequences: array[int]
    stored: array[int]
    fire_times: array[int]
    wakes: array[int]
    ends: array[int]
    """Where the texts of each end, two bytes each; they begin where those of the place before end."""
    expiries: dict[int, int]
    texts: bytes
    marks: array[int] | None = None
    """What is known of their bodies, four bytes each; None for nothing."""

    def each_text(self) -> Iterator[bytes]:
        """Yield the texts of each, by place."""
        texts = self.texts
        return (texts[first:end] for first, end in pairwise((0, *self.ends)))


def columns_of(entries: Sequence[FarEntry], number_of: Callable[[FarKind], int]) -> FarColumns:
    """Return packed schedules as columns; `number_of` returns the number of a kind."""
    kinds, texts, sequences, stored, fire_times, wakes, expiries, marks = zip(*entries, strict=True)
    numbers = {id(kind): number_of(kind) for kind in {id(kind): kind for kind in kinds}.values()}
    return FarColumns(
        array("H", map(numbers.__getitem__, map(id, kinds))),
        array("Q", sequences),
        array("q", stored),
        array("q", fire_times),
        array("q", wakes),
        array("H", accumulate(map(len, texts))),
        {place: expires for place, expires in enumerate(expiries) if expires != NO_EXPIRY},
        b"".join(texts),
        array("I", marks),
    )


class FarRow:
    """The far schedules of one row; a place without one has the sequence 0."""

    __slots__ = (
        "_expiries",
        "_first",
        "_is_trimmed",
        "_kinds",
        "_marks",
        "_numbers",
        "_stored",
        "_texts",
        "_used",
        "count",
        "fire_times",
        "sequences",
        "wakes",
    )

    def __init__(self, kinds: Kinds, first: int) -> None:
        """Begin without schedules; `first` is the number of the first place among those of all rows."""
        self._kinds = kinds
        self._first = first
        self._numbers = array("H")
        self._texts = Texts()
        self._used = 0
        """The number of bytes of the texts that belong to schedules; the others are left of what was taken out."""
        self._stored = array("q")
        self._marks = array("I")
        self._expiries: dict[int, int] = {}
        self._is_trimmed = False
        self.fire_times = array("q")
        """By place, the next fire time (ns); `NO_FIRE_TIME` if no far schedule is there."""
        self.sequences = array("Q")
        """By place, the sequence; 0 if no far schedule is there."""
        self.wakes = array("q")
        """By place, the instant (ns) of the valid agenda entry."""
        self.count = 0
        """The number of far schedules."""

    def pack(self, place: int, held: Held) -> bool:
        """Put a schedule into a place; returns whether that was possible."""
        if held.flight is not None or held.wake >= NO_FIRE_TIME or held.has_history:
            return False
        packed = kind_and_text(held.subject, held.pattern, held.terms, held.fire_time)
        if packed is None:
            return False
        numbers = held.sequence, held.stored_at, held.fire_time, held.wake, held.expires, held.mark
        return self.put(place, FarEntry(*packed, *numbers))

    def put(self, place: int, entry: FarEntry) -> bool:
        """Put a packed schedule into a place; returns whether that was possible."""
        kind, text, sequence, stored_at, fire_time, wake, expires, mark = entry
        if len(self._texts.data) + len(text) > MAX_ROW_BYTES:
            self._compact()
            if len(self._texts.data) + len(text) > MAX_ROW_BYTES:
                return False
        if (number := self._kinds.take(kind)) is None:
            return False
        if place >= len(self.sequences):
            self._grow(place)
        self._numbers[place] = number
        self._texts.put(place, text)
        self._used += len(text)
        self._stored[place] = stored_at
        self._marks[place] = mark
        if expires != NO_EXPIRY:
            self._expiries[place] = expires
        self.fire_times[place] = fire_time
        self.wakes[place] = wake
        self.sequences[place] = sequence
        self.count += 1
        return True

    def trim(self) -> None:
        """Give back the room to grow, of a row whose places all have far schedules: once, or there is soon more."""
        if self._is_trimmed:
            return
        count, self._is_trimmed = self.count, True
        self._texts.trim(count)
        self._numbers, self._stored = self._numbers[:count], self._stored[:count]
        self.fire_times, self.wakes = self.fire_times[:count], self.wakes[:count]
        self.sequences, self._marks = self.sequences[:count], self._marks[:count]

    def fill(self, columns: FarColumns) -> None:
        """Put far schedules into the first places of a row that never had any."""
        assert not self.sequences, "the row had no far schedule"
        self._numbers, self.sequences, self._stored = columns[:3]
        self._marks = columns.marks or array("I", bytes(4 * len(columns.sequences)))
        self.fire_times, self.wakes = columns.fire_times, columns.wakes
        self._expiries = columns.expiries
        self._texts = Texts.of_ends(columns.ends, columns.texts)
        self._used = len(columns.texts)
        self.count = len(columns.sequences)
        for number, count in Counter(columns.kinds).items():
            self._kinds.take_more(number, count)

    def columns(self) -> FarColumns | None:
        """Return the far schedules of a row without gaps; None if it has some, also in its texts."""
        count = self.count
        ends = self._texts.ends_of_first(count) if count else None
        if ends is None or 0 in self.sequences[:count]:
            return None
        return FarColumns(
            self._numbers[:count],
            self.sequences[:count],
            self._stored[:count],
            self.fire_times[:count],
            self.wakes[:count],
            ends,
            self._expiries,
            bytes(self._texts.data),
        )

    def entry(self, place: int) -> FarEntry:
        """Return the schedule in a place as it is packed."""
        expires = self._expiries.get(place, NO_EXPIRY)
        kind, text = self._kinds[self._numbers[place]], self._texts.at(place)
        times = self._stored[place], self.fire_times[place], self.wakes[place], expires
        return FarEntry(kind, text, self.sequences[place], *times, self._marks[place])

    def has(self, place: int) -> bool:
        """Return whether a far schedule is in a place."""
        return place < len(self.sequences) and self.sequences[place] != 0

    def unpacked(self, place: int) -> Held:
        """Return the schedule in a place as an object; it stays there."""
        fire_time = self.fire_times[place]
        held = Held.__new__(Held)
        subject, held.pattern, held.terms = read_text(
            self._kinds[self._numbers[place]], self._texts.at(place), fire_time
        )
        held.stored_at = self._stored[place]
        held.subject = subject
        held.sequence = self.sequences[place]
        held.fire_time = fire_time
        held.expires = self._expiries.get(place, NO_EXPIRY)
        held.flight = None
        held.mark = self._marks[place]
        held.place = self._first | place
        held.wake = self.wakes[place]
        return held

    def remove(self, place: int) -> None:
        """Remove the schedule from its place."""
        self.sequences[place] = 0
        self._expiries.pop(place, None)
        self.fire_times[place] = NO_FIRE_TIME
        self._kinds.release(self._numbers[place])
        self._numbers[place] = _NO_KIND
        self._used -= len(self._texts.at(place))
        self.count -= 1
        if 2 * self._used < len(self._texts.data):
            self._compact()

    def is_left_out(self, place: int, window: Window) -> bool:
        """Return whether a window leaves out the schedule in a place."""
        return place not in self._expiries and window.leaves_out(self.fire_times[place])

    @property
    def text_bytes(self) -> int:
        """The number of bytes of the texts."""
        return len(self._texts.data)

    def subject(self, place: int) -> bytes:
        """Return the subject of the schedule in a place."""
        return subject_in(self._texts.at(place))

    def places(self) -> Iterator[int]:
        """Yield the places of the far schedules."""
        return (place for place, sequence in enumerate(self.sequences) if sequence)

    def among(self, first: int, gone: AbstractSet[int]) -> list[int]:
        """Return the places of the far schedules with sequences below `first` or in `gone`."""
        sequences = self.sequences
        if min(sequences, default=first) >= first and gone.isdisjoint(sequences):
            return []
        return [place for place in self.places() if sequences[place] < first or sequences[place] in gone]

    # -- for figures: another thread may ask ----------------------------------------------------------------------

    def kinds(self) -> Iterator[tuple[FarKind, int]]:
        """Yield the kinds of the far schedules, and how many there are of each."""
        for number, count in Counter(list(self._numbers)).items():
            if number != _NO_KIND and (kind := self._kinds.get(number)) is not None:
                yield kind, count

    def facts(self, place: int) -> tuple[int, int]:
        """Return when the schedule in a place expires, and when it was stored (ns)."""
        return self._expiries.get(place, NO_EXPIRY), self._stored[place]

    # -- parts ---------------------------------------------------------------------------------------------------

    def _grow(self, place: int) -> None:
        more = place + 1 - len(self.sequences) + _GROWTH
        self._texts.grow(more)
        self._numbers.extend([_NO_KIND] * more)
        self.fire_times.extend([NO_FIRE_TIME] * more)
        for column in (self._stored, self._marks, self.wakes):
            column.frombytes(bytes(more * column.itemsize))
        self.sequences.frombytes(bytes(more * self.sequences.itemsize))  # the last one: it says which places there are

    def _compact(self) -> None:
        """Remove the texts of the schedules that were taken out; another thread sees those before or after."""
        self._texts = self._texts.of(self.places())


def subject_in(text: bytes) -> bytes:
    """Return the subject in the texts of a schedule."""
    return text.partition(_SEPARATOR)[0]


def read_text(kind: FarKind, text: bytes, fire_time: int) -> tuple[str, Pattern, Terms]:
    """Return the subject, the pattern and the terms of a schedule: what `kind_and_text` packed."""
    pattern, dialect, ttl, rollup, policies, has_source = kind
    subject, target, source, *written = text.decode("utf-8", "surrogateescape").split("\0")
    if pattern is None:
        pattern = At(written[0] if written else None, fire_time)
    terms = tuple.__new__(Terms, (dialect, target, source if has_source else None, ttl, rollup, policies))
    return subject, pattern, terms


def kind_and_text(subject: str, pattern: Pattern, terms: Terms, fire_time: int) -> tuple[FarKind, bytes] | None:
    """Return the kind and the texts of a schedule with this definition; None if it has none, or fires after 2262."""
    if not 0 <= fire_time < NO_FIRE_TIME:
        return None
    source = terms.source
    written: str | None = None
    common: Pattern | None = pattern
    if type(pattern) is At:
        if pattern.instant != fire_time:
            return None
        common, written = None, pattern.written
    if (text := packed_text(subject, terms.target, source or "", written)) is None:
        return None
    # Made as a plain tuple is, in half the time.
    kind = tuple.__new__(FarKind, (common, terms.dialect, terms.ttl, terms.rollup, terms.policies, source is not None))
    return kind, text


def packed_text(subject: str, target: str, source: str, written: str | None) -> bytes | None:
    """Return the texts of a schedule as they are packed; None if one contains the separator."""
    text = f"{subject}\0{target}\0{source}" if written is None else f"{subject}\0{target}\0{source}\0{written}"
    separators = 2 if written is None else 3
    return text.encode("utf-8", "surrogateescape") if text.count("\0") == separators else None
