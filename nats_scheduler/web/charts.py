"""The pictures: where their bars, lines and grid lines are, in the units of an SVG.

The rules: pure arithmetic, so that a test can compare places. A number is never shown by colour alone: lines differ in
dashes and points in shape, and each picture has a table with the same numbers.
Cost: some hundred microseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil, floor, log10

from nats_scheduler.observe.activity import Minute
from nats_scheduler.observe.documents import PastFireDocument, instant_of
from nats_scheduler.observe.times import count_text, lateness_text, minute_text
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, MINUTE
from nats_scheduler.service.now import ActivityAnswer, read_activity

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 76, 10, 12, 32
"""The room around the plot, for the words of the axes."""

LEAST_BAR_HEIGHT = 2.0
"""The least height of a bar that is not zero, so that it is seen beside any maximum."""

LEAST_LATENESS_NS = MILLISECOND / 10
"""The lower end of the scale of lateness; what is below is drawn there."""

LEAST_LATENESS_TOP_NS = 100 * MILLISECOND
"""The upper end of the scale is at least this, so that a calm hour looks calm."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time that one bar stands for."""

    word: str
    length: int
    """In ns."""
    tick: int
    """The time (ns) between two words below the plot."""


ONE_MINUTE, HALF_AN_HOUR = Period("minute", MINUTE, 10 * MINUTE), Period("half hour", HOUR // 2, 4 * HOUR)


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line, and its word."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One period: a bar, and the words that a pointer shows."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A series: pieces of a line between periods without a fire, and its points."""

    name: str
    pieces: Sequence[str]
    """Each the points of one polyline."""
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture."""

    description: str
    """Its content as a sentence, with the numbers that matter."""
    below: Sequence[Tick]
    beside: Sequence[Tick]
    bars: Sequence[Bar] = ()
    lines: Sequence[Line] = ()
    areas: Sequence[Bar] = ()
    """Where a pointer shows the words of a period."""
    width: int = field(default=WIDTH, init=False)
    height: int = field(default=HEIGHT, init=False)
    left: int = field(default=LEFT, init=False)
    right: int = field(default=WIDTH - RIGHT, init=False)
    top: int = field(default=TOP, init=False)
    bottom: int = field(default=HEIGHT - BOTTOM, init=False)


@dataclass(frozen=True, slots=True)
class Late:
    """The lateness of the fires of one period (ns); None if there were none."""

    start: int
    fires: int
    p50: float | None
    p99: float | None
    most: float | None
    is_known: bool = True
    """False if nothing counted its fires."""


def bar_chart(periods: Sequence[tuple[int, int]], noun: str, period: Period = ONE_MINUTE) -> Chart:
    """Return the picture of a number for each period, which is its start (ns) and the number."""
    most = max((number for _, number in periods), default=0)
    top = nice_top(most)
    step = (WIDTH - LEFT - RIGHT) / max(len(periods), 1)
    bars = [
        _bar(number, index, step, top, f"{minute_text(start)} UTC: {count_text(number)} {noun}")
        for index, (start, number) in enumerate(periods)
    ]
    total = sum(number for _, number in periods)
    peak = next((start for start, number in periods if number == most), None)
    description = f"{count_text(total)} {noun} in {len(periods)} {period.word}s."
    if most and peak is not None:
        description += f" The most in one {period.word}: {count_text(most)} at {minute_text(peak)} UTC."
    values = (0, top) if top < 2 else (0, top // 2, top)
    beside = [Tick(_height_of(value / top), count_text(value)) for value in values]
    return Chart(description, _ticks([start for start, _ in periods], step, period), beside, bars=bars, areas=bars)


def _bar(number: int, index: int, step: float, top: int, text: str) -> Bar:
    height = max((HEIGHT - BOTTOM - TOP) * number / top, LEAST_BAR_HEIGHT) if number else 0.0
    return Bar(
        _round(LEFT + index * step + 0.5), _round(HEIGHT - BOTTOM - height), _round(step - 1), _round(height), text
    )


def nice_top(most: int) -> int:
    """Return the end of a scale from 0: an even number that is round, and not below `most`."""
    if most <= 2:
        return 2 if most else 1
    size = int(10 ** floor(log10(most)))
    for factor in (1, 2, 4, 6, 8, 10):
        if factor * size >= most and factor * size % 2 == 0:
            return factor * size
    return 20 * size


def lateness_chart(periods: Sequence[Late], period: Period = ONE_MINUTE) -> Chart:
    """Return the picture of how late fires were, by a scale on which each grid line is ten times the one below."""
    most = max((one.most for one in periods if one.most is not None), default=0.0)
    low = log10(LEAST_LATENESS_NS)
    high = ceil(log10(max(most, LEAST_LATENESS_TOP_NS)) - 1e-9)
    step = (WIDTH - LEFT - RIGHT) / max(len(periods), 1)

    def place(index: int, value: float) -> tuple[float, float]:
        share = (log10(max(value, LEAST_LATENESS_NS)) - low) / (high - low)
        return _round(LEFT + (index + 0.5) * step), _height_of(share)

    lines = []
    for name in ("p50", "p99", "most"):
        values = [getattr(one, name) for one in periods]
        places = [None if value is None else place(index, value) for index, value in enumerate(values)]
        lines.append(Line(name, _pieces(places), [one for one in places if one is not None]))
    areas = [
        Bar(_round(LEFT + index * step), TOP, _round(step), HEIGHT - TOP - BOTTOM, late_text(one))
        for index, one in enumerate(periods)
    ]
    decades = range(round(low), high + 1)
    beside = [Tick(_height_of((decade - low) / (high - low)), _decade_text(decade)) for decade in decades]
    starts = [one.start for one in periods]
    return Chart(_lateness_description(periods), _ticks(starts, step, period), beside, lines=lines, areas=areas)


def late_text(one: Late) -> str:
    """Return the words of one period."""
    if not one.is_known:
        return f"{minute_text(one.start)} UTC: not known"
    if not one.fires:
        return f"{minute_text(one.start)} UTC: no fire"
    return (
        f"{minute_text(one.start)} UTC: {count_text(one.fires)} fires, median {lateness_text(one.p50)}, "
        f"p99 {lateness_text(one.p99)}, max {lateness_text(one.most)}"
    )


def _lateness_description(periods: Sequence[Late]) -> str:
    latest = max((one for one in periods if one.most is not None), key=lambda one: one.most or 0, default=None)
    if latest is None:
        return "No lateness is known in this time." if any(one.fires for one in periods) else "No fire in this time."
    return f"The latest fire was {lateness_text(latest.most)} late, at {minute_text(latest.start)} UTC."


def _decade_text(decade: int) -> str:
    nanoseconds = 10**decade
    if nanoseconds < MILLISECOND:
        return "0.1 ms"
    milliseconds = nanoseconds // MILLISECOND
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds // 1000} s"


def _pieces(places: Sequence[tuple[float, float] | None]) -> list[str]:
    """Return the lines between neighbours that both have a value."""
    known = [[*group] for is_known, group in groupby(places, lambda place: place is not None) if is_known]
    return [" ".join(f"{place[0]:g},{place[1]:g}" for place in piece if place) for piece in known if len(piece) > 1]


def _ticks(starts: Sequence[int], step: float, period: Period) -> list[Tick]:
    return [
        Tick(_round(LEFT + index * step + step / 2), minute_text(start))
        for index, start in enumerate(starts)
        if start % period.tick == 0
    ]


def _height_of(share: float) -> float:
    """Return the y of a share of the plot's height, from below."""
    return _round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share)


def _round(number: float) -> float:
    return round(number, 1)


# -- the last hour, as the pictures and the tiles need it ------------------------------------------------------------

MINUTES = 60
LEAST_MINUTES = 5
"""The least number of minutes with fires for a line of a picture to be of use."""


def hour_of(answer: ActivityAnswer) -> dict[str, object]:
    """Return the last hour: its sums, its fires per minute in the last 60 s, its minutes, and the pictures of them.

    `since` is from when on it is known (ns); None if that is the whole hour.
    """
    activity = read_activity(answer)
    shown = activity.minutes[-MINUTES:]
    whole, minutes = activity.last(MINUTES), [_late(one, is_known=activity.is_known(one)) for one in shown]
    return {
        "since": activity.since if shown and activity.since > shown[0].start else None,
        "fires": whole.fires,
        "per_minute": round(activity.rate() * 60),
        "refused": whole.refused,
        "overdue": whole.overdue,
        "whole": _late(whole),
        "is_steady": sum(one.fires > 0 for one in minutes) >= LEAST_MINUTES,
        "minutes": minutes,
        "rate": bar_chart([(one.start, one.fires) for one in minutes], "fires"),
        "lateness": lateness_chart(minutes),
    }


def _late(minute: Minute, *, is_known: bool = True) -> Late:
    p50, p99 = minute.quantile(0.5), minute.quantile(0.99)
    return Late(minute.start, minute.fires, p50, p99, minute.lateness_max or (None if p50 is None else 0), is_known)


# -- the fires of one schedule in a day ------------------------------------------------------------------------------


def day_of(fires: Sequence[PastFireDocument], end: int, *, are_all: bool) -> dict[str, object]:
    """Return the day before an instant (ns): half hours with the fires of a schedule, newest first, and the pictures.

    If these are not all (`are_all`), the half hour of the oldest of them and those before it are not known.
    """
    last = (end - 1) // HALF_AN_HOUR.length * HALF_AN_HOUR.length
    starts = range(last - DAY + HALF_AN_HOUR.length, last + 1, HALF_AN_HOUR.length)
    stored: dict[int, list[PastFireDocument]] = {start: [] for start in starts}
    for one in fires:
        stored.get(instant_of(one["stored"]) // HALF_AN_HOUR.length * HALF_AN_HOUR.length, []).append(one)
    known_from = instant_of(fires[-1]["stored"]) if fires and not are_all else 0
    periods = [_late_of(start, stored[start], is_known=start >= known_from) for start in starts]
    return {
        "start": starts[0],
        "end": last + HALF_AN_HOUR.length,
        "since": known_from or None,
        "periods": periods,
        "rate": bar_chart([(one.start, one.fires) for one in periods], "fires", HALF_AN_HOUR),
        "lateness": lateness_chart(periods, HALF_AN_HOUR),
    }


def _late_of(start: int, fires: Sequence[PastFireDocument], *, is_known: bool) -> Late:
    late = sorted(one["lateness_nanoseconds"] for one in fires if one["lateness_nanoseconds"] is not None)
    if not late:
        return Late(start, len(fires), None, None, None, is_known)
    p50, p99 = (late[ceil(share * len(late)) - 1] for share in (0.5, 0.99))
    return Late(start, len(fires), p50, p99, late[-1], is_known)
