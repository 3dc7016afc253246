"""The schedules of an account over a plain nats-py connection: the port of `control.port` for programs.

The rules are those of the port: each publish and each delete names the message that it replaces, and how it ended is
reported as an error of its own. Reads are requests to the leader of the stream, so they see what was stored before.

Cost: a request for each message that is read; a publish is one request, a delete three.
Limit: on a stream with `no_ack` no publish is answered, so its outcome is unknown.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence

from nats_scheduler.client.past import FirePast
from nats_scheduler.client.serving import Serving, Servings
from nats_scheduler.client.wire import (
    ANSWER_SECONDS,
    NO_RESPONDERS,
    NotSentError,
    Object,
    Reply,
    Requests,
    Wire,
    inner,
    read_object,
    whole,
)
from nats_scheduler.control.changes import Change, change_advisory
from nats_scheduler.control.errors import (
    ConflictError,
    NoAnswerError,
    NotFoundError,
    NotPossibleError,
    RefusedError,
    UnknownOutcomeError,
)
from nats_scheduler.control.port import Published, Served, StoredFires
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.generated import EXPECTED_SEQUENCE, NOT_AVAILABLE, UNDECIDED, WRONG_LAST_SEQUENCE
from nats_scheduler.message.headers import header_value, with_effective_headers, without_headers
from nats_scheduler.message.reading import paused_name
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_literal_subject

MAX_LOOKUPS_IN_FLIGHT = 64
"""Messages of a list that are asked for at once."""

ID_IN_PROCESS = 10158
"""The server's code while it stores a message with the same `Nats-Msg-Id`."""

_EXPECTED_STREAM = b"Nats-Expected-Stream"
_EXPECTED_PREFIX = b"Nats-Expected-"
_LAST_SEQUENCE = re.compile(r"wrong last sequence: ([0-9]+)").search


class ClientStore:
    """The schedules that a program reaches with its connection; a `ScheduleStore`."""

    def __init__(self, wire: Wire, requests: Requests, servings: Servings) -> None:
        self._wire = wire
        self._requests = requests
        self._servings = servings
        self._known: dict[str, Serving] = {}
        self._may_record = True

    async def served(self, stream: str) -> Served:
        """Return how a stream is served; raises `StreamNotFoundError`, or `NotServedError` if nothing fires on it."""
        return (await self.serving(stream)).served

    async def serving(self, stream: str, *, is_anew: bool = False) -> Serving:
        """Return how a stream is served, and by what; with `is_anew` the sidecars are asked again."""
        serving = self._known[stream] = await self._servings.of(stream, is_anew=is_anew)
        return serving

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject with its body, as the leader of the stream has it."""
        message = await self._requests.message(stream, last_by_subj=subject)
        if message is None and not (await self._known_serving(stream)).served.server.finds_last:
            message = await self._uncovered(stream, subject)
        # A message that was published to a wildcard is stored under it, and a look-up finds what the wildcard matches.
        return message if message is not None and message.subject == subject else None

    async def schedules(self, stream: str, subjects: str) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if it has headers of a schedule."""
        asked: deque[asyncio.Task[StoredMessage | None]] = deque()
        try:
            async for subject, _number in self._requests.subjects(stream, subjects):
                asked.append(asyncio.ensure_future(self.last(stream, subject)))
                if len(asked) >= MAX_LOOKUPS_IN_FLIGHT and (found := await asked.popleft()) and _is_schedule(found):
                    yield found
            while asked:
                if (found := await asked.popleft()) and _is_schedule(found):
                    yield found
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes, *, expected: int | None) -> Published:
        """Store a message in place of the one with the sequence `expected`: 0 for none, None for any.

        Raises `ConflictError`, `RefusedError` or `UnknownOutcomeError`; `NoAnswerError` if nothing was sent, or no
        stream received it.
        """
        if not is_literal_subject(subject):
            raise NotPossibleError(f"{subject!r} is no literal subject such as 'orders.due'")
        if expected is not None:
            block = _conditioned(stream, block, expected)

        def accept(reply: Reply) -> Object | None:
            return _read_outcome(stream, reply)

        try:
            answer = await self._wire.request(subject, body, block, within_seconds=ANSWER_SECONDS, accept=accept)
        except NotSentError:
            raise
        except NoAnswerError as error:
            raise UnknownOutcomeError(str(error)) from None
        return _outcome(subject, answer)

    async def delete(self, stream: str, message: StoredMessage) -> None:
        """Delete a message and the older ones on its subject, if it is still the last one there.

        Raises `ConflictError`, `RefusedError` or `UnknownOutcomeError`; `NotFoundError` if it is not stored any more.
        """
        subject, sequence = message.subject, message.sequence
        stored = await self._requests.message(stream, seq=sequence)
        last = await self.last(stream, subject)
        if last is not None and last.sequence > sequence:
            raise ConflictError(f"{subject}: another message was stored there", last.sequence)
        if stored is None or (stored.subject, stored.stored_at) != (subject, message.stored_at):
            raise NotFoundError(f"{subject}: sequence {sequence} is not stored any more")
        await self._delete_through(stream, subject, sequence)
        last = await self.last(stream, subject)
        if last is not None and last.sequence > sequence:
            raise ConflictError(f"{subject}: another message was stored there meanwhile", last.sequence)

    async def fires(self, stream: str, schedule: StoredMessage, since: int, until: int) -> StoredFires:
        """Return which fires of a schedule are stored whose fire times (ns) are in a range, both ends included."""
        known = self._known.get(stream) or await self.serving(stream)
        return await FirePast(self._requests, known.served).stored(schedule, since, until, self.now())

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject; raises `StreamNotFoundError`."""
        return await self._requests.stream_of(subject)

    async def record(self, changes: Sequence[Change]) -> None:
        """Publish what was done as advisories; a user who may not publish there records nothing.

        Each attempt of such a user is an error of the connection, so after the first one there is none.
        """
        for change in changes:
            self._may_record = self._may_record and not self._wire.was_denied_below(ADVISORY_PREFIX)
            if self._may_record:
                subject, body, block = change_advisory(change)
                await self._wire.publish(subject, block, body)

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""
        return self._servings.now()

    async def _known_serving(self, stream: str) -> Serving:
        return self._known.get(stream) or await self.serving(stream)

    async def _uncovered(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject after a later one was deleted by its sequence.

        As servers up to 2.11 do: they find it only once the messages on the subject were read
        (`test_the_message_before_a_deleted_one_is_found`).
        """
        subjects = [one async for one in self._requests.subjects(stream, subject)]
        if not subjects:
            return None
        first = await self._requests.message(stream, seq=1, next_by_subj=subject)
        return first and (await self._requests.message(stream, last_by_subj=subject) or first)

    async def _delete_through(self, stream: str, subject: str, sequence: int) -> None:
        """Delete what is stored on a subject up to a sequence, the oldest first where purges are denied."""
        known = self._known.get(stream) or await self.serving(stream)
        try:
            if not known.denies_purge:
                return await self._requests.purge(stream, subject, sequence)
            at = 0
            while (found := await self._requests.message(stream, seq=at + 1, next_by_subj=subject)) is not None:
                if (at := found.sequence) > sequence:
                    return None
                await self._requests.delete(stream, at)
        except NoAnswerError as error:
            raise UnknownOutcomeError(str(error)) from None


def _is_schedule(message: StoredMessage) -> bool:
    """Return whether a message has the header of a schedule, active or paused, valid or not."""
    names = [name for dialect in DIALECTS for name in (dialect.schedule, paused_name(dialect))]
    return any(header_value(message.block, name) for name in names)


def _conditioned(stream: str, block: bytes, expected: int) -> bytes:
    conditions = [
        (_EXPECTED_STREAM, stream.encode("utf-8", "surrogateescape")),
        (EXPECTED_SEQUENCE, b"%d" % expected),
    ]
    found = with_effective_headers(without_headers(block, prefixes=(_EXPECTED_PREFIX,)), conditions)
    if found is None:
        text = "header names in the values of the message would hide its conditions from the server"
        raise NotPossibleError(text)
    return found


def _read_outcome(stream: str, reply: Reply) -> Object | None:
    """Return what the server says of a message; None if it is not the server that answers.

    Each answer of a server names the stream, refusals too.
    """
    if reply.status == NO_RESPONDERS:
        return {"error": {"code": 503, "err_code": 0, "description": "no stream has the subject, or it has no leader"}}
    answer = read_object(reply.body) or {}
    return answer if answer.get("stream") == stream else None


def _outcome(subject: str, answer: Object) -> Published:
    error = answer.get("error")
    if error is None:
        return Published(whole(answer.get("seq")), answer.get("duplicate") is True)
    code, text = whole(inner(error).get("err_code")), str(inner(error).get("description"))
    if code in UNDECIDED:
        raise NoAnswerError(f"{subject}: {text} ({code}): nothing was stored")
    if code in NOT_AVAILABLE:
        raise UnknownOutcomeError(f"{subject}: {text} ({code})")
    if code in WRONG_LAST_SEQUENCE:
        last = _LAST_SEQUENCE(text)
        raise ConflictError(f"{subject}: another client stored something there first", int(last[1]) if last else None)
    if code == ID_IN_PROCESS:
        raise UnknownOutcomeError(f"{subject}: {text}")
    if code == 0:
        raise NoAnswerError(f"{subject}: {text}")
    raise RefusedError(f"{subject}: {text} ({code})", code)
