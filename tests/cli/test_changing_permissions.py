"""The commands that change schedules need the permissions that `docs/operating/security.md` lists, and no others."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

import pytest

from tests.cli.changing_site import FAR, Cli
from tests.conftest import StartServer
from tests.harness.account import Account, account_on
from tests.harness.permissions import DOCUMENT, Permission, allowing
from tests.harness.servers import V2_10, V2_15

_ROW = re.compile(r"^\| (publish|subscribe) \| `([^`]+)` \|((?: [^|]+ \|){5}) [^|]+ \|$", re.M)

PAST = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T02:00:00Z")
COMMANDS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("add", "orders.new", "--at", FAR, "--target", "orders.out"), ("edit", "orders.s", "--at", FAR)),
    (("pause", "orders.s"), ("resume", "orders.*", "--yes")),
    (("rm", "orders.*", "--yes"),),
    (("fire", "orders.s"), ("backfill", "orders.s", *PAST)),
    (("changes",),),
)
"""The commands of each column, which are run one after the other."""


class User(NamedTuple):
    """A user of the commands of one column."""

    name: str
    column: int
    granted: list[Permission]
    is_whole: bool


def listed() -> list[tuple[Permission, list[str]]]:
    """Return each permission with how much it is needed, by column."""
    rows = _ROW.findall(DOCUMENT.read_text("utf-8"))
    return [
        (Permission(act, subject, ()), [cell.strip() for cell in cells.split("|")[:5]]) for act, subject, cells in rows
    ]


def users() -> list[User]:
    """Return of each column a user with what it needs, and one without each of these permissions."""
    found = []
    for column in range(len(COMMANDS)):
        granted = [permission for permission, needs in listed() if needs[column] == "yes"]
        found.append(User(f"whole-{column}", column, granted, is_whole=True))
        found += [
            User(f"part-{column}-{number}", column, [one for one in granted if one is not missing], is_whole=False)
            for number, missing in enumerate(granted)
        ]
    return found


def url_of(url: str, user: str) -> str:
    return url.replace("nats://", f"nats://{user}:secret@")


async def set_up(account: Account) -> None:
    """Create the stream, what keeps changes, and what a sidecar leaves in its bucket; store one schedule."""
    marked = {"nats-scheduler.allow_msg_schedules": "true"}
    await account.create("ORDERS", subjects=["orders.>"], metadata=marked)
    await account.create("KV_nats_scheduler", subjects=["$KV.nats_scheduler.>"], allow_msg_schedules=None)
    await account.create("nats_scheduler_failures", subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None)


async def store_schedule(account: Account) -> None:
    """Store the schedule that the commands are about, and nothing else."""
    await account.api.call("STREAM.PURGE.ORDERS", {})
    name = "Nats-Schedule"
    headers = {name: "@every 1h", f"{name}-Target": "orders.out", f"{name}-X-Anchor": "2026-01-01T00:00:00Z"}
    await account.publish("orders.s", headers)


async def record_a_change(cli: Cli, account: Account, url: str) -> None:
    """Change the schedule, so that there is a change to read."""
    await store_schedule(account)
    assert (await asyncio.to_thread(cli, "fire", "ORDERS", "orders.s", "--server", url)).exit_code == 0
    await account.wait_for("nats_scheduler_failures", "nats_scheduler.advisory.>")


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_the_permissions_are_enough_without_the_optional_ones_and_each_is_needed(
    cli: Cli, start_server: StartServer, version: str
) -> None:
    limited = users()
    assert len(limited) > 25, "the table is read"
    names = "".join(
        f"  {{ user: {one.name}, password: secret, permissions: {allowing(one.granted)} }}\n" for one in limited
    )
    config = f"accounts {{ A {{ jetstream: enabled, users: [\n  {{ user: all, password: secret }}\n{names}] }} }}\n"
    server = await start_server(version, config=config)
    async with account_on(url_of(server.url, "all")) as account:
        await set_up(account)
        await record_a_change(cli, account, url_of(server.url, "all"))
        for user in limited:
            await store_schedule(account)
            codes = []
            for words in COMMANDS[user.column]:
                stream = () if words == ("changes",) else ("ORDERS",)
                command = (words[0], *stream, *words[1:], "--server", url_of(server.url, user.name))
                codes.append((await asyncio.to_thread(cli, *command)).exit_code)
            assert (set(codes) == {0}) is user.is_whole, (user, codes)
