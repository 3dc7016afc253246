"""The held and listed schedules follow what is stored, also if nobody asked for a removal, and nobody saw it."""

import pytest

from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ALL
from nats_scheduler.runtime import discovery, removals
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FLAGGED
from tests.harness.permissions import Permission, accounts, permissions_of, url_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it looked at once what was removed."""
    monkeypatch.setattr(removals, "FIRST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(removals, "SHORTEST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(discovery, "LIST_INTERVAL_SECONDS", 0.3)


def subjects(*numbers: int) -> set[str]:
    return {f"S.s.{number}" for number in numbers}


async def listed_are(running: Running, expected: set[str]) -> None:
    def held() -> bool:
        view = running.sidecar.served["S"].engine.view()
        rejected = {one.subject for one in done(view.rejected_page(ALL, 1_000, "")).messages}
        return rejected | {one.subject for one in view.page(0, limit=None).answer().schedules} == expected

    await eventually(held, describe=f"what is listed is what is stored: {sorted(expected)}")


async def some_are_removed(account: Account, running: Running) -> None:
    """Store schedules that are far and near, rejected and paused ones, and remove some of each."""
    await running.ready("S")
    patterns = [f"@at {in_seconds(7_000)}", "@every 3h", f"@at {in_seconds(90)}", "every day"]
    for number, pattern in enumerate(patterns * 3):
        await account.publish(f"S.s.{number}", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "S.out"})
    await listed_are(running, subjects(*range(12)))
    await account.api.call("STREAM.PURGE.S", {"filter": "S.s.1"})
    for sequence in (3, 4, 5):
        await account.api.call("STREAM.MSG.DELETE.S", {"seq": sequence})
    await listed_are(running, subjects(0, *range(5, 12)))


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_what_is_removed_on_request_is_listed_no_more(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S")
        await some_are_removed(account, running)
        await account.api.call("STREAM.PURGE.S", {"keep": 2})
        await listed_are(running, subjects(10, 11))
        await account.api.call("STREAM.PURGE.S", {"filter": None})
        await listed_are(running, set())


async def test_a_schedule_that_a_command_removes_is_gone_at_once(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "FIRST_WAIT_SECONDS", 3_600.0)
    monkeypatch.setattr(discovery, "LIST_INTERVAL_SECONDS", 3_600.0)
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S")
        await running.ready("S")
        for number, pattern in enumerate([f"@at {in_seconds(7_000)}", "@every 3h", "every day", "@every 3h"]):
            await account.publish(f"S.s.{number}", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "S.out"})
        await listed_are(running, subjects(0, 1, 2, 3))
        for number in range(3):
            await account.api.call("STREAM.PURGE.S", {"filter": f"S.s.{number}", "seq": number + 2})
        await account.api.call("STREAM.PURGE.S", {"filter": "S.s.3", "seq": 3})  # removes nothing
        await listed_are(running, subjects(3))


async def test_what_a_request_that_is_not_seen_removes_is_listed_no_more(start_server: StartServer) -> None:
    grant = [one for one in permissions_of("2.11") if "PURGE" not in one.subject or one.act == "publish"]
    grant = [one for one in grant if "MSG.DELETE" not in one.subject or one.act == "publish"]
    targets = Permission("publish", "S.>", ("yes",) * 4)
    server = await start_server(V2_11, config=accounts([[targets, *grant]]))
    admin, user = url_of(server.url, "admin-0"), url_of(server.url, "sidecar-0")
    async with account_on(admin) as account, sidecar_on(user) as running:
        await account.create("S", metadata=FLAGGED)
        await some_are_removed(account, running)


@pytest.mark.parametrize("limit", [{"max_msgs": 20}, {"max_age": 3 * SECOND}], ids=str)
async def test_what_a_limit_of_the_stream_removes_is_listed_no_more(
    start_server: StartServer, limit: dict[str, int]
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S", **limit)
        await running.ready("S")
        for number in range(60):
            pattern = ["every day", "@every 3h"][number % 2]
            await account.publish(f"S.s.{number}", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "S.out"})
        await listed_are(running, subjects(*range(40, 60)) if "max_msgs" in limit else set())
