"""The server's configuration in `deploy/server` is the list of `docs/operating/security.md`, and a server takes it."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from nats_scheduler.control.change_advisory import change_advisory
from nats_scheduler.control.changes import Author, Change, Kind
from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.service.change_endpoints import CONTROL_SUBJECTS
from tests.conftest import StartServer
from tests.deploy.files import DEPLOY
from tests.harness.account import CLOCK, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.permissions import DOCUMENT, listed
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually
from tests.service.asking import answered
from tests.service.controlling import far, request
from tests.web.browsing import browsing

TEXT = (DEPLOY / "server" / "permissions.conf").read_text("utf-8")


def subjects(found: re.Match[str] | None) -> list[str]:
    """Return the subjects of a list of the file."""
    assert found is not None
    return re.findall(r'^ *"([^"]+)"', found[1], re.M)


def test_it_grants_and_denies_what_the_document_lists() -> None:
    for act in ("publish", "subscribe"):
        granted = subjects(re.search(rf"{act}: {{ allow: \[\n(.*?)\n *\] }}", TEXT, re.S))
        assert granted == [each.subject for each in listed() if each.act == act]
    _before, listing = DOCUMENT.read_text("utf-8").split("### Privileged subjects")
    denied = subjects(re.search(r"publish: { deny: \[\n(.*?)\n *\] }", TEXT, re.S))
    assert denied == re.findall(r"^- `([^`]+)`", listing.split("###")[0], re.M)


def filled_in() -> str:
    """Return the file with passwords in the place of the variables."""
    return re.sub(r"\$\w+_PASSWORD", "swordfish", TEXT)


def url_of(server: EmbeddedServer, user: str) -> str:
    """Return the address of a server for a user."""
    return server.url.replace("nats://", f"nats://{user}:swordfish@")


@asynccontextmanager
async def serving(server: EmbeddedServer, **settings: Any) -> AsyncIterator[tuple[Account, Running]]:
    """Run a sidecar as its user, which serves `ORDERS` of the ordinary user that is given."""
    scheduler, ordinary = url_of(server, "scheduler"), url_of(server, "app")
    async with sidecar_on(scheduler, **settings) as running, account_on(ordinary) as app:
        await app.create("ORDERS", subjects=["orders.>"], allow_direct=True)
        await running.ready("ORDERS")
        yield app, running


async def publish_soon(app: Account) -> None:
    """Publish a schedule that fires soon."""
    await app.publish("orders.s", {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": "orders.out"})


async def test_an_ordinary_user_has_no_say_in_who_fires(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=filled_in())
    async with serving(server) as (app, _running):
        await publish_soon(app)
        await app.wait_for("ORDERS", "orders.out")
        for subject in (
            "$KV.nats_scheduler.instance.ghost",
            "$KV.nats_scheduler.owner.emulated.ORDERS",
            *(f"$JS.API.STREAM.{act}.KV_nats_scheduler" for act in ("UPDATE", "DELETE", "PURGE", "LEADER.STEPDOWN")),
            # By a consumer the server would store a value again, such as the heartbeat of an instance that is gone.
            *(f"$JS.API.CONSUMER.{act}.KV_nats_scheduler.any" for act in ("CREATE", "DURABLE.CREATE", "MSG.NEXT")),
            "nats_scheduler.advisory.fire_refused.ORDERS",
        ):
            with pytest.raises(ForbiddenError):
                await app.connection.request(subject, b"{}")


async def test_the_status_page_may_only_ask_and_needs_no_more(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=filled_in())
    async with (
        serving(server) as (app, _running),
        browsing(url_of(server, "web"), inbox_prefix="_INBOX.web") as page,
        account_on(url_of(server, "web"), inbox_prefix="_INBOX.web") as web,
    ):
        await publish_soon(app)
        await page.shows("/fires", "orders.s</bdi>")
        await page.shows("/", "All is well")
        for subject in ("$JS.API.INFO", "$JS.API.STREAM.LIST", "orders.s", "$KV.nats_scheduler.stream.X"):
            with pytest.raises(ForbiddenError):
                await web.connection.request(subject)


async def test_only_the_operator_changes_schedules(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=filled_in())
    async with (
        serving(server, allow_control=True) as (app, running),
        account_on(url_of(server, "web"), inbox_prefix="_INBOX.web") as web,
        account_on(url_of(server, "operator"), inbox_prefix="_INBOX.operator") as operator,
        account_on(url_of(server, "owner")) as owner,
    ):
        await app.publish("orders.s", dict(far("orders.out")))
        body = {"stream": "ORDERS", "subject": "orders.s"}
        # The server sends answers where a user may not publish: there they are no request, and no record of a change.
        forged = change_advisory(Change(Kind.FIRED, "ORDERS", "orders.s", 1, 1, Author("forged"), CLOCK.now()))
        sent: list[bytes] = []
        for where, what in (
            (f"{CONTROL_SUBJECTS}.schedules.remove", json.dumps(body).encode()),
            (forged.subject, forged.body),
        ):
            await app.publish("orders.sent", body=what)
            owner.connection.subscribe(where, lambda _subject, _reply, _block, body: sent.append(body))
            await owner.api.info()
            app.connection.write(frame("$JS.API.DIRECT.GET.ORDERS.orders.sent", where, b"", b""))
            await eventually(partial(sent.__contains__, what), describe="the server has sent its answer")
        for other in (app, web):
            with pytest.raises(ForbiddenError):
                await request(other.connection, "pause", body)
        with pytest.raises(ForbiddenError):
            await operator.connection.request("orders.s")
        for endpoint in ("pause", "resume", "remove"):
            changed = await request(operator.connection, endpoint, body)
            assert isinstance(changed, dict), changed

        async def are_kept() -> bool:
            changes = (await answered(operator.connection, "changes.list", {"stream": "ORDERS"}))["changes"]
            return [one["change"] for one in changes] == ["removed", "resumed", "paused"]

        await eventually(are_kept, describe="the changes that were made, and no other one")
        assert running.told("permission_denied") == []
