"""Follow a stream through a consumer: every message once, in order, nearly always headers only.

For streams with limits retention, on which a consumer is harmless; for the others see `jetstream.scan`.
A pull consumer, because the server cuts off a slow push consumer without flow control, and one with flow control needs
as much care as this.
Ephemeral, in memory, without acknowledgements: the follower knows what was read last. So if a consumer dies with its
node, or in a restart, a new one begins behind that message.
While a cluster creates no consumer, messages are read one by one. During a burst of the sidecar's
own fires there is no consumer, and only what other clients store is read (`jetstream.burst`).

Where a message that is replaced is gone at once (`max_msgs_per_subject` of 1, or schedules of the server), bodies are
delivered too, once all is read: only they show what is lost (`engine.reading.replaced`). Not after a large one came, or
very many, nor where replacement is meant.

A standby leaves a burst to the owner: it asks for few messages at a time, and if these come at once it reads the rest
a second later, in large runs. So what is stored in a burst does not wait until two have read it.

The rule: the consumer delivers without a gap, or it is replaced by a new one.
In a cluster its node may be behind the leader of the stream, for long after a restart. Everything is read only when
the leader has no further message of those that it had when the consumer was created.
Cost: a tuple a message, parsed together with its neighbours if many come at once (`jetstream.wire`); one request for
thousands of messages.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from nats_scheduler.engine.actions import Notify
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, MessagesRead
from nats_scheduler.jetstream.api import (
    CLUSTER_DEADLINE_SECONDS,
    CONSUMER_DEADLINE_SECONDS,
    CONSUMER_LIMIT_REACHED,
    Config,
    JetStreamApi,
    consumer_from,
    consumer_name,
    delivery_numbers,
    stands_alone,
    undelivered,
)
from nats_scheduler.jetstream.burst import Burst
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.errors import ApiError, ConnectionLostError, JetStreamError, NoAnswerError
from nats_scheduler.jetstream.reach import may_lag
from nats_scheduler.jetstream.wire import ConsumerFrames
from nats_scheduler.message.stored import MAX_FOLLOWED_BODY_BYTES, StoredMessage
from nats_scheduler.message.stream_rules import METADATA_DEBOUNCE, has_metadata
from nats_scheduler.schedule.instants import SECOND

# Read a stream one message after the other, while no consumer can be created.
#
# A cluster that has lost its leader creates no consumer for 4 s to 9 s, while the stream itself may work. Its
# messages are read by requests then, as contents are.
#
# The rule: if no answer comes for `WALK_ANSWER_DEADLINE_SECONDS`, it reports that contact is lost.
# Cost: one request a message, bodies included (some 5,000 a second), and ten a second while none is stored.

WALK_POLL_INTERVAL_SECONDS = 0.1
"""The interval at which the next message is asked for while there is none."""

WALK_ANSWER_DEADLINE_SECONDS = 1.5
"""Longest wait for an answer: a schedule that is cancelled meanwhile still fires."""


class Walk:
    """One walk through one stream, from behind the message with sequence `last`."""

    def __init__(self, api: JetStreamApi, stream: str, last: int, notify: Notify) -> None:
        """Begin to read, and to deliver to `notify`."""
        self._api = api
        self._stream = stream
        self._notify = notify
        self.last = last
        """The sequence of the last message that was delivered."""
        self.is_answered = True
        """False from a request that was not answered until everything is read."""
        self._walking = asyncio.create_task(self._walk())

    def end(self) -> None:
        """Stop reading and delivering."""
        self._walking.cancel()

    async def _walk(self) -> None:
        """Deliver what is stored, and then what is published, until cancelled."""
        is_caught_up = False
        while True:
            try:
                async with asyncio.timeout(WALK_ANSWER_DEADLINE_SECONDS):
                    message = await self._api.message(self._stream, seq=self.last + 1, next_by_subj=">")
            except (JetStreamError, TimeoutError) as error:
                if self.is_answered:
                    silence = f"the next message was not answered within {WALK_ANSWER_DEADLINE_SECONDS} s"
                    self._notify(ContactLost(str(error) or silence))
                self.is_answered = is_caught_up = False
                await asyncio.sleep(WALK_POLL_INTERVAL_SECONDS)
                continue
            if message is not None:
                self.last = message.sequence
                self._notify(MessagesRead([message._replace(body=None)]))
                continue
            if not is_caught_up:
                self._notify(CaughtUp())
            is_caught_up = self.is_answered = True
            await asyncio.sleep(WALK_POLL_INTERVAL_SECONDS)


MAX_PULL_BATCH = 5_000
"""Messages of one pull, if the server allows it; the next pull is sent when half of them have come."""

PULL_EXPIRES_SECONDS = 30

STANDBY_PULL_BATCH = 512
"""Messages of one pull of a standby that has read all."""

STANDBY_BURST_SECONDS = 0.1
"""If half of them come within this time there is a burst, or a load."""

STANDBY_REST_SECONDS = 1.0
"""The time for which a standby leaves a burst to the owner. It is no older than that when it takes over."""

MIN_WINDOW_FOR_REST_NS = 10 * SECOND
"""With a shorter duplicate window (ns) a standby reads all at once: it sends again what it has not read when it takes
over."""

MAX_UNTAKEN = 20_000
"""While more messages than this were delivered and are not taken, none are asked for: some MB of memory."""

UNTAKEN_CHECK_SECONDS = 0.005
"""The interval at which it is checked whether they are."""

STANDBY_REST_CHECK_SECONDS = 0.02
"""The interval at which it is checked whether it is a standby still."""

CONSUMER_HEARTBEAT_INTERVAL_SECONDS = 0.5
"""The interval between two heartbeats of a consumer, if the node that hosts it may die."""

CONSUMER_CHECK_INTERVAL_SECONDS = 0.6
"""The interval between two checks that the consumer sent something: a heartbeat should have come between them.

If nothing came, the consumer is asked for one message: if its node has died, the server answers at once that there is
no responder. "No message" is no proof that it works, since it may have lost the pull that was sent before.
"""

CONSUMER_DELETE_DEADLINE_SECONDS = 0.5
"""Longest wait for the deletion of a consumer: without a quorum no answer comes, and the next contact has to wait."""

MAX_CHECKS_BEHIND = 5
"""After this many checks without a message, a consumer whose node is behind is replaced by one on another node."""

MAX_SILENT_CHECKS = 3
CONSUMER_SILENCE_LIMIT_SECONDS = MAX_SILENT_CHECKS * CONSUMER_CHECK_INTERVAL_SECONDS
"""If nothing came for `MAX_SILENT_CHECKS` checks, the consumer is taken for dead: *Live* allows 3 s."""

STANDALONE_INTERVAL_FACTOR = 10
"""On a single server, heartbeats and checks are this many times rarer.

There the consumer is in the connected process: it ends with the connection, and if it is deleted the server ends its
pull at once. Only a server that stopped working is left to detect.
"""

CLUSTER_CONSUMER_DEADLINES_SECONDS = (CLUSTER_DEADLINE_SECONDS, 1.0, CONSUMER_DEADLINE_SECONDS)
"""Longest waits for one new consumer after the other: the next one may be placed on the dead node again."""

PROBE_PULL = b'{"batch":1,"no_wait":true}'

MAX_BODIES_PER_SECOND = 1_000
"""If more bodies come, the stream is followed without them: it has more to read than schedules."""

STATUS_LINE = b"NATS/1.0 "
"""The beginning of what the server says of a consumer; anything else is another client's, and nothing to us."""

BURST_BEGAN = "a burst is read by its acknowledgements"
BODIES_CHANGE = "from here on messages are read with their bodies, or without"

STATUS_HEARTBEAT, STATUS_NO_MESSAGES, STATUS_PULL_EXPIRED, STATUS_NO_RESPONDERS = b"100", b"404", b"408", b"503"
"""The status codes that a consumer, or the server for it, sends in place of a message."""


class ConsumerFollower:
    """Follows one stream on one connection."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        notify: Notify,
        otherwise: Callable[[], Awaitable[object]],
        wanted: Mapping[str, object] = MappingProxyType({}),
        in_flight: Callable[[], int] = lambda: 0,
        is_standby: Callable[[], bool] = lambda: False,
        last_taken: Callable[[], int] | None = None,
    ) -> None:
        """Follow the stream of `config`; `wanted` adds to the consumer's configuration, such as bodies or a filter.

        `otherwise` follows instead if the account allows no more consumers.
        `in_flight` returns how many fires of this sidecar wait for their acknowledgement, `is_standby` whether another
        instance fires for the stream, and `last_taken` the sequence of the last message that was taken of those that
        were delivered; None: all are taken at once.
        """
        self._connection = connection
        self._api = api
        self._stream: str = config["name"]
        self._config = config
        self._notify = notify
        self._otherwise = otherwise
        self._extra_config = wanted
        self._has_bodies = wanted.get("headers_only") is False
        is_replaced_at_once = config.get("max_msgs_per_subject") == 1 or config.get("allow_msg_schedules") is True
        self._wants_bodies = is_replaced_at_once and not wanted and not has_metadata(config, METADATA_DEBOUNCE)
        """True if a message that is replaced is gone at once: only its body, read before, shows what is lost."""
        self._bodies, self._counted_at = 0, -math.inf
        """The number of bodies that came, and when (s, by the loop's clock) it was last a multiple of the most."""
        self._last_taken = last_taken
        self._last = self._delivered = self._requested = 0
        self._pull_size = MAX_PULL_BATCH
        window = config.get("duplicate_window")
        self._is_standby = is_standby if window is None or window >= MIN_WINDOW_FOR_REST_NS else (lambda: False)
        self._pending = 0
        """The messages that were stored and not delivered yet when the last chunk was."""
        self._pulled_at = 0.0
        """When (s, by the loop's clock) the last pull was sent."""
        self._rests_until = 0.0
        self._rest: asyncio.TimerHandle | None = None
        """What ends the rest of a standby, or the wait until what was delivered is taken."""
        self._reads_rest = False
        """True from the end of a rest until what was stored meanwhile is read."""
        self._may_walk = bool(connection.server.cluster) and not wanted
        self._may_be_behind = may_lag(connection, config) and not wanted
        self._leader_last = 0
        """The leader's last sequence when the consumer was created, if its node may be behind; else 0."""
        self._walk: Walk | None = None
        """The walk that reads the stream while no consumer can be created."""
        self._burst = Burst(api, self._stream, in_flight, self._deliver_others)
        self._factor = STANDALONE_INTERVAL_FACTOR if stands_alone(connection, api) else 1
        self._waits = CLUSTER_CONSUMER_DEADLINES_SECONDS if connection.server.cluster else (CONSUMER_DEADLINE_SECONDS,)
        self._has_received = False
        """True if anything came from the consumer since the last check."""
        self._is_made = False
        """True if the consumer exists, so that it can be asked for messages."""
        self._caught_up = False
        self._is_following = self._is_in_burst = self._is_call_due = False
        """Read through a consumer; read by acknowledgements; `_chunk_ended` will be called after this chunk."""
        self._silent = 0
        """Checks in a row in which nothing had come from the consumer."""
        self._batches: list[Sequence[StoredMessage]] = []  # of this chunk: runs, and messages that came alone
        self._ended: asyncio.Future[str] | None = None
        self._inbox = ""
        self._frames: ConsumerFrames | None = None
        self._next = ""

    async def follow(self, after: int) -> None:
        """Deliver every message above sequence `after`; a lost consumer is replaced.

        Ends by cancellation, with `ConnectionLostError`, or with another `JetStreamError` if none can be created.
        """
        try:
            await self._follow(after)
        except ApiError as error:
            if error.code != CONSUMER_LIMIT_REACHED:
                raise
        await self._otherwise()

    async def _follow(self, after: int) -> None:
        self._last, attempt = after, 0
        try:
            while not self._connection.is_lost:
                try:
                    reason = await self._follow_with_one_consumer(self._waits[attempt])
                except NoAnswerError:
                    if not self._read_without_consumer() and attempt == len(self._waits) - 1:
                        raise
                    attempt = min(attempt + 1, len(self._waits) - 1)
                    continue
                attempt = 0
                if reason == BURST_BEGAN:
                    await self._follow_burst()
                elif reason != BODIES_CHANGE:
                    self._notify(ContactLost(reason))
        finally:
            self._end_walk()
            self._burst.end()
        raise ConnectionLostError(self._connection.lost.result())

    def acknowledged(self, sequences: Sequence[int]) -> None:
        """Note that fires of this sidecar were stored under these sequences."""
        self._burst.acknowledged(sequences)
        if self._is_in_burst or self._burst.is_known_after(self._last):
            self._call_after_this_chunk()

    async def _follow_burst(self) -> None:
        """Follow without a consumer for as long as the burst lasts."""
        self._burst.begin(self._last)
        self._is_in_burst = True
        try:
            await self._burst.wait_until_over()
        finally:
            self._is_in_burst = False
        self._deliver_others()
        self._burst.end()

    def _call_after_this_chunk(self) -> None:
        if not self._is_call_due:
            self._is_call_due = True
            self._connection.after_this_chunk(self._chunk_ended)

    def _chunk_ended(self) -> None:
        self._is_call_due = False
        if self._is_in_burst:
            self._deliver_others()
        elif self._is_following:
            self._deliver_batches()

    def _deliver_others(self) -> None:
        """Deliver what other clients stored between the fires of a burst, and how far the stream is known."""
        messages, through = self._burst.take_others()
        if through > self._last:
            self._last = through
            self._notify(MessagesRead(messages, through))

    def _read_without_consumer(self) -> bool:
        """Read without a consumer until there is one; return whether these reads are answered."""
        if self._may_walk and self._walk is None:
            self._walk = Walk(self._api, self._stream, self._last, self._notify)
        return self._walk is not None and self._walk.is_answered

    def _end_walk(self) -> None:
        if self._walk is not None:
            self._walk.end()
            self._last, self._walk = self._walk.last, None

    async def _follow_with_one_consumer(self, within_seconds: float) -> str:
        """Return why the consumer was lost; raises `NoAnswerError` if none is created within `within_seconds`."""
        name = consumer_name()
        self._inbox = self._connection.inbox(f"f.{name}")
        self._next = f"{self._api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{name}"
        self._delivered = self._requested = 0
        self._is_made = self._caught_up = self._has_received = False
        self._ended = asyncio.get_running_loop().create_future()
        sid = self._connection.subscribe(self._inbox, self._received)
        self._frames = None if self._has_bodies else ConsumerFrames(sid, self._stream, name)
        self._connection.read_runs(sid, self._received_run)
        self._is_following = True
        try:
            info = await self._api.create_consumer(self._stream, name, self._consumer_config(), within_seconds)
            self._end_walk()
            self._leader_last = await self._leader_last_sequence()
            # A server may limit the pulls of all consumers (`max_request_batch`), and refuses larger ones.
            self._pull_size = min(MAX_PULL_BATCH, info["config"].get("max_batch") or MAX_PULL_BATCH)
            if info.get("num_pending", 0) == 0 and await self._is_all_read():
                self._catch_up()
            self._is_made = self._has_received = True
            if not self._ended.done():  # else another consumer follows, which delivers bodies
                self._pull(self._pull_size)
            return await self._until_ended(name)
        finally:
            self._is_following = False
            self._end_rest()
            self._connection.unsubscribe(sid)
            await self._delete_consumer(name)

    async def _until_ended(self, name: str) -> str:
        """Return why the consumer ended; check periodically that it still sends something."""
        assert self._ended is not None
        self._silent = 0
        stop_checking = self._connection.every(self._factor * CONSUMER_CHECK_INTERVAL_SECONDS, self._check_consumer)
        ends = (self._ended, self._connection.lost)
        try:
            behind = 0
            while not self._caught_up:
                delivered = self._delivered
                done, _pending = await asyncio.wait(
                    ends, timeout=CONSUMER_CHECK_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    return str(done.pop().result())
                behind = 0 if self._caught_up or self._delivered != delivered else behind + 1
                if behind:
                    await self._ask_what_is_pending(name)
                if behind >= MAX_CHECKS_BEHIND and self._last < self._leader_last and not self._caught_up:
                    return "the node of the consumer is behind the leader of the stream"
            done, _pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return str(done.pop().result())
        finally:
            stop_checking()

    def _check_consumer(self) -> None:
        """Give up a consumer that has sent nothing for too long, and probe one that has begun to be silent."""
        if self._rest is not None:
            return  # nothing is asked of it
        self._silent = 0 if self._has_received else self._silent + 1
        self._has_received = False
        if self._silent >= MAX_SILENT_CHECKS:
            self._finish(f"nothing came from the consumer for {self._factor * CONSUMER_SILENCE_LIMIT_SECONDS:.1f} s")
        elif self._silent:
            self._probe()

    async def _ask_what_is_pending(self, name: str) -> None:
        """Catch up if nothing more will come: what was still pending was removed before it was delivered."""
        try:
            info = await self._api.consumer(self._stream, name)
        except JetStreamError as error:
            self._finish(str(error))
            return
        all_came = (info.get("delivered") or {}).get("consumer_seq", 0) == self._delivered
        if info.get("num_pending", 0) == 0 and all_came and await self._is_all_read() and not self._caught_up:
            self._catch_up()

    async def _leader_last_sequence(self) -> int:
        """Return the leader's last sequence if the consumer's node may be behind the leader; else 0."""
        if not self._may_be_behind:
            return 0
        try:
            return await self._api.last_sequence(self._stream, CLUSTER_DEADLINE_SECONDS)
        except NoAnswerError:
            return 0  # without a leader nothing is stored either, and the consumer may work

    async def _is_all_read(self) -> bool:
        """Return whether everything is read that the leader had when the consumer was created."""
        if self._last >= self._leader_last:
            return True
        try:
            async with asyncio.timeout(CLUSTER_DEADLINE_SECONDS):
                message = await self._api.message(self._stream, seq=self._last + 1, next_by_subj=">")
        except (JetStreamError, TimeoutError):
            return False
        return message is None or message.sequence > self._leader_last

    async def _delete_consumer(self, name: str) -> None:
        """Delete the consumer; if it is silent its node may be dead, so the answer is not awaited."""
        if self._connection.is_lost:
            return
        if not self._has_received or self._burst.is_known_after(self._last):
            self._api.abandon_consumer(self._stream, name)
            return
        try:
            async with asyncio.timeout(CONSUMER_DELETE_DEADLINE_SECONDS):
                await self._api.delete_consumer(self._stream, name)
        except (JetStreamError, TimeoutError):
            return  # the server removes it by itself when it is inactive

    def _consumer_config(self) -> Config:
        last = self._last if self._walk is None else self._walk.last
        return {
            **consumer_from(last + 1, self._config),
            "headers_only": not self._has_bodies,
            **self._extra_config,
        }

    def _pull_more(self) -> None:
        """Ask for more messages; a standby leaves a burst to the owner first."""
        if self._rest is not None:
            return
        if self._untaken > MAX_UNTAKEN:
            self._await_taking()
            return
        self._reads_rest = self._reads_rest and self._pending >= STANDBY_PULL_BATCH
        now = asyncio.get_running_loop().time()
        if self._is_paced and now - self._pulled_at < STANDBY_BURST_SECONDS:
            self._rests_until = now + STANDBY_REST_SECONDS
            self._rest_on()
        else:
            self._pull(self._batch)

    @property
    def _untaken(self) -> int:
        """The most messages that were delivered and are not taken yet."""
        return 0 if self._last_taken is None else self._last - self._last_taken()

    def _await_taking(self) -> None:
        """Ask for no more until half of what was delivered is taken: it takes memory until then."""
        if self._untaken > MAX_UNTAKEN // 2:
            self._rest = asyncio.get_running_loop().call_later(UNTAKEN_CHECK_SECONDS, self._await_taking)
        else:
            self._rest = None
            self._pull(self._batch)

    def _rest_on(self) -> None:
        """Rest until the burst is old enough, or this instance is the owner; then read what was stored meanwhile."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._rests_until and self._is_standby():
            self._rest = loop.call_later(STANDBY_REST_CHECK_SECONDS, self._rest_on)
            return
        self._rest, self._reads_rest = None, True
        self._pull(self._pull_size)

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        self._rest, self._reads_rest = None, False

    def _pull(self, batch: int) -> None:
        self._pulled_at = asyncio.get_running_loop().time()
        request = {
            "batch": batch,
            "expires": PULL_EXPIRES_SECONDS * SECOND,
            "idle_heartbeat": int(self._factor * CONSUMER_HEARTBEAT_INTERVAL_SECONDS * SECOND),
        }
        self._requested += batch
        self._connection.write(frame(self._next, self._inbox, b"", json.dumps(request).encode()))

    def _probe(self) -> None:
        self._connection.write(frame(self._next, self._inbox, b"", PROBE_PULL))

    def _received(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        if not reply.startswith(b"$JS.ACK."):  # the server lets no client name such a reply subject
            if block.startswith(STATUS_LINE):
                self._status(block)
            return
        self._has_received = True
        sequence, number, stored_at, pending = delivery_numbers(reply)
        in_order = int(number)
        if in_order != self._delivered + 1:
            self._finish(f"the consumer delivered {in_order} after {self._delivered}")
            return
        self._delivered, self._last, self._pending = in_order, int(sequence), int(pending)
        self._requested -= 1
        self._call_after_this_chunk()
        name, kept = subject.decode("utf-8", "surrogateescape"), body if self._has_bodies else None
        self._batches.append((StoredMessage(name, self._last, int(stored_at), block, kept),))
        if self._wants_bodies and self._has_bodies and self._bodies_cost_much(body):
            self._has_bodies = self._wants_bodies = False
            self._finish(BODIES_CHANGE)
        if not self._caught_up and pending == b"0" and self._last >= self._leader_last:
            self._catch_up()

    def _bodies_cost_much(self, body: bytes) -> bool:
        """Return whether a large body came, or `MAX_BODIES_PER_SECOND` within a second."""
        self._bodies += 1
        if len(body) > MAX_FOLLOWED_BODY_BYTES:
            return True
        if self._bodies % MAX_BODIES_PER_SECOND:
            return False
        before, self._counted_at = self._counted_at, asyncio.get_running_loop().time()
        return self._counted_at - before < 1

    def _received_run(self, buffer: bytes, position: int) -> int:
        """Do what `_received` does, for many messages at once, if they have the usual shape.

        `_received` takes the first message of each chunk: if the messages of many streams alternate, runs gain nothing.
        """
        if self._frames is None or not self._is_call_due:
            return position
        found = self._frames.read(buffer, position, self._delivered)
        if found is None:
            return position
        run = found.messages
        self._has_received = True
        self._delivered += len(run)
        self._requested -= len(run)
        self._last, self._pending = run[-1].sequence, int(found.pending[-1])
        self._batches.append(run)
        if not self._caught_up and b"0" in found.pending and self._last >= self._leader_last:
            self._catch_up()
        return found.end

    def _deliver_received(self) -> None:
        batches, self._batches = self._batches, []
        for batch in batches:
            self._notify(MessagesRead(batch))

    def _deliver_batches(self) -> None:
        self._deliver_received()
        is_alive = self._is_made and self._ended is not None and not self._ended.done()
        if is_alive and self._caught_up and self._burst.is_known_after(self._last):
            self._finish(BURST_BEGAN)
        elif is_alive and self._requested <= self._batch // 2:
            self._pull_more()

    @property
    def _is_paced(self) -> bool:
        """True for a standby that has read all, but for what was stored since a moment ago."""
        return self._caught_up and not self._reads_rest and self._is_standby()

    @property
    def _batch(self) -> int:
        """The messages of the next pull."""
        return min(self._pull_size, STANDBY_PULL_BATCH) if self._is_paced else self._pull_size

    def _catch_up(self) -> None:
        self._caught_up = True
        self._deliver_received()
        self._notify(CaughtUp())
        if self._wants_bodies and not self._has_bodies:
            self._has_bodies = True
            self._finish(BODIES_CHANGE)

    def _status(self, block: bytes) -> None:
        status = block[9:12]
        if status == STATUS_NO_MESSAGES:
            return
        self._has_received = status != STATUS_NO_RESPONDERS
        if status == STATUS_HEARTBEAT:
            return
        if status == STATUS_PULL_EXPIRED:
            self._requested -= undelivered(block, otherwise=self._pull_size)
            self._call_after_this_chunk()
            return
        line = block[9:].partition(b"\r\n")[0].decode(errors="replace")
        self._finish(f"the consumer ended: {'it has no responders' if status == STATUS_NO_RESPONDERS else line}")

    def _finish(self, reason: str) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(reason)
