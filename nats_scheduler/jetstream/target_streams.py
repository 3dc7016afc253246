"""Fires into other streams of the account: publish them, and look whether one is stored there already.

Which stream has a subject only the server knows, and it may change: an acknowledgement names the stream, and a look
asks for it (`STREAM.LIST` with the subject).

A look reads the last message on the target. Nearly always that is enough: it is older than the fire, or the fire
itself. Otherwise what was stored since is read, from the newest message back, and kept for the looks that follow on
the same target (`jetstream.target_fires`): after an outage thousands of schedules look for fires on one target.

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

from nats_scheduler.engine.fire import Fire, LookForFire
from nats_scheduler.engine.inputs import NO_STREAM, FireLookedFor, Input, Unanswered
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.bounded_requests import BoundedRequests
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.publish import Publisher
from nats_scheduler.jetstream.reach import apply_all
from nats_scheduler.jetstream.single_flight import SingleFlights, loop_time
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.target_fires import FRESH_SECONDS, TargetFires
from nats_scheduler.message.fire_faults import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.reading import is_fire_since
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered

MAX_LOOKS_IN_FLIGHT = 256
"""As many as fires in flight: each look stands for a fire."""

MAX_LEADERS = 64
"""Streams whose leaders are asked once for the looks of one moment; of more each look asks."""

STREAM_KNOWN_SECONDS = 2.0
"""The subjects of a stream are known for this time; if it gives up a subject meanwhile, that is not noticed."""

READING_KEPT_SECONDS = 5.0
"""The readings of targets are kept for this time after the last look."""


class TargetStreamContact:
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
        self._readings: dict[tuple[str, str, str], TargetFires] = {}
        """The readings of targets, by the name and the creation of a stream, and by target."""
        self._leaders = SingleFlights[bool](MAX_LEADERS)
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
            await self._leaders.of(stream.name).get(partial(self._apply_all, stream.name), since=loop_time())
            not_before = self._loop.time()
        last = await last_on(self._api, stream.name, fire.target)
        if last is None:
            return ()
        if last.stored_at < since or _is_fire(last, fire, fire.fire_time):
            return (last._replace(body=None),) if _is_fire(last, fire, request.first) else ()
        if reading is None:
            reading = self._readings.setdefault(key, TargetFires(self._connection, self._api, fire.target))
        await reading.read_since(stream, since, last.sequence, not_before)
        return self._claims(reading, request)

    async def _apply_all(self, stream: str) -> tuple[bool, float]:
        return await apply_all(self._api, stream), 0.0

    def _claims(self, reading: TargetFires, request: LookForFire) -> Sequence[StoredMessage]:
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
