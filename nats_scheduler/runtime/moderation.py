"""Fewer wakes of the process while many fires are due one by one: most of what such a fire costs is to wake.

Network cards do the same: from some rate on they interrupt once for several packets.

- *Rest*: after fires were sent, the event loop does not wake for what arrives, but takes it when the next fire is due.
  Acknowledgements and what is read back lose nothing by that.
- *Share*: fires that come due within a few milliseconds are sent together; how many ms, grows with the rate of fires.

The rules: no fire is sent before its time. Nothing rests while something urgent is awaited, or much arrives. With few
fires a second nothing is changed.

Cost: some additions for each turn in which fires are sent.
Limit: a cancel or a new schedule that arrives during a rest is read up to `REST_SECONDS` later.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Protocol, runtime_checkable

REST_SECONDS = 0.008
"""Longest rest: at 200 fires a second, which are 5 ms apart, the next fire ends it."""

MIN_RESTING_RATE = 100.0
"""Fires a second: with fewer nothing rests."""

MIN_SHARED_RATE = 400.0
"""Fires a second: with fewer each is sent at its own time."""

SHARING = ((MIN_SHARED_RATE, 0.0), (1_000.0, 0.0025), (2_000.0, 0.003), (10_000.0, 0.005))
"""How long (s) after others fires are sent at the earliest, at some rates of fires a second; linear in between."""

RATE_SPAN_SECONDS = 0.5
"""The rate is that of the last whole span of this length."""

SOON_SECONDS = 0.002
"""What arrived waits for a timer that is due within so long."""


@runtime_checkable
class RestingLoop(Protocol):
    """What `runtime.punctual` adds to an event loop, on Linux."""

    def time(self) -> float:
        """Return the time (s) by the loop's clock."""

    def rest(self, seconds: float) -> None:
        """Do not wake for what arrives in so many seconds, unless a timer is due; 0: wake at once."""

    def in_one_turn(self, work: Callable[[], object]) -> None:
        """Do this work, and then what it gave to `at_end_of_turn`."""

    def at_end_of_turn(self, call: Callable[[], object]) -> None:
        """Call this after the work that `in_one_turn` does, or else in the next turn."""


class FireRate:
    """How many fires a second are sent."""

    def __init__(self) -> None:
        self._since = 0.0
        self._current = self._previous = 0

    def sent(self, count: int, now: float) -> None:
        """Count fires that were sent at `now` (s of a clock that never goes back)."""
        self._go_on(now)
        self._current += count

    def per_second(self, now: float) -> float:
        """Return the rate in the last whole span before `now` (s)."""
        self._go_on(now)
        return self._previous / RATE_SPAN_SECONDS

    def _go_on(self, now: float) -> None:
        passed = now - self._since
        if passed >= RATE_SPAN_SECONDS:
            self._previous = self._current if passed < 2 * RATE_SPAN_SECONDS else 0
            self._current, self._since = 0, now


def shared_seconds(rate: float) -> float:
    """Return how long (s) after others fires are sent at the earliest, at a rate of fires a second."""
    before_rate, before = SHARING[0]
    if rate <= before_rate:
        return 0.0
    for next_rate, seconds in SHARING[1:]:
        if rate < next_rate:
            return before + (seconds - before) * (rate - before_rate) / (next_rate - before_rate)
        before_rate, before = next_rate, seconds
    return before


class Moderation:
    """When the drivers of one process are woken by their time, and when for what arrives."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._rest = loop.rest if isinstance(loop, RestingLoop) else None
        self._rate = FireRate()
        self._hurried: set[int] = set()
        """The keys of those that await something urgent."""
        self._sent = 0
        """Fires that were sent in this turn."""
        self._rests_until = 0.0
        self._began_at = 0.0
        """When (s) the turn began in which drivers are, or were last, stepped."""
        self.not_before = 0.0
        """Before this time (of the loop's clock) nobody is woken because of its time."""

    def sent(self, count: int) -> None:
        """Note that so many fires were sent in this turn."""
        self._sent += count

    def hurry(self, key: int, *, is_urgent: bool) -> None:
        """Note whether the one with this key awaits something urgent."""
        if is_urgent:
            self._hurried.add(key)
        else:
            self._hurried.discard(key)

    def turn_began(self) -> None:
        """End the rest: drivers are being stepped."""
        self._rests_until = 0.0
        self._began_at = self._loop.time()

    def turn_ended(self) -> None:
        """Rest if fires were sent in this turn, many are sent each second, and nothing urgent is awaited."""
        if self._rest is None:
            return
        if self._hurried:
            self._rest(0.0)
        if not self._sent:
            return
        now = self._loop.time()
        self._rate.sent(self._sent, now)
        self._sent = 0
        rate = self._rate.per_second(now)
        self.not_before = self._began_at + shared_seconds(rate)
        if rate >= MIN_RESTING_RATE and not self._hurried:
            self._rest(REST_SECONDS)
            self._rests_until = now + REST_SECONDS

    def may_wait_for(self, timer: TimerHandle | None) -> bool:
        """Return whether what arrived during a rest waits for this timer, which is due in a moment."""
        if not self._rests_until or timer is None:
            return False
        now = self._loop.time()
        return now < self._rests_until and timer.when() < now + SOON_SECONDS
