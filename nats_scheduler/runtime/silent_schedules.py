"""Report schedules that are to fire and do not, as their patterns show: asked of each stream that is owned, in turn.

The rules:

- It is asked beside the engine, which notes nothing for it (`engine.views.silent`): a schedule that the engine has
  forgotten is found too.
- A silence is reported once, and again after each further day for as long as it lasts. One that ends, and begins again,
  is another one.
- A stream without contact, or whose schedules all fire once, is not asked.

Cost: a pause after each question is `PAUSE_FACTOR` times as long as the question took, its rests for others included,
so that all of it takes less than a quarter of a percent of one core, however many schedules there are: with 10,000 that
repeat a round takes two minutes, with 100,000 twenty, and longer on a busy machine. What fires once costs nothing.
Limits: `MAX_REPORTED` silences are known; beyond that the oldest are forgotten, and reported again. After a restart,
and by another owner, what lasts is reported again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.events import Event, ScheduleSilent
from nats_scheduler.engine.firing.silence import REPEATED_AFTER_NS
from nats_scheduler.engine.views.silent import BEGINNING, Place
from nats_scheduler.message.silence import Silence
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.service.turns import Turns

ROUND_INTERVAL_SECONDS = 60.0
"""The shortest time from the beginning of one round to that of the next."""

PAUSE_FACTOR = 250
"""A pause is this number of times as long as the question before it took."""

MAX_REPORTED = 10_000
"""Silences that are known to be reported."""

Known = tuple[str, str, int, Silence, int]
"""A silence: the stream, the schedule, its sequence, the cause, and since when (ns); 0 after a wrong clock, where the
first fire that is skipped is always the next one."""


class SilentSchedules:
    """The schedules that are silent, for as long as the process runs."""

    def __init__(
        self,
        services: Mapping[str, StreamService],
        now: Callable[[], int],
        report: Callable[[str, Event], None],
        turns: Turns,
    ) -> None:
        """Ask about these streams; `now` returns the server's time (ns)."""
        self._services = services
        self._now = now
        self._report = report
        self._turns = turns
        self._reported: dict[Known, int] = {}
        """When (ns) each silence was reported last, the one that was reported longest ago first."""

    async def keep_checking(self) -> None:
        """Check all streams, one after the other, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            until = loop.time() + ROUND_INTERVAL_SECONDS
            for name in list(self._services):
                place: Place | None = BEGINNING
                while place is not None:
                    began = loop.time()
                    place = await self.check(name, place)
                    await asyncio.sleep(PAUSE_FACTOR * (loop.time() - began))
            await asyncio.sleep(max(until - loop.time(), 0.0))

    async def check(self, stream: str, after: Place) -> Place | None:
        """Report what is silent of the next schedules behind a place; returns where to go on, None at the end."""
        service = self._services.get(stream)
        if service is None or not (service.is_owner and service.is_ready) or not _has_repeating(service):
            return None
        with suppress(SchedulerError):
            now = self._now()

            def is_reported(event: ScheduleSilent) -> bool:
                reported_at = self._reported.get(_known(stream, event))
                return reported_at is not None and now - reported_at < REPEATED_AFTER_NS

            found = await self._turns.ask(service.engine.silent(now, after, is_reported))
            for event in found.events if service.is_owner else ():
                self._note(_known(stream, event), now)
                self._report(stream, event)
            return found.following
        return None

    def _note(self, known: Known, now: int) -> None:
        self._reported.pop(known, None)
        self._reported[known] = now
        if len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]


def _known(stream: str, event: ScheduleSilent) -> Known:
    since = 0 if event.cause is Silence.CLOCK else event.since
    return stream, event.schedule, event.sequence, event.cause, since


def _has_repeating(service: StreamService) -> bool:
    kinds = service.engine.held.kinds
    return kinds.total() > kinds[PatternKind.AT]
