"""The fires of a schedule are found in the stream, newest first, those of a sidecar and those of the server."""

from datetime import timedelta

import pytest

from nats_scheduler.client import Schedules, after, every
from nats_scheduler.client.wire import FIRST_RANGE, RANGE_GROWTH, READERS
from tests.client.conftest import Connect
from tests.conftest import SharedServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import EMULATED_VERSIONS, V2_14, V2_15

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_the_fires_of_a_sidecar_are_found(
    shared_server: SharedServer, stream_name: str, connect: Connect, version: str
) -> None:
    server = await shared_server(version)
    subject, out = f"{stream_name}.s", f"{stream_name}.out"
    async with account_on(server.url) as account, sidecar_on(server.url) as sidecar:
        await account.create(stream_name)
        await sidecar.ready(stream_name)
        schedules = await Schedules.on(await connect(server.url), stream_name)
        created = await schedules.create(subject, every(SECOND), target=out)
        await schedules.create(f"{stream_name}.other", every(SECOND), target=out)
        await account.wait_for(stream_name, out, 5)
        for _ in range(5):
            await account.publish(out)
        await schedules.pause(subject)
        stored = [one for one in await account.messages(stream_name, out) if f":{subject}".encode() in one.block]
        found = await schedules.history(subject)
        assert [fire.sequence for fire in found] == [one.sequence for one in reversed(stored)]
        times = [fire.fire_time_ns for fire in found]
        first = min(time for time in times if time is not None)
        assert times == [first + 10**9 * n for n in reversed(range(len(stored)))]
        assert [fire.next_fire_ns for fire in found[1:]] == times[:-1]
        assert all((fire.target, fire.fired_by) == (out, "sidecar") for fire in found)
        assert await schedules.history(subject, limit=2) == found[:2]
        assert created.sequence is not None
        await schedules.cancel(subject)
        assert [fire.sequence for fire in await schedules.history(subject)] == [fire.sequence for fire in found]


@pytest.mark.parametrize("version", [V2_14, V2_15])
async def test_the_fires_of_the_server_are_found(
    shared_server: SharedServer, stream_name: str, connect: Connect, version: str
) -> None:
    server = await shared_server(version)
    subject, out = f"{stream_name}.s", f"{stream_name}.out"
    async with account_on(server.url) as account:
        await account.create(stream_name)
        schedules = await Schedules.on(await connect(server.url), stream_name)
        await schedules.create(subject, every(SECOND), target=out)
        await account.wait_for(stream_name, out, 3)
        await schedules.pause(subject)
        stored = await account.messages(stream_name, out)
        found = await schedules.history(subject)
        assert [fire.sequence for fire in found] == [one.sequence for one in reversed(stored)]
        assert {fire.fired_by for fire in found} == {"server"}
        assert found[0].fire_time_ns == found[1].next_fire_ns


async def test_a_fire_below_thousands_of_other_messages_is_found(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    server = await shared_server(V2_15)
    subject, out = f"{stream_name}.s", f"{stream_name}.out"
    async with account_on(server.url) as account:
        await account.create(stream_name)
        schedules = await Schedules.on(await connect(server.url), stream_name)
        await schedules.create(subject, after(timedelta(0)), target=out)
        (fired,) = await account.wait_for(stream_name, out)
        for number in range(FIRST_RANGE * (RANGE_GROWTH + 1) + READERS):
            account.connection.publish(f"{stream_name}.{'noise' if number % 3 else 'out'}", b"")
        await account.publish(f"{stream_name}.noise")
        found = await schedules.history(subject)
        assert [fire.sequence for fire in found] == [fired.sequence]


async def test_without_fires_the_history_is_empty(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    server = await shared_server(V2_15)
    async with account_on(server.url) as account:
        await account.create(stream_name)
        schedules = await Schedules.on(await connect(server.url), stream_name)
        assert await schedules.history(f"{stream_name}.s") == []
