"""Purge schedules that are done, and versions that were replaced.

It is a purge of one subject up to a sequence: a replacement that was stored meanwhile has a higher sequence and stays.
Only on a subject that is not UTF-8, which JSON cannot name, one message is deleted by its sequence: the one that is
known to be there. Other messages there cannot be asked for, since several such subjects look the same in an answer.

Where a purge would stop the stream for a while, one message is deleted by its sequence if that is all that is to be
purged.

A purge is sent at once: until then a worker that stores the next schedule on the subject is refused.
Purges come in bursts of many thousands, as fires do, and are sent and answered as they are
(`jetstream.acknowledgements`). A future and a task for each took five times as long. Of hundreds that wait for room,
many are purged by one request where that removes nothing else.
"""

import asyncio
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.inputs import ExpiryConcluded, Input, PurgeConcluded, SchedulesPurged
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.acknowledgements import Sender, purge_answers
from nats_scheduler.jetstream.api import Config, JetStreamApi, consumer_from, raise_refusal, reads_all, stands_alone
from nats_scheduler.jetstream.connection import NO_RESPONDERS, REQUEST_DEADLINE_SECONDS, Connection
from nats_scheduler.jetstream.errors import (
    TEMPORARY_STATUS,
    ApiError,
    JetStreamError,
    NoJetStreamError,
    NotPermittedError,
    UnreadableAnswerError,
)
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.jetstream.reach import BoundedRequests, LeaderReach, start_in_group
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.foreign_json import integer, is_expressible, read_object
from nats_scheduler.message.reading import expiry_of
from nats_scheduler.message.stored import StoredMessage

# The indexes of a stream's blocks, which a server may have to read if it purges a subject there.
#
# A server keeps, for each block of a stream, which subjects have messages in it, and discards that after two minutes
# without use. A purge of a subject needs it of every block, and has it read again from the messages: 0.35 s for a
# million of them that the system has in memory, more than a minute for ten million from disk. Meanwhile the stream
# is stopped, and all that is due waits. To delete a message by its sequence needs one block.
#
# The rule: a long stream is purged only if that was done a moment ago, or if enough purges come: then reading the
# indexes once costs less than to look at, and to delete, each of them. A very long one is purged only where a
# deletion would not do the same.

LONG_STREAM = 200_000
"""A stream with fewer messages is purged at any time: its indexes are read in less than a tenth of a second."""

VERY_LONG_STREAM = 3_000_000
"""A stream with more messages is not purged: what the server reads may not be in memory, which takes it a minute."""

KEPT_SECONDS = 60.0
"""For this time after a purge the server certainly knows its indexes; it keeps them for two minutes."""

SHARE_FOR_EACH = 200
"""A purge costs less if more than one in this number of messages goes in `KEPT_SECONDS`.

Two looks and a deletion take some 70 µs more than a purge, and an index 0.35 µs for each message.
"""


def may_be_long(sequence: int) -> bool:
    """Return whether a stream that has a sequence may be long."""
    return sequence >= LONG_STREAM


class BlockIndexes:
    """The state of the block indexes of one stream, as far as it is known."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known_until = 0.0
        self._messages: int | None = None
        self._counted_until = 0.0
        self._count = 0

    def are_unread(self, sequence: int, now: float) -> bool:
        """Return whether a purge at `now` (s, of the loop's clock) would have them read, and is to be avoided.

        `sequence` is one of the stream: it has no more messages than that, as far as is known. Each call counts as one
        that is to be removed.
        """
        if not may_be_long(sequence) or now < self._known_until:
            return False
        if now >= self._counted_until:
            self._counted_until, self._count = now + KEPT_SECONDS, 0
        self._count += 1
        messages = sequence if self._messages is None else self._messages
        if messages > VERY_LONG_STREAM:
            return True
        most = messages // SHARE_FOR_EACH if messages >= LONG_STREAM else 0
        return self._count <= max(most, 1)  # it may have become longer since

    def note_read(self, now: float) -> None:
        """Note that a subject is purged at `now`."""
        self._known_until = now + KEPT_SECONDS

    def note_length(self, messages: int, now: float) -> None:
        """Note how many messages the stream has at `now`."""
        self._messages = messages
        if messages < LONG_STREAM:
            self.note_read(now)


# Purge hundreds of schedules with one request: all that a filter matches up to a sequence, if all of it is done.
#
# A request for each schedule takes the server 30 to 50 µs, nearly all of it for the request; to remove the message
# takes 5. Of a burst often every schedule is done. Then the oldest messages of the stream on such subjects are those
# that are to be purged, and a purge with a wildcard removes what a request for each would.
#
# The rule: it removes nothing else. The messages that the filter matches are read from the first one on, headers
# only, and it goes up to the last one before the first that is not to be purged. What is stored later has a higher
# sequence. So another schedule on such a subject that lies below ends it at once: then each is purged alone. Only on
# a server that stands alone, whose consumers and purges see one state, and where the sidecar reads all messages.
# Standbys receive the request too, and compare its filter with what is done (`engine.firing.purging`).
#
# While a request is in process the next messages are read. Cost: 5 µs to read a message and 5 to remove it in the
# server, 2 here. A look at one message where it is not possible, once in `RETRY_SECONDS`.

MIN_JOINT_PURGES = 256
"""With fewer that wait for room no request with a wildcard is tried."""

MIN_JOINT_MESSAGES = 128
"""For fewer none is sent: it takes the server as long as 100 of one subject each."""

MAX_JOINT_MESSAGES = 2_000
"""Messages that one request removes: meanwhile the server stores nothing in the stream, for some milliseconds."""

MAX_MATCHED_FOR_EACH = 100
"""If the filter matches more messages for each that is removed, a request keeps the server for too long.

It looks at all their subjects, which takes 5 ms for 100,000.
"""

PATIENCE_SECONDS = 0.005
"""The longest time (s) to wait for what is not to be purged yet, since the schedules of a burst are done one after the
other: a window of purges of one subject takes the server longer."""

RETRY_SECONDS = 10.0
"""After this time (s) one is tried again where it was not possible."""

TURN_SECONDS = 1.0
"""After this time (s) one that goes on begins anew: what did not come to its turn until then, since it is done before
what was stored before it, is purged alone."""

JointlyPurged = Callable[[Sequence[PurgeSchedule]], None]


class JointPurge:
    """One attempt to purge schedules jointly. Those in `open` are still to be purged when it has ended."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        requests: Iterable[PurgeSchedule],
        purged: JointlyPurged,
    ) -> None:
        """Purge these, and those that are added; `purged` is called with what was purged."""
        self._connection = connection
        self._api = api
        self._config = config
        self._stream: str = config["name"]
        self._purged = purged
        self._loop = asyncio.get_running_loop()
        self.open: dict[str, PurgeSchedule] = {}
        """By schedule."""
        self._added = asyncio.Event()
        self.was_of_use = False
        """True if it purged anything."""
        self.left = [request for request in requests if not self.add(request)]
        """Those that were not taken."""

    def add(self, request: PurgeSchedule) -> bool:
        """Purge one more; returns whether it is taken: not if there is one of the same schedule, or if it is a roll-up.

        A roll-up has no known version: no message of its target has the sequence up to which it goes.
        """
        if request.schedule in self.open or request.known is None:
            return False
        self.open[request.schedule] = request
        self._added.set()
        return True

    async def run(self) -> bool:
        """Purge for `TURN_SECONDS`, as long as all that comes next in the stream is to be purged.

        Returns whether it can go on; then what is open is what has not come to its turn. No error but cancellation.
        """
        goes_on = False
        try:
            goes_on = await self._are_enough() and await self._purge()
        except* JetStreamError:
            pass  # what is still open is purged one by one, and meets the same error
        return goes_on

    async def _purge(self) -> bool:
        matched = filter_of(self.open)
        if matched is None:
            return False
        first = await self._api.message(self._stream, seq=1, next_by_subj=matched)
        if first is None or first.subject not in self.open:
            return False
        consumer = PulledConsumer(self._connection, self._api, self._stream)
        await consumer.open({**consumer_from(1, self._config), "headers_only": True, "filter_subject": matched})
        try:
            return await self._purge_what_is_read(consumer, matched)
        finally:
            consumer.close()

    async def _purge_what_is_read(self, consumer: PulledConsumer, matched: str) -> bool:
        until, left = self._loop.time() + TURN_SECONDS, consumer.matched
        read: list[StoredMessage] = []

        async def read_more(besides: int = 0) -> None:
            wanted = min(len(self.open) - besides, MAX_JOINT_MESSAGES) - len(read)
            if wanted > 0:
                read.extend(await consumer.pull(wanted))

        while True:
            await read_more()
            purgeable, done = await self._first_done(read)
            if purgeable < MIN_JOINT_MESSAGES or left > MAX_MATCHED_FOR_EACH * purgeable:
                return False
            through = read[purgeable - 1].sequence
            del read[:purgeable]
            async with TaskGroup() as tasks:
                tasks.create_task(read_more(len(done)))
                is_exact = await self._purge_through(matched, through, purgeable)
            if not is_exact:
                return False
            left -= purgeable
            for request in done:
                del self.open[request.schedule]
            self.was_of_use = True
            self._purged(done)
            if self._loop.time() >= until:
                return True
            if not await self._are_enough():
                return False

    async def _first_done(self, read: Sequence[StoredMessage]) -> tuple[int, list[PurgeSchedule]]:
        """Return how many messages, from the first that was read on, are to be purged, and what is done then."""
        done: list[PurgeSchedule] = []
        for count, message in enumerate(read):
            request = self.open.get(message.subject) or await self._straggler(message.subject)
            if request is None or message.sequence > request.through:
                return count, done
            if message.sequence == request.through:
                done.append(request)
        return len(read), done

    async def _purge_through(self, matched: str, through: int, most: int) -> bool:
        """Purge what the filter matches up to a sequence; return whether that was not more than was read."""
        wanted = {"filter": matched, "seq": through + 1}
        answer = await self._api.call(f"STREAM.PURGE.{self._stream}", wanted)
        return integer(answer.get("purged")) <= most

    async def _are_enough(self) -> bool:
        """Return whether enough is to be purged, and wait for more if not."""
        return await self._comes(lambda: len(self.open) >= MIN_JOINT_PURGES)

    async def _straggler(self, schedule: str) -> PurgeSchedule | None:
        """Return the purge of a schedule that is not known yet, None if none is ordered in time."""
        await self._comes(lambda: schedule in self.open)
        return self.open.get(schedule)

    async def _comes(self, condition: Callable[[], bool]) -> bool:
        """Wait for a moment until what is added makes a condition true; return whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():
                    self._added.clear()
                    await self._added.wait()
        return condition()


def filter_of(subjects: Iterable[str]) -> str | None:
    """Return a filter that matches these subjects, with a wildcard where they differ.

    None if they have different numbers of tokens, or no token in common.
    """
    rows = [subject.split(".") for subject in subjects]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        return None
    columns = [set(column) for column in zip(*rows, strict=True)]
    tokens = [column.pop() if len(column) == 1 else "*" for column in columns]
    return ".".join(tokens) if set(tokens) != {"*"} else None


MAX_PURGES_IN_FLIGHT = 256
"""Purges in flight at once."""

_PLAIN_TEXT = re.compile(r"[ !#-\[\]-~]*+")
"""Text that JSON spells as it is."""


class Purger(Sender[PurgeSchedule]):
    """The purges of one stream on one connection."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        reach: LeaderReach,
    ) -> None:
        """Purge in the stream of `config`; what needs a look first is done by tasks of its own."""
        stream: str = config["name"]
        self._subject = f"{api.prefix}.STREAM.PURGE.{stream}"
        silence = f"{self._subject}: no answer within {REQUEST_DEADLINE_SECONDS} s"
        super().__init__(connection, connection.one(purge_answers), "", REQUEST_DEADLINE_SECONDS, silence)
        self._head = f"PUB {self._subject} {self._inbox}.".encode("utf-8", "surrogateescape")
        self._api = api
        self._config = config
        self._tasks = tasks
        self._may_be_joint = stands_alone(connection, api) and reads_all(config)
        self._joint: JointPurge | None = None
        self._joint_after = 0.0
        """The time (of the loop's clock) after which many may be purged jointly again."""
        self._notify = notify
        self._indexes = BlockIndexes()
        self._singly = _purges_with_a_look(api, stream, notify, tasks, reach, self._indexes)
        self._waiting: deque[PurgeSchedule] = deque()

    def begin(self, request: PurgeSchedule) -> None:
        """Send a purge in the next turn of the event loop, or as soon as the window allows it."""
        self._take(request)
        if self._waits_for_room() and not self._is_to_fill:
            self._is_to_fill = True
            self._loop.call_soon(self._fill_up)

    def begin_at_once(self, requests: Iterable[PurgeSchedule]) -> None:
        """Send purges before anything else is done, as far as the window allows."""
        for request in requests:
            self._take(request)
        self._fill_up()
        self._connection.flush()

    def _take(self, request: PurgeSchedule) -> None:
        if self._ended is not None:
            self._fail(request, self._ended)
        elif (
            request.stored_at is not None
            or not is_expressible(request.schedule)
            or self._indexes.are_unread(request.through, self._loop.time())
        ):
            self._singly.begin(request)
        elif self._joint is None or not self._joint.add(request):
            self._waiting.append(request)

    def end(self, reason: str) -> None:
        """Conclude everything that is still open with `reason`: to purge again is harmless."""
        super().end(reason)
        self._singly.end(reason)

    def _fill_up(self) -> None:
        if self._ended is None and self._is_joint_due():
            if self._in_flight:
                self._is_to_fill = False
                return  # their answers come first: what they name may be stored yet, and lies before all that waits
            self._purge_jointly()
        super()._fill_up()

    def _is_joint_due(self) -> bool:
        """Return whether so many wait behind the window that one request for them is worth a try."""
        behind = len(self._waiting) + len(self._in_flight) - MAX_PURGES_IN_FLIGHT
        return behind >= MIN_JOINT_PURGES and self._may_be_joint and self._loop.time() >= self._joint_after

    def _purge_jointly(self) -> None:
        """Have purged jointly what waits, and what is begun until that has ended."""
        joint = JointPurge(self._connection, self._api, self._config, self._waiting, self._notify_purged)
        if start_in_group(self._run(joint), self._tasks):
            self._joint, self._waiting = joint, deque(joint.left)
            self._joint_after = math.inf

    async def _run(self, joint: JointPurge) -> None:
        goes_on = True
        while goes_on:
            goes_on = await joint.run()
            if self._joint is not joint:
                return  # the contact has ended
            self._waiting.extend(joint.open.values())
            joint.open.clear()
            self._fill()
        self._joint = None
        self._joint_after = self._loop.time() + (0.0 if joint.was_of_use else RETRY_SECONDS)

    def _notify_purged(self, done: Sequence[PurgeSchedule]) -> None:
        if self._ended is None:
            self._indexes.note_read(self._loop.time())
            self._notify(SchedulesPurged([one.schedule for one in done], [one.through for one in done]))

    # -- how they are sent and concluded -------------------------------------------------------------------------

    def _next_to_send(self) -> Sequence[PurgeSchedule]:
        count = min(len(self._waiting), MAX_PURGES_IN_FLIGHT - len(self._in_flight))
        if count > 0:
            self._indexes.note_read(self._loop.time())
        return [self._waiting.popleft() for _ in range(count)]

    def _waits_for_room(self) -> bool:
        return bool(self._waiting)

    def _take_waiting(self) -> Sequence[PurgeSchedule]:
        joint, self._joint = self._joint, None
        waiting = [*self._waiting, *(() if joint is None else joint.open.values())]
        self._waiting.clear()
        return waiting

    def _frame(self, request: PurgeSchedule, number: int) -> bytes:
        body = purge_body(request.schedule, request.through)
        return b"%b%d %d\r\n%b\r\n" % (self._head, number, len(body), body)

    def _subject_of(self, request: PurgeSchedule) -> str:
        return self._subject

    def _conclude(self, request: PurgeSchedule, block: bytes, body: bytes) -> bool:
        if block and not block.startswith(NO_RESPONDERS):
            return False  # no answer of a server to a purge has headers
        self._notify(self._conclusion(request, block, body))
        return True

    def _conclusion(self, request: PurgeSchedule, block: bytes, body: bytes) -> PurgeConcluded:
        if block.startswith(NO_RESPONDERS):
            return _failed(request, NoJetStreamError(f"{self._subject}: nothing answers there"))
        answer = read_object(body) or {}
        try:
            raise_refusal(answer, self._subject)
        except ApiError as error:
            return _failed(request, error)
        if answer.get("success") is not True:
            unreadable = f"{self._subject}: the answer says neither that it was done nor why not: {body[:80]!r}"
            return _failed(request, UnreadableAnswerError(unreadable))
        return _concluded(request)

    def _conclude_run(self, requests: Sequence[PurgeSchedule], sequences: Sequence[int]) -> None:
        self._notify_purged(requests)

    def _deny(self, request: PurgeSchedule) -> None:
        self._notify(_failed(request, NotPermittedError(self._subject)))

    def _fail(self, request: PurgeSchedule, reason: str) -> None:
        self._notify(_concluded(request, reason))


def purge_body(subject: str, through: int) -> bytes:
    """Return the request to purge a subject up to a sequence; the server purges the messages below `seq`."""
    name = f'"{subject}"' if _PLAIN_TEXT.fullmatch(subject) else json.dumps(subject)
    return f'{{"filter":{name},"seq":{through + 1}}}'.encode()


def _purges_with_a_look(
    api: JetStreamApi,
    stream: str,
    notify: Notify,
    tasks: asyncio.TaskGroup,
    reach: LeaderReach,
    indexes: BlockIndexes,
) -> BoundedRequests[PurgeSchedule]:
    """Return what purges schedules for which something has to be read first."""

    async def ask(request: PurgeSchedule) -> Input:
        await _purge(api, stream, request, reach, indexes)
        return _concluded(request)

    return BoundedRequests(notify, tasks, ask=ask, failed=_failed, limit=MAX_PURGES_IN_FLIGHT)


async def _purge(
    api: JetStreamApi, stream: str, request: PurgeSchedule, reach: LeaderReach, indexes: BlockIndexes
) -> None:
    if request.stored_at is not None:
        message = await api.message(stream, seq=request.through)
        if message is None or message.stored_at != request.stored_at:
            return  # it is not there any more; a stream that lost messages may have another one under this sequence
    if is_expressible(request.schedule):
        if not may_be_long(request.through) or not await _is_deleted(api, stream, request, reach, indexes):
            await api.purge_through(stream, request.schedule, request.through)
            indexes.note_read(asyncio.get_running_loop().time())
        return
    if request.known is None:
        return
    sequence, stored_at = request.known
    message = await reach.confirmed(sequence, lambda: api.message(stream, seq=sequence))
    if message is not None and message.stored_at == stored_at:
        await api.delete_message(stream, sequence)


async def _is_deleted(
    api: JetStreamApi, stream: str, request: PurgeSchedule, reach: LeaderReach, indexes: BlockIndexes
) -> bool:
    """Delete what is to be purged if that is one message; returns whether none of it is stored any more.

    The only other message on its subject may be one that was stored behind it. A stream that lost messages may have one
    of another subject under the sequence: that stays.
    """
    if reach.may_lag:
        await reach.leader_at(request.through)
    left, messages = await api.counts(stream, request.schedule)
    indexes.note_length(messages, asyncio.get_running_loop().time())
    sequence = request.through if request.known is None else request.known.sequence
    message = await api.message(stream, seq=sequence)
    is_stored = message is not None and message.subject == request.schedule
    if left != 1 or not is_stored:
        last = await api.message(stream, last_by_subj=request.schedule)
        left -= last is not None and last.sequence > request.through
    if left == 0 and not reach.may_lag:
        return True  # another instance, or an earlier request, has done it
    if left != 1 or not is_stored:
        return False
    try:
        await api.delete_message(stream, sequence)  # or another instance has done it since
    except (ApiError, NotPermittedError):
        return False
    return True


def _concluded(request: PurgeSchedule, failure: str | None = None) -> PurgeConcluded:
    return PurgeConcluded(request.schedule, request.through, failure, known=request.known)


def _failed(request: PurgeSchedule, error: JetStreamError) -> PurgeConcluded:
    """Return the conclusion of a purge that was not done, or of which nothing is known."""
    is_refused = isinstance(error, ApiError) and error.status != TEMPORARY_STATUS
    is_denied = isinstance(error, NotPermittedError)
    return _concluded(request, str(error))._replace(refused=is_refused, denied=is_denied)


# Delete messages whose own TTL has run out, if the server does not do it (2.10).
#
# By sequence, so that nothing else on the subject is deleted: a purge up to a sequence would delete older messages
# that live longer. Each is read first, since a sequence alone proves nothing: a stream that was deleted and created
# again, or restored, begins to count anew.
#
# Cost: two requests a message, one if it is gone already; the read carries the body. 3,000 to 6,000 a second.
# Limit: if the stream is created again between read and delete, a new message with that sequence would be deleted.

MAX_EXPIRED_DELETES_IN_FLIGHT = 16
"""Deletes in flight at once: they are never urgent, the reads carry bodies, and fires share the event loop."""

DELETE_FAILED = 10057
DELETE_NOT_PERMITTED = "message delete not permitted"
"""The text with which a stream with `deny_delete`, or a sealed one, answers; other failures have the same code."""


def remover(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup, reach: LeaderReach
) -> BoundedRequests[RemoveExpired]:
    """Return what deletes expired messages from a stream."""

    async def ask(request: RemoveExpired) -> Input:
        try:
            return await _check_and_delete(api, stream, request, reach)
        except ApiError as error:
            return await _conclude_refusal(api, stream, request, error)

    return BoundedRequests(notify, tasks, ask=ask, failed=_expiry_failed, limit=MAX_EXPIRED_DELETES_IN_FLIGHT)


def _expiry_failed(request: RemoveExpired, error: JetStreamError) -> Input:
    return ExpiryConcluded(request.sequence, failure=str(error))


async def _check_and_delete(api: JetStreamApi, stream: str, request: RemoveExpired, reach: LeaderReach) -> Input:
    message = await reach.confirmed(request.sequence, lambda: api.message(stream, seq=request.sequence))
    expires = None if message is None else expiry_of(message, DIALECTS)
    if message is None or expires is None:
        return ExpiryConcluded(request.sequence)
    if expires > request.by:
        return ExpiryConcluded(request.sequence, expires=expires)
    removed = await api.delete_message(stream, request.sequence)
    return ExpiryConcluded(request.sequence, message.subject if removed else None)


async def _conclude_refusal(api: JetStreamApi, stream: str, request: RemoveExpired, error: ApiError) -> Input:
    """Return what a refusal means; two clients that delete one message together get several texts and codes."""
    if error.code != DELETE_FAILED:
        raise error
    if error.description == DELETE_NOT_PERMITTED:
        return ExpiryConcluded(request.sequence, failure=str(error), refused=True)
    is_gone = await api.message(stream, seq=request.sequence) is None
    return ExpiryConcluded(request.sequence) if is_gone else _expiry_failed(request, error)
