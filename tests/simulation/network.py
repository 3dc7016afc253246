"""The network of one instance, and one connection of one process to the server, as `jetstream.connection` says.

Its rule: the outcome of a request is decided when it begins, as `nats_scheduler.testing.network` asks for. A request
takes effect at the server at one moment between request and answer, or never; its sender learns the outcome, or that it
is unknown. What is doubled arrives twice at the server and is answered twice.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from nats_scheduler.control.errors import ConnectionLostError, DeadlineError
from nats_scheduler.control.transport import ANSWER_SECONDS, RESEND_INTERVAL_SECONDS
from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired
from nats_scheduler.engine.fire import FetchContent, Fire
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.rejection import NOT_PERMITTED
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.testing.network import Fate, Perfect
from tests.judge.history import SECOND
from tests.simulation.process import Point, Process
from tests.simulation.scenario import MILLISECOND, SLOWEST
from tests.simulation.timeline import Timeline

FULL = Refused(503, 10077, "maximum messages exceeded")

DENIED = Refused(NOT_PERMITTED, NOT_PERMITTED, "the user may not publish to the target")

USUAL = 2 * MILLISECOND
"""Longest transit (ns) of anything in good weather."""

LOST = 0.4
"""The share of messages lost in each direction while it is lossy."""


class Weather(Perfect):
    """The state of the network between one instance and the server."""

    def __init__(self, random: Random, timeline: Timeline) -> None:
        self._random = random
        self._timeline = timeline
        self.kinds: set[str] = set()
        """The current spells."""
        self.cut_until = 0
        """Nothing gets through before this instant (ns)."""
        self.silent_since = 0
        """The instant (ns) at which that began."""
        self.receives_from = 0
        """Nothing is received before this instant (ns), although what is sent arrives."""

    def publish(self, fire: Fire) -> Fate:
        """Decide what happens to a fire."""
        if "denied" in self.kinds:
            return self._fate(None)._replace(refusal=DENIED)
        fate = self._fate(FULL)
        return fate._replace(arrives=False) if "idle" in self.kinds else fate

    def read(self, request: FetchContent) -> Fate:
        """Decide what happens to a read."""
        return self._fate(None)

    def purge(self, request: PurgeSchedule) -> Fate:
        """Decide what happens to a purge."""
        return self._fate(None)

    def remove(self, request: RemoveExpired) -> Fate:
        """Decide what happens to the removal of a message that has expired."""
        return self._fate(None)

    def follow(self, message: StoredMessage) -> int:
        """Return how long (ns) a stored message takes to the follower."""
        return self.way_back()

    def way_back(self) -> int:
        """Return how long (ns) anything takes from the server."""
        return max(self.way(), self.receives_from - self._timeline.now)

    def way(self) -> int:
        """Return how long (ns) anything takes to the server."""
        longest = SLOWEST if "slow" in self.kinds and self._random.random() < 0.5 else USUAL
        return max(self.cut_until - self._timeline.now, 0) + int(self._random.random() * longest)

    def is_lost(self) -> bool:
        """Decide whether something gets lost in transit."""
        return "lossy" in self.kinds and self._random.random() < LOST

    def _fate(self, refusal: Refused | None) -> Fate:
        lossy = "lossy" in self.kinds
        return Fate(
            arrives=not self.is_lost(),
            answered=not self.is_lost(),
            refusal=refusal if "refusing" in self.kinds and self._random.random() < 0.5 else None,
            request_takes=self.way(),
            answer_takes=self.way_back(),
            twice=lossy and self._random.random() < 0.2,
        )


Answer = TypeVar("Answer")


class Link:
    """One connection."""

    def __init__(self, process: Process, weather: Weather) -> None:
        self.process = process
        self.weather = weather
        self.timeline = process.timeline
        self.lost: asyncio.Future[str] = process.loop.create_future()
        """Resolves, with the reason, when the connection is over."""
        self._open: set[asyncio.Future[Any]] = set()

    def lose(self, reason: str) -> None:
        """End it; requests that were sent may still take effect."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        for answer in self._open:
            _fail(answer, ConnectionLostError(reason))
        self._open.clear()

    async def ask(self, point: Point, do: Callable[[], Answer], then: Point | None = None) -> Answer:
        """Ask for something that is done once; raises as the server's `do` does, and if no answer comes."""
        return await self._asked(point, do, then, None)

    async def ask_again(self, point: Point, do: Callable[[], Answer], then: Point | None = None) -> Answer:
        """Send a request that changes nothing, and repeat it until an answer comes."""
        return await self._asked(point, do, then, round(RESEND_INTERVAL_SECONDS * SECOND))

    async def _asked(self, point: Point, do: Callable[[], Answer], then: Point | None, again: int | None) -> Answer:
        self.process.point(point)
        if self.lost.done():
            raise ConnectionLostError(self.lost.result())
        loop = self.process.loop
        answer: asyncio.Future[Answer] = loop.create_future()
        self._open.add(answer)
        self._send(do, answer, again)
        no_answer = DeadlineError(f"no answer within {ANSWER_SECONDS} s")
        deadline = loop.call_later(ANSWER_SECONDS, _fail, answer, no_answer)
        try:
            result = await answer
        finally:
            deadline.cancel()
            self._open.discard(answer)
        if then is not None:
            self.process.point(then)
        return result

    def tell(self, do: Callable[[], None]) -> None:
        """Ask for something without waiting for an answer."""
        if not self.lost.done() and not self.weather.is_lost():
            self.timeline.after(self.weather.way(), do)

    def _send(self, do: Callable[[], Answer], answer: "asyncio.Future[Answer]", again: int | None) -> None:
        if not self.weather.is_lost():
            self.timeline.after(self.weather.way(), lambda: self._arrived(do, answer))
        if again is not None:
            self.timeline.after(again, lambda: None if answer.done() else self._send(do, answer, again))

    def _arrived(self, do: Callable[[], Answer], answer: "asyncio.Future[Answer]") -> None:
        result: Answer | Exception | None
        try:
            result = do()
        except UnheardError:
            return
        except Exception as error:
            result = error
        if not self.weather.is_lost():
            self.timeline.after(self.weather.way_back(), lambda: self.process.receive(lambda: _give(answer, result)))


class UnheardError(Exception):
    """This request gets no answer: the group of servers has no leader."""


def _give(answer: "asyncio.Future[Any]", result: object) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
