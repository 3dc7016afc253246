"""Whatever happens to a follower, in whatever order, it does what its table has, misses nothing, and reads all again.

Each round lets random faults happen to its consumers, heals them, and then demands that all is delivered: once, and in
the order of the stream.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from nats_scheduler.control.errors import DeadlineError
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, Input, MessagesRead
from nats_scheduler.jetstream import burst, connection, consumer_follower, pulled_consumer
from nats_scheduler.jetstream.consumer_follower import ConsumerFollower
from nats_scheduler.jetstream.follower_stages import FollowerEvent, FollowerStage, FollowerStages
from tests.harness.account import Account, account_on
from tests.harness.scripted_stream import STREAM, ScriptedStream, scripted_stream
from tests.harness.seeds import draws, generator
from tests.harness.waiting import eventually, time_reached

FAULTS_A_ROUND = 30
HEALED = 5
"""Among the faults, how often all is healed: what happens while all is read is as much of a test."""
MIN_ROUNDS = 4
MAX_ROUNDS = 100
"""Rounds until each stage was seen: most are seen in the first ones."""

QUICKER: dict[Any, dict[str, Any]] = {
    burst: {"MIN_BURST_FIRES": 20},
    connection: {"REQUEST_DEADLINE_CHECK_INTERVAL_SECONDS": 0.02, "RESEND_INTERVAL_SECONDS": 0.05},
    pulled_consumer: {"CONSUMER_CHECK_INTERVAL_SECONDS": 0.05},
    consumer_follower: {
        "CONSUMER_CHECK_INTERVAL_SECONDS": 0.05,
        "CLUSTER_CONSUMER_DEADLINES_SECONDS": (0.05, 0.1),
        "CONSUMER_DELETE_DEADLINE_SECONDS": 0.05,
        "WALK_POLL_INTERVAL_SECONDS": 0.01,
        "WALK_ANSWER_DEADLINE_SECONDS": 0.03,
        "MAX_PULL_BATCH": 200,
        "STANDBY_PULL_BATCH": 20,
        "STANDBY_REST_SECONDS": 0.05,
        "MAX_BACKLOG_MESSAGES": 100,
    },
}
"""Waits and numbers that are smaller here, so that a round takes half a second."""


class RecordedStages(FollowerStages):
    """The stages of a follower, which are noted."""

    def __init__(self, seen: set[FollowerStage], events: list[FollowerEvent]) -> None:
        super().__init__()
        self.seen = seen
        self.events = events

    def move(self, event: FollowerEvent) -> FollowerStage:
        following = super().move(event)
        self.seen.add(following)
        self.events.append(event)
        return following


class Attacked:
    """A follower, what it has delivered, and what happens to it."""

    def __init__(self, stream: ScriptedStream, account: Account, rng: Random) -> None:
        self.stream = stream
        self._rng = rng
        self.read: list[int] = []
        self.through = 0
        self.ours: set[int] = set()
        self.is_live = False
        self._is_slow, self._is_standby = rng.random() < 0.3, rng.random() < 0.3
        stream.store(rng.randrange(1_000))
        self._received = 0
        self.follower = ConsumerFollower(
            account.connection,
            account.api,
            {"name": STREAM},
            self._notify,
            asyncio.Event().wait,
            is_standby=lambda: self._is_standby,
            last_received=lambda: self._received,
        )
        self.following: asyncio.Task[None] | None = None
        self.faults: list[Callable[[], object]] = [
            lambda: self._stored(rng.randrange(1, 5)),
            lambda: self._stored(rng.randrange(50, 400)),
            lambda: self._stored(30),
            self._engine_gets_slow,
            self._standby_sees_a_burst,
            self._cluster_loses_its_leader,
            self._fires_are_stored,
            self._fires_are_stored,
            stream.skip,
            stream.forget,
            lambda: stream.say("404 No Messages"),
            lambda: stream.say("408 Request Timeout"),
            lambda: stream.say("409 Consumer Deleted"),
            lambda: setattr(stream, "creates", not stream.creates),
            lambda: setattr(stream, "answers", not stream.answers),
            lambda: setattr(stream, "is_mute", not stream.is_mute),
            lambda: setattr(stream, "lag", rng.choice([0, 0, 3])),
            lambda: setattr(stream, "is_limited", rng.random() < 0.5),
            *(self.heal for _ in range(HEALED)),
        ]

    @property
    def known(self) -> int:
        """Up to here all is delivered."""
        return max(self.through, self.read[-1] if self.read else 0)

    def _notify(self, given: Input) -> None:
        if isinstance(given, MessagesRead):
            self.read += [message.sequence for message in given.messages]
            self.through = max(self.through, given.through)
            self._received = self._received if self._is_slow else self.known
        else:
            assert isinstance(given, CaughtUp | ContactLost)
            self.is_live = isinstance(given, CaughtUp)

    def _stored(self, count: int) -> None:
        self.stream.store(count)

    def _engine_gets_slow(self) -> None:
        self._is_slow = True
        self._stored(400)

    def _standby_sees_a_burst(self) -> None:
        self._is_standby, self._is_slow = True, False
        self._stored(100)

    def _cluster_loses_its_leader(self) -> None:
        self.stream.creates, self.stream.answers = False, self._rng.random() < 0.5
        self.stream.forget()

    def _fires_are_stored(self) -> None:
        """Store fires of this sidecar, among which another client stores now and then."""
        for _ in range(self._rng.randrange(1, 5)):
            sequences = self.stream.store(30)
            self.ours.update(sequences)
            self.follower.acknowledged(sequences)
            if self._rng.random() < 0.3:
                self._stored(1)

    def heal(self) -> None:
        """Let everything work, the engine too."""
        self.stream.heal()
        self._is_slow = self._is_standby = False
        self._received = self.known
        self.stream.deliver()

    async def restart(self) -> None:
        """End following, if it was begun, and follow what was not delivered."""
        await self.end()
        self.following = asyncio.create_task(self.follower.follow(self.known))

    async def end(self) -> None:
        if self.following is not None:
            self.following.cancel()
            await asyncio.wait((self.following,))
            with suppress(asyncio.CancelledError, DeadlineError):  # the runtime makes another contact then
                self.following.result()

    async def attack(self) -> None:
        """Let a fault happen, and a little time go by."""
        self._rng.choice(self.faults)()
        await time_reached(asyncio.get_running_loop().time() + self._rng.choice([0, 0, 0.005, 0.02, 0.1]))
        self._received = self._received if self._is_slow else self.known

    async def keep_following(self) -> None:
        """Begin anew if following has ended, as the runtime does with another contact; raise any other error.

        So it is too if it was left to look-ups, which read nothing here, and consumers are allowed again.
        """
        is_left = self.follower.stages.now is FollowerStage.LOOKED_UP and not self.stream.is_limited
        if self.following is None or self.following.done() or is_left:
            await self.restart()

    async def has_read_all(self) -> bool:
        """Return whether all that is stored was delivered, and is said to be."""
        await self.keep_following()
        return self.is_live and self.known == self.stream.last

    def check(self) -> None:
        """Check that nothing was delivered twice or in another order, and only what was acknowledged is missing."""
        assert self.read == sorted(set(self.read))
        assert set(range(1, self.known + 1)) - set(self.read) <= self.ours


@pytest.fixture
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all waits of followers short."""
    for module, values in QUICKER.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


@asynccontextmanager
async def attacked(rng: Random) -> AsyncIterator[Attacked]:
    """Follow a stream, and fail if anything is raised where nothing waits for it."""
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: raised.append(context))
    async with scripted_stream() as (stream, url), account_on(url) as account:
        yield Attacked(stream, account, rng)
    assert raised == []


@pytest.mark.slow
@pytest.mark.usefixtures("quicker")
async def test_a_follower_under_attack_misses_nothing() -> None:
    rng, seen, events = generator("a follower is attacked"), set[FollowerStage](), list[FollowerEvent]()
    rounds = 0
    while rounds < MIN_ROUNDS * draws(1) or seen != set(FollowerStage):
        rounds += 1
        assert rounds <= MAX_ROUNDS * draws(1), f"not seen: {set(FollowerStage) - seen}"
        async with attacked(rng) as one:
            one.follower.stages = RecordedStages(seen, events)
            await one.restart()
            for _ in range(FAULTS_A_ROUND):
                await one.attack()
                await one.keep_following()
                one.check()
            one.heal()
            one.stream.store(1)
            await eventually(one.has_read_all, describe=lambda: f"all is read; the last events: {events[-20:]}")
            one.check()
            await one.end()
            assert one.follower.stages.now is FollowerStage.IDLE


@pytest.mark.slow
@pytest.mark.usefixtures("quicker")
async def test_a_consumer_that_sends_nothing_is_given_up() -> None:
    """Its node has died, or it has forgotten what was asked of it."""
    async with attacked(generator("a consumer is mute")) as one:
        await one.restart()
        await eventually(lambda: one.is_live, describe="the stream is followed")
        one.stream.is_mute = True
        await eventually(lambda: not one.is_live, describe="contact is lost")
        one.heal()
        one.stream.store(1)
        await eventually(one.has_read_all, describe="all is read through another consumer")
        await one.end()
