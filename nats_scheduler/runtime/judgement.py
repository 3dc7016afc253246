"""Judge who can serve a stream by what its engine has seen: what was denied to us, and who holds and fires nothing.

The policy is `engine.fitness`; here its facts are gathered, and what it decides is told to the operator.

The rule: who seems idle is judged only when we have read all that was stored when it began to seem so; a follower
that is late sees no fires either.
Cost: some comparisons at each look for each stream that was stepped since the one before, or of which something is
noted; a request to the server where somebody seems idle.
Limit: on streams whose messages are not all read (work queue, interest) the fires of others are not seen, and nobody is
judged by them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from nats_scheduler.engine.fitness import Fitness
from nats_scheduler.engine.ownership import Denied
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.port import StreamInformation
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import SECOND

ALL_REFUSED_LIMIT_NS = 2 * SECOND
"""A stream that refuses our fires and has stored none for so long (ns) may refuse those of others as well."""

STREAM_INFO_LIMIT_SECONDS = 1.5
"""Longest wait for what the server says of a stream; it is asked again at the next look."""

Relieve = Callable[[str, Mapping[int, int], Sequence[int], int], list[str]]


class Judgement:
    """What one instance makes of itself and of others."""

    def __init__(
        self, fitness: Fitness, relieve: Relieve, api: StreamInformation, clock: Clock, reporter: Reporter
    ) -> None:
        self._fitness = fitness
        self._relieve = relieve
        self._api = api
        self._clock = clock
        self._reporter = reporter
        self._denied: dict[str, Denied] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        """How many fires of a stream that refuses some were stored, and when (ns) that number changed."""
        self._to_read: dict[str, int] = {}
        """How far a stream has to be read before somebody is judged."""
        self._concerning: dict[str, None] = {}
        """The streams of which something is noted, by us or by their engines; in the order in which that was found."""

    def look(
        self, services: Mapping[str, StreamService], stepped: Iterable[str]
    ) -> list[Callable[[], Awaitable[None]]]:
        """Note what was denied to us, and return what is to be done to judge others.

        `stepped` are the keys of all streams whose engines have stepped since the last look.
        """
        now = self._clock.monotonic()
        works: list[Callable[[], Awaitable[None]]] = []
        for key in list(dict.fromkeys((*self._concerning, *stepped))):
            service = services.get(key)
            if service is None or not self._concerns_us(key, service.driver.engine):
                self._concerning.pop(key, None)
                continue
            self._concerning[key] = None
            engine = service.driver.engine
            ownership, name = engine.ownership, service.state.name
            denied = ownership.denied
            if denied is not None and denied is not self._denied.get(key):
                self._denied[key] = denied
                if self._fitness.denied(key, denied.shard, denied.reason[:MAX_KEPT_CHARS], now):
                    self._reporter.cannot_serve(name, denied.reason)
            if self._is_ill(key, service, now):
                self._fitness.end_reliefs(key, now)
            elif ownership.neglected or key in self._to_read:
                works.append(partial(self._judge, key, service))
        for key in self._fitness.passed(now):
            self._reporter.can_serve_again(key.partition(".")[2])
        return works

    def _concerns_us(self, key: str, engine: StreamEngine) -> bool:
        """Return whether there is anything to judge of a stream: of most there is nothing."""
        is_noted = key in self._stored or key in self._to_read
        return is_noted or engine.ownership.denied is not None or engine.is_failing or bool(engine.ownership.neglected)

    def _is_ill(self, key: str, service: StreamService, now: int) -> bool:
        """Tell whether a stream takes none of our fires for the time being."""
        engine = service.driver.engine
        if not engine.is_failing:
            self._stored.pop(key, None)
            return False
        stored, since = self._stored.get(key, (-1, now))
        if stored != engine.fires_stored:
            self._stored[key] = engine.fires_stored, now
            return False
        return now - since >= ALL_REFUSED_LIMIT_NS

    async def _judge(self, key: str, service: StreamService) -> None:
        """Relieve who holds shards of a stream and fires nothing."""
        engine, now = service.driver.engine, self._clock.monotonic()
        if not engine.is_live or not engine.ownership.neglected:
            self._to_read.pop(key, None)
            self._relieve(key, {}, engine.ownership.last_fired, now)
            return
        if key not in self._to_read:
            try:
                async with asyncio.timeout(STREAM_INFO_LIMIT_SECONDS):
                    info = await self._api.stream(service.state.name)
            except TimeoutError:
                return
            if info is None:
                return
            self._to_read[key] = StreamState.from_info(info).last_sequence
            return  # what seemed neglected may have been seen meanwhile: judged at the next look
        if engine.last_read < self._to_read[key]:
            return
        since = min(engine.ownership.neglected.values())
        for holder in self._relieve(key, engine.ownership.neglected, engine.ownership.last_fired, now):
            self._to_read.pop(key, None)
            self._reporter.holder_relieved(service.state.name, holder, since)
