"""What has to be remembered between two lives of the sidecar: which streams are flagged, and how far fires are settled.

One key-value bucket, written as plain JetStream messages: a value is a JSON object, the last one on a subject counts,
and it is read from the stream's leader.
The flag is also written into the stream's own metadata, where a user sees it and where it survives the loss of the
bucket; the bucket survives a tool that rewrites the stream's configuration without it.

The rule: anybody in the account may write here, so that a value not of our making counts as absent, and is told.
"""

from collections.abc import Callable
from typing import Any

from nats_scheduler.jetstream.api import STREAM_NOT_FOUND, JetStreamApi, raise_refusal
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ApiError
from nats_scheduler.jetstream.foreign_json import Object, read_object
from nats_scheduler.message.stored import StoredMessage

BUCKET_IN_USE = 10058
"""Somebody created the bucket at the same moment, with other settings."""

MAX_VALUE_BYTES = 64 * 1024


class Registry:
    """A small key-value bucket. Keys are tokens joined by dots."""

    def __init__(self, connection: Connection, api: JetStreamApi, bucket: str) -> None:
        self._connection = connection
        self._api = api
        self._stream = f"KV_{bucket}"
        self._subject = f"$KV.{bucket}"
        self.broken: Callable[[str, str], None] = lambda _key, _reason: None
        """Is told the key of a value that is not of our making, and what is wrong with it."""

    @property
    def stream(self) -> str:
        """The stream that holds the bucket."""
        return self._stream

    async def open(self, replicas: int = 1) -> None:
        """Create the bucket where it does not exist."""
        if await self._api.stream(self._stream) is not None:
            return
        try:
            await self._api.create_stream(self._config(replicas))
        except ApiError as error:
            if error.code != BUCKET_IN_USE:
                raise

    async def put(self, key: str, value: Any) -> None:
        """Write a value; it is stored when this returns."""
        raise_refusal(await self._connection.request_json(f"{self._subject}.{key}", value), f"put {key}")

    async def get(self, key: str) -> Object | None:
        """Return the last value, None where there is none; raises `JetStreamError` where nobody can say."""
        message = await self._last(key)
        if message is None or not message.body:
            return None
        value = read_object(message.body)
        if value is None:
            self.broken(key, f"no JSON object: {message.body[:80]!r}")
        return value

    async def written_at(self, key: str) -> int | None:
        """Return when the last value was written (ns since the Unix epoch), None where there is none."""
        message = await self._last(key)
        return None if message is None else message.stored_at

    async def keys(self, under: str) -> list[str]:
        """Return the keys that begin with `under.`, without that beginning."""
        prefix = f"{self._subject}.{under}."
        return [s.removeprefix(prefix) async for s in self._api.subjects(self._stream, f"{prefix}>")]

    async def _last(self, key: str) -> StoredMessage | None:
        try:
            return await self._api.message(self._stream, last_by_subj=f"{self._subject}.{key}")
        except ApiError as error:
            if error.code == STREAM_NOT_FOUND:
                return None
            raise

    def _config(self, replicas: int) -> dict[str, Any]:
        return {
            "name": self._stream,
            "description": "nats-scheduler: flagged streams and checkpoints",
            "subjects": [f"{self._subject}.>"],
            "max_msgs_per_subject": 1,
            "max_msg_size": MAX_VALUE_BYTES,
            "discard": "new",
            "storage": "file",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "num_replicas": replicas,
        }
