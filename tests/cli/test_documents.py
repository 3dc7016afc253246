"""The documents of `--json`: each has the keys that the reference promises of its command, and no other."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.doctor.report import MAX_LISTED
from tests.cli.command_reference import described_objects, promised_keys
from tests.cli.prompt import NEVER, WRONG, Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.harness.account import in_seconds, sidecar_on
from tests.harness.servers import V2_11, V2_12, V2_14
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually

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


async def printed(prompt: Prompt, line: str, *words: str) -> Document:
    """Return the document that a command prints, whatever its exit code is."""
    document: Document = json.loads((await prompt.says(line, *words, "--json")).stdout)
    return document


def test_what_needs_no_server_has_the_keys_that_are_promised(cli: Cli) -> None:
    def document(*arguments: str) -> Document:
        found: Document = json.loads(cli(*arguments, "--json").stdout)
        return found

    night = ("explain", "0 30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-28T12:00:00Z")
    check("explain", document(*night), document("explain", "@often"))

    whole = {"Nats-Schedule": "@every 5m", "Nats-Schedule-Target": "a", "Nats-Schedule-Source": "b"}
    whole |= {"Nats-Schedule-TTL": "5m", "Nats-Schedule-Rollup": "sub"}
    cancel = {"Nats-Scheduler": "s", "Nats-Schedule-Next": "purge"}
    fire = {"Nats-Msg-Id": "nats-scheduler:7:1795392000000000000:s", "Nats-Scheduler": "s"}
    fire |= {"Nats-Schedule-Next": "2026-11-24T00:00:00Z"}
    given = [whole, cancel, fire, {"Nats-Schedule": "@often"}, {"Some": "header"}]
    found = [document("check", *(f"-H{name}: {value}" for name, value in one.items())) for one in given]
    assert {one["message"] for one in found} == {"schedule", "cancel", "generated", "invalid", "ordinary"}
    check("check", *found)

    shown = document("settings", "show")
    check("settings", shown)
    assert all(set(one) == {"value", "source"} for one in shown["settings"].values())


async def test_what_is_written_has_the_keys_that_are_promised(prompt: Prompt, tmp_path: Path) -> None:
    edited = await printed(prompt, "calendar set work 2026-12-25")
    check("calendar", edited, await printed(prompt, "calendar show work"))
    check("calendar ls", await printed(prompt, "calendar ls"))

    flagged = {"subjects": ["a.>"], "storage": "memory", "allow_msg_schedules": True}
    (tmp_path / "good.json").write_text(json.dumps({"name": "GOOD", **flagged}))
    (tmp_path / "bad.json").write_text(json.dumps({"name": "BAD", **flagged, "sources": [{"name": "GOOD"}]}))
    files = [str(tmp_path / f"{name}.json") for name in ("good", "bad", "none")]
    check("stream add", await printed(prompt, "stream add", *files))

    await prompt.create()
    kept_in = {"subjects": ["nats_scheduler.advisory.>"], "allow_msg_schedules": None}
    await prompt.account.create("nats_scheduler_failures", **kept_in)
    about = "ORDERS ORDERS.s"
    check("add", await printed(prompt, f"add {about} --every 5m --target ORDERS.out"))
    check("edit", await printed(prompt, f"edit {about} body"))
    check("fire", await printed(prompt, f"fire {about}"))
    span = f"--from {in_seconds(-3600)} --to {in_seconds(-1800)}"
    check("backfill", await printed(prompt, f"backfill {about} {span}"))
    for command in ("pause", "resume", "rm"):
        check(command, await printed(prompt, f"{command} {about} ORDERS.gone"))

    async def kept() -> Document | None:
        found = await printed(prompt, "changes")
        return found if found["changes"] else None

    check("changes", await eventually(kept, describe="changes are kept"))
    for number in range(MAX_LISTED + 1):
        await prompt.account.publish(f"ORDERS.{number}", WRONG)
    check("doctor", await printed(prompt, "doctor"))


async def test_diff_and_apply_have_the_keys_that_are_promised(
    cli: Cli, start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_12)
    async with prompt_on(cli, server.url) as prompt:
        await prompt.account.create("ORDERS")
        file = tmp_path / "schedules.yaml"
        # This server has schedules, and knows only `@at`: it refuses the second one.
        entry = "  - {subject: ORDERS.%s, %s, target: ORDERS.out}\n"
        two = entry % ("a", "at: 2200-01-01T00:00:00Z") + entry % ("b", "every: 9000h")
        file.write_text(f"stream: ORDERS\nschedules:\n{two}")
        check("diff", await printed(prompt, "diff", str(file)))
        applied = await printed(prompt, "apply --yes", str(file))
        check("apply", applied)
        assert [one["err_code"] for one in applied["errors"]] == [10189]


async def test_the_lists_have_the_keys_that_are_promised(prompt: Prompt) -> None:
    """A sidecar serves a valid, an invalid and a misnamed schedule."""
    account = prompt.account
    async with sidecar_on(prompt.url) as running:
        await account.create("ORDERS")
        await running.ready("ORDERS")
        await prompt.schedule("ORDERS.s", NEVER)
        await account.publish("ORDERS.wrong", WRONG)
        await account.publish("ORDERS.near", {"Nats-Schedul": "@daily"})
        check("ls", await printed(prompt, "ls"))
        told = [await printed(prompt, f"info ORDERS ORDERS.{name}") for name in ("s", "wrong", "near")]
        check("info", *told)
        parts = ("schedule", "rejected", "misnamed")
        assert [[part for part in parts if one[part] is not None] for one in told] == [[part] for part in parts]
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
        await prompt.schedule("ORDERS.excepted", "0 0 9 * * *", X_Except=tomorrow)
        patterns = [json.loads(prompt.cli("next", pattern, "--json").stdout) for pattern in ("@daily", "@often")]
        check("next", *patterns, await printed(prompt, "next ORDERS ORDERS.excepted"))
        check("stream ls", await printed(prompt, "stream ls"))
        await prompt.schedule("ORDERS.soon", "@every 1s")
        await account.wait_for("ORDERS", "ORDERS.out")
        of_soon = [await printed(prompt, f"history ORDERS ORDERS.soon{more}") for more in ("", " --contents")]
        check("history", *of_soon)

        async def kept() -> Document | None:
            found = await printed(prompt, "failures")
            return found if len(found.get("failures", ())) >= 2 else None

        check("failures", await eventually(kept, describe="two advisories are kept"))

        async def known() -> Document | None:
            found = await printed(prompt, "top --once")
            tables = ("streams", "soonest", "fires", "failures", "instances")
            return found if all(found[name] for name in tables) else None

        check("top", await eventually(known, describe="all tables of top have rows"))

        async def held() -> Document | None:
            found = await printed(prompt, "instances")
            return found if found["instances"] and found["streams"] else None

        check("instances", await eventually(held, describe="a stream is owned"))


@pytest.mark.server
async def test_graduate_has_the_keys_that_are_promised(cli: Cli, tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        async with prompt_on(cli, await machine.install(V2_11)) as prompt:
            await prompt.create(allow_msg_schedules=False, storage="file")
            await prompt.schedule("ORDERS.s", NEVER)
            await prompt.account.publish("ORDERS.wrong", WRONG)
        await machine.install(V2_14)
        assert machine.server is not None
        async with prompt_on(cli, machine.server.url) as prompt:
            check("graduate", await printed(prompt, "graduate ORDERS --dry-run"))
