"""One program creates, reads, changes and ends schedules on servers from 2.10 to 2.15, whatever fires them.

Each is spelled for what fires it there; how that is found out is in `test_client_serving.py`.
It tests `client/cancelling.py` too.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nats_scheduler.client import (
    AlreadyExistsError,
    ConflictError,
    Kind,
    NotFoundError,
    NotPossibleError,
    RejectedError,
    ReplacesUnfiredWarning,
    When,
    after,
    at,
    cron,
    every,
)
from nats_scheduler.client.jetstream_requests import FIRST_RANGE, RANGE_GROWTH, READERS
from nats_scheduler.message.headers import header_items
from tests.client.conftest import Connect
from tests.client.worlds import FAR, SCENES, SOON, World, entered
from tests.conftest import SharedServer
from tests.harness.servers import V2_10, V2_12, V2_15
from tests.harness.waiting import eventually


@pytest.fixture(params=SCENES, ids=lambda scene: f"{scene[0]}{'-sidecar' if scene[1] else ''}")
async def world(
    request: pytest.FixtureRequest, shared_server: SharedServer, stream_name: str, connect: Connect
) -> AsyncIterator[World]:
    version, sidecar = request.param
    async with AsyncExitStack() as stack:
        url = (await shared_server(version)).url
        yield await entered(stack, url, stream_name, connect, sidecar=sidecar, allow_msg_ttl=True)


# -- each server ---------------------------------------------------------------------------------------------------


async def test_a_delayed_message_arrives(world: World) -> None:
    change = await world.schedules.create(
        world.subject("s"), after(SOON), b"ping", target=world.subject("out"), headers={"Order": "7"}
    )
    assert (change.kind, change.before, change.author.name) == (Kind.ADDED, None, "tests")
    (fired,) = await world.account.wait_for(world.stream, world.subject("out"))
    assert fired.body == b"ping"
    assert (b"Order", b"7") in header_items(fired.block)
    (fire,) = await world.schedules.history(world.subject("s"))
    assert (fire.sequence, fire.next_fire, fire.schedule) == (fired.sequence, None, world.subject("s"))
    assert fire.stored_at_ns == fired.stored_at


async def test_a_schedule_is_read_as_stored_and_changed_if_it_differs(world: World) -> None:
    schedules, subject, out = world.schedules, world.subject("s"), world.subject("out")
    with pytest.raises(TypeError, match="bytes are expected"):
        await schedules.create(subject, at(FAR), "text", target=out)  # type: ignore[arg-type]
    for target in ("elsewhere.out", subject):
        with pytest.raises(RejectedError) as rejected:
            await schedules.create(subject, at(FAR), target=target)
        assert rejected.value.code == 10190
    assert await world.account.messages(world.stream, ">") == []
    headers, ttl = [("A", "1"), ("B", "x  y"), ("A", "2")], timedelta(minutes=5)
    first = await schedules.create(subject, at(FAR), b"\x00\xff", target=out, headers=headers, ttl=ttl)
    found = await schedules.get(subject)
    assert (found.sequence, found.pattern, found.target) == (first.sequence, "@at 2200-01-01T00:00:00Z", out)
    assert (found.body, found.form.ttl, found.rejection, found.is_paused) == (b"\x00\xff", "5m0s", None, False)
    assert [pair for pair in found.form.headers if not pair[0].startswith("Nats-")] == headers
    assert (found.when, found.next(2, after=found.stored_at)) == (at(FAR), [FAR])
    assert found.stored_at == datetime.fromtimestamp(found.stored_at_ns // 1_000 / 1_000_000, UTC)
    assert [one async for one in schedules.list(world.subject(">"))] == [found]
    again = partial(schedules.upsert, target=out, headers=headers, ttl=ttl)
    with pytest.raises(AlreadyExistsError) as refused:
        await schedules.create(subject, at(FAR), b"2", target=out)
    assert (refused.value.code, refused.value.sequence) == (10071, first.sequence)
    assert "has not fired yet and is due at 2200-01-01T00:00:00Z" in str(refused.value)
    same = await again(subject, at(FAR), b"\x00\xff")
    assert (same.kind, same.sequence) == (Kind.UNCHANGED, first.sequence)
    with pytest.raises(ReplacesUnfiredWarning):  # warnings are errors in tests
        await again(subject, at(FAR), b"2")
    assert (await schedules.get(subject)).sequence == first.sequence
    with pytest.warns(ReplacesUnfiredWarning, match=f"replaces sequence {first.sequence}, published ") as warned:
        other = await again(subject, at(FAR), b"2")
    assert [Path(one.filename) for one in warned] == [Path(__file__)], "it names the call of the program"
    assert any("never will" in note for note in other.notes)
    assert (other.before, (await schedules.get(subject)).body) == (first.sequence, b"2")
    assert other.sequence is not None
    with pytest.raises(ConflictError):
        await schedules.cancel(subject, expected=other.sequence + 1)
    change = await schedules.cancel(subject, reason="not needed")
    assert (change.kind, change.before, change.sequence) == (Kind.REMOVED, other.sequence, None)
    for gone in (schedules.get, schedules.cancel, schedules.pause):
        with pytest.raises(NotFoundError):
            await gone(subject)
    assert await schedules.history(subject) == []


async def test_a_message_that_cancels_a_schedule_is_stored_and_ends_it(world: World) -> None:
    schedules, subject, out = world.schedules, world.subject("s"), world.subject("out")

    async def ended() -> bool:
        return not await world.account.messages(world.stream, subject)

    created = await schedules.create(subject, at(FAR), b"later", target=out)
    assert created.sequence is not None
    with pytest.raises(ConflictError):
        await schedules.publish_and_cancel(subject, out, expected=created.sequence + 1)
    # It is found by every server, whatever the other headers say.
    headers = {"A": "Nats-Scheduler: no", "B": "Nats-Schedule-Next", "C": "Nats-Expected-Last-Subject-Sequence: 9"}
    done = await schedules.publish_and_cancel(subject, out, b"early", headers=headers)
    (stored,) = await world.account.messages(world.stream, out)
    assert (stored.sequence, stored.body, done.schedule_sequence) == (done.sequence, b"early", created.sequence)
    assert done.is_immediate is (await schedules.serving()).served.is_native
    await eventually(ended, describe="the schedule is gone")
    with pytest.raises(NotFoundError):
        await schedules.publish_and_cancel(subject, out, b"again")
    await schedules.upsert(subject, at(FAR), target=out)
    with pytest.raises(NotPossibleError):
        await schedules.publish_and_cancel(subject, "elsewhere.out")
    await schedules.pause(subject)
    with pytest.raises(NotPossibleError, match="paused"):
        await schedules.publish_and_cancel(subject, out)


# -- fires are found in the stream, newest first ----------------------------------------------------------------------


@pytest.mark.parametrize(("version", "fired_by"), [(V2_10, "sidecar"), (V2_15, "server")])
async def test_the_fires_of_a_sidecar_and_of_a_server_are_found(
    shared_server: SharedServer, stream_name: str, connect: Connect, version: str, fired_by: str
) -> None:
    async with AsyncExitStack() as stack:
        url, is_ours = (await shared_server(version)).url, fired_by == "sidecar"
        world = await entered(stack, url, stream_name, connect, sidecar=is_ours)
        schedules, account, subject, out = world.schedules, world.account, world.subject("s"), world.subject("out")
        await schedules.create(subject, every(SOON), target=out)
        await schedules.create(world.subject("other"), every(SOON), target=world.subject("out" if is_ours else "more"))
        await account.wait_for(stream_name, out, 5 if is_ours else 3)
        for _ in range(5):
            await account.publish(world.subject("out" if is_ours else "noise"))
        await schedules.pause(subject)
        stored = await account.messages(stream_name, out)
        stored = [one for one in stored if not is_ours or f":{subject}".encode() in one.block]
        found = await schedules.history(subject)
        assert [fire.sequence for fire in found] == [one.sequence for one in reversed(stored)]
        assert {(fire.target, fire.fired_by) for fire in found} == {(out, fired_by)}
        if is_ours:  # some are missed where the machine stands still
            assert [fire.next_fire_ns for fire in found] == [(fire.fire_time_ns or 0) + 10**9 for fire in found]
        else:
            assert found[0].fire_time_ns == found[1].next_fire_ns
        assert await schedules.history(subject, limit=2) == found[:2]
        await schedules.cancel(subject)
        assert [fire.sequence for fire in await schedules.history(subject)] == [fire.sequence for fire in found]


async def test_a_fire_below_thousands_of_other_messages_is_found(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    async with AsyncExitStack() as stack:
        world = await entered(stack, (await shared_server(V2_15)).url, stream_name, connect, sidecar=False)
        subject, out = world.subject("s"), world.subject("out")
        await world.schedules.create(subject, after(timedelta(0)), target=out)
        (fired,) = await world.account.wait_for(stream_name, out)
        for number in range(FIRST_RANGE * (RANGE_GROWTH + 1) + READERS):
            world.account.connection.publish(world.subject("noise" if number % 3 else "out"), b"")
        await world.account.publish(world.subject("noise"))
        assert [fire.sequence for fire in await world.schedules.history(subject)] == [fired.sequence]


# -- spellings --------------------------------------------------------------------------------------------------------

SPELLINGS = {
    V2_12: ("portable", "portable", "portable"),
    V2_15: ("adr51", "adr51", "portable"),
}


async def test_one_program_fires_each_kind_of_schedule(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    for version, spellings in SPELLINGS.items():
        stream = f"{stream_name}-{version.replace('.', '-')}"
        async with AsyncExitStack() as stack:
            url = (await shared_server(version)).url
            world = await entered(stack, url, stream, connect, sidecar=True)
            await world.account.publish(world.subject("in"), {"Sampled": "yes"}, b"sample")
            kinds: dict[str, tuple[When, dict[str, Any]]] = {
                "at": (at(datetime(2020, 1, 1, tzinfo=UTC)), {}),
                "every": (every(SOON), {}),
                "cron": (cron("* * * * * *", ZoneInfo("Europe/Berlin")), {}),
                "crontab": (cron("* * * * *", syntax="crontab").policies(limit=1), {}),
                "sampling": (after(SOON), {"source": world.subject("in"), "rollup": True}),
                "missed": (every(SOON).policies(missed="all", report=True), {}),
            }
            for name, (when, more) in kinds.items():
                target = world.subject(f"out.{name}")
                await world.schedules.create(world.subject(f"s.{name}"), when, b"body", target=target, **more)
            found = {one.subject: one async for one in world.schedules.list(world.subject("s.*"))}
            assert all(one.rejection is None for one in found.values())
            for name in kinds.keys() - {"crontab"}:
                (first, *_rest) = await world.account.wait_for(stream, world.subject(f"out.{name}"))
                assert first.body == (b"sample" if name == "sampling" else b"body")
            spelled = tuple(found[world.subject(f"s.{name}")].spelling for name in ("every", "cron", "missed"))
            assert spelled == spellings, version
