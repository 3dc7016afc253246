"""Fires on request are stored once, beside their schedule; only what is missing and settled is filled in."""

import json
from itertools import product

import pytest

from nats_scheduler.control.changes import Author, Kind, change_advisory
from nats_scheduler.control.edits import pause
from nats_scheduler.control.errors import (
    NotPossibleError,
    RejectedError,
    UnknownOutcomeError,
)
from nats_scheduler.control.fires import PORTABLE_NAMES, STORED_ALREADY, fire
from nats_scheduler.control.storing import MAX_ATTEMPTS
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import beside_identity
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
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


async def test_it_samples_its_source() -> None:
    world = World()
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


async def test_a_request_that_is_repeated_is_stored_once() -> None:
    world = World()
    world.put(block())
    at = world.time - SECOND
    assert (await fire(world.store, "S", SUBJECT, at=at)).kind is Kind.FIRED
    world.after(5)
    again = await fire(world.store, "S", SUBJECT, at=at)
    assert (again.kind, again.fires, again.notes) == (Kind.UNCHANGED, (), (STORED_ALREADY,))
    assert (len(fires_in(world)), len(world.store.recorded)) == (1, 1)


async def test_a_fire_that_is_never_answered_is_unknown() -> None:
    world = World()
    world.put(block())
    world.store.wire.faults.extend([Fault.UNKNOWN_NOT_DONE] * MAX_ATTEMPTS)
    with pytest.raises(UnknownOutcomeError):
        await fire(world.store, "S", SUBJECT)
    world.store.wire.faults.append(Fault.UNKNOWN_NOT_DONE)
    world.store.wire.interruptions.extend([lambda: None, lambda: world.put(block("@every 1h"))])
    with pytest.raises(UnknownOutcomeError):
        await fire(world.store, "S", SUBJECT)


async def test_a_fire_by_request_lends_no_right() -> None:
    world = World()
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


async def test_a_dry_run_fires_nothing() -> None:
    world = World()
    world.put(block())
    change = await fire(world.store, "S", SUBJECT, dry_run=True)
    assert (change.kind, fires_in(world), world.store.recorded) == (Kind.FIRED, [], [])


async def test_a_target_in_another_stream_is_fired_there() -> None:
    world = World()
    world.store.wire.add_stream({"name": "JOBS", "subjects": ["jobs.>"]})
    headers = block(NEVER, "X-").replace(b"X-Nats-Schedule-Target: S.out", b"X-Nats-Schedule-X-Target: jobs.run")
    world.put(headers)
    await fire(world.store, "S", SUBJECT)
    (stored,) = world.store.wire.streams["JOBS"].messages()
    assert header_value(stored.block, b"X-Nats-Scheduler") == SUBJECT.encode()
    assert b"Nats-Expected" not in stored.block
