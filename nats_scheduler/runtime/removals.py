"""Notice what a stream has removed, by whatever means, and pass it to the engine.

A request to remove messages is received only if it is made in our account; limits, consumers and roll-ups make none.
But a stream's state shows that something was removed: its first sequence, or the number of messages that are missing
behind it, is another one than before.

The rules:

- The state is requested when something may have been removed: after a request that was seen, or a new contact, and when
  the list of all streams, which is requested every half minute anyway, shows another state. While the state changes it
  is requested again. So a stream without activity costs nothing.
- A purge of one subject up to a sequence is how a command removes a schedule, and how sidecars remove one that is done.
  In a moment it is found out, for all of these subjects together, which still have a schedule that is not due, and
  then whether that is stored. So the purge after a fire costs no look-up of its own.
- Which messages were removed is requested only if something was, and the more there are, the less often.
- A stream whose leader is behind what was read is asked again later.
- Of what would be ended at once one message is read, so that a server that contradicts itself ends no schedule.

Limit: if more than `MAX_REMOVED_LISTED` messages were removed between those that are stored, only what is below the
first one is found.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping

from nats_scheduler.control.errors import ConnectionLostError, SchedulerError
from nats_scheduler.engine.holding.table import DamagedTableError
from nats_scheduler.engine.inputs import RemovalRequested, SchedulesGone
from nats_scheduler.engine.receiving.admission import Found
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import Removed
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.subjects import is_literal_subject
from nats_scheduler.runtime.server_port import StreamContents
from nats_scheduler.schedule.instants import SECOND

FIRST_WAIT_SECONDS = 1.0
"""Wait after something may have been removed: servers take their time, and more removals may follow."""

SHORTEST_WAIT_SECONDS = 5.0
"""Shortest time between two requests for the state of a stream."""

LONGEST_WAIT_SECONDS = 30.0
"""Longest time while what is removed is nothing that is known here: fires that were consumed, and our own purges."""

MAX_REMOVED_LISTED = 500_000
"""If more messages were removed between those that are stored, nobody asks which: the answer would be too long."""

WAIT_FOR_EACH_LISTED_SECONDS = 0.000_1
"""And this time for each message of the last list: a thousand times what it costs to read it."""

MAX_GONE_AT_ONCE = 128
"""Schedules that are ended in one step, which takes about a millisecond."""

NAMED_WAIT_SECONDS = 0.1
"""Wait after a request that names one schedule: by then the server has removed it."""

NOT_DUE_NS = 2 * SECOND
"""A schedule that is due later than this (ns) was not purged by a sidecar, which does that after its last fire."""

MAX_NAMED_SUBJECTS = 1_024
"""Subjects that are looked at in one moment; what requests name beyond that is found by the state of the stream."""

UNIT_PAUSE_SECONDS = 0.002
"""Pause after each unit of work, which takes some 0.3 ms."""


class Removals:
    """Follows what one served stream removes."""

    def __init__(
        self,
        engine: StreamEngine,
        state: StreamState,
        receive: Callable[[SchedulesGone], None],
        now: Callable[[], int],
    ) -> None:
        """Know what was removed by `state`; `receive` passes an input to the engine, `now` returns the time (ns)."""
        self._engine = engine
        self._now = now
        self._stream = state.name
        self._receive = receive
        self._known: tuple[int, int] | None = state.removals
        """The state when the engine knew all that was removed; None: it is to be found out in any case."""
        self._is_wanted = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._named: dict[str, int] = {}
        """The subjects that requests named, each with the sequence below which it is removed."""
        self._is_named = asyncio.Event()

    def look_up_soon(self) -> None:
        """Have it looked up within half a minute whether something was removed."""
        self._is_wanted.set()

    def requested(self, request: RemovalRequested) -> None:
        """Have it looked up in a moment whether a request has removed something.

        One as sidecars make them, after each fire, is not urgent: the fire is read back.
        """
        self.look_up_soon()
        if request.below is None or request.filter is None or not is_literal_subject(request.filter):
            self._is_urgent.set()
        elif len(self._named) < MAX_NAMED_SUBJECTS:
            self._named[request.filter] = max(request.below, self._named.get(request.filter, 0))
            self._is_named.set()
        else:
            self._is_urgent.set()

    def look_up_all(self) -> None:
        """Have it looked up what was removed, whatever the state of the stream is: the engine knows an older one."""
        self._known = None
        self._is_urgent.set()
        self.look_up_soon()

    def listed(self, state: StreamState) -> None:
        """Compare the state of the stream that a list shows."""
        if state.removals != self._known:
            self.look_up_soon()

    async def follow(self, api: StreamContents) -> None:
        """Follow what is removed until cancelled."""
        await asyncio.gather(self._follow_state(api), self._follow_named(api))

    async def _follow_named(self, api: StreamContents) -> None:
        """Look up what requests named, until cancelled or the connection is lost."""
        while True:
            await self._is_named.wait()
            await asyncio.sleep(NAMED_WAIT_SECONDS)
            self._is_named.clear()
            named, self._named = self._named, {}
            for subject, sequence in self._not_due(named) if self._engine.is_live else ():
                try:
                    is_stored = await api.message(self._stream, seq=sequence) is not None
                except ConnectionLostError:
                    return
                except SchedulerError:
                    self._is_urgent.set()
                    break
                if not is_stored:
                    self._receive(SchedulesGone([(subject, sequence)]))

    def _not_due(self, named: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return what is on these subjects below these sequences and not due, rejected and paused schedules too."""
        held, inactive, latest = self._engine.held, self._engine.inactive, self._now() + NOT_DUE_NS
        found = [(subject, inactive.at(subject)) for subject in named]
        try:
            scheduled = [held.peek(subject) for subject in held.known(list(named))]
        except (sqlite3.Error, DamagedTableError):
            scheduled = []  # the next step meets it too, and has the stream read again
        found += [(one.subject, one.sequence) for one in scheduled if one is not None and one.fire_time > latest]
        return [(subject, sequence) for subject, sequence in found if 0 < sequence < named[subject]]

    async def _follow_state(self, api: StreamContents) -> None:
        """Follow the state of the stream, until cancelled or the connection is lost."""
        if self._engine.last_read:
            self.look_up_soon()  # without contact nobody noticed it
        wait = SHORTEST_WAIT_SECONDS
        while True:
            await self._is_wanted.wait()
            await asyncio.sleep(FIRST_WAIT_SECONDS)
            if not self._engine.is_live:
                continue
            self._is_wanted.clear()
            self._is_urgent.clear()
            try:
                found, listed = await self._check(api)
            except ConnectionLostError:
                return
            except SchedulerError:
                self._is_wanted.set()
                found = listed = 0
            wait = SHORTEST_WAIT_SECONDS if found else min(2 * wait, LONGEST_WAIT_SECONDS)
            await asyncio.sleep(SHORTEST_WAIT_SECONDS - FIRST_WAIT_SECONDS + WAIT_FOR_EACH_LISTED_SECONDS * listed)
            if self._is_wanted.is_set():
                await self._rest(wait - SHORTEST_WAIT_SECONDS)

    async def _rest(self, seconds: float) -> None:
        """Wait `seconds`, or until it is urgent."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_urgent.wait()
        except TimeoutError:
            pass

    async def _check(self, api: StreamContents) -> tuple[int, int]:
        """End what is not stored any more; returns how much that is, and how many messages were listed."""
        info = await api.stream(self._stream)
        if info is None or not self._engine.admission.knows_any:
            return 0, 0
        state = StreamState.from_info(info)
        if state.last_sequence < self._engine.last_read:
            self._is_wanted.set()
            return 0, 0
        if state.removals == self._known:
            return 0, 0
        self._is_wanted.set()  # until nothing is removed any more
        removed: Removed | None = Removed(state.first_sequence, frozenset())
        if state.deleted:
            removed = await api.removed(self._stream, MAX_REMOVED_LISTED) or removed
        assert removed is not None, "it is at least what is below the first message"
        found = await self._end(api, removed)
        if found is None:
            return 0, len(removed.sequences)
        self._known = state.removals
        return found, len(removed.sequences)

    async def _end(self, api: StreamContents, removed: Removed) -> int | None:
        """End what was removed; returns how much that is, None if the server has a message that it says was removed."""
        count = 0
        for found in self._engine.admission.find_gone(removed.first, removed.sequences):
            if found:
                if await api.message(self._stream, seq=found[0][1]) is not None:
                    return None
                count += len(found)
                await self._pass(found)
            await asyncio.sleep(UNIT_PAUSE_SECONDS)
        return count

    async def _pass(self, found: Found) -> None:
        for first in range(0, len(found), MAX_GONE_AT_ONCE):
            self._receive(SchedulesGone(found[first : first + MAX_GONE_AT_ONCE]))
            await asyncio.sleep(UNIT_PAUSE_SECONDS)
