"""Failures are kept in a stream, once, within its limits; nothing depends on that stream."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.runtime import failure_keeping
from nats_scheduler.schedule.instants import HOUR
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.permissions import accounts, permissions_of, url_of
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually

STREAM = "nats_scheduler_failures"
REJECTED = "nats_scheduler.advisory.schedule_rejected"


@pytest.fixture
def checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_keeping, "FAILURES_CHECK_INTERVAL_SECONDS", 0.05)


@asynccontextmanager
async def serving(account: Account, url: str, **settings: Any) -> AsyncIterator[Running]:
    """Make the stream S, and run a sidecar that serves it."""
    async with sidecar_on(url, **settings) as running:
        await account.create("S")
        await running.ready("S")
        yield running


def heard_by(account: Account) -> list[dict[str, Any]]:
    """Return a list to which the advisories about rejected schedules are added that subscribers receive."""
    heard: list[dict[str, Any]] = []
    account.connection.subscribe(f"{REJECTED}.>", lambda _s, _r, _h, body: heard.append(json.loads(body)))
    return heard


async def reject(account: Account, subject: str, x: str = "") -> int:
    """Store an invalid schedule."""
    headers = {f"{x}Nats-Schedule": "@every soon", f"{x}Nats-Schedule-Target": "S.out"}
    return await account.publish(subject, headers)


async def kept(account: Account, subject: str = "nats_scheduler.advisory.>", count: int = 1) -> list[dict[str, Any]]:
    """Wait until `count` advisories are stored, and return the bodies of all."""

    async def enough() -> list[dict[str, Any]] | None:
        if await account.api.stream(STREAM) is None:
            return None
        found = [json.loads(message.body or b"") for message in await account.messages(STREAM, subject)]
        return found if len(found) >= count else None

    return await eventually(enough, describe=f"{count} advisories on {subject}")


async def fires(account: Account) -> None:
    """Expect a fire, after everything that was reported before."""
    await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": "S.fired"})
    await account.wait_for("S", "S.fired")


async def counts_lost(running: Running, count: int) -> None:
    """Wait until `count` advisories are counted as not kept, and expect that they were reported once."""
    await eventually(
        lambda: running.metrics.value("failures_not_kept") == count,
        describe=lambda: f"{count} are not kept: {running.metrics.value('failures_not_kept')}",
    )
    assert len(running.told("failures_not_kept")) == 1


@pytest.mark.parametrize(("version", "x"), [(V2_11, ""), (V2_15, "X-")])
async def test_what_subscribers_receive_is_what_is_kept(start_server: StartServer, version: str, x: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, serving(account, server.url):
        heard = heard_by(account)
        sequence = await reject(account, "S.wrong", x)
        found = await kept(account, f"{REJECTED}.S.S.wrong")
        await eventually(lambda: found == heard)
        assert [one["seq"] for one in found] == [sequence]


async def test_after_a_restart_and_with_two_sidecars_it_is_kept_once(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard = heard_by(account)
        async with serving(account, server.url):
            await reject(account, "S.wrong")
            await kept(account)
        async with sidecar_on(server.url) as one, sidecar_on(server.url) as two:
            await one.ready("S")
            await two.ready("S")
            await eventually(lambda: len(heard) >= 2)
            for number in range(20):
                await reject(account, f"S.more.{number}")
            found = await kept(account, count=21)
            await fires(account)
            assert await kept(account) == found
            assert len({one["schedule"] for one in found}) == len(found) == 21


@pytest.mark.usefixtures("checked_often")
async def test_the_last_few_of_each_schedule_are_kept(
    start_server: StartServer,
) -> None:
    server = await start_server(V2_11)
    limits = {"failures_per_schedule": 2, "failures_max_age": HOUR // 2, "failures_max_bytes": 100_000}
    async with account_on(server.url) as account, serving(account, server.url, **limits):
        sequences = [await reject(account, "S.wrong") for _ in range(5)]

        async def last_two() -> bool:
            return [one["seq"] for one in await kept(account)] == sequences[-2:]

        await eventually(last_two)
        config = (await account.api.stream(STREAM))["config"]
        assert (config["max_age"], config["max_bytes"], config["max_msgs_per_subject"]) == (HOUR // 2, 100_000, 2)
        assert config["duplicate_window"] == HOUR // 2
        await account.api.call(f"STREAM.DELETE.{STREAM}")
        await eventually(lambda: account.api.stream(STREAM), describe="the stream is created again")


async def test_without_it_nothing_is_created_and_advisories_are_published(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, serving(account, server.url, keep_failures=False):
        heard = heard_by(account)
        await reject(account, "S.wrong")
        await eventually(lambda: heard)
        assert await account.api.stream(STREAM) is None


async def test_a_missing_permission_is_reported_once_and_everything_fires(start_server: StartServer) -> None:
    missing = f"$JS.API.STREAM.CREATE.{STREAM}"
    grant = [row for row in permissions_of("2.11") if row.subject not in (missing, "nats_scheduler.advisory.>")]
    server = await start_server(V2_11, config=accounts([grant]))
    async with (
        account_on(url_of(server.url, "admin-0")) as account,
        sidecar_on(url_of(server.url, "sidecar-0")) as running,
    ):
        await account.create("S", subjects=["S.>", "orders.>"])
        await running.ready("S")
        for number in range(3):
            await reject(account, f"orders.wrong.{number}")
        headers = {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": "orders.out"}
        await account.publish("orders.s", headers)
        await account.wait_for("S", "orders.out")
        for subject in (missing, "nats_scheduler.advisory.>"):
            await running.told_of("permission_denied", subject=subject)
        denied = [one["subject"] for one in running.told("permission_denied")]
        assert sorted(denied) == sorted([missing, "nats_scheduler.advisory.>"])
        assert running.told("failures_not_kept") == []


@pytest.mark.usefixtures("checked_often")
async def test_a_refused_advisory_is_reported_once(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        config = {"name": STREAM, "subjects": ["nats_scheduler.advisory.>"], "max_msg_size": 20}
        await account.api.create_stream(config)
        async with serving(account, server.url) as running:
            await reject(account, "S.wrong")
            assert "(10054)" in (await running.told_of("failures_not_kept"))["reason"]
            for number in range(3):
                await reject(account, f"S.wrong.{number}")
            await fires(account)
            await counts_lost(running, 4)


async def test_a_stream_of_the_user_is_used_as_it_is_or_reported_and_left(
    start_server: StartServer,
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create(STREAM, subjects=["other"], allow_msg_schedules=None)
        async with serving(account, server.url) as running:
            assert "another one" in (await running.told_of("failures_not_kept"))["reason"]
            await fires(account)
        assert (await account.api.stream(STREAM))["config"]["subjects"] == ["other"]
        await account.api.call(f"STREAM.DELETE.{STREAM}")
        await account.create("MINE", subjects=["nats_scheduler.>"], allow_msg_schedules=None)
        async with sidecar_on(server.url, failures_stream="MINE") as running:
            await running.ready("S")
            await reject(account, "S.wrong")
            await account.wait_for("MINE", f"{REJECTED}.S.S.wrong")
            assert await account.api.stream(STREAM) is None
            assert running.told("failures_not_kept") == []
