"""Two sidecars answer for one account: each asks the other what only that knows, and names it if it does not answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nats_scheduler.control.errors import NoRespondersError
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.service.micro import UNAVAILABLE
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, started_sidecar
from tests.harness.permissions import PASSWORD, Permission, permissions_of, shared_account, url_of
from tests.harness.waiting import eventually
from tests.service.asking import Refusal, answered, ask

SCHEDULES = 20
ASKS = "nats_scheduler.v1.>"
NAMES = [f"S{number}" for number in range(40)]
"""Of so many streams, each of two instances is the first in the order of some."""


@dataclass
class Pair:
    """Two sidecars, of which each owns one stream and stands by the other one, and who asks them."""

    account: Account
    sidecars: tuple[Running, Running]
    streams: tuple[str, str]
    """The stream that the first one owns, and the one that the second one owns."""

    @property
    def ids(self) -> tuple[str, str]:
        return ids_of(self.sidecars)

    async def answer(self, endpoint: str, **request: Any) -> dict[str, Any]:
        return await answered(self.account.connection, endpoint, request)

    async def by(self, instance: str, endpoint: str, **request: Any) -> dict[str, Any]:
        """Ask until one of the sidecars answers, and not the other, nor one that ends and says so."""

        async def asked() -> dict[str, Any] | None:
            answer = await ask(self.account.connection, endpoint, request)
            if isinstance(answer, Refusal) and answer.code == UNAVAILABLE:
                return None
            assert isinstance(answer, dict), answer
            return answer if answer["instance"] == instance else None

        return await eventually(asked, describe=f"{instance} answers {endpoint}")

    async def is_settled(self) -> bool:
        """Return whether both sidecars know who owns and who stands by what, and hold all schedules."""
        for instance in self.ids:
            found = await ask(self.account.connection, f"health.get.{instance}")
            if isinstance(found, Refusal) or not found["ready"]:
                return False
        both = [await ask(self.account.connection, "streams.list") for _ in range(8)]
        seen = {one["instance"]: one["streams"] for one in both if isinstance(one, dict)}
        one, other = self.ids
        wanted = dict(zip(self.streams, ((one, [other], SCHEDULES), (other, [one], SCHEDULES)), strict=True))
        return set(seen) == set(self.ids) and all(
            {of["stream"]: (of["owner"], of["standbys"], (of["schedules"] or {}).get("total")) for of in streams}
            == wanted
            for streams in seen.values()
        )


def ids_of(sidecars: tuple[Running, Running]) -> tuple[str, str]:
    return sidecars[0].sidecar.instance, sidecars[1].sidecar.instance


def stream_first_for(instance: str, ids: tuple[str, str]) -> str:
    """Return the name of a stream in whose order this one of two instances is the first."""
    return next(name for name in NAMES if order_of(f"emulated.{name}", ids)[0] == instance)


def granted() -> list[Permission]:
    """Return what a sidecar needs for the streams with these names."""
    rows = [replace(row, subject=row.subject.replace("ORDERS", "*")) for row in permissions_of("2.11")]
    return [*rows, *(Permission("publish", f"{name}.>", ()) for name in NAMES)]


@asynccontextmanager
async def pair_on(start_server: StartServer, *, first_is_asked: bool = True) -> AsyncIterator[Pair]:
    """Run two sidecars, with schedules that are due in hours; the second may be denied to ask the first."""
    whole = granted()
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
        ids = ids_of((one, other))
        pair = Pair(account, (one, other), (stream_first_for(ids[0], ids), stream_first_for(ids[1], ids)))
        for name in pair.streams:
            await account.create(name)
            for number in range(SCHEDULES):
                headers = {"Nats-Schedule": f"@at {in_seconds(3600 + number)}", "Nats-Schedule-Target": f"{name}.out"}
                await account.publish(f"{name}.s.{number}", headers)
        await eventually(pair.is_settled, describe="each owns a stream, and stands by the other one")
        yield pair


async def test_the_owner_answers_whoever_is_asked(start_server: StartServer) -> None:
    async with pair_on(start_server) as pair:
        for _ in range(8):  # the server chooses which of the two is asked
            for name, owner in zip(pair.streams, pair.ids, strict=True):
                page = await pair.answer("schedules.list", stream=name)
                assert (page["instance"], page["unanswered"]) == (owner, [])
                assert [one["subject"] for one in page["schedules"]] == [f"{name}.s.{n}" for n in range(SCHEDULES)]
                known = await pair.answer("schedules.get", stream=name, subject=f"{name}.s.0")
                assert (known["owner"], known["owner_answered"], known["instance"]) == (owner, True, owner)


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


async def test_the_service_comes_back_with_the_next_connection(start_server: StartServer) -> None:
    connection = ConnectionSettings(servers=((await start_server()).url,))
    async with account_on(connection.servers[0]) as account:
        async with started_sidecar(connection, service=False) as running:
            await eventually(running.sidecar.serving.is_set, describe="it serves")
            with pytest.raises(NoRespondersError):  # nothing subscribes to that subject
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


async def test_who_does_not_answer_is_named(start_server: StartServer) -> None:
    async with pair_on(start_server, first_is_asked=False) as pair:
        whole, partly = pair.ids
        name = pair.streams[0]
        assert (await pair.by(whole, "schedules.list", stream=name))["unanswered"] == []
        page = await pair.by(partly, "schedules.list", stream=name)
        assert (page["unanswered"], len(page["schedules"])) == ([whole], SCHEDULES)
        subject = f"{name}.s.0"
        known = await pair.by(partly, "schedules.get", stream=name, subject=subject)
        assert (known["owner"], known["owner_answered"], known["schedule"]["subject"]) == (whole, False, subject)
        assert (await pair.by(partly, "activity.list"))["unanswered"] == [whole]
        told = await pair.sidecars[1].told_of("permission_denied", subject=ASKS)
        assert told == {"operation": "publish", "subject": ASKS}
        assert len(pair.sidecars[1].told("permission_denied")) == 1, "once, however often it is asked"
