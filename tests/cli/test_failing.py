"""`nats-scheduler ls` shows the schedules whose fires the server refuses: with which code, and since when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.runtime.shared import FAILING
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.cli.conftest import Cli
from tests.cli.test_tables import on_a_terminal, words
from tests.conftest import StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, Account, account_on, in_seconds, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.permissions import Permission, accounts, permissions_of, shared_account, url_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11, reload_config
from tests.harness.waiting import eventually

NO_RESOURCES = 10002
"""The server's code where an account holds as much as it may."""

DENIED = 403

ROOM = 200_000
"""The limit (bytes) of an account that is to be full."""

BUCKET = "KV_nats_scheduler"
NEVER = "@at 2200-01-01T00:00:00Z"

KEY = f"$KV.nats_scheduler.{FAILING}"

Document = dict[str, Any]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep the log of the sidecar out of the output of the command, which runs in the same process."""
    with capture_logs():
        yield


async def listed(cli: Cli, url: str, *arguments: str) -> Document:
    """Run `nats-scheduler ls --json` in a thread, in which it has an event loop of its own."""
    said = await asyncio.to_thread(cli, "ls", *arguments, "--json", "--server", url)
    document: Document = json.loads(said.stdout)
    assert said.exit_code == 0, document
    return document


async def listed_with(cli: Cli, url: str, failing: int, *arguments: str) -> Document:
    """Wait until `ls` says that `failing` schedules fail, and return the document."""
    documents: list[Document] = []

    async def so_many() -> bool:
        documents[:] = [await listed(cli, url, *arguments)]
        return bool(documents[0]["failing"] == failing)

    await eventually(
        so_many, within_seconds=WAIT_SECONDS, describe=lambda: f"{failing} failing: {documents[0]['schedules']}"
    )
    return documents[0]


def schedule(document: Document, subject: str) -> Document:
    (found,) = (one for one in document["schedules"] if one["subject"] == subject)
    return dict(found)


async def published(account: Account, subject: str, pattern: str, target: str) -> int:
    return await account.publish(subject, {"Nats-Schedule": pattern, "Nats-Schedule-Target": target})


def held_to(version: str, targets: str) -> str:
    """Return the configuration of a server whose sidecar may publish to these targets."""
    granted = [one for one in permissions_of(version.rpartition(".")[0]) if one.subject != "orders.>"]
    return accounts([[*granted, Permission("publish", targets, ())]])


@asynccontextmanager
async def denied(
    start_server: StartServer, version: str = V2_11, **settings: Any
) -> AsyncIterator[tuple[Account, EmbeddedServer, str]]:
    """Serve a stream by a sidecar that may publish to `orders.out` alone; yields the address of the administrator."""
    server = await start_server(version, config=held_to(version, "orders.out"))
    url = url_of(server.url, "admin-0")
    async with account_on(url) as account, sidecar_on(url_of(server.url, "sidecar-0"), **settings) as running:
        await account.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")
        yield account, server, url


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_schedule_whose_fires_are_denied_is_shown_as_failing_until_they_are_stored(
    cli: Cli, start_server: StartServer, version: str
) -> None:
    async with denied(start_server, version) as (account, server, url):
        before = CLOCK.now()
        await published(account, "orders.s.denied", "@every 2s", "orders.denied")
        await published(account, "orders.s.late", f"@at {in_seconds(1)}", "orders.late")
        await published(account, "orders.s.fine", "@every 2s", "orders.out")
        document = await listed_with(cli, url, 2)
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

        again = await listed_with(cli, url, 2)
        for name in ("denied", "late"):
            assert schedule(again, f"orders.s.{name}")["failing"] == schedule(document, f"orders.s.{name}")["failing"]

        reload_config(server, held_to(version, "orders.>"))
        after = await listed_with(cli, url, 0)
        assert schedule(after, "orders.s.denied")["state"] == "waiting"
        await account.wait_for("ORDERS", "orders.late")


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_schedule_on_a_stream_that_is_full_is_shown_as_failing(
    cli: Cli, start_server: StartServer, version: str
) -> None:
    limits = f"{{ max_mem: {ROOM}, max_file: 1G }}"
    config = f"accounts {{ A {{ jetstream: {limits}, users: [{{ user: u, password: p }}] }} }}\n"
    server = await start_server(version, config=config)
    url = server.url.replace("nats://", "nats://u:p@")
    async with account_on(url) as account, sidecar_on(url) as running:
        await account.create("FULL")
        await running.ready("FULL")
        pattern = {"Nats-Schedule": f"@at {in_seconds(2)}", "Nats-Schedule-Target": "FULL.out"}
        await account.publish("FULL.s", pattern, b"x" * 2_000)
        await account.publish("FULL.fill", body=b"x" * (ROOM - 4_000))
        found = schedule(await listed_with(cli, url, 1, "FULL"), "FULL.s")
        assert (found["state"], found["failing"]["err_code"]) == ("failing", NO_RESOURCES)
        assert found["failing"]["description"]
        await account.api.call("STREAM.PURGE.FULL", {"filter": "FULL.fill"})
        await listed_with(cli, url, 0, "FULL")
        assert len(await account.wait_for("FULL", "FULL.out")) == 1


async def test_tables_show_what_fails_with_its_code_and_since_when(
    cli: Cli, start_server: StartServer, tmp_path: Path
) -> None:
    async with denied(start_server) as (account, _server, url):
        await published(account, "orders.schedules.a7f3b2c1-55d0", "@every 2s", "orders.denied")
        document = await listed_with(cli, url, 1)
        since = schedule(document, "orders.schedules.a7f3b2c1-55d0")["failing"]["since"].partition(".")[0]
        expected = words("failing (403) for", "1 failing, the server refuses their fires:", f"code since {since}Z")
        for arguments in (("ls",), ("ls", "ORDERS"), ("ls", "--wide")):
            shown = await on_a_terminal(80, *arguments, "--server", url, home=tmp_path)
            assert expected - words(shown) == set(), shown
            assert "1 schedule; 1 of them is failing\n" in shown
            assert "--wide" in arguments or max(map(len, shown.splitlines())) <= 80, shown
        wrong = await on_a_terminal(80, "ls", "--invalid", "--server", url, home=tmp_path)
        assert "1 failing, the server refuses their fires:" in wrong
        assert "next fire" not in wrong


async def test_of_more_than_fit_a_sidecar_that_answers_names_all(cli: Cli, start_server: StartServer) -> None:
    count = 500
    async with denied(start_server) as (account, _server, url):
        at = f"@at {in_seconds(2)}"
        for number in range(count):
            await published(account, f"orders.s.{number}", at, "orders.denied")

        async def shared_in_part() -> bool:
            """Return whether the bucket has as many as fit, and the number of the others."""
            entries = await shared(account)
            return any(stream["more"] > 0 for entry in entries.values() for stream in entry["streams"].values())

        await eventually(shared_in_part, within_seconds=WAIT_SECONDS, describe="the bucket is full")
        document = await listed_with(cli, url, count)
        assert document["failing_unlisted"] == 0
        assert sum(one["state"] == "failing" for one in document["schedules"]) == count


async def test_of_more_than_fit_the_number_is_shown(cli: Cli, start_server: StartServer, tmp_path: Path) -> None:
    count = 500
    async with denied(start_server, service=False) as (account, _server, url):
        at = f"@at {in_seconds(2)}"
        for number in range(count):
            await published(account, f"orders.s.{number}", at, "orders.denied")
        document = await listed_with(cli, url, count)
        marked = [one for one in document["schedules"] if one["state"] == "failing"]
        assert document["failing_unlisted"] == count - len(marked) > 0
        assert len(marked) > 200
        shown = await on_a_terminal(80, "ls", "--invalid", "--server", url, home=tmp_path)
        assert f"{count} of them are failing, of which {document['failing_unlisted']} are not listed\n" in shown


async def test_what_instances_shared_that_are_gone_is_not_shown_and_is_removed(
    cli: Cli, start_server: StartServer
) -> None:
    async with denied(start_server) as (account, server, url):
        sequence = await published(account, "orders.s", NEVER, "orders.out")
        rows = {"reasons": [{"code": 403, "description": "no", "schedules": [[sequence, 1]]}], "more": 5}
        killed = {"streams": {"emulated.ORDERS": rows}, "more": 7}
        await account.publish(KEY, body=json.dumps({"killed": killed}).encode())
        document = await listed(cli, url)
        assert (document["failing"], document["schedules"][0]["state"]) == (0, "waiting")
        await published(account, "orders.s.denied", "@every 2s", "orders.denied")
        await listed_with(cli, url, 1)
        (name,) = await shared(account)
        assert name in (await listed(cli, url))["sidecars"]
    async with account_on(url_of(server.url, "admin-0")) as account:
        assert await shared(account) == {}, "an instance that ends removes its own"
        document = await listed(cli, url)
        assert (document["failing"], document["sidecars"]) == (0, [])


async def test_nothing_is_written_unless_something_fails_and_has_changed(cli: Cli, start_server: StartServer) -> None:
    async with denied(start_server) as (account, _server, url):
        await published(account, "orders.s.fine", "@every 1s", "orders.out")
        await account.wait_for("ORDERS", "orders.out", 3)
        assert await account.api.message(BUCKET, last_by_subj=KEY) is None
        await published(account, "orders.s.denied", "@every 1s", "orders.denied")
        await listed_with(cli, url, 1)
        written = await account.api.message(BUCKET, last_by_subj=KEY)
        fired = len(await account.messages("ORDERS", "orders.out"))
        await account.wait_for("ORDERS", "orders.out", fired + 4)
        assert await account.api.message(BUCKET, last_by_subj=KEY) == written, "it was refused all the time"


async def test_what_another_instance_fires_does_not_fail(cli: Cli, start_server: StartServer) -> None:
    """One of two may not publish to the target: it gives the stream up to the other one."""
    mode = V2_11.rpartition(".")[0]
    granted = [one for one in permissions_of(mode) if one.subject != "orders.>"]
    users = [[*granted, Permission("publish", f"orders.{target}", ())] for target in ("out", ">")]
    server = await start_server(V2_11, config=shared_account(users))
    url = url_of(server.url, "admin-0")
    async with account_on(url) as account, sidecar_on(url_of(server.url, "sidecar-0")) as first:
        await account.create("ORDERS", subjects=["orders.>"])
        await first.ready("ORDERS")
        for number in range(20):
            await published(account, f"orders.s.{number}", "@every 2s", "orders.denied")
        await listed_with(cli, url, 20)
        async with sidecar_on(url_of(server.url, "sidecar-1")) as second:
            await second.ready("ORDERS")
            await account.wait_for("ORDERS", "orders.denied", 20)
            await listed_with(cli, url, 0)


async def test_what_a_stranger_writes_there_breaks_no_list(cli: Cli, start_server: StartServer) -> None:
    async with denied(start_server) as (account, _server, url):
        sequence = await published(account, "orders.s", NEVER, "orders.out")
        name = await alive(cli, url)
        row = {"code": 403, "description": "\x1b[31m", "schedules": [[sequence, 1, 1], ["1", 1], [sequence, -1], 7]}
        for entry in (
            7,
            {"streams": [], "more": "many"},
            {"streams": {"emulated.ORDERS": 7}, "more": -5},
            {"streams": {"emulated.ORDERS": {"reasons": [7, row, {"code": "x", "schedules": 7}], "more": 1e300}}},
        ):
            await account.publish(KEY, body=json.dumps({name: entry}).encode())
            assert (await listed(cli, url))["failing"] == 0, entry


async def alive(cli: Cli, url: str) -> str:
    """Return the id of the sidecar, once it has reported that it is alive."""

    async def one() -> str | None:
        return next(iter((await listed(cli, url))["sidecars"]), None)

    return await eventually(one, within_seconds=WAIT_SECONDS, describe="the sidecar is alive")


async def shared(account: Account) -> Document:
    """Return what the instances share."""
    message = await account.api.message(BUCKET, last_by_subj=KEY)
    assert message is not None
    document: Document = json.loads(message.body or b"")
    return document
