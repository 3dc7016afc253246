"""Wake many drivers, each at its instant, with one timer of the event loop, and notice for all when the process stood still.

A driver has a timer only while it is due soon: one that waits for tomorrow costs nothing until then.
All of them are looked at together every `TICK_SECONDS`: whether the wall clock was set, whether the process stood
still, and who waits for an answer.

A process that stood still (SIGSTOP, a suspended machine) knows what was true before, and others may have fired
meanwhile: every contact of before is ended, by whichever driver steps first.

The rule: drivers that are due together are stepped `AT_ONCE` at a time, so that what the first ones send leaves, and
what is answered is read, before the last ones are asked.
Cost: one entry in a heap for each wake, and a look at each driver that is not idle twice a second.
Limit: the precision of a wake is that of the event loop (`runtime.punctual`).
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.standstill import Standstill
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

TICK_SECONDS = 0.5
"""The clocks are looked at this often at least, so that a step of one, or a standstill, is noticed."""

STOOD_STILL = 1_500 * MILLISECOND
"""A look so long (ns) after the one before comes from a process that did not run: others may have taken over.

Less than `engine.leases.LEASE_DURATION`, after which they do; somebody looks every `TICK_SECONDS`.

Well inside the shortest useful duplicate window: until that is over, a repeated fire is dropped by the server.
"""

STEPPED_BACK = 1 * SECOND
"""By so much (ns) the wall clock has to go back for every driver to be asked: less does not shift a wait much."""

LEAST_WAITING = 1_024
"""Wakes that are kept before it is looked at which of them were replaced."""

AT_ONCE = 32
"""So many drivers are stepped in one turn of the event loop."""


class Sleeper(Protocol):
    """Whoever is woken."""

    wake_at: int | None
    """When (ns since the Unix epoch) it is to be stepped next; None where only a fact makes it step."""

    @property
    def is_restless(self) -> bool:
        """Whether it is to be stepped every `TICK_SECONDS`, whatever it waits for."""

    def woken(self) -> None:
        """Step, since the time has come."""

    def outdate(self, reason: str) -> None:
        """End the contact: what came through it may be old."""


class Wakes:
    """Wakes the drivers of one process, by one clock, while any of them has a contact."""

    def __init__(self, clock: Clock, was_late: Callable[[float], None] = lambda _seconds: None) -> None:
        """Wake nobody yet; `was_late` is told at each tick how late (s) the event loop came to it."""
        self._clock = clock
        self._was_late = was_late
        self._loop = asyncio.get_running_loop()
        self._standstill = Standstill(clock.now, clock.monotonic)
        self._attached: dict[int, Sleeper] = {}
        self._waiting: list[tuple[int, int, Sleeper]] = []
        """Instants, with whom to wake; one that its sleeper does not name any more was replaced."""
        self._most_waiting = LEAST_WAITING
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._looked_at = clock.now()

    def attach(self, sleeper: Sleeper) -> None:
        """Look after whoever has a contact from now on."""
        if not self._attached:
            self._standstill.gap()
            self._looked_at = self._clock.now()
            self._tick_later()
        self._attached[id(sleeper)] = sleeper

    def detach(self, sleeper: Sleeper) -> None:
        """Look after it no more; what it waits for still wakes it."""
        self._attached.pop(id(sleeper), None)
        if not self._attached and self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def wake(self, sleeper: Sleeper, instant: int) -> None:
        """Step `sleeper` at an instant, and at none that it named before."""
        if sleeper.wake_at == instant:
            return
        sleeper.wake_at = instant
        self._number += 1
        heappush(self._waiting, (instant, self._number, sleeper))
        if len(self._waiting) > self._most_waiting:
            self._drop_what_was_replaced()
        if self._timer is None or instant < self._timer_for:
            self._set_timer()

    def beware(self) -> None:
        """End every contact of a process that stood still since somebody looked last."""
        gap = self._standstill.gap()
        if gap > STOOD_STILL:
            reason = f"the process stood still, or the clock was set, for {gap / SECOND:.1f} s"
            for sleeper in list(self._attached.values()):
                sleeper.outdate(reason)

    def _drop_what_was_replaced(self) -> None:
        self._waiting = sorted({id(entry[2]): entry for entry in self._waiting if entry[0] == entry[2].wake_at}.values())
        self._most_waiting = max(LEAST_WAITING, 2 * len(self._waiting))

    def _set_timer(self) -> None:
        """Wake for the first that waits, but not later than at the next tick."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._waiting[0][0] != self._waiting[0][2].wake_at:
            heappop(self._waiting)  # it was stepped meanwhile
        if self._waiting:
            self._timer_for = self._waiting[0][0]
            wait = (self._timer_for - self._clock.now()) / SECOND
            self._timer = self._loop.call_later(min(max(wait, 0), TICK_SECONDS), self._woken)

    def _woken(self) -> None:
        """Step those whose time has come."""
        self._timer = None
        now, stepped = self._clock.now(), 0
        while self._waiting and self._waiting[0][0] <= now and stepped < AT_ONCE:
            instant, _number, sleeper = heappop(self._waiting)
            if sleeper.wake_at == instant:
                sleeper.wake_at = None
                sleeper.woken()
                stepped += 1
        self._set_timer()

    def _tick_later(self) -> None:
        planned = self._loop.time() + TICK_SECONDS
        self._ticker = self._loop.call_at(planned, self._tick, planned)

    def _tick(self, planned: float) -> None:
        self._ticker = None
        self._was_late(self._loop.time() - planned)
        self.beware()
        before, self._looked_at = self._looked_at, self._clock.now()
        was_set_back = self._looked_at < before - STEPPED_BACK
        for sleeper in list(self._attached.values()):
            if was_set_back or sleeper.is_restless:
                sleeper.woken()
        if was_set_back:
            self._set_timer()
        if self._attached:
            self._tick_later()
