"""The rows of the Grafana dashboard: what each panel shows, and its queries.

The rule: every query is limited to the jobs and streams that are selected.
What each instance counts for its own shards is summed; what every instance has of the whole stream is taken once, with
`max` or `min`. What an instance without contact has of overdue schedules is left out, because others fire them.
"""

from tests.deploy.panels import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Column,
    Query,
    heatmap,
    series,
    stat,
    table,
)

JOB = '{job=~"$job"}'
OF = '{job=~"$job", stream=~"$stream"}'
READY = f"nats_scheduler_stream_ready{OF} == 1"
DORMANT = 'nats_scheduler_stream_mode{job=~"$job", stream=~"$stream", mode="dormant"}'
LATENESS = f"nats_scheduler_fire_lateness_seconds_bucket{OF}"
CANARY = f"nats_scheduler_canary_lateness_seconds_bucket{JOB}"
LOOP = f"nats_scheduler_event_loop_lateness_seconds_bucket{JOB}"
LONGEST_LEGEND = 15
"""The number of streams that are drawn where there may be a thousand: those with the largest values."""


def rate(metric: str, by: str, select: str = OF) -> str:
    """The rate of a counter over all instances, by some labels."""
    return f"sum by ({by}) (rate({metric}{select}[$__rate_interval]))"


def increase(metric: str, by: str, select: str = OF) -> str:
    """The rise of a counter of all instances since the point before, by some labels."""
    return f"sum by ({by}) (increase({metric}{select}[$__rate_interval]))"


def quantile(of: float, buckets: str, by: str = "le", window: str = "$__rate_interval") -> str:
    """A quantile of a histogram over all instances."""
    return f"histogram_quantile({of}, sum by ({by}) (rate({buckets}[{window}])))"


def only_positive(expr: str) -> str:
    """The series above 0, where most of many are 0 for ever."""
    return f"{expr} > 0"


def or_zero(expr: str) -> str:
    """A number that is 0 where there is nothing to count."""
    return f"{expr} or vector(0)"


IS_ALL_WELL = [
    stat(
        "Alerts firing",
        "Alerts of `deploy/prometheus/alerts.yaml` that fire now, of all jobs. The rules have to be loaded by the same "
        "Prometheus.",
        or_zero('count(ALERTS{alertname=~"NatsScheduler.+", alertstate="firing"})'),
        "none",
        {0: GREEN, 1: RED},
    ),
    stat(
        "Instances connected",
        "Sidecars with a connection on which JetStream answers. One fires for all; two or more take over from each "
        "other.",
        or_zero(f"sum(nats_scheduler_connected{JOB})"),
        "none",
        {0: RED, 1: GREEN},
    ),
    stat(
        "Streams that do not fire",
        "Streams of which no instance has read all that is stored, and streams that wait for their graduation.",
        or_zero(
            f"count(max by (job, stream) (nats_scheduler_stream_ready{OF}) == 0 or "
            f"max by (job, stream) ({DORMANT}) == 1)"
        ),
        "none",
        {0: GREEN, 1: RED},
    ),
    stat(
        "Overdue",
        "Schedules with a fire that has been due for more than a second and is not stored, those included that the "
        "server refuses.",
        or_zero(f"sum(nats_scheduler_schedules_overdue{OF} and {READY})"),
        "none",
        {0: GREEN, 1: ORANGE, 100: RED},
    ),
    stat(
        "Oldest overdue",
        "For how long the oldest of them has been due. Fires resume within 3 s after a fault.",
        or_zero(f"max(nats_scheduler_oldest_overdue_age_seconds{OF} and {READY})"),
        "s",
        {0: GREEN, 3: ORANGE, 60: RED},
    ),
    stat(
        "Lateness, p99",
        "Of the fires of the last five minutes, from the due time to the storage, without those that came due before "
        "an instance could fire them.",
        quantile(0.99, LATENESS, window="5m"),
        "s",
        {0: GREEN, 0.25: ORANGE, 5: RED},
        nothing="no fires",
    ),
    stat(
        "Refused",
        "Schedules whose fires the server refuses at the moment: `nats-scheduler ls --state failing` lists them.",
        or_zero(f"sum(nats_scheduler_schedules_failing{OF})"),
        "none",
        {0: GREEN, 1: ORANGE, 10: RED},
    ),
    stat(
        "Next fire",
        "Time until the next schedule is due.",
        f"clamp_min(min(nats_scheduler_next_fire_timestamp_seconds{OF}) - time(), 0)",
        "s",
        {0: BLUE},
        nothing="none",
    ),
]

LATENESS_ROW = [
    heatmap(
        "Lateness of fires",
        "How many fires were stored how late; the darker, the more. A thin dark band at the bottom is health; a column "
        "that reaches up is a burst; a band that rises is an overload.",
        increase("nats_scheduler_fire_lateness_seconds_bucket", "le"),
        "s",
        8,
    ),
    series(
        "Quantiles of the lateness",
        "Half, nine tenths and so on of the fires were stored within this time. The canary is a schedule of each "
        "sidecar's own, if `canary_interval` is set. The axis is logarithmic.",
        [
            Query(quantile(0.5, LATENESS), "p50"),
            Query(quantile(0.9, LATENESS), "p90"),
            Query(quantile(0.99, LATENESS), "p99"),
            Query(quantile(0.999, LATENESS), "p99.9"),
            Query(quantile(0.9, CANARY), "canary, p90"),
        ],
        "s",
        8,
        logarithmic=True,
    ),
    series(
        "Lateness by stream, p99",
        f"The {LONGEST_LEGEND} streams with the latest fires. The line is the threshold of the alert "
        "NatsSchedulerFiresLate.",
        [Query(f"topk({LONGEST_LEGEND}, {quantile(0.99, LATENESS, 'stream, le')})", "{{stream}}")],
        "s",
        8,
        most=0.25,
    ),
]

FIRES_ROW = [
    series(
        "Fires",
        f"Fires stored in a second, of the {LONGEST_LEGEND} streams with the most.",
        [Query(f"topk({LONGEST_LEGEND}, {rate('nats_scheduler_fires_total', 'stream')})", "{{stream}}")],
        "ops",
        8,
        stacked=True,
    ),
    series(
        "Fires that were not punctual",
        "Overdue: due before an instance could fire them. Make-up: one for several that were missed. Repeated: the "
        "server had them already. Unanswered: published again, because no answer came. Skipped: dropped, by the policy "
        "that asks for it. Timed out: not finished within `X-Timeout`.",
        [
            Query(increase("nats_scheduler_fires_overdue_total", "job"), "overdue, {{job}}"),
            Query(increase("nats_scheduler_fires_missed_total", "job"), "make-up, {{job}}"),
            Query(increase("nats_scheduler_fires_duplicate_total", "job"), "repeated, {{job}}"),
            Query(increase("nats_scheduler_fires_unanswered_total", "job"), "unanswered, {{job}}"),
            Query(only_positive(increase("nats_scheduler_fires_skipped_total", "policy")), "skipped, {{policy}}"),
            Query(only_positive(increase("nats_scheduler_fires_timed_out_total", "job")), "timed out, {{job}}"),
        ],
        "none",
        8,
        bars=True,
    ),
    series(
        "Refused fires",
        "Failing: schedules whose fires the server refuses at the moment. Refused: first refusals, and dropped: "
        "schedules that ended while their fires were refused, by the server's code.",
        [
            Query(f"sum(nats_scheduler_schedules_failing{OF})", "failing"),
            Query(only_positive(increase("nats_scheduler_fires_refused_total", "code")), "refused, {{code}}"),
            Query(only_positive(increase("nats_scheduler_fires_dropped_total", "code")), "dropped, {{code}}"),
        ],
        "none",
        8,
    ),
]

STREAMS = table(
    "Streams",
    "Each stream that is served: who fires, whether it is read to its end, how many of its 64 shards have a holder, "
    "and how its schedules are.",
    {"job": "job", "stream": "stream", "mode": "mode"},
    [
        Column("", f"max by (job, stream, mode) (nats_scheduler_stream_mode{OF})"),
        Column("ready", f"max by (job, stream) (nats_scheduler_stream_ready{OF})", "bool_yes_no", {0: RED, 1: GREEN}),
        Column(
            "shards", f"sum by (job, stream) (nats_scheduler_shards_held{OF} and {READY})", "none", {0: RED, 64: GREEN}
        ),
        Column("schedules", f"sum by (job, stream) (max by (job, stream, kind) (nats_scheduler_schedules_held{OF}))"),
        Column(
            "overdue",
            f"sum by (job, stream) (nats_scheduler_schedules_overdue{OF} and {READY})",
            "none",
            {0: GREEN, 1: ORANGE},
        ),
        Column(
            "refused", f"sum by (job, stream) (nats_scheduler_schedules_failing{OF})", "none", {0: GREEN, 1: ORANGE}
        ),
        Column("fires", rate("nats_scheduler_fires_total", "job, stream"), "ops"),
        Column("p99", quantile(0.99, LATENESS, "job, stream, le", "5m"), "s", {0: GREEN, 0.25: ORANGE, 5: RED}),
        Column(
            "next fire",
            f"min by (job, stream) (nats_scheduler_next_fire_timestamp_seconds{OF}) * 1000",
            "dateTimeFromNow",
        ),
    ],
    24,
    8,
)

SCHEDULES_ROW = [
    series(
        "Schedules held",
        "Valid schedules that are stored, by the kind of their pattern, whichever instance fires them.",
        [Query(f"sum by (kind) (max by (job, stream, kind) (nats_scheduler_schedules_held{OF}))", "{{kind}}")],
        "short",
        6,
        stacked=True,
    ),
    series(
        "Schedules that come and go",
        "Accepted and ended in a second, while the instances run; an `@at` ends when it has fired.",
        [
            Query(rate("nats_scheduler_schedules_accepted_total", "job"), "accepted, {{job}}"),
            Query(only_positive(rate("nats_scheduler_schedules_ended_total", "reason")), "{{reason}}"),
        ],
        "ops",
        6,
    ),
    series(
        "In flight, and to be purged",
        "Fires that were published and whose outcome is not known, and purges that are pending. Both fall back to 0 "
        "after a burst. Held back: schedules whose fires wait until the one before is finished (`X-Overlap`).",
        [
            Query(f"sum(nats_scheduler_fires_in_flight{OF})", "in flight"),
            Query(f"sum(nats_scheduler_purges_pending{OF})", "purges pending"),
            Query(f"sum(nats_scheduler_schedules_held_back{OF})", "held back"),
        ],
        "short",
        6,
    ),
    series(
        "Mistakes",
        "Of publishers: rejected schedules by the server's code, headers that are nearly right, schedules that end "
        "before their next fire, messages that claim to be fires. Of a stream: schedules that it removed.",
        [
            Query(only_positive(increase("nats_scheduler_schedules_rejected_total", "code")), "rejected, {{code}}"),
            Query(increase("nats_scheduler_headers_misnamed_total", "job"), "misnamed headers, {{job}}"),
            Query(only_positive(increase("nats_scheduler_schedules_end_early_total", "reason")), "early, {{reason}}"),
            Query(only_positive(increase("nats_scheduler_fires_forged_total", "stream")), "forged, {{stream}}"),
            Query(
                only_positive(
                    increase(
                        "nats_scheduler_schedules_ended_total",
                        "stream",
                        '{job=~"$job", stream=~"$stream", reason=~"limits|max_age"}',
                    )
                ),
                "removed, {{stream}}",
            ),
        ],
        "none",
        6,
        bars=True,
    ),
]

INSTANCES_ROW = [
    series(
        "Shards held",
        "What each instance fires for; together they hold 64 shards of each stream. A gap is a failover.",
        [Query(f"sum by (instance) (nats_scheduler_shards_held{OF})", "{{instance}}")],
        "none",
        8,
        stacked=True,
    ),
    table(
        "Instances",
        "Each sidecar: its version and that of its server, its connection, what it holds, and how far the clock of its "
        "server is ahead of its machine's.",
        {"job": "job", "instance": "instance", "version": "version", "server_version": "server"},
        [
            Column("", f"max by (job, instance, version, server_version) (nats_scheduler_build_info{JOB})"),
            Column(
                "connected",
                f"max by (job, instance) (nats_scheduler_connected{JOB})",
                "bool_yes_no",
                {0: RED, 1: GREEN},
            ),
            Column(
                "since",
                f"max by (job, instance) (nats_scheduler_last_connect_timestamp_seconds{JOB}) * 1000",
                "dateTimeFromNow",
            ),
            Column(
                "connections, 1 h",
                f"sum by (job, instance) (increase(nats_scheduler_connections_total{JOB}[1h]))",
                "short",
                {0: GREEN, 6: ORANGE},
            ),
            Column("shards", f"sum by (job, instance) (nats_scheduler_shards_held{OF})"),
            Column("sees instances", f"max by (job, instance) (nats_scheduler_instances_alive{JOB})", "none"),
            Column(
                "unable", f"max by (job, instance) (nats_scheduler_streams_unable{JOB})", "none", {0: GREEN, 1: ORANGE}
            ),
            Column("clock", f"max by (job, instance) (nats_scheduler_clock_offset_seconds{JOB})", "s"),
            Column(
                "overloaded",
                f"max by (job, instance) (nats_scheduler_overloaded{JOB})",
                "bool_yes_no",
                {0: GREEN, 1: RED},
            ),
        ],
        16,
        8,
    ),
]

PROCESS_ROW = [
    series(
        "Lateness of the event loop",
        "How late each sidecar runs a timer, measured twice a second: more than 50 ms in half of the measurements is "
        "an overload.",
        [
            Query(quantile(0.5, LOOP, "instance, le"), "{{instance}}, p50"),
            Query(quantile(0.99, LOOP, "instance, le"), "{{instance}}, p99"),
        ],
        "s",
        8,
        most=0.1,
    ),
    series(
        "Processor",
        "Processor time of each sidecar in a second. One that is near 1 does not keep up: start more instances.",
        [Query(rate("process_cpu_seconds_total", "instance", JOB), "{{instance}}")],
        "percentunit",
        8,
        most=0.9,
    ),
    series(
        "Memory",
        "Resident memory of each sidecar. Every instance holds all schedules.",
        [Query(f"max by (instance) (process_resident_memory_bytes{JOB})", "{{instance}}")],
        "bytes",
        8,
    ),
]
