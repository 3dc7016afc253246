"""`nats-scheduler failures` and `changes`: what went wrong and who changed what, as it is kept, newest first.

It tests `cli/kept_advisories.py` too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cli.changing_site import Site, site_on
from tests.cli.prompt import FAR, Cli, Prompt
from tests.conftest import StartServer
from tests.harness.account import Account
from tests.harness.servers import V2_10, V2_15
from tests.harness.waiting import eventually

STREAM = "nats_scheduler_failures"


async def create_what_keeps(account: Account) -> None:
    """Create the stream in which a sidecar keeps advisories."""
    await account.create(STREAM, subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None)


async def kept(account: Account, count: int) -> None:
    """Wait until `count` advisories are stored."""

    async def enough() -> bool:
        info = await account.api.stream(STREAM)
        return info is not None and info["state"]["messages"] >= count

    await eventually(enough, describe=f"{count} advisories")


async def test_what_is_no_advisory_is_passed_over(prompt: Prompt) -> None:
    said = await prompt.says("failures")
    assert (said.exit_code, f"stream {STREAM} does not exist: a sidecar creates it" in said.stderr) == (1, True)
    said = await prompt.says("changes", env={"NATS_SCHEDULER_FAILURES_STREAM": "none_such"})
    assert (said.exit_code, "stream none_such does not exist" in said.stderr) == (1, True)
    account = prompt.account
    await create_what_keeps(account)
    good = {"type": "io.nats_scheduler.advisory.v1.cannot_serve", "stream": "S", "reason": "x"}
    for body in (b"no JSON", b"[]", b'{"stream": 7}', json.dumps({**good, "schedule": 7}).encode()):
        await account.publish("nats_scheduler.advisory.cannot_serve.S", body=body)
    await account.publish("nats_scheduler.advisory.cannot_serve.T", body=json.dumps(good).encode())
    sequence = await account.publish("nats_scheduler.advisory.cannot_serve.S", body=json.dumps(good).encode())
    for words in ("", "S"):
        [one] = (await prompt.document(f"failures {words}"))["failures"]
        assert (one["sequence"], one["schedule"], one["kind"]) == (sequence, None, "cannot_serve")
    assert (await prompt.document("failures S S.>"))["failures"] == []


# -- who changed what ------------------------------------------------------------------------------------------


@pytest.fixture(params=[V2_10, V2_15])
async def keeping(cli: Cli, request: pytest.FixtureRequest, start_server: StartServer) -> AsyncIterator[Site]:
    """A stream on a server that keeps advisories."""
    server = await start_server(request.param)
    async with site_on(cli, server.url, request.param, "S") as site:
        await create_what_keeps(site.account)
        yield site


async def changes_now(site: Site, *words: str) -> list[dict[str, Any]]:
    said = await asyncio.to_thread(site.cli, "changes", *words, "--json", "--server", site.url)
    found: list[dict[str, Any]] = json.loads(said.stdout)["changes"]
    return found


async def changes(site: Site, *words: str, count: int) -> list[dict[str, Any]]:
    """Wait until `count` changes are shown, and return them."""

    async def shown() -> list[dict[str, Any]] | None:
        found = await changes_now(site, *words)
        return found if len(found) == count else None

    return await eventually(shown, describe=f"{count} changes of {words}")


async def test_each_change_is_kept_with_its_author_and_its_reason(keeping: Site) -> None:
    add = ("add", "S.a", "--at", FAR, "--target", "S.out")
    await asyncio.to_thread(keeping.cli, add[0], "S", *add[1:], "--server", keeping.url)
    [change] = await changes(keeping, count=1)
    user, at, host = change["author"].partition("@")
    assert (user != "", at, host != "") == (True, "@", True), "the user of this machine unless another one is named"
    await keeping.done("add", "S.b", *add[2:], "--reason", "the start")
    await keeping.done(*add, "--reason", "nothing is changed")
    await keeping.done("edit", "S.a", "new body", "--reason", "a better body")
    await keeping.done("pause", "S.a", "--reason", "maintenance")
    await keeping.done("resume", "S.a", "--dry-run")
    await keeping.done("resume", "S.a")
    await keeping.done("rm", "S.*", "--yes", "--reason", "the end")
    found = await changes(keeping, count=7)
    about = [(one["subject"], one["change"], one["reason"]) for one in found]
    assert sorted(about[:2]) == [("S.a", "removed", "the end"), ("S.b", "removed", "the end")]
    assert about[2:] == [
        ("S.a", "resumed", ""),
        ("S.a", "paused", "maintenance"),
        ("S.a", "edited", "a better body"),
        ("S.b", "added", "the start"),
        ("S.a", "added", ""),
    ]
    assert {one["author"] for one in found[:-1]} == {"ops"}
    assert await changes(keeping, "S", "S.b", count=2)
    assert await changes(keeping, "S", "--limit", "3", count=3)
    assert await changes_now(keeping, "T") == []
    table = await asyncio.to_thread(keeping.cli, "changes", "S", "S.b", "--server", keeping.url)
    first = table.stdout.splitlines()[-2].split()
    assert first[1:] == ["S", "S.b", "added", "ops", "the", "start", "2"]
    assert table.stdout.splitlines()[-1] == "2 changes, newest first"
    failures = await asyncio.to_thread(keeping.cli, "failures", "--json", "--server", keeping.url)
    assert json.loads(failures.stdout)["failures"] == []
