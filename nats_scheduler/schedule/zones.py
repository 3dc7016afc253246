"""Time zones as segments of constant UTC offset.

The rules:

- A zone is a function from an instant to the segment of constant offset around it. There is no function from local time
  to an instant, since a local time may not exist, or exist twice.
- Explicit segments come from the zone's table (`schedule.tzif`), later ones from its rule (`schedule.posix_rule`). The
  latter are computed for one mean year at a time and cached, so that any year costs the same.
- A name is a path, and so there are many names of one file (`Asia/./Gaza`), and several files with the same content
  (`Asia/Calcutta`). `load_zone` caches what it finds under a name, and what is read of a content is held once.

Limit: a zone that is installed or replaced while the process runs is used only after a restart.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, civil_from_days
from nats_scheduler.schedule.invalid import InvalidTimeZone
from nats_scheduler.schedule.posix_rule import PosixRule, parse_posix_rule
from nats_scheduler.schedule.tzif import OffsetTable, read_tzif
from nats_scheduler.schedule.zone_data import local_zone_data, zone_data

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
    (`test_every_zone_has_the_offsets_of_the_standard_library`).
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
