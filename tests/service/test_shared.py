"""Two sidecars answer for one account: each asks the other what only that knows, and names it if it does not answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.jetstream.errors import NoJetStreamError
from nats_scheduler.runtime.stream_service import HANDOVER_OVERLAP_SECONDS
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, started_sidecar
from tests.harness.permissions import PASSWORD, permissions_of, shared_account, url_of
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

        return await eventually(asked, describe=f"{instance} answers {endpoint}")

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
async def pair_on(start_server: StartServer, *, first_is_asked: bool = True) -> AsyncIterator[Pair]:
    """Run two sidecars, with schedules that are due in hours; the second may be denied to ask the first."""
    whole = permissions_of("2.11")
    partly = [one for one in whole if (one.act, one.subject) != ("publish", ASKS)]
    server = await start_server(config=shared_account([whole, whole if first_is_asked else partly]))
    first, second = (ConnectionSettings(servers=(url_of(server.url, f"sidecar-{n}"),)) for n in range(2))
    async with (
        account_on(url_of(server.url, "admin-0")) as account,
        started_sidecar(first) as one,
        started_sidecar(second) as other,
    ):
        for running in (one, other):
            await eventually(running.sidecar.serving.is_set, describe="both serve")
        await account.create("ORDERS", subjects=["orders.>"])
        for number in range(SCHEDULES):
            headers = {"Nats-Schedule": f"@at {in_seconds(3600 + number)}", "Nats-Schedule-Target": "orders.out"}
            await account.publish(f"orders.s.{number}", headers)
        pair = Pair(account, (one, other))
        await eventually(pair.is_divided, describe="both hold shards of ORDERS")
        yield pair


async def test_both_answer_and_what_only_the_holder_knows_is_asked_of_it(start_server: StartServer) -> None:
    async with pair_on(start_server) as pair:
        for instance in pair.ids:
            page = await pair.by(instance, "schedules.list", stream="ORDERS")
            assert [one["subject"] for one in page["schedules"]] == [f"orders.s.{n}" for n in range(SCHEDULES)]
        holders = set()
        for number in range(SCHEDULES):
            known = await pair.answer("schedules.get", stream="ORDERS", subject=f"orders.s.{number}")
            assert (known["holder_answered"], known["instance"]) == (True, known["holder"])
            holders.add(known["holder"])
        assert holders == set(pair.ids)
        config = (await pair.account.api.stream("ORDERS"))["config"]
        await pair.account.api.update_stream({**config, "max_msg_size": 500})
        shards = pair.sidecars[0].sidecar.served["ORDERS"].shards
        subject = next(s for s in (f"orders.large.{n}" for n in range(1_000)) if shard_of(s) in shards)
        headers = {"Nats-Schedule": f"@at {in_seconds(0.1)}", "Nats-Schedule-Target": "orders.out"}
        await pair.account.publish(subject, headers, b"x" * 350)

        async def failing() -> list[str]:
            """Return what the sidecar lists that does not fire it."""
            page = await pair.by(pair.ids[1], "schedules.list", stream="ORDERS", state="failing")
            return [one["subject"] for one in page["schedules"]]

        assert await eventually(failing, describe="it fails") == [subject]
        known = await pair.answer("schedules.get", stream="ORDERS", subject=subject)
        assert (known["instance"], known["schedule"]["state"]) == (pair.ids[0], "failing")


async def test_allowed_responses_are_enough_to_answer(start_server: StartServer) -> None:
    granted = [one for one in permissions_of("2.11") if (one.act, one.subject) != ("publish", "_INBOX.>")]
    config = shared_account([granted]).replace("permissions: {", "permissions: { allow_responses: true,")
    server = await start_server(config=config)
    url = server.url.replace("nats://", f"nats://sidecar-0:{PASSWORD}@")
    async with (
        started_sidecar(ConnectionSettings(servers=(url,))) as running,
        account_on(url_of(server.url, "admin-0")) as account,
    ):
        await eventually(running.sidecar.serving.is_set, describe="it serves")
        assert (await answered(account.connection, "health.get"))["instance"] == running.sidecar.instance
        assert running.told("permission_denied") == []


async def test_the_service_comes_back_with_the_next_connection_unless_it_is_switched_off(
    start_server: StartServer,
) -> None:
    connection = ConnectionSettings(servers=((await start_server()).url,))
    async with account_on(connection.servers[0]) as account:
        async with started_sidecar(connection, service=False) as running:
            await eventually(running.sidecar.serving.is_set, describe="it serves")
            with pytest.raises(NoJetStreamError):  # nothing subscribes to that subject
                await account.connection.request("nats_scheduler.v1.health.get")
        async with started_sidecar(connection) as running:
            await eventually(running.sidecar.serving.is_set, describe="it serves")
            before = await answered(account.connection, "health.get")
            assert running.sidecar.connection is not None
            running.sidecar.connection.write(b"PUB " + b"x" * 5000 + b" 0\r\n\r\n")  # the server hangs up over it
            await running.told_of("connection_lost")
            await eventually(running.sidecar.serving.is_set, describe="it serves again")

            async def is_back() -> bool:
                after = await answered(account.connection, "health.get")
                return (after["instance"], after["ready"]) == (before["instance"], True)

            await eventually(is_back, describe="the same instance is ready again")


FIRES = 24
WHEN_DIVIDED = HANDOVER_OVERLAP_SECONDS + 1
"""Seconds from when both know who holds what until only the holder fires."""


async def fire(pair: Pair) -> None:
    """Let both sidecars fire, and wait until they have counted it.

    While shards change hands, both fire for them, and one of them may store all fires: these are due after that.
    """
    headers = {"Nats-Schedule": f"@at {in_seconds(WHEN_DIVIDED)}", "Nats-Schedule-Target": "orders.out"}
    for number in range(FIRES):
        await pair.account.publish(f"orders.now.{number}", headers)

    async def are_counted() -> bool:
        parts = [await alone(pair, instance) for instance in pair.ids]
        stored = sum(fires_in(minutes) for minutes, _recent in parts)
        return stored == len({number for _minutes, recent in parts for number in in_order(recent)}) == FIRES

    await eventually(are_counted, describe=f"{FIRES} fires are counted")


async def alone(pair: Pair, instance: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what one sidecar did: its minutes, and its last fires."""
    activity = await answered(pair.account.connection, f"activity.list.{instance}")
    recent = await answered(pair.account.connection, f"fires.recent.{instance}", {"limit": 200})
    assert (activity["instance"], activity["unanswered"]) == (instance, [])
    return activity["minutes"], recent["fires"]


def fires_in(minutes: list[dict[str, Any]]) -> int:
    return sum(one["fires"] for one in minutes)


def totals(minutes: list[dict[str, Any]]) -> tuple[list[int], int]:
    """Return the histogram of all minutes, and the greatest lateness."""
    columns = zip(*(one["lateness"] for one in minutes), strict=True)
    return [sum(column) for column in columns], max(one["lateness_max_nanoseconds"] for one in minutes)


def in_order(fires: list[dict[str, Any]]) -> list[int]:
    return [one["sequence"] for one in fires]


async def test_the_minutes_and_the_last_fires_of_both_are_added_up_as_long_as_both_are_there(
    start_server: StartServer,
) -> None:
    async with pair_on(start_server) as pair:
        await fire(pair)
        parts = [await alone(pair, instance) for instance in pair.ids]
        assert all(fires_in(minutes) and recent for minutes, recent in parts), "each of them fired"

        async def add_up() -> bool:
            parts = [await alone(pair, instance) for instance in pair.ids]
            for instance in pair.ids:
                whole = await pair.by(instance, "activity.list", stream="ORDERS")
                if whole["unanswered"] or fires_in(whole["minutes"]) != FIRES:
                    return False
                assert totals(whole["minutes"]) == totals([one for minutes, _recent in parts for one in minutes])
                recent = await pair.by(instance, "fires.recent", stream="ORDERS", filter="orders.now.*", limit=200)
                both = {number for _minutes, fires in parts for number in in_order(fires)}
                assert (in_order(recent["fires"]), recent["unanswered"]) == (sorted(both, reverse=True), [])
                few = await pair.by(instance, "fires.recent", limit=3)
                assert in_order(few["fires"]) == in_order(recent["fires"][:3])
            return True

        await eventually(add_up, describe="what both did is added up")
        leaving, stays = pair.sidecars[0].sidecar, pair.ids[1]
        ours, _recent = await alone(pair, stays)
        leaving.stop()
        # A request that reaches it while it ends has no answer.
        await eventually(lambda: leaving.connection is None, describe="it has ended")

        async def has_left() -> bool:
            answer = await answered(pair.account.connection, "activity.list")
            is_alone = answer["instance"] == stays and not answer["unanswered"]
            return is_alone and fires_in(answer["minutes"]) == fires_in(ours)

        await eventually(has_left, describe="the one that stays answers alone")


async def test_who_does_not_answer_is_named(start_server: StartServer) -> None:
    async with pair_on(start_server, first_is_asked=False) as pair:
        whole, partly = pair.ids
        assert (await pair.by(whole, "schedules.list", stream="ORDERS"))["unanswered"] == []
        page = await pair.by(partly, "schedules.list", stream="ORDERS")
        assert (page["unanswered"], len(page["schedules"])) == ([whole], SCHEDULES)
        shards = pair.sidecars[0].sidecar.served["ORDERS"].shards
        subject = next(s for s in (f"orders.s.{n}" for n in range(SCHEDULES)) if shard_of(s) in shards)
        known = await pair.by(partly, "schedules.get", stream="ORDERS", subject=subject)
        assert (known["holder"], known["holder_answered"], known["schedule"]["subject"]) == (whole, False, subject)
        await fire(pair)
        (ours, recent), (_theirs, theirs) = await alone(pair, partly), await alone(pair, whole)
        activity = await pair.by(partly, "activity.list")
        assert (activity["unanswered"], fires_in(activity["minutes"])) == ([whole], fires_in(ours))
        fires = await pair.by(partly, "fires.recent", limit=200)
        assert (fires["unanswered"], fires["fires"]) == ([whole], recent)
        assert fires_in((await pair.by(whole, "activity.list"))["minutes"]) == FIRES
        assert len((await pair.by(whole, "fires.recent", limit=200))["fires"]) == len(recent) + len(theirs)
        told = await pair.sidecars[1].told_of("permission_denied", subject=ASKS)
        assert told == {"operation": "publish", "subject": ASKS}
        assert len(pair.sidecars[1].told("permission_denied")) == 1, "once, however often it is asked"
