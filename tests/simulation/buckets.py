"""The bucket of the registry: modelled as the stream that it is, and how one process sees it.

Its rule: revisions are stream sequences and compare-and-set is the server's own check, both those of `MemoryStream`.
A watcher receives every write once and in order, some late; it is notified at once, or after a silence, that the bucket
is gone. Everything that was ever written is kept aside, so that a process may find an older checkpoint.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from nats_scheduler.control.errors import ConnectionLostError, NoRespondersError, RefusedError
from nats_scheduler.control.requests import STREAM_NOT_FOUND
from nats_scheduler.engine.inputs import Refused, Stored
from nats_scheduler.jetstream.pulled_consumer import CONSUMER_SILENCE_LIMIT_SECONDS
from nats_scheduler.message.foreign_json import Object, read_object
from nats_scheduler.message.generated import WRONG_LAST_SEQUENCE
from nats_scheduler.message.headers import with_headers
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.this_instance import OWNER
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.judge.history import SECOND
from tests.simulation.network import Link, UnheardError
from tests.simulation.process import Point, Process
from tests.simulation.scenario import MILLISECOND
from tests.simulation.timeline import Timeline

CONFIG = {"name": "KV_sim", "subjects": [">"], "max_msgs_per_subject": 1, "allow_rollup_hdrs": True}

GAP_NOTICED = 1250 * MILLISECOND
"""Longest time (ns) until a message that was lost in transit to a watcher is delivered again."""

Told = Callable[[str, Object | None, StoredMessage], None]


class BucketServer:
    """The bucket as the server holds it."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.stream: MemoryStream | None = None
        self.created = ""
        self.watchers: dict[Watcher, None] = {}
        """In the order in which they began."""
        self.versions: dict[str, list[bytes]] = {}
        """Everything that was ever written, by key."""
        self.found_nothing_at: list[int] = []
        """The instants (ns) at which a checkpoint was asked for and none was found."""
        self.leaderless_until = 0
        """No request is answered before this instant (ns)."""

    @property
    def takeovers(self) -> int:
        """The number of times that the record of the owner was written."""
        return sum(len(written) for key, written in self.versions.items() if key.startswith(OWNER))

    def look(self) -> str | None:
        """Return when it was created, None if it does not exist."""
        self._listen()
        return self.created if self.stream is not None else None

    def create(self) -> str:
        """Create it if it does not exist, and return when it was created."""
        self._listen()
        if self.stream is None:
            self.stream = MemoryStream(CONFIG, self.timeline.clock.now)
            self.created = str(self.timeline.clock.now())
            self.stream.listen(self._stored)
        return self.created

    def delete(self, untold: Process | None = None) -> None:
        """Remove it, with all that is in it; the watchers of the process that is left `untold` end in silence."""
        self.stream = None
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            if watcher.process is not untold:
                watcher.is_gone()

    def last(self, key: str) -> StoredMessage | None:
        """Return the last message of a key, None if there is none."""
        self._listen()
        return None if self.stream is None else self.stream.last(key)

    def swap(self, key: str, value: Any, revision: int) -> int | None:
        """Write in place of a revision; None if another one is there by now."""
        headers = [(b"Nats-Expected-Last-Subject-Sequence", b"%d" % revision)]
        return self.write(key, json.dumps(value).encode(), with_headers(b"", headers))

    def write(self, key: str, body: bytes, block: bytes = b"") -> int | None:
        """Write a value; returns its revision, None if the server refused it because of the one that is there."""
        self._listen()
        if self.stream is None:
            raise NoRespondersError(f"{key}: no server answers")
        outcome = self.stream.publish(key, block, body)
        if isinstance(outcome, Refused):
            assert outcome.code in WRONG_LAST_SEQUENCE, outcome
            return None
        assert isinstance(outcome, Stored), outcome
        self.versions.setdefault(key, []).append(body)
        return outcome.sequence

    def forget(self, key: str) -> None:
        """Remove what is stored under a key."""
        self._listen()
        if self.stream is None:
            raise RefusedError(404, STREAM_NOT_FOUND, "stream not found", "purge")
        self.stream.purge(key)

    def tell(self, key: str, body: bytes, block: bytes = b"") -> None:
        """Take a value whose sender awaits no answer."""
        if not self.is_silent() and self.stream is not None:
            self.write(key, body, block)

    def watch(self, watcher: "Watcher") -> None:
        """Send a watcher what is stored, and from now on what is written."""
        self._listen()
        if self.stream is None:
            raise RefusedError(404, STREAM_NOT_FOUND, "stream not found", "create consumer")
        if watcher not in self.watchers:
            self.watchers[watcher] = None
            for message in self.stream.messages():
                watcher.stored(message)

    def is_silent(self) -> bool:
        """Return whether no request is answered now."""
        return self.timeline.now < self.leaderless_until

    def _listen(self) -> None:
        if self.is_silent():
            raise UnheardError

    def _stored(self, message: StoredMessage) -> None:
        for watcher in list(self.watchers):
            watcher.stored(message)


class Watcher:
    """A watcher of the bucket: it receives in order, so that a lost message delays the later ones."""

    def __init__(self, link: Link, keys: Sequence[str], told: Told) -> None:
        self._link = link
        self._prefixes = tuple(key.rstrip("*>") for key in keys)
        self._told = told
        self._arrival = 0
        self.process = link.process
        self.ended = link.process.loop.create_future()

    def stored(self, message: StoredMessage) -> None:
        """Send a message."""
        if message.subject.startswith(self._prefixes):
            self._arrives(GAP_NOTICED if self._link.weather.is_lost() else 0, lambda: self._tell(message))

    def is_gone(self) -> None:
        """Send the notice that there is nothing to follow any more; it can get lost."""
        silence = round(CONSUMER_SILENCE_LIMIT_SECONDS * SECOND)
        self._arrives(silence if self._link.weather.is_lost() else 0, self._end)

    def _arrives(self, late: int, event: Callable[[], None]) -> None:
        link, clock = self._link, self._link.timeline.clock
        self._arrival = max(self._arrival, clock.monotonic() + link.weather.way_back() + late)
        link.timeline.after(self._arrival - clock.monotonic(), lambda: link.process.receive(event))

    def _tell(self, message: StoredMessage) -> None:
        if not self.ended.done() and not self._link.lost.done():
            self._told(message.subject, read_object(message.body or b""), message)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class SimulatedBucket:
    """The bucket through one connection: a `runtime.server_port.Bucket`."""

    def __init__(self, server: BucketServer, link: Link, memory: str, random: Random) -> None:
        """Open the bucket; of checkpoints it returns the `latest`, an `older` one, or `none`."""
        self._server = server
        self._link = link
        self._memory = memory
        self._random = random
        self.created = ""
        self.broken: Callable[[str, str], None] = _raise

    async def open(self) -> bool:
        """Create the bucket if it does not exist."""
        known = await self._link.ask_again(Point.OPEN_BUCKET, self._server.look)
        created = known
        if created is None:
            created = await self._link.ask(Point.OPEN_BUCKET, self._server.create)
        self.created = created
        self._link.process.point(Point.OPENED_BUCKET)
        return known is None

    async def is_replaced(self) -> bool:
        """Return whether it is gone, or another one."""
        created = await self._link.ask_again(Point.OPEN_BUCKET, self._server.look) or ""
        self.created = self.created or created
        return created != self.created

    async def get(self, key: str) -> Object | None:
        """Return the checkpoint that this view returns."""
        last = await self._link.ask_again(
            Point.READ_CHECKPOINT, lambda: self._server.last(key), then=Point.CHECKPOINT_READ
        )
        if last is None or self._memory == "none":
            self._server.found_nothing_at.append(self._server.timeline.now)
            return None
        older = self._memory == "older"
        return read_object(self._random.choice(self._server.versions[key]) if older else last.body or b"")

    async def revised(self, key: str) -> tuple[Object | None, int]:
        """Return the last value and its revision."""
        last = await self._link.ask_again(_asking(key)[0], lambda: self._server.last(key))
        return (None, 0) if last is None else (read_object(last.body or b""), last.sequence)

    async def swap(self, key: str, value: Any, revision: int) -> int | None:
        """Write a value in place of another one."""
        before, after = _asking(key)
        return await self._link.ask(before, lambda: self._server.swap(key, value, revision), after)

    async def purge(self, key: str) -> None:
        """Remove whatever is stored under a key."""
        await self._link.ask(Point.FORGET, lambda: self._server.forget(key), Point.FORGOT)

    def send(self, key: str, value: Any) -> bool:
        """Write a value without waiting."""
        self._link.process.point(Point.TELL)
        self._link.tell(lambda: self._server.tell(key, json.dumps(value).encode()))
        return True

    def mark_deleted(self, key: str) -> None:
        """Write that a key has no value."""
        self._link.process.point(Point.LEAVE)
        self._link.tell(lambda: self._server.tell(key, b"", with_headers(b"", [(b"KV-Operation", b"DEL")])))

    async def follow(self, keys: Sequence[str], told: Told) -> None:
        """Deliver what is stored, and then what is written."""
        link, watcher = self._link, Watcher(self._link, keys, told)
        try:
            await link.ask_again(Point.LISTEN, lambda: self._server.watch(watcher))
            await asyncio.wait((link.lost, watcher.ended), return_when=asyncio.FIRST_COMPLETED)
            if not link.lost.done():
                raise RefusedError(404, STREAM_NOT_FOUND, "stream not found", "create consumer")
        finally:
            self._server.watchers.pop(watcher, None)
        raise ConnectionLostError(link.lost.result())


def _asking(key: str) -> tuple[Point, Point]:
    if key.startswith(OWNER):
        return Point.CLAIM, Point.CLAIMED
    return Point.WRITE_CHECKPOINT, Point.CHECKPOINT_WRITTEN


def _raise(key: str, reason: str) -> None:
    raise AssertionError(f"{key}: {reason}")
