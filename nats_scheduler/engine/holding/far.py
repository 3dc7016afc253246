"""Schedules that are far from their next fire, as numbers and bytes: nearly all of a million are.

A schedule that waits for a fire of next month needs no object. It is packed here, into a place of its row
(`engine.holding.roster`), and becomes an object again before its time comes, or when a message concerns it
(`engine.holding.roster`).

The rule: what is unpacked is equal to what was packed. What cannot be packed stays an object: a schedule whose policies
need more than its definition, one in progress, one with a fire time after 2262, and texts that are too long or contain
the separator.

Cost: 41 bytes for each schedule, the bytes of its subject, target and source, and of an `@at` that is not written as it
is printed; 2 µs to pack or to unpack. A row is 256 schedules; its texts take at most 64 KB.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.policies import Policies
from nats_scheduler.schedule.patterns import At, Pattern

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
        """Have so many more places, with empty texts."""
        for column in (self._starts, self._ends):
            column.frombytes(bytes(more * column.itemsize))

    def trim(self, places: int) -> None:
        """Have so many places, and no room to grow."""
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
"""So many kinds of schedules of one stream are packed; a number of a kind takes two bytes."""


class Kind(NamedTuple):
    """What the schedules of a fleet have in common."""

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
        self._numbers: dict[Kind, int] = {}
        self._kinds: list[Kind | None] = []
        self._counts: list[int] = []
        self._free: list[int] = []
        self._last: tuple[Kind, int] | None = None
        """The kind that was asked for last: most often it is the next one too."""

    def __getitem__(self, number: int) -> Kind:
        """Return the kind with a number."""
        kind = self._kinds[number]
        assert kind is not None, f"no schedule is of kind {number}"
        return kind

    def get(self, number: int) -> Kind | None:
        """Return the kind with a number; None if it was forgotten meanwhile."""
        return self._kinds[number]

    def take(self, kind: Kind) -> int | None:
        """Count one more schedule of a kind and return its number; None if there are too many kinds."""
        last = self._last
        if last is not None and last[0] == kind:
            number = last[1]
        else:
            found = self._numbers.get(kind)
            if found is None:
                found = self._add(kind)
            if found is None:
                return None
            number = found
            self._last = kind, number
        self._counts[number] += 1
        return number

    def take_more(self, number: int, count: int) -> None:
        """Count so many more schedules of a kind that some schedule has."""
        self._counts[number] += count

    def release(self, number: int) -> None:
        """Count one less schedule of a kind."""
        self._counts[number] -= 1
        if not self._counts[number]:
            kind = self[number]
            del self._numbers[kind]
            self._kinds[number] = None
            self._free.append(number)
            if self._last is not None and self._last[1] == number:
                self._last = None

    def _add(self, kind: Kind) -> int | None:
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
"""The texts of a row take at most so many bytes; a position in them takes two."""

NO_FIRE_TIME = (1 << 63) - 1
"""The fire time of a place without a far schedule."""

_NO_KIND = 65_535
_MOST_IN_FOUR_BYTES = (1 << 32) - 1
_SEPARATOR = b"\0"
_GROWTH = 16
"""A row grows by so many places."""


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


class FarFacts(NamedTuple):
    """When a far schedule fires and is removed, without its texts; instants are in ns."""

    fire_time: int
    stored_at: int
    expires: int
    shard: int


class FarEntry(NamedTuple):
    """A far schedule as it is packed; instants are in ns."""

    kind: Kind
    text: bytes
    """Its subject, target and source, and how an `@at` is written, with a separator between them."""
    sequence: int
    stored_at: int
    shard: int
    fire_time: int
    wake: int
    expires: int


class FarColumns(NamedTuple):
    """The far schedules of a row without a gap, by place; instants are in ns."""

    kinds: array[int]
    """Their numbers, two bytes each."""
    sequences: array[int]
    """Four bytes each, or eight."""
    stored: array[int]
    shards: array[int]
    fire_times: array[int]
    wakes: array[int]
    ends: array[int]
    """Where the texts of each end, two bytes each; they begin where those of the place before end."""
    expiries: dict[int, int]
    texts: bytes


class FarRow:
    """The far schedules of one row; a place without one has the sequence 0."""

    __slots__ = (
        "_expiries",
        "_first",
        "_is_trimmed",
        "_kinds",
        "_numbers",
        "_shards",
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
        """How many bytes of the texts are those of schedules; the others are what was taken out."""
        self._stored = array("q")
        self._shards = array("B")
        self._expiries: dict[int, int] = {}
        self._is_trimmed = False
        self.fire_times = array("q")
        """By place, the next fire time (ns); `NO_FIRE_TIME` if no far schedule is there."""
        self.sequences = array("I")
        """By place, the sequence; 0 if no far schedule is there. Four bytes each until one needs eight."""
        self.wakes = array("q")
        """By place, the instant (ns) of the valid agenda entry."""
        self.count = 0
        """How many far schedules there are."""

    def pack(self, place: int, held: Held) -> bool:
        """Put a schedule into a place; returns whether that was possible."""
        packed = None if held.flight is not None or held.wake >= NO_FIRE_TIME else kind_and_text(held)
        if packed is None:
            return False
        numbers = held.sequence, held.stored_at, held.shard, held.fire_time, held.wake, held.expires
        return self.put(place, FarEntry(*packed, *numbers))

    def put(self, place: int, entry: FarEntry) -> bool:
        """Put a packed schedule into a place; returns whether that was possible."""
        kind, text, sequence, stored_at, shard, fire_time, wake, expires = entry
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
        self._shards[place] = shard
        if expires != NO_EXPIRY:
            self._expiries[place] = expires
        self.fire_times[place] = fire_time
        self.wakes[place] = wake
        if sequence > _MOST_IN_FOUR_BYTES and self.sequences.typecode == "I":
            self.sequences = array("Q", self.sequences)
        self.sequences[place] = sequence
        self.count += 1
        return True

    def trim(self) -> None:
        """Give back the room to grow, of a row whose places all have far schedules: once, or there is soon more."""
        if self._is_trimmed:
            return
        count, self._is_trimmed = self.count, True
        self._texts.trim(count)
        self._numbers, self._stored, self._shards = self._numbers[:count], self._stored[:count], self._shards[:count]
        self.fire_times, self.wakes = self.fire_times[:count], self.wakes[:count]
        self.sequences = self.sequences[:count]

    def fill(self, columns: FarColumns) -> None:
        """Put far schedules into the first places of a row that never had any."""
        assert not self.sequences, "the row had no far schedule"
        self._numbers, self.sequences, self._stored, self._shards = columns[:4]
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
            self._shards[:count],
            self.fire_times[:count],
            self.wakes[:count],
            ends,
            self._expiries,
            bytes(self._texts.data),
        )

    def entry(self, place: int) -> FarEntry:
        """Return the schedule in a place as it is packed."""
        expires = self._expiries.get(place, NO_EXPIRY)
        numbers = self.sequences[place], self._stored[place], self._shards[place]
        times = self.fire_times[place], self.wakes[place], expires
        return FarEntry(self._kinds[self._numbers[place]], self._texts.at(place), *numbers, *times)

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
        held.shard = self._shards[place]
        held.sequence = self.sequences[place]
        held.fire_time = fire_time
        held.expires = self._expiries.get(place, NO_EXPIRY)
        held.flight = None
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

    def kinds(self) -> Iterator[tuple[Kind, int]]:
        """Yield the kinds of the far schedules, and how many there are of each."""
        for number, count in Counter(list(self._numbers)).items():
            if number != _NO_KIND and (kind := self._kinds.get(number)) is not None:
                yield kind, count

    def facts(self, place: int) -> FarFacts:
        """Return what a figure may depend on, of the schedule in a place."""
        expires = self._expiries.get(place, NO_EXPIRY)
        return FarFacts(self.fire_times[place], self._stored[place], expires, self._shards[place])

    # -- parts ---------------------------------------------------------------------------------------------------

    def _grow(self, place: int) -> None:
        more = place + 1 - len(self.sequences) + _GROWTH
        self._texts.grow(more)
        self._numbers.extend([_NO_KIND] * more)
        self.fire_times.extend([NO_FIRE_TIME] * more)
        for column in (self._stored, self._shards, self.wakes):
            column.frombytes(bytes(more * column.itemsize))
        self.sequences.frombytes(bytes(more * self.sequences.itemsize))  # the last one: it says which places there are

    def _compact(self) -> None:
        """Remove the texts of the schedules that were taken out; another thread sees those before or after."""
        self._texts = self._texts.of(self.places())


def subject_in(text: bytes) -> bytes:
    """Return the subject in the texts of a schedule."""
    return text.partition(_SEPARATOR)[0]


def read_text(kind: Kind, text: bytes, fire_time: int) -> tuple[str, Pattern, Terms]:
    """Return the subject, the pattern and the terms of a schedule: what `kind_and_text` packed."""
    pattern, dialect, ttl, rollup, policies, has_source = kind
    subject, target, source, *written = text.decode("utf-8", "surrogateescape").split("\0")
    if pattern is None:
        pattern = At(written[0] if written else None, fire_time)
    terms = tuple.__new__(Terms, (dialect, target, source if has_source else None, ttl, rollup, policies))
    return subject, pattern, terms


def kind_and_text(held: Held) -> tuple[Kind, bytes] | None:
    """Return the kind and the texts of a schedule, whatever is in progress for it; None if it has none."""
    if type(held) is not Held:
        return None
    return kind_and_text_of(held.subject, held.pattern, held.terms, held.fire_time)


def kind_and_text_of(subject: str, pattern: Pattern, terms: Terms, fire_time: int) -> tuple[Kind, bytes] | None:
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
    parts = [subject, terms.target, source or ""]
    if written is not None:
        parts.append(written)
    text = "\0".join(parts)
    if text.count("\0") != len(parts) - 1:
        return None
    # Made as a plain tuple is, in half the time.
    kind = tuple.__new__(Kind, (common, terms.dialect, terms.ttl, terms.rollup, terms.policies, source is not None))
    return kind, text.encode("utf-8", "surrogateescape")
