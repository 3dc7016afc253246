"""The server's configuration in `deploy/server` is the list of `docs/operating/security.md`, and a server takes it."""

import re
from pathlib import Path

import pytest

from nats_scheduler.jetstream.errors import NotPermittedError
from tests.conftest import StartServer
from tests.deploy.files import DEPLOY
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.permissions import DOCUMENT, listed
from tests.harness.servers import ALL_VERSIONS, EMULATED_VERSIONS
from tests.service.controlling import far, request
from tests.web.browsing import browsing

CONFIG = DEPLOY / "server" / "permissions.conf"


def granted(text: str, act: str) -> list[str]:
    """Return the subjects that the file allows."""
    found = re.search(rf"{act}: {{ allow: \[\n(.*?)\n *\] }}", text, re.S)
    assert found is not None, act
    return re.findall(r'^ *"([^"]+)"', found[1], re.M)


def test_it_grants_what_the_document_lists() -> None:
    text = CONFIG.read_text("utf-8")
    for act in ("publish", "subscribe"):
        assert granted(text, act) == [each.subject for each in listed() if each.act == act]


def filled_in() -> str:
    """Return the file with passwords in the place of the variables."""
    text = CONFIG.read_text("utf-8").replace("$NATS_SCHEDULER_PASSWORD", "p1").replace("$OWNER_PASSWORD", "p2")
    return text.replace("$APP_PASSWORD", "p3").replace("$WEB_PASSWORD", "p4").replace("$OPERATOR_PASSWORD", "p5")


def test_what_it_keeps_from_ordinary_users_is_what_the_document_lists() -> None:
    found = re.search(r"publish: { deny: \[\n(.*?)\n *\] }", CONFIG.read_text("utf-8"), re.S)
    assert found is not None
    denied = re.findall(r'^ *"([^"]+)"', found[1], re.M)
    _before, listing = DOCUMENT.read_text("utf-8").split("### Privileged subjects")
    assert denied == re.findall(r"^- `([^`]+)`", listing.split("###")[0], re.M)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_an_ordinary_user_can_work_and_has_no_say_in_who_fires(start_server: StartServer, version: str) -> None:
    server = await start_server(version, config=filled_in())
    urls = [server.url.replace("nats://", f"nats://{user}@") for user in ("scheduler:p1", "app:p3")]
    async with sidecar_on(urls[0]) as running, account_on(urls[1]) as app:
        await app.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")
        await app.publish("orders.s", {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": "orders.out"})
        await app.wait_for("ORDERS", "orders.out")
        for subject in (
            "$KV.nats_scheduler.instance.ghost",
            "$KV.nats_scheduler.lease.emulated.ORDERS",
            "$KV.nats_scheduler.checkpoint.ORDERS.emulated",
            *(f"$JS.API.STREAM.{act}.KV_nats_scheduler" for act in ("UPDATE", "DELETE", "PURGE", "MSG.DELETE")),
            "$JS.API.STREAM.LEADER.STEPDOWN.KV_nats_scheduler",
            "$JS.API.CONSUMER.DELETE.KV_nats_scheduler.any",
            "nats_scheduler.advisory.fire_refused.ORDERS",
        ):
            with pytest.raises(NotPermittedError):
                await app.connection.request(subject, b"{}")


async def test_every_server_takes_it(start_server: StartServer, tmp_path: Path) -> None:
    text = filled_in()
    for version in ALL_VERSIONS:
        server = await start_server(version, config=text)
        url = server.url.replace("nats://", "nats://scheduler:p1@")
        async with account_on(url, inbox_prefix="_INBOX") as account:
            assert await account.api.info()


async def test_the_status_page_has_all_that_it_needs_and_may_only_ask(start_server: StartServer) -> None:
    server = await start_server(EMULATED_VERSIONS[-1], config=filled_in())
    urls = [server.url.replace("nats://", f"nats://{user}@") for user in ("scheduler:p1", "app:p3", "web:p4")]
    async with (
        sidecar_on(urls[0]) as running,
        account_on(urls[1]) as app,
        browsing(urls[2], inbox_prefix="_INBOX.web") as page,
        account_on(urls[2], inbox_prefix="_INBOX.web") as web,
    ):
        await app.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")
        await app.publish("orders.s", {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": "orders.out"})
        await page.shows("/fires", "orders.s</bdi>")
        await page.shows("/", "All is well")
        for subject in ("$JS.API.INFO", "$JS.API.STREAM.LIST", "orders.s", "$KV.nats_scheduler.stream.X"):
            with pytest.raises(NotPermittedError):
                await web.connection.request(subject)


async def test_the_operator_changes_schedules_and_nobody_else_does(start_server: StartServer) -> None:
    server = await start_server(EMULATED_VERSIONS[-1], config=filled_in())
    urls = [server.url.replace("nats://", f"nats://{user}@") for user in ("scheduler:p1", "app:p3", "web:p4")]
    operators = server.url.replace("nats://", "nats://operator:p5@")
    async with (
        sidecar_on(urls[0], allow_control=True) as running,
        account_on(urls[1]) as app,
        account_on(urls[2], inbox_prefix="_INBOX.web") as web,
        account_on(operators, inbox_prefix="_INBOX.operator") as operator,
    ):
        await app.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")
        await app.publish("orders.s", dict(far("orders.out")))
        body = {"stream": "ORDERS", "subject": "orders.s"}
        for other in (app, web):
            with pytest.raises(NotPermittedError):
                await request(other.connection, "pause", body)
        with pytest.raises(NotPermittedError):
            await operator.connection.request("orders.s")
        for endpoint in ("pause", "resume", "remove"):
            changed = await request(operator.connection, endpoint, body)
            assert isinstance(changed, dict), changed
        assert running.told("permission_denied") == []
