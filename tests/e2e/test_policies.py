"""Policies on real servers: what a sidecar does with them, and what a server that fires itself does.

A paused schedule is fired by nothing, whatever restarts, and resumed it fires again.
"""

import asyncio
import json

from click.testing import CliRunner

from nats_scheduler.cli.main import main
from nats_scheduler.engine.events import (
    Ending,
    FinishUnknown,
    FireLostToReplacement,
    FireNotDone,
    FiresMissed,
    FireTimedOut,
)
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.paused import paused_block, resumed_block
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FlaggedStream, Served, fire_time_of
from tests.harness.servers import V2_15
from tests.harness.waiting import eventually, instant_reached
from tests.harness.workers import Worker

WORKERS = "workers"
OUTAGE_NS = 4 * SECOND


async def test_each_fire_of_an_outage_is_made_up_in_order(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    """Or as many as a number allows, or none; what was skipped is reported, and a report names the fire before."""
    stream = FlaggedStream(account, stream_name)
    policies = {"all": "all", "bounded": "all 2", "skipped": "skip"}
    async with sidecar_on(emulated_server.url) as first:
        await account.create(stream_name)
        await first.ready(stream_name)
        for rest, policy in policies.items():
            more = {"X-Missed": policy, "X-Report": "true"} | ({} if rest == "all" else {"X-Grace": "1s"})
            await stream.schedule(rest, "@every 1s", target=f"{rest}.out", more=more)
        for rest in policies:
            await stream.wait_for(f"{rest}.out")
    stopped_at = CLOCK.now()
    await eventually(lambda: CLOCK.now() > stopped_at + OUTAGE_NS)
    started_at = CLOCK.now()

    async def times_of(rest: str) -> list[int]:
        return [fire_time_of(one) for one in await stream.messages(f"{rest}.out")]

    async def all_have_fired() -> bool:
        return all([max(await times_of(rest)) > started_at for rest in policies])

    async with sidecar_on(emulated_server.url) as second:
        await second.ready(stream_name)
        await eventually(all_have_fired, describe="fires of after the outage")
        missed = await second.reported(stream_name, FiresMissed, 2)
    times = {rest: await times_of(rest) for rest in policies}
    assert times["all"] == list(range(times["all"][0], times["all"][-1] + SECOND, SECOND))
    assert times["all"][0] < stopped_at < started_at < times["all"][-1]
    assert not [time for time in times["skipped"] if stopped_at < time < started_at - SECOND]
    assert {event.schedule: event.policy for event in missed} == {
        stream.subject("bounded"): "X-Missed: all 2",
        stream.subject("skipped"): "X-Missed: skip",
    }
    reports = [
        [(header_value(one.block, b"X-Nats-Schedule-X-" + name) or b"").decode() for name in (b"Due", b"Previous")]
        for one in await stream.messages("bounded.out")
    ]
    bounded = [format_rfc3339(time) for time in times["bounded"]]
    assert reports == [list(both) for both in zip(bounded, ["", *bounded[:-1]], strict=True)]
    await account.api.call(f"STREAM.DELETE.{stream_name}")


# -- overlap ---------------------------------------------------------------------------------------------------------


ONE_BY_ONE = {"X-Overlap": "queue", "X-Consumer": WORKERS}
"""The policies of a schedule whose fires do not overlap."""


async def working(stream: FlaggedStream) -> Worker:
    """Create the worker of the fires of a stream."""
    worker = Worker(stream.account.connection, stream.account.api, stream.name, WORKERS)
    await worker.begin(filter_subject=stream.subject("out.*"))
    worker.pull(1_000)
    return worker


async def test_a_fire_that_nobody_finishes_times_out(served: Served) -> None:
    heard = await HeardAdvisories.of(served.account.connection, served.name)
    worker = await working(served)
    await served.schedule("s.s", "@every 1s", target="out.s", more={**ONE_BY_ONE, "X-Timeout": "2500ms"})
    first, second = (await worker.takes(2))[:2]
    assert worker.stored_at(second) >= worker.stored_at(first) + 2_500 * MILLISECOND - SECOND // 4
    [event, *_] = await served.reported(FireTimedOut)
    assert event.unfinished == first
    advisory = await heard.first("fire_timed_out")
    assert (advisory["schedule"], advisory["stored_as"]) == (served.subject("s.s"), first)
    assert (await heard.first("fires_skipped"))["policy"] == "X-Overlap: queue"


async def test_a_consumer_that_is_missing_is_reported_and_awaited(served: Served) -> None:
    heard = await HeardAdvisories.of(served.account.connection, served.name)
    await served.schedule("s.s", "@every 1s", target="out.s", more=ONE_BY_ONE)
    advisory = await heard.first("finish_unknown")
    assert advisory["reason"] == f"stream {served.name} has no consumer 'workers'"
    [first] = await served.wait_for("out.s")
    worker = await working(served)
    await worker.takes(1)
    await worker.acknowledge(first.sequence)
    await served.wait_for("out.s", 2)
    assert len(served.of(FinishUnknown)) == 1


# -- what is owed ------------------------------------------------------------------------------------------------------


async def test_what_was_due_before_an_edit_is_stored_once_as_it_was(served: Served) -> None:
    """A jitter delays half of them; the others are about to be sent, or in flight."""
    due = (CLOCK.now() // SECOND + 3) * SECOND
    pattern = f"{due // SECOND % 60} * * * * *"
    notes = [(f"note.{number}", {"X-Jitter": "5s"} if number % 2 else {}) for number in range(12)]
    for rest, more in notes:
        await served.schedule(rest, pattern, b"old", more=more)
    await instant_reached(due, CLOCK.now)
    for rest, more in notes:
        await served.schedule(rest, pattern, b"new", more={**more, "X-Note": "edited"})
    fires = await served.wait_for("out", len(notes))
    assert {(fire.body, fire_time_of(fire)) for fire in fires} == {(b"old", due)}
    assert len({header_value(fire.block, b"Nats-Scheduler") for fire in fires}) == len(fires) == len(notes)
    for rest, _more in notes:
        await served.left(rest, [b"new"])
    assert served.of(FireLostToReplacement) == []


# -- done within a time ------------------------------------------------------------------------------------------------


async def test_a_fire_not_acknowledged_in_time_is_reported_after_its_end(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    """One of two is acknowledged; the other one's time is over while no sidecar runs, and a third lies above it."""
    stream, heard = FlaggedStream(account, stream_name), await HeardAdvisories.of(account.connection, stream_name)
    within = {"X-Done-Within": "2s", "X-Consumer": WORKERS}
    async with sidecar_on(emulated_server.url) as running:
        await account.create(stream_name)
        worker = await working(stream)
        await running.ready(stream_name)
        for rest, due in (("s.done", "2020-01-01T00:00:00Z"), ("s.left", "2020-01-02T00:00:00Z")):
            await stream.schedule(rest, f"@at {due}", target="out.jobs", more=within)
            await worker.takes(1 if rest == "s.done" else 2)
        done, left = worker.taken
        await worker.acknowledge(done)
        await stream.schedule(
            "s.later", "@at 2020-01-03T00:00:00Z", target="out.jobs", more={**within, "X-Done-Within": "1h"}
        )
        await worker.takes(3)
        for rest in ("s.done", "s.left", "s.later"):
            await stream.gone(rest)
    deadline = worker.stored_at(left) + 2 * SECOND
    await eventually(lambda: CLOCK.now() > deadline)
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(stream_name)
        [event] = await running.reported(stream_name, FireNotDone)
        assert running.metrics.value("fires_not_done", stream=stream_name) == 1
    assert (event.schedule, event.stored_as, event.within) == (stream.subject("s.left"), left, 2 * SECOND)
    advisory = await heard.first("fire_not_done")
    assert (advisory["stored_as"], advisory["within"], advisory["reason"]) == (left, "2s", "it is unfinished")
    await account.api.call(f"STREAM.DELETE.{stream_name}")


# -- pausing ---------------------------------------------------------------------------------------------------------


async def republished(stream: FlaggedStream, rest: str, *, paused: bool, rollup: bool = False) -> int:
    """Store the message on a subject again, paused or resumed, and with a roll-up if the server has to be asked."""
    (message,) = (await stream.messages(rest))[-1:]
    block = (paused_block if paused else resumed_block)(message.block, ADR51)
    headers = dict(line.split(": ", 1) for line in block.decode().split("\r\n")[1:-2])
    headers.pop("Nats-Rollup", None)
    return await stream.publish(rest, {**headers, **({"Nats-Rollup": "sub"} if rollup else {})}, message.body or b"")


async def test_a_paused_schedule_stops_firing_and_a_resumed_one_goes_on(served: Served) -> None:
    await served.schedule("s", "@every 1s", b"body", more={"X-Note": "mine"})
    await served.wait_for("out", 1)
    await republished(served, "s", paused=True)
    assert await served.ended("s") is Ending.PAUSED
    await served.left("s", [b"body"])  # its older versions are purged
    before = await served.messages("out")
    await served.schedule("other", "@every 1s", target="other.out")
    await served.wait_for("other.out", 3)
    assert await served.messages("out") == before, "it fires nothing while others do"
    await republished(served, "s", paused=False)
    fires = await served.wait_for("out", len(before) + 1)
    assert fires[-1].body == b"body"
    assert b"X-" not in fires[-1].block, "a fire has neither the policy nor the state"


async def test_a_native_server_fires_no_paused_schedule_after_a_crash(
    start_server: StartServer,
) -> None:
    """Without the roll-up the server revives the active version when it builds its index anew."""
    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S", storage="file")
        stream = FlaggedStream(account, "S")
        await stream.schedule("s", "@every 1s")
        await stream.wait_for("out", 1)
        await republished(stream, "s", paused=True, rollup=True)
        before = await stream.messages("out")
    await server.kill()
    await server.restart()
    async with account_on(server.url) as account:
        stream = FlaggedStream(account, "S")
        await stream.schedule("other", "@every 1s", target="other.out")
        await stream.wait_for("other.out", 3)
        assert await stream.messages("out") == before
        words = ["ls", "S", "--json", "-s", server.url, "--no-context"]
        listed = json.loads((await asyncio.to_thread(CliRunner().invoke, main, words)).stdout)["schedules"]
        assert {one["subject"]: one["state"] for one in listed} == {"S.s": "paused", "S.other": "waiting"}
        await republished(stream, "s", paused=False)
        await stream.wait_for("out", len(before) + 1)
