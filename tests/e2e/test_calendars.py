"""Calendars on real servers: followed live by every sidecar, and missed without firing.

They are followed in `runtime/calendar_updates.py`.
"""

from collections.abc import AsyncIterator

import pytest

from nats_scheduler.engine.events import CalendarApplied, CalendarMissing, FireForged
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.schedule.days import day_text
from nats_scheduler.schedule.instants import DAY, SECOND
from tests.harness.account import CLOCK, Account, Running, sidecar_on
from tests.harness.flagged import Served, fire_time_of
from tests.harness.waiting import eventually

BUCKET = "nats_scheduler_calendars"
NAMED = {"X-Except": "calendar:work"}


def today() -> str:
    """Return the days around now as a calendar, so that a midnight during a test changes nothing."""
    day = CLOCK.now() // DAY
    return f"{day_text(day - 1)}..{day_text(day + 1)}\n"


async def edit(account: Account, text: str | None) -> None:
    """Write the calendar, or with None delete it."""
    bucket = CalendarBucket(account.connection, account.api, BUCKET)
    await bucket.open()
    _found, revision = await bucket.revised_text("work")
    assert await bucket.write("work", None if text is None else text.encode(), revision)


@pytest.fixture(autouse=True)
async def no_bucket(account: Account) -> AsyncIterator[None]:
    """Leave no calendars on servers that tests share."""
    yield
    if await account.api.stream(f"KV_{BUCKET}") is not None:
        await account.api.call(f"STREAM.DELETE.KV_{BUCKET}")


async def state_of(running: Running, stream: str, subject: str, wanted: State) -> None:
    def is_so() -> bool:
        service = running.sidecar.served.get(stream)
        listed = None if service is None else service.engine.view().schedule(subject, CLOCK.now())
        return listed is not None and listed.state is wanted

    await eventually(is_so, describe=f"{subject} is {wanted}")


async def test_each_instance_follows_calendars_and_doubles_nothing(served: Served) -> None:
    """An edit stops schedules at once, and lets them go on."""
    names = [f"s.{number}" for number in range(8)]
    async with sidecar_on(served.url) as other:
        await other.ready(served.name)
        await edit(served.account, "# nothing yet\n")
        for name in names:
            await served.schedule(name, "@every 1s", more=NAMED)
        await served.wait_for("out", 8)
        for text in (today(), "", None, ""):
            await edit(served.account, text)
            state = State.NO_CALENDAR if text is None else State.WAITING
            for running in (served.sidecar, other):
                for name in names:
                    await state_of(running, served.name, served.subject(name), state)
        count = len(await served.messages("out"))
        await served.wait_for("out", count + 8)
        owner = next(one for one in (served.sidecar, other) if one.sidecar.served[served.name].is_owner)
        known = len(owner.of(served.name, CalendarApplied))
        await edit(served.account, today())
        await owner.reported(served.name, CalendarApplied, known + 1)
        applied_at = CLOCK.now()
        await served.canary(2.5)
        fires = await served.messages("out")
    assert [one for one in fires if fire_time_of(one) > applied_at + SECOND] == []
    identities = [header_value(one.block, MSG_ID) for one in fires]
    assert len(identities) == len(set(identities))
    assert served.of(FireForged) == []


async def test_a_schedule_waits_until_its_calendar_is_there(served: Served) -> None:
    """The bucket does not exist at first, and is made while the sidecar runs; later the calendar is deleted."""

    async def becomes(state: State) -> None:
        await state_of(served.sidecar, served.name, served.subject("s"), state)

    await served.schedule("s", "@every 1s", more=NAMED)
    await becomes(State.NO_CALENDAR)
    await served.reported(CalendarMissing)
    await served.canary(2)
    assert await served.messages("out") == []
    await edit(served.account, "soon")
    await eventually(
        lambda: "line 1" in served.of(CalendarMissing)[-1].reason, describe="the calendar is known to be invalid"
    )
    await edit(served.account, "")
    await served.wait_for("out", 2)
    await edit(served.account, None)
    await becomes(State.NO_CALENDAR)
    await served.account.api.call(f"STREAM.DELETE.KV_{BUCKET}")
    await edit(served.account, "")
    await becomes(State.WAITING)
