"""For each alert: series with which it fires, and situations that come near and with which it does not.

A value notation is that of promtool: `0+2x120` counts up by 2 for 120 steps, `1x20` is 1 for 20 steps more, `_` is a
scrape without the series, `stale` ends it. A step is `STEP_SECONDS`, so `x120` is half an hour.
The rule: what is quiet never fires within the hour, and what fires does so after half an hour, or at `at_minutes`.
What is quiet where nothing happens, or in another scene of `alert_scenes.py`, stands there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

STEP_SECONDS = 15

Series = Mapping[str, str]

A, B = 'job="j", instance="a"', 'job="j", instance="b"'
S = 'stream="S"'
TWO = {f"nats_scheduler_connected{{{A}}}": "1x240", f"nats_scheduler_connected{{{B}}}": "1x240"}


def of(metric: str, labels: str, values: str) -> dict[str, str]:
    """Return one series of ours."""
    return {f"nats_scheduler_{metric}{{{labels}}}": values}


READY = of("stream_ready", f"{A}, {S}", "1x240") | of("stream_ready", f"{B}, {S}", "1x240")


def lateness(metric: str, labels: str, fast: str, slow: str, slowest: str = "") -> dict[str, str]:
    """Return the buckets of a histogram: through 0.1 s, 0.25 s, 1 s, and through any time."""
    values = {"0.1": fast, "0.25": fast, "1.0": slow, "5.0": slow, "60.0": slowest or slow, "+Inf": slowest or slow}
    return {f'nats_scheduler_{metric}_bucket{{{labels}, le="{le}"}}': value for le, value in values.items()}


@dataclass(frozen=True)
class Case:
    """An alert, the labels with which it fires beside its name and severity, and its series."""

    alert: str
    labels: str
    fires: Series
    quiet: Mapping[str, Series]
    at_minutes: int = 30
    """The minute at which it fires."""


CASES = [
    # Serving.
    Case(
        "NatsSchedulerAbsent",
        'job="j"',
        of("connected", A, "1x40 stale") | of("connected", 'job="other", instance="c"', "1x240"),
        {
            "a restart that takes a minute and a half": of("connected", A, "1x40 stale _x4 1x200"),
            "it runs, and is not connected": of("connected", A, "0x240"),
        },
    ),
    Case(
        "NatsSchedulerTargetDown",
        A,
        {f"up{{{A}}}": "1x10 0x230", f"up{{{B}}}": "1x240", **of("connected", B, "1x240")},
        {
            "a machine starts again within nine minutes": {f"up{{{A}}}": "1x10 0x35 1x200", **TWO},
            "a target of another program": {'up{job="web", instance="a"}': "0x240", **TWO},
            "none of the job answers: that is NatsSchedulerAbsent": {f"up{{{A}}}": "1x10 0x230"},
        },
    ),
    Case(
        "NatsSchedulerRestarts",
        A,
        {f"process_start_time_seconds{{{A}}}": "100x20 200x20 300x20 400x20 500x160", **TWO},
        {
            "three restarts": {f"process_start_time_seconds{{{A}}}": "100x20 200x20 300x20 400x180", **TWO},
            "another program": {
                'process_start_time_seconds{job="web", instance="a"}': "1x20 2x20 3x20 4x20 5x160",
                **TWO,
            },
        },
    ),
    Case(
        "NatsSchedulerNotConnected",
        'job="j"',
        of("connected", A, "1x40 0x200") | of("connected", B, "1x40 0x200"),
        {
            "a server restarts within 45 s": of("connected", A, "1x40 0x2 1x200"),
            "one of two": of("connected", A, "0x240") | of("connected", B, "1x240"),
        },
    ),
    Case(
        "NatsSchedulerInstanceNotConnected",
        A,
        of("connected", A, "0x240") | of("connected", B, "1x240"),
        {
            "four minutes": of("connected", A, "1x40 0x16 1x200") | of("connected", B, "1x240"),
            "all of them: that is NatsSchedulerNotConnected": of("connected", A, "0x240") | of("connected", B, "0x240"),
        },
    ),
    Case(
        "NatsSchedulerReconnects",
        A,
        of("connections_total", A, "1x40 2x8 3x8 4x8 5x8 6x8 7x8 8x8 9x200"),
        {
            "one a day": of("connections_total", A, "10x40 11x200"),
            "restarts of the sidecar": of("connections_total", A, "1x40 _x2 1x40 _x2 1x40 _x2 1x200"),
        },
    ),
    Case(
        "NatsSchedulerStreamNotReady",
        f'job="j", {S}',
        TWO | of("stream_ready", f"{A}, {S}", "0x240") | of("stream_ready", f"{B}, {S}", "0x240"),
        {
            "one of two": TWO | of("stream_ready", f"{A}, {S}", "0x240") | of("stream_ready", f"{B}, {S}", "1x240"),
            "a minute": TWO | of("stream_ready", f"{A}, {S}", "1x40 0x5 1x200"),
            "no connection: that is NatsSchedulerNotConnected": of("connected", A, "0x240")
            | of("stream_ready", f"{A}, {S}", "0x240"),
        },
    ),
    Case(
        "NatsSchedulerShardsNotHeld",
        f'job="j", {S}',
        # One is cut off, and the other one does not take its shards over.
        of("stream_ready", f"{A}, {S}", "0x240")
        | of("stream_ready", f"{B}, {S}", "1x240")
        | of("shards_held", f"{A}, {S}", "31x240")
        | of("shards_held", f"{B}, {S}", "33x240"),
        {
            "scrapes between which shards change hands": READY
            | of("shards_held", f"{A}, {S}", "31x40 0x200")
            | of("shards_held", f"{B}, {S}", "33x41 64x199"),
            "nothing is served, and so nothing is held": of("shards_held", f"{A}, {S}", "0x240"),
            "none has contact: that is NatsSchedulerStreamNotReady": of("stream_ready", f"{A}, {S}", "0x240")
            | of("shards_held", f"{A}, {S}", "0x240"),
        },
    ),
    Case(
        "NatsSchedulerStreamDormant",
        f'job="j", {S}',
        of("stream_mode", f'{A}, {S}, mode="dormant"', "1x240")
        | of("stream_mode", f'{B}, {S}, mode="dormant"', "1x240"),
        {},
    ),
    Case(
        "NatsSchedulerUnable",
        A,
        of("streams_unable", A, "2x240"),
        {"a denial that ended": of("streams_unable", A, "0x40 1x16 0x200")},
    ),
    Case(
        "NatsSchedulerUnserved",
        A,
        of("streams_unserved", A, "2x240"),
        {"streams that get the flag": of("streams_unserved", A, "0x40 1x4 0x200")},
    ),
    Case(
        "NatsSchedulerVersionsDiffer",
        'job="j"',
        of("build_info", f'{A}, version="1", server_version="2.11.11"', "1x1600")
        | of("build_info", f'{B}, version="2", server_version="2.11.11"', "1x1600"),
        {
            "an upgrade that takes an hour": of("build_info", f'{A}, version="1"', "1x240 stale")
            | of("build_info", f'{B}, version="2"', "1x1600"),
            "two versions of the server": of("build_info", f'{A}, version="1", server_version="2.11.11"', "1x1600")
            | of("build_info", f'{B}, version="1", server_version="2.12.8"', "1x1600"),
            "another account": of("build_info", f'{A}, version="1"', "1x1600")
            | of("build_info", 'job="other", instance="c", version="2"', "1x1600"),
        },
        at_minutes=6 * 60 + 30,
    ),
    # Fires.
    Case(
        "NatsSchedulerOverdue",
        f'job="j", {S}',
        of("oldest_overdue_age_seconds", f"{A}, {S}", "0x40 0+15x200")
        | of("schedules_overdue", f"{A}, {S}", "0x40 5x200")
        | of("schedules_failing", f"{A}, {S}", "3x240")
        | of("stream_ready", f"{A}, {S}", "1x240"),
        {
            "only what the server refuses": of("oldest_overdue_age_seconds", f"{A}, {S}", "0+15x240")
            | of("schedules_overdue", f"{A}, {S}", "5x240")
            | of("schedules_failing", f"{A}, {S}", "5x240")
            | of("stream_ready", f"{A}, {S}", "1x240"),
            "an instance that is cut off, whose schedules the other one fires": of(
                "oldest_overdue_age_seconds", f"{A}, {S}", "0+15x240"
            )
            | of("schedules_overdue", f"{A}, {S}", "5x240")
            | of("schedules_failing", f"{A}, {S}", "0x240")
            | of("stream_ready", f"{A}, {S}", "0x240")
            | of("oldest_overdue_age_seconds", f"{B}, {S}", "0x240")
            | of("schedules_overdue", f"{B}, {S}", "0x240")
            | of("schedules_failing", f"{B}, {S}", "0x240")
            | of("stream_ready", f"{B}, {S}", "1x240"),
            "a burst that takes 45 s": of("oldest_overdue_age_seconds", f"{A}, {S}", "0x40 15 30 45 0x200")
            | of("schedules_overdue", f"{A}, {S}", "0x40 90000 50000 10000 0x200")
            | of("schedules_failing", f"{A}, {S}", "0x240")
            | of("stream_ready", f"{A}, {S}", "1x240"),
        },
    ),
    Case(
        "NatsSchedulerOverdueGrows",
        f'job="j", {S}',
        READY | of("schedules_overdue", f"{A}, {S}", "0+1x240") | of("schedules_overdue", f"{B}, {S}", "0+3x240"),
        {
            "as many as before": READY | of("schedules_overdue", f"{A}, {S}", "0x40 700x200"),
            "bursts every five minutes": READY | of("schedules_overdue", f"{A}, {S}", " ".join(["100 500 0x17"] * 12)),
            "one more, once": READY | of("schedules_overdue", f"{A}, {S}", "3x40 4x200"),
            "an instance that is cut off": of("stream_ready", f"{A}, {S}", "0x240")
            | of("schedules_overdue", f"{A}, {S}", "0+1x240"),
        },
    ),
    Case(
        "NatsSchedulerFiresLate",
        f'job="j", {S}',
        lateness("fire_lateness_seconds", f"{A}, {S}", "0+90x120", "0+100x120")
        | lateness("fire_lateness_seconds", f"{B}, {S}", "0+90x120", "0+100x120"),
        {
            "one burst of 20,000 that takes a second": lateness(
                "fire_lateness_seconds", f"{A}, {S}", "0+1x240", "0+1x40 20040+1x200"
            ),
            "one late fire of 200": lateness("fire_lateness_seconds", f"{A}, {S}", "0+200x240", "0+201x240"),
            "no fires": lateness("fire_lateness_seconds", f"{A}, {S}", "5x240", "7x240"),
        },
    ),
    Case(
        "NatsSchedulerFiresVeryLate",
        f'job="j", {S}',
        lateness("fire_lateness_seconds", f"{A}, {S}", "0+90x120", "0+90x120", "0+100x120"),
        {"fires that are late by a second": lateness("fire_lateness_seconds", f"{A}, {S}", "0+90x120", "0+100x120")},
    ),
    Case(
        "NatsSchedulerFiresRefused",
        f'job="j", {S}',
        of("schedules_failing", f"{A}, {S}", "0x40 2x200") | of("schedules_failing", f"{B}, {S}", "0x240"),
        {"a stream that was full for four minutes": of("schedules_failing", f"{A}, {S}", "0x40 900x15 0x200")},
    ),
    Case(
        "NatsSchedulerNothingStored",
        f'job="j", {S}',
        of("schedules_failing", f"{A}, {S}", "0x40 10x200") | of("fires_total", f"{A}, {S}", "0+1x40 40x200"),
        {
            "others are stored": of("schedules_failing", f"{A}, {S}", "0x40 10x200")
            | of("fires_total", f"{A}, {S}", "40x240")
            | of("fires_total", f"{B}, {S}", "0+1x240"),
            "nine in a stream where little fires": of("schedules_failing", f"{A}, {S}", "9x240")
            | of("fires_total", f"{A}, {S}", "40x240"),
            "nothing is due": of("schedules_failing", f"{A}, {S}", "0x240") | of("fires_total", f"{A}, {S}", "40x240"),
        },
    ),
    Case(
        "NatsSchedulerFiresDropped",
        f'job="j", {S}, code="10077"',
        of("fires_dropped_total", f'{A}, {S}, code="10077"', "0x100 1x140"),
        {"a sidecar with an old one restarts": of("fires_dropped_total", f'{A}, {S}, code="10077"', "7x100 _x2 0x140")},
    ),
    Case(
        "NatsSchedulerFiresMissed",
        f'job="j", {S}',
        of("fires_missed_total", f"{A}, {S}", "0+1x240"),
        {
            "two restarts, ten minutes apart": of("fires_missed_total", f"{A}, {S}", "0x40 9x40 18x160"),
        },
        at_minutes=50,
    ),
    Case(
        "NatsSchedulerFiresForged",
        f'job="j", {S}',
        of("fires_forged_total", f"{A}, {S}", "0x100 1x140"),
        {},
    ),
    # Schedules.
    Case(
        "NatsSchedulerSchedulesRejected",
        f'job="j", {S}, code="10189"',
        of("schedules_rejected_total", f'{A}, {S}, code="10189"', "0x100 1x140")
        | of("schedules_rejected_total", f'{B}, {S}, code="10189"', "0x240"),
        {},
    ),
    Case(
        "NatsSchedulerSchedulesEndEarly",
        f'job="j", {S}, reason="max_age"',
        of("schedules_end_early_total", f'{A}, {S}, reason="max_age"', "0x100 1x140"),
        {"none": of("schedules_end_early_total", f'{A}, {S}, reason="max_age"', "3x240")},
    ),
    Case(
        "NatsSchedulerSchedulesLost",
        f'job="j", {S}, reason="limits"',
        of("schedules_ended_total", f'{A}, {S}, reason="limits"', "0x100 1x140"),
        {
            "schedules that fire, are replaced, deleted or cancelled": {
                f'nats_scheduler_schedules_ended_total{{{A}, {S}, reason="{reason}"}}': "0+50x240"
                for reason in ("fired", "replaced", "overwritten", "removed", "expired", "cancelled", "exhausted")
            },
        },
    ),
    Case(
        "NatsSchedulerPurgesFail",
        f'job="j", {S}',
        of("purges_failed_total", f"{A}, {S}", "0x10 0+1x230") | of("expiries_failed_total", f"{A}, {S}", "0x240"),
        {
            "purges while a leader is elected": of("purges_failed_total", f"{A}, {S}", "0x40 200x200")
            | of("expiries_failed_total", f"{A}, {S}", "0x240"),
        },
        at_minutes=50,
    ),
    Case(
        "NatsSchedulerPurgeBacklog",
        f'job="j", {S}',
        of("purges_pending", f"{A}, {S}", "0x10 900x230") | of("purges_pending", f"{B}, {S}", "0x10 900x230"),
        {
            "a burst of 100,000": of("purges_pending", f"{A}, {S}", "0x40 60000 0x200"),
            "a thousand `@at` a second": of("purges_pending", f"{A}, {S}", "1000x240"),
        },
    ),
    # The process.
    Case(
        "NatsSchedulerOverloaded",
        A,
        of("overloaded", A, "0x40 1x200"),
        {"four minutes": of("overloaded", A, "0x40 1x16 0x200")},
    ),
    Case(
        "NatsSchedulerEventLoopLate",
        A,
        lateness("event_loop_lateness_seconds", A, "0+28x240", "0+30x240"),
        {
            "the machine stood still once, for a while": lateness(
                "event_loop_lateness_seconds", A, "0+30x240", "0+30x40 1240+30x200"
            ),
        },
    ),
    Case(
        "NatsSchedulerClockOff",
        A,
        of("clock_offset_seconds", A, "-1.5x240"),
        {
            "nine tenths of a second": of("clock_offset_seconds", A, "0.9x240"),
            "a clock that is set after ten minutes": of("clock_offset_seconds", A, "30x40 0x200"),
        },
    ),
    Case(
        "NatsSchedulerFailuresNotKept",
        A,
        of("failures_not_kept_total", A, "0+1x240"),
        {"while a leader is elected": of("failures_not_kept_total", A, "0x40 3x200")},
    ),
    # Canaries.
    Case(
        "NatsSchedulerCanaryAbsent",
        'job="j"',
        TWO | of("canary_missed_total", A, "0x40 0+1x200") | of("canary_fires_total", A, "0+1x40 40x200"),
        {
            "that of the other one fires": TWO
            | of("canary_missed_total", A, "0x40 0+1x200")
            | of("canary_fires_total", A, "0+1x40 40x200")
            | of("canary_fires_total", B, "0+1x240")
            | of("canary_missed_total", B, "0x240"),
            "three are missed in a failover": TWO
            | of("canary_missed_total", A, "0x40 3x200")
            | of("canary_fires_total", A, "0+1x40 40x3 41+1x200"),
            "there is no connection: that is NatsSchedulerNotConnected": of("connected", A, "0x240")
            | of("canary_missed_total", A, "0x40 0+1x200")
            | of("canary_fires_total", A, "0+1x40 40x200"),
            "it is off": TWO | of("canary_missed_total", A, "0x240") | of("canary_fires_total", A, "0x240"),
        },
    ),
    Case(
        "NatsSchedulerCanaryMissed",
        A,
        of("canary_missed_total", A, "0+0.2x240"),
        {"three in a failover": of("canary_missed_total", A, "0x40 3x200")},
        at_minutes=50,
    ),
    Case(
        "NatsSchedulerCanaryLate",
        A,
        lateness("canary_lateness_seconds", A, "0+0.8x240", "0+1x240"),
        {
            "one of twenty": lateness("canary_lateness_seconds", A, "0+19x240", "0+20x240"),
            "two in a burst": lateness("canary_lateness_seconds", A, "0+1x240", "0+1x40 42+1x200"),
        },
    ),
    # Policies.
    Case(
        "NatsSchedulerFiresSkipped",
        f'job="j", {S}',
        of("fires_skipped_total", f'{A}, {S}, policy="X-Missed"', "0+1x240")
        | of("fires_skipped_total", f'{B}, {S}, policy="X-Missed"', "0x240"),
        {
            "one outage": of("fires_skipped_total", f'{A}, {S}, policy="X-Missed"', "0x40 900x200"),
            "what overlaps": of("fires_skipped_total", f'{A}, {S}, policy="X-Overlap"', "0+1x240"),
        },
        at_minutes=50,
    ),
    Case(
        "NatsSchedulerFiresTimedOut",
        f'job="j", {S}',
        of("fires_timed_out_total", f"{A}, {S}", "0x2 0+1x240"),
        {
            "one, which takes too long": of("fires_timed_out_total", f"{A}, {S}", "0x40 1x200"),
            "one every 50 minutes": of("fires_timed_out_total", f"{A}, {S}", "0x20 1x199 2x20"),
        },
        at_minutes=50,
    ),
    Case(
        "NatsSchedulerHeldBack",
        f'job="j", {S}',
        of("oldest_held_back_age_seconds", f"{A}, {S}", "21300+15x240")
        | of("oldest_held_back_age_seconds", f"{B}, {S}", "0x240"),
        {
            "work that takes an hour": of("oldest_held_back_age_seconds", f"{A}, {S}", "0+15x240"),
            "it ends after six hours": of("oldest_held_back_age_seconds", f"{A}, {S}", "21300+15x30 0x200"),
        },
    ),
]
