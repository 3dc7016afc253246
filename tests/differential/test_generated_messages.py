"""The message that a fire stores is, byte for byte, the one that the native scheduler stores.

But for our identity and guard, which stand behind the ADR's own headers and are checked to be right.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from nats_scheduler.engine.events import FireRefused
from nats_scheduler.jetstream.streams import METADATA_TTL_FLAG
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import SharedServer
from tests.differential.differences import Allowance, Differences
from tests.differential.generated_cases import FIXED, STREAMS, Case, random_case
from tests.differential.generated_scenes import Scene, Told
from tests.differential.random_runs import RandomRun
from tests.differential.sides import REFERENCE, ComparedSide, fresh_name, on_each, sides_of
from tests.harness.account import CLOCK, WAIT_SECONDS, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.servers import ALL_VERSIONS, V2_10, V2_11, V2_14, V2_15
from tests.harness.waiting import eventually

DRAWN = 150
"""The number of cases that a run draws beside the fixed ones."""

AHEAD = 5 * SECOND
"""The time (ns) before the instant at which all is due, at which the cases are published."""

ROOM = 256
"""Bytes less than the server's largest payload in which a fire of ours on such a short subject fits for sure."""

PLAIN = {
    "allow_msg_schedules": False,
    "allow_rollup_hdrs": True,
    "metadata": {METADATA_TTL_FLAG: "true"},
}
"""A stream that only the settings name; 2.10 does not know `allow_msg_ttl`, so its metadata stand for that."""

pytestmark = [
    pytest.mark.clause("generated-headers"),
    pytest.mark.clause("generated-strip"),
    pytest.mark.clause("generated-body"),
    pytest.mark.clause("generated-next"),
    pytest.mark.clause("generated-ttl"),
    pytest.mark.clause("generated-rollup"),
    pytest.mark.clause("sampling"),
    pytest.mark.clause("sampling-fallback"),
    pytest.mark.clause("identity"),
    pytest.mark.clause("at-past"),
]


def drawn_cases(test: str) -> list[Case]:
    """Return the fixed cases and some that were drawn."""
    run = RandomRun(test)
    return FIXED + [random_case(run.draw, number) for number in range(run.many(DRAWN))]


def due_soon() -> int:
    """Return an instant that is near enough to wait for, at half a second."""
    return (CLOCK.now() + AHEAD) // SECOND * SECOND + SECOND // 2


async def scene_on(side: ComparedSide, base: str, cases: list[Case], due: int) -> Scene:
    """Play the cases on one side, to the end."""
    scene = Scene(side.account, base, ours=not side.is_native, guarded=side.version != V2_10)
    for kind, config in STREAMS.items():
        await side.create(scene.stream(kind), **config)
    return await play(scene, cases, due)


async def play(scene: Scene, cases: list[Case], due: int) -> Scene:
    """Say the cases, and wait until all have fired."""
    await scene.say(cases, due)
    await scene.fired()
    return scene


def all_of(stored: dict[str, list[list[Told]]], number: int) -> dict[str, list[Told]]:
    """Return what each side stored for one case."""
    return {version: targets[number] for version, targets in stored.items()}


def is_not_raised(wanted: list[Told], value: list[Told]) -> bool:
    """Return whether the only difference is that the server raised the TTL to that of its markers, and moved it."""
    bare = [re.sub(rb"Nats-TTL: \d[^\r]*\r\n", b"", blocks[-1][0]) for blocks in (wanted, value) if blocks]
    return len(bare) == 2 and bare[0] == bare[1] and b"Nats-TTL: 3600\r\n" in wanted[-1][0]


def is_not_lent(wanted: list[Told], value: list[Told]) -> bool:
    """Return whether the only difference is what a message that is published may not carry."""
    bare = [[(LENT.sub(b"", block), *rest) for block, *rest in blocks] for blocks in (wanted, value)]
    return bare[0] == bare[1]


LENT = re.compile(rb"Nats-(?:Trace|Batch)-[^\r]*\r\n")
NOT_LENT = Allowance("generated-strip", (V2_10, V2_11), is_not_lent)
NOT_LENT_PORTABLE = Allowance(
    "generated-strip", tuple(f"portable on {version}" for version in ALL_VERSIONS), is_not_lent
)

# Only a server that knows the stream's `subject_delete_marker_ttl` raises a TTL to it.
NOT_RAISED = Allowance("delete-marker-ttl", (V2_10, f"portable on {V2_10}"), is_not_raised)


@pytest.mark.clause("generated-order")
@pytest.mark.clause("delete-marker-ttl")
async def test_a_fire_stores_the_same_bytes(sides: list[ComparedSide]) -> None:
    cases, base, due = drawn_cases("a_fire_stores_the_same_bytes"), fresh_name(), due_soon()
    scenes = await on_each(sides, lambda side: scene_on(side, base, cases, due))
    stored = {version: await scene.targets() for version, scene in scenes.items()}
    differences = Differences((NOT_RAISED, NOT_LENT))
    for number, case in enumerate(cases):
        differences.compare(case.name, all_of(stored, number))
    differences.check(at_least=len(cases))
    # A sample is read when its fire is due, and what is small passes by what is large: these are stored behind the
    # others. 2.10 allows no earlier look at them.
    ordered = {version: await scene.order(due) for version, scene in scenes.items() if version != V2_10}
    if all(scene.in_time for scene in scenes.values()):
        orders = Differences()
        orders.compare("the order of what is due at one instant", ordered)
        orders.check()


@asynccontextmanager
async def portable_on(share: SharedServer, version: str, base: str) -> AsyncIterator[Scene]:
    """Serve plain streams for portable headers, on a server of any version."""
    server = await share(version)
    kinds = {kind: config for kind, config in STREAMS.items() if kind != "batched"}
    async with account_on(server.url) as account:
        scene = Scene(account, base, tuple(kinds), portable=True, ours=True, guarded=version != V2_10)
        names = tuple(map(scene.stream, kinds))
        async with sidecar_on(server.url, portable_streams=names) as running:
            for name, config in zip(names, kinds.values(), strict=True):
                await account.create(name, **PLAIN, **config)
                await running.ready(name)
            yield scene


@pytest.mark.clause("portable-headers")
async def test_a_portable_fire_stores_the_same_bytes_but_for_the_prefix(shared_server: SharedServer) -> None:
    cases = [case for case in drawn_cases("a_portable_fire_stores_the_same_bytes") if case.is_portable]
    base = fresh_name()
    async with AsyncExitStack() as stack:
        [side] = await stack.enter_async_context(sides_of(shared_server, (REFERENCE,)))
        scenes = {v: await stack.enter_async_context(portable_on(shared_server, v, f"{base}p")) for v in ALL_VERSIONS}
        due = due_soon()
        native, *_ = await asyncio.gather(
            scene_on(side, f"{base}n", cases, due), *(play(scene, cases, due) for scene in scenes.values())
        )
        stored = {f"portable on {version}": await scene.targets() for version, scene in scenes.items()}
        stored[REFERENCE] = await native.targets()
    differences = Differences((NOT_RAISED, NOT_LENT_PORTABLE))
    for number, case in enumerate(cases):
        differences.compare(case.name, all_of(stored, number))
    differences.check(at_least=len(cases))


@pytest.mark.clause("payload-limit")
@pytest.mark.clause("fire-refused")
async def test_a_fire_of_ours_needs_room_for_its_identity_and_guard(sides: list[ComparedSide]) -> None:
    name = fresh_name()

    async def fired(side: ComparedSide) -> str:
        await side.create(name)
        block = block_to_send({"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": f"{name}.o"})
        largest = side.account.connection.server.max_payload - len(block)
        await side.account.publish_block(f"{name}.full", block, bytes(largest))
        await side.account.publish_block(f"{name}.roomy", block, bytes(largest - ROOM))
        stored = await side.account.wait_for(name, f"{name}.o", 2 if side.sidecar is None else 1)
        if side.sidecar is not None:
            refused = partial(side.sidecar.of, name, FireRefused)
            [report, *_] = await eventually(refused, within_seconds=WAIT_SECONDS, describe="a refusal")
            return f"{len(stored)} stored, one refused with {report.code}"
        return f"{len(stored)} stored"

    told = await on_each(sides, fired)
    await asyncio.gather(*(side.account.api.call(f"STREAM.DELETE.{name}") for side in sides))
    ours = "1 stored, one refused with 10054"
    assert told == {V2_15: "2 stored", V2_14: "2 stored", V2_11: ours, V2_10: ours}
