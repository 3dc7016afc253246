"""The fires of a schedule that are stored, read from the stream of its target backwards.

The rules are those of `message.fires`, by which `nats-scheduler history` reads too. Where a message may be gone
although it was stored, nothing is known of it: so a stream that removes what was consumed, and a schedule whose fires
roll up their target, show nothing.
Cost: as `Wire.backwards`.
Limits: what a client deleted or purged counts as not stored. `stored` reads at most `MAX_MESSAGES_READ` messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.port import EVER, Served, StoredFires, StreamNow, Wire
from nats_scheduler.message.definition import Definition, Terms, read_ttl
from nats_scheduler.message.fires import PastFire, PastFires, StoredSchedule
from nats_scheduler.message.genuine import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND

MAX_MESSAGES_READ = 200_000
"""The most messages that are read for one answer; what is older than the last of them counts as not known."""


@dataclass(frozen=True, slots=True)
class FirePast:
    """Reads the fires of the schedules of one stream."""

    wire: Wire
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
        async with aclosing(self.wire.backwards(await self.wire.stream(stream), target)) as messages:
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

    def _reader(self, subject: str, current: Current | None, stream: str) -> PastFires:
        definition = None if current is None else current.definition
        stored = None
        if current is not None and definition is not None:
            stored = StoredSchedule(current.sequence, current.timetable(), definition.terms)
        is_elsewhere = stream != self.served.name
        return PastFires(
            subject,
            is_native=self.served.is_native and not is_elsewhere,
            stored=stored,
            is_moved=self.served.rules.moves_subjects,
            is_elsewhere=is_elsewhere,
        )

    async def _place(self, definition: Definition | None) -> tuple[str, str]:
        """Return the stream that has the fires, and the subjects on which they are."""
        if definition is None:
            return self.served.name, ">"
        elsewhere = definition.terms.policies.target_elsewhere
        if elsewhere is not None:
            return await self.wire.stream_of(elsewhere), elsewhere
        return self.served.name, ">" if self.served.rules.moves_subjects else definition.terms.target

    async def _kept(self, stream: StreamNow, target: str, now: int) -> Kept:
        """Return what a stream still holds, of all its messages and of those on a target."""
        first = max(stream.first_sequence, 1)
        message = await self.wire.message(stream.name, seq=first) if first <= stream.last_sequence else None
        kept = Kept(first, now if message is None else message.stored_at)
        if not _limits_versions(stream.config):
            return kept
        oldest = await self.wire.message(stream.name, seq=1, next_by_subj=target)
        if oldest is None:
            return kept
        counts = [number async for _subject, number in self.wire.subjects(stream.name, target)]
        return kept._replace(on_target=max(counts, default=0), first_on_target_at=oldest.stored_at)


def _has_own(found: list[PastFire], schedule: StoredMessage) -> bool:
    """Return whether a fire is among these that a schedule, in this version, has fired by itself."""
    return any(not fire.was_requested and fire.schedule_sequence in (schedule.sequence, None) for fire in found)


# What the stored messages show.


class Kept(NamedTuple):
    """What a stream still holds; times are those at which a message was stored (ns)."""

    first_sequence: int
    """Of its first message, 1 if none was removed from the beginning."""
    first_stored_at: int
    on_target: int = 0
    """How many messages are on the target of the schedule; of interest if the stream limits them."""
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


def known_from(config: Mapping[str, Any], terms: Terms, kept: Kept, now: int) -> int | None:
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
