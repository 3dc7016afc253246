"""The requests of the JetStream API that the client needs, as raw JSON: bytes of stored messages survive it.

The rule: build the request, send it, translate the answer; what follows from it is decided by the caller.
A question that the server could not answer at the moment (no leader) is repeated a few times.
"""

import asyncio
import binascii
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from nats_scheduler.client.wire import NO_RESPONDERS, Reply, Wire
from nats_scheduler.control.errors import NoAnswerError, RefusedError, StreamNotFoundError
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

DEFAULT_PREFIX = "$JS.API"
"""The prefix of JetStream's API in the domain of the server itself."""

ANSWER_SECONDS = 5.0
"""Longest wait for one answer."""

RETRY_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0)
"""Waits before a question is repeated that the server could not answer at the moment."""

STREAM_NOT_FOUND = 10059
MESSAGE_NOT_FOUND = 10037
SEQUENCE_NOT_FOUND = 10043
_TEMPORARY_STATUS = 503

_is_name = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+").fullmatch

Object = dict[str, Any]


class Requests:
    """Requests to the JetStream of an account."""

    def __init__(self, wire: Wire, prefix: str = DEFAULT_PREFIX) -> None:
        self._wire = wire
        self._prefix = prefix

    async def stream(self, name: str, **wanted: Any) -> Object:
        """Return the information on a stream; raises `StreamNotFoundError`."""
        if not _is_name(name):
            raise StreamNotFoundError(f"{name!r} is no name of a stream: it has no blanks, dots, slashes or wildcards")
        try:
            return await self._asked(f"STREAM.INFO.{name}", wanted)
        except RefusedError as error:
            if error.code == STREAM_NOT_FOUND:
                raise StreamNotFoundError(f"there is no stream {name}") from None
            raise

    async def stream_of(self, subject: str) -> str:
        """Return the name of the stream that has a subject; raises `StreamNotFoundError`."""
        names = (await self._asked("STREAM.NAMES", {"subject": subject})).get("streams")
        if not isinstance(names, list) or not names:
            raise StreamNotFoundError(f"no stream has the subject {subject}")
        return str(names[0])

    async def subjects(self, stream: str, within: str) -> AsyncIterator[tuple[str, int]]:
        """Yield the subjects that a stream holds messages on, among those that match `within`, with their numbers."""
        offset = 0
        while True:
            info = await self.stream(stream, subjects_filter=within, offset=offset)
            found = inner(inner(info.get("state")).get("subjects"))
            for subject, number in found.items():
                yield subject, whole(number)
            offset += len(found)
            if not found or offset >= whole(info.get("total")):
                return

    async def message(self, stream: str, **where: Any) -> StoredMessage | None:
        """Return the message at `seq`, `last_by_subj`, or `seq` + `next_by_subj`; None if there is none."""
        try:
            answer = await self._asked(f"STREAM.MSG.GET.{stream}", where)
        except RefusedError as error:
            if error.code == MESSAGE_NOT_FOUND:
                return None
            if error.code == STREAM_NOT_FOUND:
                raise StreamNotFoundError(f"there is no stream {stream}") from None
            raise
        return _stored(answer.get("message"))

    async def purge(self, stream: str, subject: str, through: int) -> None:
        """Delete what is stored on a subject up to a sequence; raises `RefusedError`."""
        await self._call(f"STREAM.PURGE.{stream}", {"filter": subject, "seq": through + 1})

    async def delete(self, stream: str, sequence: int) -> None:
        """Delete one message without erasing its bytes; one that is gone is no error. Raises `RefusedError`."""
        try:
            await self._call(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        except RefusedError as error:
            if error.code not in (SEQUENCE_NOT_FOUND, MESSAGE_NOT_FOUND):
                raise

    async def _asked(self, request: str, body: Object) -> Object:
        """Return the answer to a question, which may be repeated."""
        for wait in RETRY_WAITS_SECONDS:
            try:
                return await self._call(request, body)
            except _NotNowError:
                await asyncio.sleep(wait)
        return await self._call(request, body)

    async def _call(self, request: str, body: Object) -> Object:
        content = json.dumps(body).encode() if body else b""
        subject = f"{self._prefix}.{request}"
        answer = await self._wire.request(subject, content, within_seconds=ANSWER_SECONDS, accept=read_answer)
        if (error := answer.get("error")) is not None:
            status, code = whole(inner(error).get("code")), whole(inner(error).get("err_code"))
            text = f"{request}: {inner(error).get('description')} ({code})"
            raise _NotNowError(text) if status == _TEMPORARY_STATUS else RefusedError(text, code)
        return answer


class _NotNowError(NoAnswerError):
    """The server cannot answer at the moment: the stream has no leader, or JetStream is not ready."""


def read_answer(reply: Reply) -> Object | None:
    """Return an answer as an object; None if it is none."""
    if reply.status == NO_RESPONDERS:
        return {"error": {"code": _TEMPORARY_STATUS, "err_code": 0, "description": "JetStream does not answer"}}
    return read_object(reply.body)


def read_object(document: bytes) -> Object | None:
    """Read a JSON object; None for anything else."""
    try:
        value = json.loads(document.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def inner(value: Any) -> Object:
    """Return an object, or an empty one if the value is none."""
    return value if isinstance(value, dict) else {}


def whole(value: Any) -> int:
    """Return an integer, 0 if the value is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def time_of(value: Any) -> int | None:
    """Return an instant (ns since the Unix epoch) from a text, None if it is none."""
    instant = parse_rfc3339(value) if isinstance(value, str) else None
    return instant if isinstance(instant, int) else None


def _stored(message: Any) -> StoredMessage:
    """Return the message of an answer, header block and body as they were stored."""
    given = inner(message)
    stored_at = time_of(given.get("time"))
    subject, sequence = given.get("subject"), whole(given.get("seq"))
    if stored_at is None or not isinstance(subject, str) or sequence < 1:
        raise NoAnswerError("the answer to a read of a message holds no stored message")
    return StoredMessage(subject, sequence, stored_at, _bytes(given.get("hdrs")), _bytes(given.get("data")))


def _bytes(encoded: Any) -> bytes:
    return binascii.a2b_base64(encoded) if isinstance(encoded, str) else b""
