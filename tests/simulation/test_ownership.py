"""Instances that agree on an owner, in worlds made by hand.

Its rule: a world shows how soon something happens, which seeds do not; that nothing is lost by it is theirs to show.
"""

import asyncio

import pytest

from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.judge.history import NEVER, SECOND
from tests.simulation.buckets import SimulatedBucket
from tests.simulation.fleet import SimulatedFleet, two
from tests.simulation.scenario import LIVE, MILLISECOND
from tests.simulation.sidecar import Parts

pytestmark = pytest.mark.slow

LATE = 900 * MILLISECOND
"""The length (ns) of a stall that makes heartbeats late, and after which what was owned is owned."""
SOON = 800 * MILLISECOND
"""The time (ns) in which an owner that was killed is replaced: 0.6 s after a heartbeat, 0.1 s, and the requests."""
FIRST, LATER = (name.removesuffix("-1") for name in order_of("emulated.SIM", ["i0-1", "i1-1"]))
"""Two instances in the order in which they own the stream."""


@pytest.mark.parametrize(
    ("duration", "asks", "fires"), [(SOON, True, True), (SOON, False, False), (LIVE, False, True)], ids=str
)
def test_the_stream_of_a_dead_owner_is_taken_over_in_time(duration: int, *, asks: bool, fires: bool) -> None:
    with two(asks=asks) as (fleet, *instances):
        (owner,) = fleet.owners()
        (standby,) = (one for one in instances if one is not owner)
        owner.kill()
        fleet.timeline.run(duration)
        assert standby.is_owner is fires


@pytest.mark.parametrize(("duration", "is_taken"), [(LATE, False), (LIVE, True)], ids=str)
def test_an_owner_that_is_late_and_still_there_keeps_its_stream(duration: int, *, is_taken: bool) -> None:
    with two() as (fleet, *_instances):
        (owner,) = fleet.owners()
        before = fleet.bucket.takeovers
        owner.process.stall()
        fleet.timeline.run(duration)
        owner.wake(acts_first=True)
        fleet.timeline.run(LIVE)
        assert fleet.owners() == [owner], "it has the stream again"
        assert (fleet.bucket.takeovers > before) is is_taken


def test_an_owner_that_is_not_told_that_the_bucket_was_deleted_keeps_its_stream() -> None:
    with two() as (fleet, *instances):
        (owner,) = fleet.owners()
        for instance in instances:
            instance.receive_bucket_deletion()
        fleet.bucket.delete(untold=owner.process)
        for _ in range(LIVE // (50 * MILLISECOND)):
            fleet.timeline.run(50 * MILLISECOND)
            assert fleet.owners() == [owner]


def test_one_that_is_still_reading_owns_nothing() -> None:
    reading = 6 * SECOND
    with SimulatedFleet() as fleet:
        owner = fleet.boot(LATER)
        fleet.timeline.run(3 * SECOND)
        fleet.server.reads_for = reading
        successor = fleet.boot(FIRST)
        fleet.timeline.run(reading // 2)
        assert fleet.owners() == [owner]
        fleet.timeline.run(reading)
        assert fleet.owners() == [successor], "it is the first one in the order"


class SlowBucket(SimulatedBucket):
    async def get(self, key: str) -> Object | None:
        """Return the checkpoint, after a while."""
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, over.set)
        await over.wait()
        return await super().get(key)


def test_an_owner_fires_on_until_the_next_one_has_the_stream() -> None:
    with SimulatedFleet(Parts(bucket=SlowBucket)) as fleet:
        fleet.boot(LATER)
        fleet.timeline.run(3 * SECOND)
        for number in range(40):
            fleet.store(f"s.{number}", f"@at {format_rfc3339(fleet.timeline.now + SECOND + number * SECOND // 20)}")
        fleet.timeline.run(SECOND)
        successor = fleet.boot(FIRST)
        fleet.timeline.run(3 * SECOND)
        assert fleet.owners() == [successor]
        fires = fleet.server.history.fires
        assert len(fires) == 40, "none is missing, and none is doubled"
        assert max(fire.stored_at - (fire.fire_time or 0) for fire in fires) <= 50 * MILLISECOND


def test_one_that_leaves_does_not_wait_for_a_silent_bucket() -> None:
    with SimulatedFleet() as fleet:
        one = fleet.boot("i0")
        fleet.store("s.1", "@every 1s")
        fleet.timeline.run(6 * SECOND)
        fleet.bucket.leaderless_until = NEVER
        one.leave()
        fleet.timeline.run(LIVE + SECOND // 2)
        assert not one.is_alive
