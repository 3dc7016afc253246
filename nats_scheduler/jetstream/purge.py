"""Purge schedules that are done, and versions that were replaced.

It is a purge of one subject up to a sequence: a replacement that was stored meanwhile has a higher sequence and stays.
Only on a subject that is not UTF-8, which JSON cannot name, one message is deleted by its sequence: the one that is
known to be there. Other messages there cannot be asked for, since several such subjects look the same in an answer.

Where a purge would stop the stream for a while (`jetstream.block_indexes`), one message is deleted by its sequence if
that is all that is to be purged.

A purge is sent at once: until then a worker that stores the next schedule on the subject is refused.
Purges come in bursts of many thousands, as fires do, and are sent and answered as they are
(`jetstream.acknowledgements`). A future and a task for each took five times as long. Of hundreds that wait for room,
many are purged by one request where that removes nothing else (`jetstream.joint_purge`).
"""

import asyncio
import json
import math
import re
from collections import deque
from collections.abc import Iterable, Sequence

from nats_scheduler.control.errors import ForbiddenError, NoAnswerError, NoRespondersError, RefusedError, SchedulerError
from nats_scheduler.control.requests import raise_refusal
from nats_scheduler.control.transport import ANSWER_SECONDS, NO_RESPONDERS
from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import Input, PurgeConcluded, SchedulesPurged
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.acknowledgements import Sender, purge_answers
from nats_scheduler.jetstream.api import Config, JetStreamApi, reads_all, stands_alone
from nats_scheduler.jetstream.block_indexes import BlockIndexes, may_be_long
from nats_scheduler.jetstream.bounded_requests import BoundedRequests, start_in_group
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.denials import forbidden
from nats_scheduler.jetstream.joint_purge import MIN_JOINT_PURGES, RETRY_SECONDS, JointPurge
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.message.foreign_json import is_expressible, read_object
from nats_scheduler.message.publish_answers import TEMPORARY_STATUS

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
        silence = f"{self._subject}: no answer within {ANSWER_SECONDS} s"
        super().__init__(connection, connection.one(purge_answers), "", ANSWER_SECONDS, silence)
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
            return _failed(request, NoRespondersError(f"{self._subject}: nothing answers there"))
        answer = read_object(body) or {}
        try:
            raise_refusal(answer, self._subject)
        except RefusedError as error:
            return _failed(request, error)
        if answer.get("success") is not True:
            unreadable = f"{self._subject}: the answer says neither that it was done nor why not: {body[:80]!r}"
            return _failed(request, NoAnswerError(unreadable))
        return _concluded(request)

    def _conclude_run(self, requests: Sequence[PurgeSchedule], sequences: Sequence[int]) -> None:
        self._notify_purged(requests)

    def _deny(self, request: PurgeSchedule) -> None:
        self._notify(_failed(request, forbidden(self._subject)))

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
    except (RefusedError, ForbiddenError):
        return False
    return True


def _concluded(request: PurgeSchedule, failure: str | None = None) -> PurgeConcluded:
    return PurgeConcluded(request.schedule, request.through, failure, known=request.known)


def _failed(request: PurgeSchedule, error: SchedulerError) -> PurgeConcluded:
    """Return the conclusion of a purge that was not done, or of which nothing is known."""
    is_refused = isinstance(error, RefusedError) and error.status != TEMPORARY_STATUS
    is_denied = isinstance(error, ForbiddenError)
    return _concluded(request, str(error))._replace(refused=is_refused, denied=is_denied)
