"""Fires into other streams of the account: publish them, and look whether one is stored there already.

Which stream has a subject only the server knows, and it may change: an acknowledgement names the stream, and a look
asks for it (`STREAM.LIST` with the subject).

A look reads the last message on the target. Nearly always that is enough: it is older than the fire, or the fire
itself. Otherwise what was stored since is read, from the newest message back, and kept for the looks that follow on the
same target (`TargetReading`): after an outage thousands of schedules with one target look for their fires together.

The rules:

- A look that could not read everything has failed. To send the fire then could store it twice.
- On a stream with replicas a fire that was sent may be accepted and not applied yet: its leader is asked first to apply
  all that it has accepted (`jetstream.reach`). Its acknowledgement may come later than its duplicate window ends.
- What was removed from the stream, by its consumers or its limits, is not found.

Cost: two requests a look, one if the stream is known, none if its target was read within the last second; 10 µs for
each message on a shared target, once.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from nats_scheduler.engine.actions import Notify
from nats_scheduler.engine.fire import (
    Fire,
    LookForFire,
)
from nats_scheduler.engine.inputs import (
    NO_STREAM,
    FireLookedFor,
    Input,
    Unanswered,
)
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.publish import Publisher
from nats_scheduler.jetstream.reach import BoundedRequests, Combined, apply_all
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.fires import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.reading import is_fire_since, read_generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered

# The fires among the messages on one target in another stream, read once for all schedules that look for theirs.
#
# The rule: everything on the target that was stored since an instant is read, from the newest message back; a later
# look reads only what was stored since, or what is older than what was read. What was read within the last second is
# not read again: while fires of thousands of schedules land on one target, each look would read those of the others.
#
# Cost: 10 µs for each message on the target where a consumer is harmless, else one request for each; a few hundred
# bytes for each fire among them.

FRESH_SECONDS = 1.0
"""For this time what was read counts as all that is stored; the duplicate window protects what is stored meanwhile."""

MAX_FIRES_KEPT = 16
"""Fires of one schedule that are kept, those for the latest fire times: the last one matters, others may be forged."""


class TargetReading:
    """The fires on one target, as far as they were read."""

    def __init__(self, connection: Connection, api: JetStreamApi, target: str) -> None:
        self._connection = connection
        self._api = api
        self._target = target
        self._fires: dict[tuple[str, int], list[tuple[int, StoredMessage]]] = {}
        """Of each version of a schedule, by subject and sequence, its fires and their fire times."""
        self._since: int | None = None
        """From which instant (ns) on everything is known that is stored up to sequence `_through`; None: nothing."""
        self._from = 0
        """The lowest sequence that was read."""
        self._through = 0
        self._read_at = -FRESH_SECONDS
        """The time (by the loop's clock) at which the last read began that was finished."""
        self._loop = asyncio.get_running_loop()
        self._reading = asyncio.Lock()

    def knows(self, since: int, not_before: float) -> bool:
        """Return whether everything that was stored from `since` (ns) on until about now was read.

        What was read before an instant of the loop's clock does not count.
        """
        is_fresh = self._read_at >= max(not_before, self._loop.time() - FRESH_SECONDS)
        return is_fresh and self._since is not None and self._since <= since

    def of(self, schedule: str, sequence: int) -> Sequence[StoredMessage]:
        """Return the fires of a version of a schedule that were read."""
        return [message for _fire_time, message in self._fires.get((schedule, sequence), ())]

    async def read_since(self, stream: StreamState, since: int, last: int, not_before: float) -> None:
        """Read what was stored from `since` (ns) on, up to sequence `last`, the last message on the target just now.

        What was read before `not_before`, by the loop's clock, does not count.

        Raises `JetStreamError` if not everything could be read.
        """
        async with self._reading:
            if self.knows(since, not_before):
                return  # another look has read it meanwhile
            began = self._loop.time()
            if self._since is None:
                self._from = last + 1
                await self._read(stream, since, stream.first_sequence, last)
                self._since, self._through = since, last
            if last > self._through:
                await self._read(stream, None, self._through + 1, last)
                self._through = last
            if since < self._since:
                await self._read(stream, since, stream.first_sequence, self._from - 1)
                self._since = since
            self._read_at = began

    async def _read(self, stream: StreamState, since: int | None, first: int, last: int) -> None:
        """Read between two sequences, and no further back than what was stored before `since` (ns)."""
        reader = StretchReader(self._connection, self._api, stream.config, self._target)
        async for chunk in reader.backwards(max(first, 1), last):
            for message in chunk:
                self._keep(message)
            if since is not None and chunk:
                self._from = min(self._from, chunk[-1].sequence)
                if chunk[-1].stored_at < since:
                    return

    def _keep(self, message: StoredMessage) -> None:
        generated = read_generated(message.block)
        if generated is None:
            return
        fires = self._fires.setdefault((generated.schedule, generated.sequence), [])
        fires.append((generated.fire_time, message))
        if len(fires) > MAX_FIRES_KEPT:
            fires.remove(min(fires, key=lambda fire: fire[0]))


MAX_LOOKS_IN_FLIGHT = 256
"""As many as fires in flight: each look stands for a fire."""

STREAM_KNOWN_SECONDS = 2.0
"""The subjects of a stream are known for this time; if it gives up a subject meanwhile, that is not noticed."""

READING_KEPT_SECONDS = 5.0
"""The readings of targets are kept for this time after the last look."""


class ElsewhereContact:
    """The contact of one stream with the others that have targets of its schedules.

    It costs nothing before the first of their fires: most streams have none.
    """

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        *,
        window: int,
        ack_timeout: float,
    ) -> None:
        self._connection = connection
        self._api = api
        self._new_publisher = partial(Publisher, connection, "", notify, window=window, ack_timeout=ack_timeout)
        self._publisher: Publisher | None = None
        self._streams: list[tuple[float, StreamState]] = []
        """The streams that are known, and until when."""
        self._readings: dict[tuple[str, str, str], TargetReading] = {}
        """The readings of targets, by the name and the creation of a stream, and by target."""
        self._tasks = tasks
        self._leaders: dict[str, Combined[bool]] = {}
        self._loop = asyncio.get_running_loop()
        self._clearing: asyncio.TimerHandle | None = None
        self._looks = BoundedRequests(notify, tasks, ask=self._ask, limit=MAX_LOOKS_IN_FLIGHT)
        self._ended: str | None = None

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store fires, in this order."""
        if self._publisher is None:
            self._publisher = self._new_publisher()
            if self._ended is not None:
                self._publisher.end(self._ended)
        self._publisher.publish(fires)

    def look_for(self, request: LookForFire) -> None:
        """Begin a look, which is answered by one input."""
        self._looks.begin(request)

    def end(self, reason: str) -> None:
        """Answer everything that is still open, and what comes later, with `reason`."""
        self._ended = reason
        if self._publisher is not None:
            self._publisher.end(reason)
        self._looks.end(reason)
        if self._clearing is not None:
            self._clearing.cancel()

    async def _ask(self, request: LookForFire) -> Input:
        self._clear_later()
        stream = await self._stream_of(request.fire.target)
        if stream is None:
            return Unanswered(request, NO_STREAM.description, refusal=NO_STREAM)
        return FireLookedFor(request.fire, await self._find(stream, request), request.first)

    async def _find(self, stream: StreamState, request: LookForFire) -> Sequence[StoredMessage]:
        fire, since = request.fire, request.since - MAX_CLOCK_DIFFERENCE_NS
        key = stream.name, stream.created, fire.target
        reading = self._readings.get(key)
        not_before = self._loop.time() if request.was_sent else -FRESH_SECONDS
        if reading is not None and reading.knows(since, not_before):
            return self._claims(reading, request)
        if request.was_sent and integer(stream.config.get("num_replicas"), 1) > 1:
            await self._leader_of(stream.name).answer()
            not_before = self._loop.time()
        last = await last_on(self._api, stream.name, fire.target)
        if last is None:
            return ()
        if last.stored_at < since or _is_fire(last, fire, fire.fire_time):
            return (last._replace(body=None),) if _is_fire(last, fire, request.first) else ()
        if reading is None:
            reading = self._readings.setdefault(key, TargetReading(self._connection, self._api, fire.target))
        await reading.read_since(stream, since, last.sequence, not_before)
        return self._claims(reading, request)

    def _leader_of(self, stream: str) -> Combined[bool]:
        """Return what asks the leader of a stream to apply all, once for the looks of one moment."""
        return self._leaders.setdefault(stream, Combined(self._tasks, lambda: apply_all(self._api, stream)))

    def _claims(self, reading: TargetReading, request: LookForFire) -> Sequence[StoredMessage]:
        """Return which of the messages that were read matter to a look."""
        fire, first = request.fire, request.first
        return [message for message in reading.of(fire.schedule, fire.sequence) if _is_fire(message, fire, first)]

    async def _stream_of(self, target: str) -> StreamState | None:
        """Return the stream that has a target as one of its subjects."""
        now = self._loop.time()
        self._streams = [known for known in self._streams if known[0] > now]
        for _until, stream in self._streams:
            if is_covered(target, stream.rules.subjects):
                return stream
        info = await self._api.stream_with(target)
        if info is None:
            return None
        stream = StreamState.from_info(info)
        self._streams.append((now + STREAM_KNOWN_SECONDS, stream))
        return stream

    def _clear_later(self) -> None:
        if self._clearing is not None:
            self._clearing.cancel()
        self._clearing = self._loop.call_later(READING_KEPT_SECONDS, self._readings.clear)


def _is_fire(message: StoredMessage, fire: Fire, first: int) -> bool:
    return is_fire_since(message.block, fire.schedule, fire.sequence, first)
