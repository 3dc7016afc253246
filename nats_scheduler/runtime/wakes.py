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
taken with the next of them.

The rule: between two turns what was sent leaves, and what was answered is read.
Cost: one entry in a heap for each wake, and a visit twice a second to each driver with work in progress.
Limit: the precision of a wake is that of the event loop (`runtime.punctual`).
"""

import asyncio
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Protocol, runtime_checkable

from nats_scheduler.runtime.clock import Clock
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

# Fewer wakes of the process while many fires are due one by one: most of what such a fire costs is to wake.
#
# Network cards do the same: from some rate on they interrupt once for several packets.
#
# - *Rest*: after fires were sent, the event loop does not wake for what arrives, but takes it when the next fire is
#   due. Acknowledgements and what is read back lose nothing by that.
# - *Share*: fires that come due within a few milliseconds are sent together; how many ms, grows with the rate of
#   fires.
#
# The rules: no fire is sent before its time. Nothing rests while something urgent is awaited, or much arrives. With
# few fires a second nothing is changed.
#
# Cost: some additions for each turn in which fires are sent.
# Limit: a cancel or a new schedule that arrives during a rest is read up to `REST_SECONDS` later.

REST_SECONDS = 0.008
"""Longest rest: at 200 fires a second, which are 5 ms apart, the next fire ends it."""

MIN_RESTING_RATE = 100.0
"""Fires a second: with fewer nothing rests."""

MIN_SHARED_RATE = 400.0
"""Fires a second: with fewer each is sent at its own time."""

SHARING = ((MIN_SHARED_RATE, 0.0), (1_000.0, 0.0025), (2_000.0, 0.003), (10_000.0, 0.005))
"""By rate of fires a second, the shortest time (s) after others at which fires are sent; linear in between."""

RATE_SPAN_SECONDS = 0.5
"""The rate is that of the last whole span of this length."""

SOON_SECONDS = 0.002
"""Input that arrived waits for a timer that is due within this time."""


@runtime_checkable
class RestingLoop(Protocol):
    """An event loop with what `runtime.punctual` adds to it, on Linux."""

    def time(self) -> float:
        """Return the time (s) by the loop's clock."""

    def rest(self, seconds: float) -> None:
        """Do not wake for what arrives in the next `seconds`, unless a timer is due; 0: wake at once."""


class FireRate:
    """The number of fires that are sent in a second."""

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
    """The rules by which the drivers of one process are woken: by their time, and for what arrives."""

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
        """The time (s) at which the turn began in which drivers are, or were last, stepped."""
        self.not_before = 0.0
        """Before this time (of the loop's clock) nobody is woken because of its time."""

    def sent(self, count: int) -> None:
        """Note that `count` fires were sent in this turn."""
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


# Notice that this process did not run for a while: it was stopped, its machine was suspended, or a clock was set.
#
# What it knew before may be out of date, and other instances may have fired meanwhile.
#
# The rule: `gap` has to be called often, since it returns the time since the last call.


class Standstill:
    """The time (ns) since the last call, by the clock that shows more: the other one may have stopped too."""

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

It is less than `engine.sharing.leases.LEASE_DURATION_NS`, after which they do; the check is made every
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

        Returns whether work is still in progress; if not, it is not called again until `Wakes.is_restless`.
        """

    def outdate(self, reason: str) -> None:
        """End the contact: what it delivered may be out of date."""


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
        self._waiting: list[tuple[int, int, Sleeper]] = []
        """Instants and sleepers; an instant that is not the sleeper's `wake_at` any more was replaced."""
        self._most_waiting = MIN_WAKES_KEPT
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for = 0
        self._others: deque[Sleeper] = deque()
        """Those to which something happened."""
        self._is_turn_due = False
        self._ticker: asyncio.TimerHandle | None = None
        self._checked_at = clock.now()
        self.moderation = Moderation(self._loop)
        self._is_stepping = False

    def __len__(self) -> int:
        """Return how many instants are kept, including those that were replaced and not removed yet."""
        return len(self._waiting)

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
        heappush(self._waiting, (instant, self._number, sleeper))
        if len(self._waiting) > self._most_waiting:
            self._remove_replaced()
        if not self._is_stepping and (self._timer is None or instant < self._timer_for):
            self._set_timer(0)

    @property
    def most_in_flight(self) -> int:
        """The most fires that one of the drivers has in flight."""
        return max((one.fires_in_flight for one in self._restless.values()), default=0)

    def spare_seconds(self) -> float:
        """Return how long (s) no driver has anything to do, as far as is known: 0 while a fire is in flight."""
        if self._others or self.most_in_flight:
            return 0.0
        return max((self._timer_for - self._clock.now()) / SECOND, 0.0) if self._waiting else inf

    def is_restless(self, sleeper: Sleeper) -> None:
        """Ask `sleeper` at each tick from now on whether it is to be stepped: something is under way."""
        if id(sleeper) in self._attached:
            self._restless[id(sleeper)] = sleeper

    def is_at_rest(self, sleeper: Sleeper) -> None:
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

    def _remove_replaced(self) -> None:
        named = {id(entry[2]): entry for entry in self._waiting if entry[0] == entry[2].wake_at}
        self._waiting = sorted(named.values())
        self._most_waiting = max(MIN_WAKES_KEPT, 2 * len(self._waiting))

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._go_on)

    def _set_timer(self, stepped_at: int) -> None:
        """Set the timer for the first instant, but not later than the next tick.

        What was due at `stepped_at` (ns), and is left of that turn, does not wait to share a wake with others.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._waiting[0][0] != self._waiting[0][2].wake_at:
            heappop(self._waiting)  # it was stepped meanwhile
        if self._waiting:
            self._timer_for = self._waiting[0][0]
            now = self._loop.time()
            at = now + min(max((self._timer_for - self._clock.now()) / SECOND, 0), TICK_INTERVAL_SECONDS)
            if self._timer_for > stepped_at:
                at = max(at, self.moderation.not_before)
            self._timer = self._loop.call_at(at, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._take_turn()

    def _go_on(self) -> None:
        self._is_turn_due = False
        self._take_turn()

    def _take_turn(self) -> None:
        """Step some, and have others follow in the next turn."""
        self._step_some()
        if self._others:
            self._turn_soon()

    def _step_some(self) -> None:
        """Step those whose time has come, and then others.

        A standstill is checked once for all of them, and again before what they send leaves (`Connection.end_when`),
        because the process may be stopped in the middle of a step too.
        """
        self.moderation.turn_began()
        self.check_standstill()
        self._is_stepping = True
        now, waiting, most = self._clock.now(), self._waiting, MAX_DUE_PER_TURN
        while waiting and waiting[0][0] <= now and most:
            instant, _number, sleeper = heappop(waiting)
            if sleeper.wake_at == instant:
                sleeper.wake_at = None
                sleeper.step()
                waiting = self._waiting
                most -= 1
        for _ in range(min(MAX_OTHERS_PER_TURN, len(self._others))):
            self._others.popleft().step_if_due()
        self._is_stepping = False
        self.moderation.turn_ended()
        if self._timer is None or (self._waiting and self._waiting[0][0] < self._timer_for):
            self._set_timer(now)

    def _tick_later(self) -> None:
        planned = self._loop.time() + TICK_INTERVAL_SECONDS
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
