"""Purge schedules that are done, and versions that were replaced.

It is a purge of one subject up to a sequence: a replacement that was stored meanwhile has a higher sequence and stays.
Only on a subject that is not UTF-8, which JSON cannot name, one message is deleted by its sequence: the one that is
known to be there. Other messages there cannot be asked for, since several such subjects look the same in an answer.

Where a purge would have the stream stand still (`jetstream.block_indexes`), one message is deleted by its sequence if
that is all that is to be purged.

Purges come in bursts of many thousands, as fires do, and have a window as they have: all frames of a group leave in one
write, and answers come to one inbox for all streams of a connection and are parsed together
(`jetstream.acknowledgements`). A future and a task for each took five times as long. Of thousands that wait, many are
purged by one request where that removes nothing else (`jetstream.joint_purge`).

Cost: one frame and one dictionary entry a purge.
"""

import asyncio
import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import takewhile

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import Input, PurgeConcluded, SchedulesPurged
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.acknowledgements import PurgeAnswers
from nats_scheduler.jetstream.api import TEMPORARY_STATUS, Config, JetStreamApi, raise_refusal
from nats_scheduler.jetstream.block_indexes import BlockIndexes, may_be_long
from nats_scheduler.jetstream.bounded import BoundedRequests, is_started
from nats_scheduler.jetstream.connection import NO_RESPONDERS, REQUEST_DEADLINE_SECONDS, Connection
from nats_scheduler.jetstream.consumers import reads_all, stands_alone
from nats_scheduler.jetstream.errors import (
    ApiError,
    JetStreamError,
    NoAnswerError,
    NoJetStreamError,
    NotPermittedError,
    UnreadableAnswerError,
)
from nats_scheduler.jetstream.foreign_json import is_expressible, read_object
from nats_scheduler.jetstream.joint_purge import MIN_JOINT_PURGES, RETRY_SECONDS, JointPurge
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.jetstream.schedule_messages import purge_through

MAX_PURGES_IN_FLIGHT = 256
"""Purges in flight at once."""

PURGE_GROUP_SECONDS = 0.05
"""Purges that follow each other within so long are sent together: each write wakes the server.

Nothing depends on them but what is stored: if the sidecar dies before, the next one reads the fire and its schedule,
and purges. On streams whose consumers remove fires there may be no fire to read, so there no purge waits.
"""

MAX_GROUPED_PURGES = 32
"""So many do not wait for more."""

_PLAIN_TEXT = re.compile(r"[ !#-\[\]-~]*+")
"""What JSON spells as it is."""


class Purger:
    """The purges of one stream on one connection."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        reach: LeaderReach,
        group_seconds: float = PURGE_GROUP_SECONDS,
    ) -> None:
        """Purge in the stream of `config`; what needs a look first is done by tasks of its own."""
        stream: str = config["name"]
        self._connection = connection
        self._api = api
        self._config = config
        self._tasks = tasks
        keeps_fires = reads_all(config)
        self._group_seconds = group_seconds if keeps_fires else 0.0
        self._may_be_joint = stands_alone(connection, api) and keeps_fires
        self._joint: JointPurge | None = None
        self._joint_after = 0.0
        """When (of the loop's clock) many may be purged jointly again."""
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._subject = f"{api.prefix}.STREAM.PURGE.{stream}"
        self._answers = connection.one(PurgeAnswers)
        inbox, self._key = self._answers.join(self, stream)
        self._head = f"PUB {self._subject} {inbox}.".encode("utf-8", "surrogateescape")
        self._indexes = BlockIndexes()
        self._singly = _purges_with_a_look(api, stream, notify, tasks, reach, self._indexes)
        self._waiting: deque[PurgeSchedule] = deque()
        self._in_flight: dict[bytes, PurgeSchedule] = {}
        """By number, in the order in which they were sent."""
        self._deadlines: deque[tuple[float, int]] = deque()
        """By when (of the loop's clock) the purges up to a number have to be answered."""
        self._number = 0
        self._group: asyncio.TimerHandle | None = None
        """When those that wait are sent, if they wait for others."""
        self._next_group_at = 0.0
        self._is_to_fill = False
        """Whether `_fill_up` will be called in this turn of the event loop, or after this chunk."""
        self._ended: str | None = None

    @property
    def in_flight(self) -> int:
        """The number of purges that were sent and are not concluded."""
        return len(self._in_flight)

    def begin(self, request: PurgeSchedule) -> None:
        """Send a purge as soon as the window allows it.

        What is begun soon after others were sent waits for more, for `group_seconds` at most.
        """
        if self._ended is not None:
            self._notify(_concluded(request, self._ended))
        elif (
            request.stored_at is not None
            or not is_expressible(request.schedule)
            or self._indexes.are_unread(request.through, self._loop.time())
        ):
            self._singly.begin(request)
        elif self._joint is None or not self._joint.add(request):
            self._waiting.append(request)
            if not self._is_to_fill:
                self._fill_or_wait()

    def _fill_or_wait(self) -> None:
        """Send what waits at the end of this turn, or have it wait for more of its group."""
        if len(self._waiting) < MAX_GROUPED_PURGES:
            if self._group is not None:
                return
            if self._loop.time() < self._next_group_at:
                self._group = self._loop.call_at(self._next_group_at, self._fill_up)
                return
        self._is_to_fill = True
        self._loop.call_soon(self._fill_up)

    def end(self, reason: str) -> None:
        """Conclude everything that is still open with `reason`: to purge again is harmless."""
        if self._ended is not None:
            return
        self._ended = reason
        self._stop_waiting()
        self._answers.leave(self._key)
        joint, self._joint = self._joint, None
        opened = [*self._in_flight.values(), *self._waiting, *(() if joint is None else joint.open.values())]
        self._in_flight.clear()
        self._waiting.clear()
        for request in opened:
            self._notify(_concluded(request, reason))
        self._singly.end(reason)

    def _stop_waiting(self) -> None:
        if self._group is not None:
            self._group.cancel()
            self._group = None

    def _fill_up(self) -> None:
        self._is_to_fill = False
        self._stop_waiting()
        if self._ended is None:
            now = self._loop.time()
            self._next_group_at = now + self._group_seconds
            if len(self._waiting) >= MIN_JOINT_PURGES and self._may_be_joint and now >= self._joint_after:
                self._purge_jointly()
            self._fill()

    def _fill(self) -> None:
        count = min(len(self._waiting), MAX_PURGES_IN_FLIGHT - len(self._in_flight))
        if count <= 0:
            return
        if not self._in_flight:
            self._deadlines.clear()
        head, frames = self._head, list[bytes]()
        for number in range(self._number + 1, self._number + count + 1):
            request = self._waiting.popleft()
            self._in_flight[b"%d" % number] = request
            body = purge_body(request.schedule, request.through)
            frames.append(b"%b%d %d\r\n%b\r\n" % (head, number, len(body), body))
        self._number += count
        self._connection.write(b"".join(frames))
        now = self._loop.time()
        self._indexes.were_read(now)
        self._deadlines.append((now + REQUEST_DEADLINE_SECONDS, self._number))
        self._answers.expect(self._key)

    def _purge_jointly(self) -> None:
        """Have purged jointly what waits, and what is begun until that has ended."""
        joint = JointPurge(self._connection, self._api, self._config, self._waiting, self._notify_purged)
        if is_started(self._run(joint), self._tasks):
            self._joint, self._waiting = joint, deque(joint.left)
            self._joint_after = math.inf

    async def _run(self, joint: JointPurge) -> None:
        await joint.run()
        if self._joint is joint:  # and the contact has not ended
            self._joint = None
            self._joint_after = self._loop.time() + (0.0 if joint.was_of_use else RETRY_SECONDS)
            self._waiting.extend(joint.open.values())
            self._fill()

    def _notify_purged(self, done: Sequence[PurgeSchedule]) -> None:
        if self._ended is None:
            self._notify(SchedulesPurged([one.schedule for one in done], [one.through for one in done]))

    # -- answers -------------------------------------------------------------------------------------------------

    def acknowledged(self, number: bytes, block: bytes, body: bytes) -> None:
        """Conclude one purge."""
        request = self._in_flight.pop(number, None)
        if request is not None:
            self._notify(self._conclusion(request, block, body))
            self._fill_soon()

    def acknowledged_run(self, numbers: Sequence[bytes], sequences: Sequence[int]) -> None:
        """Do what `acknowledged` does, for answers that each say that it was done."""
        popped = [self._in_flight.pop(number, None) for number in numbers]
        self._notify_purged([request for request in popped if request is not None])  # some may come too late
        self._fill_soon()

    def _conclusion(self, request: PurgeSchedule, block: bytes, body: bytes) -> PurgeConcluded:
        if block.startswith(NO_RESPONDERS):
            return _failed(request, NoJetStreamError(f"{self._subject}: nothing answers there"))
        answer = read_object(body)
        if answer is None:
            return _failed(request, UnreadableAnswerError(f"{self._subject}: the answer is not a JSON object"))
        try:
            raise_refusal(answer, self._subject)
        except ApiError as error:
            return _failed(request, error)
        return _concluded(request)

    def _fill_soon(self) -> None:
        """Send what waits for room, after all answers of this chunk."""
        if self._waiting and self._group is None and not self._is_to_fill:
            self._is_to_fill = True
            self._connection.after_this_chunk(self._fill_up)

    def conclude_denied(self, denials: Counter[str]) -> None:
        """Conclude the oldest purges if our user may not purge."""
        while denials[self._subject] > 0 and self._in_flight:
            denials[self._subject] -= 1
            self._conclude((next(iter(self._in_flight)),), NotPermittedError(self._subject))
        self._fill()

    def conclude_late(self, now: float) -> None:
        """Conclude what has a deadline at or before `now`, by the loop's clock, as unanswered."""
        late_through = 0
        while self._deadlines and self._deadlines[0][0] <= now:
            _deadline, late_through = self._deadlines.popleft()
        late = list(takewhile(lambda token: int(token) <= late_through, self._in_flight))
        self._conclude(late, NoAnswerError(f"{self._subject}: no answer within {REQUEST_DEADLINE_SECONDS} s"))
        self._fill()

    def _conclude(self, tokens: Iterable[bytes], error: JetStreamError) -> None:
        for token in tokens:
            self._notify(_failed(self._in_flight.pop(token), error))


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
        try:
            await _purge(api, stream, request, reach, indexes)
        except JetStreamError as error:
            return _failed(request, error)
        return _concluded(request)

    return BoundedRequests(notify, tasks, ask=ask, give_up=_concluded, limit=MAX_PURGES_IN_FLIGHT)


async def _purge(
    api: JetStreamApi, stream: str, request: PurgeSchedule, reach: LeaderReach, indexes: BlockIndexes
) -> None:
    if request.stored_at is not None:
        message = await api.message(stream, seq=request.through)
        if message is None or message.stored_at != request.stored_at:
            return  # it is not there any more; a stream that lost messages may have another one under this sequence
    if is_expressible(request.schedule):
        if not may_be_long(request.through) or not await _is_deleted(api, stream, request, reach, indexes):
            await purge_through(api, stream, request.schedule, request.through)
            indexes.were_read(asyncio.get_running_loop().time())
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
    indexes.has_messages(messages, asyncio.get_running_loop().time())
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
