"""The questions of a status page on a real server: the last hour, the last fires, and the next hour."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.permissions import DOCUMENT, Permission, permissions_of, shared_account, url_of
from tests.harness.waiting import PATIENCE_SECONDS, eventually
from tests.service.asking import Asked, Refusal, answered, at

ENDPOINTS = (
    *("streams.list", "activity.list", "fires.recent", "timeline.list", "failures.list", "instances.list"),
    "health.get",
)
"""What an open status page asks."""


@pytest.fixture
async def watched(start_server: StartServer) -> AsyncIterator[Asked]:
    server = await start_server()
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        watched = Asked(account, running)
        for name in ("A", "B"):
            await watched.create(name)
        yield watched


async def answer_with(watched: Asked, endpoint: str, count: int, **request: Any) -> dict[str, Any]:
    """Ask until the minutes of the answer, or its fires, are this many fires."""

    async def found() -> dict[str, Any] | None:
        answer = await watched.answer(endpoint, **request)
        fires = len(answer["fires"]) if "fires" in answer else sum(one["fires"] for one in answer["minutes"])
        return answer if fires == count else None

    return await eventually(found, describe=f"{count} fires in {endpoint} {request}")


async def test_the_fires_of_the_last_hour_come_newest_first(watched: Asked) -> None:
    for subject in ("A.s.1", "B.s.1", "A.t.2"):
        await watched.schedule(subject, f"@at {in_seconds(0.1)}")
        await answer_with(watched, "fires.recent", 1, filter=subject)
    recent = await answer_with(watched, "fires.recent", 3)
    assert [one["schedule"] for one in recent["fires"]] == ["A.t.2", "B.s.1", "A.s.1"]
    first = recent["fires"][2]
    assert (first["stream"], first["target"], first["sequence"], first["overdue"]) == ("A", "A.out", 2, False)
    assert first["lateness_nanoseconds"] >= 0
    await answer_with(watched, "fires.recent", 2, stream="A")
    await answer_with(watched, "fires.recent", 1, stream="A", filter="A.t.>")

    activity = await answer_with(watched, "activity.list", 3)
    assert (activity["bounds_seconds"], activity["unanswered"]) == (list(LATENESS_BUCKETS_SECONDS), [])
    assert len(activity["minutes"]) == 60
    assert activity["minutes"] == sorted(activity["minutes"], key=lambda one: one["from"])
    expected = "stream 'C' is not served: one that streams.list names is expected"
    assert await watched.refusal("activity.list", stream="C") == Refusal(404, expected)


async def test_the_fires_of_the_next_hour_are_answered(watched: Asked) -> None:
    await watched.schedule("A.s.1", at(0.5))
    await watched.schedule("A.s.2", f"@at {in_seconds(7000)}")
    await watched.schedule("B.every", "@every 40m")
    answer = await answer_with(watched, "timeline.list", 2)
    assert answer["complete"]
    assert len(answer["minutes"]) == 60
    assert [one["subject"] for one in answer["soonest"]] == ["A.s.1", "B.every", "A.s.2"]
    alone = await answer_with(watched, "timeline.list", 1, stream="B")
    assert [one["subject"] for one in alone["soonest"]] == ["B.every"]
    assert (await watched.refusal("timeline.list", stream="C")).code == 404


async def test_the_subjects_of_the_document_are_enough_to_watch(start_server: StartServer) -> None:
    (sentence,) = re.findall(r"^- These subjects are enough to watch.*\n(.*)$", DOCUMENT.read_text("utf-8"), re.M)
    subjects = re.findall(r"`([^`]+)`", sentence)
    assert subjects == [f"nats_scheduler.v1.{endpoint}" for endpoint in ENDPOINTS]
    may_ask = [Permission("publish", subject, ()) for subject in subjects]
    grants = [permissions_of("2.11"), [*may_ask, Permission("subscribe", "_INBOX.>", ())]]
    server = await start_server(config=shared_account(grants))
    async with (
        sidecar_on(url_of(server.url, "sidecar-0")) as running,
        account_on(url_of(server.url, "admin-0")) as admin,
        account_on(url_of(server.url, "sidecar-1")) as watcher,
    ):
        await Asked(admin, running).create("A")
        await eventually(lambda: admin.api.stream("nats_scheduler_failures"))
        for endpoint in ENDPOINTS:
            assert (await answered(watcher.connection, endpoint))["instance"] == running.sidecar.instance
        with pytest.raises(ForbiddenError):
            await watcher.connection.request("nats_scheduler.v1.schedules.list", b"{}", deadline=PATIENCE_SECONDS)
