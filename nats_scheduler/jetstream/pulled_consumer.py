"""One ephemeral pull consumer: create it, ask it for messages, parse them, notice that it is silent or gone, delete it.

All that reads a stream through a consumer is built on it: following (`jetstream.consumer_follower`), reading a stretch
(`jetstream.stretches`), contents that are read together (`jetstream.content_runs`), joint purges
(`jetstream.joint_purge`). A pull consumer, because

It is asked in one of two ways. `pull` and `parts` read what is stored, and end when there is nothing more. `ask` has it
deliver what will be stored too, with heartbeats, and `watch` checks that something comes; its reader then takes what
came (`pop_messages`) when `arrived` is called.

The rules:

- What it delivers has no gap. At a gap, at a status that says that it is gone, or after too long a silence it has ended
  (`ended`, with the reason), and nothing more of it counts.
- Nothing is acknowledged, and no state of it is needed later: another one begins behind what was read.
- "No message" is no proof that it works, since it may have lost the pull that was sent before.

Cost: two requests to create and delete it, one for each pull, and about 5 µs for each message; 1 µs without bodies, if
many come at once (`jetstream.frame_runs`).
Limit: only one way to ask is used at a time.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence

from nats_scheduler.control.errors import ConnectionLostError, DeadlineError, RefusedError
from nats_scheduler.jetstream.api import (
    CONSUMER_DEADLINE_SECONDS,
    Config,
    JetStreamApi,
    consumer_name,
    delivery_numbers,
    stands_alone,
    undelivered,
)
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.frame_runs import ConsumerFrames
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

PULL_EXPIRES_SECONDS = 30
"""After this time a pull that waits for messages ends, and the next one is sent."""

CONSUMER_HEARTBEAT_INTERVAL_SECONDS = 0.5
"""The interval between two heartbeats of a consumer, if the node that hosts it may die."""

CONSUMER_CHECK_INTERVAL_SECONDS = 0.6
"""The interval between two checks that the consumer sent something: a heartbeat should have come between them.

If nothing came, the consumer is asked for one message: if its node has died, the server answers at once that there is
no responder.
"""

MAX_SILENT_CHECKS = 3
CONSUMER_SILENCE_LIMIT_SECONDS = MAX_SILENT_CHECKS * CONSUMER_CHECK_INTERVAL_SECONDS
"""If nothing came for `MAX_SILENT_CHECKS` checks, the consumer has ended: *Live* allows 3 s."""

PULL_SILENCE_LIMIT_SECONDS = 5.0
"""After this time without a message that is stored and was asked for, the consumer has ended."""

NO_RESPONDERS_WAITS_SECONDS = (0.01, 0.05, 0.2)
"""Waits before a pull is repeated that reached no consumer: a cluster needs a moment until all nodes know a new one."""

STATUS_LINE = b"NATS/1.0 "
"""The beginning of what the server says of a consumer; anything else is another client's, and is ignored."""

STATUS_HEARTBEAT, STATUS_NO_MESSAGES, STATUS_PULL_OVER, STATUS_NO_RESPONDERS = b"100", b"404", b"408", b"503"
"""The status codes that a consumer, or the server for it, sends in place of a message.

It works; it has no message; the pull has expired, or has no more messages (2.10); the pull reached no consumer.
"""

STANDALONE_RARITY = 10
"""On a single server, heartbeats and checks are this many times rarer.

There the consumer is in the connected process: it ends with the connection, and if it is deleted the server ends its
pull at once. Two things are left to detect: a server that stopped working, and a stream that was deleted, of which not
each consumer is told. When a client requests such a deletion, `runtime.discovery` and `runtime.this_instance` look.
"""

PROBE_PULL = b'{"batch":1,"no_wait":true}'


class PulledConsumer:
    """One consumer on one stream; the server deletes it by itself when nothing is asked of it."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        stream: str,
        arrived: Callable[[], None] | None = None,
        *,
        silence_limit_seconds: float = PULL_SILENCE_LIMIT_SECONDS,
    ) -> None:
        """Create nothing yet; `arrived` is called after each message, run of messages and status that came."""
        self._connection = connection
        self._api = api
        self._stream = stream
        self._silence_limit = silence_limit_seconds
        self._arrived = arrived or self._wake_reader
        self._rarity = STANDALONE_RARITY if stands_alone(connection, api) else 1
        self._loop = asyncio.get_running_loop()
        self._name = consumer_name()
        self._inbox = connection.inbox(f"c.{self._name}")
        self._next = f"{api.prefix}.CONSUMER.MSG.NEXT.{stream}.{self._name}"
        self._sid = 0
        self._frames: ConsumerFrames | None = None
        """What parses many messages at once; None if they come with their bodies."""
        self._messages: list[Sequence[StoredMessage]] = []
        """What has come and was not passed on yet: runs, and messages that came alone."""
        self._delivered = 0
        self._batch = 0
        """The messages of the last pull."""
        self._status = b""
        """The status that ended the last pull; empty if there was none yet."""
        self._silent_checks = 0
        self._was_heard = False
        """True if anything came from it since the last check."""
        self._stop_checking: Callable[[], None] | None = None
        self._arrival: asyncio.Future[None] | None = None
        """Resolves when something comes, or it ends."""
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Resolves to the reason when it is of no use any more."""
        self.matched = 0
        """The number of messages that matched when it was created."""
        self.max_pull: int | None = None
        """The longest pull that the server takes (`max_request_batch`); None: of any length."""
        self.to_come = 0
        """The messages that were asked for and have not come."""
        self.pending = 0
        """The messages that were stored and not delivered when the last one was."""
        self.has_delivered_all = False
        """True if a message came behind which none was pending."""
        self.is_complete = False
        """True if the last `pull` got as many messages as it asked for."""

    async def open(self, config: Config, within_seconds: float = CONSUMER_DEADLINE_SECONDS) -> None:
        """Create it; raises `SchedulerError` if the server refuses or does not answer."""
        self._sid = self._connection.subscribe(self._inbox, self._received)
        if config.get("headers_only"):
            self._frames = ConsumerFrames(self._sid, self._stream, self._name)
            self._connection.read_runs(self._sid, self._received_run)
        try:
            info = await self._api.create_consumer(self._stream, self._name, config, within_seconds)
        except RefusedError:
            self._connection.unsubscribe(self._sid)
            raise
        except BaseException:
            self.close()  # it may be created later
            raise
        self.matched = integer(info.get("num_pending"))
        self.max_pull = integer(inner(info.get("config")).get("max_batch")) or None

    def close(self) -> None:
        """Delete it; the answer is not awaited."""
        self._stop()
        self._api.abandon_consumer(self._stream, self._name)

    async def delete(self) -> None:
        """Delete it, and return when that is done: the account may have no place for another one before."""
        self._stop()
        await self._api.delete_consumer(self._stream, self._name)

    def _stop(self) -> None:
        self._connection.unsubscribe(self._sid)
        if self._stop_checking is not None:
            self._stop_checking()

    def end(self, reason: str) -> None:
        """Note that it is of no use any more; only the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(reason)
            self._wake_reader()

    # -- what is stored ------------------------------------------------------------------------------------------

    async def pull(self, count: int) -> list[StoredMessage]:
        """Return the next messages, at most `count`; raises as `parts` does."""
        return [message async for part in self.parts(count) for message in part]

    async def parts(self, count: int) -> AsyncGenerator[list[StoredMessage], None]:
        """Have it deliver at most `count` messages, and yield them in parts, as they come.

        Raises `DeadlineError` if it stops to deliver, `ConnectionLostError` if the connection ends.
        """
        self.is_complete = False
        waits = iter(NO_RESPONDERS_WAITS_SECONDS)
        left = count
        while left > 0:
            batch = left if self.max_pull is None else min(left, self.max_pull)
            self.to_come = 0  # whatever was left of the pull before does not come
            self._pull(batch, {"batch": batch, "no_wait": True})
            while part := await self._part():
                left -= len(part)
                yield part
            if self._status == STATUS_NO_RESPONDERS and (wait := next(waits, None)) is not None:
                await asyncio.sleep(wait)
            elif self._status in (STATUS_NO_MESSAGES, STATUS_PULL_OVER):
                return
            elif self._status:
                raise DeadlineError(f"stream {self._stream}: the consumer ended with status {self._status.decode()}")
        self.is_complete = True

    async def _part(self) -> list[StoredMessage]:
        """Return what has come of a pull, once something has; nothing if it is over."""
        if not self._messages and self.to_come > 0 and not self._status and not self.ended.done():
            self._arrival = self._loop.create_future()
            waited_for = (self._arrival, self._connection.lost)
            await asyncio.wait(waited_for, timeout=self._silence_limit, return_when=asyncio.FIRST_COMPLETED)
            if not self._arrival.done():
                if self._connection.is_lost:
                    raise ConnectionLostError(self._connection.lost.result())
                self.end(f"no message came within {self._silence_limit} s")
        if not self._messages and self.ended.done():
            raise DeadlineError(f"stream {self._stream}: {self.ended.result()}")
        return [message for batch in self.pop_messages() for message in batch]

    def _wake_reader(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # -- what is stored, and what will be ------------------------------------------------------------------------

    def ask(self, batch: int) -> None:
        """Ask for `batch` messages more, stored or not yet."""
        heartbeat = int(self._rarity * CONSUMER_HEARTBEAT_INTERVAL_SECONDS * SECOND)
        expires = PULL_EXPIRES_SECONDS * SECOND
        self._pull(batch, {"batch": batch, "expires": expires, "idle_heartbeat": heartbeat})

    def watch(self) -> None:
        """Check from now on that something comes while messages are asked for."""
        self._was_heard = True
        seconds = self._rarity * CONSUMER_CHECK_INTERVAL_SECONDS
        silence = f"nothing came from the consumer for {self._rarity * CONSUMER_SILENCE_LIMIT_SECONDS:.1f} s"
        self._stop_checking = self._connection.every(seconds, lambda: self._check(silence))

    def _check(self, silence: str) -> None:
        """End it if it has sent nothing for too long, and probe it if it has begun to be silent."""
        if self.to_come <= 0:
            return  # nothing is asked of it
        self._silent_checks = 0 if self._was_heard else self._silent_checks + 1
        self._was_heard = False
        if self._silent_checks >= MAX_SILENT_CHECKS:
            self.end(silence)
        elif self._silent_checks:
            self._connection.write(frame(self._next, self._inbox, b"", PROBE_PULL))

    async def has_nothing_left(self) -> bool:
        """Return whether nothing is pending for it, and all that it has sent came; raises `SchedulerError`."""
        info = await self._api.consumer(self._stream, self._name)
        sent = integer(inner(info.get("delivered")).get("consumer_seq"))
        return integer(info.get("num_pending")) == 0 and sent == self._delivered

    @property
    def is_silent(self) -> bool:
        """True if nothing came from it since the last check: its node may be dead, and never answer."""
        return not self._was_heard

    def pop_messages(self) -> list[Sequence[StoredMessage]]:
        """Return what came since the last call, in the order of the stream, in runs."""
        messages, self._messages = self._messages, []
        return messages

    # -- what comes ----------------------------------------------------------------------------------------------

    def _pull(self, batch: int, request: dict[str, object]) -> None:
        self._batch, self._status = batch, b""
        self.to_come += batch
        self._connection.write(frame(self._next, self._inbox, b"", json.dumps(request).encode()))

    def _received(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        if not reply.startswith(b"$JS.ACK."):  # the server lets no client name such a reply subject
            if block.startswith(STATUS_LINE):
                self._note_status(block)
            return
        sequence, number, stored_at, pending = delivery_numbers(reply)
        if int(number) != self._delivered + 1:
            self.end(f"the consumer delivered {int(number)} after {self._delivered}")
            return
        name, kept = subject.decode("utf-8", "surrogateescape"), body if self._frames is None else None
        message = StoredMessage(name, int(sequence), int(stored_at), block, kept)
        self.pending = int(pending)
        self._note((message,), is_all=not self.pending)

    def _received_run(self, buffer: bytes, position: int) -> int:
        """Do what `_received` does, for many messages at once, if they have the usual shape.

        `_received` takes the first message of each read: if the messages of many streams alternate, runs gain nothing.
        """
        assert self._frames is not None, "runs are read only without bodies"
        if not self._messages:
            return position
        found = self._frames.read(buffer, position, self._delivered)
        if found is None:
            return position
        self.pending = int(found.pending[-1])
        self._note(found.messages, is_all=b"0" in found.pending)
        return found.end

    def _note(self, messages: Sequence[StoredMessage], *, is_all: bool) -> None:
        self._messages.append(messages)
        self._was_heard = True
        self._delivered += len(messages)
        self.to_come -= len(messages)
        self.has_delivered_all |= is_all
        self._arrived()

    def _note_status(self, block: bytes) -> None:
        status = block[9:12]
        if status == STATUS_HEARTBEAT:
            self._was_heard = True
            return
        self._status = status
        if status == STATUS_PULL_OVER:
            self._was_heard = True
            self.to_come -= undelivered(block, otherwise=self._batch)
        elif status == STATUS_NO_RESPONDERS:
            self._was_heard = False
            if self._stop_checking is not None:  # else it may be new, and the pull is repeated
                self.end("the consumer ended: it has no responders")
        elif status != STATUS_NO_MESSAGES:
            self._was_heard = True
            line = block[9:].partition(b"\r\n")[0].decode(errors="replace")
            self.end(f"the consumer ended: {line}")
        self._arrived()
