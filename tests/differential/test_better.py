"""Where we are better than the native scheduler on purpose: each case is run on both, and shows that it fails there.

No test here measures how late a machine is: what is compared is what was stored at all, and in how many bursts.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest

from nats_scheduler.engine.events import FireRefused, ScheduleRejected
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import SharedServer, StartServer
from tests.differential.sides import ComparedSide, fresh_name, on_each, sides_of
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.burst import Burst
from tests.harness.loop_pauses import LoopPauses
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually, instant_reached

DENSE = 60
"""Schedules in a row."""
SPACING = 20 * MILLISECOND
"""Time (ns) between two of them."""
BURST_GAP = 10 * MILLISECOND
"""Fires stored within less (ns) of each other are one burst."""
TRIES = 4
"""The number of rows that are tried: a machine that stands still makes one burst of what it missed, in any order."""

HERD = 3_000
"""Schedules that come due at the instant at which they are replaced."""
PARTS = 10
"""The number of parts in which replacements are written, a millisecond apart."""
ROUNDS = 5
"""The number of chances of the native scheduler to lose the race; it loses nearly each."""

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@pytest.fixture
async def three(shared_server: SharedServer) -> AsyncIterator[list[ComparedSide]]:
    """Connect to the newest native server and to the two with a sidecar."""
    async with sides_of(shared_server, (V2_15, V2_11, V2_10)) as started:
        yield started


@asynccontextmanager
async def restricted(server: EmbeddedServer, **settings: Sequence[str]) -> AsyncIterator[ComparedSide]:
    """Run a side whose operator set something."""
    async with account_on(server.url) as account, sidecar_on(server.url, **settings) as running:
        yield ComparedSide(server.version, server, account, running)


@pytest.mark.clause("restrictions")
async def test_the_operator_limits_targets_sources_and_numbers(
    shared_server: SharedServer,
) -> None:
    name = fresh_name()
    rules = {
        "allowed_targets": (f"{name}={name}.due.>",),
        "allowed_sources": (f"{name}={name}.open.*",),
        "max_schedules": (f"{name}=2",),
    }

    async def publish(side: ComparedSide) -> None:
        for rest, target, source in (
            ("writes", "private", ""),
            ("reads", "due.b", "secret"),
            ("good", "due.a", "open.a"),
            ("many", "due.c", ""),
            ("most", "due.d", ""),
        ):
            headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{name}.{target}"}
            if source:
                headers["Nats-Schedule-Source"] = f"{name}.{source}"
            assert "error" not in await side.say(f"{name}.{rest}", headers, b"body")

    async with restricted(await shared_server(V2_11), **rules) as ours:
        await ours.create(name)
        await publish(ours)
        for rest in ("due.a", "due.c"):
            await ours.account.wait_for(name, f"{name}.{rest}")
        assert ours.sidecar is not None
        told = {(e.schedule, e.rejection.code) for e in ours.sidecar.of(name, ScheduleRejected)}
        assert told == {(f"{name}.writes", 10190), (f"{name}.reads", 10203), (f"{name}.most", 10023)}
        stored = await ours.account.messages(name, f"{name}.>")
        assert not {m.subject for m in stored} & {f"{name}.private", f"{name}.due.b", f"{name}.due.d"}

    async with sides_of(shared_server, (V2_15,)) as [native]:
        await native.create(name)
        await publish(native)
        for rest in ("private", "due.b", "due.d"):
            await native.account.wait_for(name, f"{name}.{rest}")


def processor_seconds(server: EmbeddedServer) -> float:
    """Return the processor time that a server has used."""
    fields = Path(f"/proc/{server.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


@pytest.mark.clause("pattern-cost")
async def test_a_pattern_that_never_fires_is_refused_at_once(shared_server: SharedServer) -> None:
    name, never = fresh_name(), ", * * * * *"
    async with sides_of(shared_server, (V2_15,)) as [native]:
        await native.create(name)
        begun = processor_seconds(native.server)
        answer = await native.say(f"{name}.s", {"Nats-Schedule": never, "Nats-Schedule-Target": f"{name}.out"})
        theirs = processor_seconds(native.server) - begun
    begun = time.process_time()
    ours = parse_pattern(never)
    assert isinstance(ours, Invalid) or (ours is not None and ours.first_fire(CLOCK.now()) is None)
    assert answer["error"]["err_code"] == 10189
    assert (time.process_time() - begun) * 20 < theirs


@pytest.mark.deep
@pytest.mark.clause("zone-gone")
async def test_a_schedule_whose_zone_disappears_still_fires_what_is_due(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, zones = fresh_name(), tmp_path / "zones"
    file = zones / "Test" / "Gone"
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("ZONEINFO", str(zones))
    file.write_bytes((resources.files("tzdata") / "zoneinfo" / "Europe" / "Berlin").read_bytes())
    headers = {
        "Nats-Schedule": "*/3 * * * * *",
        "Nats-Schedule-Time-Zone": "Test/Gone",
        "Nats-Schedule-Target": f"{name}.out",
    }
    old, new = await start_server(V2_11), await start_server(V2_15)
    async with account_on(new.url) as native, restricted(old) as ours:
        await ours.create(name)
        await native.create(name)
        for account in (ours.account, native):
            await account.publish(f"{name}.s", headers)
        await asyncio.gather(*(account.wait_for(name, f"{name}.out") for account in (ours.account, native)))
        file.unlink()
        fired = len(await native.messages(name, f"{name}.out"))
        await ours.account.wait_for(name, f"{name}.out", 3)
        assert len(await native.messages(name, f"{name}.out")) <= fired + 1
        canary = {"Nats-Schedule": f"@at {in_seconds(3.5)}", "Nats-Schedule-Target": f"{name}.canary"}
        await native.publish(f"{name}.c", canary)
        await native.wait_for(name, f"{name}.canary")
        assert len(await native.messages(name, f"{name}.out")) <= fired + 1


async def at(side: ComparedSide, name: str, rest: str, time: str, **more: str) -> int:
    """Store an `@at` schedule and return its sequence."""
    headers = {"Nats-Schedule": f"@at {time}", "Nats-Schedule-Target": f"{name}.o.{rest}"}
    return await side.account.publish(f"{name}.s.{rest}", headers | more, rest.encode())


@pytest.mark.clause("lateness", "generated-order")
async def test_fires_due_close_together_are_sent_in_their_order(three: list[ComparedSide]) -> None:
    """The native scheduler stores them in few bursts, a quarter of a second apart."""
    for _ in range(TRIES):
        pauses = LoopPauses(SPACING / SECOND / 4)  # of the loop in which the sidecars are too
        fires = await on_each(three, partial(stored_row, name=fresh_name(), first=CLOCK.now() + 100 * SPACING))
        pauses.end()
        if is_in_order(fires[V2_11]) and bursts_of(fires[V2_15]) <= DENSE // 5:
            return
        assert pauses.latest > SPACING / SECOND, "nothing kept the fires from being sent at their times"
    pytest.skip(f"the machine stood still in each of {TRIES} tries")


async def stored_row(side: ComparedSide, name: str, first: int) -> list[StoredMessage]:
    """Store schedules that are due close together from an instant (ns) on, and return their fires."""
    dues = [first + number * SPACING for number in range(DENSE)]
    await side.create(name)
    for number, due in reversed([*enumerate(dues)]):  # the server stores a burst in the order of publishing
        await at(side, name, f"{number:03}", format_rfc3339(due))
    await instant_reached(dues[-1], CLOCK.now)
    fires = await side.account.wait_for(name, f"{name}.o.*", DENSE)
    assert all(fire.stored_at >= dues[int(fire.body or b"-1")] for fire in fires), "none is early"
    return fires


def bursts_of(fires: list[StoredMessage]) -> int:
    """Count the bursts in which fires were stored."""
    return 1 + sum(after.stored_at - before.stored_at > BURST_GAP for before, after in pairwise(fires))


def is_in_order(fires: list[StoredMessage]) -> bool:
    """Return whether fires were stored in the order of their fire times, which their bodies number."""
    bodies = [fire.body or b"" for fire in fires]
    return bodies == sorted(bodies)


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
            await side.account.wait_for(name, f"{name}.o.free", 2)
        else:
            await eventually(partial(side.sidecar.of, name, FireRefused))
        await side.account.publish(f"{name}.q", body=b"small")
        told = len(await side.account.messages(name, f"{name}.o.free"))
        if side.sidecar is None:
            await side.account.wait_for(name, f"{name}.o.free", told + 3)
        else:
            [fire, *_] = await side.account.wait_for(name, f"{name}.o.stuck")
            assert fire.body == b"small"
        return bool(await side.account.messages(name, f"{name}.o.stuck"))

    assert await on_each(three, lives_on) == {V2_15: False, V2_11: True, V2_10: True}


@pytest.mark.deep
@pytest.mark.clause("stale-retiming")
async def test_a_stale_fire_does_not_retime_a_replacement(three: list[ComparedSide]) -> None:
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
    return len(await side.account.messages(name, f"{name}.early"))
