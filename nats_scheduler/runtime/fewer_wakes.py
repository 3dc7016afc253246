"""Fewer wakes of the process while many fires are due one by one: most of what such a fire costs is to wake.

Network cards do the same: from some rate on they interrupt once for several packets. The operator says how late a
fire may be for it, the *budget* (`lateness_budget`); all else follows from it and from the rate of fires.

- *Share*: fires that come due within the budget of each other are sent together, and with them the reads and purges
  that are due. How long fires wait after others, grows with how many come within the budget.
- *Rest*: after fires were sent, the event loop does not wake for what arrives, but takes it when the next fire is
  sent, or after the budget. Acknowledgements and what is read back lose nothing by that.
- *Rest of a standby*: what an owner elsewhere stores and asks for is nothing to hurry for. After some of it the event
  loop rests too: for the budget, or longer in a process that owns no stream, since no schedule may be due there.

The rules: no fire is sent before its time. Nothing rests while something urgent is awaited, or much arrives. With
few fires a second nothing is changed.
Limit: a cancel or a new schedule that arrives during a rest is read up to the least budget of the process later.
"""

from asyncio import AbstractEventLoop, TimerHandle
from typing import Protocol, runtime_checkable

MIN_FIRES_FOR_REST = 0.5
"""Fires that come within the budget, at the rate of the moment: with fewer nothing rests."""

STANDBY_REST_SECONDS = 0.025
"""The rest of a process that owns no stream: it takes over within 50 ms, and is asked whether it is there."""

MIN_FIRES_SHARED = 2.0
"""Fires that come within the budget, at the rate of the moment: with fewer each is sent at its own time."""

RATE_SPAN_SECONDS = 0.5
"""The rate is that of the last whole span of this length."""

LOOK_BEFORE_TURN_SECONDS = 0.0004
"""The time before the next turn at which a rest ends: what arrived is parsed then, and the turn only sends."""

SOON_SECONDS = 0.002
"""Input that arrived waits for a timer that is due within this time."""


@runtime_checkable
class RestingLoop(Protocol):
    """An event loop with what `runtime.punctual` adds to it, on Linux."""

    def time(self) -> float:
        """Return the time (s) by the loop's clock."""

    def rest_until(self, at: float) -> None:
        """Read nothing that arrives before `at` (s of the loop's clock): run only timers. 0: read it at once."""


class Rate:
    """How often something happens in a second: a fire is sent, or a standby takes what it received."""

    def __init__(self) -> None:
        self._since = 0.0
        self._current = self._previous = 0

    def count(self, count: int, now: float) -> None:
        """Count what happened at `now` (s of a clock that never goes back)."""
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


class Moderation:
    """The rules by which the drivers of one process are woken: by their time, and for what arrives."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._rest_until = loop.rest_until if isinstance(loop, RestingLoop) else None
        self._rate, self._rate_standing_by = Rate(), Rate()
        self._received_standing_by = 0
        """Inputs that the standbys of the process took in this turn."""
        self._owners: set[int] = set()
        """The keys of those that own their streams."""
        self._per_second = 0.0
        """The rate when fires were sent last."""
        self._hurried: set[int] = set()
        """The keys of those that await something urgent."""
        self._sent = 0
        """Fires that were sent in this turn."""
        self._rests_until = 0.0
        self._began_at = 0.0
        """The time (s) at which the turn began in which fires were sent last."""

    def sent(self, count: int) -> None:
        """Note that `count` fires were sent in this turn."""
        self._sent += count

    def stood_by(self, count: int) -> None:
        """Note that a standby took `count` inputs in this turn."""
        self._received_standing_by += count

    def owns(self, key: int, *, is_owner: bool) -> None:
        """Note whether the one with this key owns its stream, so that what arrives for it may be due."""
        if is_owner:
            self._owners.add(key)
        else:
            self._owners.discard(key)

    def hurry(self, key: int, *, is_urgent: bool) -> None:
        """Note whether the one with this key awaits something urgent, which ends a rest."""
        if is_urgent:
            self._hurried.add(key)
            if self._rest_until is not None:
                self._rest_until(0.0)
        else:
            self._hurried.discard(key)

    def turn_ended(self, began_at: float, budget: float) -> None:
        """Note that drivers were stepped since a time (s); their least `budget` (s) decides how long is rested."""
        if self._rest_until is None:
            return
        if not self._sent:
            if self._received_standing_by:
                self._rest_standing_by(began_at, budget)
            return
        now = self._loop.time()
        self._received_standing_by = 0
        self._rate.count(self._sent, now)
        self._sent, self._began_at = 0, began_at
        self._per_second = self._rate.per_second(now)
        rests = self._per_second * budget >= MIN_FIRES_FOR_REST
        self._rests_until = self._began_at + budget if rests else 0.0

    def _rest_standing_by(self, began_at: float, budget: float) -> None:
        """Rest after a turn in which standbys took what they received, unless an earlier rest lasts longer."""
        now, received = self._loop.time(), self._received_standing_by
        self._received_standing_by = 0
        self._rate_standing_by.count(received, now)
        length = budget if self._owners else STANDBY_REST_SECONDS
        if self._rate_standing_by.per_second(now) * length >= MIN_FIRES_FOR_REST:
            self._rests_until = max(self._rests_until, began_at + length)

    def rest(self, turn_at: float) -> None:
        """Rest until `turn_at` (of the loop's clock), just before the next turn, or until the rest is over.

        While something urgent is awaited there is no rest.
        """
        if self._rest_until is not None:
            self._rest_until(0.0 if self._hurried else min(self._rests_until, turn_at))

    def not_before(self, budget: float) -> float:
        """Return the time (of the loop's clock) before which fires with this `budget` (s) wait for others."""
        fires = self._per_second * budget
        if fires <= MIN_FIRES_SHARED:
            return 0.0
        return self._began_at + budget * (1 - MIN_FIRES_SHARED / fires) ** 2

    def may_wait_for(self, timer: TimerHandle | None) -> bool:
        """Return whether what arrived during a rest waits for this timer, which is due in a moment."""
        if not self._rests_until or self._hurried or timer is None:
            return False
        now = self._loop.time()
        return now < self._rests_until and timer.when() < now + SOON_SECONDS
