"""Work queue and interest streams: schedules fire, and nothing of the sidecar is there to be noticed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.events import Ending, FireStored, ScheduleAccepted, ScheduleEnded
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.e2e.conftest import Served
from tests.harness.account import Account, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.flagged import Delivered
from tests.harness.waiting import eventually

SOON_SECONDS = 30.0
WORK_QUEUE, INTEREST = "workqueue", "interest"
EVERYTHING = "everything"


@dataclass
class Queue(Served):
    """A served stream of which messages are taken away."""

    async def is_empty(self) -> None:
        """Wait until the stream holds nothing."""

        async def empty() -> bool:
            return await self.count() == 0

        await eventually(empty, within_seconds=SOON_SECONDS, describe="the stream is empty")

    async def accepted(self, rest: str) -> None:
        """Wait until the sidecar took the schedule on a subject."""
        await eventually(
            lambda: self.subject(rest) in [e.schedule for e in self.sidecar.of(self.name, ScheduleAccepted)],
            within_seconds=SOON_SECONDS,
            describe=f"the schedule on {rest} is held",
        )

    async def ended(self, rest: str) -> Ending:
        """Wait until the schedule on a subject has ended and return why."""
        endings: list[Ending] = await eventually(
            lambda: [e.ending for e in self.sidecar.of(self.name, ScheduleEnded) if e.schedule == self.subject(rest)],
            within_seconds=SOON_SECONDS,
            describe=f"the schedule on {rest} ends",
        )
        return endings[-1]


async def served_stream(
    server: EmbeddedServer, account: Account, name: str, retention: str, **config: Any
) -> AsyncIterator[Queue]:
    async with sidecar_on(server.url) as running:
        await account.create(name, retention=retention, **config)
        await running.ready(name)
        yield Queue(account, name, running, server.version)
        await account.api.call(f"STREAM.DELETE.{name}")


@pytest.fixture
async def queue(emulated_server: EmbeddedServer, account: Account, stream_name: str) -> AsyncIterator[Queue]:
    """Serve a work queue; it has no consumer yet."""
    async for one in served_stream(emulated_server, account, stream_name, WORK_QUEUE):
        yield one


@pytest.fixture
async def interest(emulated_server: EmbeddedServer, account: Account, stream_name: str) -> AsyncIterator[Queue]:
    """Serve an interest stream; it has no consumer yet, and so keeps nothing."""
    async for one in served_stream(emulated_server, account, stream_name, INTEREST):
        yield one


@pytest.fixture(params=[WORK_QUEUE, INTEREST])
async def either(
    request: pytest.FixtureRequest, emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> AsyncIterator[Queue]:
    """Serve a work queue, and an interest stream, with a consumer of the user on everything."""
    async for one in served_stream(emulated_server, account, stream_name, request.param):
        await one.add_consumer(EVERYTHING)
        yield one


# -- fires -----------------------------------------------------------------------------------------------------------


async def test_delays_intervals_and_samples_fire_and_nothing_is_attached(either: Queue) -> None:
    await either.publish("sensor", body=b"20.5")
    await either.schedule("at", f"@at {in_seconds(0.3)}", b"once", "out.at")
    await either.schedule("every", "@every 1s", b"again", "out.every")
    await either.schedule(
        "sample", f"@at {in_seconds(0.3)}", b"own", "out.sample", more={"Source": either.subject("sensor")}
    )
    [at], [sample] = await either.wait_for("out.at"), await either.wait_for("out.sample")
    every = await either.wait_for("out.every", 2)
    assert (at.body, sample.body, every[0].body) == (b"once", b"20.5", b"again")
    assert len({message.stored_at // SECOND for message in every}) == len(every)
    assert await either.ended("at") is Ending.FIRED
    assert [await either.messages("at"), await either.messages("sample")] == [[], []]
    assert await either.consumers() == [EVERYTHING]


async def test_a_work_queue_without_consumers_has_none_of_ours(queue: Queue) -> None:
    await queue.schedule("s", "@every 1s")
    await queue.wait_for("out")
    assert await queue.consumers() == []


async def test_a_schedule_due_a_few_milliseconds_after_it_was_published_fires(either: Queue) -> None:
    for number in range(50):
        await either.schedule(f"s.{number}", f"@at {in_seconds(0.003)}", str(number).encode())
    fired = await either.wait_for("out", 50)
    assert sorted(int(message.body or b"-1") for message in fired) == list(range(50))


async def test_a_replacement_fires_in_place_of_what_it_replaced(either: Queue) -> None:
    await either.schedule("s", f"@at {in_seconds(0.6)}", b"old", "out")
    await either.accepted("s")
    await either.schedule("s", f"@at {in_seconds(0.7)}", b"new", "out")
    await either.canary(1)
    assert [message.body for message in await either.messages("out")] == [b"new"]


async def test_a_plain_message_on_its_subject_and_a_cancel_each_end_a_schedule(either: Queue) -> None:
    for rest in ("overwritten", "cancelled"):
        await either.schedule(rest, f"@at {in_seconds(0.8)}")
        await either.accepted(rest)
    await either.publish("overwritten", body=b"no schedule")
    await either.publish(
        "elsewhere", {"Nats-Scheduler": either.subject("cancelled"), "Nats-Schedule-Next": "purge"}, b""
    )
    await either.canary(1)
    assert await either.messages("out") == []
    assert (await either.ended("overwritten"), await either.ended("cancelled")) == (
        Ending.OVERWRITTEN,
        Ending.CANCELLED,
    )
    assert await either.messages("cancelled") == []


# -- consumers of the user ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["out", "out.>", "*", ">"])
async def test_a_user_may_have_any_consumer_on_a_work_queue_and_its_acknowledgements_remove(
    queue: Queue, rest: str
) -> None:
    target = "out.deep" if rest == "out.>" else "out"
    await queue.schedule("s", f"@at {in_seconds(0.4)}", b"work", target)
    await queue.accepted("s")
    await queue.add_consumer("worker", rest)
    taken = await queue.take("worker", 1 if rest.startswith("out") else 2)
    assert (taken[-1].subject, taken[-1].body) == (queue.subject(target), b"work")
    await queue.acknowledge(taken[-1])
    await queue.is_empty()


async def test_many_workers_with_filters_of_their_own_share_a_work_queue(queue: Queue) -> None:
    for worker in ("a", "b", "c"):
        await queue.add_consumer(worker, f"out.{worker}")
        await queue.schedule(f"s.{worker}", f"@at {in_seconds(0.2)}", worker.encode(), f"out.{worker}")
    for worker in ("a", "b", "c"):
        [work] = await queue.take(worker)
        assert work.body == worker.encode()
        await queue.acknowledge(work)
    await queue.is_empty()
    assert sorted(await queue.consumers()) == ["a", "b", "c"]


async def test_a_fire_that_was_acknowledged_at_once_is_not_fired_again(either: Queue) -> None:
    await either.schedule("s", "@every 1s", b"work")
    seen: list[Delivered] = []
    while len([one for one in seen if one.subject == either.subject("out")]) < 2:
        [one] = await either.take(EVERYTHING)
        seen.append(one)
        if one.subject == either.subject("out"):
            await either.acknowledge(one)
    assert await either.messages("out") == []
    fires = [event.fire.fire_time for event in either.sidecar.of(either.name, FireStored)]
    assert len(set(fires)) == len(fires)


async def test_where_nothing_is_acknowledged_a_fire_that_was_consumed_at_once_ends_its_schedule(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async for one in served_stream(emulated_server, account, stream_name, INTEREST, no_ack=True):
        await one.add_consumer("keeper", "s")
        await one.add_consumer("worker", "out", ack_policy="none")  # what is delivered to it is gone
        taking = asyncio.create_task(one.take("worker"))
        headers = one.headers(f"@at {in_seconds(0.5)}")
        account.connection.write(frame(one.subject("s"), "", block_to_send(headers), b"work"))
        [taken] = await taking
        assert taken.body == b"work"
        assert await one.ended("s") is Ending.FIRED
        await one.is_empty()


async def test_a_schedule_that_was_acknowledged_away_does_not_fire(either: Queue) -> None:
    ahead = 4  # seconds: it is acknowledged before that, also if the machine is paused for a moment
    await either.schedule("s", f"@at {in_seconds(ahead)}")
    await either.accepted("s")
    [schedule] = await either.take(EVERYTHING)
    assert schedule.subject == either.subject("s")
    await either.acknowledge(schedule)
    await either.canary(ahead)
    assert await either.messages("out") == []
    assert await either.ended("s") is Ending.REMOVED


async def test_an_interval_that_was_acknowledged_away_between_two_fires_does_not_fire_again(either: Queue) -> None:
    await either.schedule("s", "@every 1s")
    await either.wait_for("out")
    [schedule] = await either.take(EVERYTHING)
    await either.acknowledge(schedule)
    fired = len(await either.messages("out"))
    await either.canary(1.1)
    assert len(await either.messages("out")) == fired
    assert await either.ended("s") is Ending.REMOVED


# -- start -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", [WORK_QUEUE, INTEREST])
async def test_schedules_that_were_there_before_the_sidecar_are_picked_up(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    mark = {"metadata": {METADATA_FLAG: "true"}, "allow_rollup_hdrs": True}
    await account.create(stream_name, retention=retention, allow_msg_schedules=False, **mark)
    async with sidecar_on(emulated_server.url) as earlier:
        stored = Queue(account, stream_name, earlier, emulated_server.version)
        await stored.add_consumer(EVERYTHING)
    for number in range(300):
        await stored.schedule(f"past.{number}", "@at 2020-01-01T00:00:00Z", str(number).encode(), "out.past")
    await stored.schedule("soon", f"@at {in_seconds(1)}", b"soon", "out.soon")
    await stored.publish("replaced", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": stored.subject("never")})
    await stored.publish("replaced", body=b"plain")
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(stream_name)
        past = await stored.wait_for("out.past", 300)
        assert sorted(int(message.body or b"-1") for message in past) == list(range(300))
        assert len(await stored.wait_for("out.soon")) == 1
        assert await stored.messages("never") == []
        assert await stored.consumers() == [EVERYTHING]
    await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_versions_that_were_replaced_while_no_sidecar_ran_are_removed(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    config = {"metadata": {METADATA_FLAG: "true"}, "allow_rollup_hdrs": True, "retention": WORK_QUEUE}
    await account.create(stream_name, allow_msg_schedules=False, **config)
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(stream_name)
    stored = Queue(account, stream_name, running, emulated_server.version)
    for interval in ("1h", "2h", "3h"):
        await stored.schedule("replaced", f"@every {interval}")
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(stream_name)

        async def only_the_last() -> bool:
            return [message.sequence for message in await stored.messages("replaced")] == [3]

        await eventually(only_the_last, within_seconds=SOON_SECONDS, describe="older versions are removed")
    await account.api.call(f"STREAM.DELETE.{stream_name}")


# -- interest --------------------------------------------------------------------------------------------------------


async def test_a_target_without_interest_keeps_nothing_and_the_schedules_live_as_they_should(interest: Queue) -> None:
    await interest.add_consumer("schedules", "s.*")
    await interest.schedule("s.every", "@every 1s", target="out")
    await interest.schedule("s.at", f"@at {in_seconds(0.3)}", target="out")
    assert await interest.ended("s.at") is Ending.FIRED

    def every() -> list[FireStored]:
        fires = interest.sidecar.of(interest.name, FireStored)
        return [event for event in fires if event.fire.schedule == interest.subject("s.every")]

    await eventually(lambda: len(every()) >= 2, within_seconds=SOON_SECONDS, describe="the interval fires on")
    assert await interest.messages("out") == []
    assert [len(await interest.messages(rest)) for rest in ("s.at", "s.every")] == [0, 1]


async def test_a_schedule_without_interest_is_not_kept_and_does_not_fire(interest: Queue) -> None:
    await interest.add_consumer("targets", "out")
    await interest.schedule("nobody", f"@at {in_seconds(0.5)}", target="out")
    await interest.add_consumer("canaries", "canary.>")
    await interest.add_consumer("canary", "canary")
    await interest.canary(0.8)
    assert await interest.messages("out") == []


# -- traffic ---------------------------------------------------------------------------------------------------------


async def test_busy_traffic_on_other_subjects_disturbs_no_fire(either: Queue) -> None:
    for number in range(20):
        await either.schedule(f"s.{number}", f"@at {in_seconds(0.8)}", str(number).encode())
    headers = {"Kind": "traffic"}
    for hundred in range(30):
        numbers = range(100 * hundred, 100 * hundred + 100)
        await asyncio.gather(*(either.publish(f"traffic.{number % 700}", headers) for number in numbers))
    fired = await either.wait_for("out", 20)
    assert sorted(int(message.body or b"-1") for message in fired) == list(range(20))

    async def only_schedules_are_gone() -> bool:
        return await either.count() == 3_000 + 20

    await eventually(only_schedules_are_gone, within_seconds=SOON_SECONDS, describe="all schedules are purged")
