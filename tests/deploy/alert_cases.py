"""For each alert: series with which it fires, and situations that come near and with which it does not.

The notation of the table: an alert with its labels when it fires, which is after half an hour or at the minute that is
named; then its series, and below each situation those of it. `A` and `B` are two sidecars, `S` is a stream. Values are
those of promtool: `0+2x120` counts up by 2 for 120 steps, `1x20` is 1 for 20 steps more, `_` is a scrape without the
series, `stale` ends it, `(...)*9` stands for nine of the same. A step is `STEP_SECONDS`, so `x120` is half an hour.
A histogram has several values: through 0.25 s, through 5 s, and through any time.

The rule: what is quiet never fires within the hour.
"""

import re
from dataclasses import dataclass

STEP_SECONDS = 15
Series = dict[str, str]
LABELS = {"A": 'job="j", instance="a"', "B": 'job="j", instance="b"', "J": 'job="j"', "S": 'stream="S"'}
TOGETHER = {
    "TWO": "connected{A} 1x240 | connected{B} 1x240",
    "READY": "stream_ready{A, S} 1x240 | stream_ready{B, S} 1x240",
}
NOT_OURS = ("up", "process_start_time_seconds")
BUCKETS = (("0.1", "0.25"), ("1.0", "5.0"), ("60.0", "+Inf"))

TABLE = """
Absent {J}
    connected{A} 1x40 stale | connected{job="other", instance="c"} 1x240
  - a restart that takes a minute and a half: connected{A} 1x40 stale _x4 1x200
TargetDown {A}
    up{A} 1x10 0x230 | up{B} 1x240 | connected{B} 1x240
  - a target of another program: TWO | up{job="web", instance="a"} 0x240
Restarts {A}
    TWO | process_start_time_seconds{A} 100x20 200x20 300x20 400x20 500x160
  - three restarts: TWO | process_start_time_seconds{A} 100x20 200x20 300x20 400x180
NotConnected {J}
    connected{A} 1x40 0x200 | connected{B} 1x40 0x200
  - one of two: connected{A} 0x240 | connected{B} 1x240
InstanceNotConnected {A}
    connected{A} 0x240 | connected{B} 1x240
  - all of them, which is NatsSchedulerNotConnected: connected{A} 0x240 | connected{B} 0x240
Reconnects {A}
    connections_total{A} 1x40 2x8 3x8 4x8 5x8 6x8 7x8 8x8 9x200
  - restarts of the sidecar: connections_total{A} 1x40 _x2 1x40 _x2 1x40 _x2 1x200
StreamNotReady {J, S}
    TWO | stream_ready{A, S} 0x240 | stream_ready{B, S} 0x240
  - one of two: TWO | stream_ready{A, S} 0x240 | stream_ready{B, S} 1x240
NoOwner {J, S}
    stream_ready{A, S} 0x240 | stream_ready{B, S} 1x240 | stream_owner{A, S} 1x240 | stream_owner{B, S} 0x240
  - scrapes between which it gets another owner: READY | stream_owner{A, S} 1x40 0x200 | stream_owner{B, S} 0x41 1x199
SeveralOwners {J, S}
    READY | stream_owner{A, S} 1x240 | stream_owner{B, S} 1x240
  - scrapes between which it gets another owner: READY | stream_owner{A, S} 1x41 0x199 | stream_owner{B, S} 0x40 1x200
StreamDormant {J, S}
    stream_mode{A, S, mode="dormant"} 1x240 | stream_mode{B, S, mode="dormant"} 1x240
Unable {A}
    streams_unable{A} 2x240
Unserved {A}
    streams_unserved{A} 2x240
  - streams that get the flag: streams_unserved{A} 0x40 1x4 0x200
VersionsDiffer {J} at 390m
    build_info{A, version="1", server_version="2.11.11"} 1x1600 |
        build_info{B, version="2", server_version="2.11.11"} 1x1600
  - an upgrade that takes an hour: build_info{A, version="1"} 1x240 stale | build_info{B, version="2"} 1x1600
Overdue {J, S}
    oldest_overdue_age_seconds{A, S} 0x40 0+15x200 | schedules_overdue{A, S} 0x40 5x200 |
        schedules_failing{A, S} 3x240 | stream_ready{A, S} 1x240
  - an instance that is cut off, whose schedules the other one fires: oldest_overdue_age_seconds{A, S} 0+15x240 |
        schedules_overdue{A, S} 5x240 | schedules_failing{A, S} 0x240 | stream_ready{A, S} 0x240 |
        oldest_overdue_age_seconds{B, S} 0x240 | schedules_overdue{B, S} 0x240 | schedules_failing{B, S} 0x240 |
        stream_ready{B, S} 1x240
OverdueGrows {J, S}
    READY | schedules_overdue{A, S} 0+1x240 | schedules_overdue{B, S} 0+3x240
  - bursts every five minutes: READY | schedules_overdue{A, S} (100 500 0x17)*12
FiresLate {J, S}
    fire_lateness_seconds{A, S} 0+90x120, 0+100x120 | fire_lateness_seconds{B, S} 0+90x120, 0+100x120
  - one burst of 20,000 that takes a second: fire_lateness_seconds{A, S} 0+1x240, 0+1x40 20040+1x200
FiresVeryLate {J, S}
    fire_lateness_seconds{A, S} 0+90x120, 0+90x120, 0+100x120
  - fires that are late by a second: fire_lateness_seconds{A, S} 0+90x120, 0+100x120
FiresRefused {J, S}
    schedules_failing{A, S} 0x40 2x200 | schedules_failing{B, S} 0x240
  - a stream that was full for four minutes: schedules_failing{A, S} 0x40 900x15 0x200
NothingStored {J, S}
    schedules_failing{A, S} 0x40 10x200 | fires_total{A, S} 0+1x40 40x200
  - others are stored: schedules_failing{A, S} 0x40 10x200 | fires_total{A, S} 40x240 | fires_total{B, S} 0+1x240
FiresDropped {J, S, code="10077"}
    fires_dropped_total{A, S, code="10077"} 0x100 1x140
  - a sidecar with an old one restarts: fires_dropped_total{A, S, code="10077"} 7x100 _x2 0x140
FiresMissed {J, S} at 50m
    fires_missed_total{A, S} 0+1x240
  - two restarts, ten minutes apart: fires_missed_total{A, S} 0x40 9x40 18x160
FiresForged {J, S}
    fires_forged_total{A, S} 0x100 1x140
SchedulesRejected {J, S, code="10189"}
    schedules_rejected_total{A, S, code="10189"} 0x100 1x140 | schedules_rejected_total{B, S, code="10189"} 0x240
SchedulesEndEarly {J, S, reason="max_age"}
    schedules_end_early_total{A, S, reason="max_age"} 0x100 1x140
SchedulesLost {J, S, reason="limits"}
    schedules_ended_total{A, S, reason="limits"} 0x100 1x140
  - schedules that fire, or are replaced: schedules_ended_total{A, S, reason="fired"} 0+50x240 |
        schedules_ended_total{A, S, reason="replaced"} 0+50x240
ReplacedUnfired {J, S}
    schedules_replaced_unfired_total{A, S} 0x100 1x140
Silent {J, S, cause="dropped"}
    schedules_silent_total{A, S, cause="dropped"} 0x100 1x140
PurgesFail {J, S} at 50m
    purges_failed_total{A, S} 0x10 0+1x230 | expiries_failed_total{A, S} 0x240
  - purges while a leader is elected: purges_failed_total{A, S} 0x40 200x200 | expiries_failed_total{A, S} 0x240
PurgeBacklog {J, S}
    purges_pending{A, S} 0x10 900x230 | purges_pending{B, S} 0x10 900x230
  - a burst of 100,000: purges_pending{A, S} 0x40 60000 0x200
Overloaded {A}
    overloaded{A} 0x40 1x200
EventLoopLate {A}
    event_loop_lateness_seconds{A} 0+28x240, 0+30x240
  - the machine stood still once, for a while: event_loop_lateness_seconds{A} 0+30x240, 0+30x40 1240+30x200
ClockOff {A}
    clock_offset_seconds{A} -1.5x240
  - a clock that is set after ten minutes: clock_offset_seconds{A} 30x40 0x200
FailuresNotKept {A}
    failures_not_kept_total{A} 0+1x240
  - while a leader is elected: failures_not_kept_total{A} 0x40 3x200
CanaryAbsent {J}
    TWO | canary_missed_total{A} 0x40 0+1x200 | canary_fires_total{A} 0+1x40 40x200
  - that of the other one fires: TWO | canary_missed_total{A} 0x40 0+1x200 | canary_fires_total{A} 0+1x40 40x200 |
        canary_fires_total{B} 0+1x240 | canary_missed_total{B} 0x240
CanaryMissed {A} at 50m
    canary_missed_total{A} 0+0.2x240
  - three in a failover: canary_missed_total{A} 0x40 3x200
CanaryLate {A}
    canary_lateness_seconds{A} 0+0.8x240, 0+1x240
  - one of twenty: canary_lateness_seconds{A} 0+19x240, 0+20x240
FiresSkipped {J, S} at 50m
    fires_skipped_total{A, S, policy="X-Missed"} 0+1x240 | fires_skipped_total{B, S, policy="X-Missed"} 0x240
  - one outage: fires_skipped_total{A, S, policy="X-Missed"} 0x40 900x200
FiresTimedOut {J, S} at 50m
    fires_timed_out_total{A, S} 0x2 0+1x240
  - one, which takes too long: fires_timed_out_total{A, S} 0x40 1x200
FiresNotDone {J, S}
    fires_not_done_total{A, S} 0x100 1x140 | fires_not_done_total{B, S} 0x240
Blocked {J, S}
    oldest_blocked_age_seconds{A, S} 21300+15x240 | oldest_blocked_age_seconds{B, S} 0x240
  - it ends after six hours: oldest_blocked_age_seconds{A, S} 21300+15x30 0x200
"""


@dataclass(frozen=True)
class Case:
    """An alert, the labels with which it fires beside its name and severity, when (min), and its series."""

    alert: str
    labels: str
    at_minutes: int
    fires: Series
    quiet: dict[str, Series]


def labels_of(text: str) -> str:
    """Return labels as PromQL has them."""
    return ", ".join(LABELS.get(label, label) for label in text.split(", "))


def series_of(text: str) -> Series:
    """Read the series of a situation."""
    found: Series = {}
    for short, whole in TOGETHER.items():
        text = text.replace(short, whole)
    for part in text.split(" | "):
        read = re.fullmatch(r"(\w+)\{(.*)\} ([^{}]+)", part)
        assert read is not None, f"{part!r} is no series"
        name, labels = read[1] if read[1] in NOT_OURS else f"nats_scheduler_{read[1]}", labels_of(read[2])
        repeated = re.sub(r"\((.*?)\)\*(\d+)", lambda same: " ".join([same[1]] * int(same[2])), read[3])
        first, *others = repeated.split(", ")
        if others:
            for values, bounds in zip([first, *others, others[-1]], BUCKETS, strict=False):
                found |= {f'{name}_bucket{{{labels}, le="{le}"}}': values for le in bounds}
        else:
            found[f"{name}{{{labels}}}"] = first
    return found


def cases() -> list[Case]:
    """Read the table."""
    found = []
    for block in re.split(r"\n(?=\w)", TABLE.replace(" |\n        ", " | ").strip()):
        head, fires, *situations = block.splitlines()
        read = re.fullmatch(r"(\w+) \{(.*)\}(?: at (\d+)m)?", head)
        assert read is not None, head
        quiet = dict(one.removeprefix("  - ").split(": ", 1) for one in situations)
        named = {name: series_of(text) for name, text in quiet.items()}
        minutes = int(read[3] or 30)
        found.append(Case(f"NatsScheduler{read[1]}", labels_of(read[2]), minutes, series_of(fires.strip()), named))
    return found


CASES = cases()
