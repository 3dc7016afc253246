"""Follow a stream through a consumer: every message once, in order, nearly always headers only.

For streams with limits retention, on which a consumer is harmless; for the others see `jetstream.scan_follower`.
The consumer keeps nothing that is needed later: the follower knows what was read last. So if one dies with its node, or
in a restart, a new one begins behind that message.
While a cluster creates no consumer, messages are read one by one: a cluster that has lost its leader creates none for
4 s to 9 s, while the stream itself may work. During a burst of the sidecar's own fires there is no consumer either, and
only what other clients store is read (`jetstream.burst`).
Where only bodies show what is lost, they are delivered too (`jetstream.followed_bodies`).

A standby leaves a burst to the owner: it asks for few messages at a time, and if these come at once it reads the rest
a second later, in large runs. So what is stored in a burst does not wait until two have read it.

What a follower does follows from its stage, and the stages are one table (`jetstream.follower_stages`).

The rules:

- The consumer delivers without a gap, or it is replaced by a new one (`jetstream.pulled_consumer`).
- In a cluster its node may be behind the leader of the stream, for long after a restart. Everything is read only when
  the leader has no further message of those that it had when the consumer was created.
- If the stream answers nothing while it is read without a consumer, contact is lost.

Cost: a tuple a message, parsed together with its neighbours if many come at once (`jetstream.frame_runs`); one request
for thousands of messages. Without a consumer one request a message, bodies included (some 5,000 a second), and ten a
second while none is stored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from nats_scheduler.control.errors import ConnectionLostError, DeadlineError, RefusedError, SchedulerError
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, MessagesRead
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import (
    CLUSTER_DEADLINE_SECONDS,
    CONSUMER_DEADLINE_SECONDS,
    CONSUMER_LIMIT_REACHED,
    Config,
    JetStreamApi,
    consumer_from,
)
from nats_scheduler.jetstream.burst import Burst
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.followed_bodies import FollowedBodies
from nats_scheduler.jetstream.follower_stages import (
    ASKING,
    BEFORE_ALL_IS_READ,
    CONSUMING,
    FollowerEvent,
    FollowerStage,
    FollowerStages,
)
from nats_scheduler.jetstream.pulled_consumer import CONSUMER_CHECK_INTERVAL_SECONDS, PulledConsumer
from nats_scheduler.jetstream.reach import may_lag
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

WALK_POLL_INTERVAL_SECONDS = 0.1
"""The interval at which the next message is asked for while there is none, if no consumer delivers it."""

WALK_ANSWER_DEADLINE_SECONDS = 1.5
"""Longest wait for an answer to that: a schedule that is cancelled meanwhile still fires."""

MAX_PULL_BATCH = 5_000
"""Messages of one pull, if the server allows it; the next pull is sent when half of them have come."""

STANDBY_PULL_BATCH = 512
"""Messages of one pull of a standby that has read all."""

STANDBY_BURST_SECONDS = 0.1
"""If half of them come within this time there is a burst, or a load."""

STANDBY_REST_SECONDS = 1.0
"""The time for which a standby leaves a burst to the owner. It is no older than that when it takes over."""

STANDBY_REST_CHECK_SECONDS = 0.02
"""The interval at which it is checked whether it is a standby still."""

MIN_WINDOW_FOR_REST_NS = 10 * SECOND
"""With a shorter duplicate window (ns) a standby reads all at once: it sends again what it has not read when it takes
over."""

MAX_BACKLOG_MESSAGES = 20_000
"""While more than this were delivered and the engine has not received them, none are asked for: some MB of memory."""

BACKLOG_CHECK_SECONDS = 0.005
"""The interval at which it is checked whether it has."""

CONSUMER_DELETE_DEADLINE_SECONDS = 0.5
"""Longest wait for the deletion of a consumer: without a quorum no answer comes, and the next contact has to wait."""

MAX_CHECKS_BEHIND = 5
"""After this many checks without a message, a consumer whose node is behind is replaced by one on another node."""

CLUSTER_CONSUMER_DEADLINES_SECONDS = (CLUSTER_DEADLINE_SECONDS, 1.0, CONSUMER_DEADLINE_SECONDS)
"""Longest waits for one new consumer after the other: the next one may be placed on the dead node again."""


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
        last_received: Callable[[], int] | None = None,
    ) -> None:
        """Follow the stream of `config`; `wanted` adds to the consumer's configuration, such as bodies or a filter.

        `otherwise` follows instead if the account allows no more consumers.
        `in_flight` returns how many fires of this sidecar wait for their acknowledgement, `is_standby` whether another
        instance fires for the stream, and `last_received` the highest sequence of those that were delivered and that
        the engine has received; None: it receives all at once.
        """
        self._connection = connection
        self._api = api
        self._stream: str = config["name"]
        self._config = config
        self._notify = notify
        self._otherwise = otherwise
        self._extra_config = wanted
        self._last_received = last_received
        window = config.get("duplicate_window")
        self._is_standby = is_standby if window is None or window >= MIN_WINDOW_FOR_REST_NS else (lambda: False)
        self._loop = asyncio.get_running_loop()
        self.stages = FollowerStages()
        """What it does, by the table of `jetstream.follower_stages`."""
        self._bodies = FollowedBodies(config, are_wanted=wanted.get("headers_only") is False if wanted else None)
        self._burst = Burst(api, self._stream, in_flight, self._deliver_others)
        self._last = 0
        """The highest sequence that was delivered."""
        self._leader_last = 0
        """The leader's last sequence when the consumer was created, if its node may be behind; else 0."""
        self._consumer: PulledConsumer | None = None
        """The consumer that is asked for messages."""
        self._walk: asyncio.Task[None] | None = None
        """What reads the stream while no consumer is created."""
        self._pull_size = MAX_PULL_BATCH
        self._asked_at = 0.0
        """When (s, by the loop's clock) messages were asked for last."""
        self._pause: asyncio.TimerHandle | None = None
        """What ends the rest of a standby, or the wait until the backlog is received."""
        self._is_call_due = False
        """True if `_handle_chunk` will be called after this chunk."""

    async def follow(self, after: int) -> None:
        """Deliver every message above sequence `after`; a lost consumer is replaced.

        Ends by cancellation, with `ConnectionLostError`, or with another `SchedulerError` if none can be created.
        """
        self._last = after
        self.stages.move(FollowerEvent.BEGUN)
        try:
            await self._follow()
        except RefusedError as error:
            if error.code != CONSUMER_LIMIT_REACHED:
                raise
            self._end_walk()
            self.stages.move(FollowerEvent.LIMITED)
            await self._otherwise()
        finally:
            self._end_walk()
            self._burst.end()
            self.stages.move(FollowerEvent.ENDED)

    def acknowledged(self, sequences: Sequence[int]) -> None:
        """Note that fires of this sidecar were stored under these sequences."""
        self._burst.acknowledged(sequences)
        if self.stages.now is FollowerStage.BURST or self._burst.is_known_after(self._last):
            self._call_after_this_chunk()

    # -- consumers, one after the other --------------------------------------------------------------------------

    async def _follow(self) -> None:
        waits = CLUSTER_CONSUMER_DEADLINES_SECONDS if self._connection.server.cluster else (CONSUMER_DEADLINE_SECONDS,)
        attempt = 0
        while not self._connection.is_lost:
            consumer = PulledConsumer(self._connection, self._api, self._stream, self._call_after_this_chunk)
            try:
                await consumer.open(self._consumer_config(), waits[attempt])
            except DeadlineError:
                self.stages.move(FollowerEvent.NOT_CREATED)
                self._begin_walk()
                is_read = self.stages.now in (FollowerStage.WALKING, FollowerStage.WALKING_LIVE)
                if not is_read and attempt == len(waits) - 1:
                    raise
                attempt = min(attempt + 1, len(waits) - 1)
                continue
            attempt = 0
            self._end_walk()
            self.stages.move(FollowerEvent.CREATED)
            await self._read_through(consumer)
        raise ConnectionLostError(self._connection.lost.result())

    def _consumer_config(self) -> Config:
        headers_only = not self._bodies.are_delivered
        return {**consumer_from(self._last + 1, self._config), "headers_only": headers_only, **self._extra_config}

    async def _read_through(self, consumer: PulledConsumer) -> None:
        """Deliver what a consumer delivers until it has ended or is to be replaced, and what a burst stores then."""
        try:
            self._leader_last = await self._leader_last_sequence()
            is_all_read = consumer.matched == 0 and await self._is_all_read()
            self._consumer = consumer
            self._pull_size = min(MAX_PULL_BATCH, consumer.max_pull or MAX_PULL_BATCH)
            consumer.watch()
            if is_all_read:
                self._note_all_read(consumer)
            if not consumer.ended.done():
                self._ask(consumer, self._pull_size)
            reason = await self._reason_of_end(consumer)
            if self.stages.now in CONSUMING:
                self.stages.move(FollowerEvent.LOST)
                self._notify(ContactLost(reason))
        finally:
            self._end_pause()
            self._consumer = None
            await self._close(consumer)
        if self.stages.now is FollowerStage.BURST:
            await self._follow_burst()
        else:
            self.stages.move(FollowerEvent.CLOSED)

    async def _reason_of_end(self, consumer: PulledConsumer) -> str:
        """Return why the consumer, or the connection, has ended, or that its node is behind."""
        ends = (consumer.ended, self._connection.lost)
        checks = 0
        while self.stages.now in BEFORE_ALL_IS_READ:
            before = self._last
            done, _pending = await asyncio.wait(
                ends, timeout=CONSUMER_CHECK_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return str(done.pop().result())
            is_waiting = self._last == before and self.stages.now is FollowerStage.READING
            checks = checks + 1 if is_waiting else 0
            if checks:
                await self._check_what_is_left(consumer)
            if checks >= MAX_CHECKS_BEHIND and self._last < self._leader_last:
                return "the node of the consumer is behind the leader of the stream"
        done, _pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return str(done.pop().result())

    async def _check_what_is_left(self, consumer: PulledConsumer) -> None:
        """Note that all is read if nothing more will come: what was pending was removed before it was delivered."""
        try:
            is_all_read = await consumer.has_nothing_left() and await self._is_all_read()
        except SchedulerError as error:
            consumer.end(str(error))
            return
        if is_all_read and self.stages.now in BEFORE_ALL_IS_READ:
            self._note_all_read(consumer)

    async def _leader_last_sequence(self) -> int:
        """Return the leader's last sequence if the consumer's node may be behind the leader; else 0."""
        if self._extra_config or not may_lag(self._connection, self._config):
            return 0
        try:
            return await self._api.last_sequence(self._stream, CLUSTER_DEADLINE_SECONDS)
        except DeadlineError:
            return 0  # without a leader nothing is stored either, and the consumer may work

    async def _is_all_read(self) -> bool:
        """Return whether everything is read that the leader had when the consumer was created."""
        if self._last >= self._leader_last:
            return True
        try:
            async with asyncio.timeout(CLUSTER_DEADLINE_SECONDS):
                message = await self._api.message(self._stream, seq=self._last + 1, next_by_subj=">")
        except (SchedulerError, TimeoutError):
            return False
        return message is None or message.sequence > self._leader_last

    async def _close(self, consumer: PulledConsumer) -> None:
        """Delete a consumer; the answer is not awaited if its node may be dead, or a burst has begun."""
        if self._connection.is_lost or consumer.is_silent or self.stages.now is FollowerStage.BURST:
            consumer.close()
            return
        try:
            async with asyncio.timeout(CONSUMER_DELETE_DEADLINE_SECONDS):
                await consumer.delete()
        except (SchedulerError, TimeoutError):
            return  # the server removes it by itself when it is inactive

    # -- what a consumer delivers --------------------------------------------------------------------------------

    def _call_after_this_chunk(self) -> None:
        if not self._is_call_due:
            self._is_call_due = True
            self._connection.after_this_chunk(self._handle_chunk)

    def _handle_chunk(self) -> None:
        """Deliver what came in one read of the socket, and go on as the stage says."""
        self._is_call_due = False
        if self.stages.now is FollowerStage.BURST:
            self._deliver_others()
        elif self._consumer is not None and self.stages.now in CONSUMING:
            self._deliver(self._consumer)
            self._go_on(self._consumer)

    def _deliver(self, consumer: PulledConsumer) -> None:
        for messages in consumer.pop_messages():
            if messages[0].sequence <= self._last:  # read one by one, while the consumer was created
                messages = [message for message in messages if message.sequence > self._last]
            if not messages:
                continue
            self._last = messages[-1].sequence
            self.stages.move(FollowerEvent.DELIVERED)
            self._notify(MessagesRead(messages))
            if self._bodies.are_delivered and self._are_costly(messages):
                self._replace(consumer)
                return

    def _are_costly(self, messages: Sequence[StoredMessage]) -> bool:
        now = self._loop.time()
        return any(self._bodies.end_if_costly(message.body or b"", now) for message in messages)

    def _go_on(self, consumer: PulledConsumer) -> None:
        """Do what follows from what is read."""
        stage = self.stages.now
        if stage in BEFORE_ALL_IS_READ and consumer.has_delivered_all and self._last >= self._leader_last:
            self._note_all_read(consumer)
            stage = self.stages.now
        if consumer.ended.done():
            return
        if stage not in BEFORE_ALL_IS_READ and self._burst.is_known_after(self._last):
            self.stages.move(FollowerEvent.BURST_KNOWN)
            self._burst.begin(self._last)
            consumer.end("a burst is read by its acknowledgements")
        elif consumer.to_come <= self._batch // 2:
            self._ask_for_more(consumer)

    def _note_all_read(self, consumer: PulledConsumer) -> None:
        self.stages.move(FollowerEvent.ALL_READ)
        self._notify(CaughtUp())
        if self._bodies.begin():
            self._replace(consumer)

    def _replace(self, consumer: PulledConsumer) -> None:
        self.stages.move(FollowerEvent.REPLACED)
        consumer.end("from here on messages are read with their bodies, or without")

    # -- how many messages are asked for, and when ---------------------------------------------------------------

    @property
    def _batch(self) -> int:
        """The messages of the next pull."""
        is_paced = self.stages.now is FollowerStage.LIVE and self._is_standby()
        return min(self._pull_size, STANDBY_PULL_BATCH) if is_paced else self._pull_size

    @property
    def _backlog(self) -> int:
        """The most messages that were delivered and the engine has not received yet."""
        return 0 if self._last_received is None else self._last - self._last_received()

    def _ask_for_more(self, consumer: PulledConsumer) -> None:
        """Ask for more messages, unless the engine has to receive some first, or a standby leaves them to the owner."""
        stage = self.stages.now
        if stage is FollowerStage.BEHIND and consumer.pending < STANDBY_PULL_BATCH:
            stage = self.stages.move(FollowerEvent.NEARLY_READ)
        if stage not in ASKING:
            return
        now = self._loop.time()
        if self._backlog > MAX_BACKLOG_MESSAGES:
            self.stages.move(FollowerEvent.FULL)
            self._await_backlog(consumer)
        elif stage is FollowerStage.LIVE and self._is_standby() and now - self._asked_at < STANDBY_BURST_SECONDS:
            self.stages.move(FollowerEvent.BURST_OF_OTHERS)
            self._rest(consumer, now + STANDBY_REST_SECONDS)
        else:
            self._ask(consumer, self._batch)

    def _ask(self, consumer: PulledConsumer, batch: int) -> None:
        self._asked_at = self._loop.time()
        consumer.ask(batch)

    def _await_backlog(self, consumer: PulledConsumer) -> None:
        """Ask for no more until half of what was delivered is received: it takes memory until then."""
        if self._backlog > MAX_BACKLOG_MESSAGES // 2:
            self._pause = self._loop.call_later(BACKLOG_CHECK_SECONDS, self._await_backlog, consumer)
            return
        self.stages.move(FollowerEvent.RECEIVED)
        self._ask(consumer, self._pull_size)

    def _rest(self, consumer: PulledConsumer, until: float) -> None:
        """Ask for no more until an instant (s), or until this instance is the owner; then for all that was stored."""
        if self._loop.time() < until and self._is_standby():
            self._pause = self._loop.call_later(STANDBY_REST_CHECK_SECONDS, self._rest, consumer, until)
            return
        self.stages.move(FollowerEvent.REST_OVER)
        self._ask(consumer, self._pull_size)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    # -- without a consumer --------------------------------------------------------------------------------------

    def _begin_walk(self) -> None:
        """Read message by message while no consumer is created, if the server is in a cluster."""
        if self._walk is not None:
            if self._walk.done():
                self._walk.result()  # raises: it ends only with a mistake of the code
        elif self._connection.server.cluster and not self._extra_config:
            self.stages.move(FollowerEvent.WALK_BEGUN)
            self._walk = self._loop.create_task(self._read_one_by_one())

    def _end_walk(self) -> None:
        if self._walk is not None:
            self._walk.cancel()
            self._walk = None

    async def _read_one_by_one(self) -> None:
        """Deliver what is stored, and then what is published, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(WALK_ANSWER_DEADLINE_SECONDS):
                    message = await self._api.message(self._stream, seq=self._last + 1, next_by_subj=">")
            except (SchedulerError, TimeoutError) as error:
                if self.stages.now is not FollowerStage.WALKING_SILENT:
                    self.stages.move(FollowerEvent.WALK_SILENT)
                    silence = f"the next message was not answered within {WALK_ANSWER_DEADLINE_SECONDS} s"
                    self._notify(ContactLost(str(error) or silence))
                await asyncio.sleep(WALK_POLL_INTERVAL_SECONDS)
                continue
            if message is not None:
                self._last = message.sequence
                self.stages.move(FollowerEvent.DELIVERED)
                self._notify(MessagesRead([message._replace(body=None)]))
                continue
            if self.stages.now is not FollowerStage.WALKING_LIVE:
                self.stages.move(FollowerEvent.WALK_LIVE)
                self._notify(CaughtUp())
            await asyncio.sleep(WALK_POLL_INTERVAL_SECONDS)

    def _deliver_others(self) -> None:
        """Deliver what other clients stored between the fires of a burst, and how far the stream is known."""
        messages, through = self._burst.pop_others()
        if through > self._last:
            self._last = through
            self.stages.move(FollowerEvent.DELIVERED)
            self._notify(MessagesRead(messages, through))

    async def _follow_burst(self) -> None:
        """Follow by acknowledgements for as long as the burst lasts."""
        await self._burst.wait_until_over()
        self._deliver_others()
        self._burst.end()
        self.stages.move(FollowerEvent.BURST_OVER)
