"""The TZif format (RFC 8536, RFC 9636): compiled time zone data, versions 1 to 4.

The standard library does not expose the transitions, and a cron search needs them: local time has no gap and no fold
only between two transitions. Abbreviations, daylight flags and leap seconds are ignored.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise

_MAGIC = b"TZif"
_HEADER = struct.Struct(">4sc15x6l")
_VERSIONS = (b"\0", b"2", b"3", b"4")


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """The UTC offsets of a zone in seconds: the first one, each change, and the rule after the last change."""

    first_offset: int
    changes: tuple[tuple[int, int], ...]
    """(first second since the epoch at this offset, offset), ascending."""
    footer: str
    """POSIX TZ rule for all times after the last change; empty if the file has none."""


def read_tzif(data: bytes) -> OffsetTable | None:
    """Read a TZif file; None if the bytes are not one."""
    try:
        return _read_tzif_block(data)
    except (struct.error, IndexError, ValueError):
        return None


def _read_tzif_block(data: bytes) -> OffsetTable:
    version, counts = _read_header(data, 0)
    if version == _VERSIONS[0]:
        table, _ = _read_block(data, _HEADER.size, counts, "l")
        return table
    second = _HEADER.size + _block_size(counts, 4)
    _, counts = _read_header(data, second)
    table, end = _read_block(data, second + _HEADER.size, counts, "q")
    return OffsetTable(table.first_offset, table.changes, _read_footer(data, end))


def _read_header(data: bytes, at: int) -> tuple[bytes, tuple[int, ...]]:
    """Return the version and the six counts: UT indicators, standard indicators, leaps, times, types, characters."""
    magic, version, *counts = _HEADER.unpack_from(data, at)
    if magic != _MAGIC or version not in _VERSIONS or min(counts) < 0:
        raise ValueError
    return version, tuple(counts)


def _block_size(counts: tuple[int, ...], width: int) -> int:
    """Return the length of a data block whose times are `width` bytes wide."""
    ut, standard, leaps, times, types, characters = counts
    return times * (width + 1) + types * 6 + characters + leaps * (width + 4) + standard + ut


def _read_block(data: bytes, at: int, counts: tuple[int, ...], code: str) -> tuple[OffsetTable, int]:
    """Read one data block; return its table and the position after it."""
    times, types = counts[3], counts[4]
    width = struct.calcsize(f">{code}")
    end = at + _block_size(counts, width)
    if types == 0 or end > len(data):
        raise ValueError
    moments = struct.unpack_from(f">{times}{code}", data, at)
    at += times * width
    indexes = data[at : at + times]
    at += times
    offsets = [struct.unpack_from(">l", data, at + 6 * i)[0] for i in range(types)]
    changes = tuple((moment, offsets[index]) for moment, index in zip(moments, indexes, strict=True))
    if any(later[0] <= earlier[0] for earlier, later in pairwise(changes)):
        raise ValueError
    return OffsetTable(offsets[0], changes, ""), end


def _read_footer(data: bytes, at: int) -> str:
    """Read the rule between two line feeds at the end of the file."""
    rest = data[at:]
    if len(rest) <= 2 or not rest.startswith(b"\n") or not rest.endswith(b"\n"):
        return ""
    return rest[1:-1].decode("ascii")
