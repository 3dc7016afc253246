"""The requests of the store of schedules as raw JSON: bytes of stored messages survive it.

The rule: build the request, send it, translate the answer; what follows from it is decided by the caller.
It is the part of `control.store_port.Wire` that is the same for each client; how a request is sent is theirs.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nats_scheduler.control.errors import TEMPORARY_STATUS, NoAnswerError, RefusedError, StreamNotFoundError, maybe_done
from nats_scheduler.control.store_port import StreamNow
from nats_scheduler.message.foreign_json import Object, inner, integer, is_expressible, stored_message
from nats_scheduler.message.generated import NOT_AVAILABLE
from nats_scheduler.message.stored import StoredMessage

STREAM_NOT_FOUND = 10059
MESSAGE_NOT_FOUND = 10037
SEQUENCE_NOT_FOUND = 10043

_is_name = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+").fullmatch


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
    """Requests to the JetStream of an account."""

    @property
    @abstractmethod
    def finds_last(self) -> bool:
        """True if the server finds the message before one that was deleted by its sequence, as from 2.12 on."""

    @abstractmethod
    async def call(self, request: str, body: Object) -> Object:
        """Return the answer to a request, its subject without the prefix; raises `RefusedError` for each refusal.

        A question that the server cannot answer at the moment is repeated a few times.
        """

    async def info(self, name: str, **wanted: Any) -> Object:
        """Return the information on a stream; raises `StreamNotFoundError`."""
        if not _is_name(name):
            raise StreamNotFoundError(f"{name!r} is no name of a stream: it has no blanks, dots, slashes or wildcards")
        return await self._of_stream(name, "STREAM.INFO", wanted)

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
        try:
            answer = await self._of_stream(stream, "STREAM.MSG.GET", where)
        except RefusedError as error:
            if error.code == MESSAGE_NOT_FOUND:
                return None
            raise
        message = stored_message(answer.get("message"))
        if message is None:
            raise NoAnswerError("the answer to a read of a message holds no stored message")
        return message

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject.

        As servers up to 2.11 do: after a later one was deleted by its sequence, they find it only once the messages on
        the subject were read (`test_the_message_before_a_deleted_one_is_found`).
        """
        if not is_expressible(subject):
            return None
        message = await self.message(stream, last_by_subj=subject)
        if message is not None or self.finds_last:
            return message
        if not [one async for one in self.subjects(stream, subject)]:
            return None
        first = await self.message(stream, seq=1, next_by_subj=subject)
        return first and (await self.message(stream, last_by_subj=subject) or first)

    async def purge(self, stream: str, subject: str, through: int) -> None:
        """Delete what is stored on a subject up to a sequence; raises `RefusedError`."""
        if not is_expressible(subject):  # JSON cannot name it, so one message is deleted by its sequence
            await self.delete(stream, through)
            return
        with maybe_done():
            await self._of_stream(stream, "STREAM.PURGE", {"filter": subject, "seq": through + 1})

    async def delete(self, stream: str, sequence: int) -> None:
        """Delete one message without erasing its bytes; one that is gone is no error. Raises `RefusedError`."""
        try:
            with maybe_done():
                await self._of_stream(stream, "STREAM.MSG.DELETE", {"seq": sequence, "no_erase": True})
        except RefusedError as error:
            if error.code not in (SEQUENCE_NOT_FOUND, MESSAGE_NOT_FOUND):
                raise

    async def _of_stream(self, stream: str, request: str, body: Object) -> Object:
        with told_apart(stream):
            return await self.call(f"{request}.{stream}", body)
