"""Work queue and interest streams: what is acknowledged is gone, a fire as well as a schedule.

What else fires and remains there is in `tests/differential/test_streams.py`, and what is seen of a sidecar in
`tests/differential/test_invisible.py`.
"""

from collections.abc import AsyncIterator

import pytest

from nats_scheduler.engine.events import Ending, FireStored, ScheduleAccepted
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, in_seconds, sidecar_on
from tests.harness.flagged import Delivered, Served, at
from tests.harness.leads import in_time
from tests.harness.waiting import eventually

EVERYTHING = "everything"


@pytest.fixture(params=["workqueue", "interest"])
async def either(
    request: pytest.FixtureRequest, emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> AsyncIterator[Served]:
    """Serve a work queue, and an interest stream, with a consumer of the user on everything."""
    async with sidecar_on(emulated_server.url) as running:
        await account.create(stream_name, retention=request.param)
        await running.ready(stream_name)
        one = Served(account, stream_name, running, emulated_server.url, emulated_server.version)
        await one.add_consumer(EVERYTHING)
        yield one
        await one.call("STREAM.DELETE")


async def test_a_fire_that_was_acknowledged_at_once_is_not_fired_again(either: Served) -> None:
    await either.schedule("s", "@every 1s", b"work")
    seen: list[Delivered] = []
    while len([one for one in seen if one.subject == either.subject("out")]) < 2:
        [one] = await either.take(EVERYTHING)
        seen.append(one)
        if one.subject == either.subject("out"):
            await either.acknowledge(one)
    assert await either.messages("out") == []
    fires = [event.fire.fire_time for event in either.of(FireStored)]
    assert len(set(fires)) == len(fires)


async def test_a_schedule_that_was_acknowledged_away_does_not_fire(either: Served) -> None:
    """A delay before its time, and an interval between two fires."""

    async def acknowledge_away(due: int) -> None:
        await either.schedule(f"s.{due}", at(due), target=f"out.{due}")
        await eventually(
            lambda: either.subject(f"s.{due}") in [event.schedule for event in either.of(ScheduleAccepted)],
            describe="the schedule is held",
        )
        [schedule] = await either.take(EVERYTHING)
        while schedule.subject != either.subject(f"s.{due}"):  # of an attempt before
            [schedule] = await either.take(EVERYTHING)
        await either.acknowledge(schedule)

    due, _ = await in_time(acknowledge_away, 2.0)
    await either.canary(due=due)
    assert await either.messages(f"out.{due}") == []
    assert await either.ended(f"s.{due}") is Ending.REMOVED

    await either.schedule("every", "@every 1s", target="ticks")
    await either.wait_for("ticks")
    [schedule] = await either.take(EVERYTHING)
    while schedule.subject != either.subject("every"):
        [schedule] = await either.take(EVERYTHING)
    await either.acknowledge(schedule)
    assert await either.ended("every") is Ending.REMOVED
    fired = len(await either.messages("ticks"))
    await either.schedule("last", f"@at {in_seconds(1.1)}", target="last.out")
    await either.wait_for("last.out")
    assert len(await either.messages("ticks")) == fired
