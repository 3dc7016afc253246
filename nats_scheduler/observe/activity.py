"""The fires of the last hour, by minute: of each stream, and of all streams together.

Nothing is added to a fire for it: the counts of `observe.fire_counts` only grow, and what a minute added to them is the
difference of two samples. One sample is taken for each minute, and one at each request, for the present minute.
Many schedules fire when a minute begins, so a sample is taken `SAMPLE_LEAD_NS` before.

The rules:

- Minutes are those of UTC by the server's clock, so that those of several instances add up.
- A difference belongs to the minute of the sample before. So each fire is counted in exactly one minute: in which it
  was acknowledged, or read back, not always that of its fire time. What is counted in the last `SAMPLE_LEAD_NS` of a
  minute belongs to the next one.
- If the clock is set back, what is counted from then on belongs to the minutes that it shows; what was counted for
  later minutes is replaced when these minutes come again.

Cost: half a microsecond for each stream and sample, some for one that has fired, in units of `STREAMS_PER_UNIT`. For
each stream that fired in the last hour 6 KB, for any other 0.1 KB: 6 MB for 1,000 streams that fire.
What the server itself fired is read from the stream (`ReadFires`), and belongs to the minute in which it was stored.
Limit: what an instance fired begins with the process.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from nats_scheduler.engine.events import FireConfirmed
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS, MAX_RECENT_FIRES, FireCounts, FireMetrics
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND

MINUTES_KEPT = 60

SAMPLE_LEAD_NS = 250 * MILLISECOND
"""The time before the beginning of a minute at which its first sample is taken."""

STREAMS_PER_UNIT = 16
"""Streams that are sampled in one unit of work: a tenth of a millisecond at most."""

_OVERDUE, _SINGLE = 2, 4
"""The place of what was overdue among the counts before those of the histogram, and their number: stored, duplicates,
overdue, refused."""
_WIDTH = _SINGLE + len(LATENESS_BUCKETS_SECONDS) + 1
_ZEROS = (0,) * _WIDTH
_BOUNDS_NS = tuple(round(one * SECOND) for one in LATENESS_BUCKETS_SECONDS)
_NO_COUNTS = array("I", _ZEROS)
_NO_MINUTE = 0


@dataclass(frozen=True, slots=True)
class Minute:
    """The counts of one minute."""

    start: int
    """Nanoseconds since the Unix epoch, a whole minute."""
    fires: int
    duplicates: int
    overdue: int
    refused: int
    lateness: tuple[int, ...]
    """Fires by the buckets of the histogram, each without those before it, and what is above all of them."""
    lateness_max: int
    """The greatest lateness (ns) in it, that of overdue fires too; 0 if nothing was late."""

    def quantile(self, share: float) -> int | None:
        """Return the lateness (ns) that a share (0 to 1) of the fires did not exceed; None without fires.

        As Prometheus does: the fires of a bucket are taken as spread evenly. The bucket of the greatest lateness ends
        there, so that no quantile is greater than what occurred.
        """
        assert 0 <= share <= 1, f"share of {share}: 0 to 1 was expected"
        rank, before = share * sum(self.lateness), 0
        edges = [0, *_BOUNDS_NS, max(self.lateness_max, _BOUNDS_NS[-1])]
        for count, (lower, upper) in zip(self.lateness, pairwise(edges), strict=True):
            if count and before + count >= rank:
                end = min(upper, self.lateness_max) if self.lateness_max else upper
                return lower + round(max(end - lower, 0) * (rank - before) / count)
            before += count
        return None


@dataclass(frozen=True, slots=True)
class LastMinutes:
    """The fires of the last minutes, by one instance or by all."""

    at: int
    """The instant (ns since the Unix epoch) at which that was known."""
    minutes: Sequence[Minute]
    """Oldest first; the last one is the present one."""
    since: int = 0
    """The instant (ns) from which on all fires are counted; of minutes before it only some may be."""

    def is_known(self, minute: Minute) -> bool:
        """Return whether all that happened in a minute is counted, or something is."""
        return minute.start >= self.since or minute.fires > 0

    def last(self, number: int) -> Minute:
        """Return what happened in the last minutes, the present one included, as if it was one minute."""
        return total_of(self.minutes[-number:])

    def rate(self) -> float:
        """Return the fires per second in the last 60 s; of the minute before the present one a share counts."""
        present = self.at - self.at % MINUTE
        fires = {one.start: one.fires for one in self.minutes}
        share = 1 - (self.at - present) / MINUTE
        return (fires.get(present, 0) + share * fires.get(present - MINUTE, 0)) / 60


Differences = Sequence[tuple[int, int]]
"""The counts that have grown, and by how much."""


class Hour:
    """The last minutes of one stream, or of all."""

    __slots__ = ("counts", "latest", "minutes", "newest")

    def __init__(self) -> None:
        self.newest = _NO_MINUTE
        """The minute to which something was added last."""
        self.minutes = array("q", (_NO_MINUTE,) * MINUTES_KEPT)
        """The minute (since the Unix epoch) that is in each place."""
        self.counts = array("I", _ZEROS * MINUTES_KEPT)
        self.latest = array("Q", (0,) * MINUTES_KEPT)

    def add(self, minute: int, differences: Differences, latest: int) -> None:
        """Add to a minute, which takes the place of the one an hour before."""
        self.newest = minute
        place = minute % MINUTES_KEPT
        at = place * _WIDTH
        if self.minutes[place] != minute:
            self.minutes[place] = minute
            self.counts[at : at + _WIDTH] = _NO_COUNTS
            self.latest[place] = 0
        for number, difference in differences:
            self.counts[at + number] += difference
        if latest > self.latest[place]:
            self.latest[place] = latest

    def read(self, minute: int) -> Minute | None:
        """Return a minute, None if nothing happened in it."""
        place = minute % MINUTES_KEPT
        if self.minutes[place] != minute:
            return None
        at = place * _WIDTH
        stored, duplicates, overdue, refused, *lateness = self.counts[at : at + _WIDTH]
        return Minute(minute * MINUTE, stored, duplicates, overdue, refused, tuple(lateness), self.latest[place])

    def last(self, now: int, count: int) -> list[Minute]:
        """Return the last `count` minutes up to the present one, oldest first; those in which nothing happened too."""
        present = now // MINUTE
        return [self.read(minute) or nothing_in(minute * MINUTE) for minute in range(present - count + 1, present + 1)]


class ReadFires:
    """The fires that were read from a stream: the last ones, and how many were stored in each minute."""

    def __init__(self) -> None:
        """Begin with none."""
        self.recent: deque[FireConfirmed] = deque(maxlen=MAX_RECENT_FIRES)
        self.hour = Hour()

    def take(self, fire: FireConfirmed) -> None:
        """Count a fire; they come in the order in which they were stored."""
        late, counted = fire.stored_at - fire.send_time, [(0, 1)]
        if fire.is_time_known:
            counted.append((_OVERDUE if fire.overdue else _SINGLE + bisect_left(_BOUNDS_NS, late), 1))
        self.hour.add(fire.stored_at // MINUTE, counted, late if fire.is_time_known else 0)
        self.recent.append(fire)


class _Sampled:
    """The last sample and the last hour of one stream."""

    __slots__ = ("hour", "minute", "values")

    def __init__(self, minute: int) -> None:
        self.values = _ZEROS
        self.minute = minute
        """The minute of the last sample."""
        self.hour: Hour | None = None
        """None as long as nothing happened for an hour."""


class Activity:
    """The activity of one process."""

    def __init__(self, fires: FireMetrics) -> None:
        """Sample nothing yet."""
        self._fires = fires
        self.recent = fires.recent
        """The last fires and their streams, the newest last."""
        self._all = Hour()
        self._sampled: dict[str, _Sampled] = {}
        self._minute: int | None = None
        """The minute in which the last sample of all streams began."""
        self.since: int | None = None
        """The start (ns) of the first minute to which anything is counted; None before the first sample."""

    def sample(self, now: Callable[[], int]) -> Generator[None, None, None]:
        """Add what happened since the last sample; yield after each unit of work. `now` returns the time (ns)."""
        minute = minute_of(now())
        before = minute if self._minute is None else min(self._minute, minute)
        self._minute = minute
        if self.since is None:
            self.since = minute * MINUTE
        for number, (stream, counts) in enumerate(list(self._fires.by_stream.items()), 1):
            sampled = self._sampled.get(stream)
            if sampled is None:
                sampled = self._sampled[stream] = _Sampled(before)
            self._add(sampled, counts, minute)
            if number % STREAMS_PER_UNIT == 0:
                yield
                minute = minute_of(now())  # a burst may have lasted meanwhile

    def minutes(self, now: int, count: int, stream: str | None = None) -> list[Minute]:
        """Return the last `count` minutes up to the present one, oldest first; those in which nothing happened too."""
        sampled = None if stream is None else self._sampled.get(stream)
        hour = self._all if stream is None else None if sampled is None else sampled.hour
        return (hour or Hour()).last(now, count)

    def is_known(self, stream: str) -> bool:
        """Return whether anything was ever counted of a stream."""
        return stream in self._fires.by_stream

    def _add(self, sampled: _Sampled, counts: FireCounts, minute: int) -> None:
        values = counts.stored, counts.duplicates, counts.overdue, counts.refused, *counts.lateness
        before, sampled.minute = min(sampled.minute, minute), minute
        if values == sampled.values:
            if sampled.hour is not None and sampled.hour.newest <= minute - MINUTES_KEPT:
                sampled.hour = None
            return
        pairs = enumerate(zip(values, sampled.values, strict=True))
        differences = [(number, value - known) for number, (value, known) in pairs if value != known]
        latest, counts.latest = int(counts.latest * SECOND), 0.0
        sampled.values = values
        if sampled.hour is None:
            sampled.hour = Hour()
        sampled.hour.add(before, differences, latest)
        self._all.add(before, differences, latest)


def minute_of(now: int) -> int:
    """Return the minute since the Unix epoch to which belongs what is counted from an instant (ns) on."""
    return (now + SAMPLE_LEAD_NS) // MINUTE


def nothing_in(start: int) -> Minute:
    """Return a minute in which nothing happened."""
    return Minute(start, 0, 0, 0, 0, _ZEROS[_SINGLE:], 0)


def total_of(minutes: Iterable[Minute]) -> Minute:
    """Return what happened in several minutes, or in one minute in several processes, as if it was one minute."""
    return reduce(_added, minutes, nothing_in(0))


def _added(one: Minute, other: Minute) -> Minute:
    return Minute(
        other.start,
        one.fires + other.fires,
        one.duplicates + other.duplicates,
        one.overdue + other.overdue,
        one.refused + other.refused,
        tuple(map(int.__add__, one.lateness, other.lateness)),
        max(one.lateness_max, other.lateness_max),
    )
