"""Which requests are in work, which wait, and which are refused: no client and no team takes the share of the others.

The rules:

- Endpoints that share `RequestPlaces` have a number of requests in work at once, of which one client has a part.
  Others wait, and begin in turn by client, however many each has sent. Who has too many that wait is refused; if all
  together have too many, one gives way of a client that has several, and not the only one of another client.
- Requests take at most `Budget.share` of a second of process time, and one client or one team `share_of_one` of it.
  What takes more is paid back: the next one begins that much later. Slices (`service.turns`) are not counted: they give
  way to fires by themselves, and take turns.
- Each of the `RequestPlaces` has its own room for requests that wait, so those of `health.get` and of each team are
  reserved: no other request takes them. With a budget of their own, their process time is reserved too.
- A client is the first two tokens of the inbox that it names, which is a connection or a process of the usual clients.
  Requests through an import of another account are those of the account, user and connection that the server names, if
  it does.

A client can write any inbox. So the shares of clients are fair to clients that do not lie, and protect nothing from one
that does; the sums, over all clients, hold for each.
A semaphore would give places in the order in which requests came, and know neither clients nor process time.

Cost: some microseconds for each request. Memory: the requests that may wait, with `WAITING_BYTES` for each of them, and
`MAX_CLIENTS` numbers. There is no I/O here, and no clock.
"""

import math
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from nats_scheduler.message.headers import header_value

T = TypeVar("T")

MAX_WAITING_OF_ONE = 32
"""Requests of one client that wait for the same places."""

WAITING_BYTES = 16 * 1024
"""Bytes that each request that may wait may have on average; one client has a quarter of all bytes."""

REFUSALS_PER_SECOND, REFUSALS_PER_SECOND_OF_ONE = 2_000, 1_000
"""Errors 429 that are answered to all clients for the same places, and to one."""

WAIT_LIMIT_SECONDS = 10.0
"""Longest wait of a request for its beginning: the status page awaits an answer for so long, the `nats` CLI for 5 s."""

MAX_CLIENTS = 1_024
"""Clients whose use is remembered; the one that used the least of late is forgotten first."""

MAX_DEBT_SECONDS = 0.25
"""The most process time that is paid back, so that one dear request does not keep all others waiting for long."""

MUTE_SECONDS = 0.05
"""The time for which what a client sends is dropped at once, after there was neither room for it nor an error left."""

NUID_LENGTH, NUID_PREFIX_LENGTH = 22, 12
"""Characters of the unique name that clients give an inbox, and of its part that is the same for each of a process."""

_ASKER = re.compile(rb'"(?:acc|user|id)":\s*(?:"[^"]*"|[0-9]+)')
"""What the server's `Nats-Request-Info` says of who asks through an import."""

IMPORTED = b"_R_."
"""The beginning of the inboxes of requests that come from another account."""


def client_of(reply: bytes, block: bytes) -> bytes:
    """Return which client asks, by the subject of the answer; see the rules for what that proves."""
    first = reply.find(b".") + 1
    second = reply.find(b".", first)
    if second < 0 and len(reply) - first == NUID_LENGTH:
        return reply[: first + NUID_PREFIX_LENGTH]
    client = reply if second < 0 else reply[:second]
    if block and reply.startswith(IMPORTED):
        client += b"".join(_ASKER.findall(header_value(block, b"Nats-Request-Info") or b""))
    return client


class TokenBucket:
    """A number that is used, and grows back: `rate` a second, up to `most`."""

    __slots__ = ("_at", "_level", "_most", "_rate")

    def __init__(self, rate: float, most: float, now: float) -> None:
        """Begin full, at a time `now` (s)."""
        self._rate, self._most, self._level, self._at = rate, most, most, now

    def left(self, now: float) -> float:
        """Return how much is left; below 0 it is a debt."""
        self._level = min(self._most, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._level

    def use(self, amount: float, now: float, debt: float = 0.0) -> None:
        """Use an amount, into debt by `debt` at most."""
        self._level = max(self.left(now) - amount, -debt)

    def seconds(self, now: float) -> float:
        """Return how long (s) to wait until something is left."""
        return max(0.0, -self.left(now) / self._rate)


class Buckets:
    """A bucket for each client, and one for all together."""

    def __init__(self, rate: float, rate_of_one: float, burst_seconds: float) -> None:
        """Let use `rate` a second, and `rate_of_one` each; what was not used for `burst_seconds` is used at once."""
        self._rate, self._rate_of_one, self._burst = rate, rate_of_one, burst_seconds
        self._all = TokenBucket(rate, rate * burst_seconds, 0.0)
        self._each: OrderedDict[bytes, TokenBucket] = OrderedDict()

    def seconds(self, client: bytes | None, now: float) -> float:
        """Return how long (s) a client has to wait; None: any client."""
        one = None if client is None else self._each.get(client)
        return max(self._all.seconds(now), 0.0 if one is None else one.seconds(now))

    def use(self, client: bytes, amount: float, now: float, debt: float = 0.0) -> None:
        """Use an amount for a client."""
        self._all.use(amount, now, debt)
        one = self._each.get(client)
        if one is None:
            one = self._each[client] = TokenBucket(self._rate_of_one, self._rate_of_one * self._burst, now)
            if len(self._each) > MAX_CLIENTS:
                self._each.popitem(last=False)
        else:
            self._each.move_to_end(client)
        one.use(amount, now, debt)

    def take(self, client: bytes, amount: float, now: float) -> bool:
        """Use an amount if the client and all together have something left; return whether it was used."""
        if self.seconds(client, now) > 0:
            return False
        self.use(client, amount, now, amount)
        return True


class Budget:
    """The process time that some requests may take."""

    def __init__(self, share: float, share_of_one: float) -> None:
        """Let them take a share of each second, and one client a share of it."""
        self.share, self.share_of_one = share, share_of_one
        self._used = Buckets(share, share_of_one, 1.0)

    def seconds(self, client: bytes | None, now: float) -> float:
        """Return how long (s) a client has to wait for the beginning of its next request; None: any client."""
        return self._used.seconds(client, now)

    def spend(self, client: bytes, seconds: float, now: float) -> None:
        """Count process time of a client."""
        self._used.use(client, seconds, now, MAX_DEBT_SECONDS)


class Waiting(NamedTuple, Generic[T]):
    """A request that waits."""

    item: T
    size: int
    """Its bytes."""
    since: float
    """When it came (s)."""


@dataclass(eq=False)
class RequestPlaces:
    """The places for requests in work, which some endpoints share, and the room for those that wait."""

    most: int
    """Requests in work at once."""
    most_of_one: int
    """Those of one client."""
    most_waiting: int
    """Requests that wait, of all clients."""
    budget: Budget
    owner: bytes = b""
    """The team whose requests these are, and whose time they take; `b""`: each client takes its own."""
    taken: int = field(default=0, init=False)
    of_each: Counter[bytes] = field(default_factory=Counter[bytes], init=False)
    """Requests in work, by client."""
    queues: OrderedDict[bytes, deque[Waiting[Any]]] = field(default_factory=OrderedDict, init=False)
    """Requests that wait, by client, in the order of their turns; none is empty."""
    crowded: dict[bytes, None] = field(default_factory=dict, init=False)
    """The clients with more than one of them."""
    waiting: int = field(default=0, init=False)
    waiting_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Write the sentences of its limits, which a flood of requests does not wait for."""
        self._refusals = Buckets(REFUSALS_PER_SECOND, REFUSALS_PER_SECOND_OF_ONE, 1.0)
        self._muted: dict[bytes, float] = {}
        self._is_full_until = 0.0
        self.most_bytes = self.most_waiting * WAITING_BYTES
        of_one = f"of one client at most {self.most_of_one} requests are in work"
        answered = "ask again when one of them is answered"
        self.too_many_of_one = f"{of_one}, and {MAX_WAITING_OF_ONE} wait: {answered}"
        self.too_long_of_one = f"{of_one}, and others with {self.most_bytes // 4:,} bytes wait: {answered}"
        most = f"at most {self.most_waiting} requests of all clients with {self.most_bytes:,} bytes wait"
        self.too_many = f"{most}, and they do: ask again"
        budget, whose = self.budget, "one rule" if self.owner else "one client"
        self.too_late = (
            f"not begun within {WAIT_LIMIT_SECONDS:.0f} s: at most {self.most} requests are in work, "
            f"{self.most_of_one} of one client, for {budget.share:.0%} of a second of process time, "
            f"{budget.share_of_one:.0%} for {whose}: ask again"
        )

    def may_refuse(self, client: bytes, now: float) -> bool:
        """Return whether a request is refused, which is not dropped then; if not, drop more of them for a moment."""
        if self._refusals.take(client, 1, now):
            return True
        if len(self._muted) >= MAX_CLIENTS:
            self._muted.clear()
        self._muted[client] = now + MUTE_SECONDS
        if self.waiting >= self.most_waiting and not self.crowded:
            self._is_full_until = now + MUTE_SECONDS
        return False

    def drops(self, client: bytes, now: float) -> bool:
        """Return whether a request of a client is dropped without a further look."""
        return now < self._muted.get(client, 0.0) or (now < self._is_full_until and client not in self.queues)

    def seconds(self, client: bytes, now: float) -> float | None:
        """Return how long (s) the next request of a client has to wait for process time, None if for a place."""
        if self.of_each[client] >= self.most_of_one:
            return None
        return self.budget.seconds(self.owner or client, now)


class ShareRefused(NamedTuple, Generic[T]):
    """A request that does not wait any more, and the sentence that says why."""

    item: T
    why: str


class Shares(Generic[T]):
    """The requests of one service that wait, and those in work."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[RequestPlaces, None] = OrderedDict()
        """The places for which any request waits, in the order of their turns."""

    @property
    def has_waiting(self) -> bool:
        """True if any request waits."""
        return bool(self._waiting)

    def add(self, places: RequestPlaces, client: bytes, item: T, size: int, now: float) -> ShareRefused[T] | None:
        """Let a request wait; return the one that is refused for it, if any: this one, or one of another client."""
        queue = places.queues.get(client)
        if queue is not None and len(queue) >= MAX_WAITING_OF_ONE:
            return ShareRefused(item, places.too_many_of_one)
        if sum(one.size for one in queue or ()) + size > places.most_bytes // 4:
            return ShareRefused(item, places.too_long_of_one)
        refused: ShareRefused[T] | None = None
        if places.waiting >= places.most_waiting or places.waiting_bytes + size > places.most_bytes:
            crowded = next((one for one in places.crowded if places.queues[one][-1].size >= size), None)
            if queue is not None or crowded is None:
                return ShareRefused(item, places.too_many)
            refused = ShareRefused(self._out(places, crowded, places.queues[crowded].pop()), places.too_many)
        if queue is None:
            queue = places.queues[client] = deque()
        else:
            places.crowded[client] = None
        queue.append(Waiting(item, size, now))
        self._waiting[places] = None
        places.waiting += 1
        places.waiting_bytes += size
        return refused

    def next(self, now: float) -> T | None:
        """Return the request that begins now, None if none may; call `end` when it is answered."""
        for places in self._waiting:
            if places.taken >= places.most or places.budget.seconds(None, now):
                continue
            client = next((one for one in places.queues if places.seconds(one, now) == 0), None)
            if client is not None:
                places.queues.move_to_end(client)
                self._waiting.move_to_end(places)
                places.taken += 1
                places.of_each[client] += 1
                return self._out(places, client, places.queues[client].popleft())
        return None

    def end(self, places: RequestPlaces, client: bytes) -> None:
        """Give a place back."""
        places.taken -= 1
        places.of_each[client] -= 1
        if not places.of_each[client]:
            del places.of_each[client]

    def seconds(self, now: float) -> float | None:
        """Return when (s from now) a request may begin that waits for process time, None if none does."""
        found = list[float | None]()
        for places in self._waiting:
            if places.taken < places.most:
                wait = places.budget.seconds(None, now)
                found += [wait] if wait else [places.seconds(client, now) for client in places.queues]
        return min((one for one in found if one is not None), default=None)

    def overdue(self, now: float) -> list[ShareRefused[T]]:
        """Return the requests that have waited for too long, and let them wait no more."""
        refused: list[ShareRefused[T]] = []
        for places in list(self._waiting):
            late = self._taken(places, now - WAIT_LIMIT_SECONDS)
            refused += [ShareRefused(item, places.too_late) for item in late]
        return refused

    def clear(self) -> list[T]:
        """Let none wait any more; return those that did."""
        return [item for places in list(self._waiting) for item in self._taken(places, math.inf)]

    def _taken(self, places: RequestPlaces, until: float) -> Iterator[T]:
        """Take out what has waited since `until` (s) or longer."""
        for client, queue in list(places.queues.items()):
            while queue and queue[0].since <= until:
                yield self._out(places, client, queue.popleft())

    def _out(self, places: RequestPlaces, client: bytes, waiting: Waiting[T]) -> T:
        """Note that a request has left its queue; return it."""
        left = len(places.queues[client])
        places.waiting -= 1
        places.waiting_bytes -= waiting.size
        if left <= 1:
            places.crowded.pop(client, None)
        if not left:
            del places.queues[client]
        if not places.waiting:
            del self._waiting[places]
        return waiting.item
