"""The registry: what has to outlive a sidecar (flagged streams, checkpoints), and what instances exchange.

Instances exchange heartbeats, and records: which instance owns which stream.

It is one key-value bucket, written as plain JetStream messages: a value is a JSON object, the last one on a subject
counts, and it is read from the stream's leader.
Each value has the number of its format (`jetstream.value_formats`), which is added and removed here.
A flag is written here and nowhere else, so that the stream's configuration stays as its user asked for it.
A running sidecar keeps the flags in memory, and writes them into a bucket that was created again.

The rule: any client of the account may write here, so a value that no sidecar wrote counts as absent, and is reported.
That includes the answer to a direct get: a client without a permission for the bucket has the server send it here.
A value of a newer version is not read, and not replaced: to read it raises `UnknownFormatError`.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from nats_scheduler.control.errors import RefusedError, SchedulerError
from nats_scheduler.control.requests import STREAM_NOT_FOUND
from nats_scheduler.control.transport import is_bare
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, Input, MessagesRead
from nats_scheduler.jetstream.api import Config, JetStreamApi, stored_sequence
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.consumer_follower import ConsumerFollower
from nats_scheduler.jetstream.own_streams import ADAPTED, create_own
from nats_scheduler.jetstream.value_formats import FORMATS, UnknownFormatError, marked, read_as_known
from nats_scheduler.message.foreign_json import Object, inner, integer, read_object, server_time
from nats_scheduler.message.generated import EXPECTED_SEQUENCE, WRONG_LAST_SEQUENCE
from nats_scheduler.message.headers import RELAYED, header_value, with_headers
from nats_scheduler.message.stored import StoredMessage

KEY_POLL_INTERVAL_SECONDS = 0.25
"""The interval at which the keys are looked up if no consumer can follow them."""

DOMAIN_API_PREFIX = re.compile(r"\$JS\.[^.]+\.API")
"""The prefix of a JetStream domain."""

MAX_PUT_ATTEMPTS = 8
"""The largest number of attempts at a write while others write under the same key."""

MAX_VALUE_BYTES = 64 * 1024

Delivered = Object | UnknownFormatError | None
"""The values that a follower of the bucket receives: a value, why it cannot be read, or None if there is none."""


class BucketLimits(NamedTuple):
    """What the settings say of the buckets that are created."""

    max_bytes: int | None = None
    """Their size; None for none, or a small one where every stream needs one."""
    storage: str | None = None
    """`file` or `memory`; None for files if the account has some."""


NO_BUCKET_LIMITS = BucketLimits()


class Registry:
    """A small key-value bucket. Keys are tokens joined by dots."""

    formats: Mapping[str, int] = FORMATS
    """The format of each kind of value that is written here."""

    def __init__(
        self, connection: Connection, api: JetStreamApi, bucket: str, limits: BucketLimits = NO_BUCKET_LIMITS
    ) -> None:
        self._connection = connection
        self._api = api
        self._limits = limits
        self.stream = f"KV_{bucket}"
        """The stream that holds the bucket."""
        self._subject = f"$KV.{bucket}"
        # A leaf node with a domain of its own does not pass `$KV` on; the server of the domain maps this subject.
        self.written_to = f"{api.prefix}.{self._subject}" if DOMAIN_API_PREFIX.fullmatch(api.prefix) else self._subject
        """The subject below which values are published."""
        self.broken: Callable[[str, str], None] = lambda _key, _reason: None
        """Called with the key of a value that no sidecar wrote, and with what is wrong with it."""
        self.adapted: Callable[[str, Config, str], None] = lambda _stream, _config, _reason: None
        """Called with the bucket that was created, its configuration, and why that is not as it would be elsewhere."""
        self.created = ""
        """The creation time of the bucket that was opened, or seen, last; empty before."""

    async def server_time(self) -> int | None:
        """Ask for the time (ns since the Unix epoch) of the leader of the bucket; None if the answer has none."""
        return server_time(await self._api.stream(self.stream))

    async def open(self) -> bool:
        """Create the bucket if it does not exist, and return whether that was so.

        In a cluster it has three replicas, so that streams are served while a node is down, and elsewhere it is what
        fits into the account (`jetstream.own_streams`).
        """
        info = await self._api.stream(self.stream)
        is_new = info is None
        while info is None:
            # None again if another client was faster.
            limits = self._limits
            sized = {} if limits.max_bytes is None else {"max_bytes": limits.max_bytes}
            wanted = {**self._config(), **sized}
            created = await create_own(self._connection, self._api, wanted, limits.storage)
            if created is not None:
                self._note_adapted(wanted, inner(created.get("config")))
            info = created or await self._api.stream(self.stream)
        self.created = str(info.get("created"))
        return is_new

    async def is_replaced(self) -> bool:
        """Return whether the bucket is gone, or a later one than `created`: it has lost what the earlier one held."""
        info = await self._api.stream(self.stream)
        created = "" if info is None else str(info.get("created"))
        self.created = self.created or created
        return created != self.created

    def _note_adapted(self, wanted: Config, config: Config) -> None:
        is_moved = self._limits.storage is None and config.get("storage") != wanted["storage"]
        is_sized = "max_bytes" not in wanted and integer(config.get("max_bytes")) > 0
        reasons = [ADAPTED[name] for name, differs in (("storage", is_moved), ("max_bytes", is_sized)) if differs]
        if reasons:
            self.adapted(self.stream, config, "; ".join(reasons))

    async def put(self, key: str, value: Any) -> None:
        """Write a value in place of whatever is there, unless a newer version wrote that; it is stored at the end."""
        for _ in range(MAX_PUT_ATTEMPTS):
            _value, revision = await self.revised(key)
            if await self.swap(key, value, revision) is not None:
                return
        raise SchedulerError(f"put {key}: another client wrote it before each of {MAX_PUT_ATTEMPTS} attempts")

    async def get(self, key: str) -> Object | None:
        """Return the last value, None if there is none; raises `SchedulerError` if that cannot be found out.

        That includes `UnknownFormatError`, as for all that read a value here.
        """
        return (await self.dated(key))[0]

    def _object(self, key: str, message: StoredMessage) -> Object | None:
        """Return the value of a message; None for one that no sidecar wrote, or of a key that was deleted."""
        is_relayed = header_value(message.block, RELAYED) is not None
        value = None if is_relayed else read_object(message.body or b"")
        return None if value is None else read_as_known(key, value, self.formats)

    async def swap(self, key: str, value: Any, revision: int) -> int | None:
        """Write a value in place of the one with this revision (0: of none); None if another one is there by now.

        None too if another one is being written: a read may still return the value before.
        """
        return await self.swap_bytes(key, json.dumps(marked(key, value, self.formats)).encode(), revision)

    async def swap_bytes(self, key: str, value: bytes, revision: int, block: bytes = b"") -> int | None:
        """Do what `swap` does with a value that is any bytes, and with further headers, if `block` has some."""
        block = with_headers(block, [(EXPECTED_SEQUENCE, b"%d" % revision)])
        reply = await self._connection.request(f"{self.written_to}.{key}", value, block, accepts=is_bare)
        try:
            return stored_sequence(reply, self.stream, f"swap {key}")
        except RefusedError as error:
            if error.code in WRONG_LAST_SEQUENCE:
                return None  # several instances write: the one that lost reads the key again
            raise

    def send(self, key: str, value: Any) -> bool:
        """Write a value without waiting for the answer; return False if it is too large."""
        document = json.dumps(marked(key, value, self.formats))
        return self._connection.publish(f"{self.written_to}.{key}", document.encode())

    def mark_deleted(self, key: str) -> None:
        """Write that a key has no value any more, for the followers, without waiting for the answer."""
        block = with_headers(b"", [(b"KV-Operation", b"DEL")])
        self._connection.write(frame(f"{self.written_to}.{key}", "", block, b""))

    async def purge(self, key: str) -> None:
        """Purge all that is stored under a key."""
        await self._api.call(f"STREAM.PURGE.{self.stream}", {"filter": f"{self._subject}.{key}"})

    async def revised(self, key: str) -> tuple[Object | None, int]:
        """Return the last value and its revision, 0 if there is none."""
        message = await self._last(key)
        return (None, 0) if message is None else (self._object(key, message), message.sequence)

    async def follow(
        self,
        keys: Sequence[str],
        received: Callable[[str, Delivered, StoredMessage], None],
        caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Deliver what is stored under keys that match, and then what is written, in order.

        What is not a JSON object, such as a deleted key, is delivered as None; a value of an unknown format as the
        error that says so.
        `caught_up` is called when all that was stored is delivered.
        Ends as followers do, and also when the consumer is lost: the bucket may be another one by now, whose sequences
        begin again, so that all of it has to be delivered.
        """
        prefix = f"{self._subject}."

        def notify(given: Input) -> None:
            if isinstance(given, ContactLost):
                raise SchedulerError(given.reason)
            if isinstance(given, CaughtUp):
                caught_up()
            for message in given.messages if isinstance(given, MessagesRead) else ():
                key = message.subject.removeprefix(prefix)
                received(key, self._delivered(key, message), message)

        wanted = {"headers_only": False, "filter_subjects": [f"{prefix}{key}" for key in keys]}
        otherwise = partial(self._look_up, keys, notify)
        await ConsumerFollower(self._connection, self._api, {"name": self.stream}, notify, otherwise, wanted).follow(0)

    def _delivered(self, key: str, message: StoredMessage) -> Delivered:
        try:
            return self._object(key, message)
        except UnknownFormatError as error:
            return error

    async def _look_up(self, keys: Sequence[str], notify: Callable[[Input], None]) -> None:
        """Follow by look-ups, if the account allows no more consumers."""
        last = 0
        while True:
            found: list[StoredMessage] = []
            for key in keys:
                async for subject in self._api.subjects(self.stream, f"{self._subject}.{key}"):
                    message = await self._api.message(self.stream, last_by_subj=subject)
                    if message is not None and message.sequence > last:
                        found.append(message)
            found.sort(key=lambda message: message.sequence)
            last = found[-1].sequence if found else last
            notify(MessagesRead(found))
            notify(CaughtUp())
            await asyncio.sleep(KEY_POLL_INTERVAL_SECONDS)

    async def written_at(self, key: str) -> int | None:
        """Return when the last value was written (ns since the Unix epoch), None if there is none."""
        message = await self._last(key)
        return None if message is None else message.stored_at

    async def dated(self, key: str) -> tuple[Object | None, int, int]:
        """Return the last value, when it was written (ns since the Unix epoch), and its revision; 0 if none."""
        message = await self._last(key)
        if message is None or not message.body:
            return None, 0, 0
        value = self._object(key, message)
        if value is None:
            self.broken(key, f"no JSON object that a sidecar wrote: {message.body[:80]!r}")
        return value, message.stored_at, message.sequence

    async def keys(self, under: str) -> list[str]:
        """Return the keys that begin with `under.`, without this prefix."""
        return [key.removeprefix(f"{under}.") async for key in self.keys_within(f"{under}.>")]

    async def keys_within(self, wanted: str) -> AsyncIterator[str]:
        """Yield the keys that match."""
        prefix = f"{self._subject}."
        async for subject in self._api.subjects(self.stream, f"{prefix}{wanted}"):
            yield subject.removeprefix(prefix)

    async def _last(self, key: str) -> StoredMessage | None:
        try:
            return await self._api.message(self.stream, last_by_subj=f"{self._subject}.{key}")
        except RefusedError as error:
            if error.code == STREAM_NOT_FOUND:
                return None
            raise

    def _config(self) -> dict[str, Any]:
        return {
            "name": self.stream,
            "description": "nats-scheduler: flagged streams and checkpoints",
            "subjects": [f"{self._subject}.>"],
            "max_msgs_per_subject": 1,
            "max_msg_size": MAX_VALUE_BYTES,
            "discard": "new",
            "storage": "file",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
        }
