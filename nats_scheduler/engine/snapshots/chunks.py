"""Schedules as the bytes of a snapshot: chunks, each of which can be read alone.

A chunk begins with the kinds of its schedules, each as the headers of one that has it, and then has blocks. A block
becomes one row (`engine.holding.roster`): columns of numbers, least byte first, and texts, as `engine.holding.far`
keeps them.
Schedules with policies that need more than their definitions have chunks of their own, with another mark: there each
block ends in what is known of their fires (`engine.snapshots.chunks`).

The rules:

- What is read is equal to what was written.
- Headers are read by the code that reads messages: nothing that a message cannot say can be in a chunk.
- Fire times depend on the data of time zones: a chunk has a digest of that of each zone, and is read with no other.
- A chunk that is not of this form raises `SnapshotError` and nothing else.

Cost: about 60 bytes and the texts for each schedule; half a microsecond to write one of a row of far schedules, 3 µs
to write another one, and a fraction of one to read. With policies: about
110 bytes, 8 µs and 10, and several times as much if each has headers of its own.
"""

from __future__ import annotations

import json
import operator
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.holding.far import (
    MAX_ROW_BYTES,
    NO_FIRE_TIME,
    FarColumns,
    FarEntry,
    FarKind,
    columns_of,
    read_text,
)
from nats_scheduler.engine.holding.held import NEVER_EXPIRES, NO_EXPIRY, Held, needs_history
from nats_scheduler.engine.holding.roster import ROW_LENGTH
from nats_scheduler.message.definition import Definition, definition_block
from nats_scheduler.schedule.patterns import At, Pattern

# Columns of numbers as the bytes of a snapshot, with the least byte of each number first.
#
# The rule: what is read is equal to what was written, on any machine.


def write_columns(columns: Iterable[array[int]]) -> bytes:
    """Return columns as bytes, one behind the other."""
    return b"".join(_turned(column).tobytes() for column in columns)


def read_columns(data: bytes, start: int, types: str, length: int) -> tuple[list[array[int]], int]:
    """Read columns of these type codes, `length` numbers each, and return them with where they end."""
    columns: list[array[int]] = []
    for code in types:
        column = array(code)
        end = start + length * column.itemsize
        column.frombytes(data[start:end])
        columns.append(_turned(column))
        start = end
    return columns, start


def _turned(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column


# The history of the fires of a schedule with policies, as a snapshot has it: columns of numbers, least byte first.
#
# The rule: what a schedule is given back is true at any later time, if all messages since are read. So what is in
# progress is left out, and what only messages of this stream show of fires in another one: nobody would read the
# later fires there.
#
# Cost: 49 bytes for each schedule.

_HISTORY_TYPES = "qQqqqBQ"
"""The types of the columns, in the order of `History`."""

HISTORY_BYTES = sum(array(code).itemsize for code in _HISTORY_TYPES)
"""The bytes of one history."""

_NONE = -1


class History(NamedTuple):
    """The history of the fires of one schedule: the attributes of `Held` with these names."""

    previous_fire: int | None = None
    previous_sequence: int = 0
    previous_stored_at: int = 0
    dropped: int = 0
    unreported: int | None = None
    is_known: bool = True
    last_unfinished: int = 0


UNKNOWN = History()


def history_of(held: Held) -> History:
    """Return what is kept of the fires of a schedule."""
    if held.is_elsewhere:
        return UNKNOWN
    before = held.previous_fire, held.previous_sequence, held.previous_stored_at
    return History(*before, held.dropped, held.unreported, held.is_known, held.last_unfinished)


def give_back(held: Held, history: History) -> None:
    """Have a schedule know what was kept of its fires."""
    (
        held.previous_fire,
        held.previous_sequence,
        held.previous_stored_at,
        held.dropped,
        held.unreported,
        held.is_known,
        held.last_unfinished,
    ) = history


def write_histories(histories: Sequence[History]) -> bytes:
    """Return histories as columns."""
    rows = [
        one._replace(previous_fire=_number(one.previous_fire), unreported=_number(one.unreported)) for one in histories
    ]
    columns = zip(*rows, strict=True)
    return write_columns(array(code, column) for code, column in zip(_HISTORY_TYPES, columns, strict=True))


def read_histories(data: bytes, count: int) -> list[History] | None:
    """Return `count` histories that were written; None if no schedule can have one of them."""
    columns, _end = read_columns(data, 0, _HISTORY_TYPES, count)
    previous, _sequences, stored, dropped, unreported, known, _unfinished = columns
    is_possible = (
        min(min(previous), min(unreported)) >= _NONE
        and max(max(previous), max(unreported)) < NO_FIRE_TIME
        and min(min(stored), min(dropped)) >= 0
        and max(known) <= 1
    )
    if not is_possible:
        return None
    return [
        History(_instant(fire), sequence, at, count, _instant(first), bool(is_known), unfinished)
        for fire, sequence, at, count, first, is_known, unfinished in zip(*columns, strict=True)
    ]


def _number(instant: int | None) -> int:
    return _NONE if instant is None else instant


def _instant(number: int) -> int | None:
    return None if number == _NONE else number


CHUNK_BYTES = 48 * 1024
"""A chunk has no further block once it has this number of bytes; it has at most twice as many."""

_HEAD = struct.Struct("<4sII")
"""The first bytes of a chunk: its mark, the bytes of the kinds, and the number of blocks."""

_BLOCK = struct.Struct("<HHI")
"""The first bytes of a block: how many schedules it has, how many of them expire, and the bytes of its texts."""

_MARK = b"NSS2"
_MARK_WITH_HISTORIES = b"NSP2"
_NEVER = -1

DefinitionReader = Callable[[bytes, str, int], Definition | None]
"""Reads the definition in a header block, of a message on a subject that was stored at an instant (ns)."""


class SnapshotError(ValueError):
    """This is no snapshot that can be restored; the reason says why."""


class UnkeepableError(Exception):
    """A schedule cannot be in a snapshot; the reason says why."""


class Block(NamedTuple):
    """The schedules of a block, as those of a row; a kind is a place in the list of the chunk's kinds."""

    columns: FarColumns
    histories: Sequence[History] = ()
    """The history of each schedule, in a chunk of schedules with policies."""


class Chunk(NamedTuple):
    """A chunk, as far as it was read; to take its kinds or its blocks raises `SnapshotError`."""

    has_histories: bool
    """True if it is one of schedules whose policies need more than their definitions."""
    kinds: Iterator[FarKind]
    blocks: Iterator[Block]


_TYPES = "QqqqHH"
"""The types of the columns, in their order."""

_BYTES_EACH = sum(array(code).itemsize for code in _TYPES)


class ChunkWriter:
    """Collects schedules until they fill a chunk; either all of them have policies with a history, or none."""

    def __init__(self) -> None:
        self._begin()

    def add_row(self, columns: FarColumns, kind_of: Callable[[int], FarKind]) -> bytes | None:
        """Add the far schedules of a row, with the kinds of these numbers; returns a chunk if one is full.

        Raises `UnkeepableError`.
        """
        for expires in columns.expiries.values():
            _check_expiry(expires)
        texts = list(columns.each_text())
        places = {}
        for number in set(columns.kinds):
            place = columns.kinds.index(number)
            places[number] = self._number_of(
                kind_of(number), texts[place], columns.stored[place], columns.fire_times[place]
            )
        kinds = array("H", [places[number] for number in columns.kinds])
        block = Block(columns._replace(kinds=kinds))
        self._append(_block_bytes(block))
        return self.finish() if self._bytes >= CHUNK_BYTES else None

    def add(self, entry: FarEntry, history: History | None = None) -> bytes | None:
        """Add a schedule; returns a chunk if one is full, with or without it. Raises `UnkeepableError`."""
        _check_expiry(entry.expires)
        if len(entry.text) > MAX_ROW_BYTES:
            raise UnkeepableError(f"the texts of a schedule take more than {MAX_ROW_BYTES:,} bytes")
        full = None
        if len(self._entries) == ROW_LENGTH or self._text_bytes + len(entry.text) > MAX_ROW_BYTES:
            self._end_block()
            if self._bytes >= CHUNK_BYTES:
                full = self.finish()
        self._entries.append(entry)
        self._text_bytes += len(entry.text)
        if history is not None:
            self._histories.append(history)
        known = len(self._kinds)
        self._number_of(entry.kind, entry.text, entry.stored_at, entry.fire_time)
        if len(self._kinds) > known and self._bytes >= CHUNK_BYTES and full is None:
            return self.finish()  # each schedule may have a kind of its own, with long headers
        return full

    def finish(self) -> bytes | None:
        """Return the chunk of all that was added since the last one, None if nothing was."""
        self._end_block()
        if not self._blocks:
            return None
        kinds = json.dumps(self._headers).encode()
        head = _HEAD.pack(self._mark, len(kinds), len(self._blocks))
        chunk = b"".join([head, kinds, *self._blocks])
        self._begin()
        return chunk

    def _begin(self) -> None:
        self._kinds: dict[FarKind, int] = {}
        self._headers: list[tuple[str, int, str, str]] = []
        self._blocks: list[bytes] = []
        self._entries: list[FarEntry] = []
        self._histories: list[History] = []
        self._mark = _MARK
        self._bytes = self._text_bytes = 0

    def _number_of(self, kind: FarKind, text: bytes, stored_at: int, fire_time: int) -> int:
        """Return the place of a kind among those of the chunk; a schedule that has it begins with these."""
        number = self._kinds.get(kind)
        if number is None:
            number = self._kinds[kind] = len(self._kinds)
            self._headers.append(_headers_of(kind, text, stored_at, fire_time))
            self._bytes += len(self._headers[-1][2])
        return number

    def _append(self, block: bytes) -> None:
        self._blocks.append(block)
        self._bytes += len(block)

    def _end_block(self) -> None:
        if not self._entries:
            return
        block = _block_bytes(_block_of(self._entries, self._kinds))
        if self._histories:
            block += write_histories(self._histories)
            self._mark = _MARK_WITH_HISTORIES
        self._append(block)
        self._entries, self._histories, self._text_bytes = [], [], 0


def read_chunk(chunk: bytes, read: DefinitionReader) -> Chunk:
    """Return the kinds and the blocks of a chunk; raises `SnapshotError`, also while these are taken."""
    try:
        mark, kinds_bytes, count = _HEAD.unpack_from(chunk)
        start = _HEAD.size + kinds_bytes
        told = json.loads(chunk[_HEAD.size : start])
    except (struct.error, ValueError, RecursionError) as error:
        raise SnapshotError(f"the kinds of a chunk cannot be read: {error}") from None
    if mark not in (_MARK, _MARK_WITH_HISTORIES) or not isinstance(told, list):
        raise SnapshotError("a chunk does not begin as one")
    has_histories = mark == _MARK_WITH_HISTORIES
    kinds = (_kind_of(one, read, has_history=has_histories) for one in told)
    return Chunk(has_histories, kinds, _blocks(chunk, start, count, len(told), has_histories=has_histories))


def _check_expiry(expires: int) -> None:
    if expires != NEVER_EXPIRES and NO_FIRE_TIME <= expires < NO_EXPIRY:
        raise UnkeepableError("the TTL of a schedule ends after 2262")


def _headers_of(kind: FarKind, text: bytes, stored_at: int, fire_time: int) -> tuple[str, int, str, str]:
    """Return a message that has the kind of a schedule: its subject, when it was stored, its headers, and its zone."""
    subject, pattern, terms = read_text(kind, text, fire_time)
    try:
        block = definition_block(Definition(pattern, terms))
    except ValueError as error:
        raise UnkeepableError(str(error)) from None
    return subject, stored_at, block.decode("latin-1"), _zone_digest(pattern)


def _zone_digest(pattern: Pattern) -> str:
    zone = pattern.zone
    return "" if zone is None else zone.digest


def _kind_of(told: Any, read: DefinitionReader, *, has_history: bool) -> FarKind:
    if not isinstance(told, list) or tuple(map(type, told)) != (str, int, str, str):
        raise SnapshotError("a kind has parts of other types")
    subject, stored_at, block, zone_digest = told
    try:
        definition = read(block.encode("latin-1"), subject, stored_at)
    except (ValueError, OverflowError) as error:
        raise SnapshotError(f"the headers of a kind cannot be read: {error}") from None
    if definition is None:
        raise SnapshotError(f"the headers of a kind, on {subject}, are no schedule")
    pattern, terms = definition
    if needs_history(terms.policies) != has_history or terms.policies.bounds.calendars:
        raise SnapshotError(f"the policies of a kind, on {subject}, are not those of its chunk")
    if _zone_digest(pattern) != zone_digest:
        raise SnapshotError(f"the data of the time zone {pattern.time_zone} is not what it was")
    common = None if type(pattern) is At else pattern
    return FarKind(common, terms.dialect, terms.ttl, terms.rollup, terms.policies, terms.source is not None)


def _block_of(entries: list[FarEntry], kinds: dict[FarKind, int]) -> Block:
    return Block(columns_of(entries, kinds.__getitem__))


def _block_bytes(block: Block) -> bytes:
    """Return a block as bytes, without histories."""
    rows = block.columns
    expiries = [number for place, expires in rows.expiries.items() for number in (place, _stored_expiry(expires))]
    columns = [rows.sequences, rows.stored, rows.fire_times, rows.wakes, rows.kinds, rows.ends]
    head = _BLOCK.pack(len(rows.sequences), len(rows.expiries), len(rows.texts))
    return b"".join([head, write_columns([*columns, array("q", expiries)]), rows.texts])


def _blocks(chunk: bytes, start: int, count: int, kinds: int, *, has_histories: bool) -> Iterator[Block]:
    bytes_each = _BYTES_EACH + HISTORY_BYTES * has_histories
    for _ in range(count):
        try:
            schedules, expiring, text_bytes = _BLOCK.unpack_from(chunk, start)
        except struct.error:
            raise SnapshotError("a chunk ends before its last block") from None
        start += _BLOCK.size
        end = start + schedules * bytes_each + 16 * expiring + text_bytes
        if end > len(chunk) or not 0 < schedules <= ROW_LENGTH or text_bytes > MAX_ROW_BYTES:
            raise SnapshotError("a block is longer than its chunk, or than a row")
        block = _checked(_read_block(chunk, start, schedules, expiring, text_bytes), kinds)
        yield _with_histories(block, chunk[end - HISTORY_BYTES * schedules : end]) if has_histories else block
        start = end
    if start != len(chunk):
        raise SnapshotError("a chunk is longer than its blocks")


def _read_block(chunk: bytes, start: int, schedules: int, expiring: int, text_bytes: int) -> Block:
    numbers, start = read_columns(chunk, start, _TYPES, schedules)
    (expiries,), start = read_columns(chunk, start, "q", 2 * expiring)
    expire = {place: _known_expiry(expires) for place, expires in zip(expiries[::2], expiries[1::2], strict=True)}
    sequences, stored, fire_times, wakes, kinds, ends = numbers
    times, texts = (fire_times, wakes), chunk[start : start + text_bytes]
    return Block(FarColumns(kinds, sequences, stored, *times, ends, expire, texts))


def _with_histories(block: Block, data: bytes) -> Block:
    histories = read_histories(data, len(block.columns.sequences))
    if histories is None:
        raise SnapshotError("a block has fires that no schedule can have")
    return block._replace(histories=histories)


def _checked(block: Block, kinds: int) -> Block:
    """Raise `SnapshotError` if a block has something that no row may have."""
    rows, count = block.columns, len(block.columns.sequences)
    is_row = (
        min(rows.sequences) > 0
        and max(rows.kinds) < kinds
        and min(rows.fire_times) >= 0
        and max(rows.fire_times) < NO_FIRE_TIME
        and min(rows.wakes) >= 0
        and all(place in range(count) for place in rows.expiries)
        and rows.ends[-1] == len(rows.texts)
        and all(map(operator.le, rows.ends, rows.ends[1:]))
    )
    if not is_row:
        raise SnapshotError("a block has numbers that no row can have")
    return block


def _stored_expiry(expires: int) -> int:
    return _NEVER if expires == NEVER_EXPIRES else expires


def _known_expiry(stored: int) -> int:
    return NEVER_EXPIRES if stored == _NEVER else stored


# The content of a snapshot besides its schedules: all else that an engine would not read after its sequence.
#
# The rule: the document that is written reads to an equal value. Anything else raises `SnapshotError`.
# Limit: `MAX_EXCEPTIONS` entries; a stream with more of them gets no snapshot.

MAX_EXCEPTIONS = 20_000
"""Most messages and schedules that are named one by one."""


class Done(NamedTuple):
    """A schedule that is among the others, and that is done: it has to be purged."""

    subject: str
    sequence: int
    ending: Ending


class OldVersion(NamedTuple):
    """A version of a schedule that may still be stored below a newer one, and is to be purged."""

    subject: str
    through: int
    """Everything on the subject up to this sequence is to be purged."""
    sequence: int
    stored_at: int
    """The instant (ns) at which it was stored."""


class LastRead(NamedTuple):
    """The message with the highest sequence that was read."""

    subject: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Rest:
    """All that is known up to one sequence, besides the schedules that wait."""

    through: int
    """All messages up to this sequence have been read."""
    last: LastRead
    last_fired: int
    """The last send time (ns) of which a fire was read back."""
    roll_ups: Sequence[tuple[str, int]] = ()
    """Targets that may still be to be rolled up, with the last sequence to be purged."""
    landed: Mapping[int, int] = field(default_factory=dict)
    """The last sequence that landed on schedules, by their sequences."""
    old_versions: Sequence[OldVersion] = ()
    done: Sequence[Done] = ()
    to_read: Sequence[int] = ()
    """The sequences of messages that are to be read again, in their order: what they mean is not in the snapshot."""

    @property
    def exceptions(self) -> int:
        """The number of messages and schedules that are named one by one."""
        return sum(map(len, (self.landed, self.old_versions, self.done, self.to_read, self.roll_ups)))

    def document(self) -> dict[str, Any]:
        """Return it as the values of JSON."""
        return {
            "through": self.through,
            "last": list(self.last),
            "last_fired": self.last_fired,
            "roll_ups": [list(one) for one in self.roll_ups],
            "landed": [list(pair) for pair in self.landed.items()],
            "old_versions": [list(one) for one in self.old_versions],
            "done": [[one.subject, one.sequence, one.ending.value] for one in self.done],
            "to_read": list(self.to_read),
        }


def read_rest(document: Mapping[str, Any]) -> Rest:
    """Read what `Rest.document` returned; raises `SnapshotError`."""
    through = document.get("through")
    if type(through) is not int or through <= 0:
        raise SnapshotError("what belongs to the schedules does not say through which sequence it is known")
    last_fired = document.get("last_fired")
    if type(last_fired) is not int:
        raise SnapshotError("what belongs to the schedules does not say when one fired last")
    (last,) = _rows({"last": [document.get("last")]}, "last", (str, int, int))
    rest = Rest(
        through,
        LastRead(*last),
        last_fired,
        tuple((row[0], row[1]) for row in _rows(document, "roll_ups", (str, int))),
        dict(_rows(document, "landed", (int, int))),
        tuple(OldVersion(*row) for row in _rows(document, "old_versions", (str, int, int, int))),
        tuple(Done(row[0], row[1], _ending(row[2])) for row in _rows(document, "done", (str, int, str))),
        tuple(_numbers(document, "to_read")),
    )
    if rest.exceptions > MAX_EXCEPTIONS:
        raise SnapshotError(f"more than {MAX_EXCEPTIONS:,} messages are named")
    return rest


def _numbers(document: Mapping[str, Any], key: str) -> list[int]:
    found = document.get(key)
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise SnapshotError(f"{key} is no list of numbers")
    return found


def _rows(document: Mapping[str, Any], key: str, types: tuple[type, ...]) -> list[list[Any]]:
    found = document.get(key)
    if not isinstance(found, list):
        raise SnapshotError(f"{key} is no list")
    for row in found:
        if not isinstance(row, list) or tuple(map(type, row)) != types:
            raise SnapshotError(f"{key} has a row of other values")
    return found


def _ending(value: str) -> Ending:
    try:
        return Ending(value)
    except ValueError:
        raise SnapshotError(f"{value[:40]!r} ends no schedule") from None
