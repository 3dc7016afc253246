"""`nats-scheduler ls` shows the schedules whose fires the server refuses: with which code, and since when."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.runtime.shared import FAILING
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.prompt import NEVER, Cli, Prompt, prompt_on, words
from tests.conftest import StartServer
from tests.harness.account import CLOCK, in_seconds, sidecar_on
from tests.harness.permissions import Permission, accounts, permissions_of, url_of
from tests.harness.servers import V2_11, reload_config
from tests.harness.waiting import eventually

DENIED = 403
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


def granted_to(targets: str) -> list[Permission]:
    """Return the permissions of a sidecar that may publish to these targets."""
    granted = [one for one in permissions_of("2.11") if one.subject != "orders.>"]
    return [*granted, Permission("publish", targets, ())]


@asynccontextmanager
async def denied(cli: Cli, start_server: StartServer) -> AsyncIterator[tuple[Prompt, EmbeddedServer]]:
    """Serve a stream by a sidecar that may publish to `orders.out` alone; the prompt is that of the administrator."""
    server = await start_server(V2_11, config=accounts([granted_to("orders.out")]))
    async with (
        prompt_on(cli, url_of(server.url, "admin-0")) as prompt,
        sidecar_on(url_of(server.url, "sidecar-0")) as running,
    ):
        await prompt.account.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")
        yield prompt, server


async def test_a_schedule_is_failing_until_its_denied_fires_are_stored(cli: Cli, start_server: StartServer) -> None:
    async with denied(cli, start_server) as (prompt, server):
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
        since = schedule(document, "orders.s.denied")["failing"]["since"].partition(".")[0]
        shown = await prompt.shows("ls")
        assert words(f"failing (403) for 2 failing, the server refuses their fires: code since {since}Z") <= words(
            shown
        )
        assert "2 failing, the server refuses their fires:" in await prompt.shows("ls --invalid")

        reload_config(server, accounts([granted_to("orders.>")]))
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
