"""Follow a stream on which a consumer would do harm: work queue or interest retention, or a limit on consumers.

There a consumer would be refused, or would prevent the creation of others, or would count as interest and so change
what the stream keeps. So nothing is attached to the stream.
A plain subscription on its subjects shows that something was published; what was stored of it is looked up.
At start, the last message of every subject is looked up. If that is a schedule with earlier messages before it, the
first one is looked up too: older versions that were stored while no sidecar followed have to be purged.
If it is another schedule's message, and the first one is a schedule, all messages of the subject are read: the schedule
lives if there is nothing else.
If it is a fire that is to be done within a time, those before it on its subject are read later, beside everything else.

The rules:

- A publish that was received is a hint, and only the look-up counts.
- `CaughtUp` carries the sequence up to which everything was read. After contact was lost, a look-up failed, or there
  were more hints than are kept, what was stored after that sequence is read, in parts, and no more.
- After contact was lost, nothing fires until what was stored since is read. If much was stored before and is not read
  yet, it is read after that, as it would have been without the loss: tens of thousands of messages take seconds.
- What was received and not found may be stored later: then everything after that sequence is read, too.
- A removed schedule is detected by the read before each fire, which the engine asks for anyway.
- A fire of this sidecar that waits for its acknowledgement is known, and not looked up.

If the stream transforms subjects, a publish does not show the stored subject: then all that was stored since is read.

Cost: one request a subject at start (15,000 a second), one for each message that was stored while there was no contact,
and one for each schedule published; one a second while anything is published. One after the other for each message that
lies before a fire with a time to be done in.
Limit: a generated message or a cancel that a consumer removed before its look-up is not found; nor is, at start, one
with a later message on its subject.
Older versions with an ordinary message before them stay as long as that one; a schedule with an ordinary message before
it, and another schedule's message after it, is not found at start.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from nats_scheduler.control.errors import DeadlineError, SchedulerError
from nats_scheduler.engine.holding.deadlines import DONE_WITHIN
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, HistoryRead, MessagesRead
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.lookups import Lookups, StreamNumbers, is_temporary
from nats_scheduler.jetstream.publish_hints import Hint, Hints, fingerprint_of
from nats_scheduler.jetstream.task_group import TaskGroup, first_of
from nats_scheduler.message.reading import SCHEDULE_SUBSTRING
from nats_scheduler.message.stored import MAX_FOLLOWED_BODY_BYTES, StoredMessage

HINT_RETRY_WAITS_SECONDS = (0.0, 0.002, 0.01, 0.05, 0.1, 0.1, 0.2, 0.3)
"""Waits before each attempt to find what was received: it is stored shortly after its publish, or it was refused.

The first ones are short, because a schedule may be due at once; a busy server takes some tenths of a second to store.
"""

PROGRESS_INTERVAL_SECONDS = 1.0
"""The interval between two reports of the sequence up to which everything was read, while anything is published."""

MAX_ROUTE_DELAY_SECONDS = 1.0
"""In a cluster a publish arrives here at most this time later than the stream's leader stores it."""

SCAN_RETRY_INTERVAL_SECONDS = 0.1
"""Pause after a request about the stream failed."""

MAX_LEADER_LAG_SECONDS = 2.0
"""Longest time until a new leader has what the one before had acknowledged."""

MAX_READ_AT_ONCE = 4_096
"""About this many messages are delivered before that is noted: they are not read again if a later part fails."""

MAX_DELIVERED_AT_ONCE = 512
"""Messages that are passed on at a time: each takes some 10 µs, on a busy machine 100, and nothing fires meanwhile."""

DELIVERY_PAUSE_SECONDS = 0.002
"""Pause after them, so that they are not collected for one step of the engine."""

MAX_UNANSWERED_SECONDS = 8.0
"""After this time without an answer `follow` ends with the error, so that the runtime checks the stream."""


class ScanFollower:
    """Follows one stream on one connection without touching it."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        notify: Notify,
        holds: Callable[[str], bool],
        awaits: Callable[[bytes], bool] = lambda _reply: False,
        last_read: Callable[[], int] = lambda: 0,
    ) -> None:
        """Follow the stream of `config`; `holds` returns whether the engine holds a schedule on a subject.

        `awaits` returns, for the reply subject of a publish, whether it is a fire of this sidecar in flight, and
        `last_read` the highest sequence that was delivered, by this contact or one before.
        """
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._lookups = Lookups(api, config["name"])
        self._subjects: list[str] = list(config.get("subjects") or [])
        self._notify = notify
        self._holds = holds
        self._last_read = last_read
        self._awaits = (lambda _reply: False) if config.get("no_ack") else awaits
        self._transforms = bool(config.get("subject_transform"))
        self._is_clustered = bool(connection.server.cluster)
        self._hints = Hints(self._confirm)
        self._was_not_found = False
        """True if a received publish was not found: the server may take longer to store it than the attempts."""
        self._buried: dict[str, int] = {}
        """Subjects on which fires with a time to be done in may lie before this sequence: they are to be read."""
        self._awaited = 0
        self._something_was_published = asyncio.Event()
        self._through = 0
        """Everything up to this sequence was read."""
        self._behind_since: float | None = None
        """Since when (by the loop's clock) the leader has been behind that; None: it is not."""

    def acknowledged(self, sequences: Sequence[int]) -> None:
        """Do nothing: this follower does not use the sequences."""

    async def follow(self, after: int) -> None:
        """Deliver what is stored after `after`, up to which everything was read before, then what is published.

        Ends by cancellation or `SchedulerError`.
        """
        self._through = after
        subscriptions = [self._connection.subscribe(subject, self._published) for subject in self._subjects]
        failing_since: float | None = None
        try:
            while True:
                try:
                    await self._catch_up()
                    failing_since = None
                    await self._follow_on()
                except* SchedulerError as failures:
                    error = first_of(failures)
                    now = self._loop.time()
                    failing_since = failing_since or now
                    if not is_temporary(error) or now - failing_since > MAX_UNANSWERED_SECONDS:
                        raise error from None
                    self._notify(ContactLost(str(error)))
                    await asyncio.sleep(SCAN_RETRY_INTERVAL_SECONDS)
        finally:
            for number in subscriptions:
                self._connection.unsubscribe(number)

    # -- what is stored ------------------------------------------------------------------------------------------

    async def _catch_up(self, *, is_live: bool = False) -> None:
        """Deliver what was stored since everything was read, then `CaughtUp`; after each part if contact `is_live`.

        If contact was lost and that is much, what was stored before the loss is left for later: fires go on meanwhile.
        """
        state = await self._lookups.state()
        after = self._through
        if after and not is_live and state.last_sequence - after > MAX_READ_AT_ONCE:
            after = max(after, self._last_read())
        if state.last_sequence < after:
            self._went_back(state.last_sequence)
            after = self._through
        if after > self._through:
            self._hints.overflowed.set()
            self._something_was_published.set()
        await self._read_all(after, state, is_live=is_live)
        self._notify(CaughtUp(self._through, is_behind=self._hints.overflowed.is_set()))

    async def _read_all(self, after: int, state: StreamNumbers, *, is_live: bool) -> None:
        """Deliver what is stored after a sequence, in the cheaper of two ways."""
        last, is_complete = state.last_sequence, after == self._through
        if after == 0 or state.are_fewer_subjects(after):
            found = await self._lookups.of_all_subjects(after, self._holds)
            if after == 0:
                self._buried = {one.subject: one.sequence for one in found if DONE_WITHIN in one.block}
            await self._pass_on(found)
        else:
            await self._read_in_parts(after, last, min(last - after, state.messages), is_live=is_live)
        self._through, self._behind_since = last if is_complete else self._through, None

    async def _read_in_parts(self, after: int, last: int, count: int, *, is_live: bool) -> None:
        """Deliver what is stored up to a sequence, some `count` messages.

        What was delivered is not read again if a later part fails.
        """
        schedules: set[str] = set()
        size = -(-(last - after) // max(-(-count // MAX_READ_AT_ONCE), 1))
        while after < last:
            through = min(after + size, last)
            found = await self._lookups.between(
                after, through, lambda subject: subject in schedules or self._holds(subject)
            )
            schedules.update(message.subject for message in found if message.block)
            await self._pass_on(found)
            if after == self._through:
                self._through = through
            if is_live:
                self._notify(CaughtUp(through, is_behind=True))
            after = through

    async def _pass_on(self, found: Sequence[StoredMessage]) -> None:
        """Deliver messages, a moment's work at a time."""
        for first in range(0, len(found), MAX_DELIVERED_AT_ONCE):
            self._notify(MessagesRead(found[first : first + MAX_DELIVERED_AT_ONCE]))
            await asyncio.sleep(DELIVERY_PAUSE_SECONDS)

    def _went_back(self, last: int) -> None:
        """Read all again if the stream went back; raises `DeadlineError` while a new leader may catch up."""
        now = self._loop.time()
        since = self._behind_since = self._behind_since or now
        if self._is_clustered and now - since < MAX_LEADER_LAG_SECONDS:
            raise DeadlineError(f"the stream's leader is at sequence {last}, after an earlier {self._through}")
        self._through = 0

    # -- what is published ---------------------------------------------------------------------------------------

    def _published(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        self._something_was_published.set()
        if self._transforms:
            self._awaited += 1
            return
        name = subject.decode("utf-8", "surrogateescape")
        if self._holds(name) or (SCHEDULE_SUBSTRING in block and not (reply and self._awaits(reply))):
            self._hints.add(name, fingerprint_of(block, body))

    async def _follow_on(self) -> None:
        if self._transforms:
            await self._walk()
            return
        async with TaskGroup() as tasks:
            tasks.create_task(self._hints.look_up())
            tasks.create_task(self._keep_track())
            tasks.create_task(self._read_buried())

    async def _read_buried(self) -> None:
        while self._buried:
            subject, last = next(iter(self._buried.items()))
            async for message in self._lookups.walk(0, last - 1, subject):
                if DONE_WITHIN in message.block:
                    self._notify(HistoryRead([message._replace(body=None)], 0))
            del self._buried[subject]

    async def _keep_track(self) -> None:
        """Report up to where everything was read, and read what the hints do not cover."""
        if self._is_clustered:
            # A publish at another node may not have arrived here yet, and a new leader may not have it yet.
            await self._read_what_was_not_seen(PROGRESS_INTERVAL_SECONDS)
        while True:
            await self._something_was_published.wait()
            self._something_was_published.clear()
            await self._overflows_within(PROGRESS_INTERVAL_SECONDS)
            last = (await self._lookups.state()).last_sequence
            if self._is_clustered:
                await self._overflows_within(MAX_ROUTE_DELAY_SECONDS)
            await self._hints.resolved()
            if self._was_not_found or self._hints.overflowed.is_set():
                await self._read_what_was_not_seen(0)
                continue
            self._through = max(self._through, last)
            self._notify(CaughtUp(self._through))

    async def _overflows_within(self, seconds: float) -> None:
        """Wait, but no longer than until hints are dropped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hints.overflowed.wait()

    async def _read_what_was_not_seen(self, wait_seconds: float) -> None:
        self._notify(CaughtUp(self._through, is_behind=True))
        await asyncio.sleep(wait_seconds)
        self._was_not_found = False
        self._hints.overflowed.clear()
        await self._catch_up(is_live=True)

    async def _confirm(self, hint: Hint) -> None:
        """Deliver the published message once it is found stored; else it was refused, or has a later one after it.

        A later message is delivered with the first one on the subject, since that may not have been received.
        """
        for wait in HINT_RETRY_WAITS_SECONDS:
            await asyncio.sleep(wait)
            message = await self._lookups.last(hint.subject)
            if message is not None and fingerprint_of(message.block, message.body) == hint.fingerprint:
                if not hint.covers_others:
                    is_small = len(message.body or b"") <= MAX_FOLLOWED_BODY_BYTES
                    self._notify(MessagesRead([message if is_small else message._replace(body=None)]))
                    return
                break
        else:
            self._was_not_found = True
        self._notify(MessagesRead(await self._lookups.on(hint.subject, is_held=self._holds(hint.subject))))

    async def _walk(self) -> None:
        """Deliver every message after what was read, on any subject."""
        while True:
            await self._something_was_published.wait()
            self._something_was_published.clear()
            for wait in HINT_RETRY_WAITS_SECONDS:
                await asyncio.sleep(wait)
                while (message := await self._lookups.next(self._through)) is not None:
                    self._deliver_next(message)
                if self._awaited <= 0:
                    break
            self._awaited = 0
            self._notify(CaughtUp(self._through))

    def _deliver_next(self, message: StoredMessage) -> None:
        self._through = message.sequence
        self._awaited -= 1
        self._notify(MessagesRead([message._replace(body=None)]))
