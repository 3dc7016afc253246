"""The permissions that docs/reference/changes.md lists are enough to change schedules."""

import re
from pathlib import Path

import pytest

from nats_scheduler.control.changes import Kind
from nats_scheduler.control.edits import add, edit, remove
from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.control.fire_requests import backfill, fire
from nats_scheduler.control.pausing import pause, resume
from nats_scheduler.control.store import matching
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.schedule_form import Edit
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.control.test_connection_store import store_of
from tests.harness.account import account_on
from tests.harness.blocks import block_to_send
from tests.harness.permissions import Permission, accounts, url_of
from tests.harness.servers import V2_10, V2_11, V2_15

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "changes.md"
BASIS = [
    Permission("publish", "$JS.API.INFO", ()),  # before any change: which server is it
    Permission("subscribe", "_INBOX.>", ()),
    Permission("publish", "S.s", ()),
    Permission("publish", "S.out", ()),
]
CONSUMERS = "$JS.API.CONSUMER."


def listed() -> list[Permission]:
    """Return the subjects of the page's table, for stream S."""
    table = PAGE.read_text("utf-8").partition("## What the user needs")[2].partition("\n## ")[0]
    subjects = [
        subject
        for row in table.splitlines()
        if row.startswith("|")
        for subject in re.findall(r"`(\$[^`]+|nats_[^`]+)`", row)
    ]
    return [Permission("publish", subject.replace("<stream>", "S"), ()) for subject in subjects]


@pytest.mark.parametrize("version", [V2_10, V2_11, V2_15])
async def test_the_listed_permissions_are_enough(start_server: StartServer, version: str) -> None:
    without_consumers = [one for one in listed() if not one.subject.startswith(CONSUMERS)]
    reading_only = [one for one in listed() if "MSG.GET" in one.subject or "STREAM.INFO" in one.subject]
    grants = [[*BASIS, *listed()], [*BASIS, *without_consumers], [*BASIS[:2], *reading_only]]
    server = await start_server(version, config=accounts(grants))
    for number in range(len(grants)):
        async with account_on(url_of(server.url, f"admin-{number}")) as admin:
            await admin.create("S", allow_msg_schedules=False, metadata={METADATA_FLAG: "true"})
        async with account_on(url_of(server.url, f"sidecar-{number}")) as user:
            store = await store_of(user, "S")
            anchor = format_rfc3339(store.now() // HOUR * HOUR - 5 * HOUR)
            headers = {"X-Nats-Schedule": "@every 1h", "X-Nats-Schedule-Target": "S.out"}
            policies = {"X-Nats-Schedule-X-Anchor": anchor, "X-Nats-Schedule-X-Missed": "skip"}
            block = block_to_send(headers | policies)
            if number == 2:
                with pytest.raises(ForbiddenError):
                    await add(store, "S", "S.s", block, b"")
                continue
            await add(store, "S", "S.s", block, b"")
            await edit(store, "S", "S.s", Edit(body=b"new"))
            await pause(store, "S", "S.s")
            await resume(store, "S", "S.s")
            assert (await fire(store, "S", "S.s")).kind is Kind.FIRED
            assert len((await backfill(store, "S", "S.s", 0, store.now())).fires) == 6
            assert [one.subject for one in await matching(store, "S", "S.>")] == ["S.s"]
            await remove(store, "S", "S.s")
