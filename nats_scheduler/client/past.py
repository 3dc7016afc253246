"""The fires of a schedule that are stored, read from the stream of its target backwards.

No request of JetStream reads backwards. So the messages on the target in a range of sequences at the end are read, in
parts side by side, then those of the range before it, which is longer if there were few.

The rules are those of `message.fires`, by which `nats-scheduler history` reads too.

Cost: a request for each message on the target that is read, bodies included.
Limit: what was removed from the stream is not found.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from nats_scheduler.client.wire import Object, Requests, inner, whole
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.port import Kept, Served, StoredFires, known_from, stored_fires
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.fires import PastFire, PastFires, StoredSchedule
from nats_scheduler.message.genuine import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.stored import StoredMessage

FIRST_RANGE = 512
"""Sequences of the first range."""

MAX_RANGE = 65_536
RANGE_GROWTH = 4
READERS = 16
"""Parts of a range that are read side by side."""


@dataclass(frozen=True, slots=True)
class FirePast:
    """Reads the fires of the schedules of one stream."""

    requests: Requests
    served: Served

    async def newest(self, subject: str, schedule: StoredMessage | None, limit: int) -> list[PastFire]:
        """Return the newest fires of the schedule on a subject, newest first, at most `limit`.

        Without the schedule, all subjects of its stream are read.
        """
        current = None if schedule is None else read_current(schedule, self.served)
        stream, target = await self._place(None if current is None else current.definition)
        reader = self._reader(subject, current, stream)
        found: list[PastFire] = []
        is_all = True
        async with aclosing(self._backwards(await self.requests.stream(stream), target)) as messages:
            async for message in messages:
                found += reader.read(message)
                if len(found) >= limit:
                    is_all = False
                    break
        return [*found, *reader.rest(is_all=is_all)][:limit]

    async def stored(self, schedule: StoredMessage, since: int, until: int, now: int) -> StoredFires:
        """Return which fires of a schedule are stored; as `ScheduleStore.fires`, at the time `now` (ns)."""
        current = read_current(schedule, self.served)
        if current is None or current.definition is None:
            return StoredFires(frozenset(), None, None)
        stream, target = await self._place(current.definition)
        reader = self._reader(schedule.subject, current, stream)
        info = await self.requests.stream(stream)
        found: list[PastFire] = []
        is_all = True
        async with aclosing(self._backwards(info, target)) as messages:
            async for message in messages:
                is_older = message.stored_at < since - MAX_CLOCK_DIFFERENCE_NS and not reader.awaits_older
                if is_older and (_has_own(found, schedule) or message.stored_at < schedule.stored_at):
                    is_all = False
                    break
                found += reader.read(message)
        found += reader.rest(is_all=is_all)
        kept = await self._kept(info, target, now)
        shown = known_from(inner(info.get("config")), current.definition.terms, kept, now)
        return stored_fires(found, schedule.sequence, since, until, shown)

    def _reader(self, subject: str, current: Current | None, stream: str) -> PastFires:
        definition = None if current is None else current.definition
        stored = None
        if current is not None and definition is not None:
            stored = StoredSchedule(current.sequence, current.timetable(), definition.terms)
        return PastFires(
            subject,
            is_native=self.served.is_native,
            stored=stored,
            is_moved=self.served.rules.moves_subjects,
            is_elsewhere=stream != self.served.name,
        )

    async def _place(self, definition: Definition | None) -> tuple[str, str]:
        """Return the stream that has the fires, and the subjects on which they are."""
        if definition is None:
            return self.served.name, ">"
        elsewhere = definition.terms.policies.target_elsewhere
        if elsewhere is not None:
            return await self.requests.stream_of(elsewhere), elsewhere
        return self.served.name, ">" if self.served.rules.moves_subjects else definition.terms.target

    async def _kept(self, info: Object, target: str, now: int) -> Kept:
        """Return what a stream still holds, of all its messages and of those on a target."""
        config, state = inner(info.get("config")), inner(info.get("state"))
        stream, first = str(config.get("name")), max(whole(state.get("first_seq")), 1)
        is_empty = first > whole(state.get("last_seq"))
        message = None if is_empty else await self.requests.message(stream, seq=first)
        kept = Kept(first, now if message is None else message.stored_at)
        if whole(config.get("max_msgs_per_subject")) <= 0:
            return kept
        oldest = await self.requests.message(stream, seq=1, next_by_subj=target)
        if oldest is None:
            return kept
        counts = [count async for _subject, count in self.requests.subjects(stream, target)]
        return kept._replace(on_target=max(counts, default=0), first_on_target_at=oldest.stored_at)

    async def _backwards(self, info: Object, subject: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a stream on a subject, newest first."""
        stream, state = str(inner(info.get("config")).get("name")), inner(info.get("state"))
        first, end, length = whole(state.get("first_seq")), whole(state.get("last_seq")) + 1, FIRST_RANGE
        while end > first:
            start = max(first, end - length)
            found = await self._range(stream, subject, start, end)
            for message in reversed(found):
                yield message
            end = start
            if len(found) * RANGE_GROWTH <= FIRST_RANGE:
                length = min(length * RANGE_GROWTH, MAX_RANGE)

    async def _range(self, stream: str, subject: str, start: int, end: int) -> list[StoredMessage]:
        """Return the messages on a subject in a range of sequences, in their order."""
        step = max(-(-(end - start) // READERS), 1)
        parts = [(at, min(at + step, end)) for at in range(start, end, step)]
        read = await asyncio.gather(*(self._part(stream, subject, *part) for part in parts))
        return [message for part in read for message in part]

    async def _part(self, stream: str, subject: str, at: int, end: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        while at < end:
            message = await self.requests.message(stream, seq=at, next_by_subj=subject)
            if message is None or message.sequence >= end:
                break
            found.append(message._replace(body=None))
            at = message.sequence + 1
        return found


def _has_own(found: list[PastFire], schedule: StoredMessage) -> bool:
    """Return whether a fire is among these that a schedule, in this version, has fired by itself."""
    return any(not fire.was_requested and fire.schedule_sequence in (schedule.sequence, None) for fire in found)
