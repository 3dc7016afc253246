"""`nats-scheduler ls` shows the schedules whose fires the server refuses: with which code, and since when."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.runtime.shared import FAILING
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.prompt import NEVER, Cli, Prompt, prompt_on, words
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, in_seconds, sidecar_on
from tests.harness.permissions import Permission, accounts, permissions_of, url_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11, reload_config
from tests.harness.waiting import eventually

DENIED = 403
BUCKET = "KV_nats_scheduler"
KEY = f"$KV.nats_scheduler.{FAILING}"

Document = dict[str, Any]


async def listed_with(prompt: Prompt, failing: int) -> Document:
    """Wait until `ls` says that `failing` schedules fail, and return the document."""
    documents: list[Document] = []

    async def so_many() -> bool:
        documents[:] = [await prompt.document("ls")]
        return bool(documents[0]["failing"] == failing)

    await eventually(so_many, describe=lambda: f"{failing} failing: {documents[0]['schedules']}")
    return documents[0]


def schedule(document: Document, subject: str) -> Document:
    (found,) = (one for one in document["schedules"] if one["subject"] == subject)
    return dict(found)


def granted_to(version: str, targets: str) -> list[Permission]:
    """Return the permissions of a sidecar that may publish to these targets."""
    granted = [one for one in permissions_of(version.rpartition(".")[0]) if one.subject != "orders.>"]
    return [*granted, Permission("publish", targets, ())]


@asynccontextmanager
async def denied(
    cli: Cli, start_server: StartServer, version: str = V2_11, **settings: Any
) -> AsyncIterator[tuple[Prompt, EmbeddedServer]]:
    """Serve a stream by a sidecar that may publish to `orders.out` alone; the prompt is that of the administrator."""
    server = await start_server(version, config=accounts([granted_to(version, "orders.out")]))
    async with (
        prompt_on(cli, url_of(server.url, "admin-0")) as prompt,
        sidecar_on(url_of(server.url, "sidecar-0"), **settings) as running,
    ):
        await prompt.account.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")
        yield prompt, server


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_schedule_is_failing_until_its_denied_fires_are_stored(
    cli: Cli, start_server: StartServer, version: str
) -> None:
    async with denied(cli, start_server, version) as (prompt, server):
        before = CLOCK.now()
        await prompt.schedule("orders.s.denied", "@every 2s", "orders.denied")
        await prompt.schedule("orders.s.late", f"@at {in_seconds(1)}", "orders.late")
        await prompt.schedule("orders.s.fine", "@every 2s", "orders.out")
        document = await listed_with(prompt, 2)
        assert (document["failing_unlisted"], document["streams"][0]["failing"]) == (0, 2)
        for name in ("denied", "late"):
            found = schedule(document, f"orders.s.{name}")
            assert (found["state"], found["failing"]["err_code"]) == ("failing", DENIED)
            assert "may not publish" in found["failing"]["description"]
            since = parse_rfc3339(found["failing"]["since"])
            assert isinstance(since, int)
            assert before - MINUTE < since < CLOCK.now() + MINUTE, "by the server's clock"
        fine = schedule(document, "orders.s.fine")
        assert (fine["state"], fine["failing"]) == ("waiting", None)

        again = await listed_with(prompt, 2)
        for name in ("denied", "late"):
            assert schedule(again, f"orders.s.{name}")["failing"] == schedule(document, f"orders.s.{name}")["failing"]

        since = schedule(document, "orders.s.denied")["failing"]["since"].partition(".")[0]
        expected = words(f"failing (403) for 2 failing, the server refuses their fires: code since {since}Z")
        for line in ("ls", "ls ORDERS", "ls --wide"):
            shown = await prompt.shows(line, columns=80)
            assert expected - words(shown) == set(), shown
            assert "3 schedules; 2 of them are failing\n" in shown
            assert "--wide" in line or max(map(len, shown.splitlines())) <= 80, shown
        wrong = await prompt.shows("ls --invalid", columns=80)
        assert "2 failing, the server refuses their fires:" in wrong
        assert "next fire" not in wrong

        reload_config(server, accounts([granted_to(version, "orders.>")]))
        after = await listed_with(prompt, 0)
        assert schedule(after, "orders.s.denied")["state"] == "waiting"
        await prompt.account.wait_for("ORDERS", "orders.late")


async def test_what_a_stranger_writes_there_breaks_no_list(cli: Cli, start_server: StartServer) -> None:
    async with denied(cli, start_server) as (prompt, _server):
        sequence = await prompt.schedule("orders.s", NEVER, "orders.out")

        async def alive() -> str | None:
            return next(iter((await prompt.document("ls"))["sidecars"]), None)

        name = await eventually(alive, describe="the sidecar is alive")
        row = {"code": 403, "description": "\x1b[31m", "schedules": [[sequence, 1, 1], ["1", 1], [sequence, -1], 7]}
        for entry in (
            7,
            {"streams": [], "more": "many"},
            {"streams": {"emulated.ORDERS": 7}, "more": -5},
            {"streams": {"emulated.ORDERS": {"reasons": [7, row, {"code": "x", "schedules": 7}], "more": 1e300}}},
        ):
            await prompt.account.publish(KEY, body=json.dumps({name: entry}).encode())
            assert (await prompt.document("ls"))["failing"] == 0, entry


async def shared(account: Account) -> Document:
    """Return what the instances share."""
    message = await account.api.message(BUCKET, last_by_subj=KEY)
    document: Document = json.loads(message.body or b"") if message is not None else {}
    return document
