"""The list of permissions for programs in `docs/operating/security.md` is sufficient, and each entry is necessary.

One server has a user for each case: one with the whole list, and one for each entry that lacks it, and what is optional
if that entry is not.
"""

import re
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from nats_scheduler.client import ForbiddenError, NotServedError, ReplacesUnfiredWarning, Schedules, at
from tests.client.conftest import Connect
from tests.conftest import StartServer
from tests.harness.account import account_on, sidecar_on
from tests.harness.permissions import DOCUMENT, OPTIONAL, SPARE, Permission, shared_account, url_of
from tests.harness.servers import V2_11, V2_15

ROW = re.compile(r"^\| (publish|subscribe) \| `([^`]+)` \| (\S+) \| (\S+) \| [^|]+ \|$", re.M)
SECTION = DOCUMENT.read_text("utf-8").split("### Programs that use the Python client")[1].split("\n### ")[0]
FAR = at(datetime(2200, 1, 1, tzinfo=UTC))


class Listed(NamedTuple):
    """One row."""

    permission: Permission
    reads: str
    changes: str

    def need(self, *, changing: bool) -> str:
        return self.changes if changing else self.reads


LIST = [Listed(Permission(act, subject, ()), reads, changes) for act, subject, reads, changes in ROW.findall(SECTION)]


async def read(schedules: Schedules) -> None:
    """Do all that reads."""
    assert (await schedules.get("orders.s")).rejection is None
    assert [one.subject async for one in schedules.list("orders.>")] == ["orders.s"]
    assert await schedules.history("orders.s") == []
    assert (await schedules.diff((await schedules.export("orders.>")).text)).steps == ()


async def change(schedules: Schedules, subject: str) -> None:
    """Do all that changes a schedule."""
    await schedules.create(subject, FAR, target="orders.out")
    with pytest.warns(ReplacesUnfiredWarning):
        await schedules.upsert(subject, FAR, b"other", target="orders.out")
    await schedules.edit(subject, body=b"edited")
    text = (await schedules.export(subject)).text.replace("edited", "applied")
    assert len((await schedules.apply(text)).changes) == 1
    await schedules.pause(subject)
    await schedules.resume(subject)
    await schedules.fire(subject)
    await schedules.cancel(subject)
    await schedules.create(subject, FAR, target="orders.out")
    await schedules.publish_and_cancel(subject, "orders.cancelled")


@pytest.mark.parametrize("version", [V2_11, V2_15])
@pytest.mark.parametrize("changing", [False, True])
async def test_the_list_suffices_and_each_entry_is_needed(
    start_server: StartServer, connect: Connect, version: str, changing: bool
) -> None:
    assert len(LIST) == 8
    assert {need for one in LIST for need in (one.reads, one.changes)} == {"yes", OPTIONAL, SPARE, "sidecar"}
    allowed = [one for one in LIST if one.need(changing=changing) != SPARE]
    spare = {OPTIONAL, "sidecar"} if version == V2_15 else {OPTIONAL}
    needed = [one for one in allowed if one.need(changing=changing) != OPTIONAL]
    bases = [(left, needed if left in needed else allowed) for left in (None, *allowed)]
    grants = [[one.permission for one in base if one is not left] for left, base in bases]
    server = await start_server(version, config=shared_account(grants))
    owner = url_of(server.url, "admin-0")
    async with account_on(owner) as account, sidecar_on(owner) as sidecar:
        await account.create("ORDERS", subjects=["orders.>"])
        await sidecar.ready("ORDERS")
        await (await Schedules.on(await connect(owner), "ORDERS")).create("orders.s", FAR, target="orders.out")
        for number, left in enumerate((None, *allowed)):
            is_enough = left is None or left.need(changing=changing) in spare
            with nullcontext() if is_enough else pytest.raises((ForbiddenError, NotServedError)):
                schedules = await Schedules.on(await connect(url_of(server.url, f"sidecar-{number}")), "ORDERS")
                await (change(schedules, f"orders.s{number}") if changing else read(schedules))
