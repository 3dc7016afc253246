"""A schedule whose last fire is stored counts as absent before a sidecar has purged it, and no other one does."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.control.edits import add, edit, edit_latest, remove
from nats_scheduler.control.errors import AlreadyExistsError, ConflictError, NotFoundError
from nats_scheduler.control.fire_requests import fire
from nats_scheduler.control.past import MAX_READ_FOR_END
from nats_scheduler.control.pausing import pause
from nats_scheduler.control.standing import SETTLING_WAITS_SECONDS, opened
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.control.world import NEVER, SUBJECT, World, block, fire_block, instant
from tests.harness.blocks import block_of

DUE = instant("2026-11-20T12:00:10Z")
ONCE = f"@at {format_rfc3339(DUE)}"
NEXT = f"@at {format_rfc3339(DUE + 60 * SECOND)}"
SET = Edit(set=[(b"A", b"1")])

OPERATIONS: dict[str, Callable[[World], Awaitable[object]]] = {
    "remove": lambda world: remove(world.store, "S", SUBJECT),
    "pause": lambda world: pause(world.store, "S", SUBJECT),
    "edit": lambda world: edit(world.store, "S", SUBJECT, SET),
    "edit_latest": lambda world: edit_latest(world.store, "S", SUBJECT, lambda _found: SET),
    "fire": lambda world: fire(world.store, "S", SUBJECT),
    "get": lambda world: opened(world.store, "S", SUBJECT),
}


def overdue(pattern: str = ONCE, *, prefix: str = "", seconds: float = 10, **config: Any) -> tuple[World, int]:
    """Return a world with a schedule whose time has come, and its sequence."""
    is_native, more = config.pop("is_native", False), config.pop("more", {})
    world = World(is_native=is_native, **config)
    sequence = world.put(block(pattern, prefix, **more))
    world.after(seconds)
    return world, sequence


def fired(world: World, sequence: int, *, prefix: str = "") -> int:
    """Store the last fire of a schedule."""
    return world.put(fire_block(fire_identity(SUBJECT, sequence, DUE), prefix=prefix), subject="S.out")


async def added(world: World, pattern: str = NEXT, **how: Any) -> Change:
    return await add(world.store, "S", SUBJECT, block(pattern), b"next", **how)


# -- ended -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", [True, False])
async def test_the_next_schedule_is_added_in_place_of_one_that_has_fired(replace: bool) -> None:
    world, sequence = overdue()
    fired(world, sequence)
    with warnings.catch_warnings(action="error"):
        change = await added(world, replace=replace)
    assert (change.kind, change.before, change.after) == (Kind.ADDED, sequence, world.last().sequence)
    assert world.last().body == b"next"


async def test_nothing_and_the_fired_sequence_are_both_as_expected() -> None:
    for is_there in (True, False):
        world, sequence = overdue()
        fired(world, sequence)
        assert (await added(world, expected=sequence if is_there else 0)).kind is Kind.ADDED
        world, sequence = overdue()
        fired(world, sequence)
        with pytest.raises(ConflictError):
            await added(world, expected=sequence + 1)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_what_has_fired_is_not_found_to_be_changed(name: str) -> None:
    world, sequence = overdue()
    fired(world, sequence)
    before = list(world.stream.messages(">"))
    with pytest.raises(NotFoundError, match=f"sequence {sequence} has fired"):
        await OPERATIONS[name](world)
    assert (list(world.stream.messages(">")), world.store.recorded) == (before, [])


async def test_a_removal_says_that_it_fired_just_before() -> None:
    world, sequence = overdue()
    world.store.wire.interruptions.append(partial(fired, world, sequence))
    with pytest.raises(NotFoundError, match="has fired"):
        await remove(world.store, "S", SUBJECT)
    assert world.store.recorded == []
    world, _sequence = overdue()
    assert (await remove(world.store, "S", SUBJECT)).kind is Kind.REMOVED, "it was in time"


async def test_a_limited_schedule_ends_with_its_last_fire() -> None:
    last = instant("2026-11-20T12:00:04Z")
    for following, is_free in ((format_rfc3339(last), False), ("purge", True)):
        world, sequence = overdue("@every 2s", more={"Nats_Schedule_X_Limit": "2"})
        identity = fire_identity(SUBJECT, sequence, last if is_free else last - 2 * SECOND)
        world.put(fire_block(identity, following), subject="S.out")
        if is_free:
            assert (await added(world)).kind is Kind.ADDED
        else:
            with pytest.raises(AlreadyExistsError):
                await added(world)


async def test_a_fire_in_another_stream_counts() -> None:
    world = World()
    other = world.store.wire.add_stream({"name": "JOBS", "subjects": ["jobs.>"]})
    headers = block(ONCE, "X-").replace(b"X-Nats-Schedule-Target: S.out", b"X-Nats-Schedule-X-Target: jobs.run")
    sequence = world.put(headers)
    world.after(10)
    with pytest.raises(AlreadyExistsError):
        await added(world)
    other.publish("jobs.run", fire_block(fire_identity(SUBJECT, sequence, DUE), prefix="X-"), b"")
    assert (await added(world)).kind is Kind.ADDED


async def test_a_fire_is_found_although_the_time_that_is_known_here_is_behind() -> None:
    world, sequence = overdue(seconds=9.2)
    fired(world, sequence)
    assert (await added(world)).kind is Kind.ADDED
    world, sequence = overdue(seconds=9.2)
    world.store.wire.interruptions.append(partial(fired, world, sequence))
    with pytest.raises(NotFoundError, match="has fired"):
        await remove(world.store, "S", SUBJECT)


async def test_its_fire_is_found_below_the_fires_of_others() -> None:
    for others, is_found in ((MAX_READ_FOR_END - 1, True), (MAX_READ_FOR_END, False)):
        world, sequence = overdue()
        fired(world, sequence)
        for number in range(others):
            other = f"S.other.{number}"
            world.put(fire_block(fire_identity(other, 1, DUE), schedule=other), b"", "S.out")
        if is_found:
            assert (await added(world)).kind is Kind.ADDED
        else:
            with pytest.raises(AlreadyExistsError):
                await added(world)
            assert len(world.store.wire.waits) == len(SETTLING_WAITS_SECONDS), "it is not known, so it is waited for"


# -- not ended -------------------------------------------------------------------------------------------------------

STRANGE: dict[str, Callable[[int], tuple[bytes, str]]] = {
    "of no fire": lambda _sequence: (block_of(("A", "1")), "S.out"),
    "of another version": lambda sequence: (fire_block(fire_identity(SUBJECT, sequence - 1, DUE)), "S.out"),
    "of another schedule": lambda sequence: (fire_block(fire_identity("S.t", sequence, DUE), schedule="S.t"), "S.out"),
    "of another time": lambda sequence: (fire_block(fire_identity(SUBJECT, sequence, DUE + 1)), "S.out"),
    "on request": lambda sequence: (fire_block(beside_identity(SUBJECT, sequence, DUE)), "S.out"),
    "on another subject": lambda sequence: (fire_block(fire_identity(SUBJECT, sequence, DUE)), "S.elsewhere"),
}


@pytest.mark.parametrize("kind", [None, *STRANGE])
async def test_an_overdue_schedule_is_never_taken_for_fired_by_a_message(kind: str | None) -> None:
    world, sequence = overdue()
    if kind is not None:
        headers, subject = STRANGE[kind](sequence)
        world.put(headers, subject=subject)
    with pytest.raises(AlreadyExistsError):
        await added(world)
    assert world.last().sequence == sequence
    assert world.store.wire.waits == [], "the stream shows that it has not fired"
    assert (await opened(world.store, "S", SUBJECT))[1].sequence == sequence


async def test_a_schedule_whose_time_is_to_come_is_looked_for_nowhere() -> None:
    world, sequence = overdue(NEVER)
    world.put(fire_block(fire_identity(SUBJECT, sequence, instant("2200-01-01T00:00:00Z"))), subject="S.out")
    with pytest.raises(AlreadyExistsError, match="has not fired yet"):
        await added(world)


async def test_paused_and_native_schedules_are_what_they_say() -> None:
    world, _sequence = overdue(seconds=0)
    await pause(world.store, "S", SUBJECT)
    paused = world.last().sequence
    world.after(10)
    fired(world, paused)
    assert (await opened(world.store, "S", SUBJECT))[1].sequence == paused
    for prefix, is_there in (("", True), ("X-", False)):
        world, sequence = overdue(prefix=prefix, is_native=True)
        fired(world, sequence, prefix="X-")
        if is_there:
            assert (await opened(world.store, "S", SUBJECT))[1].sequence == sequence
        else:
            with pytest.raises(NotFoundError):
                await opened(world.store, "S", SUBJECT)


# -- where consumers remove fires ------------------------------------------------------------------------------------

GONE: dict[str, dict[str, Any]] = {
    "work queue": {"retention": "workqueue"},
    "the newest only": {"max_msgs_per_subject": 1},
    "not yet at the leader": {"num_replicas": 3},
    "rolled up": {"more": {"Nats_Schedule_Rollup": "sub"}},
}


@pytest.mark.parametrize("how", GONE)
async def test_where_its_fire_may_be_gone_the_purge_is_waited_for(how: str) -> None:
    world, _sequence = overdue(**GONE[how])
    world.store.wire.waited_for.extend([lambda: None, partial(world.stream.purge, SUBJECT)])
    assert (await added(world)).kind is Kind.ADDED
    assert world.store.wire.waits == list(SETTLING_WAITS_SECONDS[:2])


async def test_what_is_not_purged_in_time_counts_as_unfired() -> None:
    world, sequence = overdue(retention="workqueue")
    with pytest.raises(AlreadyExistsError) as raised:
        await added(world)
    assert (raised.value.sequence, world.last().sequence) == (sequence, sequence)
    assert world.store.wire.waits == list(SETTLING_WAITS_SECONDS)
