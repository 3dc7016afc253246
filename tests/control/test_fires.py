"""Fires on request are stored once, beside their schedule; only what is missing and settled is filled in.

It tests `control/requested_fire.py` and `control/missing_fires.py` too.
"""

import json
from itertools import product
from typing import Any

import pytest

from nats_scheduler.control.change_advisory import change_advisory
from nats_scheduler.control.changes import Author, Change, Kind
from nats_scheduler.control.errors import (
    ConflictError,
    NotPossibleError,
    RefusedError,
    RejectedError,
)
from nats_scheduler.control.fire_requests import NOTHING_MISSING, PORTABLE_NAMES, backfill, fire
from nats_scheduler.control.past import StoredRange, known_from, stored_fires
from nats_scheduler.control.pausing import pause
from nats_scheduler.control.store_port import EVER
from nats_scheduler.control.storing import MAX_ATTEMPTS
from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.past_fires import PastFire
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.control.memory_schedules import Fault
from tests.control.world import NEVER, SUBJECT, World, block, instant

NOON = instant("2026-11-20T12:00:00Z")
AUTHOR = Author("jane", "the report of yesterday")


def fires_in(world: World, target: str = "S.out") -> list[StoredMessage]:
    return list(world.stream.messages(target))


async def test_a_fire_is_what_the_schedule_would_store() -> None:
    world = World(allow_msg_ttl=True)
    more = {"Nats_Schedule_TTL": "5m", "Nats_Schedule_Rollup": "sub", "Note": "é", "Nats_Schedule_X_Report": "true"}
    sequence = world.put(block("@every 1h", **more), b"\x00body")
    world.after(100)
    change = await fire(world.store, "S", SUBJECT, author=AUTHOR)
    assert (change.kind, change.before, change.after, change.fires) == (Kind.FIRED, sequence, sequence, (world.time,))
    (stored,) = fires_in(world)
    assert stored.body == b"\x00body"
    values = {name: header_value(stored.block, name.encode()) for name in ("Note", "Nats-TTL", "Nats-Rollup")}
    assert values == {"Note": "é".encode(), "Nats-TTL": b"5m", "Nats-Rollup": b"sub"}
    assert header_value(stored.block, b"Nats-Scheduler") == SUBJECT.encode()
    assert header_value(stored.block, b"Nats-Schedule-Next") == b"2026-11-20T13:00:00Z"
    assert header_value(stored.block, b"Nats-Msg-Id") == beside_identity(SUBJECT, sequence, world.time).encode()
    assert header_value(stored.block, b"X-Nats-Schedule-X-By") == b"fire"
    assert header_value(stored.block, b"X-Nats-Schedule-X-Due") is not None
    assert header_value(stored.block, b"Nats-Schedule") is None
    assert world.store.recorded == [change]
    assert world.last().sequence == sequence, "the schedule is as it was"
    assert json.loads(change_advisory(change).body)["fires"] == [format_rfc3339(world.time)]


async def test_it_samples_its_source(world: World) -> None:
    world.put(block("@every 1h", Nats_Schedule_Source="S.source"), b"own")
    await fire(world.store, "S", SUBJECT)
    world.after(1)
    world.put(b"NATS/1.0\r\nSampled: yes\r\nX-Nats-Schedule-X-By: backfill\r\n\r\n", b"sample", "S.source")
    await fire(world.store, "S", SUBJECT)
    assert [one.body for one in fires_in(world)] == [b"own", b"sample"]
    assert header_value(fires_in(world)[1].block, b"Sampled") == b"yes"
    assert fires_in(world)[1].block.count(b"X-By") == 1


async def test_it_never_says_what_a_cancel_says() -> None:
    for pattern, paused in product((NEVER, "@at 2026-11-20T11:00:00Z", "0 0 5 * * *"), (True, False)):
        world = World()
        world.put(block(pattern))
        if paused:
            await pause(world.store, "S", SUBJECT)
        await fire(world.store, "S", SUBJECT)
        (stored,) = fires_in(world)
        assert b"purge" not in stored.block
        reading = read_message(stored.block, stored.subject, stored.stored_at, world.stream.rules, DIALECTS)
        assert reading is not None
        assert reading.beside is not None
        assert (reading.cancels, reading.rejection, reading.definition) == (None, None, None)


async def test_where_the_server_fires_it_has_the_portable_names() -> None:
    world = World(is_native=True)
    world.put(block("@every 1h"))
    change = await fire(world.store, "S", SUBJECT)
    assert change.notes == (PORTABLE_NAMES,)
    (stored,) = fires_in(world)
    assert b"\r\nNats-Schedule" not in stored.block
    assert header_value(stored.block, b"X-Nats-Scheduler") == SUBJECT.encode()


async def test_a_fire_whose_answer_is_lost_is_stored_once() -> None:
    for lost, times in product((Fault.UNKNOWN_DONE, Fault.UNKNOWN_NOT_DONE), range(1, MAX_ATTEMPTS)):
        world = World()
        world.put(block())
        world.store.wire.faults.extend([lost] * times)
        change = await fire(world.store, "S", SUBJECT)
        assert (change.kind, len(fires_in(world))) == (Kind.FIRED, 1)
        assert world.store.recorded == [change]


async def test_a_fire_by_request_lends_no_right(world: World) -> None:
    world.put(block(A="b\r\nNats-Expected-J\r\nNats-Trace-Dest: x", Nats_Trace_Only="true", Nats_Request_Info="{}"))
    assert (await fire(world.store, "S", SUBJECT)).kind is Kind.FIRED
    [stored] = fires_in(world)
    assert b"\r\nA: b\r\n" in stored.block
    assert b"Nats-Trace" not in stored.block
    assert b"Nats-Request" not in stored.block


async def test_what_cannot_be_fired_is_refused() -> None:
    world = World(subjects=["S.>", "$JS.API.>"])
    world.put(block("nonsense"))
    with pytest.raises(RejectedError):
        await fire(world.store, "S", SUBJECT)
    world.put(block().replace(b"S.out", b"$JS.API.INFO"))
    with pytest.raises(NotPossibleError, match="own subjects"):
        await fire(world.store, "S", SUBJECT)
    world.put(block(Note="Nats-Msg-Id Nats-Msg-Id: Nats-Expected-Last-Subject-Sequence-Subject"))
    world.put(block())
    with pytest.raises(NotPossibleError, match="in the future"):
        await fire(world.store, "S", SUBJECT, at=world.time + SECOND)


async def test_a_dry_run_fires_nothing(world: World) -> None:
    hourly(world, Missed="skip")
    world.after(3 * 3600)
    fired = await fire(world.store, "S", SUBJECT, dry_run=True)
    missing = await filled(world, NOON, world.time, dry_run=True)
    assert (fired.kind, missing.kind, hours(missing)) == (Kind.FIRED, Kind.BACKFILLED, [1, 2])
    assert (fires_in(world), world.store.recorded) == ([], [])


# -- backfills: only what is missing and settled is stored -----------------------------------------------------------


async def filled(world: World, since: int, until: int, **more: object) -> Change:
    return await backfill(world.store, "S", SUBJECT, since, until, **more)  # type: ignore[arg-type]


def own_fire(world: World, sequence: int, time: int) -> None:
    """Store a fire of the schedule as a sidecar does."""
    following = format_rfc3339(time + HOUR)
    identity = fire_identity(SUBJECT, sequence, time)
    world.put(
        f"NATS/1.0\r\nNats-Scheduler: {SUBJECT}\r\nNats-Schedule-Next: {following}\r\n"
        f"Nats-Msg-Id: {identity}\r\n\r\n".encode(),
        subject="S.out",
    )


def hourly(world: World, pattern: str = "@every 1h", **policies: str) -> int:
    """Store a schedule at noon that fires at 13:00, 14:00 …"""
    return world.put(block(pattern, **{f"Nats_Schedule_X_{name}": value for name, value in policies.items()}))


def hours(change: Change) -> list[float]:
    return [(time - NOON) / HOUR for time in change.fires]


async def test_left_out_fires_are_stored_with_their_own_identity(world: World) -> None:
    sequence = hourly(world)
    world.after(4.5 * 3600)
    own_fire(world, sequence, NOON + 4 * HOUR)  # a make-up fire for those before
    change = await filled(world, NOON, world.time)
    assert (change.kind, hours(change)) == (Kind.BACKFILLED, [1, 2, 3])
    stored = fires_in(world)[1:]
    identities = [header_value(one.block, b"Nats-Msg-Id") for one in stored]
    assert identities == [fire_identity(SUBJECT, sequence, NOON + n * HOUR).encode() for n in (1, 2, 3)]
    following = [header_value(one.block, b"Nats-Schedule-Next") for one in stored]
    assert following == [format_rfc3339(NOON + n * HOUR).encode() for n in (2, 3, 4)]
    assert {header_value(one.block, b"X-Nats-Schedule-X-By") for one in stored} == {b"backfill"}
    again = await filled(world, NOON, world.time)
    assert (again.kind, again.fires, again.notes) == (Kind.UNCHANGED, (), (NOTHING_MISSING,))
    assert world.store.recorded == [change]


async def test_what_the_sidecar_may_still_store_is_left_to_it() -> None:
    cases: list[tuple[dict[str, str], list[int], list[int]]] = [
        ({}, [], [1, 2, 3]),  # the sidecar makes up the latest one, 16:00
        ({}, [2], [1, 3]),
        ({"Missed": "skip"}, [], [1, 2, 3, 4]),
        ({"Missed": "all"}, [], []),
        ({"Missed": "all"}, [3], [1, 2]),
        ({"Missed": "all 2"}, [], [1, 2]),
    ]
    for policy, stored, expected in cases:
        world = World()
        sequence = hourly(world, **policy)
        world.after(4.5 * 3600)
        for hour in stored:
            own_fire(world, sequence, NOON + hour * HOUR)
        change = await filled(world, NOON, world.time)
        assert hours(change) == expected, policy
        left = 4 - len(expected) - len(stored)
        assert any(f"{left} fire time" in note for note in change.notes) == bool(left), policy


async def test_a_server_has_settled_what_lies_before_its_last_fire() -> None:
    world = World(is_native=True)
    hourly(world)
    world.after(1 * 3600 + 1)
    headers = "NATS/1.0\r\nNats-Scheduler: S.s\r\nNats-Schedule-Next: {}\r\n\r\n"
    world.put(headers.format("2026-11-20T16:00:00Z").encode(), subject="S.out")
    world.after(3 * 3600)
    world.put(headers.format("2026-11-20T17:00:00Z").encode(), subject="S.out")
    world.after(4 * 3600)
    change = await filled(world, NOON, world.time)
    assert hours(change) == [2, 3]
    assert change.notes == ("4 fire times are left out, from 2026-11-20T17:00:00Z on: the server may still store them",)
    identities = {header_value(one.block, b"Nats-Msg-Id") for one in fires_in(world)[2:]}
    assert identities == {beside_identity(SUBJECT, 1, NOON + n * HOUR).encode() for n in (2, 3)}
    again = await filled(world, NOON, world.time)
    assert again.kind is Kind.UNCHANGED


async def test_earlier_times_are_its_own_only_with_an_anchor(world: World) -> None:
    world.after(6 * 3600)
    world.put(block("0 0 * * * *"))
    world.after(1.5 * 3600)
    change = await filled(world, NOON, world.time)
    assert change.fires == ()
    assert any("when the schedule was stored, are not its own" in note for note in change.notes)
    world.put(block("@every 1h", Nats_Schedule_X_Anchor=format_rfc3339(NOON + 2 * HOUR)))
    change = await filled(world, NOON, NOON + 5 * HOUR)
    assert hours(change) == [2, 3, 4, 5]
    assert not any("not its own" in note for note in change.notes)
    assert {header_value(one.block, b"Nats-Msg-Id") for one in fires_in(world)} == {
        beside_identity(SUBJECT, 2, NOON + n * HOUR).encode() for n in (2, 3, 4, 5)
    }


async def test_too_many_are_refused_and_nothing_is_stored(world: World) -> None:
    hourly(world, "@every 1m", Missed="skip")
    world.after(3 * 3600)
    with pytest.raises(NotPossibleError, match="179 fires are missing, and at most 100"):
        await filled(world, NOON, world.time)
    for limit in (0, -1, 1_001):
        with pytest.raises(NotPossibleError, match="expected 1 to 1,000"):
            await filled(world, NOON, world.time, limit=limit)
    assert fires_in(world) == []
    assert len((await filled(world, NOON, world.time, limit=1_000)).fires) == 179


async def test_what_cannot_be_filled_in_is_refused(world: World) -> None:
    hourly(world, "@every 1s")
    world.after(24 * 3600)
    with pytest.raises(NotPossibleError, match="at most 10,000 are examined"):
        await filled(world, NOON, world.time)
    with pytest.raises(NotPossibleError, match="ends before it begins"):
        await filled(world, NOON, NOON - 1)
    world.put(block("@at 2026-11-20T13:00:00Z"))
    with pytest.raises(NotPossibleError, match="has one fire time"):
        await filled(world, NOON, world.time)
    hourly(world, Except="calendar:holidays")
    with pytest.raises(NotPossibleError, match="holidays"):
        await filled(world, NOON, world.time)


async def test_what_a_sidecar_stores_meanwhile_is_not_stored_twice(world: World) -> None:
    sequence = hourly(world, Missed="skip")
    world.after(3.5 * 3600)
    world.store.wire.interruptions.append(lambda: own_fire(world, sequence, NOON + HOUR))
    change = await filled(world, NOON, world.time)
    assert hours(change) == [2, 3]
    assert "1 of the fires were stored meanwhile by a sidecar or another request" in change.notes
    assert len(fires_in(world)) == 3


async def test_one_that_ends_half_way_says_what_it_stored_and_can_be_repeated(world: World) -> None:
    hourly(world, Missed="skip")
    world.after(3.5 * 3600)
    world.store.wire.faults.extend([None, Fault.REFUSED])
    with pytest.raises(RefusedError):
        await filled(world, NOON, world.time)
    (recorded,) = world.store.recorded
    assert (hours(recorded), recorded.notes[-1]) == ([1], "it ended half-way")
    assert hours(await filled(world, NOON, world.time)) == [2, 3]
    assert len(fires_in(world)) == 3


async def test_a_schedule_that_is_changed_meanwhile_ends_it(world: World) -> None:
    hourly(world, Missed="skip")
    world.after(3.5 * 3600)
    world.store.wire.interruptions.extend([lambda: None, lambda: hourly(world, "@every 2h")])
    with pytest.raises(ConflictError):
        await filled(world, NOON, world.time)
    assert len(fires_in(world)) == 1


# -- past fires of which nothing certain is known count as unknown, and never as missing ---------------------------

NOW = 1_790_000_000 * SECOND
OLD, NEW = NOW - 1_000 * SECOND, NOW - 10 * SECOND


def shown(kept: StoredRange, *, ttl: str = "", rollup: bool = False, **config: Any) -> int | None:
    return known_from({"name": "S", **config}, Terms(ADR51, "S.out", None, ttl, rollup), kept, NOW)


def test_consumed_or_rolled_up_fires_are_not_known() -> None:
    assert shown(StoredRange(1, OLD), retention="workqueue") is None
    assert shown(StoredRange(1, OLD), retention="interest") is None
    assert shown(StoredRange(1, OLD), rollup=True) is None


def test_a_stream_with_limits_shows_what_it_still_holds() -> None:
    assert shown(StoredRange(7, OLD)) == EVER, "a client deleted what was before"
    limits: list[dict[str, Any]] = [{"max_age": 3_600 * SECOND}, {"max_msgs": 10}, {"max_bytes": 1_000}]
    for limit in limits:
        assert shown(StoredRange(7, OLD), **limit) == OLD
        assert shown(StoredRange(1, OLD), **limit) == EVER, "nothing was removed yet"
    assert shown(StoredRange(1, OLD, 3, NEW), max_msgs_per_subject=3) == NEW
    assert shown(StoredRange(1, OLD, 2, NEW), max_msgs_per_subject=3) == EVER, "it is not reached"
    assert shown(StoredRange(1, OLD, 3, NEW), max_msgs_per_subject=-1) == EVER


def test_fires_with_a_ttl_are_shown_as_long_as_they_live() -> None:
    assert shown(StoredRange(1, OLD), ttl="60s") == NOW - 60 * SECOND
    assert shown(StoredRange(1, OLD), ttl="never") == EVER


def past_fire(time: int | None, *, sequence: int | None = 5, stored_at: int = NOW, requested: bool = False) -> PastFire:
    return PastFire("S.s", sequence, "S.out", 9, time, stored_at, None, sequence is None, was_requested=requested)


def test_all_versions_count_as_stored() -> None:
    fires = [past_fire(10), past_fire(30, sequence=4), past_fire(20, requested=True), past_fire(99)]
    assert stored_fires(fires, 5, 10, 30, EVER) == stored_fires([*fires, past_fire(5)], 5, 10, 30, EVER)
    found = stored_fires(fires, 5, 10, 30, EVER)
    assert (found.fire_times, found.latest, found.known_from) == (frozenset({10, 20, 30}), 99, EVER)
    assert stored_fires([], 5, 0, 9, EVER).latest is None


def test_a_fire_whose_time_is_unknown_may_be_any_before_it() -> None:
    fires = [past_fire(None, sequence=None, stored_at=NEW), past_fire(NOW, sequence=None)]
    assert stored_fires(fires, 5, 0, NOW, EVER).known_from == NEW + 1
    assert stored_fires(fires, 5, 0, NOW, None).known_from is None
