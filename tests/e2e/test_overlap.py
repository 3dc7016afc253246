"""Fires that come due while the fire before is unfinished, on real servers with real consumers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.engine.events import FinishUnknown, FiresSkipped, FireTimedOut
from nats_scheduler.engine.views.figures import State
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.conftest import StartServer
from tests.e2e.conftest import Served
from tests.harness.account import CLOCK, WAIT_SECONDS, Account, Running, account_on, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.harness.workers import Worker

RETENTIONS = pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
WORKERS = "workers"


def headers(overlap: str, target: str, **more: str) -> dict[str, str]:
    policies = {"Overlap": overlap, "Consumer": WORKERS, **more}
    named = {f"Nats-Schedule-X-{name}": value for name, value in policies.items()}
    return {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": target, **named}


async def begun(account: Account, name: str) -> Worker:
    """Create the worker of the fires of a stream, and a consumer that keeps its schedules where that needs one."""
    keeper = Worker(account.connection, account.api, name, "keeper")
    await keeper.begin(filter_subject=f"{name}.s.*")
    worker = Worker(account.connection, account.api, name, WORKERS)
    await worker.begin(filter_subject=f"{name}.out")
    worker.pull(1_000)
    return worker


@asynccontextmanager
async def worked_on(account: Account, running: Running, name: str, retention: str) -> AsyncIterator[Worker]:
    """Create a stream, and a worker of its fires, and wait until the stream is served."""
    await account.create(name, retention=retention)
    worker = await begun(account, name)
    await running.ready(name)
    yield worker
    await account.api.call(f"STREAM.DELETE.{name}")


async def reported(running: Running, name: str, kind: type[Any], count: int = 1) -> list[Any]:
    """Wait until `count` events of a kind were reported."""
    await eventually(
        lambda: len(running.of(name, kind)) >= count,
        within_seconds=WAIT_SECONDS,
        describe=lambda: f"{count} {kind.__name__} among {running.events[-5:]}",
    )
    return running.of(name, kind)


@RETENTIONS
async def test_skip_sends_the_next_fire_once_the_one_before_is_acknowledged(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    async with (
        sidecar_on(emulated_server.url) as running,
        worked_on(account, running, stream_name, retention) as worker,
    ):
        await account.publish(f"{stream_name}.s.one", headers("skip", f"{stream_name}.out"))
        [first] = await worker.takes(1)
        await reported(running, stream_name, FiresSkipped, 2)
        before = CLOCK.now()
        assert worker.taken == [first]
        await worker.acknowledge(first)
        second = (await worker.takes(2))[1]
        assert worker.stored_at(second) > before
        skipped = running.of(stream_name, FiresSkipped)
        assert sum(event.count for event in skipped) >= 2
        assert running.metrics.value("fires_skipped", stream=stream_name, policy="X-Overlap") >= 2


@RETENTIONS
async def test_queue_sends_one_fire_once_the_one_before_is_acknowledged(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    async with (
        sidecar_on(emulated_server.url) as running,
        worked_on(account, running, stream_name, retention) as worker,
    ):
        await account.publish(f"{stream_name}.s.one", headers("queue", f"{stream_name}.out"))
        [first] = await worker.takes(1)
        served = running.sidecar.served[stream_name]

        def waits() -> bool:
            listed = served.engine.view().schedule(f"{stream_name}.s.one", CLOCK.now())
            return listed is not None and listed.state is State.UNFINISHED

        await eventually(waits, within_seconds=WAIT_SECONDS, describe="it waits for its fire before")
        before = CLOCK.now()
        assert worker.taken == [first]
        await worker.acknowledge(first)
        second = (await worker.takes(2))[1]
        assert worker.stored_at(second) > before


@RETENTIONS
async def test_a_fire_that_waits_is_sent_by_the_next_sidecar(
    emulated_server: EmbeddedServer, account: Account, stream_name: str, retention: str
) -> None:
    """Fires of another schedule are stored on the same target, above the one that is unfinished."""
    name = stream_name
    other = {**headers("allow", f"{name}.out"), "Nats-Schedule": "@every 2s"}
    async with sidecar_on(emulated_server.url) as running:
        await account.create(name, retention=retention)
        worker = await begun(account, name)
        await running.ready(name)
        await account.publish(f"{name}.s.one", headers("queue", f"{name}.out"))
        [first] = await worker.takes(1)
        await account.publish(f"{name}.s.other", other)
        await worker.takes(2)
    before = CLOCK.now()
    async with sidecar_on(emulated_server.url) as running:
        await running.ready(name)
        taken = await worker.takes(len(worker.taken) + 1)
        assert [one for one in taken if worker.schedule_of(one) == f"{name}.s.one"] == [first]
        for sequence in taken:
            await worker.acknowledge(sequence)
        again = await eventually(
            lambda: [one for one in worker.taken if worker.schedule_of(one) == f"{name}.s.one" and one != first],
            within_seconds=WAIT_SECONDS,
            describe="the fire that waited",
        )
        assert worker.stored_at(again[0]) > before
    await account.api.call(f"STREAM.DELETE.{name}")


async def test_a_fire_that_nobody_finishes_times_out(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    worker = Worker(served.account.connection, served.account.api, served.name, WORKERS)
    await worker.begin(filter_subject=served.subject("out"))
    worker.pull(10)
    await served.publish("s", headers("queue", served.subject("out"), Timeout="2500ms"))
    first, second = (await worker.takes(2))[:2]
    assert worker.stored_at(second) >= worker.stored_at(first) + 2_500 * MILLISECOND - SECOND // 4
    [event, *_] = await reported(served.sidecar, served.name, FireTimedOut)
    assert event.unfinished == first
    advisory = await heard.first("fire_timed_out")
    assert (advisory["schedule"], advisory["stored_as"]) == (served.subject("s"), first)
    assert (await heard.first("fires_skipped"))["policy"] == "X-Overlap: queue"


async def test_a_consumer_that_is_missing_is_reported_and_awaited(served: Served) -> None:
    heard = HeardAdvisories(served.account.connection, served.name)
    await served.publish("s", headers("queue", served.subject("out")))
    advisory = await heard.first("finish_unknown")
    assert advisory["reason"] == f"stream {served.name} has no consumer 'workers'"
    [first] = await served.wait_for("out")
    worker = Worker(served.account.connection, served.account.api, served.name, WORKERS)
    await worker.begin(filter_subject=served.subject("out"))
    worker.pull(10)
    await worker.takes(1)
    await worker.acknowledge(first.sequence)
    await served.wait_for("out", 2)
    assert len(served.sidecar.of(served.name, FinishUnknown)) == 1


USERS = """
authorization {{ users: [
  {{ user: operator, password: operator }},
  {{ user: sidecar, password: sidecar, permissions: {{ publish: {{ deny: "{denied}" }} }} }}
] }}
"""


@pytest.mark.parametrize(
    ("denied", "retention"),
    [("$JS.API.CONSUMER.INFO.S.workers", "limits")],
)
async def test_a_question_that_is_not_permitted_holds_that_schedule_back_and_no_other(
    start_server: StartServer, denied: str, retention: str
) -> None:
    server = await start_server(V2_11, config=USERS.format(denied=denied))
    async with (
        account_on(server.url.replace("//", "//operator:operator@")) as account,
        sidecar_on(server.url.replace("//", "//sidecar:sidecar@")) as running,
    ):
        heard = HeardAdvisories(account.connection)
        await account.create("S", retention=retention)
        await running.ready("S")
        await account.publish("S.s", headers("skip", "S.out"))
        await account.publish("S.timed", headers("skip", "S.timed-out", Timeout="3s"))
        await account.publish("S.other", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.others"})
        advisory = await heard.first("finish_unknown")
        assert denied in advisory["reason"]
        await account.wait_for("S", "S.others", 3)
        await account.wait_for("S", "S.timed-out", 2)
        assert len(await account.messages("S", "S.out")) == 1
        assert running.told("permission_denied")
