"""The questions of a status page on a real server: the last hour, the last fires, and the next hour."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nats_scheduler.jetstream.errors import NotPermittedError
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from tests.bench.scenarios.watched import ENDPOINTS
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.permissions import DOCUMENT, Permission, permissions_of, shared_account, url_of
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, answered, ask

Watched = tuple[Running, Account]


@pytest.fixture
async def watched(start_server: StartServer) -> AsyncIterator[Watched]:
    server = await start_server()
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        for name in ("A", "B"):
            await account.create(name)
            await running.ready(name)
        yield running, account


async def publish(account: Account, subject: str, pattern: str) -> None:
    headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"{subject.partition('.')[0]}.out"}
    await account.publish(subject, headers)


async def answer_with(account: Account, endpoint: str, count: int, **request: Any) -> dict[str, Any]:
    """Ask until the minutes of the answer, or its fires, are this many fires."""

    async def found() -> dict[str, Any] | None:
        answer = await answered(account.connection, endpoint, request)
        fires = len(answer["fires"]) if "fires" in answer else sum(one["fires"] for one in answer["minutes"])
        return answer if fires == count else None

    return await eventually(found, within_seconds=WAIT_SECONDS, describe=f"{count} fires in {endpoint} {request}")


async def test_the_fires_of_the_last_hour(watched: Watched) -> None:
    running, account = watched
    for subject in ("A.s.1", "A.s.2", "B.s.1"):
        await publish(account, subject, f"@at {in_seconds(0.1)}")
    answer = await answer_with(account, "activity.list", 3)
    assert (answer["bounds_seconds"], answer["unanswered"]) == (list(LATENESS_BUCKETS_SECONDS), [])
    assert len(answer["minutes"]) == 60
    assert answer["minutes"] == sorted(answer["minutes"], key=lambda one: one["from"])
    await answer_with(account, "activity.list", 2, stream="A")
    read_back = await answer_with(account, "activity.list", 3, minutes=2)
    assert len(read_back["minutes"]) == 2
    alone = await answer_with(account, f"activity.list.{running.sidecar.instance}", 1, stream="B")
    assert alone["instance"] == running.sidecar.instance
    refused = await ask(account.connection, "activity.list", {"stream": "C"})
    assert refused == Refusal(404, "stream 'C' is not served: one that streams.list names is expected")


async def test_the_last_fires_are_listed_newest_first(watched: Watched) -> None:
    _running, account = watched
    for subject in ("A.s.1", "B.s.1", "A.t.2"):
        await publish(account, subject, f"@at {in_seconds(0.1)}")
        await answer_with(account, "fires.recent", 1, filter=subject)
    answer = await answer_with(account, "fires.recent", 3)
    assert [one["schedule"] for one in answer["fires"]] == ["A.t.2", "B.s.1", "A.s.1"]
    first = answer["fires"][2]
    assert (first["stream"], first["target"], first["sequence"], first["overdue"]) == ("A", "A.out", 2, False)
    assert first["lateness_nanoseconds"] >= 0
    await answer_with(account, "fires.recent", 2, stream="A")
    await answer_with(account, "fires.recent", 1, stream="A", filter="A.t.>")
    newest = await answer_with(account, "fires.recent", 2, limit=2)
    assert newest["fires"] == answer["fires"][:2]


async def test_the_fires_of_the_next_hour(watched: Watched) -> None:
    _running, account = watched
    await publish(account, "A.s.1", f"@at {in_seconds(1800)}")
    await publish(account, "A.s.2", f"@at {in_seconds(7000)}")
    await publish(account, "B.every", "@every 40m")
    answer = await answer_with(account, "timeline.list", 2)
    assert answer["complete"]
    assert len(answer["minutes"]) == 60
    assert [one["subject"] for one in answer["soonest"]] == ["A.s.1", "B.every", "A.s.2"]
    longer = await answer_with(account, "timeline.list", 4, minutes=120)
    assert [one["from"] for one in longer["minutes"]][:59] == [one["from"] for one in answer["minutes"]][:59]
    alone = await answer_with(account, "timeline.list", 1, stream="B")
    assert [one["subject"] for one in alone["soonest"]] == ["B.every"]
    refused = await ask(account.connection, "timeline.list", {"stream": "C"})
    assert isinstance(refused, Refusal)
    assert refused.code == 404


async def test_what_a_stream_fired_is_in_the_hour_after_it_is_gone(watched: Watched) -> None:
    running, account = watched
    await publish(account, "B.s.1", f"@at {in_seconds(0.1)}")
    await answer_with(account, "activity.list", 1)
    await account.api.call("STREAM.DELETE.B")
    await eventually(lambda: "B" not in running.sidecar.served, within_seconds=WAIT_SECONDS, describe="B is gone")
    await answer_with(account, "activity.list", 1, stream="B")
    await answer_with(account, "activity.list", 1)
    assert (await answer_with(account, "fires.recent", 1))["fires"][0]["stream"] == "B"
    assert (await answered(account.connection, "timeline.list"))["complete"]


def watching() -> list[str]:
    """Return the subjects that the document names as enough to watch."""
    (sentence,) = re.findall(r"^- These subjects are enough to watch.*\n(.*)$", DOCUMENT.read_text("utf-8"), re.M)
    return re.findall(r"`([^`]+)`", sentence)


async def test_the_subjects_of_the_document_are_enough_to_watch(start_server: StartServer) -> None:
    may_ask = [Permission("publish", subject, ()) for subject in watching()]
    grants = [permissions_of("2.11"), [*may_ask, Permission("subscribe", "_INBOX.>", ())]]
    server = await start_server(config=shared_account(grants))
    async with (
        sidecar_on(url_of(server.url, "sidecar-0")) as running,
        account_on(url_of(server.url, "admin-0")) as admin,
        account_on(url_of(server.url, "sidecar-1")) as watcher,
    ):
        await admin.create("A")
        await running.ready("A")
        await eventually(lambda: admin.api.stream("nats_scheduler_failures"), within_seconds=WAIT_SECONDS)
        for endpoint in ENDPOINTS:
            assert (await answered(watcher.connection, endpoint))["instance"] == running.sidecar.instance
        with pytest.raises(NotPermittedError):
            await watcher.connection.request("nats_scheduler.v1.schedules.list", b"{}", deadline=WAIT_SECONDS)
    assert watching() == [f"nats_scheduler.v1.{endpoint}" for endpoint in ENDPOINTS]
