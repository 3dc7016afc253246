"""Contact with a stream in memory: `engine.stream_port.StreamPort` without a server, and without real time.

A network decides what happens to each request (`testing.network`).

The rule: each method of the port only begins a request; `deliver` executes it, in the order of arrival.
The caller of `deliver` drives the contact: a test itself, or a world in virtual time.
A request in flight when the contact ends still arrives: continue to call `deliver` if that matters.

Cost: a heap entry or two a request. Limit: one contact sees its own stream, and others only as the targets of fires;
the follower loses nothing.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired, purge_after
from nats_scheduler.engine.fire import (
    AwaitProposals,
    CheckFinished,
    CompareBodies,
    FetchContent,
    FetchDuplicate,
    Fire,
    LookForFire,
    Question,
    consumer_missing,
    given_up_by,
    target_not_received,
)
from nats_scheduler.engine.inputs import (
    NO_STREAM,
    BodiesCompared,
    CaughtUp,
    ContentFetched,
    DuplicateFetched,
    ExpiryConcluded,
    FinishAnswer,
    FinishChecked,
    FireLookedFor,
    FiresStored,
    Input,
    MessagesRead,
    ProposalsApplied,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.fire_faults import MAX_CLOCK_DIFFERENCE_NS
from nats_scheduler.message.generated import is_generated_by
from nats_scheduler.message.headers import with_header
from nats_scheduler.message.reading import expiry_of, is_fire_since
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import ManualClock
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import Fate, Perfect


def answer_to(request: CheckFinished, stream: MemoryStream) -> FinishAnswer:
    """Return what a server would say of the fires in question: whether they are finished."""
    unfinished, fault, given_up = _first_stored(request, stream), "", False
    if request.consumer is not None:
        consumer = stream.consumers.get(request.consumer)
        if consumer is None:
            fault = consumer_missing(stream.rules.name, request.consumer)
        elif not consumer.receives(request.target):
            fault = target_not_received(request.consumer, request.target)
        elif not 0 < consumer.first_unacknowledged <= request.through:
            return FinishChecked(request)
        elif given_up := consumer.gave_up(request.through):
            fault = given_up_by(request.consumer)
        if not request.names_one:
            return FinishChecked(request, request.through, 0, fault, given_up)
    if unfinished is None:
        return FinishChecked(request)
    return FinishChecked(request, unfinished.sequence, unfinished.stored_at, fault, given_up)


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


class _Request(NamedTuple):
    do: Callable[[], Input]
    fail: Callable[[str, Refused | None], Input]
    """Is called with the reason, and with the server's refusal if that is one."""


def _asking(question: Question, do: Callable[[], Input]) -> _Request:
    """Return the request for a question about a fire, which `do` answers."""
    return _Request(do, lambda reason, _refusal: Unanswered(question, reason))


class MemoryContact:
    """The contact with one stream in memory, until it ends."""

    def __init__(
        self,
        stream: MemoryStream,
        notify: Notify,
        clock: ManualClock,
        network: Perfect | None = None,
        *,
        others: Sequence[MemoryStream] = (),
    ) -> None:
        """Make contact with a stream; `others` are those of the account that may have the targets of its schedules."""
        self._stream = stream
        self._others = others
        self._notify = notify
        self._clock = clock
        self._network = network or Perfect()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._open: dict[int, _Request] = {}
        self._ended: str | None = None
        self._arrival = 0
        """The instant (monotonic ns) at which the message that was stored last arrives."""
        self._follows = False
        self._stop_following: Callable[[], None] | None = None

    # -- the port ------------------------------------------------------------------------------------------------

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store fires, in this order."""
        for fire in fires:
            self._begin(self._network.publish(fire), self._storing(fire))

    def ask(self, question: Question) -> None:
        """Begin to find out something about one fire; for the network it is a read, and to await proposals a purge.

        A question is sent again while it is not answered if the answer may change nothing.
        """
        match question:
            case FetchContent():
                self._begin(self._network.read(question), self._reading(question))
            case FetchDuplicate(fire):
                read = FetchContent(fire.schedule, fire.sequence, None)
                self._begin(self._network.read(read), self._comparing(question))
            case LookForFire(fire):
                read = FetchContent(fire.schedule, fire.sequence, None)
                self._begin(self._network.read(read), self._looking(question))
            case AwaitProposals(fire):
                purge = PurgeSchedule(fire.schedule, 0)
                self._begin_repeated(self._applying(question), lambda: self._network.purge(purge))
            case CompareBodies(schedule, sequence):
                read = FetchContent(schedule, sequence, None)
                self._begin(self._network.read(read), self._comparing_bodies(question))
            case CheckFinished(schedule, sequence):
                read = FetchContent(schedule, sequence, None)
                self._begin_repeated(self._checking(question), lambda: self._network.read(read))

    def purge(self, request: PurgeSchedule) -> None:
        """Begin to purge the versions of a schedule."""
        self._begin(self._network.purge(request), self._purging(request))

    def remove(self, request: RemoveExpired) -> None:
        """Begin to remove a message whose TTL has run out."""
        self._begin(self._network.remove(request), self._removing(request))

    def end(self, reason: str) -> None:
        """End the contact and conclude every open request; calling it again does nothing."""
        if self._ended is not None:
            return
        self._ended = reason
        opened, self._open = self._open, {}
        for request in opened.values():
            self._notify(request.fail(reason, None))
        if self._stop_following is not None:
            self._stop_following()

    # -- what drives it ------------------------------------------------------------------------------------------

    def begin_following(self, after: int) -> Callable[[], None]:
        """Deliver every message with a sequence above `after`: first the history, then `CaughtUp`, then new ones.

        Return a function that stops it.
        """
        assert self._stop_following is None, "a contact follows once"
        history = [_headers_only(message) for message in self._stream.messages(after=after)]
        stop_listening = self._stream.listen(self._stored)
        self._follows = True

        def stop() -> None:
            self._follows = False
            stop_listening()

        self._stop_following = stop
        read = (MessagesRead(MessageRun.of(history)),) if history else ()
        self._after(0, lambda: self._deliver(*read, CaughtUp()))
        return stop

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
            self._notify(request.fail(self._ended, None))
            return 0
        self._number += 1
        number = self._number
        self._open[number] = request
        for _ in range(1 + fate.twice if fate.arrives else 0):
            self._after(fate.request_takes, lambda: self._arrived(number, request, fate))
        if not (fate.arrives and fate.answered):
            self._after(ANSWER_DEADLINE_NS, lambda: self._answered(number, request.fail("no answer within 5 s", None)))
        return number

    def _begin_repeated(self, request: _Request, draw: Callable[[], Fate]) -> None:
        """Send a request, with what the network draws for it, and again while it is not answered."""
        number = self._begin(draw(), request)

        def again() -> None:
            if number in self._open:
                fate = draw()
                if fate.arrives:
                    self._after(fate.request_takes, lambda: self._arrived(number, request, fate))
                self._after(RESEND_INTERVAL_NS, again)

        self._after(RESEND_INTERVAL_NS, again)

    def _arrived(self, number: int, request: _Request, fate: Fate) -> None:
        refusal = fate.refusal
        answer = request.do() if refusal is None else request.fail(refusal.description, refusal)
        if fate.answered:
            self._after(fate.answer_takes + self._lag_of(answer), lambda: self._answered(number, answer))

    def _lag_of(self, _answer: Input) -> int:
        """Return how much longer (ns) the stream takes for an answer than the network: nothing."""
        return 0

    def _answered(self, number: int, answer: Input) -> None:
        if self._open.pop(number, None) is None:
            return
        match answer:
            case PublishConcluded(fire, Stored(sequence, duplicate=False)) if fire.purge_through:
                self._acknowledged(fire, sequence)
            case _:
                self._notify(answer)

    def _acknowledged(self, fire: Fire, sequence: int) -> None:
        """Answer a fire after which its schedule is purged."""
        self._notify(FiresStored((fire,), (sequence,)))
        self.purge(purge_after(fire))

    def _after(self, duration: int, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self._clock.monotonic() + duration, self._number, event))

    # -- following -----------------------------------------------------------------------------------------------

    def _stored(self, message: StoredMessage) -> None:
        self._arrival = max(self._arrival, self._clock.monotonic() + self._network.follow(message))
        read = MessagesRead(MessageRun.of([_headers_only(message)]))
        self._after(self._arrival - self._clock.monotonic(), lambda: self._deliver(read))

    def _deliver(self, *inputs: Input) -> None:
        for given in inputs:
            if self._follows:
                self._notify(given)

    # -- the kinds of requests -----------------------------------------------------------------------------------

    def _storing(self, fire: Fire) -> _Request:
        target, block, body = fire.target, fire.block, fire.body  # the values at the time of sending

        def do() -> Input:
            if not fire.is_to_other_stream:
                return PublishConcluded(fire, self._stream.publish(target, block, body))
            stream = self._stream_of(target)
            outcome = NO_STREAM if stream is None else stream.publish(target, block, body)
            if stream is not None and isinstance(outcome, Stored):
                outcome = outcome._replace(stream=stream.rules.name)
            return PublishConcluded(fire, outcome)

        return _Request(
            do=do,
            fail=lambda reason, refusal: PublishConcluded(fire, refusal or Unknown(reason)),
        )

    def _reading(self, request: FetchContent) -> _Request:
        schedule, sequence, source = request.schedule, request.sequence, request.source

        def do() -> Input:
            message = self._stream.last(schedule)
            if request.above and message is not None:
                message = self._stream.message(sequence)
                message = message if message is not None and message.subject == schedule else None
            above = next(self._stream.messages(schedule, request.above), None) if request.above else None
            return ContentFetched(schedule, sequence, message, self._stream.last(source) if source else None, above)

        return _asking(request, do)

    def _comparing(self, request: FetchDuplicate) -> _Request:
        fire, sequence, name = request

        def do() -> Input:
            named = [one for one in (self._stream, *self._others) if one.rules.name == name]
            stream = named[0] if named else self._stream
            message = stream.message(sequence)
            behind = message or next(stream.messages(after=sequence), None)
            return DuplicateFetched(fire, sequence, message, None if behind is None else behind.stored_at)

        return _asking(request, do)

    def _comparing_bodies(self, request: CompareBodies) -> _Request:
        def do() -> Input:
            one, other = self._stream.message(request.sequence), self._stream.message(request.replaced_by)
            return BodiesCompared(request, one is not None and other is not None and one.body != other.body)

        return _asking(request, do)

    def _applying(self, request: AwaitProposals) -> _Request:
        fire, denied = request.fire, self._stream.config.get("deny_purge") is True
        unconfirmed = Unanswered(request, "stream purge not permitted", denied=True)
        return _asking(request, lambda: unconfirmed if denied else ProposalsApplied(fire))

    def _looking(self, request: LookForFire) -> _Request:
        fire, first, since = request.fire, request.first, request.since - MAX_CLOCK_DIFFERENCE_NS

        def do() -> Input:
            stream = self._stream_of(fire.target)
            if stream is None:
                return Unanswered(request, NO_STREAM.description, refusal=NO_STREAM)
            last = stream.last(fire.target)
            stored = (one for one in stream.messages(fire.target) if one is last or one.stored_at >= since)
            found = [
                message._replace(body=None)
                for message in stored
                if is_fire_since(message.block, fire.schedule, fire.sequence, first)
            ]
            return FireLookedFor(fire, found, first)

        return _asking(request, do)

    def _stream_of(self, target: str) -> MemoryStream | None:
        """Return the stream that has a target as one of its subjects."""
        return next((one for one in (self._stream, *self._others) if is_covered(target, one.rules.subjects)), None)

    def _checking(self, request: CheckFinished) -> _Request:
        return _asking(request, lambda: answer_to(request, self._stream))

    def _purging(self, request: PurgeSchedule) -> _Request:
        schedule, through, stored_at, known = request

        def do() -> Input:
            message = self._stream.last(schedule) if stored_at is not None else None
            if stored_at is None or (message is not None and message[1:3] == (through, stored_at)):
                self._stream.purge(schedule, through)
            return PurgeConcluded(schedule, through)

        return _Request(
            do=do,
            fail=lambda reason, refusal: PurgeConcluded(
                schedule, through, reason, refused=refusal is not None, known=known
            ),
        )

    def _removing(self, request: RemoveExpired) -> _Request:
        sequence = request.sequence

        def do() -> Input:
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
            fail=lambda reason, refusal: ExpiryConcluded(sequence, failure=reason, refused=refusal is not None),
        )


def _headers_only(message: StoredMessage) -> StoredMessage:
    """Remove the body as a server does for a consumer with headers only: a header then contains its size."""
    size = b"%d" % len(message.body or b"")
    return message._replace(block=with_header(message.block, b"Nats-Msg-Size", size), body=None)
