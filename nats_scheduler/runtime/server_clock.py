"""The server's clock, as far as it can be known from here: it decides when a fire is due.

*Timely* says "never before its time", and a reader of a generated message sees the time at which the server stored it.
So the machine's own wall clock is not used: it may be wrong, and it may step.
An answer with the server's time (`ts` of STREAM.INFO) bounds it from both sides: the server's clock showed that time
after the request was sent, and before the answer arrived.
Between answers our monotonic clock continues from the lower bound, a little slowly.

The rule: the time that is returned was shown by the server's clock already, so nothing fires before its time there.
Cost: one request a second for an account. The clock is late by the travel time of the fastest answer, and by half a
millisecond a second between two answers.
Limit: in a cluster it is the clock of the node that leads the registry bucket. Until a first answer, and if a server
does not report its time, it is the clock of this machine.
"""

import asyncio
from collections.abc import Awaitable, Callable

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.schedule.instants import MILLISECOND, next_multiple

CLOCK_REQUEST_INTERVAL_SECONDS = 1.0
"""The interval at which the server's time is requested."""

FIRST_CLOCK_REQUESTS = 3
"""The number of answers that are requested at the start; the fastest one counts."""

CLOCK_DRIFT_DIVISOR = 2_000
"""Between answers a 2,000th of the time is subtracted: no two clocks drift apart faster."""

MAX_CLOCK_DRIFT_NS = 5 * MILLISECOND
"""Without answers, no more than this (ns) is subtracted."""


class ServerClock:
    """A `Clock` whose wall clock is the server's."""

    def __init__(self, ours: Clock) -> None:
        self._ours = ours
        self.monotonic = ours.monotonic
        """Returns our own monotonic clock in nanoseconds."""
        self._ahead: int | None = None
        self._received_at = 0

    @property
    def is_set(self) -> bool:
        """True if a server has reported its time."""
        return self._ahead is not None

    def now(self) -> int:
        """Return the server's time (ns since the Unix epoch); it goes back only if the server's clock did."""
        if self._ahead is None:
            return self._ours.now()
        at = self.monotonic()
        return at + self._ahead - min((at - self._received_at) // CLOCK_DRIFT_DIVISOR, MAX_CLOCK_DRIFT_NS)

    def received(self, reported: int, requested_at: int) -> None:
        """Take a time that the server has just reported; `requested_at` is our monotonic clock at the request (ns)."""
        before = None if self._ahead is None else self.now()
        at = self.monotonic()
        least, most = reported - at, reported - requested_at
        known = None if before is None else before - at
        # Beyond `most` what was known is wrong: the server's clock was set back.
        self._ahead = least if known is None or known > most else max(known, least)
        self._received_at = at


Ask = Callable[[], Awaitable[int | None]]
"""Requests the server's time (ns since the Unix epoch); raises `SchedulerError` without an answer."""


async def set_clock(clock: ServerClock, ask: Ask) -> None:
    """Set a clock at the start; raises as `ask` does."""
    for _ in range(FIRST_CLOCK_REQUESTS):
        await _request(clock, ask)


async def keep_time(clock: ServerClock, ask: Ask) -> None:
    """Keep a clock set by the server's until cancelled; without answers it continues from the last one."""
    loop = asyncio.get_running_loop()
    interval = CLOCK_REQUEST_INTERVAL_SECONDS
    while True:
        # A quarter of it after a multiple: that shares a wake with checks, but the answer is not behind a heartbeat.
        passed = loop.time() - interval / 4
        await asyncio.sleep(next_multiple(passed, interval) - passed)
        try:
            await _request(clock, ask)
        except SchedulerError:
            continue


async def _request(clock: ServerClock, ask: Ask) -> None:
    requested_at = clock.monotonic()
    reported = await ask()
    if reported is not None:
        clock.received(reported, requested_at)
