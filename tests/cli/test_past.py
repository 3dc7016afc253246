"""`nats-scheduler history` shows what a sidecar or a server fired, and how late, as a table and as a document."""

from __future__ import annotations

import re

import pytest

from nats_scheduler.cli.history import NOT_STORED
from tests.cli.prompt import Cli, Prompt, prompt_on, words
from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.servers import V2_10, V2_11, V2_15


async def fired_twice(prompt: Prompt) -> None:
    await prompt.schedule("S.s", "@every 1s")
    await prompt.account.wait_for("S", "S.out", 2)


@pytest.mark.parametrize("version", [V2_10, V2_11])
async def test_the_fires_of_a_sidecar_are_shown(cli: Cli, start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with prompt_on(cli, server.url) as prompt:
        async with sidecar_on(server.url) as running:
            await prompt.account.create("S")
            await running.ready("S")
            await fired_twice(prompt)
        stored = [message.sequence for message in await prompt.account.messages("S", "S.out")]
        document = await prompt.document("history S S.s")
        fires = document["fires"]
        assert (document["searched"], document["complete"]) == ("S.out", True)
        assert [fire["sequence"] for fire in fires] == stored[::-1]
        assert {fire["fired_by"] for fire in fires} == {"sidecar"}
        assert [fire["next_fire"] for fire in fires[1:]] == [fire["fire_time"] for fire in fires[:-1]]
        older = (await prompt.document("history S S.s --limit 1"))["older"]
        assert f"older ones: --before {older}" in await prompt.shows("history S S.s --limit 1")
        until = fires[0]["stored"]
        for more in (f"--before {older}", f"--until {until}"):
            assert (await prompt.document(f"history S S.s {more}"))["fires"] == fires[1:]
        each = (await prompt.document("history S S.s --contents"))["fires"]
        assert [fire["content"]["sequence"] for fire in each] == stored[::-1]
        assert {(fire["content"]["body"], fire["content"]["subject"]) for fire in each} == {("body", "S.out")}
        text = await prompt.shows("history S --limit 1 --contents")
        assert f"\nFire {stored[-1]} of S.s:\n\n  Nats-Scheduler: S.s\n" in text
        assert text.endswith("\nIts body (text, 4 bytes):\n\n  body\n")
        many = await prompt.says("history S S.s --limit 101 --contents")
        assert (many.exit_code, "expected at most 100" in many.stderr) == (2, True)
        for more, shown in (("--limit 1", fires[:1]), ("--since 2200-01-01T00:00:00Z", []), ("--since 1h", fires)):
            assert (await prompt.document(f"history S S.s {more}"))["fires"] == shown
        async with sidecar_on(server.url, allowed_targets=("S=S.other",)) as running:
            await running.ready("S")
            assert await prompt.document("history S S.s") == document, "its target is not allowed any more"


async def test_the_fires_of_a_native_server_are_shown_on_80_columns(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_15)
    async with prompt_on(cli, server.url) as prompt:
        await prompt.account.create("S")
        assert await prompt.shows("history S S.s") == "no fire of S.s is stored in S\n"
        missing = await prompt.says("history T T.s")
        assert (missing.exit_code, missing.stderr) == (1, "nats-scheduler: error: stream T does not exist\n")
        await fired_twice(prompt)
        document = await prompt.document("history S S.s")
        assert {fire["fired_by"] for fire in document["fires"]} == {"server"}
        text = await prompt.shows("history S S.s", columns=80)
        lines = text.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[0].split()[:5] == ["fire", "time", "(UTC)", "late", "by"]
        assert re.search(r" (ms|s) +server ", lines[1])
        assert any("newest first, on S.out in S" in line for line in lines), text
        await prompt.schedule("S.t", "@every 1s", target="S.also")
        await prompt.account.wait_for("S", "S.also", 2)
        whole = await prompt.document("history S --limit 1000")
        late = {fire["sequence"]: fire["lateness_nanoseconds"] for fire in whole["fires"]}
        assert (whole["schedule"], list(late)) == (None, sorted(late, reverse=True))
        for schedule in ("S.s", "S.t"):
            for fire in (await prompt.document(f"history S {schedule}"))["fires"]:
                assert fire["sequence"] > max(late) or late[fire["sequence"]] == fire["lateness_nanoseconds"]
        await prompt.account.api.call("STREAM.PURGE.S", {"filter": "S.s"})
        assert len((await prompt.document("history S --limit 3"))["fires"]) == 3, "of a schedule that is gone too"
        table = await prompt.shows("history S --since 1h")
        assert ("unknown" in table, NOT_STORED in table) == (True, True), "the first fire of what is gone"
        assert {"schedule", "S.s", "S.t"} <= words(table)
        assert "newest first, in S\n" in table


async def test_fires_into_another_stream_are_found_there(prompt: Prompt) -> None:
    """By a sidecar that is asked, and without one, whatever the command itself allows."""
    account = prompt.account
    async with sidecar_on(prompt.url, allowed_targets_elsewhere=("S=jobs.>",)) as running:
        await account.create("S")
        await account.create("JOBS", subjects=["jobs.>"], allow_msg_schedules=False)
        await running.ready("S")
        await account.publish("S.s", {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-X-Target": "jobs.run"})
        await account.wait_for("JOBS", "jobs.run", 2)
        asked = await prompt.document("history S S.s --limit 1")
        table = await prompt.shows("history S S.s")
    read = await prompt.document("history S S.s")
    await account.api.call("STREAM.PURGE.S", {})
    gone = await prompt.document("history S S.s --target jobs.run")
    for found in (asked, read, gone):
        assert (found["stream"], found["searched"]) == ("S", "jobs.run")
        assert {fire["stream"] for fire in found["fires"]} == {"JOBS"}
        assert {fire["schedule_sequence"] for fire in found["fires"]} == {1}
    assert "newest first, on jobs.run in JOBS" in table
