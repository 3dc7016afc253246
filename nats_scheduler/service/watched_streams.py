"""The streams whose schedules the server itself fires, or nothing does, watched for as long as requests ask about them.

A sidecar beside the native scheduler holds what it fires itself, the portable schedules. To hold the others all the
time would cost memory for questions that may never come. So the first request about a stream reads it into an engine
that watches (`service.watched_stream`), and each later one reads what was stored since.

The rules:

- Each answer contains what was stored, and nothing that was removed, when its request arrived. Only if reading what is
  new takes longer than a request waits, it may be `LATEST_LIMIT_SECONDS` old.
- A stream is read once at a time, however many ask, and the reading goes on if they do not wait. A requester waits
  `READ_WAIT_SECONDS` and is then refused with the sequence that was reached.
- What is held is bounded, in all streams together: `MAX_BYTES` and `MAX_STREAMS`. The stream that was not asked
  about for longest is released first; one that has too many schedules alone is refused.
- What nobody asked about for `IDLE_LIMIT_SECONDS` is released, and so is everything if the connection ends or the
  stream is another one, or has another configuration.
- What is released is emptied, in slices, as soon as no request has a view of it: it holds cycles, and the collector
  may never find them (`runtime.garbage_collector`).

Cost: 0.1 to 0.2 KB for each `@at`, and about 1 KB for each one with a pattern of its own, or that fires within minutes,
or is rejected (`engine.stored_schedules`); 150 MB at most. The first request reads the stream, in half of the process's
time at most; a later one takes a request to the server, and some more if anything was stored or removed.
Limit: where consumers are harmful, reading takes a request for each message, and streams with many are refused.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.single_flight import SingleFlight, UnfinishedError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.observe.activity import ReadFires
from nats_scheduler.service.micro import NOT_FOUND, UNAVAILABLE, ServiceError
from nats_scheduler.service.turns import Turns
from nats_scheduler.service.watched_stream import Numbers, ReadAccess, WatchedStream

MAX_BYTES = 150_000_000
"""Memory (bytes) for the schedules that are held for requests, in all streams together."""

MEASURED_ROOM = 8
"""After a measurement this part of `MAX_BYTES` has to be free, so that the next one comes much later."""

MAX_STREAMS = 64
"""Streams whose schedules are held for requests."""

READ_WAIT_SECONDS = 1.5
"""Longest wait of a request until a stream is read: requesters wait 2 s by default."""

FIRES_AGE_SECONDS = 1.0
"""The fires of the server are read again after this time: what asks for them asks for the schedules too."""

LATEST_LIMIT_SECONDS = 30.0
"""If reading what is new takes longer than a request waits, the answer is what was read at most this time ago."""

IDLE_LIMIT_SECONDS = 300.0
"""After this time without a request the schedules of a stream are released."""

IDLE_CHECK_INTERVAL_SECONDS = 30.0

AGE_LIMIT_SECONDS = 3600.0
"""After this time a stream is read anew: what is held of replaced versions is released only with the rest."""

REFUSED_SECONDS = 60.0
"""A stream with too many schedules is read again after this time, and refused at once before."""


class _Watch:
    """One stream that was asked about."""

    def __init__(self) -> None:
        self.read: WatchedStream | None = None
        """The last reading that reached its end."""
        self.begun: WatchedStream | None = None
        """The reading that is in progress from the beginning of the stream; after an error it is continued."""
        self.fresh_at = float("-inf")
        """The start (by the loop's clock) of the last update of `read`: what was stored until then is in it."""
        self.asked_at = float("-inf")
        """The time of the last question about it."""
        self.reading = SingleFlight[None]()
        """What brings it up to date."""
        self.progress = (0, 0)
        """The sequence that was reached, and the one that is to be reached."""
        self.refused: tuple[float, str] = float("-inf"), ""
        """Until when it is refused, and why."""

    @property
    def readings(self) -> list[WatchedStream]:
        """What is held of it."""
        return [read for read in (self.read, self.begun) if read is not None]

    @property
    def bytes(self) -> int:
        """The bytes that it takes at most."""
        return sum(read.bytes for read in self.readings)

    @property
    def is_in_use(self) -> bool:
        """True if it is being read, or a request has a view of it."""
        return self.reading.is_running or (self.read is not None and self.read.is_in_use)

    def released(self) -> list[WatchedStream]:
        """Hold nothing any more; returns what is to be emptied when no request has a view of it."""
        released = self.readings
        self.read = self.begun = None
        return released


class WatchedStreams:
    """The streams of one connection that are watched."""

    def __init__(self, connection: Connection, api: JetStreamApi, now: Callable[[], int], turns: Turns) -> None:
        """Read nothing yet; `now` returns the time (ns since the Unix epoch) by the server's clock.

        Work is done in `turns` with that of all requests.
        """
        self._access = ReadAccess(connection, api, now, turns)
        self._kept: dict[str, _Watch] = {}
        self._released: list[WatchedStream] = []
        """The readings that are to be emptied."""
        self._is_open = False
        self._loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Read for those who ask, and release what nobody asks about; at the end all is released."""
        try:
            async with TaskGroup() as tasks:
                releasing, self._is_open = tasks.create_task(self._keep_releasing()), True
                try:
                    yield
                finally:
                    self._is_open = False
                    releasing.cancel()
        finally:  # no request is answered any more, and nothing fires through this connection
            for kept in list(self._kept.values()):
                await kept.reading.close()
            for kept in self._kept.values():
                self._released += kept.released()
            self._kept.clear()
            while self._released:
                deque(self._released.pop().emptied(), maxlen=0)

    async def _keep_releasing(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK_INTERVAL_SECONDS)
            with suppress(ServiceError):  # there was no time for it
                await self.release_idle()

    async def release_idle(self) -> None:
        """Release the streams that nobody asked about for long, and empty what was released."""
        before = self._loop.time() - IDLE_LIMIT_SECONDS
        for name, kept in list(self._kept.items()):
            if kept.asked_at < before and not kept.is_in_use:
                self._released += self._kept.pop(name).released()
        await self._empty_released()

    async def _empty_released(self) -> None:
        """Empty what no request has a view of."""
        while (read := next((one for one in self._released if not one.is_in_use), None)) is not None:
            self._released.remove(read)
            is_emptied = False
            try:
                await self._access.turns.run(read.emptied())
                is_emptied = True
            finally:
                if not is_emptied:
                    self._released.append(read)

    async def read(self, name: str, fired_by: FiredBy, within: float = READ_WAIT_SECONDS) -> tuple[EngineView, int]:
        """Return the view of a stream as it is now, and the sequence up to which it was read.

        Waits at most `within` seconds. Raises `ServiceError`, or `SchedulerError` if the server does not answer.
        """
        read = await self._read(name, fired_by, within)
        return read.view, read.through

    async def fires(self, name: str, within: float) -> ReadFires:
        """Return what the server has fired on a stream, as of `FIRES_AGE_SECONDS` ago or later; raises as `read`."""
        kept = self._kept.get(name)
        if kept is None or kept.read is None or self._loop.time() - kept.fresh_at > FIRES_AGE_SECONDS:
            return (await self._read(name, FiredBy.SERVER, within)).fires
        return kept.read.fires

    async def _read(self, name: str, fired_by: FiredBy, within: float) -> WatchedStream:
        asked_at, kept = self._loop.time(), self._kept.get(name) or _Watch()
        kept.asked_at = asked_at
        while kept.fresh_at < asked_at or kept.read is None:
            kept = self._kept.setdefault(name, kept)  # it may have been released while it was waited for
            update, left = partial(self._bring_up_to_date, name, kept, fired_by), asked_at + within - self._loop.time()
            try:
                await kept.reading.get(update, since=asked_at, patience=left)
            except UnfinishedError:
                return self._latest(name, kept)
        return kept.read

    def _latest(self, name: str, kept: _Watch) -> WatchedStream:
        """Return what was read a moment ago, because reading takes longer than a requester waits."""
        if kept.read is not None and self._loop.time() - kept.fresh_at < LATEST_LIMIT_SECONDS:
            return kept.read
        reached, last = kept.progress
        sentence = f"stream {name!r} is being read, and sequence {reached} of {last} is reached: ask again"
        raise ServiceError(UNAVAILABLE, sentence)

    # -- one stream ----------------------------------------------------------------------------------------------

    async def _bring_up_to_date(self, name: str, kept: _Watch, fired_by: FiredBy) -> tuple[None, float]:
        if not self._is_open:
            raise ServiceError(UNAVAILABLE, "the service is not ready: ask again")
        began, (refused_until, why) = self._loop.time(), kept.refused
        if began < refused_until:
            raise ServiceError(UNAVAILABLE, why)
        if (info := await self._access.api.stream(name)) is None:
            self._released += kept.released()
            raise ServiceError(NOT_FOUND, f"stream {name!r} does not exist")
        state, numbers = StreamState.from_info(info), Numbers.of(info)
        if not all(read.is_of(state, fired_by) for read in kept.readings):
            self._released += kept.released()
        read = kept.begun or kept.read
        if read is None or (kept.begun is None and self._is_to_be_read_anew(read, numbers)):
            if read is not None and 2 * read.bytes > MAX_BYTES:
                self._released += kept.released()  # else it answers requests until the new one is read
            read = kept.begun = WatchedStream(self._access, state, fired_by, numbers)

        async def bound() -> None:
            kept.progress = read.through, numbers.last
            await self._make_room(name, kept)

        await read.read_on(numbers, bound)
        if kept.read is not None and kept.read is not read:
            self._released.append(kept.read)
        kept.read, kept.begun, kept.fresh_at = read, None, began
        return None, 0.0

    def _is_to_be_read_anew(self, read: WatchedStream, numbers: Numbers) -> bool:
        return self._loop.time() - read.began > AGE_LIMIT_SECONDS or read.is_cheaper_anew(numbers)

    async def _make_room(self, name: str, kept: _Watch) -> None:
        """Release the streams that were not asked about for longest; raise `ServiceError` if that is not enough."""
        if self._total() <= MAX_BYTES and len(self._kept) <= MAX_STREAMS:
            return
        await self._empty_released()
        for one in list(self._kept.values()):
            for read in one.readings:
                await read.measure()
        limit = MAX_BYTES - MAX_BYTES // MEASURED_ROOM
        others = [(one.asked_at, other, one) for other, one in self._kept.items() if one is not kept]
        for _asked_at, other, one in sorted(others, key=lambda row: row[0]):
            if (self._total() > limit or len(self._kept) > MAX_STREAMS) and not one.is_in_use:
                self._released += self._kept.pop(other).released()
                await self._empty_released()
        if self._total() > limit:
            is_alone, count = kept.bytes > limit, sum(read.count for read in kept.readings)
            self._released += kept.released()
            if not is_alone:
                raise ServiceError(UNAVAILABLE, f"stream {name!r}: other requests are being answered: ask again")
            sentence = (
                f"stream {name!r} holds too many schedules that the sidecar does not fire: {count} of them take the "
                f"{MAX_BYTES // 1_000_000} MB that there are for requests; `nats-scheduler ls` reads the stream itself"
            )
            kept.refused = self._loop.time() + REFUSED_SECONDS, sentence
            raise ServiceError(UNAVAILABLE, sentence)

    def _total(self) -> int:
        held = sum(one.bytes for one in self._kept.values())
        return held + sum(read.bytes for read in self._released)
