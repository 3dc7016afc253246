"""Permissions separate reading from changing, and those listed for changes are those that the sidecar's user needs."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.own_permissions import USER_INFO
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, started_sidecar
from tests.harness.permissions import DOCUMENT, Permission, accounts, permissions_of, shared_account, url_of
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually
from tests.service.asking import answered
from tests.service.controlling import Refused, far, request

VERSIONS = {"2.11": V2_11, "native": V2_15}
INBOX = Permission("subscribe", "_INBOX.>", ())
ADVISORIES = "nats_scheduler.advisory.>"


class Row(NamedTuple):
    """A row of the document for requests that change something."""

    permission: Permission
    needed_for: list[str]


def rows() -> list[Row]:
    """Return the rows of the table."""
    _before, section = DOCUMENT.read_text("utf-8").split("### Requests that change schedules\n")
    found = re.findall(r"^\| (publish) \| `([^`]+)` \| ([^|]+) \| [^|]+ \|$", section.split("\n### ")[0], re.M)
    return [Row(Permission(act, subject, ()), re.findall(r"`(\w+)`", cell)) for act, subject, cell in found]


def granted(mode: str, *, but_for: str = "") -> list[Permission]:
    """Return what the sidecar's user needs in a mode, with changes allowed, but for one subject to publish to."""
    whole = [*permissions_of(mode), *(row.permission for row in rows())]
    return [one for one in whole if (one.act, one.subject) != ("publish", but_for)]


BACKFILLED = {"subject": "orders.paused", "since": "2026-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z"}


@asynccontextmanager
async def serving(url: str, number: int, mode: str) -> AsyncIterator[tuple[Account, Any]]:
    """Run a sidecar with few permissions, which serves the stream `ORDERS` of its account."""
    limited = ConnectionSettings(servers=(url_of(url, f"sidecar-{number}"),))
    async with (
        account_on(url_of(url, f"admin-{number}")) as account,
        started_sidecar(limited, allow_control=True) as running,
    ):
        await eventually(running.sidecar.serving.is_set, describe="it serves")
        await account.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")
        await running.healthy()
        paused = {"Nats-Schedule-X-Paused": "@every 1s", "Nats-Schedule-Target": "orders.out"}
        await account.publish("orders.paused", paused)
        yield account, running


async def something_is_missing(connection: Connection) -> bool:
    """Return whether a backfill would store something, or would be refused for that."""
    would = await request(connection, "backfill", {"stream": "ORDERS", **BACKFILLED, "dry_run": True})
    return would.code == 403 if isinstance(would, Refused) else bool(would["fires"])


def requests() -> dict[str, dict[str, Any]]:
    """Return one request for each change, in an order in which all of them can be done."""
    body = {"stream": "ORDERS", "subject": "orders.s"}
    return {
        "add": {**body, "headers": far("orders.out")},
        "edit": {**body, "body": "another"},
        "fire": body,
        "backfill": {**body, **BACKFILLED},
        "pause": body,
        "resume": body,
        "remove": body,
    }


async def refused_without(url: str, number: int, subject: str) -> list[str]:
    """Return what a sidecar refuses with the code 403 that may not publish to a subject; the owner does it instead."""
    refused, is_unlisted = [], subject == USER_INFO
    async with serving(url, number, "native") as (account, _running):
        await account.publish("orders.s", dict(far("orders.out")))
        await eventually(lambda: something_is_missing(account.connection))
        for endpoint, body in requests().items():
            named = {**body, "subject": "orders.new"} if endpoint == "add" else body
            would = await request(account.connection, endpoint, {**named, "dry_run": True})
            answer = await request(account.connection, endpoint, named)
            if not is_unlisted:
                assert isinstance(would, Refused) == isinstance(answer, Refused), "a dry run says whether it is refused"
            if isinstance(answer, Refused):
                # Without a schedule that is paused, `resume` reads and refuses it: so the owner pauses it.
                assert answer.code == 403, (endpoint, answer)
                refused.append(endpoint)
            if endpoint == "pause" and isinstance(answer, Refused):
                (pattern, target) = far("orders.out")
                await account.publish("orders.s", {"Nats-Schedule-X-Paused": pattern[1], target[0]: target[1]})
    return refused


@pytest.mark.parametrize("mode", ["2.11", "native"])
async def test_the_list_is_sufficient_to_change_schedules(start_server: StartServer, mode: str) -> None:
    server = await start_server(VERSIONS[mode], config=accounts([granted(mode)]))
    async with serving(server.url, 0, mode) as (account, running):
        await eventually(lambda: something_is_missing(account.connection))
        for endpoint, body in requests().items():
            answer = await request(account.connection, endpoint, body)
            assert isinstance(answer, dict), (endpoint, answer)
        assert running.told("permission_denied") == []
    assert "Violation" not in server.log.read_text("utf-8")


async def test_each_entry_is_necessary_for_what_it_names(start_server: StartServer) -> None:
    listed = rows()
    assert [row.permission.subject for row in listed] == ["orders.>", "$JS.API.STREAM.PURGE.*", ADVISORIES, USER_INFO]
    config = accounts([granted("native", but_for=row.permission.subject) for row in listed])
    server = await start_server(V2_15, config=config)
    lives = (refused_without(server.url, number, row.permission.subject) for number, row in enumerate(listed))
    refused = await asyncio.gather(*lives)
    assert [sorted(one) for one in refused] == [sorted(row.needed_for) for row in listed]


def users(*grants: Sequence[str]) -> list[list[Permission]]:
    """Return the permissions of users who may publish to some subjects, and receive answers."""
    return [[*(Permission("publish", subject, ()) for subject in subjects), INBOX] for subjects in grants]


async def test_permissions_tell_reading_from_changing_and_what_is_changed(start_server: StartServer) -> None:
    reads, changes, pauses = users(
        ["nats_scheduler.v1.>"],
        ["nats_scheduler.control.v1.>"],
        ["nats_scheduler.control.v1.schedules.pause", "nats_scheduler.control.v1.schedules.resume"],
    )
    server = await start_server(config=shared_account([permissions_of("2.11"), reads, changes, pauses]))
    async with (
        serving(server.url, 0, "2.11") as (_owner, _running),
        account_on(url_of(server.url, "sidecar-1")) as reader,
        account_on(url_of(server.url, "sidecar-2")) as changer,
        account_on(url_of(server.url, "sidecar-3")) as pauser,
    ):
        await eventually(lambda: something_is_missing(changer.connection))
        for endpoint, body in requests().items():
            with pytest.raises(ForbiddenError):
                await request(reader.connection, endpoint, body)
            if endpoint in ("pause", "resume"):
                assert isinstance(await request(pauser.connection, endpoint, {**body, "dry_run": True}), dict)
            else:
                with pytest.raises(ForbiddenError):
                    await request(pauser.connection, endpoint, body)
            assert isinstance(await request(changer.connection, endpoint, body), dict)
        assert (await answered(reader.connection, "health.get"))["ready"]
        for other in (changer, pauser):
            with pytest.raises(ForbiddenError):
                await other.connection.request("nats_scheduler.v1.health.get")
            with pytest.raises(ForbiddenError):
                await other.connection.request("orders.s")
