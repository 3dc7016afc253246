"""The requests to JetStream as raw JSON, over the transport of the client or of the sidecar.

Raw, because a client library's classes drop the fields that they do not know, and the bytes of some messages.
The rule: build the request, send it, translate the answer; what follows from it is decided by the caller.

`StreamApi` has what the server's API answers: each refusal is a `RefusedError`. `Requests` is for the store of
schedules (`control.store_port.Wire`): a question that the server cannot answer at the moment is repeated a few times,
and what a change ended in is told apart.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from nats_scheduler.control.errors import (
    NoAnswerError,
    NoRespondersError,
    RefusedError,
    StreamNotFoundError,
    UnknownOutcomeError,
    maybe_done,
)
from nats_scheduler.control.store_port import StreamNow
from nats_scheduler.control.transport import ANSWER_SECONDS, Transport, request_json
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.message.foreign_json import Object, inner, integer, is_expressible, stored_message
from nats_scheduler.message.generated import NOT_AVAILABLE
from nats_scheduler.message.publish_answers import TEMPORARY_STATUS, Published, Refusal, answer_of, publish_answer
from nats_scheduler.message.stored import StoredMessage

T = TypeVar("T")

DEFAULT_PREFIX = "$JS.API"
"""The prefix of the JetStream of the server's own domain."""

STREAM_NOT_FOUND = 10059
MESSAGE_NOT_FOUND = 10037
SEQUENCE_NOT_FOUND = 10043

REPEATABLE_REQUESTS = (
    "INFO",
    "STREAM.INFO.",
    "STREAM.LIST",
    "STREAM.MSG.GET.",
    "STREAM.NAMES",
    "CONSUMER.INFO.",
    "CONSUMER.LIST.",
    "CONSUMER.CREATE.",
)
"""Requests that may be sent twice: the second one changes nothing, also if the same consumer is created again."""

RETRY_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0)
"""Waits before a question is repeated that the server could not answer at the moment."""

_is_name = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+").fullmatch


def raise_refusal(answer: Object, request: str) -> None:
    """Raise `RefusedError` if an answer is a refusal."""
    if answer.get("error") is not None:
        error = inner(answer["error"])
        status, code = integer(error.get("code"), 500), integer(error.get("err_code"))
        raise RefusedError(status, code, str(error.get("description", "")), request)


class StreamApi:
    """The requests of the API that read streams and delete of them."""

    def __init__(self, transport: Transport, prefix: str = DEFAULT_PREFIX, deadline: float = ANSWER_SECONDS) -> None:
        """Send requests to the JetStream of the transport's account, or of another domain, which has another prefix."""
        self.transport = transport
        self.prefix = prefix
        self._deadline = deadline

    @property
    def finds_last(self) -> bool:
        """True if `last_by_subj` finds the message before one that was deleted: from 2.12 on.

        False for another domain, whose servers are not known.
        """
        return self.prefix == DEFAULT_PREFIX and capabilities_of(self.transport.server_version).finds_last

    async def call(
        self, request: str, body: object = None, within_seconds: float | None = None, *, is_repeatable: bool = False
    ) -> Object:
        """Return the JSON answer to `request` (the subject behind the prefix); raises `RefusedError` for a refusal.

        It is sent again while it is not answered if it `is_repeatable`, or is one of `REPEATABLE_REQUESTS`.
        Raises as `Transport.request` does if there is no answer, or none within `within_seconds` if that is less.
        """
        is_repeatable = is_repeatable or request.startswith(REPEATABLE_REQUESTS)
        deadline = min(within_seconds or self._deadline, self._deadline)
        subject = f"{self.prefix}.{request}"
        answer = await request_json(self.transport, subject, body, deadline, is_repeatable=is_repeatable)
        raise_refusal(answer, request)
        return answer

    async def message(self, stream: str, **where: Any) -> StoredMessage | None:
        """Return the message at `seq`, `last_by_subj`, or `seq` + `next_by_subj`; None if there is none."""
        request = f"STREAM.MSG.GET.{stream}"
        try:
            answer = await self.call(request, where)
        except RefusedError as error:
            if error.code == MESSAGE_NOT_FOUND:
                return None
            raise
        message = stored_message(answer.get("message"))
        if message is None:
            raise NoAnswerError(f"{request}: the answer holds no stored message")
        asked = where.get("seq", 0)
        if message.sequence < asked or ("next_by_subj" not in where and message.sequence > asked > 0):
            raise NoAnswerError(f"{request}: {message.sequence} was not asked for: {where}")
        return message

    async def delete_message(self, stream: str, sequence: int) -> bool:
        """Delete a message without erasing its bytes on disk; returns whether it was there."""
        try:
            await self.call(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        except RefusedError as error:
            if error.code in (SEQUENCE_NOT_FOUND, MESSAGE_NOT_FOUND):
                return False
            raise
        return True

    async def purge_through(self, stream: str, subject: str, through: int) -> None:
        """Purge a subject up to a sequence; the server purges the messages below `seq`."""
        await self.call(f"STREAM.PURGE.{stream}", {"filter": subject, "seq": through + 1})

    def subject_counts(self, stream: str, within: str = ">") -> AsyncIterator[tuple[str, int]]:
        """Yield the subjects that a stream holds messages on, among those that match, with their numbers."""
        request = f"STREAM.INFO.{stream}"
        return counted_subjects(lambda offset: self.call(request, {"subjects_filter": within, "offset": offset}))


async def counted_subjects(info: Callable[[int], Awaitable[Object]]) -> AsyncIterator[tuple[str, int]]:
    """Yield the subjects that a stream holds messages on, with their numbers, page by page.

    `info` returns the answer to STREAM.INFO whose subjects begin at an offset.
    """
    offset = 0
    while True:
        page = await info(offset)
        found = inner(inner(page.get("state")).get("subjects"))
        for subject, number in found.items():
            yield subject, integer(number)
        offset += len(found)
        if not found or offset >= integer(page.get("total")):
            return


@contextmanager
def told_apart(stream: str = "") -> Iterator[None]:
    """Raise `StreamNotFoundError`, and `NoAnswerError` while there is no leader, in place of these refusals."""
    try:
        yield
    except RefusedError as error:
        if error.code == STREAM_NOT_FOUND:
            raise StreamNotFoundError(f"stream {stream} does not exist") from None
        if error.status == TEMPORARY_STATUS or error.code in NOT_AVAILABLE:
            raise NoAnswerError(str(error)) from None
        raise


class Requests(ABC):
    """The requests of the store of schedules to the JetStream of an account.

    How a client finds the stream of a subject, and reads many messages, follows from its permissions: that is its own.
    """

    def __init__(self, api: StreamApi) -> None:
        self._api = api

    @abstractmethod
    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject; raises `StreamNotFoundError`."""

    async def info(self, name: str, **wanted: Any) -> Object:
        """Return the information on a stream; raises `StreamNotFoundError`."""
        if not _is_name(name):
            raise StreamNotFoundError(f"{name!r} is no name of a stream: it has no blanks, dots, slashes or wildcards")
        return await self._answered(name, partial(self._api.call, f"STREAM.INFO.{name}", wanted or None))

    async def stream(self, name: str) -> StreamNow:
        """Return a stream as its leader describes it; raises `StreamNotFoundError`."""
        info = await self.info(name)
        state = inner(info.get("state"))
        return StreamNow(inner(info.get("config")), integer(state.get("first_seq")), integer(state.get("last_seq")))

    def subjects(self, stream: str, within: str) -> AsyncIterator[tuple[str, int]]:
        """Yield the subjects that a stream holds messages on, among those that match `within`, with their numbers."""
        return counted_subjects(lambda offset: self.info(stream, subjects_filter=within, offset=offset))

    async def message(self, stream: str, **where: Any) -> StoredMessage | None:
        """Return the message at `seq`, `last_by_subj`, or `seq` + `next_by_subj`; None if there is none."""
        return await self._answered(stream, partial(self._api.message, stream, **where))

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject.

        As servers up to 2.11 do: after a later one was deleted by its sequence, they find it only once the messages on
        the subject were read (`test_the_message_before_a_deleted_one_is_found`).
        """
        if not is_expressible(subject):
            return None
        message = await self.message(stream, last_by_subj=subject)
        if message is not None or self._api.finds_last:
            return message
        if not [one async for one in self.subjects(stream, subject)]:
            return None
        first = await self.message(stream, seq=1, next_by_subj=subject)
        return first and (await self.message(stream, last_by_subj=subject) or first)

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes) -> Published | Refusal:
        """Send a message once and return what the stream answers."""
        try:
            reply = await self._api.transport.request(subject, body, block, accepts=answer_of(stream))
        except NoRespondersError:
            raise NoRespondersError(f"{subject}: no stream has the subject, or it has no leader") from None
        except NoAnswerError as error:
            if not error.may_be_done:
                raise
            raise UnknownOutcomeError(str(error)) from None
        outcome = publish_answer(stream, *reply)
        assert outcome is not None, "it was accepted"
        return outcome

    async def purge(self, stream: str, subject: str, through: int) -> None:
        """Delete what is stored on a subject up to a sequence; raises `RefusedError`."""
        if not is_expressible(subject):  # JSON cannot name it, so one message is deleted by its sequence
            await self.delete(stream, through)
            return
        with maybe_done(), told_apart(stream):
            await self._api.purge_through(stream, subject, through)

    async def delete(self, stream: str, sequence: int) -> None:
        """Delete one message without erasing its bytes; one that is gone is no error. Raises `RefusedError`."""
        with maybe_done(), told_apart(stream):
            await self._api.delete_message(stream, sequence)

    async def wait(self, seconds: float) -> None:
        """Wait before an attempt is repeated."""
        await asyncio.sleep(seconds)

    async def _answered(self, stream: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a question, which is repeated a few times while the server cannot answer it."""
        with told_apart(stream):
            for seconds in RETRY_WAITS_SECONDS:
                try:
                    return await ask()
                except NoRespondersError:
                    pass
                except RefusedError as error:
                    if error.status != TEMPORARY_STATUS:
                        raise
                await self.wait(seconds)
            return await ask()
