"""Time zones as segments of constant UTC offset.

One rule: a zone is a function from an instant to the segment of constant offset around it. There is no function from
local time to an instant, since a local time may not exist, or exist twice.
Explicit segments come from the zone's table, later ones from its rule. The latter are computed for one mean year at a
time and cached, so that any year costs the same.
A name is a path, and so there are many names of one file (`Asia/./Gaza`), and several files with the same content
(`Asia/Calcutta`). `load_zone` caches what it finds under a name, and what is read of a content is held once.
Cost: under a microsecond a look-up; half a millisecond to load a zone, once, and 0.05 ms and 0.3 KB for another name.
Limit: a zone that is installed or replaced while the process runs is used only after a restart.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from nats_scheduler.schedule.instants import (
    SECOND,
    SECONDS_PER_DAY,
    civil_from_days,
    days_from_civil,
    days_in_month,
    is_leap,
    weekday_of,
)
from nats_scheduler.schedule.invalid import InvalidTimeZone

# The POSIX TZ rule in the footer of zone data: how the UTC offset changes in every future year.
#
# One rule: for a given year, return the seconds at which the offset changes, and the new offsets.
# The rule repeats every year (`CET-1CEST,M3.5.0,M10.5.0/3`), so years beyond the table of a zone need no table.
# RFC 9636's extensions are supported: times from -167 to 167 hours, and daylight time that lasts all year.

_NAME = r"(?:<[^>]+>|[^-+,<0-9]{3,})"
_TIME = r"[+-]?[0-9]{1,3}(?::[0-9]{1,2}(?::[0-9]{1,2})?)?"
_DATE = r"(?:J?[0-9]{1,3}|M(?:0?[1-9]|1[0-2])\.[1-5]\.[0-6])"
_split = re.compile(
    rf"{_NAME}({_TIME})(?:({_NAME})({_TIME})?(?:,({_DATE})(?:/({_TIME}))?,({_DATE})(?:/({_TIME}))?)?)?"
).fullmatch

_DEFAULT_START, _DEFAULT_END = "M3.2.0", "M11.1.0"
"""The dates that Go assumes for a rule that has daylight time and no dates; POSIX does not define it."""


@dataclass(frozen=True, slots=True)
class PosixRule:
    """Standard offset all year, or an offset that changes twice a year."""

    standard: int
    """Seconds east of Greenwich."""
    daylight: int | None = None
    start: str = _DEFAULT_START
    """The day on which daylight time starts, as it is written."""
    start_time: int = 2 * 3600
    """In seconds after midnight, local standard time."""
    end: str = _DEFAULT_END
    end_time: int = 2 * 3600
    """In local daylight time."""

    def changes(self, year: int) -> list[tuple[int, int]]:
        """Return the changes of a year as (second since the epoch, offset from then on), ascending."""
        if self.daylight is None:
            return []
        start = _day_of(self.start, year) * SECONDS_PER_DAY + self.start_time - self.standard
        end = _day_of(self.end, year) * SECONDS_PER_DAY + self.end_time - self.daylight
        return sorted([(start, self.daylight), (end, self.standard)])


def parse_posix_rule(text: str) -> PosixRule | None:
    """Parse a rule such as `EST5EDT,M3.2.0,M11.1.0`; None if the text is no rule."""
    parts = _split(text)
    if parts is None:
        return None
    standard_text, daylight_name, daylight_text, start, start_time, end, end_time = parts.groups()
    # POSIX counts offsets west of Greenwich.
    standard = -_seconds(standard_text)
    daylight = standard + 3600 if daylight_text is None else -_seconds(daylight_text)
    if daylight_name is None or daylight == standard:
        return PosixRule(standard)
    starts, ends = _seconds(start_time or "2"), _seconds(end_time or "2")
    return PosixRule(standard, daylight, start or _DEFAULT_START, starts, end or _DEFAULT_END, ends)


def _seconds(text: str) -> int:
    """Parse `[+-]h[hh][:mm[:ss]]` as seconds."""
    hours, minutes, seconds = (text.lstrip("+-") + ":0:0").split(":")[:3]
    value = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return -value if text.startswith("-") else value


def _day_of(text: str, year: int) -> int:
    """Return a day of a year, in days since 1970-01-01.

    It is written as `Mm.w.d` (the w-th weekday of a month, 5 for the last one; Sunday is 0), `Jn` (from 1, 29 February
    is not counted) or `n` (from 0, 29 February is counted).
    """
    if text.startswith("M"):
        month, week, weekday = map(int, text[1:].split("."))
        first = days_from_civil(year, month, 1)
        day = first + (weekday - weekday_of(first)) % 7 + 7 * (week - 1)
        return day if day < first + days_in_month(year, month) else day - 7
    if text.startswith("J"):
        number = int(text[1:])
        return days_from_civil(year, 1, 1) + number - 1 + (number >= 60 and is_leap(year))
    return days_from_civil(year, 1, 1) + int(text)


# The TZif format (RFC 8536, RFC 9636): compiled time zone data, versions 1 to 4.
#
# One rule: bytes in, a table of UTC offsets out; abbreviations, daylight flags and leap seconds are ignored. The
# standard library does not expose the transitions, and a cron search needs them: local time has no gap and no fold
# only between two transitions. Cost: each zone is read once, in about 100 µs.

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


# Where time zone data is found: in the `tzdata` package, then on the host.
#
# One rule: the package comes first, so that all instances of a fleet agree, whatever is installed on their hosts. The
# files of the host are read only for names that the package lacks (`posix/…`, `right/…`, a company's own zones).
# This is the only file of this room that reads the environment and the disk.
# Limit: data inside zip files is not read, neither a zipped `tzdata` nor a `$ZONEINFO` that ends in `.zip`.

_HOST_FOLDERS = (
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/usr/lib/locale/TZ",
    "/etc/zoneinfo",
)
"""Where Go searches on Unix."""

_MAX_FILE_BYTES = 1 << 20
"""The largest zone file in use has 4 KB."""

_SUBSTITUTES = {"posixrules": "America/New_York"}
"""Names that hosts have and the package lacks: the tz project's old default for rules without dates."""


def zone_data(name: str) -> Iterator[bytes]:
    """Yield the data that is found under a name, best first; the caller has checked that the name contains no `..`."""
    package = package_folder()
    yield from _found(name, package, *_host_folders())
    if name in _SUBSTITUTES:
        yield from _found(_SUBSTITUTES[name], package)


def host_zone_data(name: str) -> bytes | None:
    """Return the data of a zone that a server on this host uses, None if it has none; the name contains no `..`."""
    return next(_found(name, *_host_folders()), None)


def package_zone_data(name: str) -> bytes | None:
    """Return the data of a zone in the `tzdata` package, None if it has none; the name contains no `..`."""
    return next(_found(name, package_folder()), None)


def _host_folders() -> tuple[str, ...]:
    return (os.environ.get("ZONEINFO", ""), *_HOST_FOLDERS)


def _found(name: str, *folders: str) -> Iterator[bytes]:
    for folder in folders:
        if folder and (data := _read(f"{folder}/{name}")) is not None:
            yield data


def zone_data_versions() -> dict[str, str]:
    """Return the version of the data, such as `2025b`, by its place: the package, and the folders of the host."""
    places = {"the tzdata package": package_folder(), **{folder: folder for folder in _HOST_FOLDERS}}
    found = {place: _version_in(folder) for place, folder in places.items() if folder}
    return {place: version for place, version in found.items() if version}


def _version_in(folder: str) -> str:
    """Return the version that a folder of zone data states, "" if it states none."""
    first_line = (_read(f"{folder}/tzdata.zi") or b"").partition(b"\n")[0]
    if first_line.startswith(b"# version "):
        return first_line.removeprefix(b"# version ").strip().decode("ascii", "replace")
    return (_read(f"{folder}/+VERSION") or b"").strip().decode("ascii", "replace")


def local_zone_data() -> bytes | None:
    """Return the data of the host's own zone, found as Go finds it: `$TZ`, or else `/etc/localtime`; None is UTC.

    An empty `$TZ` and `UTC` mean UTC. A leading colon is removed; a path is read, a name is looked up.
    """
    setting = os.environ.get("TZ")
    if setting is None:
        return _read("/etc/localtime")
    name = setting.removeprefix(":")
    if name in ("", "UTC"):
        return None
    if name.startswith("/"):
        return _read(name)
    return next(zone_data(name), None)


@cache
def package_folder() -> str:
    """Return the folder of the `tzdata` package's files, or an empty text if it is not on the disk."""
    spec = find_spec("tzdata")
    places = spec.submodule_search_locations if spec is not None else None
    return os.path.join(next(iter(places)), "zoneinfo") if places else ""


def _read(path: str) -> bytes | None:
    """Read a whole file; None if there is none, or if the name cannot be that of a file."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except (OSError, ValueError):
        return None


_MEAN_YEAR_NS = 31_556_952 * SECOND
"""A 400th of the Gregorian cycle: the period for which the segments of a rule are computed at once."""

_DIGEST_BYTES = 8

_MAX_CACHED_YEARS = 64
"""Years of one zone, 0.6 KB each."""
_MAX_CACHED_ZONES = 1_024
"""The 600 names in use have 340 contents, of 7 KB on average."""
_MAX_CACHED_NAMES = 2_048
"""Names as they are written, valid or not."""
_MAX_CACHED_NAME_CHARS = 128
"""Longer names are not cached: the cache must stay small, and a header may hold 64 KB."""


class Segment(NamedTuple):
    """The half-open period [start, end) of one UTC offset; None: it has no start, or no end."""

    start: int | None
    end: int | None
    offset: int
    """Seconds east of Greenwich."""


class Zone:
    """A time zone; equal names are the same object as long as the cache of `load_zone` holds them."""

    __slots__ = ("_ends", "_explicit", "_later", "_rule", "_rule_from", "digest", "name")

    def __init__(self, name: str, table: OffsetTable) -> None:
        rule = parse_posix_rule(table.footer)
        self.name = name
        self.digest = blake2b(repr(table).encode(), digest_size=_DIGEST_BYTES).hexdigest()
        """The digest of its offsets: with other data the zone has another one."""
        self._rule = rule if rule is not None and rule.daylight is not None else None
        self._rule_from = table.changes[-1][0] * SECOND if table.changes else None
        self._explicit = _explicit_segments(table, rule, None if self._rule is None else self._rule_from)
        self._ends = [segment.end for segment in self._explicit[:-1] if segment.end is not None]
        self._later: dict[int, list[Segment]] = {}

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def named(self, name: str) -> Zone:
        """Return the same zone under another name; both have one table."""
        other = Zone.__new__(Zone)
        for slot in Zone.__slots__:
            setattr(other, slot, getattr(self, slot))
        other.name = name
        return other

    def segment_at(self, instant: int) -> Segment:
        """Return the segment around an instant.

        Two neighbours may have the same offset at the instant where the table ends and the rule begins.
        """
        if self._rule is not None and (self._rule_from is None or instant >= self._rule_from):
            return self._later_segment(self._rule, instant)
        return self._explicit[bisect_right(self._ends, instant)]

    def offset_at(self, instant: int) -> int:
        """Return the UTC offset at an instant, in seconds east of Greenwich."""
        return self.segment_at(instant).offset

    def _later_segment(self, rule: PosixRule, instant: int) -> Segment:
        """Find the segment around an instant that the rule covers."""
        mean_year = instant // _MEAN_YEAR_NS
        segments = self._later.get(mean_year)
        if segments is None:
            if len(self._later) >= _MAX_CACHED_YEARS:
                self._later.clear()
            segments = self._later[mean_year] = _unroll(rule, mean_year, self._rule_from)
        for segment in segments:
            if segment.end is None or instant < segment.end:
                return segment
        raise AssertionError(f"{self!r} has no segment at {instant}")


def _explicit_segments(table: OffsetTable, rule: PosixRule | None, end: int | None) -> list[Segment]:
    """Turn the table into segments; merge neighbours that differ only in their name. The last one ends at `end`.

    The rule begins at the table's last change, even if only the name changes there
    (`test_only_a_segment_of_constant_offset_has_no_end`).
    """
    starts: list[tuple[int | None, int]] = [(None, table.first_offset)]
    for second, offset in table.changes:
        if offset != starts[-1][1]:
            starts.append((second * SECOND, offset))
    last_start, last_offset = starts[-1]
    if rule is not None and rule.daylight is None:
        # The footer and the last change agree in valid data; if they do not, Go uses the footer.
        last_offset = rule.standard
    starts[-1] = last_start, last_offset
    ends = [*(start for start, _ in starts[1:]), end]
    return [Segment(start, end, offset) for (start, offset), end in zip(starts, ends, strict=True)]


def _unroll(rule: PosixRule, mean_year: int, rule_from: int | None) -> list[Segment]:
    """List the segments of a rule that overlap one mean year; the first one starts no earlier than the rule."""
    low, high = mean_year * _MEAN_YEAR_NS, (mean_year + 1) * _MEAN_YEAR_NS
    year = civil_from_days(low // SECOND // SECONDS_PER_DAY)[0]
    segments: list[Segment] = []
    for start, end, offset in _rule_segments(rule, range(year - 2, year + 4)):
        if end > low and start < high and (rule_from is None or end > rule_from):
            segments.append(Segment(start if rule_from is None else max(start, rule_from), end, offset))
    return segments


def _rule_segments(rule: PosixRule, years: range) -> list[tuple[int, int, int]]:
    """List (start, end, offset) between the changes of some years, without empty segments and equal neighbours."""
    changes: list[tuple[int, int]] = []
    # The sort is stable: if one year ends daylight time at the instant at which the next starts it, the start wins.
    for second, offset in sorted((change for year in years for change in rule.changes(year)), key=itemgetter(0)):
        if changes and changes[-1][0] == second * SECOND:
            changes.pop()
        if not changes or changes[-1][1] != offset:
            changes.append((second * SECOND, offset))
    return [(start, end, offset) for (start, offset), (end, _) in pairwise(changes)]


UTC = Zone("UTC", OffsetTable(0, (), ""))


def load_zone(name: str) -> Zone | InvalidTimeZone:
    """Find a zone by its name, which is case-sensitive, as Go's `LoadLocation` does.

    `UTC` is UTC and `Local` the host's own zone; an empty name is invalid, as in the header.
    """
    return _find_zone(name) if len(name) > _MAX_CACHED_NAME_CHARS else _find_cached_zone(name)


def _find_zone(name: str) -> Zone | InvalidTimeZone:
    if name == "":
        return InvalidTimeZone(name, "the name of a time zone is empty")
    if name == "UTC":
        return UTC
    if name == "Local":
        return _local_zone()
    if ".." in name or name.startswith(("/", "\\")):
        return InvalidTimeZone(name, "the name of a time zone contains no '..' and no leading slash")
    # As the server does: a name is a path, so a file has many (`test_one_zone_is_read_once_however_it_is_spelled`).
    for data in zone_data(name):
        if (zone := _zone_of(data)) is not None:
            return zone.named(name)
    return InvalidTimeZone(name, "no such time zone; expected a name such as Europe/Amsterdam (case-sensitive)")


_find_cached_zone = lru_cache(maxsize=_MAX_CACHED_NAMES)(_find_zone)


@lru_cache(maxsize=_MAX_CACHED_ZONES)
def _zone_of(data: bytes) -> Zone | None:
    """Return the zone that a file holds, which all its names share; None if it holds none."""
    table = read_tzif(data)
    return None if table is None else Zone("", table)


def _local_zone() -> Zone:
    """Return the host's own zone, or UTC if the host does not define one."""
    table = read_tzif(local_zone_data() or b"")
    return Zone("Local", table or OffsetTable(0, (), ""))
