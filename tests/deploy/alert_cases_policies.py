"""For each alert about policies of schedules: series with which it fires, and some with which it does not."""

from tests.deploy.alert_cases import A, B, Case, S, of

POLICIES = [
    Case(
        "NatsSchedulerFiresSkipped",
        f'job="j", {S}',
        of("fires_skipped_total", f'{A}, {S}, policy="X-Missed"', "0+1x240")
        | of("fires_skipped_total", f'{B}, {S}, policy="X-Missed"', "0x240"),
        {
            "one outage": of("fires_skipped_total", f'{A}, {S}, policy="X-Missed"', "0x40 900x200"),
            "what overlaps": of("fires_skipped_total", f'{A}, {S}, policy="X-Overlap"', "0+1x240"),
        },
    ),
    Case(
        "NatsSchedulerFiresTimedOut",
        f'job="j", {S}',
        of("fires_timed_out_total", f"{A}, {S}", "0x2 0+1x240"),
        {
            "one, which takes too long": of("fires_timed_out_total", f"{A}, {S}", "0x40 1x200"),
            "one every 50 minutes": of("fires_timed_out_total", f"{A}, {S}", "0x20 1x199 2x20"),
        },
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
