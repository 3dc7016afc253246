"""What instances know of the streams that they own: which changed, who is unable or idle, and what a record says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from nats_scheduler.engine.holding.ownership import Denied
from nats_scheduler.engine.inputs import CaughtUp, StreamChanged
from nats_scheduler.engine.ownership.ability import Ability
from nats_scheduler.engine.ownership.order import Order, order_of
from nats_scheduler.engine.ownership.owners import FIRST_HEARTBEAT_LIMIT_NS, NO_OWNER, Owners, Record
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.value_formats import UnknownFormatError
from nats_scheduler.message.capabilities import GUARD_LEVEL, Capabilities
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.instance_judgement import ALL_REFUSED_LIMIT_NS, Judgement
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.runtime.this_instance import (
    INSTANCE,
    MAX_NAME_CHARS,
    MAX_UNREADABLE_NOTED,
    OWNER,
    Instances,
    ServicesByKey,
    record_of,
)
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.testing.manual_clock import ManualClock
from tests.harness.waiting import eventually, one_turn
from tests.runtime.test_stream_service import Fires

ORDERS, BILLS = "emulated.ORDERS", "emulated.BILLS"
LONG_SECONDS = 30.0
LAST = 7


def info_of(name: str) -> dict[str, Any]:
    config = {"name": name, "subjects": [f"{name}.>"]}
    return {"config": config, "created": "2020-01-01T00:00:00Z", "state": {"last_seq": LAST}}


def test_what_no_instance_can_have_written_names_no_owner() -> None:
    names: list[Any] = [None, 5, True, ["a"], {"a": 1}, "", "x" * (MAX_NAME_CHARS + 1), "x" * 60_000]
    for name in names:
        value = {"owner": name, "before": name, "since": name, "reason": name}
        assert record_of(value, 7) == Record(revision=7), name
    assert record_of(None, 7) == record_of({}, 7) == Record(revision=7)
    assert record_of({"owner": "a", "since": "soon", "reason": "whim"}, 7) == Record("a", revision=7)
    newer = UnknownFormatError("owner.emulated.S", 2, 1)
    assert record_of(newer, 7) == Record(revision=7, is_foreign=True), "it is only known to exist"


class Streams:
    """Services with contact, by the names of their streams."""

    def __init__(self) -> None:
        self.services: dict[str, StreamService] = {}
        self._contacts: dict[str, Fires] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str) -> None:
        """Serve a stream of which nothing was read yet, with a new engine."""
        server, state = Capabilities("2.11.0", GUARD_LEVEL, 1 << 20), StreamState.from_info(info_of(name))
        one = StreamService(state, Mode.EMULATED, server, SidecarSettings(), ManualClock(), lambda *_: None)
        nothing: Any = None
        contact = Fires()
        self._running[name] = asyncio.create_task(one.serve(contact, nothing, nothing))
        self.services[name], self._contacts[name] = one, contact
        await eventually(lambda: one.has_contact)
        await self.step(name)

    async def step(self, name: str, given: Any = None) -> None:
        """Step the engine of a stream, and return afterwards."""
        self._contacts[name].notify(given or StreamChanged())
        stepped = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(stepped.set_result, None)  # behind the driver's step
        await stepped

    async def ended(self, name: str) -> BaseException | None:
        """Wait until a service ended by itself, and return the error that it ended with."""
        await asyncio.wait((self._running[name],), timeout=LONG_SECONDS)
        return self._running[name].exception()

    async def close(self) -> None:
        """End all services."""
        for task in self._running.values():
            task.cancel()
        await asyncio.wait(self._running.values())
        for one in self.services.values():
            one.end()


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    """One served stream, ORDERS."""
    async with AsyncExitStack() as stack:
        made = Streams()
        stack.push_async_callback(made.close)
        await made.begin("ORDERS")
        yield made


async def test_a_check_finds_what_changed_since_the_one_before(streams: Streams) -> None:
    await streams.begin("BILLS")
    served = ServicesByKey(streams.services)
    assert served.take_changed() == [ORDERS, BILLS], "at first all of them"
    assert served.take_changed() == []
    await streams.step("BILLS", CaughtUp())
    assert served.take_changed() == [BILLS]
    await streams.step("BILLS")
    assert served.take_changed() == [], "a step that changes nothing for instances"


@dataclass
class Judged:
    """The part of a stream's service that a judgement reads; it is its engine and its ownership too."""

    state: StreamState = field(default_factory=lambda: StreamState.from_info(info_of("ORDERS")))
    denied: Denied | None = None
    is_live: bool = True
    last_read: int = LAST
    fires_stored: int = 0
    failing_count: int = 0
    unfired: int = 0
    last_fired: int = 0

    @property
    def engine(self) -> "Judged":
        return self

    @property
    def ownership(self) -> "Judged":
        return self


class Bench:
    """A judgement, and what it judges."""

    def __init__(self) -> None:
        self.ability, self.clock = Ability(), ManualClock()
        self.judged: list[int] = []
        self.judgement = Judgement(self.ability, self._judge_owner, self, self.clock, Reporter(Metrics()))

    async def stream(self, name: str) -> Any:
        """Answer as a server does."""
        return info_of(name)

    def _judge_owner(self, _key: str, unfired: int, _fired: int, _now: int) -> str | None:
        self.judged.append(unfired)
        return None

    async def check(self, stream: Judged, *, stepped: bool = True) -> int:
        """Check once, do the work that follows, and return how much it was."""
        works = self.judgement.check(cast(Any, {ORDERS: stream}), [ORDERS] if stepped else [])
        for work in works:
            await work()
        return len(works)


async def test_an_owner_is_judged_only_when_all_that_was_stored_is_read() -> None:
    bench, stream = Bench(), Judged(last_read=LAST - 1, unfired=1)
    await bench.check(stream)
    await bench.check(stream)
    assert bench.judged == []
    stream.last_read = LAST
    await bench.check(stream, stepped=False)
    assert bench.judged == [1]


async def test_no_owner_is_judged_on_a_stream_that_refuses_our_fires_too() -> None:
    bench, stream = Bench(), Judged(failing_count=1, unfired=1)
    assert await bench.check(stream) == 1
    bench.clock.advance(ALL_REFUSED_LIMIT_NS)
    assert await bench.check(stream) == 0
    stream.fires_stored += 1
    assert await bench.check(stream) == 1


class Registry:
    """The bucket, of which only what is sent and what is reported is kept."""

    def __init__(self) -> None:
        self.broken_keys: list[str] = []

    def broken(self, key: str, _reason: str) -> None:
        """Keep it."""
        self.broken_keys.append(key)


def part(owners: Owners, streams: Streams, clock: ManualClock, registry: Any = None) -> Instances:
    """Make the part of one instance that is not on any connection."""
    nothing: Any = None
    reporter = Reporter(Metrics())
    return Instances(owners, registry, nothing, clock, streams.services, reporter, nothing, nothing)


async def test_a_stream_that_is_given_up_is_read_until_it_is_handed_over(streams: Streams) -> None:
    """Also if it is checked for another reason meanwhile: what is owned here would fire nowhere."""
    clock, owners = ManualClock(), Owners("me", order=Order(0))
    instances = part(owners, streams, clock)
    name = next(name for name in map(str, range(100)) if order_of(ORDERS, [name, "me"])[0] == name)
    for one, serves in ((name, [ORDERS]), ("me", [])):
        owners.received(one, serves, clock.monotonic(), 0)
    assert not instances.reads(ORDERS, is_reading=False)
    assert instances.reads(ORDERS, is_reading=True)
    owners.given_up.add(ORDERS)
    owners.recorded(ORDERS, Record("me", revision=1))
    assert instances.reads(ORDERS, is_reading=True)
    owners.recorded(ORDERS, Record(name, revision=2))
    assert not instances.reads(ORDERS, is_reading=True)
    owners.left(name)
    assert instances.reads(ORDERS, is_reading=False)
    assert instances.reads(ORDERS, is_reading=True), "it is not given up any more"


async def test_no_stream_is_begun_before_our_first_heartbeat_is_received(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    instances = part(Owners("me"), streams, clock)
    waiting = asyncio.create_task(instances.know_others())
    await one_turn()
    assert not waiting.done()
    assert not instances.reads(ORDERS, is_reading=False)
    instances._received(f"{INSTANCE}me", {"serves": []}, message(1, clock))
    await waiting
    assert instances.reads(ORDERS, is_reading=False)
    await instances.know_others()
    monkeypatch.setattr("nats_scheduler.engine.ownership.owners.FIRST_HEARTBEAT_LIMIT_NS", 1)
    silent = part(Owners("me"), streams, clock)
    await silent.know_others()
    clock.advance(FIRST_HEARTBEAT_LIMIT_NS)
    assert silent.reads(ORDERS, is_reading=False)


def message(sequence: int, clock: ManualClock) -> StoredMessage:
    """Return a message of the bucket."""
    return StoredMessage("$KV.b.key", sequence, clock.now(), b"", b"")


async def test_a_hostile_neighbour_in_the_bucket_adds_little(streams: Streams) -> None:
    clock, owners, registry = ManualClock(), Owners("me"), Registry()
    instances = part(owners, streams, clock, registry)
    received = instances._received
    received(f"{INSTANCE}me", {"serves": []}, message(1, clock))
    unknown = UnknownFormatError("instance.x", 99, 1)
    values: list[Any] = [{}, {"serves": 5, "reading": {}, "unable": [], "ending": 1}, {"serves": [5, None]}, unknown]
    for sequence, value in enumerate(values, 2):
        received(f"{INSTANCE}{'x' * (MAX_NAME_CHARS + 1)}", value, message(sequence, clock))
        received(f"{INSTANCE}x", value, message(sequence, clock))
        received(f"{OWNER}{ORDERS}", value, message(sequence, clock))
    assert list(owners.others) == ["x"]
    for sequence in range(10, 2 * MAX_UNREADABLE_NOTED):
        received(f"{INSTANCE}forged{sequence}", unknown, message(sequence, clock))
    assert len(registry.broken_keys) < 2 * MAX_UNREADABLE_NOTED - 10
    received(f"{OWNER}{ORDERS}", {"owner": ["x"]}, message(10_000, clock))
    assert (owners.record(ORDERS).owner, owners.is_unowned(ORDERS, clock.monotonic())) == (NO_OWNER, True)
