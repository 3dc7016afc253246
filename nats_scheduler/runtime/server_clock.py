"""The server's clock, as far as it can be known from here: what decides when a fire is due.

*Timely* says "never before its time", and whoever reads a generated message reads the time that the server stored it.
So the machine's own wall clock is not asked: it may be wrong, and it may step.
An answer that shows the server's time (`ts` of STREAM.INFO) bounds it from both sides: the server's clock showed that
after we asked, and had shown it when the answer came.
Between answers our monotonic clock goes on from the lower bound, a little slowly.

The rule: what is told was shown by the server's clock already, so that nothing fires before its time there.
Cost: one request a second for an account. It is late by the way of the fastest answer, and by half a millisecond a
second between two.
Limit: in a cluster it is the clock of the node that leads the registry bucket. Until a first answer, and where a
server does not tell its time, it is the clock of this machine.
"""

import asyncio
from collections.abc import Awaitable, Callable

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.schedule.instants import MILLISECOND

CLOCK_REQUEST_INTERVAL_SECONDS = 1.0
"""The server is asked for its time this often."""

FIRST_CLOCK_REQUESTS = 3
"""So many answers at the start, of which the fastest counts."""

CLOCK_DRIFT_DIVISOR = 2_000
"""Between answers a 2,000th of the time is left out: no two clocks drift apart faster."""

MAX_CLOCK_DRIFT_NS = 5 * MILLISECOND
"""Where answers stay away, no more than this (ns) is left out."""


class ServerClock:
    """A `Clock` whose wall clock is the server's."""

    def __init__(self, ours: Clock) -> None:
        self._ours = ours
        self._ahead: int | None = None
        self._heard_at = 0

    @property
    def is_set(self) -> bool:
        """Whether a server has told its time."""
        return self._ahead is not None

    def now(self) -> int:
        """Return the server's time (ns since the Unix epoch); it goes back only where the server's clock did."""
        if self._ahead is None:
            return self._ours.now()
        at = self._ours.monotonic()
        return at + self._ahead - self._left_out(at)

    def monotonic(self) -> int:
        """Return our own monotonic clock in nanoseconds."""
        return self._ours.monotonic()

    def received(self, told: int, asked_at: int) -> None:
        """Take a time that the server has just told; `asked_at` is our monotonic clock when it was asked (ns)."""
        at = self._ours.monotonic()
        least, most = told - at, told - asked_at
        known = None if self._ahead is None else self._ahead - self._left_out(at)
        # Beyond `most` our belief is refuted: the server's clock was set back.
        self._ahead = least if known is None or known > most else max(known, least)
        self._heard_at = at

    def _left_out(self, at: int) -> int:
        return min((at - self._heard_at) // CLOCK_DRIFT_DIVISOR, MAX_CLOCK_DRIFT_NS)


Ask = Callable[[], Awaitable[int | None]]
"""Asks the server for its time (ns since the Unix epoch); raises `JetStreamError` without an answer."""


async def set_clock(clock: ServerClock, ask: Ask) -> None:
    """Set a clock at the start; raises as `ask` does."""
    for _ in range(FIRST_CLOCK_REQUESTS):
        await _look(clock, ask)


async def keep_time(clock: ServerClock, ask: Ask) -> None:
    """Keep a clock with the server's until cancelled; without answers it goes on from what is known."""
    while True:
        await asyncio.sleep(CLOCK_REQUEST_INTERVAL_SECONDS)
        try:
            await _look(clock, ask)
        except JetStreamError:
            continue


async def _look(clock: ServerClock, ask: Ask) -> None:
    asked_at = clock.monotonic()
    told = await ask()
    if told is not None:
        clock.received(told, asked_at)
