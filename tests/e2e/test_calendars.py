"""Calendars on real servers: followed live by every sidecar, and missed without firing."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from nats_scheduler.engine.events import CalendarApplied, CalendarMissing, FireForged
from nats_scheduler.engine.views.figures import State
from nats_scheduler.jetstream.registry import CalendarBucket, read_calendars
from nats_scheduler.schedule.calendars import day_text
from nats_scheduler.schedule.instants import DAY, SECOND
from tests.conftest import StartServer
from tests.e2e.conftest import Served
from tests.e2e.test_policies import due_of
from tests.harness.account import CLOCK, WAIT_SECONDS, Account, Running, account_on, sidecar_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

BUCKET = "nats_scheduler_calendars"
NAMED = {"X-Except": "calendar:work"}


def today() -> str:
    """Return the days around now as a calendar, so that a midnight during a test changes nothing."""
    day = CLOCK.now() // DAY
    return f"{day_text(day - 1)}..{day_text(day + 1)}\n"


async def edit(account: Account, text: str | None, name: str = "work") -> None:
    """Write a calendar, or with None delete it."""
    bucket = CalendarBucket(account.connection, account.api, BUCKET)
    await bucket.open()
    _found, revision = await bucket.revised_text(name)
    assert await bucket.write(name, None if text is None else text.encode(), revision)


@pytest.fixture(autouse=True)
async def no_bucket(account: Account) -> AsyncIterator[None]:
    """Begin without calendars, on servers that tests share."""
    yield
    if await account.api.stream(f"KV_{BUCKET}") is not None:
        await account.api.call(f"STREAM.DELETE.KV_{BUCKET}")


async def state_of(running: Running, stream: str, subject: str, wanted: State) -> None:
    def is_so() -> bool:
        service = running.sidecar._services.by_name.get(stream)
        listed = None if service is None else service.engine.view().schedule(subject, CLOCK.now())
        return listed is not None and listed.state is wanted

    await eventually(is_so, within_seconds=WAIT_SECONDS, describe=f"{subject} is {wanted}")


async def test_an_edit_stops_a_schedule_at_once_and_lets_it_go_on(served: Served) -> None:
    await edit(served.account, "# nothing yet\n")
    await served.schedule("s", "@every 1s", more=NAMED)
    await served.wait_for("out", 2)
    # None, if the sidecar knew the calendar already, because a stream of another test names one.
    before = len(served.sidecar.of(served.name, CalendarApplied))
    await edit(served.account, today())
    await state_of(served.sidecar, served.name, served.subject("s"), State.WAITING)
    await eventually(
        lambda: len(served.sidecar.of(served.name, CalendarApplied)) > before,
        within_seconds=WAIT_SECONDS,
        describe="the edit is applied",
    )
    applied_at = CLOCK.now()
    await served.canary(3)
    late = [one for one in await served.messages("out") if due_of(one.block) > applied_at + SECOND]
    assert late == []
    await edit(served.account, "")
    count = len(await served.messages("out"))
    await served.wait_for("out", count + 2)
    dues = [due_of(one.block) for one in await served.messages("out")]
    assert len(dues) == len(set(dues))
    assert served.sidecar.of(served.name, FireForged) == []


async def test_without_its_calendar_a_schedule_waits_and_says_so_until_the_calendar_is_there(served: Served) -> None:
    """The bucket does not exist at first, and is made while the sidecar runs; later the calendar is deleted."""
    await served.schedule("s", "@every 1s", more=NAMED)
    await state_of(served.sidecar, served.name, served.subject("s"), State.NO_CALENDAR)
    await eventually(
        lambda: bool(served.sidecar.of(served.name, CalendarMissing)), within_seconds=WAIT_SECONDS, describe="said"
    )
    await served.canary(3)
    assert await served.messages("out") == []
    await edit(served.account, "soon")
    await eventually(
        lambda: "line 1" in served.sidecar.of(served.name, CalendarMissing)[-1].reason,
        within_seconds=WAIT_SECONDS,
        describe="the calendar is known to be invalid",
    )
    await edit(served.account, "")
    await served.wait_for("out", 2)
    await edit(served.account, None)
    await state_of(served.sidecar, served.name, served.subject("s"), State.NO_CALENDAR)
    await served.account.api.call(f"STREAM.DELETE.KV_{BUCKET}")
    await edit(served.account, "")
    await state_of(served.sidecar, served.name, served.subject("s"), State.WAITING)


async def test_every_instance_follows_the_calendars_and_nothing_is_stored_twice(served: Served) -> None:
    url = served.account.connection.url
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(sidecar_on(url))
        await other.ready(served.name)
        await edit(served.account, "")
        for number in range(8):
            await served.schedule(f"s.{number}", "@every 1s", more=NAMED)
        await served.wait_for("out", 8)
        for text in (today(), "", None, ""):
            await edit(served.account, text)
            state = State.NO_CALENDAR if text is None else State.WAITING
            for running in (served.sidecar, other):
                for number in range(8):
                    await state_of(running, served.name, served.subject(f"s.{number}"), state)
        count = len(await served.messages("out"))
        await served.wait_for("out", count + 8)
        identities = [one.block.split(b"nats-scheduler:")[1].split(b"\r\n")[0] for one in await served.messages("out")]
        assert len(identities) == len(set(identities))


async def test_a_command_reads_what_the_sidecar_follows(account: Account) -> None:
    bucket = CalendarBucket(account.connection, account.api, BUCKET)
    assert (await read_calendars(bucket)).by_name == {}
    await edit(account, "2026-12-25\n")
    await edit(account, "2026-12-26\n", "other")
    known = await read_calendars(bucket)
    assert (sorted(known.by_name), known.fault("work"), known.fault("none")) == (
        ["other", "work"],
        "",
        "there is no such calendar",
    )
    assert not await bucket.write("work", b"", 1_000), "another revision is there"
    await edit(account, None)
    assert sorted((await read_calendars(bucket)).by_name) == ["other"]


async def test_an_outage_of_the_server_is_noticed_as_one_of_the_edits(start_server: StartServer) -> None:
    """No schedule ends by days that may have been edited meanwhile."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S", storage="file")
        await running.ready("S")
        await edit(account, today())
        headers = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "S.out"}
        await account.publish("S.s", {**headers, "Nats-Schedule-X-Except": "calendar:work"})
        await follows(running, "S", True)
        await server.stop()
        await follows(running, "S", False)
        await server.start()
        await follows(running, "S", True)


async def follows(running: Running, stream: str, wanted: bool) -> None:
    """Wait until a stream is served, and the edits of its calendars are received or not."""

    def is_so() -> bool:
        service = running.sidecar.served.get(stream)
        return service is not None and service.engine.calendars.are_followed is wanted

    await eventually(is_so, within_seconds=WAIT_SECONDS, describe=f"edits are received: {wanted}")
