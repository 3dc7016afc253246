"""Denials and neglect are judged at the next check, and at each one for as long as they last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from nats_scheduler.engine.holding.lifecycle import Denied
from nats_scheduler.engine.sharing.leases import Ability
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.instances import ALL_REFUSED_LIMIT_NS, Judgement
from nats_scheduler.testing.clock import ManualClock

KEY = "emulated.ORDERS"
LAST = 7
INFO = {
    "config": {"name": "ORDERS", "subjects": ["o.>"]},
    "created": "2020-01-01T00:00:00Z",
    "state": {"last_seq": LAST},
}


@dataclass
class Engine:
    """The part of one stream's engine that a judgement reads, which here has its ownership too."""

    is_live: bool = True
    last_read: int = LAST
    fires_stored: int = 0
    failing_count: int = 0
    neglected: dict[int, int] = field(default_factory=dict)
    last_fired: list[int] = field(default_factory=lambda: [0] * SHARDS)

    @property
    def ownership(self) -> "Engine":
        return self


@dataclass
class Stream:
    """The part of one stream's service that a judgement reads."""

    state: StreamState = field(default_factory=lambda: StreamState.from_info(INFO))
    denied: Denied | None = None
    engine: Engine = field(default_factory=Engine)


class Server:
    """Answers with the stream's information."""

    async def stream(self, _name: str) -> Any:
        """Return it."""
        return INFO


class Bench:
    """A judgement, and what it relieves."""

    def __init__(self) -> None:
        self.ability, self.clock = Ability(), ManualClock()
        self.relieved: list[dict[int, int]] = []
        self.judgement = Judgement(self.ability, self._relieve, Server(), self.clock, Reporter(Metrics()))

    def _relieve(self, _key: str, neglected: Mapping[int, int], _last: Sequence[int], _now: int) -> list[str]:
        self.relieved.append(dict(neglected))
        return []

    async def check(self, stream: Stream, *, stepped: bool = True) -> int:
        """Check once, do the work that follows, and return how much it was."""
        works = self.judgement.check(cast(Any, {KEY: stream}), [KEY] if stepped else [])
        for work in works:
            await work()
        return len(works)


async def test_what_is_denied_in_a_step_is_judged_at_the_next_check() -> None:
    bench, stream = Bench(), Stream()
    assert await bench.check(stream) == 0
    assert not bench.ability.unable
    stream.denied = Denied(bench.clock.now(), 3, "no permission")
    await bench.check(stream)
    assert bench.ability.unable == {KEY: "no permission"}


async def test_a_neglected_stream_is_checked_until_it_is_not_neglected_any_more() -> None:
    bench, stream = Bench(), Stream()
    stream.engine.neglected[3] = bench.clock.now()
    assert await bench.check(stream) == 1
    assert await bench.check(stream, stepped=False) == 1, "also if no step happens in between"
    stream.engine.neglected.clear()
    assert await bench.check(stream, stepped=False) == 1, "the relief may end"
    assert bench.relieved[-1] == {}
    assert await bench.check(stream, stepped=False) == 0


async def test_a_holder_is_judged_only_when_all_is_read_that_was_stored_when_it_seemed_idle() -> None:
    bench, stream = Bench(), Stream(engine=Engine(last_read=LAST - 1, neglected={3: 1}))
    await bench.check(stream)
    await bench.check(stream)
    assert bench.relieved == []
    stream.engine.last_read = LAST
    await bench.check(stream, stepped=False)
    assert bench.relieved == [{3: 1}]


async def test_no_holder_is_judged_on_a_stream_that_refuses_our_fires_too() -> None:
    bench, stream = Bench(), Stream(engine=Engine(failing_count=1, neglected={3: 1}))
    assert await bench.check(stream) == 1
    bench.clock.advance(ALL_REFUSED_LIMIT_NS)
    assert await bench.check(stream) == 0
    stream.engine.fires_stored += 1
    assert await bench.check(stream) == 1
