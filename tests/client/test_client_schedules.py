"""One program creates, reads, changes and ends schedules on every server from 2.10 to 2.15, whatever fires them."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from nats_scheduler.client import (
    AlreadyExistsError,
    ConflictError,
    Kind,
    NotFoundError,
    NotPossibleError,
    RejectedError,
    after,
    at,
    every,
)
from nats_scheduler.message.headers import header_items
from tests.client.conftest import Connect
from tests.client.worlds import FAR, SCENES, SOON, World, entered
from tests.conftest import SharedServer
from tests.harness.account import WAIT_SECONDS
from tests.harness.servers import V2_11, V2_15
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


async def test_a_schedule_is_read_as_it_was_stored(world: World) -> None:
    subject, out = world.subject("s"), world.subject("out")
    headers = [("A", "1"), ("B", "x  y"), ("A", "2")]
    change = await world.schedules.create(
        subject, at(FAR), b"\x00\xff", target=out, headers=headers, ttl=timedelta(minutes=5)
    )
    found = await world.schedules.get(subject)
    assert (found.sequence, found.pattern, found.target) == (change.sequence, "@at 2200-01-01T00:00:00Z", out)
    assert (found.body, found.ttl, found.rejection, found.is_paused) == (b"\x00\xff", "5m0s", None, False)
    assert [pair for pair in found.headers if not pair[0].startswith("Nats-")] == headers
    assert found.when == at(FAR)
    assert found.next(2, after=found.stored_at) == [FAR]
    assert found.stored_at == datetime.fromtimestamp(found.stored_at_ns // 1_000 / 1_000_000, UTC)
    assert [one async for one in world.schedules.list(world.subject(">"))] == [found]
    assert [one async for one in world.schedules.list(world.subject("other.>"))] == []


async def test_what_is_there_is_not_created_again_and_upserted_only_if_it_differs(world: World) -> None:
    subject, out = world.subject("s"), world.subject("out")
    first = await world.schedules.create(subject, at(FAR), b"1", target=out)
    for body in (b"1", b"2"):
        with pytest.raises(AlreadyExistsError) as refused:
            await world.schedules.create(subject, at(FAR), body, target=out)
        assert (refused.value.code, refused.value.sequence) == (10071, first.sequence)
    same = await world.schedules.upsert(subject, at(FAR), b"1", target=out)
    assert (same.kind, same.sequence) == (Kind.UNCHANGED, first.sequence)
    other = await world.schedules.upsert(subject, at(FAR), b"2", target=out)
    assert (other.before, (await world.schedules.get(subject)).body) == (first.sequence, b"2")


async def test_a_schedule_that_is_cancelled_is_gone(world: World) -> None:
    subject = world.subject("s")
    created = await world.schedules.create(subject, at(FAR), target=world.subject("out"))
    assert created.sequence is not None
    with pytest.raises(ConflictError):
        await world.schedules.cancel(subject, expected=created.sequence + 1)
    change = await world.schedules.cancel(subject, reason="not needed")
    assert (change.kind, change.before, change.sequence) == (Kind.REMOVED, created.sequence, None)
    for gone in (world.schedules.get, world.schedules.cancel, world.schedules.pause):
        with pytest.raises(NotFoundError):
            await gone(subject)


async def test_a_paused_schedule_does_not_fire_until_it_is_resumed(world: World) -> None:
    subject, out = world.subject("s"), world.subject("out")
    await world.schedules.create(subject, at(FAR), b"later", target=out)
    await world.schedules.pause(subject)
    paused = await world.schedules.get(subject)
    assert (paused.is_paused, paused.pattern, paused.next(after=paused.stored_at)) == (
        True,
        "@at 2200-01-01T00:00:00Z",
        [FAR],
    )
    with pytest.raises(NotPossibleError):
        await world.schedules.pause(subject)
    await world.schedules.resume(subject)
    assert not (await world.schedules.get(subject)).is_paused
    await world.schedules.upsert(subject, after(SOON), b"now", target=out)
    (fired,) = await world.account.wait_for(world.stream, out)
    assert fired.body == b"now"


async def test_a_message_that_cancels_a_schedule_is_stored_and_ends_it(world: World) -> None:
    subject, out = world.subject("s"), world.subject("out")
    created = await world.schedules.create(subject, at(FAR), b"later", target=out)
    done = await world.schedules.publish_and_cancel(subject, out, b"early", headers={"Why": "asked"})
    (stored,) = await world.account.messages(world.stream, out)
    assert (stored.sequence, stored.body, done.schedule_sequence) == (done.sequence, b"early", created.sequence)
    assert done.is_immediate is (await world.schedules.serving()).served.is_native

    async def ended() -> bool:
        return not await world.account.messages(world.stream, subject)

    await eventually(ended, within_seconds=WAIT_SECONDS, describe="the schedule is gone")
    with pytest.raises(NotFoundError):
        await world.schedules.publish_and_cancel(subject, out, b"again")
    assert len(await world.account.messages(world.stream, out)) == 1


async def test_a_cancel_is_found_by_every_server_whatever_the_other_headers_say(world: World) -> None:
    subject, out = world.subject("s"), world.subject("out")
    created = await world.schedules.create(subject, at(FAR), target=out)
    assert created.sequence is not None
    with pytest.raises(ConflictError):
        await world.schedules.publish_and_cancel(subject, out, expected=created.sequence + 1)
    headers = {"A": "Nats-Scheduler: no", "B": "Nats-Schedule-Next", "C": "Nats-Expected-Last-Subject-Sequence: 9"}
    await world.schedules.publish_and_cancel(subject, out, headers=headers)

    async def ended() -> bool:
        return not await world.account.messages(world.stream, subject)

    await eventually(ended, within_seconds=WAIT_SECONDS, describe="the schedule is gone")
    for wrong in (world.subject("s"), "elsewhere.out", world.subject("*")):
        await world.schedules.upsert(subject, at(FAR), target=out)
        with pytest.raises(NotPossibleError):
            await world.schedules.publish_and_cancel(subject, wrong)
    await world.schedules.pause(subject)
    with pytest.raises(NotPossibleError, match="paused"):
        await world.schedules.publish_and_cancel(subject, out)


async def test_a_body_is_bytes(world: World) -> None:
    with pytest.raises(TypeError, match="bytes are expected"):
        await world.schedules.create(world.subject("s"), at(FAR), "text", target=world.subject("out"))  # type: ignore[arg-type]
    assert await world.account.messages(world.stream, ">") == []


async def test_what_would_never_fire_is_refused_with_the_code_of_the_server(world: World) -> None:
    subject = world.subject("s")
    for target in ("elsewhere.out", world.subject("*"), subject, ""):
        with pytest.raises(RejectedError) as refused:
            await world.schedules.create(subject, at(FAR), target=target)
        assert refused.value.code == 10190
    assert await world.account.messages(world.stream, subject) == []


async def test_each_change_is_recorded_with_its_author_and_reason(world: World, connect: Connect) -> None:
    subject = world.subject("s")
    listening = await connect(world.url)
    advisories = await listening.subscribe(f"nats_scheduler.advisory.schedule_changed.{world.stream}.>")
    await listening.flush()
    await world.schedules.create(subject, at(FAR), target=world.subject("out"), reason="first")
    await world.schedules.upsert(subject, at(FAR), target=world.subject("out"), reason="the same")
    await world.schedules.pause(subject, reason="holidays")
    await world.schedules.cancel(subject)
    recorded = [json.loads((await advisories.next_msg(timeout=WAIT_SECONDS)).data) for _ in range(3)]
    assert [(one["change"], one["author"], one["reason"]) for one in recorded] == [
        ("added", "tests", "first"),
        ("paused", "tests", "holidays"),
        ("removed", "tests", ""),
    ]


async def test_a_fire_on_request_is_stored_beside_the_schedule(world: World) -> None:
    subject, out = world.subject("s"), world.subject("out")
    await world.schedules.create(subject, at(FAR), b"now", target=out)
    when = (await world.schedules.get(subject)).stored_at
    first = await world.schedules.fire(subject, at=when, reason="asked")
    again = await world.schedules.fire(subject, at=when)
    assert (first.kind, first.fire_times, again.kind) == (Kind.FIRED, (when,), Kind.UNCHANGED)
    assert (await world.schedules.fire(subject)).kind is Kind.FIRED
    stored = await world.account.messages(world.stream, out)
    assert [one.body for one in stored] == [b"now", b"now"]
    assert (await world.schedules.get(subject)).next(after=when) == [FAR]
    with pytest.raises(ValueError, match="expected 1 or more"):
        await world.schedules.history(subject, limit=0)
    found = await world.schedules.history(subject)
    assert [(fire.sequence, fire.fired_by, fire.lateness_ns) for fire in found] == [
        (one.sequence, "request", None) for one in reversed(stored)
    ]


async def test_missing_fires_are_filled_in_once(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    """A schedule with an anchor has fire times from before it was stored."""
    for version in (V2_11, V2_15):
        stream = f"{stream_name}-{version.replace('.', '-')}"
        async with AsyncExitStack() as stack:
            world = await entered(stack, (await shared_server(version)).url, stream, connect, sidecar=True)
            subject, out, hour = world.subject("s"), world.subject("out"), timedelta(hours=1)
            since = datetime(2026, 1, 1, tzinfo=UTC)
            hourly = every(hour).policies(anchor=since, missed="skip")
            await world.schedules.create(subject, hourly, b"hour", target=out)
            until, times = since + 2 * hour, (since, since + hour, since + 2 * hour)
            with pytest.raises(NotPossibleError, match="3 fires are missing"):
                await world.schedules.backfill(subject, since, until, limit=2)
            planned = await world.schedules.backfill(subject, since, until, dry_run=True)
            assert (planned.fire_times, await world.account.messages(stream, out)) == (times, [])
            made = await world.schedules.backfill(subject, since, until)
            assert (made.kind, made.fire_times) == (Kind.BACKFILLED, times)
            assert len(await world.account.messages(stream, out)) == 3
            assert (await world.schedules.backfill(subject, since, until)).kind is Kind.UNCHANGED
            assert [fire.fire_time for fire in await world.schedules.history(subject)] == [*reversed(times)]
