"""Judge which instances can serve a stream by what its engine has seen: what was denied to us, and which holders do not
fire.

The policy is `engine.ability`. Here the facts for it are collected, and what it decides is reported to the operator.

The rule: a holder that seems idle is judged only after we have read all that was stored when it began to seem so; a
follower that is late sees no fires either.
Cost: some comparisons at each check for each stream that changed since the last one, or about which something is
noted; a request to the server if a holder seems idle.
Limit: on streams whose messages are not all read (work queue, interest) the fires of others are not seen, and no holder
is judged by them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from nats_scheduler.engine.ability import Ability
from nats_scheduler.engine.ownership import Denied
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.port import StreamInformation
from nats_scheduler.schedule.instants import SECOND

ALL_REFUSED_LIMIT_NS = 2 * SECOND
"""A stream that refuses fires of ours, and has stored none for so long (ns), may refuse those of others as well."""

STREAM_INFO_LIMIT_SECONDS = 1.5
"""Longest wait for the information about a stream; it is requested again at the next check."""

Relieve = Callable[[str, Mapping[int, int], Sequence[int], int], list[str]]
"""Takes a stream's key, its neglected shards, when each shard fired last, and the time; see `Leases.relieve_idle`."""


class JudgedStream(Protocol):
    """What a stream's service is asked here; see `runtime.stream_service`."""

    @property
    def state(self) -> StreamState:
        """What the server said of the stream last."""

    @property
    def is_live(self) -> bool:
        """Whether all that is stored has been read."""

    @property
    def last_read(self) -> int:
        """The sequence of the last message that was read."""

    @property
    def fires_stored(self) -> int:
        """How many fires of ours were stored."""

    @property
    def is_failing(self) -> bool:
        """Whether the server refuses a fire at the moment."""

    @property
    def denied(self) -> Denied | None:
        """What the server denied us last that a holder has to do."""

    @property
    def neglected(self) -> Mapping[int, int]:
        """The shards of other holders for which nothing fires, each with the first fire time (ns) not met."""

    @property
    def last_fired(self) -> Sequence[int]:
        """By shard, the last fire time (ns) that was read back."""


class Judgement:
    """What one instance has noted about the ability of itself and of others."""

    def __init__(
        self, ability: Ability, relieve: Relieve, api: StreamInformation, clock: Clock, reporter: Reporter
    ) -> None:
        self._ability = ability
        self._relieve = relieve
        self._api = api
        self._clock = clock
        self._reporter = reporter
        self._denied: dict[str, Denied] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        """How many fires of a stream that refuses some were stored, and when (ns) that number changed."""
        self._to_read: dict[str, int] = {}
        """How far a stream has to be read before its holders are judged."""
        self._concerning: dict[str, None] = {}
        """The streams about which something is noted, here or by their engines, in the order in which it was found."""

    def check(self, streams: Mapping[str, JudgedStream], changed: Iterable[str]) -> list[Callable[[], Awaitable[None]]]:
        """Note what was denied to us, and return the work that has to be done to judge others.

        `changed` are the keys of the streams that changed since the last check, and of all that are in trouble.
        """
        now = self._clock.monotonic()
        works: list[Callable[[], Awaitable[None]]] = []
        for key in list(dict.fromkeys((*self._concerning, *changed))):
            stream = streams.get(key)
            if stream is None or not self._is_to_judge(key, stream):
                self._concerning.pop(key, None)
                continue
            self._concerning[key] = None
            denied, name = stream.denied, stream.state.name
            if denied is not None and denied is not self._denied.get(key):
                self._denied[key] = denied
                if self._ability.denied(key, denied.shard, denied.reason[:MAX_KEPT_CHARS], now):
                    self._reporter.cannot_serve(name, denied.reason)
            if self._refuses_all(key, stream, now):
                self._ability.end_reliefs(key, now)
            elif stream.neglected or key in self._to_read:
                works.append(partial(self._judge, key, stream))
        for key in self._ability.passed(now):
            self._reporter.can_serve_again(key.partition(".")[2])
        return works

    def _is_to_judge(self, key: str, stream: JudgedStream) -> bool:
        """Return whether there is anything to judge on a stream: on most there is nothing."""
        is_noted = key in self._stored or key in self._to_read
        return is_noted or stream.denied is not None or stream.is_failing or bool(stream.neglected)

    def _refuses_all(self, key: str, stream: JudgedStream, now: int) -> bool:
        """Return whether a stream stores none of our fires at the moment."""
        if not stream.is_failing:
            self._stored.pop(key, None)
            return False
        stored, since = self._stored.get(key, (-1, now))
        if stored != stream.fires_stored:
            self._stored[key] = stream.fires_stored, now
            return False
        return now - since >= ALL_REFUSED_LIMIT_NS

    async def _judge(self, key: str, stream: JudgedStream) -> None:
        """Relieve the instances that hold shards of a stream and do not fire."""
        now = self._clock.monotonic()
        if not stream.is_live or not stream.neglected:
            self._to_read.pop(key, None)
            self._relieve(key, {}, stream.last_fired, now)
            return
        if key not in self._to_read:
            try:
                async with asyncio.timeout(STREAM_INFO_LIMIT_SECONDS):
                    info = await self._api.stream(stream.state.name)
            except TimeoutError:
                return
            if info is None:
                return
            self._to_read[key] = StreamState.from_info(info).last_sequence
            return  # what seemed neglected may have been read back meanwhile: it is judged at the next check
        if stream.last_read < self._to_read[key]:
            return
        since = min(stream.neglected.values())
        for holder in self._relieve(key, stream.neglected, stream.last_fired, now):
            self._to_read.pop(key, None)
            self._reporter.instance_not_firing(stream.state.name, holder, since)
