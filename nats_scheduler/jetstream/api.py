"""The requests to JetStream's API that only the sidecar sends: streams, consumers, and the account.

They are raw JSON (`control.requests`): to read, modify and update through the configuration classes of a client library
would reset what a newer server, or another tool, had set.
"""

import re
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from nats_scheduler.control.errors import NoAnswerError, RefusedError
from nats_scheduler.control.requests import DEFAULT_PREFIX, STREAM_NOT_FOUND, StreamApi, raise_refusal
from nats_scheduler.control.transport import ANSWER_SECONDS, Reply
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.message.foreign_json import Object, inner, integer, read_object
from nats_scheduler.message.publish_answers import TEMPORARY_STATUS
from nats_scheduler.schedule.instants import SECOND

CONSUMER_NOT_FOUND = 10014

CONSUMER_LIMIT_REACHED = 10026
"""The server's code if the stream or the account has as many consumers as it may."""

CONSUMER_DEADLINE_SECONDS = 2.0
"""Longest wait for an ephemeral consumer: a cluster may place it on a node that has just died and never answers.

A new attempt, under another name, is placed again.
"""

Config = dict[str, Any]
"""A stream configuration as JSON, unknown fields included."""


class Removed(NamedTuple):
    """The messages that were removed from a stream."""

    first: int
    """The first sequence that is stored; everything before it was removed."""
    sequences: frozenset[int]
    """The sequences that were removed behind it."""


class JetStreamApi(StreamApi):
    """Requests to the JetStream of the connection's account, or of another domain: all that the sidecar needs."""

    def __init__(self, connection: Connection, prefix: str = DEFAULT_PREFIX, deadline: float = ANSWER_SECONDS) -> None:
        super().__init__(connection, prefix, deadline)
        self._connection = connection

    async def info(self) -> Any:
        """Return the account's JetStream information; `api.level` shows what the server can do, from 2.11 on."""
        return await self.call("INFO")

    async def streams(self) -> AsyncIterator[Any]:
        """Yield the information of every stream of the account whose leader answers."""
        found, _unanswered = await self.listed_streams()
        for info in found:
            yield info

    async def listed_streams(self) -> tuple[list[Any], list[str]]:
        """Return the information of every stream of the account, and the streams whose leaders did not answer."""
        infos: dict[str, Any] = {}
        unanswered: set[str] = set()
        async for page in self._pages("STREAM.LIST", "streams", "missing"):
            found = [_stream_information(stream, "STREAM.LIST") for stream in _listed(page.get("streams"))]
            infos.update((stream["config"]["name"], stream) for stream in found)
            unanswered.update(str(name) for name in _listed(page.get("missing")))
        return list(infos.values()), sorted(unanswered - set(infos))

    async def _pages(self, request: str, *keys: str) -> AsyncIterator[Object]:
        """Yield each page of a list; the next one begins after all that the lists with these keys name."""
        offset = 0
        while True:
            page = await self.call(request, {"offset": offset})
            yield page
            count = sum(len(_listed(page.get(key))) for key in keys)
            offset += count
            if not count or offset >= integer(page.get("total")):
                return

    async def stream_names(self) -> list[str]:
        """Return the names of the account's streams: those of the first page of the server's list."""
        return [str(name) for name in _listed((await self.call("STREAM.NAMES")).get("streams"))]

    async def stream(self, name: str) -> Any:
        """Return a stream's information, or None if it does not exist."""
        try:
            request = f"STREAM.INFO.{name}"
            return _stream_information(await self.call(request), request)
        except RefusedError as error:
            if error.code == STREAM_NOT_FOUND:
                return None
            raise

    async def stream_with(self, subject: str) -> Any:
        """Return the information of the stream that has a subject, or None if none has it.

        Raises `RefusedError` if that stream has no leader that could describe it.
        """
        request = "STREAM.LIST"
        page = await self.call(request, {"offset": 0, "subject": subject})
        for info in _listed(page.get("streams")):
            return _stream_information(info, request)
        if missing := _listed(page.get("missing")):
            raise RefusedError(TEMPORARY_STATUS, 0, f"stream {missing[0]} has no leader", request)
        return None

    async def last_sequence(self, name: str, within_seconds: float) -> int:
        """Return the last sequence that a stream's leader knows; raises as `call` does."""
        info = await self.call(f"STREAM.INFO.{name}", None, within_seconds)
        return integer(inner(info.get("state")).get("last_seq"))

    async def removed(self, name: str, most: int) -> Removed | None:
        """Return which messages of a stream were removed; None if there is no stream, or if more than `most` were.

        Those before the first one that is stored are not counted.
        """
        info = await self.stream(name)
        if info is None or integer(inner(info.get("state")).get("num_deleted")) > most:
            return None
        info = await self.call(f"STREAM.INFO.{name}", {"deleted_details": True})
        state = inner(info.get("state"))
        deleted = frozenset(one for one in _listed(state.get("deleted")) if type(one) is int)
        return Removed(integer(state.get("first_seq")), deleted)

    async def create_stream(self, config: Config) -> Any:
        """Create a stream and return its information."""
        request = f"STREAM.CREATE.{config['name']}"
        return _stream_information(await self.call(request, config), request)

    async def update_stream(self, config: Config) -> Any:
        """Update a stream and return its information."""
        request = f"STREAM.UPDATE.{config['name']}"
        return _stream_information(await self.call(request, config), request)

    async def subjects(self, stream: str, within: str = ">") -> AsyncIterator[str]:
        """Yield the subjects that a stream holds messages on, among those that match `within`."""
        async for subject, _number in self.subject_counts(stream, within):
            yield subject

    async def counts(self, stream: str, subject: str) -> tuple[int, int]:
        """Return how many messages a stream holds on one subject, and how many at all."""
        info = await self.call(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
        state = inner(info.get("state"))
        return integer(inner(state.get("subjects")).get(subject)), integer(state.get("messages"))

    async def create_consumer(
        self, stream: str, name: str, config: Config, within_seconds: float = CONSUMER_DEADLINE_SECONDS
    ) -> Any:
        """Create an ephemeral consumer with this name and return its information."""
        request = {"stream_name": stream, "config": {"name": name, **config}, "action": "create"}
        return await self.call(f"CONSUMER.CREATE.{stream}.{name}", request, within_seconds)

    async def consumer(self, stream: str, name: str) -> Any:
        """Return a consumer's information."""
        return await self.call(f"CONSUMER.INFO.{stream}.{name}")

    async def consumers(self, stream: str) -> AsyncIterator[Object]:
        """Yield the information of every consumer of a stream."""
        async for page in self._pages(f"CONSUMER.LIST.{stream}", "consumers"):
            for consumer in _listed(page.get("consumers")):
                yield inner(consumer)

    def abandon_consumer(self, stream: str, name: str) -> None:
        """Ask for the deletion of a consumer, without waiting for the answer."""
        self._connection.publish(f"{self.prefix}.CONSUMER.DELETE.{stream}.{name}", b"")

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer; it is not an error if it is gone already."""
        try:
            await self.call(f"CONSUMER.DELETE.{stream}.{name}", None, CONSUMER_DEADLINE_SECONDS)
        except RefusedError as error:
            if error.code not in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                raise


def stored_sequence(reply: Reply, stream: str, request: str) -> int:
    """Return the sequence under which a stream stored a message; raise `RefusedError` if it refused it.

    Raises `NoAnswerError` if the answer is not one of the stream's that names a sequence: whether the message
    is stored is unknown. 2.10 says so of an identity that it knows, and not whether its message is stored.
    """
    answer = read_object(reply.body) or {}
    raise_refusal(answer, request)
    sequence = integer(answer.get("seq"))
    if answer.get("stream") != stream or sequence <= 0:
        raise NoAnswerError(f"{request}: stream {stream} names no sequence: {reply.body[:80]!r}")
    return sequence


def _stream_information(answer: Any, request: str) -> Any:
    """Return the information on a stream; raise `NoAnswerError` if it does not name the stream."""
    config = inner(inner(answer).get("config"))
    if not isinstance(config.get("name"), str):
        raise NoAnswerError(f"{request}: the answer describes no stream")
    return answer


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


CONSUMER_INACTIVITY_LIMIT_SECONDS = 30
"""The server removes a consumer after this long without a request."""

CLUSTER_DEADLINE_SECONDS = 0.5
"""Longest wait for a consumer that a cluster may have placed on a node that just died; a healthy one takes ms."""


def consumer_name() -> str:
    """Return a name that no other consumer has; those of all consumers of the sidecar begin in the same way."""
    return f"nats-scheduler-{uuid.uuid4().hex[:16]}"


def consumer_from(first: int, stream: Config) -> Config:
    """Return the configuration of a consumer that reads from `first` on; `stream` is the stream's configuration."""
    return {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": first,
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _inactive_threshold(stream),
    }


def _inactive_threshold(stream: Config) -> int:
    """Return after how long (ns) without a request a consumer is removed: the stream's own limit may be lower."""
    allowed = (stream.get("consumer_limits") or {}).get("inactive_threshold") or 0
    ours = CONSUMER_INACTIVITY_LIMIT_SECONDS * SECOND
    return min(ours, allowed) if allowed > 0 else ours


def reads_all(config: Config) -> bool:
    """Return whether every message of a stream is read: a consumer is harmless, and no consumer removes messages.

    On a stream that limits the number of its consumers, the sidecar's would take the place of a user's.
    """
    return bool(config.get("retention", "limits") == "limits" and config.get("max_consumers", -1) <= 0)


def stands_alone(connection: Connection, api: JetStreamApi) -> bool:
    """Return whether consumers are in the connected server's process: no cluster, no leaf node, no other domain."""
    server = connection.server
    return server.has_jetstream and not server.cluster and api.prefix == DEFAULT_PREFIX


_pending_messages = re.compile(rb"\r\nNats-Pending-Messages: ?([0-9]{1,9})\r\n").search


def undelivered(block: bytes, otherwise: int) -> int:
    """Return how many messages of a pull that timed out will not come."""
    found = _pending_messages(block)
    return otherwise if found is None else int(found[1])


def delivery_numbers(reply: bytes) -> list[bytes]:
    """Return the numbers of a message that a consumer delivers, from its reply subject.

    Its sequence in the stream and among those of the consumer, when it was stored (ns), and how many are pending.
    """
    fields = reply.split(b".")
    return fields[5:9] if len(fields) == 9 else fields[7:11]  # a domain and the account's hash put two more in front
