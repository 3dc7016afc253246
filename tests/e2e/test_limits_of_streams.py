"""A schedule that its stream removes before it fires is reported: when it is taken on, and when it is gone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from nats_scheduler.engine.events import Ending, ScheduleEndsEarly, ScheduleLost
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.e2e.conftest import Served
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.waiting import eventually

NEVER = "@at 2200-01-01T00:00:00Z"


@asynccontextmanager
async def limited(server: EmbeddedServer, name: str, **limits: Any) -> AsyncIterator[Served]:
    """Serve a stream with limits."""
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create(name, allow_msg_ttl=True, **limits)
        await running.ready(name)
        yield Served(account, name, running, server.version)
        await account.api.call(f"STREAM.DELETE.{name}")


def told_early(served: Served) -> list[str]:
    return [event.schedule for event in served.sidecar.of(served.name, ScheduleEndsEarly)]


def lost(served: Served) -> list[tuple[str, Ending]]:
    return [(event.schedule, event.ending) for event in served.sidecar.of(served.name, ScheduleLost)]


@pytest.mark.clause("stop-max-age")
async def test_a_schedule_that_max_age_ends_is_told_before_and_after(
    emulated_server: EmbeddedServer, stream_name: str
) -> None:
    async with limited(emulated_server, stream_name, max_age=2 * SECOND) as served:
        both = [served.subject("s"), served.subject("purged")]
        for name in ("s", "purged"):
            await served.schedule(name, NEVER)
        early = partial(told_early, served)
        await eventually(lambda: early() == both, within_seconds=30, describe=lambda: str(early()))
        await served.call("STREAM.PURGE", {"filter": served.subject("purged")})
        counted = partial(served.sidecar.metrics.value, "schedules_ended", stream=served.name)
        await eventually(
            lambda: (counted(reason="max_age"), counted(reason="removed")) == (1, 1),
            within_seconds=30,
            describe="one has aged, one was purged",
        )
        assert lost(served) == [(served.subject("s"), Ending.MAX_AGE)]


async def test_a_schedule_that_made_room_for_other_messages_is_told(
    emulated_server: EmbeddedServer, stream_name: str
) -> None:
    async with limited(emulated_server, stream_name, max_msgs=3) as served:
        await served.schedule("s", f"@at {in_seconds(2)}")
        for number in range(3):
            await served.publish(f"other{number}")
        expected = [(served.subject("s"), Ending.LIMITS)]
        await eventually(lambda: lost(served) == expected, within_seconds=30, describe=lambda: str(lost(served)))


async def test_a_change_of_limits_does_not_read_the_stream_anew(
    emulated_server: EmbeddedServer, stream_name: str
) -> None:
    async with limited(emulated_server, stream_name) as served:
        info = await served.account.api.stream(stream_name)
        before = served.sidecar.sidecar.served[stream_name]
        await served.call("STREAM.UPDATE", {**info["config"], "max_age": 2 * SECOND, "duplicate_window": SECOND})
        await eventually(
            lambda: served.sidecar.sidecar.served[stream_name].state.config["max_age"] == 2 * SECOND,
            within_seconds=30,
            describe="the sidecar knows the new limit",
        )
        assert served.sidecar.sidecar.served[stream_name] is before
        await served.schedule("s", NEVER)
        expected = [(served.subject("s"), Ending.MAX_AGE)]
        await eventually(lambda: lost(served) == expected, within_seconds=30, describe=lambda: str(lost(served)))
