"""Work queue and interest streams: schedules fire, and nothing of the sidecar is there to be noticed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.engine.events import Ending, FireStored, ScheduleAccepted
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, in_seconds, sidecar_on
from tests.harness.flagged import Delivered, Served, at, fire_time_of
from tests.harness.leads import in_time
from tests.harness.waiting import eventually

WORK_QUEUE, INTEREST = "workqueue", "interest"
EVERYTHING = "everything"


@asynccontextmanager
async def served_stream(server: EmbeddedServer, account: Account, name: str, **config: Any) -> AsyncIterator[Served]:
    async with sidecar_on(server.url) as running:
        await account.create(name, **config)
        await running.ready(name)
        yield Served(account, name, running, server.url, server.version)
        await account.api.call(f"STREAM.DELETE.{name}")


@pytest.fixture(params=[WORK_QUEUE, INTEREST])
async def either(
    request: pytest.FixtureRequest, emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> AsyncIterator[Served]:
    """Serve a work queue, and an interest stream, with a consumer of the user on everything."""
    async with served_stream(emulated_server, account, stream_name, retention=request.param) as one:
        await one.add_consumer(EVERYTHING)
        yield one


async def accepted(stream: Served, *names: str) -> None:
    """Wait until the sidecar took the schedules on these subjects."""
    wanted = {stream.subject(rest) for rest in names}
    await eventually(
        lambda: wanted <= {event.schedule for event in stream.of(ScheduleAccepted)},
        describe=f"the schedules on {names} are held",
    )


async def test_delays_intervals_and_samples_fire_and_nothing_is_attached(either: Served) -> None:
    await either.publish("sensor", body=b"20.5")
    await either.schedule("at", f"@at {in_seconds(0.3)}", b"once", "out.at")
    await either.schedule("every", "@every 1s", b"again", "out.every")
    await either.schedule(
        "sample", f"@at {in_seconds(0.3)}", b"own", "out.sample", more={"Source": either.subject("sensor")}
    )
    [once], [sample] = await either.wait_for("out.at"), await either.wait_for("out.sample")
    every = await either.wait_for("out.every", 2)
    assert (once.body, sample.body, every[0].body) == (b"once", b"20.5", b"again")
    assert len({fire_time_of(message) for message in every}) == len(every)
    assert await either.ended("at") is Ending.FIRED
    assert [await either.messages("at"), await either.messages("sample")] == [[], []]
    assert await either.consumers() == [EVERYTHING]


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
        await accepted(either, f"s.{due}")
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


async def test_what_nobody_is_interested_in_is_not_kept(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    """Fires on a target without interest, whose schedules live as they should; and a schedule, which does not fire."""
    async with served_stream(emulated_server, account, stream_name, retention=INTEREST) as interest:
        for name, rest in (("schedules", "s.*"), ("targets", "kept"), ("canary", "canary"), ("canaries", "canary.>")):
            await interest.add_consumer(name, rest)
        await interest.schedule("s.every", "@every 1s", target="out")
        await interest.schedule("s.at", f"@at {in_seconds(0.3)}", target="out")
        await interest.schedule("nobody", f"@at {in_seconds(0.3)}", target="kept")
        assert await interest.ended("s.at") is Ending.FIRED

        def every() -> list[FireStored]:
            return [one for one in interest.of(FireStored) if one.fire.schedule == interest.subject("s.every")]

        await eventually(lambda: len(every()) >= 2, describe="the interval fires on")
        await interest.canary(0.3)
        kept = {rest: len(await interest.messages(rest)) for rest in ("out", "s.at", "s.every", "kept")}
        assert kept == {"out": 0, "s.at": 0, "s.every": 1, "kept": 0}
