"""The processor time that the machine gives the processes of a round.

Its rule: a promise of some tenths of a second holds for processes that run. If this process is held up, the others
may be, and that is a fault for all. If one has to wait for a processor, fires may be later by as much: Linux counts
for each thread how long it was able to run and did not (`/proc/<pid>/task/<tid>/schedstat`). A thread that waited
for half of a second hardly ran, and that is such a fault too.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tests.harness.waiting import time_reached
from tests.judge.history import SECOND, Terms
from tests.nemesis.record import Record, now

PROC = Path("/proc")
HEARTBEAT_SECONDS = 0.02
STOOD_STILL = SECOND // 4
"""A timer that is later (ns) shows that the machine was overloaded."""
MAX_ALLOWED = SECOND // 5
"""The most (ns) by which fires may be later: with a second, each fire of `@every 1s` could stand for the one before."""
STARVED = 0.5
"""The share of a window for which a thread waits on a machine that is overloaded."""
LOOKS_SECONDS = 0.25
WINDOW = SECOND
"""The time (ns) over which the waiting of a thread is added up."""


class Waiting:
    """The time for which the threads of some processes waited for a processor."""

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        """`processes` returns the ids of those that run at the moment."""
        self._processes = processes
        self._looks: deque[tuple[int, dict[int, int]]] = deque()
        """The instant of each look, and the time (ns) for which each thread had waited; the first is a window ago."""
        self.is_starved = False
        """True if one thread waited for much of the whole window."""

    def look(self) -> int:
        """Return the longest waiting (ns) of one thread in the window, as far as there were looks."""
        instant, waited = now(), dict(self._read())
        self._looks.append((instant, waited))
        while len(self._looks) > 1 and self._looks[1][0] <= instant - WINDOW:
            self._looks.popleft()
        begin, before = self._looks[0]
        longest = max((time - before.get(thread, time) for thread, time in waited.items()), default=0)
        self.is_starved = instant - begin >= WINDOW and longest > STARVED * (instant - begin)
        return longest

    def _read(self) -> Iterable[tuple[int, int]]:
        for process in self._processes():
            try:
                for thread in (PROC / str(process) / "task").iterdir():
                    yield int(thread.name), int((thread / "schedstat").read_text().split()[1])
            except OSError:
                continue  # it has just ended


class Machine:
    """The machine of a round."""

    def __init__(self, record: Record, processes: Callable[[], Iterable[int]]) -> None:
        """Watch this process, in which the proxies are, and those whose ids `processes` returns."""
        self._record = record
        self._waiting = Waiting(lambda: (os.getpid(), *processes()))
        self.longest_waiting = 0
        """The longest time (ns) that one thread waited for a processor in a window."""

    async def watch(self) -> None:
        """Note when this process did not get to run, and how long the others had to wait, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_a_timer())
            tasks.create_task(self._watch_waiting())

    def allowed(self, terms: Terms) -> Terms:
        """Return the terms with the time for which this machine kept a process waiting, at most `MAX_ALLOWED`."""
        waited = min(self.longest_waiting, MAX_ALLOWED)
        resumes_within, window = terms.resumes_within + waited, terms.window + waited
        return replace(terms, slack=terms.slack + waited, resumes_within=resumes_within, window=window)

    async def _watch_a_timer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begin = now()
            await time_reached(loop.time() + HEARTBEAT_SECONDS)
            if now() - begin > STOOD_STILL:
                self._record.machine_stood_still(begin)

    async def _watch_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await time_reached(loop.time() + LOOKS_SECONDS)
            self.longest_waiting = max(self.longest_waiting, self._waiting.look())
            if self._waiting.is_starved:
                self._record.machine_stood_still(now() - WINDOW)
