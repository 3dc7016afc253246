"""The documents of `--json`: each has the keys that the reference promises of its command, and no other."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.doctor.finding import MAX_LISTED
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.cli.command_reference import described_objects, promised_keys
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_11, V2_12, V2_14
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually

NEVER = "@at 2200-01-01T00:00:00Z"
Document = dict[str, Any]


def check(command: str, *documents: Document) -> None:
    """Compare documents of one command, and the objects in them, with what the reference promises."""
    compare(command, "", documents)
    for described, key in sorted(described_objects()):
        if described == command:
            compare(command, key, [one for document in documents for one in document.get(key, ())])


def compare(command: str, key: str, objects: Any) -> None:
    always, sometimes = promised_keys(command, key)
    assert objects, f"{command}: nothing to compare {key} with"
    for one in objects:
        assert always <= set(one) <= always | sometimes, (command, key, one)
    seen = set().union(*map(set, objects))
    assert seen == always | sometimes, f"{command}: {key or 'the document'} never has {always | sometimes - seen}"


def without_server(cli: Cli, *arguments: str) -> Document:
    document: Document = json.loads(cli(*arguments, "--json").stdout)
    return document


async def test_calendar_has_the_keys_that_are_promised(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    edited = await on(cli, server, "calendar", "set", "work", "2026-12-25")
    check("calendar", edited, await on(cli, server, "calendar", "show", "work"))
    check("calendar ls", await on(cli, server, "calendar", "ls"))


async def test_diff_and_apply_have_the_keys_that_are_promised(
    cli: Cli, start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_12)
    async with account_on(server.url) as account:
        await account.create("ORDERS")
    file = tmp_path / "schedules.yaml"
    # This server has schedules, and knows only `@at`: it refuses the second one.
    entry = "  - {subject: ORDERS.%s, %s, target: ORDERS.out}\n"
    two = entry % ("a", "at: 2200-01-01T00:00:00Z") + entry % ("b", "every: 9000h")
    file.write_text(f"stream: ORDERS\nschedules:\n{two}")
    check("diff", await on(cli, server, "diff", str(file)))
    applied = await on(cli, server, "apply", str(file), "--yes")
    check("apply", applied)
    assert [one["err_code"] for one in applied["errors"]] == [10189]


async def on(cli: Cli, server: EmbeddedServer, *arguments: str) -> Document:
    """Run a command against a server, in a thread with an event loop of its own."""
    said = await asyncio.to_thread(cli, *arguments, "--json", "--server", server.url)
    document: Document = json.loads(said.stdout)
    return document


def test_explain_has_the_keys_that_are_promised(cli: Cli) -> None:
    night = ("explain", "0 30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-28T12:00:00Z")
    check("explain", without_server(cli, *night), without_server(cli, "explain", "@often"))


def test_check_has_the_keys_that_are_promised(cli: Cli) -> None:
    whole = {"Nats-Schedule": "@every 5m", "Nats-Schedule-Target": "a", "Nats-Schedule-Source": "b"}
    whole |= {"Nats-Schedule-TTL": "5m", "Nats-Schedule-Rollup": "sub"}
    cancel = {"Nats-Scheduler": "s", "Nats-Schedule-Next": "purge"}
    fire = {
        "Nats-Msg-Id": "nats-scheduler:7:1795392000000000000:s",
        "Nats-Scheduler": "s",
        "Nats-Schedule-Next": "2026-11-24T00:00:00Z",
    }
    given = [whole, cancel, fire, {"Nats-Schedule": "@often"}, {"Some": "header"}]
    headers = [[f"-H{name}: {value}" for name, value in one.items()] for one in given]
    found = [without_server(cli, "check", *words) for words in headers]
    assert {one["message"] for one in found} == {"schedule", "cancel", "generated", "invalid", "ordinary"}
    check("check", *found)


def test_settings_show_has_the_keys_that_are_promised(cli: Cli) -> None:
    shown = without_server(cli, "settings", "show")
    check("settings", shown)
    assert all(set(one) == {"value", "source"} for one in shown["settings"].values())


async def test_the_lists_have_the_keys_that_are_promised(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    with capture_logs():  # else the log of this process is mixed with the output of the command
        async with account_on(server.url) as account, sidecar_on(server.url) as running:
            await compare_lists(cli, server, account, running)


async def compare_lists(cli: Cli, server: EmbeddedServer, account: Account, running: Running) -> None:
    """Run each list while a sidecar serves a valid, an invalid and a misnamed schedule."""
    await account.create("ORDERS")
    await running.ready("ORDERS")
    await account.publish("ORDERS.s", {"Nats-Schedule": NEVER, "Nats-Schedule-Target": "ORDERS.out"})
    await account.publish("ORDERS.wrong", {"Nats-Schedule": "@often", "Nats-Schedule-Target": "ORDERS.out"})
    await account.publish("ORDERS.near", {"Nats-Schedul": "@daily"})
    check("ls", await on(cli, server, "ls"))
    told = [await on(cli, server, "info", "ORDERS", f"ORDERS.{name}") for name in ("s", "wrong", "near")]
    check("info", *told)
    assert [(one["schedule"] is None, one["rejected"] is None, one["misnamed"] is None) for one in told] == [
        (False, True, True),
        (True, False, True),
        (True, True, False),
    ]
    patterns = [without_server(cli, "next", "@daily"), without_server(cli, "next", "@often")]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    headers = {"Nats-Schedule": "0 0 9 * * *", "Nats-Schedule-Target": "ORDERS.out"}
    await account.publish("ORDERS.excepted", {**headers, "Nats-Schedule-X-Except": tomorrow})
    check("next", *patterns, await on(cli, server, "next", "ORDERS", "ORDERS.excepted"))
    check("stream ls", await on(cli, server, "stream", "ls"))
    await account.publish("ORDERS.soon", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "ORDERS.out"})
    await account.wait_for("ORDERS", "ORDERS.out")

    async def kept() -> Document | None:
        found = await on(cli, server, "failures")
        return found if len(found.get("failures", ())) >= 2 else None

    check("failures", await eventually(kept, within_seconds=30, describe="two advisories are kept"))
    check("history", await on(cli, server, "history", "ORDERS", "ORDERS.soon"))

    async def known() -> Document | None:
        found = await on(cli, server, "top", "--once")
        tables = ("streams", "soonest", "fires", "failures", "instances")
        return found if all(found[name] for name in tables) else None

    check("top", await eventually(known, within_seconds=30, describe="all tables of top have rows"))

    async def held() -> Document | None:
        found = await on(cli, server, "instances")
        return found if found["instances"] and found["instances"][0]["holds"] else None

    check("instances", await eventually(held, within_seconds=30, describe="shards are held"))


async def test_stream_add_has_the_keys_that_are_promised(cli: Cli, start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    flagged = {"subjects": ["a.>"], "storage": "memory", "allow_msg_schedules": True}
    good.write_text(json.dumps({"name": "GOOD", **flagged}))
    bad.write_text(json.dumps({"name": "BAD", **flagged, "sources": [{"name": "GOOD"}]}))
    check("stream add", await on(cli, server, "stream", "add", str(good), str(bad), str(tmp_path / "none.json")))


async def test_the_commands_that_change_schedules_have_the_keys_that_are_promised(
    cli: Cli, start_server: StartServer
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("ORDERS", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        await account.create(
            "nats_scheduler_failures", subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None
        )
        about = ("ORDERS", "ORDERS.s")
        check("add", await on(cli, server, "add", *about, "--every", "5m", "--target", "ORDERS.out"))
        check("edit", await on(cli, server, "edit", *about, "new body"))
        check("fire", await on(cli, server, "fire", *about))
        since, until = in_seconds(-3600), in_seconds(-1800)
        check("backfill", await on(cli, server, "backfill", *about, "--from", since, "--to", until))
        for command in ("pause", "resume", "rm"):
            check(command, await on(cli, server, command, *about, "ORDERS.gone"))

        async def kept() -> Document | None:
            found = await on(cli, server, "changes")
            return found if found["changes"] else None

        check("changes", await eventually(kept, within_seconds=30, describe="changes are kept"))


async def test_doctor_has_the_keys_that_are_promised(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("ORDERS", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        for number in range(MAX_LISTED + 1):
            headers = {"Nats-Schedule": "@often", "Nats-Schedule-Target": "ORDERS.out"}
            await account.publish(f"ORDERS.{number}", headers)
    check("doctor", await on(cli, server, "doctor"))


@pytest.mark.server
async def test_graduate_has_the_keys_that_are_promised(cli: Cli, tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        async with account_on(await machine.install(V2_11)) as account:
            marked = {"nats-scheduler.allow_msg_schedules": "true"}
            await account.create("ORDERS", allow_msg_schedules=False, metadata=marked, storage="file")
            await account.publish("ORDERS.s", {"Nats-Schedule": NEVER, "Nats-Schedule-Target": "ORDERS.out"})
            await account.publish("ORDERS.wrong", {"Nats-Schedule": "@often", "Nats-Schedule-Target": "ORDERS.out"})
        await machine.install(V2_14)
        assert machine.server is not None
        check("graduate", await on(cli, machine.server, "graduate", "ORDERS", "--dry-run"))


def test_a_command_that_fails_says_why_and_with_which_exit_code(cli: Cli) -> None:
    for command in (("ls",), ("stream", "ls"), ("instances",), ("graduate", "ORDERS")):
        said = cli(*command, "--json", "--server", "nats://127.0.0.1:1")
        assert json.loads(said.stdout).keys() == {"error"}
        assert json.loads(said.stdout)["error"].keys() == {"message", "exit_code"}
