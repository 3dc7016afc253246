"""Sample what happened, once in each minute of the server's clock, just before it begins; see `observe.activity`.

Cost: a look at the clock every few seconds; once a minute about a microsecond for each stream, in several turns of the
event loop.
"""

import asyncio

from nats_scheduler.observe.activity import SAMPLE_LEAD_NS, Activity, minute_of
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.schedule.instants import MINUTE, SECOND

CLOCK_CHECK_INTERVAL_SECONDS = 5.0
"""Longest wait until it is checked whether a minute has begun: the clock may have been set."""


async def keep_sampling(activity: Activity, clock: Clock) -> None:
    """Take a sample for each minute, until cancelled; the first one at once."""
    sampled: int | None = None
    while True:
        if (minute := minute_of(clock.now())) != sampled:
            sampled = minute
            for _ in activity.sample(clock.now):
                await asyncio.sleep(0)
        left = MINUTE - (clock.now() + SAMPLE_LEAD_NS) % MINUTE
        await asyncio.sleep(min(left / SECOND, CLOCK_CHECK_INTERVAL_SECONDS))
