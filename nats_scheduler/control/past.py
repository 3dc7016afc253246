"""The fires of a schedule that are stored, read from the stream of its target backwards.

The rules are those of `message.past_fires`. Where a message may be gone although it was stored, nothing is known of it:
so a stream that removes what was consumed, and a schedule whose fires roll up their target, show nothing.
Where to look is the schedule's own target, as it is stored now, so that the server skips all other messages. A schedule
that is not stored any more has no target: then the caller names one, or all subjects are searched.
Cost: as `Wire.backwards`; at most `MAX_MESSAGES_READ` messages are read for one answer. The last message before an
instant is found with some twenty requests (`last_before`).
Limits: what a client deleted or purged counts as not stored. Fires that were stored on an earlier target of the
schedule are found only if that one is named.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.errors import StreamNotFoundError
from nats_scheduler.control.store_port import EVER, Served, StoredFires, StreamNow, Wire
from nats_scheduler.message.definition import Definition, read_ttl
from nats_scheduler.message.fire_faults import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.fires import StoredSchedule, fired_schedule_of
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.past_fires import PastFire, PastFires
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered, is_literal_subject
from nats_scheduler.schedule.instants import SECOND

DEFAULT_ROWS = 20
"""Fires or advisories of one answer, unless the caller wants another number."""

MAX_ROWS = 1_000
"""The most of them in one answer."""

MAX_MESSAGES_READ = 200_000
"""The most messages that are read for one answer; what is older than the last of them counts as not known."""

MAX_READ_FOR_TIMES = 5_000
"""If the fires of all schedules are wanted and enough are found, so many messages are read to learn when they were due.
"""

MAX_READ_FOR_END = 256
"""The most messages on its target that are read to learn whether a schedule has ended: its last fire is a new one."""

ALL_SUBJECTS = ">"


@dataclass(frozen=True, slots=True)
class FireQuery:
    """Which fires are wanted: the newest."""

    schedule: str | None
    """The subject of one schedule; None for all that fire into their own stream."""
    limit: int
    since: int | None = None
    """Only fires that were stored at this time (ns) or later."""
    target: str | None = None
    """Where to look, wildcards allowed; None for the target of the schedule as it is stored."""
    until: int | None = None
    """Only fires that were stored before this time (ns)."""
    before: int | None = None
    """Only fires with a smaller sequence: `FoundFires.older` of the answer before."""


@dataclass(slots=True)
class FoundFires:
    """An answer."""

    searched: str
    """The subject that was searched."""
    stream: str
    """The stream that was searched: the sequences of the fires are its own."""
    fires: list[PastFire] = field(default_factory=list)
    """The newest first."""
    oldest_read: int | None = None
    """The instant (ns) at which the oldest message that was read was stored; None if none was read."""
    is_complete: bool = True
    """True if all fires that match, up to the limit, were found; else there were too many messages to read them all."""
    older: int | None = None
    """The sequence before which older fires may be stored; None if there are none that match."""


@dataclass(frozen=True, slots=True)
class FirePast:
    """Reads the fires of the schedules of one stream."""

    wire: Wire
    served: Served

    async def find(self, query: FireQuery) -> FoundFires:
        """Find the newest fires of a schedule, or of all."""
        current = None if query.schedule is None else await self._current(query.schedule)
        name, searched = await self._searched(query, current)
        found = FoundFires(searched, name)
        # No consumer may filter by a subject that the stream cannot hold.
        if searched != ALL_SUBJECTS and await self.wire.message(name, seq=1, next_by_subj=searched) is None:
            return found
        readers = {} if query.schedule is None else {query.schedule: self._reader(query.schedule, current, name)}
        is_all = await self._read(readers, query, found)
        for reader in readers.values():
            _take(reader.rest(is_all=is_all), query, found)
        fires = sorted(found.fires, key=lambda fire: -fire.sequence)
        found.fires = fires[: query.limit]
        if len(fires) >= query.limit:
            found.older = found.fires[-1].sequence
        return found

    async def fire(self, schedule: str, stream: str, sequence: int) -> StoredMessage | None:
        """Return a fire of the schedule on a subject, with its body, by its sequence in the stream that has it.

        None if the message there is none of its fires. Raises `StreamNotFoundError`.
        """
        message = await self.wire.message(stream, seq=sequence)
        if message is None:
            return None
        reader = self._reader(schedule, await self._current(schedule), stream)
        return message if [*reader.read(message), *reader.rest(is_all=False)] else None

    async def _current(self, schedule: str) -> Current | None:
        """Return what is stored on the subject of a schedule; None if nothing is."""
        message = await self.wire.last(self.served.name, schedule)
        return None if message is None or message.subject != schedule else read_current(message, self.served)

    async def _read(self, readers: dict[str, PastFires], query: FireQuery, found: FoundFires) -> bool:
        """Read until no older message is needed; return whether all messages were read."""
        number, waiting = 0, set[str]()
        stream = await self._up_to(await self.wire.stream(found.stream), query)
        async with aclosing(self.wire.backwards(stream, found.searched)) as messages:
            async for message in messages:
                number += 1
                if number > MAX_MESSAGES_READ:
                    found.is_complete, found.older = False, message.sequence + 1
                    return False
                found.oldest_read = message.stored_at
                schedule = query.schedule or fired_schedule_of(message.block)
                if schedule:
                    if schedule not in readers:
                        readers[schedule] = self._reader(schedule, await self._current(schedule), found.stream)
                    reader = readers[schedule]
                    _take(reader.read(message), query, found)
                    (waiting.add if reader.awaits_older else waiting.discard)(schedule)
                is_older = query.since is not None and message.stored_at < query.since
                is_enough = len(found.fires) + len(waiting) >= query.limit
                has_times = not waiting or (query.schedule is None and number >= MAX_READ_FOR_TIMES)
                if len(found.fires) >= query.limit or ((is_older or is_enough) and has_times):
                    return False
        return True

    async def _up_to(self, stream: StreamNow, query: FireQuery) -> StreamNow:
        """Return a stream as if it ended with the last message that a query concerns."""
        last = stream.last_sequence if query.before is None else min(query.before - 1, stream.last_sequence)

        async def stored_at(sequence: int) -> int | None:
            message = await self.wire.message(stream.name, seq=sequence, next_by_subj=ALL_SUBJECTS)
            return None if message is None else message.stored_at

        if query.until is not None:
            last = await last_before(query.until, stream.first_sequence, last, stored_at)
        return stream._replace(last_sequence=last)

    async def stored(self, schedule: StoredMessage, since: int, until: int, now: int) -> StoredFires:
        """Return which fires of a schedule are stored; as `ScheduleStore.fires`, at the time `now` (ns)."""
        current = read_current(schedule, self.served)
        if current is None or current.definition is None:
            return StoredFires(frozenset(), None, None)
        name, target = await self._place(current.definition)
        reader = self._reader(schedule.subject, current, name)
        stream = await self.wire.stream(name)
        found: list[PastFire] = []
        number, is_all, unread = 0, True, EVER
        async with aclosing(self.wire.backwards(stream, target)) as messages:
            async for message in messages:
                is_older = message.stored_at < since - MAX_CLOCK_DIFFERENCE_NS and not reader.awaits_older
                is_enough = is_older and (_has_own(found, schedule) or message.stored_at < schedule.stored_at)
                number += 1
                if is_enough or number > MAX_MESSAGES_READ:
                    is_all, unread = False, EVER if is_enough else message.stored_at
                    break
                found += reader.read(message)
        found += reader.rest(is_all=is_all)
        kept = await self._kept(stream, target, now)
        shown = known_from(stream.config, current.definition.terms, kept, now)
        return stored_fires(found, schedule.sequence, since, until, shown if shown is None else max(shown, unread))

    async def has_ended(self, current: Current) -> bool | None:
        """Return whether the last fire of a schedule, in this version, is stored: it says that none follows.

        None if none of its fires is found, and one may have been stored all the same: it was removed since (consumed,
        rolled up, one of too many), or a consumer of another replica has delivered it before the leader, which is asked
        here, has applied it. The newest message on the target is read, and only if that is another one those before it.
        """
        assert current.definition is not None, "a rejected schedule has no fires"
        terms, schedule = current.definition.terms, current.message
        name, target = await self._place(current.definition)
        stream = await self.wire.stream(name)
        is_kept = StreamRules.from_config(stream.config).keeps_acknowledged and not _limits_versions(stream.config)
        is_shown = is_kept and not terms.rollup and integer(stream.config.get("num_replicas"), 1) <= 1
        unseen = False if is_shown else None
        newest = await self.wire.last(name, target)
        if newest is None or self._is_older(newest, schedule, name):
            return unseen
        reader = self._reader(schedule.subject, current, name)
        if (found := _says_that_none_follows(reader.read(newest), schedule)) is not None:
            return found
        number = 0
        async with aclosing(self.wire.backwards(stream, target)) as messages:
            async for message in messages:
                if (found := _says_that_none_follows(reader.read(message), schedule)) is not None:
                    return found
                number += 1
                if number == MAX_READ_FOR_END:
                    return None
                if self._is_older(message, schedule, name):
                    break
        return unseen

    def _is_older(self, message: StoredMessage, schedule: StoredMessage, stream: str) -> bool:
        """Return whether a message of a stream was stored before a schedule; another stream has another clock."""
        if stream == self.served.name:
            return message.sequence < schedule.sequence
        return message.stored_at < schedule.stored_at - MAX_CLOCK_DIFFERENCE_NS

    def _reader(self, subject: str, current: Current | None, stream: str) -> PastFires:
        definition = None if current is None else current.definition
        stored = None
        if current is not None and definition is not None:
            stored = StoredSchedule(current.sequence, current.timetable(), definition.terms)
        is_to_other_stream = stream != self.served.name
        return PastFires(
            subject,
            is_native=self.served.is_native and not is_to_other_stream,
            stored=stored,
            is_moved=self.served.rules.moves_subjects,
            is_to_other_stream=is_to_other_stream,
        )

    async def _searched(self, query: FireQuery, current: Current | None) -> tuple[str, str]:
        """Return the stream and the subjects that are searched: the own stream, unless another one has the subject."""
        own, rules = self.served.name, self.served.rules
        target = query.target
        if target is None:
            definition = None if current is None else current.definition
            if definition is None or definition.terms.policies.target_stream is None:
                return self._own_place(definition)
            target = definition.terms.target
        elif rules.moves_subjects and await self.wire.message(own, seq=1, next_by_subj=target) is not None:
            return own, target
        if not is_literal_subject(target) or is_covered(target, rules.subjects):
            return own, target
        try:
            return await self.wire.stream_of(target), target
        except StreamNotFoundError:
            return own, target

    async def _place(self, definition: Definition) -> tuple[str, str]:
        """Return the stream that has the fires of a schedule, and the subjects on which they are."""
        elsewhere = definition.terms.policies.target_stream
        if elsewhere is not None:
            return await self.wire.stream_of(elsewhere), elsewhere
        return self._own_place(definition)

    def _own_place(self, definition: Definition | None) -> tuple[str, str]:
        """Return its own stream, and the subjects there; moved fires are stored on another subject than the target."""
        if definition is None or self.served.rules.moves_subjects:
            return self.served.name, ALL_SUBJECTS
        return self.served.name, definition.terms.target

    async def _kept(self, stream: StreamNow, target: str, now: int) -> StoredRange:
        """Return what a stream still holds, of all its messages and of those on a target."""
        first = max(stream.first_sequence, 1)
        message = await self.wire.message(stream.name, seq=first) if first <= stream.last_sequence else None
        kept = StoredRange(first, now if message is None else message.stored_at)
        if not _limits_versions(stream.config):
            return kept
        oldest = await self.wire.message(stream.name, seq=1, next_by_subj=target)
        if oldest is None:
            return kept
        counts = [number async for _subject, number in self.wire.subjects(stream.name, target)]
        return kept._replace(on_target=max(counts, default=0), first_on_target_at=oldest.stored_at)


async def last_before(instant: int, first: int, last: int, stored_at: Callable[[int], Awaitable[int | None]]) -> int:
    """Return the last sequence between two of which no message from there on was stored before an instant (ns).

    `stored_at` returns when the first message at a sequence or behind it was stored, None if there is none.
    A request for each halving of the range. `first` - 1 if all messages are newer.
    """
    low, high = first, last + 1  # the first sequence whose message is not older is one of these
    while low < high:
        middle = (low + high) // 2
        found = await stored_at(middle)
        if found is None or found >= instant:
            high = middle
        else:
            low = middle + 1
    return low - 1


def _take(fires: Iterable[PastFire], query: FireQuery, found: FoundFires) -> None:
    for fire in fires:
        if query.since is None or fire.stored_at >= query.since:
            found.fires.append(fire)


def _says_that_none_follows(fires: Iterable[PastFire], schedule: StoredMessage) -> bool | None:
    """Return whether the fire of a schedule, in this version, is its last one; None if there is none among these."""
    own = (one for one in fires if not one.was_requested and one.schedule_sequence == schedule.sequence)
    return next((one.next_fire is None for one in own), None)


def _has_own(found: list[PastFire], schedule: StoredMessage) -> bool:
    """Return whether a fire is among these that a schedule, in this version, has fired by itself."""
    return any(not fire.was_requested and fire.schedule_sequence in (schedule.sequence, None) for fire in found)


# What the stored messages show.


class StoredRange(NamedTuple):
    """The messages that a stream still holds; times are those at which a message was stored (ns)."""

    first_sequence: int
    """Of its first message, 1 if none was removed from the beginning."""
    first_stored_at: int
    on_target: int = 0
    """The number of messages on the target of the schedule; of interest if the stream limits them."""
    first_on_target_at: int = 0


def stored_fires(
    fires: Iterable[PastFire], sequence: int, since: int, until: int, known_from: int | None
) -> StoredFires:
    """Return what is stored of the fires of a schedule, whose message has this sequence, in a range of times (ns).

    A fire of the server's whose fire time is not known may be any that came due until it was stored.
    """
    fires = list(fires)
    unknown = max((fire.stored_at for fire in fires if fire.fire_time is None), default=None)
    if known_from is not None and unknown is not None:
        known_from = max(known_from, unknown + 1)
    timed = [(fire.fire_time, fire) for fire in fires if fire.fire_time is not None]
    latest = (time for time, fire in timed if not fire.was_requested and fire.schedule_sequence in (sequence, None))
    times = frozenset(time for time, _fire in timed if since <= time <= until)
    return StoredFires(times, max(latest, default=None), known_from)


def known_from(config: Mapping[str, Any], terms: Terms, kept: StoredRange, now: int) -> int | None:
    """Return from when on (stored time, ns) a stream shows the fires of a schedule; None if any may be missing.

    `config` is that of the stream that has the target.
    """
    rules = StreamRules.from_config(config)
    if not rules.keeps_acknowledged or terms.rollup:
        return None
    since = [EVER]
    if (rules.max_age or rules.evicts) and kept.first_sequence > 1:
        since.append(kept.first_stored_at)
    if (ttl := read_ttl(terms.ttl) if terms.ttl else 0) and ttl > 0:
        since.append(now - ttl * SECOND)
    if _limits_versions(config) and config["max_msgs_per_subject"] <= kept.on_target:
        since.append(kept.first_on_target_at)
    return max(since)


def _limits_versions(config: Mapping[str, Any]) -> bool:
    """Return whether a stream keeps a limited number of messages on each subject."""
    number = config.get("max_msgs_per_subject")
    return isinstance(number, int) and number > 0
