"""Replaced, deleted, purged, expired, overwritten or cancelled schedules never fire again: *Latest* and *Gone*.

That nothing fires is shown by a canary: a schedule due later than the removed one, in the same stream, that has fired.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.engine.events import Ending, ScheduleEndsByAge, ScheduleEndsEarly, ScheduleLost
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import SharedServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.flagged import Served, at
from tests.harness.leads import in_time
from tests.harness.servers import V2_10, V2_11, V2_15
from tests.harness.waiting import eventually

Removal = Callable[[Served, str, int], Awaitable[object]]
AGE = 5 * SECOND
NEVER = "@at 2200-01-01T00:00:00Z"


async def purge_the_subject(served: Served, rest: str, _sequence: int) -> None:
    await served.call("STREAM.PURGE", {"filter": served.subject(rest)})


async def delete(served: Served, _rest: str, sequence: int) -> None:
    await served.call("STREAM.MSG.DELETE", {"seq": sequence, "no_erase": True})


async def overwrite(served: Served, rest: str, _sequence: int) -> None:
    await served.publish(rest, body=b"an ordinary message")


async def cancel(served: Served, rest: str, _sequence: int) -> None:
    await served.publish("cancels", {"Nats-Scheduler": served.subject(rest), "Nats-Schedule-Next": "purge"})


async def replace_by_an_invalid_one(served: Served, rest: str, _sequence: int) -> None:
    await served.schedule(rest, "@at soon")


async def uncover(served: Served, rest: str, sequence: int) -> None:
    """Delete the version that replaced it."""
    old = await served.account.api.message(served.name, seq=sequence)
    assert old is not None
    newer = await served.account.publish_block(old.subject, old.block, b"newer")
    await delete(served, rest, newer)


REMOVALS: tuple[Removal, ...] = (
    purge_the_subject,
    delete,
    overwrite,
    cancel,
    replace_by_an_invalid_one,
    uncover,
)


def rest_of(remove: Removal) -> str:
    """Name the subject of the schedule that is removed so."""
    return f"{remove.__name__}.s"


async def test_a_removed_schedule_never_fires(served: Served) -> None:
    async def remove_all(due: int) -> None:
        for remove in REMOVALS:
            rest = rest_of(remove)
            await remove(served, rest, await served.schedule(rest, at(due), target=f"out.{due}.{remove.__name__}"))

    due, _ = await in_time(remove_all)
    await served.canary(due=due)
    assert [one.subject for one in await served.messages(f"out.{due}.*")] == []


async def test_a_replacement_fires_and_the_old_version_is_removed(served: Served) -> None:
    async def replace(due: int) -> int:
        await served.schedule(f"s.{due}", at(due), b"old", f"out.{due}")
        return await served.schedule(f"s.{due}", at(due + SECOND // 5), b"new", f"out.{due}")

    due, newer = await in_time(replace)

    async def rolled_up() -> bool:
        return all(message.sequence == newer for message in await served.messages(f"s.{due}"))

    await eventually(rolled_up, describe="the older version is removed")
    assert [message.body for message in await served.wait_for(f"out.{due}")] == [b"new"]


async def test_a_schedule_that_expired_by_age_does_not_fire(served: Served) -> None:
    config = (await served.account.api.stream(served.name))["config"]

    async def expire(due: int) -> None:
        await served.account.api.update_stream({**config, "max_age": SECOND, "duplicate_window": SECOND})
        await served.schedule("s", at(due), target=f"out.{due}")
        await served.gone("s")
        await served.account.api.update_stream(config)

    due, _ = await in_time(expire, 3.0)
    await served.canary(due=due)
    assert await served.messages(f"out.{due}") == []


@asynccontextmanager
async def limited(server: EmbeddedServer, name: str, **limits: Any) -> AsyncIterator[Served]:
    """Serve a stream with limits."""
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create(name, allow_msg_ttl=True, **limits)
        await running.ready(name)
        yield Served(account, name, running, server.url, server.version)
        await account.api.call(f"STREAM.DELETE.{name}")


async def expect_lost(served: Served, rest: str, ending: Ending) -> None:
    await served.reported(ScheduleLost)
    assert [(one.schedule, one.ending) for one in served.of(ScheduleLost)] == [(served.subject(rest), ending)]


@pytest.mark.clause("stop-max-age")
async def test_a_schedule_that_max_age_ends_is_told_before_and_after(
    emulated_server: EmbeddedServer, stream_name: str
) -> None:
    """Also if the limit came later, which does not read the stream anew."""
    async with limited(emulated_server, stream_name) as served:
        service = served.sidecar.sidecar.served[stream_name]
        config = (await served.account.api.stream(stream_name))["config"]
        await served.call("STREAM.UPDATE", {**config, "max_age": AGE, "duplicate_window": SECOND})
        await eventually(lambda: service.state.config["max_age"] == AGE, describe="the sidecar knows the new limit")
        for name in ("s", "purged"):
            await served.schedule(name, NEVER)
        early = [event.schedule for event in await served.reported(ScheduleEndsEarly, 2)]
        assert early == [served.subject("s"), served.subject("purged")]
        await served.call("STREAM.PURGE", {"filter": served.subject("purged")})
        await expect_lost(served, "s", Ending.MAX_AGE)
        assert await served.ended("purged") is Ending.REMOVED
        counted = {
            why: served.sidecar.metrics.value("schedules_ended", stream=served.name, reason=why)
            for why in ("max_age", "removed")
        }
        assert counted == {"max_age": 1, "removed": 1}
        assert served.sidecar.sidecar.served[stream_name] is service


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_nats_ttl_never_keeps_a_schedule_where_it_is_said_to(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    server = await shared_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create(stream_name, max_age=2 * SECOND, allow_msg_ttl=True)
        await running.ready(stream_name)
        headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"{stream_name}.out"}
        await account.publish(f"{stream_name}.kept", {**headers, "Nats-TTL": "never"})
        await account.publish(f"{stream_name}.aged", headers)
        first = f"{stream_name}.kept" if version == V2_10 else f"{stream_name}.aged"
        if version != V2_15:  # there the server itself fires them
            await running.reported(stream_name, ScheduleEndsByAge)
            told = running.of(stream_name, ScheduleEndsByAge)
            assert [one.schedule for one in told] == [first], "once for a stream"

        async def is_removed() -> bool:
            return not await account.messages(stream_name, f"{stream_name}.aged")

        await eventually(is_removed, describe="max_age ends it")
        kept = await account.messages(stream_name, f"{stream_name}.kept")
        assert len(kept) == (0 if version == V2_10 else 1)


async def test_a_schedule_that_made_room_for_other_messages_is_told(
    emulated_server: EmbeddedServer, stream_name: str
) -> None:
    async with limited(emulated_server, stream_name, max_msgs=3) as served:
        await served.schedule("s", NEVER)
        for number in range(3):
            await served.publish(f"other{number}")
        await expect_lost(served, "s", Ending.LIMITS)
