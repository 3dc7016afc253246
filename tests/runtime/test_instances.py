"""What instances know of the streams that they own: who is idle, and what a record or a heartbeat says."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from nats_scheduler.engine.holding.ownership import Denied
from nats_scheduler.engine.ownership.ability import Ability
from nats_scheduler.engine.ownership.order import Order, order_of
from nats_scheduler.engine.ownership.owners import NO_OWNER, Owners, Record
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
    record_of,
)
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.testing.manual_clock import ManualClock
from tests.harness.waiting import one_turn

ORDERS = "emulated.ORDERS"
LAST = 7
INFO: dict[str, Any] = {
    "config": {"name": "ORDERS", "subjects": ["ORDERS.>"]},
    "created": "2020-01-01T00:00:00Z",
    "state": {"last_seq": LAST},
}


def test_what_no_instance_can_have_written_names_no_owner() -> None:
    names: list[Any] = [None, 5, True, ["a"], {"a": 1}, "", "x" * (MAX_NAME_CHARS + 1), "x" * 60_000]
    for name in names:
        value = {"owner": name, "before": name, "since": name, "reason": name}
        assert record_of(value, 7) == Record(revision=7), name
    assert record_of(None, 7) == record_of({}, 7) == Record(revision=7)
    assert record_of({"owner": "a", "since": "soon", "reason": "whim"}, 7) == Record("a", revision=7)
    newer = UnknownFormatError("owner.emulated.S", 2, 1)
    assert record_of(newer, 7) == Record(revision=7, is_foreign=True), "it is only known to exist"


@dataclass
class Judged:
    """The part of a stream's service that a judgement reads; it is its engine and its ownership too."""

    state: StreamState = field(default_factory=lambda: StreamState.from_info(INFO))
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

    async def stream(self, _name: str) -> Any:
        """Answer as a server does."""
        return INFO

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


async def test_no_stream_is_begun_before_our_first_heartbeat_is_received() -> None:
    clock = ManualClock()
    instances = part(Owners("me"), clock)
    waiting = asyncio.create_task(instances.know_others())
    await one_turn()
    assert not waiting.done()
    assert not instances.reads(ORDERS, is_reading=False)
    instances._received(f"{INSTANCE}me", {"serves": []}, message(1, clock))
    await waiting
    assert instances.reads(ORDERS, is_reading=False)


def message(sequence: int, clock: ManualClock) -> StoredMessage:
    """Return a message of the bucket."""
    return StoredMessage("$KV.b.key", sequence, clock.now(), b"", b"")


def part(owners: Owners, clock: ManualClock, registry: Any = None) -> Instances:
    """Make the part of one instance that is not on any connection, and serves ORDERS."""
    state, server = StreamState.from_info(INFO), Capabilities("2.11.0", GUARD_LEVEL, 1 << 20)
    service = StreamService(state, Mode.EMULATED, server, SidecarSettings(), clock, lambda *_: None)
    nothing: Any = None
    return Instances(owners, registry, nothing, clock, {"ORDERS": service}, Reporter(Metrics()), nothing, nothing)


async def test_a_stream_that_is_given_up_is_read_until_it_is_handed_over() -> None:
    """Also if it is checked for another reason meanwhile: what is owned here would fire nowhere."""
    clock, owners = ManualClock(), Owners("me", order=Order(0))
    instances = part(owners, clock)
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


async def test_a_hostile_neighbour_in_the_bucket_adds_little() -> None:
    clock, owners, registry = ManualClock(), Owners("me"), Registry()
    instances = part(owners, clock, registry)
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
