"""What all consumers of the sidecar have in common, whatever they are for.

They are ephemeral, in memory and without acknowledgements, and their name begins with `nats-scheduler-`.
"""

import asyncio
import json
import uuid

from nats_scheduler.jetstream.api import CONSUMER_DEADLINE_SECONDS, DEFAULT_PREFIX, Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.errors import ConnectionLostError, JetStreamError, NoAnswerError
from nats_scheduler.jetstream.foreign_json import inner, integer
from nats_scheduler.jetstream.wire import ConsumerFrames
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

CONSUMER_INACTIVITY_LIMIT_SECONDS = 30
"""The server removes a consumer after this long without a request."""

CLUSTER_DEADLINE_SECONDS = 0.5
"""Longest wait for a consumer that a cluster may have placed on a node that just died; a healthy one takes ms."""


def consumer_name() -> str:
    """Return a name that no other consumer has."""
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


def undelivered(block: bytes, otherwise: int) -> int:
    """Return how many messages of a pull that timed out will not come."""
    marker = b"Nats-Pending-Messages:"
    at = block.find(marker)
    if at < 0:
        return otherwise
    return int(block[at + len(marker) : block.index(b"\r\n", at)])


# A short-lived consumer that delivers only what is asked for, so that its reader decides how fast it reads.
#
# The rules: a pull is asked for when the one before is over. Nothing is acknowledged. The consumer is deleted when
# its reader is done, or by the server if its reader stops to pull.
#
# Cost: two requests for the consumer, one for each pull, and about 5 µs for each message; 1 µs without bodies, if
# many come at once (`jetstream.wire`).

PULL_SILENCE_LIMIT_SECONDS = 5.0
"""After so long without a message that was asked for, the consumer counts as lost."""

NO_RESPONDERS_WAITS_SECONDS = (0.01, 0.05, 0.2)
"""Waits before a pull is repeated that reached no consumer: a cluster needs a moment until all nodes know a new one."""

STATUS_NO_MESSAGES, STATUS_PULL_OVER, STATUS_NO_RESPONDERS = b"404", b"408", b"503"
"""There is no message; no more messages (2.10); the pull reached no consumer."""


class PulledConsumer:
    """One consumer on one stream."""

    def __init__(self, connection: Connection, api: JetStreamApi, stream: str) -> None:
        """Create nothing yet."""
        self._connection = connection
        self._api = api
        self._stream = stream
        self._name = consumer_name()
        self._inbox = connection.inbox(f"b.{self._name}")
        self._sid = 0
        self._frames: ConsumerFrames | None = None
        self._delivered = 0
        self._to_come = 0
        self._is_pull_over: asyncio.Future[bool] | None = None
        """Resolves to whether all that was pulled came."""
        self.pending = 0
        """How many messages matched when it was created."""
        self.max_pull: int | None = None
        """The longest pull that the server takes (`max_request_batch`); None: of any length."""
        self._status = b""
        """The status that ended the last pull; empty if all that was pulled came."""
        self.messages: list[StoredMessage] = []
        """What it has delivered, and its reader has not taken yet."""

    async def open(self, config: Config) -> None:
        """Create it; raises `JetStreamError` if the server refuses or does not answer, and then nothing is left."""
        self._sid = self._connection.subscribe(self._inbox, self._received)
        if config.get("headers_only"):
            self._frames = ConsumerFrames(self._sid, self._stream, self._name)
            self._connection.read_runs(self._sid, self._received_run)
        try:
            info = await self._api.create_consumer(self._stream, self._name, config, CONSUMER_DEADLINE_SECONDS)
        except JetStreamError:
            self._connection.unsubscribe(self._sid)
            raise
        self.pending = integer(info.get("num_pending"))
        self.max_pull = integer(inner(info.get("config")).get("max_batch")) or None

    def close(self) -> None:
        """Delete it; the answer is not awaited."""
        self._connection.unsubscribe(self._sid)
        self._api.abandon_consumer(self._stream, self._name)

    async def pull(self, count: int) -> bool:
        """Have it deliver at most `count` messages, and wait for them; return whether all of them came.

        Raises `NoAnswerError` if it stops to deliver, `ConnectionLostError` if the connection ends.
        """
        for wait in NO_RESPONDERS_WAITS_SECONDS:
            is_complete = await self._pull_once(count)
            if self._status != STATUS_NO_RESPONDERS:
                break
            await asyncio.sleep(wait)
        else:
            is_complete = await self._pull_once(count)
        if self._status not in (b"", STATUS_NO_MESSAGES, STATUS_PULL_OVER):
            raise NoAnswerError(f"stream {self._stream}: the consumer ended with status {self._status.decode()}")
        return is_complete

    async def _pull_once(self, count: int) -> bool:
        self._to_come = count if self.max_pull is None else min(count, self.max_pull)
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._is_pull_over = over
        self._status = b""
        body = json.dumps({"batch": self._to_come, "no_wait": True}).encode()
        request = f"{self._api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        self._connection.write(frame(request, self._inbox, b"", body))
        to_come = -1
        while not over.done() and to_come != self._to_come and not self._connection.is_lost:
            to_come = self._to_come
            waited_for = (over, self._connection.lost)
            await asyncio.wait(waited_for, timeout=PULL_SILENCE_LIMIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if over.done():
            return over.result()
        if self._connection.is_lost:
            raise ConnectionLostError(self._connection.lost.result())
        raise NoAnswerError(f"stream {self._stream}: no message came within {PULL_SILENCE_LIMIT_SECONDS} s")

    def _received(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        """Receive a message, or a status of the server, after which nothing more comes."""
        if not reply.startswith(b"$JS.ACK."):
            self._status = block[9:12]
            self._end(is_complete=False)
            return
        fields = reply.split(b".")
        at = 5 if len(fields) == 9 else 7  # a domain and the account's hash put two more in front
        stored_on = subject.decode("utf-8", "surrogateescape")
        self.messages.append(StoredMessage(stored_on, int(fields[at]), int(fields[at + 2]), block, body or None))
        self._delivered += 1
        self._note_received(1)

    def _received_run(self, buffer: bytes, position: int) -> int:
        """Do what `_received` does, for many messages at once, if they have the usual shape."""
        assert self._frames is not None, "runs are read only without bodies"
        run, position = self._frames.read(buffer, position, self._delivered, is_live=True)
        if run is not None:
            self.messages += run
            self._delivered += len(run)
            self._note_received(len(run))
        return position

    def _note_received(self, count: int) -> None:
        self._to_come -= count
        if count and self._to_come == 0:
            self._end(is_complete=True)

    def _end(self, *, is_complete: bool) -> None:
        if self._is_pull_over is not None and not self._is_pull_over.done():
            self._is_pull_over.set_result(is_complete)
