"""Two sidecars answer for one account: each answers lists, and asks the other what only the other knows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.jetstream.errors import NoJetStreamError
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, Running, account_on, in_seconds, started_sidecar
from tests.harness.permissions import PASSWORD, Permission, permissions_of, shared_account, url_of
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, answered, ask

SCHEDULES = 20
ASKS = "nats_scheduler.v1.>"


@dataclass
class Pair:
    """Two sidecars that divide the stream `ORDERS`, and who asks them."""

    account: Account
    sidecars: tuple[Running, Running]

    @property
    def ids(self) -> tuple[str, str]:
        return self.sidecars[0].sidecar.instance, self.sidecars[1].sidecar.instance

    async def answer(self, endpoint: str, **request: Any) -> dict[str, Any]:
        return await answered(self.account.connection, endpoint, request)

    async def by(self, instance: str, endpoint: str, **request: Any) -> dict[str, Any]:
        """Ask until one of the sidecars answers, and not the other."""

        async def asked() -> dict[str, Any] | None:
            answer = await self.answer(endpoint, **request)
            return answer if answer["instance"] == instance else None

        return await eventually(asked, within_seconds=WAIT_SECONDS, describe=f"{instance} answers {endpoint}")

    async def is_divided(self) -> bool:
        """Return whether both sidecars know that both hold shards, and hold all schedules."""
        for instance in self.ids:
            found = await ask(self.account.connection, f"health.get.{instance}")
            if isinstance(found, Refusal) or not found["ready"]:
                return False
        both = [await ask(self.account.connection, "streams.list") for _ in range(8)]
        seen = {one["instance"]: one["streams"] for one in both if isinstance(one, dict)}
        return set(seen) == set(self.ids) and all(
            streams and streams[0]["holders"] == sorted(self.ids) and streams[0]["schedules"]["total"] == SCHEDULES
            for streams in seen.values()
        )


@asynccontextmanager
async def pair_on(server: EmbeddedServer) -> AsyncIterator[Pair]:
    """Run a sidecar for each of the two users, with schedules that are due in hours."""
    first, second = (ConnectionSettings(servers=(url_of(server.url, f"sidecar-{n}"),)) for n in range(2))
    async with (
        account_on(url_of(server.url, "admin-0")) as account,
        started_sidecar(first) as one,
        started_sidecar(second) as other,
    ):
        for running in (one, other):
            await eventually(running.sidecar.serving.is_set, within_seconds=WAIT_SECONDS, describe="both serve")
        await account.create("ORDERS", subjects=["orders.>"])
        for number in range(SCHEDULES):
            headers = {"Nats-Schedule": f"@at {in_seconds(3600 + number)}", "Nats-Schedule-Target": "orders.out"}
            await account.publish(f"orders.s.{number}", headers)
        pair = Pair(account, (one, other))
        await eventually(pair.is_divided, within_seconds=WAIT_SECONDS, describe="both hold shards of ORDERS")
        yield pair


def without(taken: str) -> list[Permission]:
    """Return what a sidecar may do on 2.11, but for publishing to some subjects."""
    return [one for one in permissions_of("2.11") if (one.act, one.subject) != ("publish", taken)]


async def test_both_answer_and_what_only_the_holder_knows_is_asked_of_it(start_server: StartServer) -> None:
    server = await start_server(config=shared_account([permissions_of("2.11")] * 2))
    async with pair_on(server) as pair:
        pages = [
            [
                schedule["subject"]
                for schedule in (await pair.by(instance, "schedules.list", stream="ORDERS"))["schedules"]
            ]
            for instance in pair.ids
        ]
        assert pages == [[f"orders.s.{number}" for number in range(SCHEDULES)]] * 2
        holders = set()
        for number in range(SCHEDULES):
            known = await pair.answer("schedules.get", stream="ORDERS", subject=f"orders.s.{number}")
            assert (known["holder_answered"], known["instance"]) == (True, known["holder"])
            holders.add(known["holder"])
        assert holders == set(pair.ids)
        config = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "allow_msg_schedules": True}
        await pair.account.api.call("STREAM.UPDATE.ORDERS", {**config, "max_msg_size": 500})
        shards = pair.sidecars[0].sidecar.served["ORDERS"].shards
        subject = next(s for s in (f"orders.large.{n}" for n in range(1_000)) if shard_of(s) in shards)
        headers = {"Nats-Schedule": f"@at {in_seconds(0.1)}", "Nats-Schedule-Target": "orders.out"}
        await pair.account.publish(subject, headers, b"x" * 350)

        async def failing() -> list[str]:
            """Return what the sidecar lists that does not fire it."""
            page = await pair.by(pair.ids[1], "schedules.list", stream="ORDERS", state="failing")
            return [one["subject"] for one in page["schedules"]]

        assert await eventually(failing, within_seconds=WAIT_SECONDS, describe="it fails") == [subject]
        known = await pair.answer("schedules.get", stream="ORDERS", subject=subject)
        assert (known["instance"], known["schedule"]["state"]) == (pair.ids[0], "failing")


async def test_an_answer_says_which_holder_did_not_answer(start_server: StartServer) -> None:
    server = await start_server(config=shared_account([permissions_of("2.11"), without(ASKS)]))
    async with pair_on(server) as pair:
        whole, partly = pair.ids
        assert (await pair.by(whole, "schedules.list", stream="ORDERS"))["unanswered"] == []
        page = await pair.by(partly, "schedules.list", stream="ORDERS")
        assert (page["unanswered"], len(page["schedules"])) == ([whole], SCHEDULES)
        shards = pair.sidecars[0].sidecar.served["ORDERS"].shards
        subject = next(s for s in (f"orders.s.{n}" for n in range(SCHEDULES)) if shard_of(s) in shards)
        known = await pair.by(partly, "schedules.get", stream="ORDERS", subject=subject)
        assert (known["holder"], known["holder_answered"], known["schedule"]["subject"]) == (whole, False, subject)
        told = await pair.sidecars[1].told_of("permission_denied", subject=ASKS)
        assert told == {"operation": "publish", "subject": ASKS}
        assert len(pair.sidecars[1].told("permission_denied")) == 1, "once, however often it is asked"


async def test_allowed_responses_are_enough_to_answer(start_server: StartServer) -> None:
    granted = [one for one in permissions_of("2.11") if (one.act, one.subject) != ("publish", "_INBOX.>")]
    config = shared_account([granted]).replace("permissions: {", "permissions: { allow_responses: true,")
    server = await start_server(config=config)
    url = server.url.replace("nats://", f"nats://sidecar-0:{PASSWORD}@")
    async with (
        started_sidecar(ConnectionSettings(servers=(url,))) as running,
        account_on(url_of(server.url, "admin-0")) as account,
    ):
        await eventually(running.sidecar.serving.is_set, within_seconds=WAIT_SECONDS, describe="it serves")
        assert (await answered(account.connection, "health.get"))["instance"] == running.sidecar.instance
        assert running.told("permission_denied") == []


async def test_the_service_comes_back_with_the_next_connection(start_server: StartServer) -> None:
    server = await start_server()
    async with (
        started_sidecar(ConnectionSettings(servers=(server.url,))) as running,
        account_on(server.url) as account,
    ):
        await eventually(running.sidecar.serving.is_set, within_seconds=WAIT_SECONDS, describe="it serves")
        before = await answered(account.connection, "health.get")
        assert running.sidecar.connection is not None
        running.sidecar.connection.write(b"PUB " + b"x" * 5000 + b" 0\r\n\r\n")  # the server hangs up over it
        await running.told_of("connection_lost")
        await eventually(running.sidecar.serving.is_set, within_seconds=WAIT_SECONDS, describe="it serves again")
        await running.healthy()
        after = await answered(account.connection, "health.get")
        assert (after["instance"], after["ready"]) == (before["instance"], True)


async def test_the_service_can_be_switched_off(start_server: StartServer) -> None:
    server = await start_server()
    connection = ConnectionSettings(servers=(server.url,))
    async with started_sidecar(connection, service=False) as running, account_on(server.url) as account:
        await eventually(running.sidecar.serving.is_set, within_seconds=WAIT_SECONDS, describe="it serves")
        with pytest.raises(NoJetStreamError):  # nothing subscribes to that subject
            await account.connection.request("nats_scheduler.v1.health.get")
