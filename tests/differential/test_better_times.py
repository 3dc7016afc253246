"""Where the sidecar keeps better time than the native scheduler, shown on both: one holds, the other does not.

No test here measures how late a machine is: what is compared is what was stored at all, and in how many bursts.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise

import pytest

from nats_scheduler.engine.events import FireRefused
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import SharedServer
from tests.differential.sides import ComparedSide, fresh_name, on_each, sides_of
from tests.harness.account import CLOCK, WAIT_SECONDS, in_seconds
from tests.harness.blocks import block_to_send
from tests.harness.burst import Burst
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually, instant_reached

DENSE = 60
"""Schedules in a row."""
SPACING = 20 * MILLISECOND
"""Time (ns) between two of them."""
BURST_GAP = 10 * MILLISECOND
"""Fires stored within less (ns) of each other are one burst."""

HERD = 3_000
"""Schedules that come due at the instant at which they are replaced."""
PARTS = 10
"""The number of parts in which replacements are written, a millisecond apart."""
ROUNDS = 5
"""The number of chances of the native scheduler to lose the race; it loses nearly each."""


@pytest.fixture
async def three(shared_server: SharedServer) -> AsyncIterator[list[ComparedSide]]:
    """Connect to the newest native server and to the two with a sidecar."""
    async with sides_of(shared_server, (V2_15, V2_11, V2_10)) as started:
        yield started


async def at(side: ComparedSide, name: str, rest: str, time: str, **more: str) -> int:
    """Store an `@at` schedule and return its sequence."""
    headers = {"Nats-Schedule": f"@at {time}", "Nats-Schedule-Target": f"{name}.o.{rest}"}
    return await side.account.publish(f"{name}.s.{rest}", headers | more, rest.encode())


@pytest.mark.clause("lateness")
@pytest.mark.clause("generated-order")
async def test_what_is_due_close_together_is_not_stored_in_a_few_late_bursts(three: list[ComparedSide]) -> None:
    name, first = fresh_name(), CLOCK.now() + 100 * SPACING
    dues = [first + number * SPACING for number in range(DENSE)]

    async def stored(side: ComparedSide) -> list[StoredMessage]:
        await side.create(name)
        for number, due in reversed([*enumerate(dues)]):  # the server stores a burst in the order of publishing
            await at(side, name, f"{number:03}", format_rfc3339(due))
        fires = await side.account.wait_for(name, f"{name}.o.*", DENSE)
        assert all(fire.stored_at >= dues[int(fire.body or b"-1")] for fire in fires), "none is early"
        return fires

    fires = await on_each(three, stored)
    bursts = {version: bursts_of(messages) for version, messages in fires.items()}
    assert bursts[V2_15] <= DENSE // 5, f"the native scheduler is as punctual as we are: {bursts}"
    assert min(bursts[V2_11], bursts[V2_10]) > 2 * bursts[V2_15], f"bursts of fires: {bursts}"
    assert is_in_order(fires[V2_11])
    assert not is_in_order(fires[V2_15]), "the native scheduler fires in the order of fire times"


def bursts_of(fires: list[StoredMessage]) -> int:
    """Count the bursts in which fires were stored."""
    return 1 + sum(after.stored_at - before.stored_at > BURST_GAP for before, after in pairwise(fires))


def is_in_order(fires: list[StoredMessage]) -> bool:
    """Return whether fires were stored in the order of their fire times, which their bodies number."""
    bodies = [fire.body or b"" for fire in fires]
    return bodies == sorted(bodies)


@pytest.mark.clause("beyond-2262")
async def test_an_instant_beyond_2262_is_not_taken_for_one_in_the_past(three: list[ComparedSide]) -> None:
    name = fresh_name()

    async def fired(side: ComparedSide) -> bool:
        await side.create(name)
        await at(side, name, "far", "2300-01-01T00:00:00Z")
        await at(side, name, "farthest", "9999-12-31T23:59:59Z")
        for number in range(3):  # each runs behind whatever was due before it
            await at(side, name, f"canary{number}", in_seconds(0.5))
            await side.account.wait_for(name, f"{name}.o.canary{number}")
        return bool(await side.account.messages(name, f"{name}.o.far"))

    assert await on_each(three, fired) == {V2_15: True, V2_11: False, V2_10: False}


@pytest.mark.clause("fire-refused")
async def test_a_fire_that_cannot_be_stored_does_not_freeze_its_schedule(three: list[ComparedSide]) -> None:
    name = fresh_name()

    async def lives_on(side: ComparedSide) -> bool:
        await side.create(name, max_msg_size=1_000)
        await side.account.publish(f"{name}.q", body=bytes(980))
        headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{name}.o.stuck"}
        await side.account.publish(f"{name}.s.stuck", headers | {"Nats-Schedule-Source": f"{name}.q"})
        await side.account.publish(f"{name}.s.free", headers | {"Nats-Schedule-Target": f"{name}.o.free"})
        if side.sidecar is None:
            await side.account.wait_for(name, f"{name}.o.free", 3)
        else:
            await eventually(partial(side.sidecar.of, name, FireRefused), within_seconds=WAIT_SECONDS)
        await side.account.publish(f"{name}.q", body=b"small")
        told = len(await side.account.messages(name, f"{name}.o.free"))
        if side.sidecar is None:
            await side.account.wait_for(name, f"{name}.o.free", told + 4)
        else:
            [fire, *_] = await side.account.wait_for(name, f"{name}.o.stuck")
            assert fire.body == b"small"
        return bool(await side.account.messages(name, f"{name}.o.stuck"))

    try:
        assert await on_each(three, lives_on) == {V2_15: False, V2_11: True, V2_10: True}
    finally:
        await asyncio.gather(*(side.account.api.call(f"STREAM.DELETE.{name}") for side in three))


@pytest.mark.clause("stale-retiming")
async def test_a_stale_fire_does_not_retime_the_schedule_that_replaced_its_own(three: list[ComparedSide]) -> None:
    native, *ours = three
    assert await on_each(ours, fired_early) == {V2_11: 0, V2_10: 0}
    for _round in range(ROUNDS):
        if await fired_early(native):
            return
    pytest.skip(f"the native scheduler was lucky in {ROUNDS} races: it re-timed no replacement")


async def fired_early(side: ComparedSide) -> int:
    """Replace a herd at the instant at which it fires; returns how many replacements fired an hour too early."""
    name, period = fresh_name(), 3 * SECOND
    await side.create(name)
    repeating = block_to_send({"Nats-Schedule": "*/3 * * * * *", "Nats-Schedule-Target": f"{name}.o"})
    later = block_to_send({"Nats-Schedule": f"@at {in_seconds(3_600)}", "Nats-Schedule-Target": f"{name}.early"})
    due = (CLOCK.now() + SECOND) // period * period + period
    load, replace = (Burst(side.account, f"{name}.{act}") for act in ("load", "replace"))
    for frames in load.frames([(f"{name}.r.{number}", repeating, b"") for number in range(HERD)]):
        load.write(frames)
    await load.answered(HERD)
    replacements = replace.frames([(f"{name}.r.{number}", later, b"") for number in range(HERD)], PARTS)
    for number, frames in enumerate(replacements):  # the last first: the server stores fires in the other order
        await instant_reached(due + number * MILLISECOND, CLOCK.now)
        replace.write(frames)
    await replace.answered(HERD)
    await at(side, name, "canary", format_rfc3339(due + period + SECOND))
    await side.account.wait_for(name, f"{name}.o.canary")
    early = len(await side.account.messages(name, f"{name}.early"))
    await side.account.api.call(f"STREAM.DELETE.{name}")
    return early
