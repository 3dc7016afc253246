"""The schedules of an account: the one store that all operations of this room work on, over any client's wire.

The rules:

- Each publish and each delete names the message that it replaces, so no edit of another client is lost; how it ended is
  reported, as an error of `control.errors` if it was not done, and what follows is decided by the operations.
- Reads are answered by the leader of the stream, so they see what was stored before.
- Up to 2.11 the older versions of a schedule stay stored under it, and one of them would be the schedule again if only
  the newest was deleted. So a delete is a purge of the subject up to the sequence; where the stream denies purges, each
  version is deleted, the oldest first.

Limit: if a stream is created anew between the look and the delete, a message with the same sequence would be deleted.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from nats_scheduler.control.change_advisory import change_advisory
from nats_scheduler.control.changes import Change
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    NotPossibleError,
    RefusedError,
    SchedulerError,
    StreamNotFoundError,
    UnknownOutcomeError,
    maybe_done,
)
from nats_scheduler.control.past import FirePast, FireQuery
from nats_scheduler.control.store_port import Served, ServedStreams, StoredFires, Wire
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.effective_headers import with_effective_headers
from nats_scheduler.message.foreign_json import is_expressible
from nats_scheduler.message.generated import EXPECTED_SEQUENCE, NOT_AVAILABLE, UNDECIDED, WRONG_LAST_SEQUENCE
from nats_scheduler.message.headers import header_value, without_headers
from nats_scheduler.message.past_fires import PastFire
from nats_scheduler.message.paused import paused_name
from nats_scheduler.message.publish_answers import ID_IN_PROCESS, Published, Refusal
from nats_scheduler.message.reading import has_schedule_header
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_literal_subject

EXPECTED_STREAM = b"Nats-Expected-Stream"
EXPECTED_PREFIX = b"Nats-Expected-"

UNDECIDED_WAITS_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Waits while the server cannot say what the last message on the subject is."""

_last_sequence = re.compile(r"wrong last sequence: ([0-9]+)").search


class ScheduleStore:
    """The schedules of an account.

    Every method raises `NoAnswerError` if the server does not answer a question, and `ForbiddenError` if the user lacks
    a permission.
    """

    def __init__(
        self, wire: Wire, streams: ServedStreams, admit: Callable[[Current], None] = lambda _found: None
    ) -> None:
        """Send requests over `wire`; `streams` says how each stream is served, and `admit` is as in `Served`."""
        self._wire = wire
        self._streams = streams
        self._admit = admit

    def admitting(self, admit: Callable[[Current], None]) -> "ScheduleStore":
        """Return the same store for a caller who may store and fire only schedules for which `admit` does not raise."""
        return ScheduleStore(self._wire, self._streams, admit)

    async def served(self, stream: str) -> Served:
        """Return how a stream is served; raises `StreamNotFoundError`, or `NotServedError` if nothing fires on it."""
        return replace(await self._streams.served(stream), admit=self._admit)

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject; raises `StreamNotFoundError`."""
        return await self._wire.stream_of(subject)

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""
        return self._streams.now()

    # -- reading --------------------------------------------------------------------------------------------------

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject with its body, as the leader of the stream has it."""
        message = await self._wire.last(stream, subject)
        # A message that was published to a wildcard is stored under it, and a look-up finds what the wildcard matches.
        return message if message is not None and message.subject == subject else None

    def schedules(self, stream: str, subjects: str) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if it has headers of a schedule.

        In no order, once for each subject. `subjects` may contain wildcards.
        """
        return self._wire.newest(stream, subjects, _has_headers)

    async def fires(self, stream: str, schedule: StoredMessage, since: int, until: int) -> StoredFires:
        """Return which fires of a schedule are stored whose fire times (ns) are in a range, both ends included.

        `until` is now or earlier; `latest` is known whatever the range is.
        """
        past = FirePast(self._wire, await self.served(stream))
        return await past.stored(schedule, since, until, self.now())

    async def newest_fires(self, stream: str, subject: str, limit: int) -> Sequence[PastFire]:
        """Return the newest fires of the schedule on a subject that are stored, newest first, at most `limit`."""
        past = FirePast(self._wire, await self.served(stream))
        return (await past.find(FireQuery(subject, limit))).fires

    async def has_ended(self, served: Served, schedule: Current) -> bool | None:
        """Return whether the last fire of a schedule, in this version, is stored; None if that cannot be known."""
        try:
            return await FirePast(self._wire, served).has_ended(schedule)
        except (ForbiddenError, StreamNotFoundError):  # a target in another stream, which this user may not read
            return None

    async def wait(self, seconds: float) -> None:
        """Wait before something is read again."""
        await self._wire.wait(seconds)

    # -- changing -------------------------------------------------------------------------------------------------

    async def check_publish(self, subject: str) -> None:
        """Raise `ForbiddenError` if it is known that the user may not publish to a subject; nothing is sent there."""
        await self._wire.check_publish(subject)

    async def check_delete(self, stream: str, subject: str) -> None:
        """Raise `ForbiddenError` if it is known that the user may not delete what is stored on a subject."""
        config = (await self._wire.stream(stream)).config
        is_purged = is_expressible(subject) and config.get("deny_purge") is not True
        await self._wire.check_request(f"{'STREAM.PURGE' if is_purged else 'STREAM.MSG.DELETE'}.{stream}")

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes, *, expected: int | None) -> Published:
        """Store a message in place of the one with the sequence `expected`: 0 for none, None for any.

        Conditions that the block contains (`Nats-Expected-…`) are sent as they are if `expected` is None, and are
        replaced otherwise. Raises `ConflictError`, `RefusedError` or `UnknownOutcomeError`.
        """
        if expected is not None:
            block = _conditioned(stream, block, expected)
        return await publish_message(self._wire, stream, subject, block, body)

    async def delete(self, stream: str, message: StoredMessage) -> None:
        """Delete a message and the older ones on its subject, if it is still the last one there.

        Raises `ConflictError`, `RefusedError` or `UnknownOutcomeError`; `NotFoundError` if it is not stored any more.
        """
        subject, sequence = message.subject, message.sequence
        _check_literal(subject)  # a purge would delete all subjects that it matches
        stored = await self._wire.message(stream, seq=sequence)
        now = await self._wire.stream(stream)
        if stored is None and now.last_sequence < sequence:
            where = f"at {now.last_sequence}, before sequence {sequence}"
            raise UnknownOutcomeError(f"the leader of stream {stream} is {where}: its answer proves nothing")
        is_there = stored is not None and (stored.subject, stored.stored_at) == (subject, message.stored_at)
        if is_there and now.config.get("deny_purge") is True:
            await self._delete_each(stream, subject, sequence)
        elif is_there:
            await self._wire.purge(stream, subject, sequence)
        with maybe_done():
            last = await self._wire.last(stream, subject)
        if last is not None and (last.sequence > sequence or not is_there):
            raise ConflictError(f"{subject}: another client changed it at the same time", last.sequence)
        if not is_there:
            raise NotFoundError(f"{subject}: sequence {sequence} is not stored any more")

    async def record(self, changes: Sequence[Change]) -> None:
        """Publish what was done as advisories; a user who may not publish there records nothing."""
        for change in changes:
            await self._wire.advise(*change_advisory(change))

    async def _delete_each(self, stream: str, subject: str, through: int) -> None:
        """Delete each version up to a sequence, the oldest first, so that none becomes the schedule again."""
        at = 0
        with maybe_done():
            while (found := await self._wire.message(stream, seq=at + 1, next_by_subj=subject)) is not None:
                if (at := found.sequence) >= through:
                    break
                await self._wire.delete(stream, at)
            await self._wire.delete(stream, through)


async def publish_message(wire: Wire, stream: str, subject: str, block: bytes, body: bytes) -> Published:
    """Store a message with the conditions that its block contains, such as the guard of a fire.

    Raises `ConflictError`, `RefusedError` or `UnknownOutcomeError`; `NoAnswerError` if nothing was stored.
    """
    _check_literal(subject)
    waits = iter(UNDECIDED_WAITS_SECONDS)
    while isinstance(outcome := await wire.publish(stream, subject, block, body), Refusal):
        wait = next(waits, None)
        if wait is None or outcome.code not in UNDECIDED:
            raise _error_of(subject, outcome)
        await wire.wait(wait)
    return outcome


def _error_of(subject: str, refusal: Refusal) -> SchedulerError:
    code = refusal.code
    reason = f"{subject}: {refusal.description} (server code {code})"
    if code in UNDECIDED:
        return NoAnswerError(reason)
    if code in WRONG_LAST_SEQUENCE:
        last = _last_sequence(refusal.description)
        text = f"{subject}: another client changed it at the same time"
        return ConflictError(text, int(last[1]) if last else None)
    if code in NOT_AVAILABLE or code in (0, ID_IN_PROCESS):  # 0: the leader could not propose it to its replicas
        return UnknownOutcomeError(reason)
    return RefusedError(refusal.status, code, refusal.description, subject)


def _check_literal(subject: str) -> None:
    if not is_literal_subject(subject):
        raise NotPossibleError(f"{subject!r} is no literal subject such as 'orders.due'")


def _conditioned(stream: str, block: bytes, expected: int) -> bytes:
    """Return a block that is stored only in place of a sequence; conditions of an earlier publish do not count."""
    conditions = [
        (EXPECTED_STREAM, stream.encode("utf-8", "surrogateescape")),
        (EXPECTED_SEQUENCE, b"%d" % expected),
    ]
    found = with_effective_headers(without_headers(block, prefixes=(EXPECTED_PREFIX,)), conditions)
    if found is None:
        text = "header names in the values of the message would hide its conditions from the server"
        raise NotPossibleError(text)
    return found


def _has_headers(message: StoredMessage) -> bool:
    """Return whether a message has the header of a schedule, active or paused, valid or not."""
    block = message.block
    return has_schedule_header(block, DIALECTS) or any(header_value(block, paused_name(one)) for one in DIALECTS)


MAX_MATCHING = 100_000
"""Most schedules that are found at once, unless the caller sets another number."""


async def stored_schedules(store: ScheduleStore, served: Served, subjects: str) -> AsyncIterator[Current]:
    """Yield the schedules on the subjects that match, active, paused or rejected, in no order.

    An operation on one of them is another request, by which time it may have changed: its sequence shows that.
    """
    async for message in store.schedules(served.name, subjects):
        if (found := read_current(message, served)) is not None:
            yield found


async def matching(
    store: ScheduleStore, stream: str, subjects: str = ">", *, most: int = MAX_MATCHING
) -> list[Current]:
    """Return the schedules on the subjects that match, active, paused or rejected, by subject.

    Raises `NotPossibleError` if there are more than `most`.
    """
    found: list[Current] = []
    async for schedule in stored_schedules(store, await store.served(stream), subjects):
        if len(found) == most:
            raise NotPossibleError(f"more than {most:,} schedules of stream {stream} match {subjects}: name fewer")
        found.append(schedule)
    return sorted(found, key=lambda one: one.subject)
