"""Step many drivers, each when its time has come or something happened, and check the clocks for all of them.

A driver has no timer of its own: one that waits for tomorrow costs nothing until then.
In a turn of the event loop the drivers whose time has come are stepped first, and then some of those to which something
happened. So what is due is sent before anything else is done, and what a busy stream receives meanwhile is one step.

Every `TICK_INTERVAL_SECONDS` it is checked whether the wall clock was set, whether the process did not run for a time,
and which drivers wait for an answer.
What a process knew before a standstill (SIGSTOP, a suspended machine) may be out of date, and others may have fired
meanwhile. So every earlier contact is ended before the next driver is stepped, and what was written in the turn of the
standstill is not sent.

While many fires are due each second, those that come due within a few milliseconds share a wake, and what arrives is
taken with the next of them (`runtime.fewer_wakes`).

The rule: between two turns what was sent leaves, and what was answered is read.
Cost: one entry in a heap for each wake, and a visit twice a second to each driver with work in progress.
Limit: the precision of a wake is that of the event loop (`runtime.punctual`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.fewer_wakes import LOOK_BEFORE_TURN_SECONDS, Moderation
from nats_scheduler.schedule.instants import MILLISECOND, SECOND, next_multiple


class Standstill:
    """How long this process did not run: it was stopped, its machine was suspended, or a clock was set.

    It is measured by calls of `gap`, which has to be called often. The clock that shows more counts: the other one may
    have stopped too.
    """

    def __init__(self, clock: Callable[[], int], other: Callable[[], int]) -> None:
        self._clock, self._other = clock, other
        self._called_at, self._called_other_at = clock(), other()

    def gap(self) -> int:
        """Return how long ago (ns) the last call was, and count from now on."""
        then, self._called_at = self._called_at, self._clock()
        other_then, self._called_other_at = self._called_other_at, self._other()
        return max(self._called_at - then, self._called_other_at - other_then)


TICK_INTERVAL_SECONDS = 0.5
"""The longest interval between two checks of the clocks, so that a step of one, or a standstill, is noticed."""

CONTACT_STANDSTILL_LIMIT_NS = 1_500 * MILLISECOND
"""A process that did not check its clocks for this time (ns) did not run: other instances may have taken over.

It is less than `engine.ownership.owners.GONE_AFTER_NS`, after which they do; the check is made every
`TICK_INTERVAL_SECONDS`.
It is well inside the shortest useful duplicate window, within which the server drops a repeated fire.
"""

MAX_UNNOTICED_STEP_BACK_NS = 1 * SECOND
"""If the wall clock goes back by more than this (ns), every driver is stepped: less does not shift a wait much."""

MIN_WAKES_KEPT = 1_024
"""The number of wakes that are kept before those that were replaced are searched and removed."""

MAX_DUE_PER_TURN = 64
MAX_OTHERS_PER_TURN = 32
"""The most drivers stepped in one turn: those whose time has come, and others to which something happened."""


class Sleeper(Protocol):
    """A driver, as far as it is woken here."""

    budget: float
    """How late (s) a fire of it may be sent to share its wake with others."""
    wake_at: int | None
    """The instant (ns since the Unix epoch) at which it is to be stepped next; None if only an input makes it step."""

    @property
    def fires_in_flight(self) -> int:
        """The number of fires that were published and are not answered."""

    def step(self) -> None:
        """Process what happened, and the time."""

    def step_if_due(self) -> None:
        """Step, unless it has stepped since that was requested."""

    def step_if_restless(self) -> bool:
        """Step if work is in progress and there was no step since the last call.

        Returns whether work is still in progress; if not, it is not called again until `Wakes.ask_at_each_tick`.
        """

    def outdate(self, reason: str) -> None:
        """End the contact: what it delivered may be out of date."""


class Queue:
    """The instants at which the sleepers with one budget are to be stepped."""

    def __init__(self, budget: float) -> None:
        """Wait for nobody; the budget is in seconds."""
        self.budget = budget
        self.waiting: list[tuple[int, int, Sleeper]] = []
        """Instants and sleepers; an instant that is not the sleeper's `wake_at` any more was replaced."""
        self._most_waiting = MIN_WAKES_KEPT

    def add(self, instant: int, number: int, sleeper: Sleeper) -> None:
        """Wait for an instant (ns); of those at one instant the one with the lower `number` is first."""
        heappush(self.waiting, (instant, number, sleeper))
        if len(self.waiting) > self._most_waiting:
            named = {id(entry[2]): entry for entry in self.waiting if entry[0] == entry[2].wake_at}
            self.waiting = sorted(named.values())
            self._most_waiting = max(MIN_WAKES_KEPT, 2 * len(self.waiting))

    def first(self) -> int | None:
        """Return the earliest instant (ns)."""
        waiting = self.waiting
        while waiting and waiting[0][0] != waiting[0][2].wake_at:
            heappop(waiting)  # it was stepped meanwhile
        return waiting[0][0] if waiting else None

    def pop(self, now: int) -> Sleeper | None:
        """Take the first sleeper whose time has come at `now` (ns)."""
        waiting = self.waiting
        while waiting:
            instant, _number, sleeper = waiting[0]
            if instant == sleeper.wake_at and instant > now:
                return None
            heappop(waiting)
            if instant == sleeper.wake_at:
                return sleeper
        return None


class Wakes:
    """Wakes the drivers of one process, by one clock, while any of them has a contact."""

    def __init__(self, clock: Clock, was_late: Callable[[float], None] = lambda _seconds: None) -> None:
        """Wake no driver yet; `was_late` is called at each tick with how late (s) the event loop ran it."""
        self._clock = clock
        self._was_late = was_late
        self._loop = asyncio.get_running_loop()
        self._standstill = Standstill(clock.now, clock.monotonic)
        self._attached: dict[int, Sleeper] = {}
        self._restless: dict[int, Sleeper] = {}
        """Those that may have work in progress."""
        self._queues: dict[float, Queue] = {}
        """By budget, the least first."""
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._others: deque[Sleeper] = deque()
        """Those to which something happened."""
        self._is_turn_due = False
        self._ticker: asyncio.TimerHandle | None = None
        self._checked_at = clock.now()
        self.moderation = Moderation(self._loop)
        self._is_stepping = False

    def __len__(self) -> int:
        """Return how many instants are kept, including those that were replaced and not removed yet."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def attach(self, sleeper: Sleeper) -> None:
        """Watch a sleeper that has a contact from now on."""
        if not self._attached:
            self._standstill.gap()
            self._checked_at = self._clock.now()
            self._tick_later()
        self._attached[id(sleeper)] = self._restless[id(sleeper)] = sleeper

    def detach(self, sleeper: Sleeper) -> None:
        """Stop watching it; the instant that it waits for still wakes it."""
        self._attached.pop(id(sleeper), None)
        self._restless.pop(id(sleeper), None)
        self.moderation.hurry(id(sleeper), is_urgent=False)
        if not self._attached and self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def wake(self, sleeper: Sleeper, instant: int) -> None:
        """Step `sleeper` at this instant, and at no earlier request's instant."""
        if sleeper.wake_at == instant:
            return
        sleeper.wake_at = instant
        self._number += 1
        queue = self._queues.get(sleeper.budget)
        if queue is None:
            queue = Queue(sleeper.budget)
            self._queues = dict(sorted({**self._queues, queue.budget: queue}.items()))
        queue.add(instant, self._number, sleeper)
        if not self._is_stepping:
            self._set_timer(0)

    @property
    def most_in_flight(self) -> int:
        """The most fires that one of the drivers has in flight."""
        return max((one.fires_in_flight for one in self._restless.values()), default=0)

    def spare_seconds(self) -> float:
        """Return how long (s) no driver has anything to do, as far as is known: 0 while a fire is in flight."""
        if self._others or self.most_in_flight:
            return 0.0
        instants = [instant for queue in self._queues.values() if (instant := queue.first()) is not None]
        return max((min(instants) - self._clock.now()) / SECOND, 0.0) if instants else inf

    def ask_at_each_tick(self, sleeper: Sleeper) -> None:
        """Ask `sleeper` at each tick from now on whether it is to be stepped: something is under way."""
        if id(sleeper) in self._attached:
            self._restless[id(sleeper)] = sleeper

    def ask_no_more(self, sleeper: Sleeper) -> None:
        """Ask `sleeper` no more at each tick: nothing is under way."""
        self._restless.pop(id(sleeper), None)

    def soon(self, sleeper: Sleeper) -> None:
        """Step `sleeper` in this turn of the event loop or one of the next, since something happened to it."""
        self._others.append(sleeper)
        if not self.moderation.may_wait_for(self._timer):
            self._turn_soon()

    def check_standstill(self) -> None:
        """End every contact if the process did not run for a time since the last check."""
        gap = self._standstill.gap()
        if gap > CONTACT_STANDSTILL_LIMIT_NS:
            reason = f"the process stood still, or the clock was set, for {gap / SECOND:.1f} s"
            for sleeper in list(self._attached.values()):
                sleeper.outdate(reason)

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._go_on)

    def _set_timer(self, stepped_at: int) -> None:
        """Set the timer for the next turn, but not later than the next tick, and rest until then if we may.

        What was due at `stepped_at` (ns), and is left of that turn, does not wait to share a wake with others.
        """
        now, clock_now, at = self._loop.time(), self._clock.now(), inf
        for queue in self._queues.values():
            instant = queue.first()
            if instant is None:
                continue
            due = now + min(max((instant - clock_now) / SECOND, 0), TICK_INTERVAL_SECONDS)
            shared = self.moderation.not_before(queue.budget) if instant > stepped_at else 0.0
            at = min(at, max(due, shared))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._woken) if at < inf else None
        self.moderation.rest(at - LOOK_BEFORE_TURN_SECONDS)

    def _woken(self) -> None:
        self._timer = None
        self._take_turn()

    def _go_on(self) -> None:
        self._is_turn_due = False
        self._take_turn()

    def _take_turn(self) -> None:
        """Step those whose time has come, and then others; what is left follows in the next turn.

        A standstill is checked once for all of them, and again before what they send leaves (`Connection.end_when`),
        because the process may be stopped in the middle of a step too.
        """
        began_at = self._loop.time()
        self.check_standstill()
        self._is_stepping = True
        now, most = self._clock.now(), MAX_DUE_PER_TURN
        for queue in self._queues.values():
            while most and (sleeper := queue.pop(now)) is not None:
                sleeper.wake_at = None
                sleeper.step()
                most -= 1
        for _ in range(min(MAX_OTHERS_PER_TURN, len(self._others))):
            self._others.popleft().step_if_due()
        self._is_stepping = False
        self.moderation.turn_ended(began_at, min(self._queues, default=0.0))
        self._set_timer(now)
        if self._others:
            self._turn_soon()

    def _tick_later(self) -> None:
        planned = next_multiple(self._loop.time(), TICK_INTERVAL_SECONDS)
        self._ticker = self._loop.call_at(planned, self._tick, planned)

    def _tick(self, planned: float) -> None:
        self._ticker = None
        self._was_late(self._loop.time() - planned)
        self.check_standstill()
        before, self._checked_at = self._checked_at, self._clock.now()
        was_set_back = self._checked_at < before - MAX_UNNOTICED_STEP_BACK_NS
        if was_set_back:
            for sleeper in list(self._attached.values()):
                sleeper.step()
            self._set_timer(0)
        else:
            for key, sleeper in list(self._restless.items()):
                if not sleeper.step_if_restless():
                    self._restless.pop(key, None)
        if self._others:
            self._turn_soon()
        if self._attached:
            self._tick_later()
