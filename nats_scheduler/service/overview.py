"""What sidecars answer, read for a program that shows it: the status page, and `top`.

The rules:

- A sidecar may be of another version, and any client may answer in its place. So each value is checked where it is
  read: one that is missing or of another type is unknown, a row without what names it is left out, and keys that are
  not known here are passed over. Reading never raises.
- Times are ns since the Unix epoch by the server's clock; None is unknown, and never 0.
- An endpoint that an older sidecar does not have has no answer: its part of the overview is None.

Cost: some microseconds for each row; at most `MAX_ROWS` rows of a list are read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nats_scheduler.jetstream.foreign_json import Object, count_of, inner, integer, time_of
from nats_scheduler.schedule.instants import MINUTE, SECOND

# Lateness as it is counted in buckets: sums, and quantiles by interpolation, as Prometheus computes them.
#
# The rule: within a bucket the fires are taken as spread evenly. If the greatest lateness is known, its bucket ends
# there, so that no quantile is greater than what occurred.
# Cost: some microseconds.
# Limit: a quantile is as exact as its bucket is narrow.

MAX_BOUND_SECONDS = 1e9
"""All bounds are less."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many fires were how late."""

    bounds: tuple[int, ...] = ()
    """The upper bounds (ns) of all buckets but the last one, ascending."""
    counts: tuple[int, ...] = (0,)
    """Fires in each bucket, each without those before it; one more than there are bounds."""
    most: int = 0
    """The greatest lateness (ns); 0 if it is not known."""

    @property
    def total(self) -> int:
        """How many fires are counted."""
        return sum(self.counts)

    def quantile(self, share: float) -> int | None:
        """Return the lateness (ns) that a share (0 to 1) of the fires did not exceed; None without fires."""
        assert 0 <= share <= 1, f"share of {share}: 0 to 1 was expected"
        rank, before = share * self.total, 0
        for count, (lower, upper) in zip(self.counts, pairwise(self._edges()), strict=True):
            if count and before + count >= rank:
                end = min(upper, self.most) if self.most else upper
                return lower + round(max(end - lower, 0) * (rank - before) / count)
            before += count
        return None

    def _edges(self) -> list[int]:
        """Return where the buckets begin and end: the first begins at 0, the last ends at the greatest lateness."""
        last = self.bounds[-1] if self.bounds else 0
        return [0, *self.bounds, max(self.most, last)]


def histogram_of(bounds_seconds: Sequence[float], counts: Sequence[int], most: int) -> Histogram:
    """Return the histogram of an answer; counts that do not fit the bounds are none."""
    is_ascending = all(lower < upper for lower, upper in pairwise((0, *bounds_seconds, MAX_BOUND_SECONDS)))
    if not is_ascending or len(counts) != len(bounds_seconds) + 1:
        return Histogram()
    return Histogram(tuple(round(one * SECOND) for one in bounds_seconds), tuple(counts), most)


def sum_of(histograms: Iterable[Histogram]) -> Histogram:
    """Return all fires of histograms with equal bounds; one without fires may have others."""
    total = Histogram()
    for one in histograms:
        if not one.total:
            continue
        if not total.total:
            total = one
            continue
        assert one.bounds == total.bounds, "histograms of one answer have equal bounds"
        counts = tuple(map(int.__add__, total.counts, one.counts))
        total = Histogram(total.bounds, counts, max(total.most, one.most))
    return total


MAX_ROWS = 1_000
"""Rows that are read of one list: the most that an answer has."""

MAX_MINUTES = 120

PAUSE_FACTOR = 9
"""A question is asked again after a pause that is so many times as long as its answer took: a sidecar works for at most
a tenth of the time on one question of a program, however many readers that has."""


@dataclass(frozen=True, slots=True)
class Due:
    """A schedule that fires next."""

    stream: str
    subject: str
    pattern: str
    target: str
    fire_time: int
    state: str


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream that is served."""

    name: str
    mode: str
    is_ready: bool
    schedules: int | None
    """How many there are; None as long as the stream is not read to its end."""
    states: Mapping[str, int]
    kinds: Mapping[str, int]
    failing: int
    rejected: int
    misnamed: int
    next: Due | None
    holders: Sequence[str]


@dataclass(frozen=True, slots=True)
class Instance:
    """A sidecar."""

    id: str
    state: str
    since: int | None
    last_heartbeat: int | None
    shards: Mapping[str, Sequence[int]]
    """The shards that it holds, by stream."""
    unable: Mapping[str, str]
    """The streams that it cannot serve, and why."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a sidecar is ready, and why not."""

    instance: str
    is_ready: bool
    reasons: Sequence[str]
    notes: Sequence[str] = ()
    """What an operator should know although it is ready."""


@dataclass(frozen=True, slots=True)
class MinuteActivity:
    """What was fired in one minute."""

    start: int
    fires: int
    duplicates: int
    overdue: int
    refused: int
    lateness: Histogram


@dataclass(frozen=True, slots=True)
class Activity:
    """What was fired in the last minutes."""

    at: int
    minutes: Sequence[MinuteActivity]
    """Oldest first; the last one is the present one."""
    unanswered: Sequence[str]

    def lateness(self, minutes: int) -> Histogram:
        """Return how late the fires of the last minutes were, the present one included."""
        return sum_of(one.lateness for one in self.minutes[-minutes:])

    def refused(self, minutes: int) -> int:
        """Return how many fires were refused in the last minutes, the present one included."""
        return sum(one.refused for one in self.minutes[-minutes:])

    def rate(self) -> float:
        """Return the fires per second in the last 60 s; of the minute before the present one a share counts."""
        present = self.at - self.at % MINUTE
        fires = {one.start: one.fires for one in self.minutes}
        share = 1 - (self.at - present) / MINUTE
        return (fires.get(present, 0) + share * fires.get(present - MINUTE, 0)) / 60


@dataclass(frozen=True, slots=True)
class RecentFire:
    """A fire that was stored."""

    stream: str
    schedule: str
    target: str
    sequence: int
    fire_time: int | None
    stored_at: int
    lateness: int | None
    """In ns; None if it was overdue, since that says nothing about punctuality."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What fires next."""

    at: int
    soonest: Sequence[Due]


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that went wrong."""

    kind: str
    stored_at: int
    stream: str
    schedule: str | None
    advisory: Object


# -- lists and values ------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a text, "" if the value is none."""
    return value if isinstance(value, str) else ""


def objects_of(value: Any, most: int = MAX_ROWS) -> list[Object]:
    """Return the objects of a list."""
    return [one for one in value[:most] if isinstance(one, dict)] if isinstance(value, list) else []


def texts_of(value: Any) -> list[str]:
    """Return the texts of a list."""
    return [one for one in value[:MAX_ROWS] if isinstance(one, str)] if isinstance(value, list) else []


def _counts(value: Any) -> dict[str, int]:
    return {key: count_of(number) for key, number in inner(value).items()}


def _some_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# -- answers ---------------------------------------------------------------------------------------------------------


def read_streams(answer: Object) -> list[Stream]:
    """Read `streams.list`."""
    return [_stream(one) for one in objects_of(answer.get("streams")) if text_of(one.get("stream"))]


def _stream(document: Object) -> Stream:
    counts = document.get("schedules")
    return Stream(
        text_of(document.get("stream")),
        text_of(document.get("mode")),
        document.get("ready") is True,
        count_of(counts.get("total")) if isinstance(counts, dict) else None,
        _counts(inner(counts).get("states")),
        _counts(inner(counts).get("kinds")),
        count_of(document.get("failing")),
        count_of(document.get("rejected")),
        count_of(document.get("misnamed")),
        read_due(inner(document.get("next"))),
        texts_of(document.get("holders")),
    )


def read_due(schedule: Object) -> Due | None:
    """Read a document of a schedule; None if it has no next fire."""
    fire = inner(schedule.get("next_fire"))
    fire_time = time_of(fire.get("sent") or fire.get("utc"))
    stream, subject, pattern, target, state = (
        text_of(schedule.get(key)) for key in ("stream", "subject", "pattern", "target", "state")
    )
    return Due(stream, subject, pattern, target, fire_time, state) if fire_time is not None and subject else None


def read_instances(answer: Object) -> list[Instance]:
    """Read `instances.list`."""
    return [_instance(one) for one in objects_of(answer.get("instances")) if text_of(one.get("id"))]


def _instance(document: Object) -> Instance:
    return Instance(
        text_of(document.get("id")),
        text_of(document.get("state")),
        time_of(document.get("since")),
        time_of(document.get("last_heartbeat")),
        {text_of(one.get("stream")): _shards(one.get("shards")) for one in objects_of(document.get("holds"))},
        {text_of(one.get("stream")): text_of(one.get("reason")) for one in objects_of(document.get("unable"))},
    )


def _shards(value: Any) -> list[int]:
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []


def read_health(answer: Object) -> Health:
    """Read `health.get`."""
    reasons, notes = texts_of(answer.get("reasons")), texts_of(answer.get("notes"))
    return Health(text_of(answer.get("instance")), answer.get("ready") is True, reasons, notes)


def read_activity(answer: Object) -> Activity | None:
    """Read `activity.list`; None if it does not say when it was written."""
    at, bounds = time_of(answer.get("at")), answer.get("bounds_seconds")
    if at is None:
        return None
    is_known = isinstance(bounds, list) and all(isinstance(one, int | float) for one in bounds)
    minutes = objects_of(answer.get("minutes"), MAX_MINUTES)
    read = (_minute(one, bounds if is_known and isinstance(bounds, list) else ()) for one in minutes)
    found = sorted((one for one in read if one is not None), key=lambda one: one.start)
    return Activity(at, found, texts_of(answer.get("unanswered")))


def _minute(document: Object, bounds: Sequence[float]) -> MinuteActivity | None:
    start, lateness = time_of(document.get("from")), document.get("lateness")
    if start is None:
        return None
    counts = [count_of(one) for one in lateness] if isinstance(lateness, list) else []
    fires, duplicates, overdue, refused = (
        count_of(document.get(key)) for key in ("fires", "duplicates", "overdue", "refused")
    )
    histogram = histogram_of(bounds, counts, count_of(document.get("lateness_max_nanoseconds")))
    return MinuteActivity(start, fires, duplicates, overdue, refused, histogram)


def read_recent_fires(answer: Object) -> list[RecentFire]:
    """Read `fires.recent`."""
    return list(_fires(objects_of(answer.get("fires"))))


def _fires(documents: Sequence[Object]) -> Iterator[RecentFire]:
    for one in documents:
        stored_at, lateness = time_of(one.get("stored")), one.get("lateness_nanoseconds")
        if stored_at is None:
            continue
        stream, schedule, target = (text_of(one.get(key)) for key in ("stream", "schedule", "target"))
        yield RecentFire(
            stream,
            schedule,
            target,
            count_of(one.get("sequence")),
            time_of(one.get("fire_time")),
            stored_at,
            integer(lateness) if isinstance(lateness, int) and one.get("overdue") is not True else None,
        )


def read_ahead(answer: Object) -> Ahead | None:
    """Read `timeline.list`; None if it does not say when it was written."""
    at = time_of(answer.get("at"))
    if at is None:
        return None
    soonest = [due for one in objects_of(answer.get("soonest")) if (due := read_due(one)) is not None]
    return Ahead(at, soonest)


def read_failures(answer: Object) -> list[Failure]:
    """Read `failures.list`."""
    return [
        Failure(
            text_of(one.get("kind")),
            stored_at,
            text_of(one.get("stream")),
            _some_text(one.get("schedule")),
            inner(one.get("advisory")),
        )
        for one in objects_of(answer.get("failures"))
        if (stored_at := time_of(one.get("stored"))) is not None
    ]
