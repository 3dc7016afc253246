"""The values for the official chart of NATS: a real server holds each user to its least permissions."""

import json
import re

import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.engine.events import FireStored
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.deploy.files import STREAMS, nats_values
from tests.harness.account import account_on, started_sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

SECRETS = {
    "nats-scheduler-user": {"user": "scheduler", "password": "p1"},
    "nats-scheduler-calendars-user": {"user": "calendars", "password": "p2"},
    "nats-scheduler-web-user": {"user": "web", "password": "p3"},
    "nats-shop-user": {"user": "shop", "password": "p4"},
}
"""The Secrets that the page has the operator create, by name and key."""
INBOX = "_INBOX_nats_scheduler"


def accounts() -> str:
    """Return the accounts as a server's configuration has them, with passwords in the place of the variables."""
    text = json.dumps({"accounts": nats_values("server.yaml")["config"]["merge"]["accounts"]})
    text = re.sub(r'"<< (\$\w+) >>"', r"\1", text)[1:-1]
    for name, one in nats_values("server.yaml")["container"]["env"].items():
        reference = one["valueFrom"]["secretKeyRef"]
        text = text.replace(f"${name}", SECRETS[reference["name"]][reference["key"]])
    return text


def url_of(url: str, user: str) -> str:
    """Return a server's address with a user in it."""
    (password,) = [one["password"] for one in SECRETS.values() if one["user"] == user]
    return url.replace("nats://", f"nats://{user}:{password}@")


STREAM, CONSUMER = "$JS.API.STREAM", "$JS.API.CONSUMER.CREATE"
DENIED = {
    "scheduler": [
        *("schedules.stock.1", "jobs.new", "$KV.nats_scheduler_calendars.company", "$KV.other.key"),
        *(f"{STREAM}.{act}" for act in ("DELETE.ORDERS", "UPDATE.OTHER", "PURGE.OTHER", "MSG.GET.OTHER")),
        *(f"{CONSUMER}.OTHER.mine", "nats_scheduler.control.v1.schedules.pause"),
    ],
    "calendars": ["orders.due", "$KV.nats_scheduler.owner", f"{STREAM}.DELETE.KV_nats_scheduler_calendars"],
    "web": ["orders.due", "$JS.API.INFO", "nats_scheduler.control.v1.schedules.pause"],
    "shop": [
        *("$KV.nats_scheduler.stream.ORDERS", "$KV.nats_scheduler_calendars.company", f"{STREAM}.DELETE.ORDERS"),
        *(f"{CONSUMER}.KV_nats_scheduler.mine", "nats_scheduler.advisory.x", f"{INBOX}.x"),
    ],
}
INBOXES = {"scheduler": INBOX, "calendars": "_INBOX.calendars", "web": "_INBOX.web", "shop": "_INBOX"}


async def test_each_user_can_do_its_work_and_not_that_of_another(start_server: StartServer) -> None:
    """The sidecar makes its stream, fires in it, and lacks nothing; an application cannot be the sidecar."""
    server = await start_server(V2_11, config=accounts())
    settings = ConnectionSettings(servers=(url_of(server.url, "scheduler"),), inbox_prefix=INBOX)
    async with (
        started_sidecar(settings, streams_folder=STREAMS) as running,
        account_on(url_of(server.url, "shop")) as shop,
    ):
        await running.ready("ORDERS")
        schedule = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "orders.due", "Nats-Schedule-Rollup": "sub"}
        await shop.publish("schedules.orders.1", schedule)
        await eventually(lambda: len(running.of("ORDERS", FireStored)) >= 2)
        await shop.api.create_consumer("ORDERS", "mine", {"filter_subject": "orders.due", "ack_policy": "explicit"})
        await shop.api.call("STREAM.PURGE.ORDERS", {"filter": "schedules.orders.1"})
        assert not running.told("permission_denied")
    for user, subjects in DENIED.items():
        async with account_on(url_of(server.url, user), inbox_prefix=INBOXES[user]) as account:
            for subject in subjects:
                with pytest.raises(ForbiddenError):
                    await account.connection.request(subject, b"{}")
