"""Contact with a stream in memory: `engine.actions.StreamPort` without a server, and without real time.

A `Network` decides what happens to each request (`testing.network`).

The rule: each method of the port only begins a request; `deliver` executes it, in the order of arrival.
The caller of `deliver` drives the contact: a test itself, a world in virtual time, or an event loop
(`MemoryContact(…, soon=loop.call_soon)`).
A request in flight when the contact ends still arrives: continue to call `deliver` if that matters.

Cost: a heap entry or two a request. Limit: one contact sees its own stream, and others only as the targets of fires;
the follower loses nothing.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nats_scheduler.engine.actions import (
    AwaitProposals,
    LookForFire,
    Notify,
    PurgeSchedule,
    ReadContent,
    ReadDuplicate,
    RemoveExpired,
)
from nats_scheduler.engine.fire import CheckFinished, Fire, consumer_missing, target_not_received
from nats_scheduler.engine.inputs import (
    NO_STREAM,
    CaughtUp,
    ContentRead,
    ContentUnread,
    DuplicateRead,
    DuplicateUnread,
    ExpiryConcluded,
    FinishAnswer,
    FinishChecked,
    FinishUnchecked,
    FireLookedFor,
    FireNotLookedFor,
    Input,
    MessagesRead,
    ProposalsApplied,
    ProposalsUnconfirmed,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    Stored,
    Unknown,
)
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.generated import is_generated_by
from nats_scheduler.message.genuine import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.headers import with_header
from nats_scheduler.message.reading import expiry_of, is_fire_since
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import ManualClock
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import Fate, Network, Perfect

# Whether a fire in a stream in memory is finished: the answer of `MemoryContact` to `CheckFinished`.

NOT_APPLIED = "the leader has not come so far"


def answer_to(request: CheckFinished, stream: MemoryStream) -> FinishAnswer:
    """Return what a server would say of the fires in question."""
    if not stream.has_applied(request.through):
        return FinishUnchecked(request, NOT_APPLIED)
    unfinished, fault = _first_stored(request, stream), ""
    if request.consumer is not None:
        consumer = stream.consumers.get(request.consumer)
        if consumer is None:
            fault = consumer_missing(stream.rules.name, request.consumer)
        elif not consumer.receives(request.target):
            fault = target_not_received(request.consumer, request.target)
        elif not 0 < consumer.first_unacknowledged <= request.through:
            return FinishChecked(request)
        if not request.names_one:
            return FinishChecked(request, request.through, 0, fault)
    if unfinished is None:
        return FinishChecked(request)
    return FinishChecked(request, unfinished.sequence, unfinished.stored_at, fault)


def _first_stored(request: CheckFinished, stream: MemoryStream) -> StoredMessage | None:
    """Return the first of the fires in question that is stored."""
    if request.names_one:
        named = stream.message(request.through)
        found = [] if named is None else [named]
    else:
        found = list(stream.messages(request.target, request.after))
    stored = (one for one in found if is_generated_by(one.block, request.schedule))
    first = next(stored, None)
    return None if first is None or first.sequence > request.through else first


RESEND_INTERVAL_NS = SECOND // 2
"""A request that may be repeated is sent again at this interval while it is not answered."""

ANSWER_DEADLINE_NS = 5 * SECOND
"""After this long without an answer, an outcome is unknown."""


class ContactEndedError(Exception):
    """The contact has ended, and `follow` with it."""


class _Request(NamedTuple):
    do: Callable[[], Input]
    refuse: Callable[[Refused], Input]
    fail: Callable[[str], Input]


class MemoryContact:
    """The contact with one stream in memory, until it ends."""

    def __init__(
        self,
        stream: MemoryStream,
        notify: Notify,
        clock: ManualClock,
        network: Network | None = None,
        *,
        soon: Callable[[Callable[[], None]], object] | None = None,
        others: Sequence[MemoryStream] = (),
    ) -> None:
        """Make contact with a stream; `others` are those of the account that may have the targets of its schedules."""
        self._stream = stream
        self._others = others
        self._notify = notify
        self._clock = clock
        self._network = network or Perfect()
        self._soon = soon
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._open: dict[int, _Request] = {}
        self._ended: str | None = None
        self._follower: _Follower | None = None

    # -- the port ------------------------------------------------------------------------------------------------

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store fires, in this order."""
        for fire in fires:
            self._begin(self._network.publish(fire), self._storing(fire))

    def read(self, request: ReadContent) -> None:
        """Begin to read the content of a fire."""
        self._begin(self._network.read(request), self._reading(request))

    def read_duplicate(self, request: ReadDuplicate) -> None:
        """Begin to read the message with the identity of a fire; for the network it is a read like any other."""
        fire = request.fire
        self._begin(self._network.read(ReadContent(fire.schedule, fire.sequence, None)), self._comparing(request))

    def await_proposals(self, request: AwaitProposals) -> None:
        """Begin to wait until the leader has applied all that it has accepted; for the network it is a purge.

        It is sent again while it is not answered.
        """
        purge, waiting = PurgeSchedule(request.fire.schedule, 0), self._applying(request)
        number = self._begin(self._network.purge(purge), waiting)
        self._repeat(number, waiting, lambda: self._network.purge(purge))

    def look_for(self, request: LookForFire) -> None:
        """Begin to look whether another stream has a fire; for the network it is a read like any other."""
        fire = request.fire
        self._begin(self._network.read(ReadContent(fire.schedule, fire.sequence, None)), self._looking(request))

    def check_finished(self, request: CheckFinished) -> None:
        """Begin to find out whether a fire is unfinished; for the network it is a read, sent again if not answered."""
        read, waiting = ReadContent(request.schedule, request.sequence, None), self._checking(request)
        number = self._begin(self._network.read(read), waiting)
        self._repeat(number, waiting, lambda: self._network.read(read))

    def purge(self, request: PurgeSchedule) -> None:
        """Begin to purge the versions of a schedule."""
        self._begin(self._network.purge(request), self._purging(request))

    def remove(self, request: RemoveExpired) -> None:
        """Begin to remove a message whose TTL has run out."""
        self._begin(self._network.remove(request), self._removing(request))

    async def follow(self, after: int) -> None:
        """Deliver every message with a sequence above `after`, until this is cancelled or the contact ends."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stop = self.begin_following(after, ended)
        try:
            await ended
        finally:
            stop()

    def end(self, reason: str) -> None:
        """End the contact and conclude every open request; calling it again does nothing."""
        if self._ended is not None:
            return
        self._ended = reason
        opened, self._open = self._open, {}
        for request in opened.values():
            self._notify(request.fail(reason))
        if self._follower is not None:
            self._follower.end(reason)

    # -- what drives it ------------------------------------------------------------------------------------------

    def begin_following(self, after: int, ended: asyncio.Future[None] | None = None) -> Callable[[], None]:
        """Do what `follow` does, without an event loop; return a function that stops it."""
        assert self._follower is None, "a contact follows once"
        self._follower = _Follower(self, after, ended)
        return self._follower.stop

    def deliver(self) -> int:
        """Execute everything that is due by now; return how many events that were.

        They happen at the present time: a caller that advances the clock must stop at each `next_delivery`.
        """
        count = 0
        while self._events and self._events[0][0] <= self._clock.monotonic():
            heapq.heappop(self._events)[2]()
            count += 1
        return count

    def next_delivery(self) -> int | None:
        """Return the time (ns) until `deliver` has something to do; None if nothing is in flight."""
        return max(self._events[0][0] - self._clock.monotonic(), 0) if self._events else None

    # -- one request ---------------------------------------------------------------------------------------------

    def _begin(self, fate: Fate, request: _Request) -> int:
        """Send a request, and return its number; 0 if the contact has ended."""
        if self._ended is not None:
            self._notify(request.fail(self._ended))
            return 0
        self._number += 1
        number = self._number
        self._open[number] = request
        for _ in range(1 + fate.twice if fate.arrives else 0):
            self._after(fate.request_takes, lambda: self._arrived(number, request, fate))
        if not (fate.arrives and fate.answered):
            self._after(ANSWER_DEADLINE_NS, lambda: self._answered(number, request.fail("no answer within 5 s")))
        return number

    def _repeat(self, number: int, request: _Request, draw: Callable[[], Fate]) -> None:
        """Send a request again, with what the network draws for it, while it is not answered."""

        def again() -> None:
            if number in self._open:
                fate = draw()
                if fate.arrives:
                    self._after(fate.request_takes, lambda: self._arrived(number, request, fate))
                self._after(RESEND_INTERVAL_NS, again)

        self._after(RESEND_INTERVAL_NS, again)

    def _arrived(self, number: int, request: _Request, fate: Fate) -> None:
        answer = request.do() if fate.refusal is None else request.refuse(fate.refusal)
        if fate.answered:
            lag = self._stream.behind if _waits_for_the_leader(answer) else 0
            self._after(fate.answer_takes + lag, lambda: self._answered(number, answer))

    def _answered(self, number: int, answer: Input) -> None:
        if self._open.pop(number, None) is not None:
            self._notify(answer)

    def _after(self, duration: int, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self._clock.monotonic() + duration, self._number, event))
        if self._soon is not None and duration == 0:
            self._soon(self._deliver_soon)

    def _deliver_soon(self) -> None:
        self.deliver()

    # -- the kinds of requests -----------------------------------------------------------------------------------

    def _storing(self, fire: Fire) -> _Request:
        target, block, body = fire.target, fire.block, fire.body  # the values at the time of sending

        def do() -> Input:
            if not fire.is_elsewhere:
                return PublishConcluded(fire, self._stream.publish(target, block, body))
            stream = self._stream_of(target)
            outcome = NO_STREAM if stream is None else stream.publish(target, block, body)
            if stream is not None and isinstance(outcome, Stored):
                outcome = outcome._replace(stream=stream.rules.name)
            return PublishConcluded(fire, outcome)

        return _Request(
            do=do,
            refuse=lambda refusal: PublishConcluded(fire, refusal),
            fail=lambda reason: PublishConcluded(fire, Unknown(reason)),
        )

    def _reading(self, request: ReadContent) -> _Request:
        schedule, sequence, source = request.schedule, request.sequence, request.source

        def do() -> Input:
            message = self._stream.last_applied(schedule)
            if request.above and message is not None and self._stream.has_applied(sequence):
                covered = self._stream.message(sequence)
                message = covered if covered is not None and covered.subject == schedule else None
            if (message is None or message.sequence < sequence) and not self._stream.has_applied(sequence):
                return ContentUnread(schedule, sequence, NOT_APPLIED)
            above = self._stream.first_applied(schedule, request.above) if request.above else None
            return ContentRead(schedule, sequence, message, self._stream.last(source) if source else None, above)

        return _Request(
            do=do,
            refuse=lambda refusal: ContentUnread(schedule, sequence, refusal.description),
            fail=lambda reason: ContentUnread(schedule, sequence, reason),
        )

    def _comparing(self, request: ReadDuplicate) -> _Request:
        fire, sequence, name = request

        def do() -> Input:
            named = [one for one in (self._stream, *self._others) if one.rules.name == name]
            stream = named[0] if named else self._stream
            message = stream.message(sequence)
            behind = message or next(stream.messages(after=sequence), None)
            return DuplicateRead(fire, sequence, message, None if behind is None else behind.stored_at)

        return _Request(
            do=do,
            refuse=lambda refusal: DuplicateUnread(fire, refusal.description),
            fail=lambda reason: DuplicateUnread(fire, reason),
        )

    def _applying(self, request: AwaitProposals) -> _Request:
        fire, denied = request.fire, self._stream.config.get("deny_purge") is True
        unconfirmed = ProposalsUnconfirmed(fire, "stream purge not permitted", is_final=True)
        return _Request(
            do=lambda: unconfirmed if denied else ProposalsApplied(fire),
            refuse=lambda refusal: ProposalsUnconfirmed(fire, refusal.description),
            fail=lambda reason: ProposalsUnconfirmed(fire, reason),
        )

    def _looking(self, request: LookForFire) -> _Request:
        fire, first, since = request.fire, request.first, request.since - MAX_CLOCK_DIFFERENCE_NS

        def do() -> Input:
            stream = self._stream_of(fire.target)
            if stream is None:
                return FireNotLookedFor(fire, NO_STREAM.description, NO_STREAM)
            last = stream.last(fire.target)
            stored = (one for one in stream.messages(fire.target) if one is last or one.stored_at >= since)
            found = [
                message._replace(body=None)
                for message in stored
                if is_fire_since(message.block, fire.schedule, fire.sequence, first)
            ]
            return FireLookedFor(fire, found, first)

        return _Request(
            do=do,
            refuse=lambda refusal: FireNotLookedFor(fire, refusal.description),
            fail=lambda reason: FireNotLookedFor(fire, reason),
        )

    def _stream_of(self, target: str) -> MemoryStream | None:
        """Return the stream that has a target as one of its subjects."""
        return next((one for one in (self._stream, *self._others) if is_covered(target, one.rules.subjects)), None)

    def _checking(self, request: CheckFinished) -> _Request:
        return _Request(
            do=lambda: answer_to(request, self._stream),
            refuse=lambda refusal: FinishUnchecked(request, refusal.description),
            fail=lambda reason: FinishUnchecked(request, reason),
        )

    def _purging(self, request: PurgeSchedule) -> _Request:
        schedule, through, stored_at, known = request

        def do() -> Input:
            message = self._stream.last(schedule) if stored_at is not None else None
            if stored_at is None or (message is not None and message[1:3] == (through, stored_at)):
                self._stream.purge(schedule, through)
            return PurgeConcluded(schedule, through)

        return _Request(
            do=do,
            refuse=lambda refusal: PurgeConcluded(schedule, through, refusal.description, refused=True, known=known),
            fail=lambda reason: PurgeConcluded(schedule, through, reason, known=known),
        )

    def _removing(self, request: RemoveExpired) -> _Request:
        sequence = request.sequence

        def do() -> Input:
            if not self._stream.has_applied(sequence):
                return ExpiryConcluded(sequence, failure=NOT_APPLIED)
            message = self._stream.message(sequence)
            expires = None if message is None else expiry_of(message, DIALECTS)
            if message is None or expires is None:
                return ExpiryConcluded(sequence)
            if expires > request.by:
                return ExpiryConcluded(sequence, expires=expires)
            refusal = self._stream.delete_fault()
            if refusal is not None:
                return ExpiryConcluded(sequence, failure=refusal.description, refused=True)
            self._stream.delete(sequence)
            return ExpiryConcluded(sequence, message.subject)

        return _Request(
            do=do,
            refuse=lambda refusal: ExpiryConcluded(sequence, failure=refusal.description, refused=True),
            fail=lambda reason: ExpiryConcluded(sequence, failure=reason),
        )


class _Follower:
    """Delivers the stored messages: first the history, then `CaughtUp`, then new ones."""

    def __init__(self, contact: MemoryContact, after: int, ended: asyncio.Future[None] | None) -> None:
        self._contact = contact
        self._ended = ended
        self._arrival = 0
        self._is_over = False
        history = [_headers_only(message) for message in contact._stream.messages(after=after)]
        self._stop_listening = contact._stream.listen(self._stored)
        contact._after(0, lambda: self._deliver_history(history))

    def stop(self) -> None:
        """Deliver no more messages."""
        self._is_over = True
        self._stop_listening()

    def end(self, reason: str) -> None:
        """Stop, and raise `ContactEndedError` in `follow`."""
        self.stop()
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(ContactEndedError(reason))

    def _stored(self, message: StoredMessage) -> None:
        clock = self._contact._clock
        self._arrival = max(self._arrival, clock.monotonic() + self._contact._network.follow(message))
        delivered = _headers_only(message)
        self._contact._after(self._arrival - clock.monotonic(), lambda: self._deliver([delivered]))

    def _deliver_history(self, history: list[StoredMessage]) -> None:
        if history:
            self._deliver(history)
        if not self._is_over:
            self._contact._notify(CaughtUp())

    def _deliver(self, messages: list[StoredMessage]) -> None:
        if not self._is_over:
            self._contact._notify(MessagesRead(MessageRun.of(messages)))


def _waits_for_the_leader(answer: Input) -> bool:
    """Return whether an answer comes when the leader has applied what is stored: that of a fire, or of a purge."""
    if isinstance(answer, PublishConcluded) and isinstance(answer.outcome, Stored):
        return not (answer.outcome.duplicate or answer.fire.is_elsewhere)
    return isinstance(answer, ProposalsApplied)


def _headers_only(message: StoredMessage) -> StoredMessage:
    """Remove the body as a server does for a consumer with headers only: a header then contains its size."""
    size = b"%d" % len(message.body or b"")
    return message._replace(block=with_header(message.block, b"Nats-Msg-Size", size), body=None)
