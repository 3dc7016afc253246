"""`nats-scheduler changes`: who changed which schedule, when and why; none of it is among the failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cli.changing_site import FAR, Cli, Site, site_on
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS
from tests.harness.servers import V2_10, V2_15
from tests.harness.waiting import eventually

KEPT_IN = "nats_scheduler_failures"


@pytest.fixture(params=[V2_10, V2_15])
async def keeping(cli: Cli, request: pytest.FixtureRequest, start_server: StartServer) -> AsyncIterator[Site]:
    """A stream on a server that keeps advisories."""
    server = await start_server(request.param)
    async with site_on(cli, server.url, request.param, "S") as site:
        await site.account.create(KEPT_IN, subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None)
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

    return await eventually(shown, within_seconds=WAIT_SECONDS, describe=f"{count} changes of {words}")


async def test_each_change_is_kept_with_its_author_and_its_reason(keeping: Site) -> None:
    await keeping.done("add", "S.a", "--at", FAR, "--target", "S.out", "--reason", "the start")
    await keeping.done("add", "S.b", "--at", FAR, "--target", "S.out")
    await keeping.done("add", "S.a", "--at", FAR, "--target", "S.out", "--reason", "nothing is changed")
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
        ("S.b", "added", ""),
        ("S.a", "added", "the start"),
    ]
    assert {one["author"] for one in found} == {"ops"}
    assert await changes(keeping, "S", "S.b", count=2)
    assert await changes(keeping, "S", "--limit", "3", count=3)
    assert await changes_now(keeping, "T") == []
    table = await asyncio.to_thread(keeping.cli, "changes", "S", "S.a", "--server", keeping.url)
    first = table.stdout.splitlines()[-2].split()
    assert first[1:] == ["S", "S.a", "added", "ops", "the", "start", "1"]
    assert table.stdout.splitlines()[-1] == "5 changes, newest first"
    failures = await asyncio.to_thread(keeping.cli, "failures", "--json", "--server", keeping.url)
    assert json.loads(failures.stdout)["failures"] == []


async def test_the_author_is_the_user_of_the_machine_unless_another_one_is_named(keeping: Site) -> None:
    words = ("add", "S", "S.a", "--at", FAR, "--target", "S.out", "--server", keeping.url)
    await asyncio.to_thread(keeping.cli, *words)
    [change] = await changes(keeping, count=1)
    user, at, host = change["author"].partition("@")
    assert (user != "", at, host != "") == (True, "@", True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("S.S",), "'S.S': expected the name of a stream"),
        (("S", "S..s"), "'S..s': expected a subject such as"),
        (("S", "--since", "soon"), "--since of 'soon': expected a duration"),
        (("S", "--limit", "0"), "--limit"),
    ],
)
def test_wrong_use_is_found_before_a_server_is_asked(cli: Cli, words: tuple[str, ...], error: str) -> None:
    said = cli("changes", *words, "--server", "nats://127.0.0.1:1")
    assert (said.exit_code, error in said.stderr) == (2, True), said.stderr


async def test_where_nothing_keeps_changes_the_command_says_so(site: Site) -> None:
    said = await asyncio.to_thread(
        site.cli, "changes", "--server", site.url, env={"NATS_SCHEDULER_FAILURES_STREAM": "none_such"}
    )
    assert (said.exit_code, "stream none_such does not exist" in said.stderr) == (1, True), said.stderr
