"""Judge which instances can serve a stream: by what was denied to us, and whether its owner fires.

The policy is `engine.ownership.ability`. Here the facts for it are collected, and what it decides is reported to the
operator.

The rule: an owner that seems idle is judged only after we have read all that was stored when it began to seem so; a
follower that is late receives no fires either.
Limit: on streams whose messages are not all read (work queue, interest) the fires of others are not received, and no
owner is judged by them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from nats_scheduler.engine.holding.ownership import Denied
from nats_scheduler.engine.ownership.ability import Ability
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.task_group import Work
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.server_port import StreamInformation
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import SECOND

ALL_REFUSED_LIMIT_NS = 2 * SECOND
"""A stream that refuses fires of ours, and has stored none for this time (ns), may refuse those of others as well."""

STREAM_INFO_LIMIT_SECONDS = 1.5
"""Longest wait for the information about a stream; it is requested again at the next check."""

JudgeOwner = Callable[[str, int, int, int], str | None]
"""Takes a stream's key, what was not fired, what was fired last, and the time; see `Owners.judge_owner`."""


class Judgement:
    """The notes of one instance about the ability of itself and of others."""

    def __init__(
        self, ability: Ability, judge_owner: JudgeOwner, api: StreamInformation, clock: Clock, reporter: Reporter
    ) -> None:
        self._ability = ability
        self._judge_owner = judge_owner
        self._api = api
        self._clock = clock
        self._reporter = reporter
        self._denied: dict[str, Denied] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        """By stream that refuses some fires, the number of fires stored, and the instant (ns) at which it changed."""
        self._to_read: dict[str, int] = {}
        """The sequence up to which a stream has to be read before its owner is judged."""
        self._concerning: dict[str, None] = {}
        """The streams about which something is noted, here or by their engines, in the order in which it was found."""

    def check(self, streams: Mapping[str, StreamService], changed: Iterable[str]) -> list[Work]:
        """Note what was denied to us, and return the work that has to be done to judge others.

        `changed` are the keys of the streams that changed since the last check, and of all that are in trouble.
        """
        now = self._clock.monotonic()
        works: list[Work] = []
        for key in list(dict.fromkeys((*self._concerning, *changed))):
            stream = streams.get(key)
            if stream is None or not self._is_to_judge(key, stream):
                self._concerning.pop(key, None)
                continue
            self._concerning[key] = None
            denied, name = stream.denied, stream.state.name
            if denied is not None and denied is not self._denied.get(key):
                self._denied[key] = denied
                if self._ability.denied(key, denied.reason[:MAX_KEPT_CHARS], now):
                    self._reporter.cannot_serve(name, denied.reason)
            if self._refuses_all(key, stream, now):
                self._ability.trust_again(key, now)
            elif stream.engine.ownership.unfired or key in self._to_read:
                works.append(partial(self._judge, key, stream))
        for key in self._ability.passed(now):
            self._reporter.became_able(key.partition(".")[2])
        return works

    def _is_to_judge(self, key: str, stream: StreamService) -> bool:
        """Return whether there is anything to judge on a stream: on most there is nothing."""
        is_noted = key in self._stored or key in self._to_read
        engine = stream.engine
        return is_noted or stream.denied is not None or bool(engine.failing_count or engine.ownership.unfired)

    def _refuses_all(self, key: str, stream: StreamService, now: int) -> bool:
        """Return whether a stream stores none of our fires at the moment."""
        if not stream.engine.failing_count:
            self._stored.pop(key, None)
            return False
        stored, since = self._stored.get(key, (-1, now))
        if stored != stream.engine.fires_stored:
            self._stored[key] = stream.engine.fires_stored, now
            return False
        return now - since >= ALL_REFUSED_LIMIT_NS

    async def _judge(self, key: str, stream: StreamService) -> None:
        """Pass over the owner of a stream if it does not fire."""
        now = self._clock.monotonic()
        ownership = stream.engine.ownership
        if not stream.engine.is_live or not ownership.unfired:
            self._to_read.pop(key, None)
            self._judge_owner(key, 0, ownership.last_fired, now)
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
            return  # what seemed not to be fired may have been read back meanwhile: it is judged at the next check
        if stream.engine.last_read < self._to_read[key]:
            return
        since = ownership.unfired
        idle = self._judge_owner(key, since, ownership.last_fired, now)
        if idle is not None:
            self._to_read.pop(key, None)
            self._reporter.instance_not_firing(stream.state.name, idle, since)
