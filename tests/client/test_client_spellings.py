"""Each schedule is spelled for what fires it there, and where nothing would fire it, nothing is stored."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nats_scheduler.client import NotServedError, RejectedError, Schedules, When, after, at, cron, elsewhere, every
from tests.client.conftest import Connect
from tests.client.worlds import FAR, SOON, entered
from tests.conftest import SharedServer, StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.servers import V2_11, V2_12, V2_15


async def test_the_same_program_fires_each_kind_of_schedule_wherever_a_sidecar_runs(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    for version in (V2_11, V2_12, V2_15):
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
            spellings = tuple(found[world.subject(f"s.{name}")].spelling for name in ("every", "cron", "missed"))
            assert (
                spellings
                == {
                    V2_11: ("adr51", "adr51", "adr51"),
                    V2_12: ("portable", "portable", "portable"),
                    V2_15: ("adr51", "adr51", "portable"),
                }[version]
            )


async def test_one_stream_of_schedules_serves_another_stream(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    jobs = f"{stream_name}-jobs"
    for version in (V2_11, V2_15):
        url = (await shared_server(version)).url
        stream = f"{stream_name}-{version.replace('.', '-')}"
        allowed = [f"{stream}={jobs}.>"]
        async with account_on(url) as account, sidecar_on(url, allowed_targets_elsewhere=allowed) as sidecar:
            await account.create(stream)
            await account.create(jobs, allow_msg_schedules=False)
            await sidecar.ready(stream)
            schedules = await Schedules.on(await connect(url), stream)
            await schedules.create(f"{stream}.s", every(SOON), b"run", target=elsewhere(f"{jobs}.run"))
            (fired, *_rest) = await account.wait_for(jobs, f"{jobs}.run")
            found = await schedules.history(f"{stream}.s")
            assert (fired.body, found[-1].sequence, found[-1].target) == (b"run", fired.sequence, f"{jobs}.run")
            with pytest.raises(RejectedError):
                await schedules.upsert(f"{stream}.s", every(SOON), target=elsewhere(f"{stream}.out"))
            await schedules.cancel(f"{stream}.s")
            await account.api.call(f"STREAM.DELETE.{jobs}")


async def test_without_a_sidecar_nothing_is_stored_that_nothing_would_fire(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    async with AsyncExitStack() as stack:
        url = (await shared_server(V2_12)).url
        world = await entered(stack, url, stream_name, connect, sidecar=False)
        for when in (every(SOON), cron("@daily"), at(FAR).policies(missed="skip")):
            with pytest.raises(NotServedError, match="and no sidecar answers") as refused:
                await world.schedules.create(world.subject("s"), when, target=world.subject("out"))
            assert refused.value.code == 10188
        with pytest.raises(NotServedError):
            await world.schedules.create(world.subject("s"), at(FAR), target=elsewhere("jobs.run"))
        assert await world.account.messages(stream_name, ">") == []


async def test_a_sidecar_that_is_started_later_counts_at_once(start_server: StartServer, connect: Connect) -> None:
    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S")
        schedules = await Schedules.on(await connect(server.url), "S")
        often = every(SOON).policies(missed="all")
        with pytest.raises(NotServedError):
            await schedules.create("S.s", often, target="S.out")
        async with sidecar_on(server.url) as sidecar:
            await sidecar.ready("S")
            await schedules.create("S.s", often, target="S.out")
            await account.wait_for("S", "S.out")


async def test_a_schedule_of_another_spelling_takes_the_place_of_the_first(
    shared_server: SharedServer, stream_name: str, connect: Connect
) -> None:
    async with AsyncExitStack() as stack:
        world = await entered(stack, (await shared_server(V2_15)).url, stream_name, connect, sidecar=True)
        subject, out = world.subject("s"), world.subject("out")
        await world.schedules.create(subject, every(timedelta(hours=1)), b"server", target=out)
        assert (await world.schedules.get(subject)).spelling == "adr51"
        await world.schedules.upsert(subject, after(SOON).policies(missed="all"), b"sidecar", target=out)
        assert (await world.schedules.get(subject)).spelling == "portable"
        (fired,) = await world.account.wait_for(stream_name, out)
        assert fired.body == b"sidecar"


async def test_a_program_that_may_not_record_works_and_is_told_once(
    start_server: StartServer, connect: Connect
) -> None:
    server = await start_server(V2_15, config=NO_ADVISORIES)
    async with account_on(server.url.replace("nats://", "nats://admin:p@")) as account:
        await account.create("S")
        errors: list[Exception] = []

        async def kept(error: Exception) -> None:
            errors.append(error)

        connection = await connect(server.url, user="program", password="p", error_cb=kept)  # noqa: S106
        schedules = await Schedules.on(connection, "S")
        for number in range(5):
            await schedules.upsert("S.s", at(FAR), b"%d" % number, target="S.out")
        await schedules.cancel("S.s")
    assert [str(error).split(" to ")[1][:35] for error in errors] == ['"nats_scheduler.advisory.schedule_c']


NO_ADVISORIES = """
authorization { users: [
  { user: admin, password: p }
  { user: program, password: p, permissions: { publish: { deny: ["nats_scheduler.advisory.>"] } } }
] }
"""
