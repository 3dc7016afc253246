"""Whole deployments over an hour and a half: what is ordinary fires no alert, an outage fires those for it and no more.

A scene begins with two healthy sidecars that serve one stream; `a` owns it, and `b` stands by. What happens changes
their series from a step on.
A step is that of `alert_cases`, a scrape: 15 s. The rule: a scene has all metrics that the rules name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.deploy.alert_cases import STEP_SECONDS

STEPS = 360
MINUTES = STEPS * STEP_SECONDS // 60

Values = list[float | None]

LATENESS = tuple(f'fire_lateness_seconds_bucket|le="{le}"' for le in ("0.1", "0.25", "5.0", "60.0", "+Inf"))
CANARY = tuple(f'canary_lateness_seconds_bucket|le="{le}"' for le in ("0.1", "0.25", "+Inf"))
LOOP = tuple(f'event_loop_lateness_seconds_bucket|le="{le}"' for le in ("0.05", "0.1", "+Inf"))

COUNTERS = {
    **dict.fromkeys(("fires_total", 'schedules_ended_total|reason="fired"', *LATENESS), 20.0),
    **dict.fromkeys(("fires_missed_total", "fires_timed_out_total", "fires_not_done_total", "fires_forged_total"), 0.0),
    **dict.fromkeys(("purges_failed_total", "expiries_failed_total", 'fires_skipped_total|policy="X-Missed"'), 0.0),
    **dict.fromkeys(("schedules_replaced_unfired_total", 'schedules_silent_total|cause="not_stored"'), 0.0),
    **dict.fromkeys(('fires_dropped_total|code="10077"', 'schedules_rejected_total|code="10189"'), 0.0),
    **dict.fromkeys(('schedules_end_early_total|reason="max_age"', 'schedules_ended_total|reason="limits"'), 0.0),
}
"""The rise of the counters of a stream in each step; labels follow after the bar."""
GAUGES = {
    **dict.fromkeys(("schedules_failing", "schedules_overdue", "oldest_overdue_age_seconds"), 0.0),
    "stream_ready": 1.0,
    "stream_owner": 0.0,
    "oldest_blocked_age_seconds": 60.0,
    "purges_pending": 3.0,
    'stream_mode|mode="emulated"': 1.0,
    'stream_mode|mode="dormant"': 0.0,
}
OWN_COUNTERS = {
    **dict.fromkeys(("connections_total", "failures_not_kept_total", "canary_missed_total"), 0.0),
    **dict.fromkeys(("canary_fires_total", *CANARY), 1.0),
    **dict.fromkeys(LOOP, 30.0),
}
OWN_GAUGES = {
    **dict.fromkeys(("streams_unable", "streams_unserved", "overloaded"), 0.0),
    "connected": 1.0,
    "clock_offset_seconds": 0.002,
    'build_info|version="1"': 1.0,
}


@dataclass
class Sidecar:
    """The series of one sidecar, each with a value for each scrape."""

    name: str
    values: dict[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for metric, rise in (COUNTERS | OWN_COUNTERS).items():
            self.values[metric] = [rise * step for step in range(STEPS)]
        for metric, value in (GAUGES | OWN_GAUGES).items():
            self.values[metric] = [value] * STEPS
        self.values["up"] = [1.0] * STEPS
        self.values["process_start_time_seconds"] = [1000.0] * STEPS
        self.rise("connections_total", 0, 1)

    def set(self, metric: str, value: float | None, start: int, end: int = STEPS) -> None:
        """Set a series, or all that begin so, to a value from one scrape to before another; None is no value."""
        for name, values in self.values.items():
            if name.partition("|")[0] == metric or name == metric:
                values[start:end] = [value] * (end - start)

    def rise(self, metric: str, start: int, by: float) -> None:
        """Let a counter be more by `by` from a scrape on."""
        for name, values in self.values.items():
            if name.partition("|")[0] == metric or name == metric:
                values[start:] = [None if value is None else value + by for value in values[start:]]

    def stops_firing(self, start: int, end: int) -> None:
        """Let nothing be stored for a while: what is due gets older, and counters do not rise."""
        for step in range(start, end):
            self.set("oldest_overdue_age_seconds", float(step - start) * STEP_SECONDS, step, step + 1)
            for metric, rise in COUNTERS.items():
                self.rise(metric, step, -rise)

    def gone(self, start: int, end: int) -> None:
        """Let the process be away; one that starts then counts from 0."""
        for metric, values in self.values.items():
            is_counter = metric in COUNTERS | OWN_COUNTERS
            base = values[end - 1] if is_counter else 0.0
            later = [None if value is None else value - (base or 0.0) for value in values[end:]]
            values[start:] = [None] * (end - start) + later
        self.rise("connections_total", end, 1)
        self.set("process_start_time_seconds", 1000.0 + end * STEP_SECONDS, end)
        self.set("up", 0.0, start, end)

    def series(self) -> dict[str, str]:
        """Return the series as promtool takes them."""
        found = {}
        for metric, values in self.values.items():
            name, _, label = metric.partition("|")
            stream = 'stream="S"' if metric in COUNTERS | GAUGES else ""
            labels = ", ".join(filter(None, ['job="j"', f'instance="{self.name}"', stream, label]))
            prefix = "" if name in ("up", "process_start_time_seconds") else "nats_scheduler_"
            found[f"{prefix}{name}{{{labels}}}"] = " ".join(_notation(values))
        return found


def _notation(values: Values) -> Iterable[str]:
    before: float | None = None
    for value in values:
        yield f"{value:g}" if value is not None else "_" if before is None else "stale"
        before = value


@dataclass(frozen=True)
class Scene:
    """A course of events for two sidecars, `a` and `b`, and a third, `c`, that is absent unless something starts it."""

    happens: Callable[[Sidecar, Sidecar, Sidecar], None]
    alerts: frozenset[str] = frozenset()

    def series(self) -> dict[str, str]:
        """Return all series of the scene."""
        a, b, c = Sidecar("a"), Sidecar("b"), Sidecar("c")
        for metric in c.values:
            c.set(metric, None, 0)
        a.set("stream_owner", 1.0, 0)
        self.happens(a, b, c)
        return a.series() | b.series() | c.series()


def nothing(_a: Sidecar, _b: Sidecar, _c: Sidecar) -> None:
    """Change nothing."""


def rolling_restart(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """Both are replaced by a new version, one after the other; each is away for 30 s, and the other one owns."""
    for at, one, other in ((40, a, b), (60, b, a)):
        one.gone(at, at + 2)
        one.set("stream_ready", 0.0, at + 2, at + 3)
        one.set("stream_owner", 0.0, at + 2)
        other.set("stream_owner", 1.0, at)


def failover(a: Sidecar, b: Sidecar, c: Sidecar) -> None:
    """One is killed: the other takes over within 3 s, and a third one comes in its place a minute later."""
    for metric in a.values:
        a.set(metric, None, 40)
    b.set("schedules_overdue", 200.0, 40, 41)
    b.set("oldest_overdue_age_seconds", 2.5, 40, 41)
    b.set("stream_owner", 1.0, 41)
    b.rise("fires_missed_total", 41, 500)
    fresh = Sidecar("c")
    fresh.gone(0, 44)
    c.values = fresh.values
    c.set("up", None, 0, 44)


def servers_restart(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """Five servers restart, five minutes apart: each time both sidecars connect again, and some fires are missed."""
    for at in range(40, 140, 20):
        for one in (a, b):
            for metric in ("connected", "stream_ready"):
                one.set(metric, 0.0, at, at + 1)
            one.rise("connections_total", at + 1, 1)
            one.rise("fires_missed_total", at + 1, 250)
            one.rise("purges_failed_total", at + 1, 5)
            one.rise("canary_missed_total", at + 1, 1)


def bursts(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """Each half hour 100,000 schedules are due at one instant."""
    for at in (40, 160, 280):
        for one in (a, b):
            one.set("schedules_overdue", 20_000.0, at, at + 1)
            one.set("oldest_overdue_age_seconds", 1.2, at, at + 1)
            one.set("purges_pending", 40_000.0, at, at + 1)
            one.set("overloaded", 1.0, at, at + 1)
            for le, late in (("0.25", 5_000), ("5.0", 50_000), ("60.0", 50_000), ("+Inf", 50_000)):
                one.rise(f'fire_lateness_seconds_bucket|le="{le}"', at, late)


def stream_deleted(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """The stream is deleted: gauges of what is served end, and those that are set show 0."""
    for one in (a, b):
        gauges = ("stream_ready", "schedules_overdue", "oldest_overdue_age_seconds", "purges_pending", "stream_mode")
        for metric in gauges:
            one.set(metric, None, 40)
        one.set("stream_owner", 0.0, 40)


def first_start(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """Nothing is there for ten minutes but the targets; then both start and read for a minute."""
    for one in (a, b):
        one.gone(0, 4)
        one.set("stream_ready", 0.0, 4, 8)
        one.set("stream_owner", 0.0, 4, 9)


def scaled_down(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """One of two is ended for good, and its target removed."""
    for metric in a.values:
        a.set(metric, None, 40)
    b.set("stream_owner", 1.0, 40)


def server_upgrade(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """The server gets a scheduler of its own, and the stream is graduated ten minutes later."""
    for one in (a, b):
        one.set("connected", 0.0, 40, 42)
        one.set("stream_ready", 0.0, 40, 43)
        one.rise("connections_total", 42, 1)
        one.set('stream_mode|mode="emulated"', 0.0, 43)
        one.set('stream_mode|mode="dormant"', 1.0, 43, 83)


def server_away(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """The only server is away for ten minutes; what comes due meanwhile is overdue, and the canaries are missed."""
    for one in (a, b):
        one.set("connected", 0.0, 40, 80)
        one.set("stream_ready", 0.0, 40, 80)
        one.stops_firing(40, 80)
        for step in range(40, 80):
            one.set("schedules_overdue", 10.0 * (step - 40), step, step + 1)
            one.rise("canary_missed_total", step, 1)
            one.rise("canary_fires_total", step, -1)
            one.rise("canary_lateness_seconds_bucket", step, -1)
        one.rise("connections_total", 80, 1)
        one.rise("fires_missed_total", 80, 500)


def both_end(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """Both sidecars end, and nothing starts them."""
    for one in (a, b):
        one.gone(40, STEPS)


def stream_full(a: Sidecar, b: Sidecar, _c: Sidecar) -> None:
    """The server refuses all fires of the stream for half an hour."""
    for one in (a, b):
        one.set("schedules_failing", 250.0, 40, 160)
        one.set("schedules_overdue", 250.0, 40, 160)
        one.stops_firing(40, 160)


ORDINARY = [
    Scene(happens)
    for happens in (
        *(nothing, rolling_restart, failover, servers_restart, bursts, stream_deleted),
        *(first_start, scaled_down, server_upgrade),
    )
]
OUTAGES = [
    Scene(server_away, frozenset({"NatsSchedulerNotConnected"})),
    Scene(both_end, frozenset({"NatsSchedulerAbsent"})),
    Scene(stream_full, frozenset({"NatsSchedulerFiresRefused", "NatsSchedulerNothingStored"})),
]
